//! The work queue: keys from handlers to reconcile workers.
//!
//! ```
//! use informer::workqueue::{WorkQueue, Work};
//!
//! let queue = WorkQueue::builder().name("pods").build();
//! queue.add("default/web-1");
//! queue.add("default/web-1"); // coalesces with the first
//! queue.shutdown();           // or keep it open and let workers wait in `get`
//! while let Some(work) = queue.get() {
//!     // Nobody else has this key until `work` is dropped, also when this panics.
//!     println!("{}", *work);
//!     Work::forget(&work);
//! }
//! ```
//!
//! [`WorkQueue`] has the promises. `queue.rs` is dirty and processing, get and done, shut down and drain; around it
//! `delaying.rs` (delays, fired by the workers that wait), `rate_limiting.rs` (delays that a [`Limiter`] decides) and
//! [`Work`], the guard. Below it `slots.rs` (what is owed to each key), `timer_heap.rs`, `waiters.rs` (whom to wake) and
//! `key.rs` (keys are user code).
//!
//! Compared with client-go: `Done` cannot be forgotten, repeated or called by a stranger; draining waits for what is
//! queued as well; after the shut-down `get` says "no more" only when that is so; delays need no thread; everything
//! takes its time from one [`Clock`](crate::sync::Clock).

mod builder;
mod delaying;
mod key;
mod limiter;
mod queue;
mod rate_limiting;
mod slots;
mod timer_heap;
mod waiters;
mod work;

pub use builder::WorkQueueBuilder;
pub use limiter::{Bucket, ItemExponential, Limiter, MaxOf, default_controller};
pub use queue::{DrainReport, ShutdownReport, TryGetError, WorkQueue};
pub use work::Work;

#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, informer_shuttle))]
mod lin;
#[cfg(all(test, informer_loom))]
mod model;
#[cfg(test)]
#[allow(dead_code, reason = "tests, models and histories use a part of it each")]
mod ops;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod scenarios;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
