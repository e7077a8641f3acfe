//! The backend of ordinary builds: parking_lot locks (std's are opaque to ThreadSanitizer), std atomics and threads.
//!
//! A backend provides exactly these names; the rooms above see only what `sync/mod.rs` makes of them.

pub(crate) use super::cell::{Alive, UnsafeCell};
pub(crate) use hashbrown::DefaultHashBuilder as Seed;
pub(crate) use parking_lot::{Condvar as RawCondvar, Mutex as RawMutex, MutexGuard as RawMutexGuard};
pub(crate) use std::sync::{Arc, Arc as CheckedArc, OnceLock as Once, Weak, atomic};
pub(crate) use std::thread_local;
pub(crate) use std::time::Instant as Time;

/// Statics that are made when they are first used.
macro_rules! lazy {
    ($(#[$m:meta])* $vis:vis static $name:ident: $t:ty = $init:expr;) => {
        $(#[$m])* $vis static $name: ::std::sync::LazyLock<$t> = ::std::sync::LazyLock::new(|| $init);
    };
}
pub(crate) use lazy;

/// Statics with a constant for a beginning: plain ones.
macro_rules! constant {
    ($(#[$m:meta])* $vis:vis static $name:ident: $t:ty = $init:expr;) => {
        $(#[$m])* $vis static $name: $t = $init;
    };
}
pub(crate) use constant;

/// A value that is never freed.
pub(crate) fn for_ever<T: Sync + 'static>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// OS threads and real time.
pub(crate) mod os {
    use super::Time;
    use std::{io, time::Duration};

    pub(crate) use std::thread::JoinHandle;

    /// Starts an OS thread. The only place that does.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(f)
    }

    /// Whether `thread` is the calling one.
    pub(crate) fn is_current(thread: &JoinHandle<()>) -> bool {
        thread.thread().id() == std::thread::current().id()
    }

    /// The machine's monotonic clock. The only place that reads it.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn now() -> Time {
        Time::now()
    }

    /// The real instant `d` from now, or `None` when it cannot be expressed.
    pub(crate) fn after(d: Duration) -> Option<Time> {
        now().checked_add(d)
    }

    /// The name of the calling thread, as far as it has one.
    pub(crate) fn current_name() -> String {
        std::thread::current().name().unwrap_or("(unnamed)").to_owned()
    }
}
