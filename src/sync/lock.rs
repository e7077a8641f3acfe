//! [`Mutex`] (counted) and [`Turn`] (not counted).

use super::{
    Monitor,
    atomic::{AtomicBool, Ordering},
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
/// Because a holder may be inside user code for long, waiting for it is parking, which a manual clock sees. Most turns are
/// shorter than parking, so a writer looks a few times before it parks, and again when it was woken. It may find the turn
/// taken again and park again; until it has looked nobody else is woken, since that would be a system call for each turn.
#[derive(Default)]
pub(crate) struct Turn<T> {
    state: Monitor<State>,
    /// The same as `State::taken`, or a moment behind: for those who only look.
    busy: AtomicBool,
    /// Never contended: locked only by whoever has set `taken`.
    value: RawMutex<T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { state: Monitor::default(), busy: AtomicBool::new(false), value: RawMutex::new(value) }
    }

    /// *Blocks*: until the writer before is done.
    pub(crate) fn take(&self) -> TurnGuard<'_, T> {
        let mut waiting = false;
        loop {
            let mut looks = LOOKS;
            while looks > 0 && self.busy.load(Ordering::Relaxed) {
                looks -= 1;
                std::hint::spin_loop();
            }
            let mut locked = false;
            let waits = |state: &mut State| {
                if locked {
                    // Woken. First it looks without the lock; until it has done so nobody else is woken.
                    return false;
                }
                locked = true;
                if waiting && keep("turn: who was woken says that it has looked") {
                    // Woken, or not: whoever passes the turn on next wakes somebody.
                    state.woken = false;
                }
                let waits = state.taken && keep("turn: who waits for it parks");
                state.waiting = state.waiting + usize::from(waits) - usize::from(waiting);
                waiting = waits;
                waits
            };
            let (mut state, _) = self.state.wait_while(self.state.lock(), &ANY_CLOCK, None, waits);
            if !waiting {
                state.taken = true;
                break;
            }
        }
        self.busy.store(true, Ordering::Relaxed);
        TurnGuard { value: self.value.lock(), _pass: Pass { state: &self.state, busy: &self.busy } }
    }
}

#[derive(Default)]
struct State {
    taken: bool,
    /// Writers that park, or were woken and have not looked yet.
    waiting: usize,
    /// One of those was woken and has not looked yet.
    woken: bool,
}

/// A few microseconds: several short turns, and less than parking and being woken takes. A checker explores every look.
const LOOKS: u32 = if cfg!(any(informer_loom, informer_shuttle, miri)) { 0 } else { 200 };

/// Fields drop in order: the value is free before the turn is passed on.
pub(crate) struct TurnGuard<'a, T> {
    value: RawMutexGuard<'a, T>,
    _pass: Pass<'a>,
}

struct Pass<'a> {
    state: &'a Monitor<State>,
    busy: &'a AtomicBool,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.taken = false;
        let wakes = state.waiting > 0 && !state.woken;
        state.woken |= wakes;
        drop(state);
        if wakes && keep("turn: passing it on wakes the next") {
            self.state.notify_one();
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
