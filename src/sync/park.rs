//! Parking, the one way a thread of this crate blocks, and [`Monitor`], a mutex with a condition built on it.
//!
//! Each thread has one cell with one token, as in `std::thread::park`: an unpark that comes early is remembered, two
//! merge. Every waiter looks at its condition again after each return, so a stray token costs one look.
//!
//! The *unparker* turns the sleeper into a running member of its clock's census, before it can park itself. So "nobody
//! runs" means that no wake is in flight, and that is what [`super::ManualClock`] rests on.

use super::{
    Arc, Clock, Instant, Mutex, MutexGuard,
    backend::{RawCondvar, RawMutex, os, thread_local},
    call_out,
    census::{Census, Seat},
    keep,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    marker::PhantomData,
    time::Duration,
};

thread_local! {
    static CURRENT: Current = Current::default();
    /// Whether a manual clock counts the thread.
    static SEATED: Cell<bool> = const { Cell::new(false) };
}

/// What the facade knows of the calling thread.
#[derive(Default)]
struct Current {
    cell: Arc<ThreadCell>,
    /// On threads that this crate started, until their work is done.
    home: RefCell<Option<Seat>>,
    /// On threads that no manual clock counts at home: the blocking door they are inside of, and how deep.
    door: RefCell<Option<(Seat, u32)>>,
}

#[derive(Default)]
struct ThreadCell {
    state: RawMutex<CellState>,
    wake: RawCondvar,
}

#[derive(Default)]
struct CellState {
    token: bool,
    parked: bool,
    /// While parked: whom to tell when the thread is woken.
    seat: Option<Seat>,
}

impl CellState {
    fn wake(&mut self) {
        self.parked = false;
        if let Some(seat) = self.seat.take()
            && keep("park: whoever wakes a thread counts it as running")
        {
            seat.wakes();
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

/// Wakes one thread. *Blocks*: briefly.
#[derive(Clone)]
pub(crate) struct Unparker(Arc<ThreadCell>);

impl Unparker {
    pub(crate) fn unpark(&self) {
        let mut state = self.0.state.lock();
        state.token = keep("park: the token is remembered") || state.parked;
        if state.parked && keep("park: a parked thread is notified") {
            state.wake();
            self.0.wake.notify_one();
        }
    }
}

/// The handle that wakes the calling thread.
pub(crate) fn unparker() -> Unparker {
    CURRENT.try_with(|me| Unparker(me.cell.clone())).unwrap_or_else(|_| Unparker(Arc::default()))
}

/// Blocks until a token comes or `deadline` passes on `clock`. Callers look at their condition again, and stand in a
/// [`Door`] of the clock around the loop in which they do.
pub(crate) fn park(clock: &Clock, deadline: Option<Instant>) -> Parked {
    CURRENT.try_with(|me| me.park(clock, deadline)).unwrap_or_else(|_| doze(clock, deadline))
}

/// How a thread parks that is past its thread-locals, in the destructor of one of the user's: nobody can know it by
/// then, so it looks again every now and then.
fn doze(clock: &Clock, deadline: Option<Instant>) -> Parked {
    const LOOK_AGAIN: Duration = Duration::from_millis(1);
    let nobody = ThreadCell::default();
    if let Some(at) = os::after(LOOK_AGAIN) {
        nobody.wake.wait_until(&mut nobody.state.lock(), at);
    }
    if deadline.is_some_and(|d| clock.now() >= d) { Parked::Deadline } else { Parked::Woken }
}

impl Current {
    fn park(&self, clock: &Clock, deadline: Option<Instant>) -> Parked {
        let mut state = self.cell.state.lock();
        if std::mem::take(&mut state.token) {
            return Parked::Woken;
        }
        let (mut real, mut timer) = (None, None);
        match deadline {
            None => {}
            Some(at) if clock.is_manual() => match clock.census().set_timer(at, Unparker(self.cell.clone())) {
                None => return Parked::Deadline,
                set => timer = set,
            },
            Some(at) if clock.now() >= at => return Parked::Deadline,
            Some(at) => real = clock.real_instant(at),
        }
        state.seat = self.seat();
        state.parked = true;
        if let Some(seat) = &state.seat {
            seat.parks();
        }
        while !state.token {
            match real {
                None => self.cell.wake.wait(&mut state),
                Some(at) => {
                    if self.cell.wake.wait_until(&mut state, at).timed_out() && !state.token {
                        state.wake();
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
    }

    /// Where a manual clock counts this thread, if one does.
    fn seat(&self) -> Option<Seat> {
        self.manual_home().or_else(|| self.door.borrow().as_ref().map(|(seat, _)| seat.clone()))
    }

    /// Called when it may have changed.
    fn tell_seated(&self) {
        SEATED.with(|seated| seated.set(self.seat().is_some()));
    }

    fn manual_home(&self) -> Option<Seat> {
        self.home.borrow().as_ref().filter(|seat| seat.census.is_manual()).cloned()
    }
}

/// The calling thread's membership in the census that counted it in before it was started.
pub(super) struct Home(PhantomData<*const ()>);

impl Home {
    pub(super) fn settle_in(seat: Seat) -> Self {
        CURRENT.with(|me| {
            *me.home.borrow_mut() = Some(seat);
            me.tell_seated();
        });
        Self(PhantomData)
    }
}

impl Drop for Home {
    /// From here on the thread is a foreign one, whatever destructors of thread-locals it still has to run.
    fn drop(&mut self) {
        let leave = |me: &Current| {
            let seat = me.home.borrow_mut().take();
            me.tell_seated();
            seat
        };
        if let Some(seat) = CURRENT.with(leave) {
            seat.leave();
        }
    }
}

/// The census of the calling thread: its home, else the door it is in.
pub(super) fn current_census() -> Option<Arc<Census>> {
    let look = |me: &Current| {
        let home = me.home.borrow().as_ref().map(|seat| seat.census.clone());
        home.or_else(|| me.door.borrow().as_ref().map(|(seat, _)| seat.census.clone()))
    };
    CURRENT.try_with(look).ok().flatten()
}

/// Whether a manual clock counts the calling thread. Asked whenever user code is called.
#[inline]
pub(super) fn is_seated() -> bool {
    SEATED.with(Cell::get)
}

/// Where a manual clock counts the calling thread, if one does.
pub(super) fn current_seat() -> Option<Seat> {
    CURRENT.try_with(Current::seat).ok().flatten()
}

/// A thread that a manual clock does not count at home is counted while it is inside a blocking door of that clock.
///
/// [`Monitor::wait_while`] and joining stand in one by themselves. A door that does work on its caller's thread, or
/// loops around [`park`], holds one for as long as it lasts.
pub(crate) struct Door(bool, PhantomData<*const ()>);

impl Door {
    pub(crate) fn enter(clock: &Clock) -> Self {
        let visits = clock.is_manual()
            && CURRENT
                .try_with(|me| {
                    if me.manual_home().is_some() {
                        return false;
                    }
                    match &mut *me.door.borrow_mut() {
                        Some((_, depth)) => *depth += 1,
                        none => {
                            let seat = clock.census().join(&os::current_name(), false, call_out::inside());
                            *none = Some((seat, 1));
                            SEATED.with(|seated| seated.set(true));
                        }
                    }
                    true
                })
                .unwrap_or(false);
        Self(visits, PhantomData)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if !self.0 {
            return;
        }
        CURRENT.with(|me| {
            let mut door = me.door.borrow_mut();
            match door.take() {
                Some((seat, 1)) => seat.leave(),
                Some((seat, depth)) => *door = Some((seat, depth - 1)),
                None => {}
            }
            drop(door);
            me.tell_seated();
        });
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
    pub(crate) fn new(value: T) -> Self {
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
            let early = keep("monitor: registered before the lock is left").then(|| self.register());
            drop(guard);
            let ticket = early.unwrap_or_else(|| self.register());
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
        if !keep("monitor: notify_all takes every waiter") {
            return self.notify_one();
        }
        let all = std::mem::take(&mut self.waiters.lock().queue);
        for (_, waiter) in all {
            waiter.unpark();
        }
    }
}
