//! The backend of ordinary builds: parking_lot locks (std's are opaque to ThreadSanitizer), std atomics and threads.
//!
//! A backend provides exactly these names; the rooms above see only what `sync/mod.rs` makes of them.

pub(crate) use parking_lot::{Condvar as RawCondvar, Mutex as RawMutex, MutexGuard as RawMutexGuard};
pub(crate) use std::sync::{Arc, LazyLock as Lazy, OnceLock as Once, Weak, atomic};
pub(crate) use std::thread_local;

/// OS threads and real time.
pub(crate) mod os {
    use std::{
        io,
        thread::JoinHandle,
        time::{Duration, Instant},
    };

    /// Starts an OS thread. The only place that does.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(f)
    }

    /// The machine's monotonic clock. The only place that reads it.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// The real instant `d` from now, or `None` when it cannot be expressed.
    pub(crate) fn after(d: Duration) -> Option<Instant> {
        now().checked_add(d)
    }

    /// The name of the calling thread, as far as it has one.
    pub(crate) fn current_name() -> String {
        std::thread::current().name().unwrap_or("(unnamed)").to_owned()
    }
}
