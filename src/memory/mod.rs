//! An embedded API server: real semantics, faults on demand, and a log of everything.
//!
//! The default source of the examples, the oracle of the tests, and a test kit for users: [`Server`] stores any
//! [`Resource`], [`Server::source`] is a [`crate::source::ListerWatcher`] over it, [`Fault`] makes it misbehave,
//! [`check::StreamChecker`] judges what a listener was told.
//!
//! It behaves as a kube-apiserver over etcd does:
//!
//! * one counter of versions for all resources; a list says the version it was taken at, a watch delivers every change
//!   after its start version, in order, none left out between the list and the watch;
//! * a watch from a version whose changes are forgotten is opened and then told `Expired` in the stream; a restarted
//!   server knows no change from before its start; storage compaction alone touches neither open nor new watches, but
//!   exact lists, and pages after a restart;
//! * a watch from a version that the server has not reached is opened and stays silent; a list waits three seconds for
//!   the version and then says `TooLargeVersion`;
//! * a watch may begin with the state: its objects as added, a bookmark that says that this was all (only if bookmarks
//!   were asked for), then the changes; from a version that is not reached it says `TooLargeVersion` in the stream;
//! * with a selector, an object that leaves the selection is deleted for the watcher, with its previous state and the
//!   new version; one that enters it is added;
//! * a server of the cluster may lag behind the others ([`Fault::behind`]): it answers from its memory, or waits in vain;
//! * the pages of a list all show the state at the first one; lists at any version (`0`) come whole.
//!
//! It starts no thread. Everybody waits through [`crate::sync::Wake`] on the server's clock, so a manual clock moves it.

mod audit;
pub mod check;
mod faults;
mod requests;
mod resource;
mod selector;
mod server;
mod source;
mod state;
mod stream;
mod watch_cache;

pub use audit::{Audit, Record, Truth};
pub use faults::Fault;
pub use requests::{Answer, Asked, Ended, Request};
pub use resource::{Phase, Pod, Resource};
pub use server::{Server, ServerBuilder, ServerError};
pub use source::Source;
pub use state::Close;
pub use watch_cache::Op;

/// A version of the server as a number.
fn parse_version(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
