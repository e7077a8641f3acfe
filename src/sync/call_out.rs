//! The one way into user code.
//!
//! `call` asserts that the thread holds no counted lock, contains a panic and hands it to the caller as a value, and
//! marks the thread as inside user code, so that doors which would wait for that very callback can refuse.
//!
//! Containment must not blind a test: every contained panic is put on record with the clock of the thread it happened
//! on, and every test ends with [`assert_contained`].

use super::{
    Clock,
    backend::thread_local,
    census::Seat,
    lock::locks_held,
    park::{current_census, current_seat, is_seated},
};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Which kind of user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// An event handler on its listener's thread.
    Handler,
    /// A reconciler on a worker's thread.
    Reconcile,
    /// An index function, in the writer's turn.
    Index,
    /// `Hash`, `Eq`, `Ord` or `Clone` of a key.
    Key,
    /// A transform.
    Transform,
    /// A `ListerWatcher` or one of its streams.
    Source,
    /// A sink that is not one of ours.
    Sink,
    /// A limiter, a metrics provider, an `observe` hook, an `on_stop` or `on_wake` callback.
    Hook,
    /// A value's `Drop`.
    Drop,
}

/// A panic of user code, as a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{site:?} panicked: {message}")]
pub struct Panicked {
    /// Where.
    pub site: Site,
    /// The panic's message; "(no message)" for a payload that is not text.
    pub message: String,
}

/// Contained panics that nobody has declared yet.
#[derive(Debug, Default)]
pub(super) struct Record {
    panics: Vec<Panicked>,
    /// Contained after the record was full.
    more: u64,
}

impl Record {
    const KEPT: usize = 256;

    fn add(&mut self, what: Panicked) {
        if self.panics.len() < Self::KEPT {
            self.panics.push(what);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.panics.is_empty()
    }
}

thread_local! {
    static SITE: Cell<Option<Site>> = const { Cell::new(None) };
    /// Panics contained while no census knew the thread.
    static HERE: RefCell<Record> = RefCell::default();
}

/// The innermost user code that the calling thread is inside of, as far as this crate called it.
pub(crate) fn inside() -> Option<Site> {
    SITE.with(Cell::get)
}

/// Marks the thread; restores on drop, also while unwinding.
struct Mark {
    before: Option<Site>,
    /// Where a manual clock was told. Only the outermost mark is.
    told: Option<Seat>,
}

impl Mark {
    #[inline]
    fn new(site: Site) -> Self {
        let before = SITE.with(|s| s.replace(Some(site)));
        let told = if before.is_none() && is_seated() { Self::tell(site) } else { None };
        Self { before, told }
    }

    #[cold]
    fn tell(site: Site) -> Option<Seat> {
        let seat = current_seat()?;
        seat.inside(Some(site));
        Some(seat)
    }
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        SITE.with(|s| s.set(self.before));
        if let Some(seat) = &self.told {
            seat.inside(None);
        }
    }
}

/// Calls user code: no counted lock may be held, a panic comes back as a value and is put on record.
///
/// # Errors
/// [`Panicked`] when `f` panicked.
pub(crate) fn call<R>(site: Site, f: impl FnOnce() -> R) -> Result<R, Panicked> {
    debug_assert_eq!(locks_held(), 0, "entering user code ({site:?}) with a lock held");
    let outcome = {
        let _mark = Mark::new(site);
        catch_unwind(AssertUnwindSafe(f))
    };
    outcome.map_err(|payload| {
        let what = Panicked { site, message: message_of(payload) };
        record(what.clone());
        what
    })
}

/// [`call`] for code whose answer does not matter; the panic is on record.
pub(crate) fn contain(site: Site, f: impl FnOnce()) {
    let _on_record = call(site, f);
}

/// Something of the user's that the crate keeps: a closure, a source, a handler, a value. Wherever the crate lets go of
/// it, its `Drop` is contained.
#[derive(Debug)]
pub(crate) struct Foreign<T>(Option<T>);

impl<T> Foreign<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The value, whose drop is the caller's business then.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().unwrap_or_else(|| unreachable!("{GONE}"))
    }
}

/// Only `into_inner` and `drop` take the value out, and nothing of theirs is left after.
const GONE: &str = "the value is there as long as what keeps it";

impl<T> Deref for Foreign<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| unreachable!("{GONE}"))
    }
}

impl<T> DerefMut for Foreign<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap_or_else(|| unreachable!("{GONE}"))
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>()
            && let Some(value) = self.0.take()
        {
            contain(Site::Drop, move || drop(value));
        }
    }
}

/// Runs a part of the crate itself, so that a defect ends one informer with an error instead of a thread in silence.
/// Not user code: nothing is marked, nothing put on record.
///
/// # Errors
/// The panic's message.
pub(crate) fn guard<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message_of)
}

/// Calls `Eq` or `Ord` of a key: the only user code that may run under a short lock. The panic is carried out of the
/// lock as it is, because dropping its payload is user code as well. Such code must not call back into this crate.
///
/// # Errors
/// [`KeyPanic`] when `f` panicked.
pub(crate) fn key_cmp<R>(f: impl FnOnce() -> R) -> Result<R, KeyPanic> {
    let _mark = Mark::new(Site::Key);
    catch_unwind(AssertUnwindSafe(f)).map_err(KeyPanic)
}

/// A panic of a key's `Eq` or `Ord`, on its way out of the lock under which it happened.
#[must_use = "put it on record, or resume it, after the lock"]
pub(crate) struct KeyPanic(Box<dyn Any + Send>);

impl KeyPanic {
    /// Contains the panic: puts it on record. Called after the lock.
    pub(crate) fn contain(self) {
        debug_assert_eq!(locks_held(), 0, "dropping the payload of a panic with a lock held");
        record(Panicked { site: Site::Key, message: message_of(self.0) });
    }

    /// Lets the panic go on, for code that is itself called through [`call`]. Called after the lock.
    pub(crate) fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

fn record(what: Panicked) {
    match current_census() {
        Some(census) => census.contained(|r| r.add(what)),
        // A thread whose thread-locals are gone has nobody left to ask it.
        None => drop(HERE.try_with(|h| h.borrow_mut().add(what))),
    }
}

/// Takes what is on record for `clock` and for the calling thread.
pub(super) fn take_record(clock: &Clock) -> Record {
    let mut all = clock.take_contained();
    let here = HERE.with(|h| std::mem::take(&mut *h.borrow_mut()));
    all.panics.extend(here.panics);
    all.more += here.more;
    all
}

/// The text of a panic's payload. Dropping a payload may panic again; that is contained as well, and what it
/// panics with is left alone unless it is plain text, because dropping that could go on for ever.
///
/// Every panic that this crate contains passes here. On a model checker it goes on unless it was declared: a failed
/// assertion, and the checker's own report of a race, must end the model and not a handler.
pub(crate) fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no message)".to_owned());
    #[cfg(any(informer_loom, informer_shuttle))]
    if !super::prove::is_declared(&text) {
        resume_unwind(payload);
    }
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        let plain = again.is::<&'static str>() || again.is::<String>();
        if !plain {
            std::mem::forget(again);
        }
    }
    text
}

/// Declares which panics a test expected to be contained, on threads of `clock` and on the calling thread, since the
/// last such call: each text of `expected` must occur in exactly one of them, and none may be left over. Texts are
/// matched in the order given, so a text that another one contains comes after it.
///
/// # Panics
/// When the record differs; the message shows both.
pub fn assert_contained(clock: &Clock, expected: &[&str]) {
    let Record { panics: mut undeclared, more } = take_record(clock);
    let mut missing = Vec::new();
    for want in expected {
        match undeclared.iter().position(|p| p.message.contains(want)) {
            Some(i) => drop(undeclared.remove(i)),
            None => missing.push(*want),
        }
    }
    assert!(
        missing.is_empty() && undeclared.is_empty() && more == 0,
        "contained panics differ from what the test declared: missing {missing:?}, undeclared {undeclared:?} and {more} more"
    );
}
