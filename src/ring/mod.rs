//! The ring between the engine and one listener: one producer, one consumer, growable, shrinking.
//!
//! # Contract
//! * [`Producer::push`] never waits for the consumer (`freeze.rs`); the ring grows instead. It does not wake;
//!   [`Producer::wake`] does, so that a fan-out can push to everybody first.
//! * [`Consumer::pop`] waits for an item or the end.
//! * [`Producer::close`] ends it, from any thread: what is pushed later is given back, and the consumer's next `pop`
//!   answers `None`, and sees what was done before. What is left is dropped with the consumer.
//! * After a burst has been consumed its memory is given back: an empty ring keeps at most three segments.
//!
//! # How
//! A chain of segments ([`segment`] has the slots, their states and orderings). Its tail stands behind a lock that only
//! producers take, so that two of them would be slow and not wrong; the head belongs to the consumer alone. The two ends
//! never take the same lock to hand over an item.
//!
//! # Sleeping
//! The consumer marks the slot that it waits for. A push that finds the mark *owes* a wake-up and notes that; `wake`
//! pays. The consumer marks, and goes to sleep, under the lock of `sleep`; whoever wakes goes through that lock before
//! it notifies. So either the consumer is on the list of waiters by then, or it has yet to look, and will find the item.
//!
//! | consumer | push | wake |
//! |---|---|---|
//! | awake | slot found `EMPTY`: nothing owed | nothing to do: one load |
//! | marked, not asleep yet | `SLEEPING`: owed | waits for the lock: the few steps until the consumer is on the list |
//! | asleep | `SLEEPING`: owed | takes it off the list and unparks it |
//!
//! Closing is a flag, then the same wake-up, owed or not.
//!
//! # Counting
//! `pushed` is written by the producer before it publishes, `done` by the consumer when it comes back for the next item
//! (release: whoever sees the count sees what was done with the item). A reader loads `done` first and can never find
//! more done than pushed.
//!
//! # Not promised
//! An item whose push meets the drop of the consumer may stay until the producer is dropped: one at most, as every later
//! push is given back. `wake` and `close` are short but not wait-free: they go through a lock that the consumer holds
//! for a moment on its way to sleep.

mod segment;

use crate::sync::{
    CheckedArc, Clock, Monitor, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    keep, order,
};
use segment::{Head, Tail, chain};

#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, informer_loom))]
mod model;
#[cfg(any(fuzzing, all(test, not(informer_loom), not(informer_shuttle))))]
#[allow(dead_code, reason = "the fuzz target has this file of its own")]
pub(crate) mod ops;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;

/// Slots of a segment. Small under test, so that segments change hands all the time.
const SEGMENT: usize = if cfg!(test) { 2 } else { 128 };

struct Shared<T, const N: usize> {
    tail: Mutex<Tail<T, N>>,
    /// A push has found the consumer sleeping and nobody has woken it yet.
    owed: AtomicBool,
    pushed: AtomicUsize,
    /// Written by the consumer only.
    done: AtomicUsize,
    closed: AtomicBool,
    /// The consumer was dropped.
    gone: AtomicBool,
    sleep: Monitor<()>,
}

/// The engine's end.
pub(crate) struct Producer<T, const N: usize = SEGMENT>(CheckedArc<Shared<T, N>>);

/// The listener's end.
pub(crate) struct Consumer<T, const N: usize = SEGMENT> {
    shared: CheckedArc<Shared<T, N>>,
    head: Head<T, N>,
    /// The item popped last still counts.
    in_hand: bool,
    done: usize,
    clock: Clock,
}

/// A new, empty ring. The consumer's waits are seen by `clock`.
pub(crate) fn ring<T>(clock: &Clock) -> (Producer<T>, Consumer<T>) {
    ring_of(clock)
}

/// With segments of `N` slots.
pub(crate) fn ring_of<T, const N: usize>(clock: &Clock) -> (Producer<T, N>, Consumer<T, N>) {
    let (tail, head) = chain();
    let shared = CheckedArc::new(Shared {
        tail: Mutex::new(tail),
        owed: AtomicBool::new(false),
        pushed: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        closed: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        sleep: Monitor::new(()),
    });
    (Producer(shared.clone()), Consumer { shared, head, in_hand: false, done: 0, clock: clock.clone() })
}

impl<T, const N: usize> Shared<T, N> {
    fn notify(&self) {
        // Through the lock: a consumer that has marked its slot is on the list of waiters when it leaves it.
        if keep("ring: a wake-up goes through the lock") {
            drop(self.sleep.lock());
        }
        self.sleep.notify_all();
    }
}

impl<T, const N: usize> Producer<T, N> {
    /// Appends an item; gives it back when the ring is closed. *Blocks*: never on the consumer; only while another
    /// thread pushes. Check: `ring/freeze.rs::a_push_does_not_wait_for_a_frozen_consumer`.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(item);
        }
        let mut tail = self.0.tail.lock();
        // Written under the lock only, and before the slot is published.
        let pushed = self.0.pushed.load(Ordering::Relaxed) + 1;
        self.0.pushed.store(pushed, Ordering::Relaxed);
        if tail.append(item) && keep("ring: a push that finds the mark owes") {
            self.0.owed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Wakes the consumer if a push has found it sleeping. Called by whoever pushed. *Blocks*: not while the consumer
    /// works; for a moment while it goes to sleep.
    pub(crate) fn wake(&self) {
        if self.0.owed.load(Ordering::Relaxed) {
            self.0.owed.store(false, Ordering::Relaxed);
            self.0.notify();
        }
    }

    /// Ends the ring and wakes the consumer. Idempotent, legal on any thread. *Blocks*: as [`Producer::wake`].
    pub(crate) fn close(&self) {
        self.0.closed.store(true, order("ring: the end is set", Ordering::Release));
        if keep("ring: closing wakes") {
            self.0.notify();
        }
    }

    /// Items that the consumer is not done with: it is done with one when it comes back for the next. Zero once it is
    /// gone. *Blocks*: no; three loads.
    pub(crate) fn len(&self) -> usize {
        // The order of the loads matters: an item that is done was pushed before.
        let done = self.0.done.load(order("ring: done is loaded", Ordering::Acquire));
        let pushed = self.0.pushed.load(Ordering::Relaxed);
        if self.0.gone.load(Ordering::Relaxed) { 0 } else { pushed - done }
    }
}

impl<T, const N: usize> Consumer<T, N> {
    /// The next item, in the order of pushing; `None` at the end. *Blocks*: until there is either, never on a producer
    /// in the middle of a push. Check: `ring/freeze.rs::a_pop_does_not_wait_for_a_frozen_producer`.
    pub(crate) fn pop(&mut self) -> Option<T> {
        loop {
            if let Some(answer) = self.try_pop() {
                return answer;
            }
            let Shared { sleep, closed, .. } = &*self.shared;
            let head = &self.head;
            // Relaxed: the look that follows acquires.
            let waits = |(): &mut ()| !closed.load(Ordering::Relaxed) && head.mark_sleeping();
            drop(sleep.wait_while(sleep.lock(), &self.clock, None, waits));
        }
    }

    /// `None` when there is nothing yet, otherwise what [`Consumer::pop`] answers. *Blocks*: never (`ring/freeze.rs`).
    fn try_pop(&mut self) -> Option<Option<T>> {
        if std::mem::take(&mut self.in_hand) {
            self.done += 1;
            self.shared.done.store(self.done, order("ring: done is stored", Ordering::Release));
        }
        if self.shared.closed.load(order("ring: the end is looked at", Ordering::Acquire)) {
            return Some(None);
        }
        let item = self.head.take()?;
        self.in_hand = true;
        Some(Some(item))
    }

    /// Room for items, in all segments.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.head.segments() * N
    }
}

impl<T, const N: usize> Drop for Consumer<T, N> {
    fn drop(&mut self) {
        // Neither carries anything: a producer that finds them does less.
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.gone.store(true, Ordering::Relaxed);
        while let Some(left) = self.head.take() {
            drop(left);
        }
    }
}
