//! The version cell: one writer publishes, any number of readers read what is current. An `unsafe` room.
//!
//! # What it is
//! [`Held`] is a counted handle to a value, like `Arc`. [`VersionCell`] holds one of them. [`VersionCell::load`] gives a
//! reader a handle of its own; [`VersionCell::peek`] lends the value for one call, without touching its count.
//! [`VersionCell::publish`] puts another value in its place. Readers take no lock, and neither side waits for the other:
//! a reader repeats a step only when a publication came in between, and the writer, when a reader is in the middle of a
//! step, keeps the old value for it and goes on.
//!
//! # The hazard
//! Between reading the pointer and raising the count of what it points to, the value could be freed. So each thread has
//! a *slot*, which all cells of the process share, and in which it says what it is about to touch:
//!
//! | reader | writer |
//! |---|---|
//! | 1 read `current` | a swap `current` (AcqRel) |
//! | 2 store it in the slot (Release) | b fence (SeqCst) |
//! | 3 fence (SeqCst) | c read every slot (Acquire) |
//! | 4 read `current` again (Acquire); another one: from 2 | d what is in no slot: drop the cell's handle to it |
//! | 5 use it, or raise its count | |
//! | 6 clear the slot (Release) | |
//!
//! Of the two fences one comes first. If the reader's does, the writer's look at the slot (c) sees the store of 2, or a
//! later one of that slot. If the writer's does, the second read of the reader (4) sees the swap (a), and the reader does
//! not use the old value. Without either fence both may miss each other. The Release of 6 and the Acquire of c order what
//! the reader did, the raised count included, before the writer's drop; with a relaxed 6 the writer could free a value
//! while the reader still reads it. The writer may find the store of the reader's *next* 2 instead of that 6, so this is a
//! Release as well. A slot may show a pointer whose value is long gone, or even another value at the same
//! address: then the cell keeps something a little longer, never shorter.
//!
//! The fence of 3 also acquires what was read before it, and a pointer is used only when it was read before a fence; so
//! the Acquire of 4 is not needed, and stays because it costs nothing. The checks of all this are `store/model.rs`, and
//! `store/freeze.rs` for who does not wait for whom.
//!
//! Slots first, then the count: the cell's own handle keeps the count above zero until the slots have been read, so a
//! reader that is about to raise it cannot find it at zero.
//!
//! # What is not promised
//! A value that was in a slot when its successor was published is kept until the next publication, the next
//! [`VersionCell::tidy`], or the end of the cell. The number of such values is at most the number of threads that were reading.
#![allow(unsafe_code)]

use crate::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence},
    constant, for_ever, keep, order, thread_local,
};
use std::{ops::Deref, ptr::NonNull};

/// A counted handle to a value that never changes. Clone is one count. The last handle frees, on its thread. Listeners share
/// a publication by it, not by an `Arc`: the order from their reads to the writer's frees is one that ThreadSanitizer sees.
pub(crate) struct Held<T>(NonNull<Counted<T>>);

struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

// SAFETY: a handle gives shared access to the value and may drop it on any thread, as `Arc` does.
unsafe impl<T: Send + Sync> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Held<T> {}

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Counted { count: AtomicUsize::new(1), value }))))
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: a handle keeps its allocation alive.
        unsafe { self.0.as_ref() }
    }

    /// Gives the handle up: how many are left.
    pub(super) fn release(self) -> usize {
        let counted = std::mem::ManuallyDrop::new(self).0;
        Self::give_up(counted)
    }

    /// Whether this is the only handle. Then nobody can make another but through it, and whatever was done through the
    /// others is visible. (Dropping the handle after that would see to it as well, which is what the store does before it
    /// frees anything; so no model misses the acquire here.)
    pub(super) fn is_only(&self) -> bool {
        self.counted().count.load(Ordering::Acquire) == 1
    }

    fn give_up(counted: NonNull<Counted<T>>) -> usize {
        // SAFETY: the handle that is given up kept the allocation alive until here.
        let before = unsafe { counted.as_ref() }.count.fetch_sub(1, order("cell: a handle is given up", Ordering::Release));
        if before == 1 {
            // Orders what the other handles did before the free. A load does it as well as a fence, since the count's
            // decrements continue each other's release; and ThreadSanitizer, which does not know fences, understands it.
            if keep("cell: the last handle fences") {
                // SAFETY: nobody else frees it.
                unsafe { counted.as_ref() }.count.load(Ordering::Acquire);
            }
            // SAFETY: the count fell to zero here, so no handle is left and none can be made; it came from a box.
            drop(unsafe { Box::from_raw(counted.as_ptr()) });
        }
        before - 1
    }

    /// The pointer, without giving up the count that stands for it.
    fn into_raw(self) -> *mut Counted<T> {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        // Whoever has a handle keeps the count above zero. It cannot overflow: that many handles do not fit into memory,
        // and none is ever leaked.
        self.counted().count.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        Self::give_up(self.0);
    }
}

/// See the module's text.
pub(super) struct VersionCell<T> {
    /// Stands for one count of what it points to.
    current: AtomicPtr<Counted<T>>,
    /// What was replaced and may still be in a slot; publishers wait for each other here.
    retired: Mutex<Vec<Held<T>>>,
}

impl<T: Send + Sync> VersionCell<T> {
    pub(super) fn new(first: Held<T>) -> Self {
        Self { current: AtomicPtr::new(first.into_raw()), retired: Mutex::new(Vec::new()) }
    }

    /// A handle to the current value.
    pub(super) fn load(&self) -> Held<T> {
        self.protect(|counted| {
            counted.count.fetch_add(1, Ordering::Relaxed);
            Held(NonNull::from(counted))
        })
    }

    /// Lends the current value to `f`. Not for user code: whatever `f` does, the value is kept until it is done.
    pub(super) fn peek<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        self.protect(|counted| f(&counted.value))
    }

    fn protect<R>(&self, f: impl FnOnce(&Counted<T>) -> R) -> R {
        with_slot(|slot| {
            let mut seen = self.current.load(Ordering::Relaxed);
            loop {
                slot.holds.store(seen.cast(), order("cell: the slot is filled", Ordering::Release));
                if keep("cell: the reader's fence") {
                    fence(Ordering::SeqCst);
                }
                let now = self.current.load(Ordering::Acquire);
                if now == seen {
                    break;
                }
                seen = now;
            }
            let _clears = Clears(slot);
            // SAFETY: `seen` was current after the fence that follows its store in the slot, so every publisher that
            // replaces it reads the slot after that and keeps the cell's handle while it stands there, which is until
            // `_clears` is dropped. The pointer is never null.
            f(unsafe { &*seen })
        })
    }

    /// Puts `next` in the place of the current value, which is returned. *Blocks*: only for another publisher.
    pub(super) fn publish(&self, next: Held<T>) -> Held<T> {
        let mut retired = self.retired.lock();
        let old = self.current.swap(next.into_raw(), Ordering::AcqRel);
        if keep("cell: the writer's fence") {
            fence(Ordering::SeqCst);
        }
        // SAFETY: `current` stood for one count of it, which is now this handle's; the pointer is never null.
        let old = Held(unsafe { NonNull::new_unchecked(old) });
        let held = in_slots();
        let free = take_free(&mut retired, &held);
        if held.contains(&old.0.as_ptr().cast()) {
            retired.push(old.clone());
        }
        drop(retired);
        // What a value holds may be the user's, so it is dropped after the lock.
        drop(free);
        old
    }

    /// Lets go of replaced values that are in no slot any more: how many are left, and how many were let go of.
    /// *Blocks*: as `publish`.
    pub(super) fn tidy(&self) -> (usize, usize) {
        let mut retired = self.retired.lock();
        if retired.is_empty() {
            return (0, 0);
        }
        let free = take_free(&mut retired, &in_slots());
        let counts = (retired.len(), free.len());
        drop(retired);
        drop(free);
        counts
    }

    /// Replaced values that are kept because they were in a slot.
    #[cfg(test)]
    pub(super) fn retired(&self) -> usize {
        self.retired.lock().len()
    }
}

/// Takes out what is in no slot.
fn take_free<T>(retired: &mut Vec<Held<T>>, held: &[*mut ()]) -> Vec<Held<T>> {
    retired.extract_if(.., |r| !held.contains(&r.0.as_ptr().cast())).collect()
}

/// What is in a slot.
fn in_slots() -> Vec<*mut ()> {
    let mut held = Vec::new();
    let mut slot = REGISTRY.load(Ordering::Acquire);
    // SAFETY: slots are never freed, and a slot is complete when it is put on the list.
    while let Some(s) = unsafe { slot.as_ref() } {
        let p = s.holds.load(Ordering::Acquire);
        if !p.is_null() {
            held.push(p);
        }
        slot = s.next.load(Ordering::Relaxed);
    }
    held
}

impl<T> Drop for VersionCell<T> {
    fn drop(&mut self) {
        // A swap, because the checkers see no order in how the cell came to its last owner, and a load might be stale there.
        if let Some(current) = NonNull::new(self.current.swap(std::ptr::null_mut(), Ordering::Acquire)) {
            // Nobody can be inside `protect`, which borrows the cell; so its handles may all go.
            drop(Held(current));
        }
    }
}

/// Where a thread says what it is about to touch. Never freed; used again by later threads.
#[repr(align(128))]
struct Slot {
    holds: AtomicPtr<()>,
    taken: AtomicBool,
    /// Written before the slot is put on the list, never after.
    next: AtomicPtr<Slot>,
}

constant! {
    /// The list of all slots; grows at its head, never shrinks. A model has one for each execution.
    static REGISTRY: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
}

thread_local! {
    static MINE: Claim = Claim(claim());
}

/// Gives the slot back, when dropped, to whoever needs one.
struct Claim(&'static Slot);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.taken.store(false, order("cell: a slot is given back", Ordering::Release));
    }
}

/// Clears the slot, also when what was done with it unwinds.
struct Clears(&'static Slot);

impl Drop for Clears {
    fn drop(&mut self) {
        self.0.holds.store(std::ptr::null_mut(), order("cell: the slot is cleared", Ordering::Release));
    }
}

/// The thread's own slot; one for the moment when that is in use already, or the thread is at its very end.
fn with_slot<R>(f: impl FnOnce(&'static Slot) -> R) -> R {
    match MINE.try_with(|mine| mine.0) {
        Ok(slot) if slot.holds.load(Ordering::Relaxed).is_null() => f(slot),
        _ => f(Claim(claim()).0),
    }
}

/// A slot that nobody uses, or a new one.
#[cold]
fn claim() -> &'static Slot {
    let mut slot = REGISTRY.load(order("cell: the list of slots is walked", Ordering::Acquire));
    // SAFETY: as in `in_slots`.
    while let Some(s) = unsafe { slot.as_ref() } {
        if !s.taken.load(Ordering::Relaxed) && !s.taken.swap(true, order("cell: a slot is claimed", Ordering::Acquire)) {
            return s;
        }
        slot = s.next.load(Ordering::Relaxed);
    }
    let mine = for_ever(Slot {
        holds: AtomicPtr::new(std::ptr::null_mut()),
        taken: AtomicBool::new(true),
        next: AtomicPtr::new(std::ptr::null_mut()),
    });
    let (raw, mut head) = (std::ptr::from_ref(mine).cast_mut(), REGISTRY.load(Ordering::Relaxed));
    loop {
        mine.next.store(head, Ordering::Relaxed);
        match REGISTRY.compare_exchange_weak(head, raw, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return mine,
            Err(now) => head = now,
        }
    }
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests {
    use super::{Held, VersionCell};
    use crate::sync::{
        Arc, Gate, ManualClock,
        atomic::{AtomicUsize, Ordering},
        spawn,
    };

    /// Counts its drops, and says when it is used after one.
    struct Counted {
        n: u64,
        drops: Arc<AtomicUsize>,
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::Relaxed);
            self.n = u64::MAX;
        }
    }

    fn cell() -> (VersionCell<Counted>, impl Fn(u64) -> Held<Counted>, impl Fn() -> usize) {
        let drops = Arc::new(AtomicUsize::new(0));
        let (made, seen) = (drops.clone(), drops.clone());
        let make = move |n| Held::new(Counted { n, drops: made.clone() });
        (VersionCell::new(make(0)), make, move || seen.load(Ordering::Relaxed))
    }

    #[test]
    fn what_is_replaced_is_freed_at_once_unless_somebody_holds_it() {
        let (cell, make, drops) = cell();
        let first = cell.load();
        drop(cell.publish(make(1)));
        assert_eq!((first.n, cell.peek(|c| c.n), drops()), (0, 1, 0));
        drop(first);
        assert_eq!(drops(), 1);
        drop(cell.publish(make(2)));
        assert_eq!((drops(), cell.retired()), (2, 0));
        drop(cell);
        assert_eq!(drops(), 3);
    }

    #[test]
    fn a_reader_that_stays_inside_delays_no_publisher_and_keeps_its_value() {
        let clock = ManualClock::new();
        let (cell, make, drops) = cell();
        let (cell, gate) = (Arc::new(cell), Gate::new());
        let (c, g) = (cell.clone(), gate.clone());
        let reader = spawn(&clock, "reader", move || {
            c.peek(|first| {
                g.wait();
                first.n
            })
        })
        .unwrap();
        clock.settle();
        for n in 1..=100 {
            drop(cell.publish(make(n)));
        }
        assert_eq!((drops(), cell.retired(), cell.load().n), (99, 1, 100));
        gate.open();
        assert_eq!(reader.join(), Ok(0));
        drop(cell.publish(make(101)));
        assert_eq!((drops(), cell.retired()), (101, 0));
    }

    #[test]
    fn however_many_readers_are_inside_only_what_they_read_is_kept() {
        fn inside(n: usize, cell: &VersionCell<Counted>, then: &dyn Fn()) {
            if n == 0 { then() } else { cell.peek(|_| inside(n - 1, cell, then)) }
        }
        let ((cell, make, drops), (other, ..)) = (cell(), cell());
        inside(100, &other, &|| {
            for n in 1..=10 {
                drop(cell.publish(make(n)));
            }
            assert_eq!((drops(), cell.retired()), (10, 0));
        });
    }

    #[test]
    fn peeks_and_loads_may_be_nested() {
        let (cell, make, drops) = cell();
        let seen = cell.peek(|a| {
            drop(cell.publish(make(1)));
            cell.peek(|b| {
                drop(cell.publish(make(2)));
                (a.n, b.n, cell.load().n)
            })
        });
        assert_eq!((seen, drops()), ((0, 1, 2), 0));
        drop(cell.publish(make(3)));
        assert_eq!((drops(), cell.retired()), (3, 0));
    }

    #[test]
    fn a_thread_at_its_end_reads_all_the_same() {
        struct AtEnd(Arc<VersionCell<Counted>>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                assert_eq!((self.0.load().n, self.0.peek(|c| c.n)), (0, 0));
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
        }
        let clock = ManualClock::new();
        let (cell, _, drops) = cell();
        let cell = Arc::new(cell);
        let c = cell.clone();
        let thread = spawn(&clock, "ends", move || {
            LAST.with(|last| *last.borrow_mut() = Some(AtEnd(c.clone())));
            c.load().n
        })
        .unwrap();
        assert_eq!(thread.join(), Ok(0));
        drop(cell);
        assert_eq!(drops(), 1);
    }

    #[test]
    fn readers_never_see_a_freed_value_nor_an_older_one_after_a_newer() {
        let clock = ManualClock::new();
        let (cell, make, drops) = cell();
        let cell = Arc::new(cell);
        let readers: Vec<_> = (0..4)
            .map(|i| {
                let c = cell.clone();
                spawn(&clock, "reader", move || {
                    let (mut last, mut held) = (0, None);
                    while last < 20_000 {
                        let now = if i % 2 == 0 {
                            c.peek(|v| v.n)
                        } else {
                            let v = c.load();
                            let n = v.n;
                            held = Some(v);
                            n
                        };
                        assert!(now >= last && now != u64::MAX);
                        last = now;
                    }
                    drop(held);
                })
                .unwrap()
            })
            .collect();
        for n in 1..=20_000 {
            drop(cell.publish(make(n)));
        }
        for r in readers {
            r.join().unwrap();
        }
        drop(cell);
        assert_eq!(drops(), 20_001);
    }
}
