//! Threads: named, counted, joined.

use super::{
    Arc, Clock, Monitor, Mutex,
    backend::{RawMutex, lazy, os, thread_local},
    call_out, keep,
    park::Home,
};
use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Linux cuts the names of threads here.
const NAME_LIMIT: usize = 15;

/// A thread of the crate. Whoever starts one joins it.
pub(crate) struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
    os: os::JoinHandle<()>,
    clock: Clock,
}

struct Packet<T> {
    done: Monitor<bool>,
    result: Mutex<Option<Result<T, String>>>,
}

/// Starts a thread under `clock`. `name` has at most 15 bytes.
///
/// # Errors
/// What the operating system says; `InvalidInput` for a name with a zero byte.
pub(crate) fn spawn<T: Send + 'static>(
    clock: &Clock,
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    assert!(name.len() <= NAME_LIMIT, "the operating system would cut the thread name {name:?}");
    if name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a thread must not contain a zero byte"));
    }
    let packet = Arc::new(Packet { done: Monitor::new(false), result: Mutex::new(None) });
    let seat = clock.census().join(name, true, None);
    if !keep("spawn: a thread counts before it begins") {
        seat.parks();
    }
    let (inner, home) = (packet.clone(), seat.clone());
    let body = move || {
        // Dropped last: after it the thread only returns to the operating system.
        let _home = Home::settle_in(home);
        let inner = inner;
        let result = catch_unwind(AssertUnwindSafe(f)).map_err(call_out::message_of);
        *inner.result.lock() = Some(result);
        *inner.done.lock() = true;
        inner.done.notify_all();
    };
    match os::spawn(name, body) {
        Ok(os) => Ok(JoinHandle { packet, os, clock: clock.clone() }),
        Err(e) => {
            seat.leave();
            Err(e)
        }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the end of the thread. *Blocks*: until it ends; a manual clock sees the wait.
    ///
    /// # Errors
    /// The message, when the thread ended in a panic.
    pub(crate) fn join(self) -> Result<T, String> {
        drop(self.packet.done.wait_while(self.packet.done.lock(), &self.clock, None, |done| !*done));
        // Nothing of ours runs there any more; this waits for the operating system only.
        let os = self.os.join();
        let result = self.packet.result.lock().take();
        result.unwrap_or_else(|| Err(os.err().map_or_else(|| "the thread left no result".to_owned(), call_out::message_of)))
    }

    /// True once the thread has nothing left to do. *Blocks*: briefly.
    pub(crate) fn is_finished(&self) -> bool {
        *self.packet.done.lock()
    }

    /// True when called on this very thread, where joining would never end.
    pub(crate) fn is_current(&self) -> bool {
        os::is_current(&self.os)
    }
}

/// Which thread, for reports and for "is it me?". Costs one look at a thread-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(u64);

/// Names of the threads alive that asked who they are.
#[derive(Default)]
struct Names {
    last: u64,
    alive: BTreeMap<u64, String>,
}

lazy! {
    static NAMES: RawMutex<Names> = RawMutex::default();
}

struct Me(u64);

impl Me {
    fn new() -> Self {
        let name = os::current_name();
        let mut names = NAMES.lock();
        names.last += 1;
        let id = names.last;
        names.alive.insert(id, name);
        Self(id)
    }
}

impl Drop for Me {
    fn drop(&mut self) {
        // loom lets go of a model's statics before the thread-locals of threads that are at their very end.
        if !cfg!(informer_loom) {
            NAMES.lock().alive.remove(&self.0);
        }
    }
}

thread_local! {
    static ME: Me = Me::new();
}

/// The calling thread. One that is past its thread-locals is nobody in particular.
pub(crate) fn this_thread() -> ThreadId {
    ThreadId(ME.try_with(|me| me.0).unwrap_or(0))
}

impl ThreadId {
    /// The thread's name; `None` when it has ended.
    pub(crate) fn name(self) -> Option<String> {
        NAMES.lock().alive.get(&self.0).cloned()
    }
}

/// Whether the calling thread is unwinding.
pub(super) fn panicking() -> bool {
    std::thread::panicking()
}
