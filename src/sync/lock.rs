//! [`Mutex`] (counted) and [`Turn`] (not counted).

use super::{
    Monitor,
    backend::{RawMutex, RawMutexGuard, thread_local},
    call_out::{Site, inside},
    clock::ANY_CLOCK,
    keep,
};
use std::{
    cell::Cell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// How many counted locks this thread holds.
pub(crate) fn locks_held() -> u32 {
    HELD.with(Cell::get)
}

/// A short critical section. No user code, no wake-up and no blocking call inside; never poisoned.
///
/// *Blocks*: until the holder leaves. Holding one while entering user code is a defect that [`super::call_out`] finds.
#[derive(Default)]
pub(crate) struct Mutex<T>(RawMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RawMutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Without this the thread would most likely wait for itself.
        debug_assert!(
            locks_held() == 0 || inside() != Some(Site::Key),
            "`Eq` or `Ord` of a key runs under a lock and must not call back"
        );
        let raw = self.0.lock();
        HELD.with(|h| h.set(h.get() + 1));
        MutexGuard { raw, _count: Count(PhantomData) }
    }
}

/// Counts down when dropped; not `Send`, because the count belongs to the thread.
struct Count(PhantomData<*const ()>);

impl Drop for Count {
    fn drop(&mut self) {
        HELD.with(|h| h.set(h.get() - 1));
    }
}

pub(crate) struct MutexGuard<'a, T> {
    raw: RawMutexGuard<'a, T>,
    _count: Count,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

/// Order among writers. Held across user code on purpose (index functions), so it is not counted; nothing that a
/// reader, a producer or a handler calls may take it.
///
/// Because a holder may be inside user code for long, waiting for it is parking, which a manual clock sees.
#[derive(Default)]
pub(crate) struct Turn<T> {
    taken: Monitor<bool>,
    /// Never contended: locked only by whoever has set `taken`.
    value: RawMutex<T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: Monitor::new(false), value: RawMutex::new(value) }
    }

    /// *Blocks*: until the writer before is done.
    pub(crate) fn take(&self) -> TurnGuard<'_, T> {
        let waits = |taken: &mut bool| *taken && keep("turn: who waits for it parks");
        let (mut taken, _) = self.taken.wait_while(self.taken.lock(), &ANY_CLOCK, None, waits);
        *taken = true;
        drop(taken);
        TurnGuard { value: self.value.lock(), _pass: Pass(&self.taken) }
    }
}

/// Fields drop in order: the value is free before the turn is passed on.
pub(crate) struct TurnGuard<'a, T> {
    value: RawMutexGuard<'a, T>,
    _pass: Pass<'a>,
}

struct Pass<'a>(&'a Monitor<bool>);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        if keep("turn: passing it on wakes the next") {
            self.0.notify_one();
        }
    }
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
