//! The delta queue: between a reflector and whoever keeps the objects, when those are two threads.
//!
//! # Contract
//! * [`RealFifo`] is a [`DeltaSink`](crate::flow::DeltaSink): it takes a batch whole or not at all, in order, and
//!   hands everything out in that order, across all keys. A whole state (`ReplacedAll`) travels as one item. It decides
//!   nothing per key: what a whole state deletes is found by the consumer, against what it has stored by then.
//! * One consumer takes a [`Taken`], processes it, and commits it. *Apply, publish, commit*: whoever reads the store
//!   after the commit finds the effect. There is one `Taken` at a time; a second taker waits for the first.
//! * Producers never wait for processing: the lock is held for moving deltas in or out only, never while user code
//!   runs, while a thread is woken, or while a delta is dropped.
//! * Synced means processed: true once a `Taken` with a whole state in it has been committed, for ever. Nothing
//!   is counted. A failed or refused call never makes it true.
//! * A `Taken` that is dropped without commit is reported (a counter, and a hook) and makes nothing synced. The queue
//!   does not hand its deltas out again, because part of them may have been applied: what was lost is healed by the
//!   next whole state, the first included.
//! * After [`RealFifo::close`] nothing is taken in (`SinkError::Closed`) and nothing is handed out: takers get
//!   [`Closed`] at once, what is left is dropped. (client-go's queues hand out leftovers, and take more in.) What has
//!   been taken already can still be committed.
//!
//! Each line is a test of this room; `the_queue_behaves_as_its_plain_model` checks them in any order of calls, and
//! `lin.rs` with calls that overlap.
//!
//! # Argument
//! One mutex guards the deltas, whether a `Taken` is out, and the two bits `synced` and `closed`; every door enters it
//! once and decides there. Deltas go in at the tail in one critical section per batch and come out at the head, so the
//! order is that of the critical sections. Whoever makes a wait's condition true wakes the waiters after leaving:
//! `apply` on an empty queue, the end of a `Taken`, `close`.
//!
//! `synced` is set by the commit that follows the processing, in the critical section that ends the `Taken`; since the
//! order is total and one `Taken` is out at a time, everything queued before that whole state was ended before.
//!
//! The buffer of an ended `Taken` becomes the queue's next one unless it is larger than a usual batch, so a burst's
//! memory goes when the burst has been taken (`the_memory_of_a_burst_goes_when_the_burst_is_taken`).

mod real_fifo;
mod taken;

pub use real_fifo::{Closed, RealFifo};
pub use taken::{Taken, Uncommitted};

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
mod tests;
