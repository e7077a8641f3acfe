//! Parking, the one way a thread of this crate blocks, and [`Monitor`], a mutex with a condition built on it.
//!
//! Each thread has one cell with one token, as in `std::thread::park`: an unpark that comes early is remembered, two
//! merge. Every waiter looks at its condition again after each return, so a stray token costs one look.
//!
//! The *unparker* moves the sleeper from idle to busy in the census of its clock, before it can go idle itself. So
//! "nobody busy" means that no wake is in flight, and that is what [`super::ManualClock`] rests on.

use super::{
    Arc, Clock, Instant, Mutex, MutexGuard,
    backend::{RawCondvar, RawMutex, thread_local},
    call_out,
    clock::Census,
};
use std::{
    cell::{OnceCell, RefCell},
    collections::VecDeque,
    marker::PhantomData,
};

thread_local! {
    static CURRENT: Current = Current::default();
}

/// What the facade knows of the calling thread.
#[derive(Default)]
struct Current {
    cell: Arc<ThreadCell>,
    /// Set once on threads that this crate started.
    home: OnceCell<(Arc<Census>, u64)>,
    /// On other threads: the blocking door they are inside of.
    door: RefCell<Option<(Arc<Census>, u32)>>,
}

#[derive(Default)]
struct ThreadCell {
    state: RawMutex<CellState>,
    wake: RawCondvar,
}

#[derive(Default)]
struct CellState {
    token: bool,
    parked: Option<Sleeper>,
}

/// Whom to tell when the thread is woken.
struct Sleeper {
    census: Option<Arc<Census>>,
    in_user_code: bool,
}

impl Sleeper {
    fn wake(self) {
        if let Some(census) = self.census {
            census.busy(self.in_user_code);
        }
    }
}

/// Why [`park`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// A token was there or came. It may be a stray one.
    Woken,
    /// The deadline passed.
    Deadline,
}

/// Wakes one thread. *Blocks*: never.
#[derive(Clone)]
pub(crate) struct Unparker(Arc<ThreadCell>);

impl Unparker {
    pub(crate) fn unpark(&self) {
        let mut state = self.0.state.lock();
        if !state.token {
            state.token = true;
            if let Some(sleeper) = state.parked.take() {
                sleeper.wake();
                self.0.wake.notify_one();
            }
        }
    }
}

/// The handle that wakes the calling thread.
pub(crate) fn unparker() -> Unparker {
    CURRENT.with(|me| Unparker(me.cell.clone()))
}

/// Blocks until a token comes or `deadline` passes on `clock`. Callers look at their condition again.
pub(crate) fn park(clock: &Clock, deadline: Option<Instant>) -> Parked {
    CURRENT.with(|me| {
        let mut state = me.cell.state.lock();
        if std::mem::take(&mut state.token) {
            return Parked::Woken;
        }
        if deadline.is_some_and(|d| clock.now() >= d) {
            return Parked::Deadline;
        }
        let (census, in_user_code) = (me.census_if_manual(), call_out::inside().is_some());
        let timer = deadline.and_then(|d| clock.census().add_timer(d, Unparker(me.cell.clone())));
        if let Some(c) = &census {
            c.idle(in_user_code);
        }
        state.parked = Some(Sleeper { census, in_user_code });
        let real = if clock.is_manual() { None } else { deadline.and_then(|d| clock.real_instant(d)) };
        while !state.token {
            match real {
                None => me.cell.wake.wait(&mut state),
                Some(at) => {
                    if me.cell.wake.wait_until(&mut state, at).timed_out() && !state.token {
                        if let Some(sleeper) = state.parked.take() {
                            sleeper.wake();
                        }
                        return Parked::Deadline;
                    }
                }
            }
        }
        state.token = false;
        drop(state);
        if let Some(timer) = timer {
            clock.census().drop_timer(timer);
        }
        if deadline.is_some_and(|d| clock.now() >= d) { Parked::Deadline } else { Parked::Woken }
    })
}

impl Current {
    /// The census that counts this thread, when it is that of a manual clock.
    fn census_if_manual(&self) -> Option<Arc<Census>> {
        match self.home.get() {
            Some((census, _)) => census.is_manual().then(|| census.clone()),
            None => self.door.borrow().as_ref().map(|(census, _)| census.clone()),
        }
    }
}

/// Makes the calling thread one of `census`. Called once, by the spawn wrapper.
pub(super) fn settle_in(census: Arc<Census>, id: u64) {
    CURRENT.with(|me| me.home.set((census, id)).ok());
}

/// The census of the calling thread: its home, else the door it is in.
pub(super) fn current_census() -> Option<Arc<Census>> {
    CURRENT
        .try_with(|me| me.home.get().map(|h| h.0.clone()).or_else(|| me.door.borrow().as_ref().map(|d| d.0.clone())))
        .ok()
        .flatten()
}

/// Runs `f` on the census that counts the calling thread, when it is that of a manual clock; says whether there was one.
pub(super) fn with_manual_census(f: impl FnOnce(&Census)) -> bool {
    let census = CURRENT.try_with(|me| me.census_if_manual()).ok().flatten();
    census.inspect(|c| f(c)).is_some()
}

/// A thread that is not ours counts as ours while it is inside a blocking door.
pub(super) struct Door(bool, PhantomData<*const ()>);

impl Door {
    pub(super) fn enter(clock: &Clock) -> Self {
        let counted = clock.is_manual()
            && CURRENT.with(|me| {
                if me.home.get().is_some() {
                    return false;
                }
                let mut door = me.door.borrow_mut();
                match &mut *door {
                    Some((_, depth)) => *depth += 1,
                    none => {
                        clock.census().busy(call_out::inside().is_some());
                        *none = Some((clock.census().clone(), 1));
                    }
                }
                true
            });
        Self(counted, PhantomData)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.0 {
            CURRENT.with(|me| {
                let mut door = me.door.borrow_mut();
                if let Some((census, depth)) = &mut *door {
                    *depth -= 1;
                    if *depth == 0 {
                        census.idle(call_out::inside().is_some());
                        *door = None;
                    }
                }
            });
        }
    }
}

/// A counted mutex with a condition that any number of threads may wait for.
///
/// Whoever makes a condition true calls [`Monitor::notify_all`] or [`Monitor::notify_one`] *after* leaving the lock.
#[derive(Default)]
pub(crate) struct Monitor<T> {
    data: Mutex<T>,
    /// Written with `data` held by waiters, without it by notifiers. Never held across anything else.
    waiters: RawMutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    queue: VecDeque<(u64, Unparker)>,
}

impl<T> Monitor<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { data: Mutex::new(value), waiters: RawMutex::new(Waiters { next: 0, queue: VecDeque::new() }) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.data.lock()
    }

    /// Waits while `keep_waiting` says so, looking again after each wake, until `deadline`.
    ///
    /// Returns the lock and whether the condition was reached; the condition is looked at before the clock, so a wake
    /// that comes together with the deadline is not lost. `keep_waiting` runs under the lock.
    pub(crate) fn wait_while<'a>(
        &'a self,
        mut guard: MutexGuard<'a, T>,
        clock: &Clock,
        deadline: Option<Instant>,
        mut keep_waiting: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let _door = Door::enter(clock);
        let mut passed = false;
        loop {
            if !keep_waiting(&mut guard) {
                return (guard, true);
            }
            if passed {
                return (guard, false);
            }
            let ticket = self.register();
            drop(guard);
            passed = park(clock, deadline) == Parked::Deadline;
            guard = self.data.lock();
            self.withdraw(ticket);
        }
    }

    fn register(&self) -> u64 {
        let mut w = self.waiters.lock();
        w.next += 1;
        let ticket = w.next;
        w.queue.push_back((ticket, unparker()));
        ticket
    }

    fn withdraw(&self, ticket: u64) {
        self.waiters.lock().queue.retain(|(t, _)| *t != ticket);
    }

    /// Wakes the waiter that has waited longest.
    pub(crate) fn notify_one(&self) {
        let first = self.waiters.lock().queue.pop_front();
        if let Some((_, waiter)) = first {
            waiter.unpark();
        }
    }

    /// Wakes every waiter.
    pub(crate) fn notify_all(&self) {
        let all = std::mem::take(&mut self.waiters.lock().queue);
        for (_, waiter) in all {
            waiter.unpark();
        }
    }
}
