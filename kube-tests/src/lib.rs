//! What the tests and examples of informer's feature `kube` share: [`server::Server`], an API server on plain threads with
//! the texts and shapes of a real one, and [`tls`], certificates that are made when they are needed.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this is user code, on real time")]

pub mod args;
pub mod server;
pub mod tls;
