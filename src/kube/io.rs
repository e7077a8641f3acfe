//! [`Io`]: the one thread that waits for sockets, and how everybody else waits for a future.
//!
//! The thread runs a tokio runtime of its own kind: it sits in `block_on` until it is told to end, which drives sockets
//! and timers and the small tasks of the HTTP client. Futures are polled elsewhere, by whoever waits for them, inside
//! the runtime's context, so that what they open belongs to it.
//!
//! *A wake-up is not lost*: a future is polled with a waker that pokes the caller's [`Wake`], and `Wake::wait_until`
//! looks again after each poke that came since it began to look. *Nobody polls after the end*: `wait_until` does not ask
//! again once it was told yes. *The thread ends* when the last [`Io`] is gone; sources and streams hold one each, and
//! a stream lets go of its connection before it lets go of the thread.

use super::error;
use crate::{
    source::SourceError,
    sync::{Arc, Clock, Deadline, JoinHandle, Mutex, Stop, Wake, Weak, Woken, lazy, spawn},
};
use std::{
    fmt, io,
    pin::pin,
    task::{self, Context, Poll, Waker},
};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

lazy! {
    /// The thread of the process, while somebody uses it.
    static SHARED: Mutex<Weak<Thread>> = Mutex::default();
}

/// A share in the thread that does the network's waiting for this process. Clones are the same share.
///
/// The thread, `kube-io`, is started by the first [`Io::shared`], and is ended and joined when the last `Io` is dropped;
/// every [`KubeSource`](super::KubeSource) and every open watch of one holds an `Io`. A `kube::Client` does not: keep an
/// `Io` for as long as you use a client that it made. Names are resolved on a further thread, which tokio ends by
/// itself after ten idle seconds.
#[derive(Clone)]
pub struct Io(Arc<Thread>);

struct Thread {
    runtime: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().thread_name("kube-dns").max_blocking_threads(4).build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        // On a clock of its own: it rests in a system call, where no manual clock could see it rest.
        let thread = spawn(&Clock::real(), "kube-io", move || {
            // Answers when the sender is dropped.
            drop(runtime.block_on(ended));
            // Without waiting for a name that is being resolved.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && !thread.is_current()
        {
            // It contains the panics of its tasks; one of its own would have ended what was waiting for it by time-out.
            drop(thread.join());
        }
    }
}

impl Io {
    /// The thread of this process; starts it if nobody uses it yet.
    ///
    /// # Errors
    /// The system's, when it has no thread or no descriptor left.
    pub fn shared() -> io::Result<Self> {
        let mut shared = SHARED.lock();
        if let Some(thread) = shared.upgrade() {
            return Ok(Self(thread));
        }
        let thread = Arc::new(Thread::start()?);
        *shared = Arc::downgrade(&thread);
        Ok(Self(thread))
    }

    /// What `kubectl` would use: `$KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
    /// *Blocks*: while files are read and a credential plugin runs.
    ///
    /// # Errors
    /// [`Other`](crate::source::SourceErrorKind::Other), with what was looked for.
    pub fn infer(&self) -> Result<::kube::Config, SourceError> {
        self.block_on(::kube::Config::infer()).map_err(error::no_config)
    }

    /// A client whose work is done on this thread, over HTTP/1.1, with kube's own retries off. It stops working when the
    /// last `Io` is gone. *Blocks*: while a credential plugin runs.
    ///
    /// # Errors
    /// [`Other`](crate::source::SourceErrorKind::Other), with what is wrong with the configuration; also when it asks for
    /// TLS and none is compiled in, which is the application's choice (`kube`'s features `rustls-tls` with `ring` or
    /// `aws-lc-rs`, or `openssl-tls`).
    pub fn client(&self, mut config: ::kube::Config) -> Result<::kube::Client, SourceError> {
        config.default_retry = false;
        self.inside(|| ::kube::Client::try_from(config).map_err(error::no_client))
    }

    /// Runs `f` in the context of the runtime: kube starts a task when it builds a client, and panics where there is none.
    pub(super) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _inside = self.0.runtime.enter();
        f()
    }

    /// Waits for a future, polling it on the calling thread: the way to use the rest of kube, as `Api::patch`, from a
    /// handler or a reconcile. *Blocks*: until it is ready; give it a time-out of its own. Not to be called inside an
    /// async task, whose thread it would block.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let wake = Wake::new(&Stop::new(), &Clock::real());
        match self.wait(&waker(&wake), &wake, Deadline::never(), |cx| future.as_mut().poll(cx)) {
            Ok(output) => output,
            Err(woken) => unreachable!("nobody else has this wake, and it has no deadline: {woken:?}"),
        }
    }

    /// Waits until `poll` is ready, or for stop, a nudge or the deadline. `waker` is [`waker`] of `wake`.
    pub(super) fn wait<T>(
        &self,
        waker: &Waker,
        wake: &Wake,
        deadline: Deadline,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Woken> {
        let mut output = None;
        let ready = || {
            output = self.poll(waker, &mut poll);
            output.is_some()
        };
        match wake.wait_until(deadline, ready) {
            Some(woken) => Err(woken),
            None => Ok(output.unwrap_or_else(|| unreachable!("the wait ends with what made it end"))),
        }
    }

    /// Looks once.
    pub(super) fn poll<T>(&self, waker: &Waker, poll: &mut impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        match self.inside(|| poll(&mut Context::from_waker(waker))) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("thread", &"kube-io").finish_non_exhaustive()
    }
}

struct Poke(Wake);

impl task::Wake for Poke {
    fn wake(self: Arc<Self>) {
        self.0.poke();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.poke();
    }
}

/// A waker that pokes.
pub(super) fn waker(wake: &Wake) -> Waker {
    Waker::from(Arc::new(Poke(wake.clone())))
}
