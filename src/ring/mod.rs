//! The ring between the engine and one listener: one producer, one consumer, growable, shrinking.
//!
//! # Contract
//! * [`Producer::push`] never waits for the consumer; the ring grows instead. It does not wake; [`Producer::wake`]
//!   does, so that a fan-out can push to everybody first.
//! * [`Consumer::pop`] waits for an item or the end.
//! * [`Producer::close`] ends it: nothing more can be pushed, and the consumer gets `None` once it has used up the run
//!   in its hands (a listener looks at its own flag before each event). What is left is dropped with the consumer.
//! * After a burst has been consumed its memory is given back ([`KEPT`]).
//!
//! # How
//! Two buffers: the producer appends to one under a short lock; the consumer, when its own is empty, swaps the two
//! under the same lock and then walks without it. So the lock is taken once per item by the producer and once per
//! *run* of items by the consumer, and nothing but moving a few words happens inside.

use crate::sync::{
    Arc, Clock, Monitor,
    atomic::{AtomicUsize, Ordering},
};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// A buffer with room for more items than this is given back once it is empty. Small under test, so that it happens.
const KEPT: usize = if cfg!(test) { 4 } else { 128 };

struct Shared<T> {
    state: Monitor<State<T>>,
    /// Items pushed that the consumer is not done with. Written by both sides.
    len: AtomicUsize,
}

struct State<T> {
    incoming: VecDeque<T>,
    closed: bool,
}

/// The engine's end.
pub(crate) struct Producer<T>(Arc<Shared<T>>);

/// The listener's end.
pub(crate) struct Consumer<T> {
    shared: Arc<Shared<T>>,
    outgoing: VecDeque<T>,
    /// The item popped last still counts.
    in_hand: bool,
    clock: Clock,
}

/// A new, empty ring. The consumer's waits are seen by `clock`.
pub(crate) fn ring<T>(clock: &Clock) -> (Producer<T>, Consumer<T>) {
    let state = Monitor::new(State { incoming: VecDeque::new(), closed: false });
    let shared = Arc::new(Shared { state, len: AtomicUsize::new(0) });
    (Producer(shared.clone()), Consumer { shared, outgoing: VecDeque::new(), in_hand: false, clock: clock.clone() })
}

impl<T> Producer<T> {
    /// Appends an item; gives it back when the ring is closed. *Blocks*: only while the consumer swaps buffers.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut s = self.0.state.lock();
        if s.closed {
            return Err(item);
        }
        self.0.len.fetch_add(1, Ordering::Relaxed);
        s.incoming.push_back(item);
        Ok(())
    }

    /// Wakes the consumer if it sleeps. *Blocks*: never.
    pub(crate) fn wake(&self) {
        self.0.state.notify_all();
    }

    /// Ends the ring and wakes the consumer. Idempotent. *Blocks*: never.
    pub(crate) fn close(&self) {
        self.0.state.lock().closed = true;
        self.wake();
    }

    /// Items that the consumer is not done with: it is done with one when it comes back for the next.
    pub(crate) fn len(&self) -> usize {
        self.0.len.load(Ordering::Acquire)
    }
}

impl<T> Consumer<T> {
    /// The next item, in the order of pushing; `None` at the end. *Blocks*: until there is either.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if std::mem::take(&mut self.in_hand) {
            self.shared.len.fetch_sub(1, Ordering::Release);
        }
        if self.outgoing.is_empty() && !self.refill() {
            return None;
        }
        self.in_hand = true;
        self.outgoing.pop_front()
    }

    fn refill(&mut self) -> bool {
        if self.outgoing.capacity() > KEPT {
            self.outgoing = VecDeque::new();
        }
        let state = &self.shared.state;
        let (mut s, _) = state.wait_while(state.lock(), &self.clock, None, |s| s.incoming.is_empty() && !s.closed);
        if s.closed {
            return false;
        }
        std::mem::swap(&mut self.outgoing, &mut s.incoming);
        true
    }

    /// Room for items in both buffers.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.outgoing.capacity() + self.shared.state.lock().incoming.capacity()
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        let left = {
            let mut s = self.shared.state.lock();
            s.closed = true;
            std::mem::take(&mut s.incoming)
        };
        self.shared.len.store(0, Ordering::Release);
        drop(left);
    }
}
