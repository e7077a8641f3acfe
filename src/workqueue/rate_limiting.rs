//! Keys whose delay a [`Limiter`](super::Limiter) decides.
//!
//! The limiter is user code: it is asked before the lock, contained. One that panics costs the key a wait of
//! [`FALLBACK`], not the hand-out.

use super::{Work, WorkQueue, queue::Shared};
use crate::sync::call_out::{self, Site};
use std::{hash::Hash, time::Duration};

/// The wait of a key whose limiter panicked: no hot loop, and soon enough to be noticed.
const FALLBACK: Duration = Duration::from_secs(1);

impl<K> Shared<K> {
    fn when(&self, key: &K) -> Duration {
        call_out::call(Site::Hook, || self.limiter.when(key)).unwrap_or(FALLBACK)
    }

    fn forget(&self, key: &K) {
        call_out::contain(Site::Hook, || self.limiter.forget(key));
    }

    fn requeues(&self, key: &K) -> u32 {
        call_out::call(Site::Hook, || self.limiter.requeues(key)).unwrap_or(0)
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> WorkQueue<K> {
    /// Queues a key after the wait that the limiter decides, which counts a failure of the key. client-go:
    /// `AddRateLimited`, which counts also when the queue is shut down.
    ///
    /// The answer is that of [`add`](Self::add). When the limiter panics the wait is one second. *Blocks*: briefly.
    pub fn add_rate_limited(&self, key: K) -> bool {
        // A limiter's count must not grow for a key that is refused. One that is shut out just now may still count.
        let d = if self.is_shut_down() { Duration::ZERO } else { self.0.when(&key) };
        self.add_after(key, d)
    }

    /// Tells the limiter that the key is in order again. A delay that runs goes on running. client-go: `Forget`.
    pub fn forget(&self, key: &K) {
        self.0.forget(key);
    }

    /// The key's failures since the limiter was last told to forget it; 0 when the limiter panics. client-go:
    /// `NumRequeues`.
    pub fn requeues(&self, key: &K) -> u32 {
        self.0.requeues(key)
    }
}

impl<K> Work<K> {
    /// As [`WorkQueue::forget`].
    pub fn forget(work: &Self) {
        work.queue().forget(work);
    }

    /// As [`WorkQueue::requeues`].
    pub fn failures(work: &Self) -> u32 {
        work.queue().requeues(work)
    }

    /// Done, and again after the wait that the limiter decides, as [`WorkQueue::add_rate_limited`] would.
    ///
    /// False when the queue is shut down: the work is done all the same, and the retry is refused and counted.
    /// *Blocks*: briefly.
    pub fn retry(work: Self) -> bool {
        let d = if work.queue().is_down() { Duration::ZERO } else { work.queue().when(&work) };
        Self::requeue_after(work, d)
    }
}
