//! The chain of segments that a ring is made of, with its two ends. An `unsafe` room.
//!
//! # What it is
//! A list of segments of `N` slots. [`Tail::append`] writes the next slot, [`Head::take`] reads the next one. There is
//! one of each, and both need `&mut`: that is what makes them the only producer and the only consumer.
//!
//! # States of a slot
//! | state | value | who leaves it | how |
//! |---|---|---|---|
//! | `EMPTY` | none | tail | writes the value, then swaps in `FULL` |
//! | `EMPTY` | none | head | finds nothing, exchanges for `SLEEPING`, and may go to sleep |
//! | `SLEEPING` | none | tail | writes the value, then swaps in `FULL`, and learns that it owes a wake-up |
//! | `FULL` | one | head | takes the value; the slot is used up until its segment is made ready again |
//!
//! The value belongs to the tail until the swap, to the head after it. Swap and exchange are read-modify-writes of one
//! word, so exactly one of "the head sees `FULL`" and "the tail sees `SLEEPING`" holds, without a fence.
//!
//! # Segments
//! The tail links the next segment *before* it publishes the last slot of the one before. So whoever finds the last slot
//! `FULL` finds the link, there is always a slot to mark for sleeping, and the swap of the last slot is the tail's last
//! access to a segment: from there on it is the head's alone. The head makes a used-up segment ready again and offers it as the
//! *spare*; if there is one already it frees the segment. So an empty chain has at most three: one in use, one linked,
//! one spare, however long it was before.
//!
//! # Orderings
//! | access | ordering | why |
//! |---|---|---|
//! | swap to `FULL` | release | publishes the value, and with the last slot the link |
//! | look at a slot | acquire | the other half |
//! | exchange for `SLEEPING` | relaxed | says nothing but itself; on failure the slot is looked at again |
//! | offer the spare | release | publishes that the slots are `EMPTY` and their values gone |
//! | take the spare | acquire | the other half |
//! | link and its read | relaxed | carried by the last slot's swap |
//!
//! # Progress
//! `append` and `take` have no loop and no lock: each is a bounded number of steps whatever the other side does, given
//! an allocator that is. Checks: `ring/model.rs` (loom), `ring/freeze.rs`.
#![allow(unsafe_code)]

use crate::sync::{
    Alive, CheckedArc, UnsafeCell,
    atomic::{AtomicPtr, AtomicU8, Ordering},
    keep, order,
};
use std::{array, mem::MaybeUninit, ptr, ptr::NonNull};

const EMPTY: u8 = 0;
const FULL: u8 = 1;
const SLEEPING: u8 = 2;

struct Slot<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Segment<T, const N: usize> {
    slots: [Slot<T>; N],
    /// Written once by the tail before it publishes the last slot.
    next: AtomicPtr<Self>,
    /// Lets a checker find segments that are never freed.
    _alive: Alive,
}

impl<T, const N: usize> Segment<T, N> {
    fn allocate() -> NonNull<Self> {
        let slots = array::from_fn(|_| Slot { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) });
        NonNull::from(Box::leak(Box::new(Self { slots, next: AtomicPtr::default(), _alive: Alive::default() })))
    }

    /// Frees a segment whose values are gone.
    ///
    /// # Safety
    /// `this` came from [`Segment::allocate`], is not freed yet, and nobody else will look at it.
    unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(this.as_ptr()) });
    }
}

/// What both ends hold. Dropped after both, it frees what they left.
struct Chain<T, const N: usize> {
    /// A segment that is ready for use, or null.
    spare: AtomicPtr<Segment<T, N>>,
    /// Where the head stood when it was dropped; nothing before.
    left: UnsafeCell<Option<(NonNull<Segment<T, N>>, usize)>>,
}

/// The producer's end.
pub(super) struct Tail<T, const N: usize> {
    chain: CheckedArc<Chain<T, N>>,
    segment: NonNull<Segment<T, N>>,
    /// The slot to write next; below `N`.
    at: usize,
}

/// The consumer's end.
pub(super) struct Head<T, const N: usize> {
    chain: CheckedArc<Chain<T, N>>,
    segment: NonNull<Segment<T, N>>,
    /// The slot to read next; below `N`.
    at: usize,
}

// SAFETY: an end owns nothing that is bound to a thread; values pass from one thread to the other, hence `T: Send`. What
// both ends reach, they reach through atomics, or through cells under the protocol above.
unsafe impl<T: Send, const N: usize> Send for Tail<T, N> {}
// SAFETY: as above.
unsafe impl<T: Send, const N: usize> Send for Head<T, N> {}

/// An empty chain.
pub(super) fn chain<T, const N: usize>() -> (Tail<T, N>, Head<T, N>) {
    const { assert!(N > 0) };
    let chain = CheckedArc::new(Chain { spare: AtomicPtr::default(), left: UnsafeCell::new(None) });
    let segment = Segment::allocate();
    (Tail { chain: chain.clone(), segment, at: 0 }, Head { chain, segment, at: 0 })
}

impl<T, const N: usize> Tail<T, N> {
    /// Appends a value; true when the head sleeps, or is about to, on this very slot. *Blocks*: never (`ring/freeze.rs`).
    pub(super) fn append(&mut self, value: T) -> bool {
        // SAFETY: the tail's segment is not freed: the head frees a segment only after it has found its last slot
        // `FULL`, and the tail leaves the segment when it makes it so.
        let segment = unsafe { self.segment.as_ref() };
        let slot = &segment.slots[self.at];
        // SAFETY: the slot is not `FULL`, so the head does not look at the value; there is only one tail.
        slot.value.with_mut(|v| unsafe { (*v).write(value) });
        let next = if self.at + 1 == N {
            let next = self.ready_segment();
            if keep("ring: the link comes before the last slot") {
                segment.next.store(next.as_ptr(), Ordering::Relaxed);
            }
            Some(next)
        } else {
            None
        };
        let before = slot.state.swap(FULL, order("ring: a slot is published", Ordering::Release));
        // From here on the segment may be freed, if that was its last slot.
        match next {
            Some(next) => (self.segment, self.at) = (next, 0),
            None => self.at += 1,
        }
        before == SLEEPING
    }

    /// The spare, or a new one.
    fn ready_segment(&self) -> NonNull<Segment<T, N>> {
        let spare = self.chain.spare.swap(ptr::null_mut(), order("ring: the spare is taken", Ordering::Acquire));
        NonNull::new(spare).unwrap_or_else(Segment::allocate)
    }
}

impl<T, const N: usize> Head<T, N> {
    /// The next value, if there is one. *Blocks*: never (`ring/freeze.rs`).
    pub(super) fn take(&mut self) -> Option<T> {
        // SAFETY: the head's segment is freed by the head only, when it leaves it.
        let segment = unsafe { self.segment.as_ref() };
        let slot = &segment.slots[self.at];
        if slot.state.load(order("ring: a slot is looked at", Ordering::Acquire)) != FULL {
            return None;
        }
        // SAFETY: `FULL` was published after the value was written, the head has not read it yet, and reads it once,
        // because it goes on to the next slot.
        let value = slot.value.with(|v| unsafe { (*v).assume_init_read() });
        self.at += 1;
        if self.at == N {
            self.leave_segment();
        }
        Some(value)
    }

    /// Says that the consumer goes to sleep until the next value; false when there is one by now. *Blocks*: never
    /// (`ring/freeze.rs`).
    pub(super) fn mark_sleeping(&self) -> bool {
        // SAFETY: as in `take`.
        let slot = unsafe { &self.segment.as_ref().slots[self.at] };
        if !keep("ring: sleeping is marked in the slot") {
            return slot.state.load(Ordering::Relaxed) != FULL;
        }
        match slot.state.compare_exchange(EMPTY, SLEEPING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(now) => now == SLEEPING,
        }
    }

    /// Goes on to the next segment and offers the one before as the spare.
    fn leave_segment(&mut self) {
        let used = self.segment;
        // SAFETY: as in `take`.
        let segment = unsafe { used.as_ref() };
        let next = segment.next.load(Ordering::Relaxed);
        self.segment = NonNull::new(next).expect("the link is there before the last slot is full");
        self.at = 0;
        for slot in &segment.slots {
            slot.state.store(EMPTY, Ordering::Relaxed);
        }
        segment.next.store(ptr::null_mut(), Ordering::Relaxed);
        let given = order("ring: the spare is offered", Ordering::Release);
        if self.chain.spare.compare_exchange(ptr::null_mut(), used.as_ptr(), given, Ordering::Relaxed).is_err() {
            // SAFETY: the tail left the segment before its last slot was `FULL`, the head has just left it, and it was
            // not offered.
            unsafe { Segment::free(used) };
        }
    }

    /// How many segments there are in use, linked and spare. Exact only while the tail does not move.
    #[cfg(test)]
    pub(super) fn segments(&self) -> usize {
        let (mut count, mut at) = (0, self.segment.as_ptr());
        while let Some(segment) = NonNull::new(at) {
            count += 1;
            // SAFETY: segments from the head's on are freed by the head only.
            at = unsafe { segment.as_ref() }.next.load(Ordering::Acquire);
        }
        count + usize::from(!self.chain.spare.load(Ordering::Relaxed).is_null())
    }
}

impl<T, const N: usize> Drop for Head<T, N> {
    fn drop(&mut self) {
        let position = (self.segment, self.at);
        // SAFETY: only the head writes here, and only the chain's `Drop`, which comes after it, reads.
        self.chain.left.with_mut(|left| unsafe { *left = Some(position) });
    }
}

impl<T, const N: usize> Drop for Chain<T, N> {
    fn drop(&mut self) {
        if let Some(spare) = NonNull::new(self.spare.swap(ptr::null_mut(), Ordering::Relaxed)) {
            // SAFETY: a spare has no values, and whoever takes it off the chain owns it.
            unsafe { Segment::free(spare) };
        }
        // SAFETY: both ends are gone, and the count they were counted by orders their last accesses before this.
        let Some((mut segment, mut at)) = self.left.with_mut(|left| unsafe { (*left).take() }) else { return };
        loop {
            // SAFETY: everything from the head's segment on is owned by the chain now.
            let here = unsafe { segment.as_ref() };
            while at < N && here.slots[at].state.load(Ordering::Relaxed) == FULL {
                // SAFETY: a `FULL` slot at or after the head's position has a value that nobody has read.
                drop(here.slots[at].value.with(|v| unsafe { (*v).assume_init_read() }));
                at += 1;
            }
            let next = here.next.load(Ordering::Relaxed);
            if keep("ring: the chain frees what is left") {
                // SAFETY: nobody else is left who could look at it.
                unsafe { Segment::free(segment) };
            }
            match NonNull::new(next) {
                Some(next) => (segment, at) = (next, 0),
                None => return,
            }
        }
    }
}
