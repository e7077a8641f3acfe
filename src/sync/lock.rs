//! [`Mutex`] (counted) and [`Turn`] (not counted).

use super::backend::{RawMutex, RawMutexGuard, thread_local};
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
    pub(crate) const fn new(value: T) -> Self {
        Self(RawMutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let raw = self.0.lock();
        HELD.with(|h| h.set(h.get() + 1));
        MutexGuard { raw, _count: Count(PhantomData) }
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
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
#[derive(Default)]
pub(crate) struct Turn<T>(RawMutex<T>);

impl<T> Turn<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RawMutex::new(value))
    }

    pub(crate) fn take(&self) -> RawMutexGuard<'_, T> {
        self.0.lock()
    }
}
