//! [`KubeSource`]: kube's client as a [`ListerWatcher`](crate::source::ListerWatcher), for threads (feature `kube`).
//!
//! ```no_run
//! # use informer::{informer::SharedInformer, kube::{Io, KubeSource}, sync::Stop};
//! # use k8s_openapi::api::core::v1::Pod;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let io = Io::shared()?;
//! let client = io.client(io.infer()?)?;
//! let pods = SharedInformer::builder(KubeSource::<Pod>::new(&io, client)).name("pods").build()?;
//! let running = pods.spawn(&Stop::new())?;
//! # Ok(()) }
//! ```
//!
//! Any `K` will do that kube knows how to address: a type of k8s-openapi or of `derive(CustomResource)`, a
//! `DynamicObject` with its `ApiResource` ([`KubeSource::with`]), and `PartialObjectMeta<K>` for metadata alone.
//!
//! # Threads
//! kube is async; this crate is not. One thread, [`Io`], waits for the sockets of every source of the process. It moves
//! bytes and does nothing else. Each informer polls its own requests on its own thread: there JSON is decoded, and
//! nobody reads a watch faster than its informer takes it. Waiting is the facade's: a request is a future that is polled
//! inside [`Wake::wait_until`](crate::sync::Wake), and what wakes the future pokes the wake. So stop and nudges reach
//! it from any thread, and its deadlines are on the clock.
//!
//! # What a request does
//! Requests are sent by `Client::send` and read here, not by kube's `Api`: so that a stream that was cut is told from
//! one that ended; so that a `Retry-After` header is seen; so that one object that cannot be decoded costs that object
//! and not the list; and so that no body is ever in a log or in the text of an error. The message of a `Status` is told,
//! since it says what to do, and holds no object.
//!
//! A list has one deadline for all of it ([`KubeSource::list_timeout`]), the opening of a watch another
//! ([`KubeSource::open_timeout`]); an open watch is watched over by the reflector.
//!
//! kube's own retries are off for clients made by [`Io::client`]. A client of another origin should have
//! `Config::default_retry` set to false: else kube repeats 429, 503 and 504 below the reflector, for minutes, and the
//! reflector neither tells of them nor falls back from a version that is too large. This cannot be seen from here.
//!
//! # Stability
//! kube has a major version for each minor version of Kubernetes. This module follows it, and is not bound by the
//! crate's promise of stability. The rest of the crate names no type of kube.

mod decode;
mod error;
#[cfg(feature = "kube-http2")]
mod http2;
mod io;
mod request;
mod source;
mod stream;

pub use io::Io;
pub use source::KubeSource;

#[cfg(test)]
mod tests;
