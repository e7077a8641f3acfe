//! Keys with a delay. One timer a key at most; the workers that wait in [`WorkQueue::get`] fire them.
//!
//! Every critical section begins by firing what is due, so a key that is due goes before one that is added later, also
//! when no worker was there to see its deadline pass.

use super::{
    Work, WorkQueue,
    key::After,
    queue::{Shared, State},
};
use crate::sync::{Clock, Instant};
use std::{hash::Hash, time::Duration};

impl<K> Shared<K> {
    /// When a delay that begins now is over; `None` for at once.
    pub(super) fn after(&self, d: Duration) -> Option<Instant> {
        (!d.is_zero()).then(|| self.clock.now().checked_add(d).unwrap_or(Instant::LAST))
    }
}

impl<K> State<K> {
    /// Owes the key a hand-out at once, or from `at` on; of several delays the earliest counts.
    pub(super) fn owe_at(&mut self, id: usize, key: K, at: Option<Instant>, after: &mut After<K>) {
        let Some(at) = at else { return self.owe(id, key, after) };
        let slot = self.slots.get(id);
        match &mut slot.later {
            Some((_, timer)) if timer.at <= at => after.discard(key),
            Some((_, timer)) => {
                self.timers.disarm(*timer);
                *timer = self.timers.arm(at, id);
                after.discard(key);
            }
            none => *none = Some((key, self.timers.arm(at, id))),
        }
    }

    /// Turns every delay that is over into a hand-out owed, in the order of their deadlines.
    pub(super) fn fire(&mut self, clock: &Clock, after: &mut After<K>) {
        if self.timers.next().is_none() {
            return;
        }
        let now = clock.now();
        while let Some(id) = self.timers.pop_due(now) {
            if let Some((key, _)) = self.slots.get(id).later.take() {
                self.owe(id, key, after);
            }
        }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> WorkQueue<K> {
    /// Queues a key when `d` has passed on the queue's clock; zero is [`add`](Self::add).
    ///
    /// A key has one delay at a time: of two the earlier counts. An `add` meanwhile queues the key at once and leaves the
    /// delay running, so that the key comes again. Equal deadlines come in the order of adding. A delay too large to
    /// express never ends. The answer is that of `add`. *Blocks*: briefly. client-go: `AddAfter`.
    pub fn add_after(&self, key: K, d: Duration) -> bool {
        let at = self.0.after(d);
        self.0.accept(key, at)
    }
}

impl<K> Work<K> {
    /// Done, and again when `d` has passed, as [`WorkQueue::add_after`] would; zero queues the key at the tail.
    ///
    /// False when the queue is shut down: the work is done all the same, and the delay is refused and counted.
    /// *Blocks*: briefly.
    pub fn requeue_after(work: Self, d: Duration) -> bool {
        let at = work.queue().after(d);
        work.end(|s, id, key, after| {
            s.owe_at(id, key, at, after);
        })
    }
}
