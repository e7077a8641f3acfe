//! Kubernetes informer machinery on std threads.
//!
//! The rooms, in the order of the flow: [`sync`] and [`flow`] are the bed; [`source`] → [`reflector`] → [`queue`] →
//! [`store`] → [`processor`] (with one ring per listener) → handlers → [`workqueue`] → [`controller`]. [`informer`]
//! is where they meet, [`memory`] an embedded API server to run it all against.
//!
//! | to | begin at |
//! |---|---|
//! | keep a live copy of a resource, and be told of changes | [`informer::SharedInformer`] |
//! | connect an API server, or anything else that lists and watches | [`source::ListerWatcher`] |
//! | read the copy: by key, by index, a whole instant | [`store::StoreReader`], [`store::Snapshot`] |
//! | reconcile | [`controller::Controller`], or a [`workqueue::WorkQueue`] and workers of your own |
//! | keep the objects yourself | [`reflector::Reflector`] and a [`flow::DeltaSink`] |
//! | use kube's client for it (feature `kube`) | `kube::KubeSource` |
//! | test all that without a server and without sleeping | [`memory::Server`], [`sync::ManualClock`] |
//!
//! An example of the whole stands in the README. P1 to P10 in these pages are the promises of its table.
#![deny(unsafe_code)]
// Models use only some of what the rooms have for tests.
#![cfg_attr(all(test, any(informer_loom, informer_shuttle)), allow(dead_code))]

// The bed.
pub mod flow;
pub mod sync;

// The river.
pub mod source;
pub mod reflector;
pub mod queue;
pub mod store;
mod ring;
pub mod processor;
pub mod workqueue;
pub mod controller;

// Where it meets, and a server to run it against.
pub mod informer;
pub mod memory;
#[cfg(feature = "kube")]
pub mod kube;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
