//! The backend of `--cfg informer_shuttle`: locks, atomics, threads and thread-locals are shuttle's, so that a test
//! chooses which thread goes on at each of them. Nothing of it works outside of such a test ([`super::prove`]).
//!
//! # Where shuttle differs from the machine
//! See [`super::checked`] for what both checkers have in common. Besides:
//! * weaker: all atomics are sequentially consistent whatever ordering they are given, fences do nothing, and cells are
//!   not watched. Orderings and races are loom's to judge; shuttle judges schedules, in larger worlds, and progress.

pub(crate) use super::cell::{Alive, UnsafeCell};
pub(crate) use super::checked::{Arc, Arc as CheckedArc, Once, RawCondvar, RawMutex, RawMutexGuard, Seed, Time, Weak};
pub(crate) use ::shuttle::{sync::atomic, thread_local};

/// What `super::checked` builds on.
pub(super) mod raw {
    pub(crate) use ::shuttle::sync::{Condvar, Mutex, MutexGuard};
}

/// Statics that are made when they are first used, anew in each execution.
macro_rules! lazy {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        ::shuttle::lazy_static! { $(#[$m])* static ref $name: $t = $init; }
    };
    ($(#[$m:meta])* pub($($v:tt)+) static $name:ident: $t:ty = $init:expr;) => {
        ::shuttle::lazy_static! { $(#[$m])* pub($($v)+) static ref $name: $t = $init; }
    };
}
pub(crate) use lazy;
/// Statics that begin with a constant on the machine begin anew in each execution here. The checker may block while it
/// makes one, which the machine does not: a test of progress touches them before its workers start.
pub(crate) use lazy as constant;

/// A value that is never freed; here it lives until the next execution on this OS thread asks for one, since a campaign has
/// more executions than the memory holds such values.
#[allow(unsafe_code)]
pub(crate) fn for_ever<T: Sync + 'static>(value: T) -> &'static T {
    type Frees = (u64, Vec<Box<dyn FnOnce()>>);
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    lazy! {
        static EXECUTION: u64 = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    std::thread_local! {
        static KEPT: std::cell::RefCell<Frees> = const { std::cell::RefCell::new((0, Vec::new())) };
    }
    let (execution, raw) = (*EXECUTION, Box::into_raw(Box::new(value)));
    KEPT.with_borrow_mut(|(of, frees)| {
        if *of != execution {
            *of = execution;
            frees.drain(..).for_each(|free| free());
        }
        // SAFETY: it came from a box, and is freed once. The execution that was given it is over by then: an OS thread runs
        // one after the other, and nothing of one is reached by the next.
        frees.push(Box::new(move || drop(unsafe { Box::from_raw(raw) })));
    });
    // SAFETY: just made, only shared from here on, and not freed before the execution is over.
    unsafe { &*raw }
}

/// Threads of the test, and its time, which stands still.
pub(crate) mod os {
    use super::Time;
    use ::shuttle::thread::{self, Builder};
    use std::{io, time::Duration};

    pub(crate) use ::shuttle::thread::JoinHandle;

    pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        Builder::new().name(name.to_owned()).spawn(f)
    }

    pub(crate) fn is_current(thread: &JoinHandle<()>) -> bool {
        thread.thread().id() == thread::current().id()
    }

    pub(crate) fn now() -> Time {
        Time::NOW
    }

    pub(crate) fn after(d: Duration) -> Option<Time> {
        now().checked_add(d)
    }

    pub(crate) fn current_name() -> String {
        thread::current().name().unwrap_or("(unnamed)").to_owned()
    }
}
