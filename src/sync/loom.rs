//! The backend of `--cfg informer_loom`: every lock, atomic, cell, thread and thread-local is loom's, so that a model
//! sees each ordering. Nothing of it works outside of a model ([`super::prove::model`]).
//!
//! # Where loom differs from the machine
//! See [`super::checked`] for what both checkers have in common. Besides:
//! * weaker: no load is seen before the store that it depends on (no load buffering), at most 5 threads with main;
//! * stronger, so a false alarm is possible: a `SeqCst` load or store counts as acquire or release only (fences are
//!   modelled); after a plain store by the waiter, a swap by the waker may be followed by a stale load of the waker's
//!   own older value. Words with a swap on one side are written by read-modify-writes on both.
//! * weaker again: an acquire fence also acquires what the threads ordered before it have read, a `SeqCst` fence orders
//!   all before it with all after a later one, and nobody comes between an access and a fence that follows it. So a
//!   missing release or acquire is not found where fences stand beside it.
//! * thread-locals and lazies live for one execution; a thread that outlives main's last line finds them gone.

pub(crate) use super::checked::{Arc, Once, RawCondvar, RawMutex, RawMutexGuard, Seed, Time, Weak};
pub(crate) use ::loom::{cell::UnsafeCell, sync::atomic};

/// An `Arc` whose count loom sees: the order of a last drop after the others is modelled, and a leak is found. No
/// `Weak`, no unsizing.
pub(crate) use ::loom::sync::Arc as CheckedArc;

/// Part of what must be freed by the end of an execution.
pub(crate) struct Alive {
    _tracked: ::loom::alloc::Track<()>,
}

impl Default for Alive {
    fn default() -> Self {
        Self { _tracked: ::loom::alloc::Track::new(()) }
    }
}

/// Something that threads touch, for models of who comes before whom. There is nothing inside to follow a pointer to.
#[derive(Debug, Default)]
pub struct Watched(UnsafeCell<()>);

impl Watched {
    /// Touches it as a reader: a model fails when a writer is not ordered before or after.
    pub fn read(&self) {
        self.0.with(|_| ());
    }

    /// Touches it as a writer: a model fails when anybody else is not ordered before or after.
    pub fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

#[allow(unsafe_code)]
// SAFETY: loom is told of accesses, and nobody ever makes one.
unsafe impl Sync for Watched {}

/// What `super::checked` builds on.
pub(super) mod raw {
    pub(crate) use ::loom::sync::{Condvar, Mutex, MutexGuard};
}

/// loom's macro does not know `const` initialisers.
macro_rules! model_local {
    () => {};
    ($(#[$m:meta])* $vis:vis static $name:ident: $t:ty = const { $init:expr }; $($rest:tt)*) => {
        ::loom::thread_local! { $(#[$m])* $vis static $name: $t = $init; }
        $crate::sync::thread_local! { $($rest)* }
    };
    ($(#[$m:meta])* $vis:vis static $name:ident: $t:ty = $init:expr; $($rest:tt)*) => {
        ::loom::thread_local! { $(#[$m])* $vis static $name: $t = $init; }
        $crate::sync::thread_local! { $($rest)* }
    };
}
pub(crate) use model_local as thread_local;

/// Statics that are made when they are first used, anew in each execution.
macro_rules! lazy {
    ($(#[$m:meta])* static $name:ident: $t:ty = $init:expr;) => {
        ::loom::lazy_static! { $(#[$m])* static ref $name: $t = $init; }
    };
    ($(#[$m:meta])* pub($($v:tt)+) static $name:ident: $t:ty = $init:expr;) => {
        ::loom::lazy_static! { $(#[$m])* pub($($v)+) static ref $name: $t = $init; }
    };
}
pub(crate) use lazy;
/// Statics that begin with a constant on the machine begin anew in each execution here. The checker may block while it
/// makes one, which the machine does not: a test of progress touches them before its workers start.
pub(crate) use lazy as constant;

/// A value that is never freed.
pub(crate) fn for_ever<T: Sync + 'static>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Threads of the model, and its time, which stands still.
pub(crate) mod os {
    use super::Time;
    use ::loom::thread::{self, Builder};
    use std::{io, time::Duration};

    pub(crate) use ::loom::thread::JoinHandle;

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
