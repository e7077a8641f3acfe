//! The shared processor: one publication to every listener, each listener on a thread of its own.
//!
//! # Who
//! The engine (one thread) calls `Processor::distribute` after it has published. Anybody, callbacks included, adds and
//! removes listeners. The end of the engine calls `Processor::close`.
//!
//! # Join
//! A newcomer is put on the list (under the list's lock), then fences, then takes a snapshot: the first state it is
//! told of. The engine publishes, then fences, then reads the list. So for every publication either the newcomer's
//! snapshot contains it or the engine pushes it to the newcomer, or both; entries that the snapshot contains are dropped
//! by their number. The bit that says "the initial state is complete" comes out of the same snapshot.
//!
//! # Fan-out
//! Every listener gets the same shared publication, one push each; then, in a second pass, each is woken. No lock is
//! held while pushing or waking, and a listener that does not move only grows its own ring.
//!
//! # End
//! Closing marks the list closed; a newcomer that finds it so gets [`AddHandlerError::Stopped`]. Every listener is told
//! to leave and its thread is joined; what its ring still holds is dropped.

mod handler;
mod listener;

pub(crate) use handler::{AnyHandler, erase};
pub use handler::{Batch, Handler, HandlerOptions, PanicPolicy};
pub(crate) use listener::Listener;
pub use listener::Removed;

use crate::{
    ring::ring,
    store::{AnyReader, Held, Publication},
    sync::{
        Arc, Clock, JoinHandle, Monitor,
        atomic::{Ordering, fence},
        keep, spawn,
    },
};
use listener::{End, Run};
use std::io;

#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, informer_loom))]
mod model;
#[cfg(all(test, any(informer_loom, informer_shuttle)))]
#[allow(dead_code, reason = "models and tests of progress use a part of it each")]
mod small;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;

/// Why a handler was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddHandlerError {
    /// The informer has stopped (or its last handle is gone): it will never tell anybody anything.
    #[error("the handler was not added: the informer has stopped")]
    Stopped,
    /// The operating system gave no thread for it.
    #[error("the handler was not added: no thread for it")]
    Spawn(#[source] io::Error),
}

/// Whom the processor tells of failures. Called on listeners' threads, without a lock held.
pub(crate) trait Report: Send + Sync {
    /// A callback panicked; the panic is contained.
    fn handler_panicked(&self, handler: &str, message: &str);

    /// As above, and the handler asked that the informer stops then.
    fn abort(&self, handler: &str, message: &str);
}

/// See the module's text.
pub(crate) struct Processor {
    clock: Clock,
    store: AnyReader,
    report: Arc<dyn Report>,
    listeners: Arc<Monitor<Listeners>>,
}

#[derive(Default)]
struct Listeners {
    /// Replaced, never changed, so that the engine walks it without the lock.
    live: Arc<Vec<Arc<Listener>>>,
    threads: Vec<JoinHandle<()>>,
    next_id: u64,
    /// Threads that are being started right now.
    starting: usize,
    closed: bool,
}

impl Processor {
    pub(crate) fn new(clock: &Clock, store: AnyReader, report: Arc<dyn Report>) -> Self {
        Self { clock: clock.clone(), store, report, listeners: Arc::default() }
    }

    /// Adds a listener; legal anywhere, at any time. *Blocks*: only for the start of its thread.
    ///
    /// # Errors
    /// As [`AddHandlerError`] says; the handler is dropped then.
    pub(crate) fn add(&self, handler: Box<dyn AnyHandler>, options: &HandlerOptions) -> Result<Arc<Listener>, AddHandlerError> {
        let (producer, consumer) = ring(&self.clock);
        let too_early = (!keep("processor: a newcomer is listed before its snapshot")).then(|| self.store.snapshot());
        let listener = {
            let mut l = self.listeners.lock();
            if l.closed && keep("processor: a newcomer finds the list closed") {
                drop(l);
                return Err(AddHandlerError::Stopped);
            }
            l.next_id += 1;
            l.starting += 1;
            let name = options.name.clone().unwrap_or_else(|| format!("handler-{}", l.next_id));
            let listener = Arc::new(Listener::new(l.next_id, name, producer, &self.clock));
            l.live = Arc::new(l.live.iter().cloned().chain([listener.clone()]).collect());
            listener
        };
        fence(Ordering::SeqCst);
        let start = too_early.unwrap_or_else(|| self.store.snapshot());
        let run = Run {
            listener: listener.clone(),
            ring: consumer,
            handler,
            policy: options.panic,
            start,
            report: self.report.clone(),
            list: self.listeners.clone(),
        };
        let started = spawn(&self.clock, &thread_name(listener.name()), move || run.run());
        let ended: Vec<_> = {
            let mut l = self.listeners.lock();
            if started.is_err() || !keep("processor: who starts stays until it has let go of others") {
                l.starting -= 1;
            }
            match started {
                Ok(thread) => l.threads.push(thread),
                Err(e) => {
                    drop(l);
                    self.listeners.notify_all();
                    self.remove(&listener);
                    return Err(AddHandlerError::Spawn(e));
                }
            }
            // Those that have ended by themselves are let go of.
            l.threads.extract_if(.., |t| t.is_finished()).collect()
        };
        ended.into_iter().for_each(join);
        // Not before: the end waits for the threads on the list and for those who start, and these are on it no more.
        if keep("processor: who starts stays until it has let go of others") {
            self.listeners.lock().starting -= 1;
        }
        self.listeners.notify_all();
        Ok(listener)
    }

    /// Takes a listener off and makes it leave. Legal anywhere; the second call changes nothing. *Blocks*: briefly.
    pub(crate) fn remove(&self, listener: &Listener) -> Removed {
        take_off(&self.listeners, listener);
        listener.leave(End::Removed)
    }

    /// Engine: hands a publication, already published, to every listener. *Blocks*: never on a listener
    /// (`ring/freeze.rs`), briefly on who adds or removes one.
    pub(crate) fn distribute(&self, publication: Publication) {
        fence(Ordering::SeqCst);
        let listeners = self.listeners.lock().live.clone();
        let publication = Held::new(publication);
        for listener in &*listeners {
            listener.push(publication.clone());
        }
        for listener in &*listeners {
            listener.wake();
        }
    }

    /// Whether a listener has been told of everything that is stored.
    pub(crate) fn is_idle(&self, listener: &Listener) -> bool {
        listener.is_idle(self.store.snapshot().seq())
    }

    /// How many listeners there are.
    pub(crate) fn len(&self) -> usize {
        self.listeners.lock().live.len()
    }

    /// Ends every listener without waiting for any; newcomers are refused from now on. Idempotent.
    pub(crate) fn stop(&self) {
        let live = {
            let mut l = self.listeners.lock();
            l.closed = true;
            std::mem::take(&mut l.live)
        };
        for listener in &*live {
            if keep("processor: the end tells every listener") {
                listener.leave(End::Stopped);
            }
        }
    }

    /// [`Processor::stop`], then waits for every thread. *Blocks*: until callbacks that run have returned. Never call
    /// it from a callback; on a listener's own thread that thread is not waited for.
    pub(crate) fn close(&self) {
        self.stop();
        let starting = |l: &mut Listeners| l.starting > 0 && keep("processor: the end waits for those who start");
        let (mut l, _) = self.listeners.wait_while(self.listeners.lock(), &self.clock, None, starting);
        let threads = std::mem::take(&mut l.threads);
        drop(l);
        threads.into_iter().for_each(join);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // An informer that never ran: its listeners sleep on empty rings.
        self.stop();
    }
}

/// Lists a listener no more.
fn take_off(listeners: &Monitor<Listeners>, listener: &Listener) {
    let before = {
        let mut l = listeners.lock();
        if l.live.iter().all(|other| other.id != listener.id) {
            return;
        }
        let rest = l.live.iter().filter(|other| other.id != listener.id).cloned().collect();
        std::mem::replace(&mut l.live, Arc::new(rest))
    };
    // After the lock: whoever drops the last handle to a listener drops what its ring holds.
    drop(before);
}

/// A panic of a listener's thread was reported when it happened. A thread does not wait for itself: in the drop of its
/// handler, or of a thread-local, it may add handlers and end informers.
fn join(thread: JoinHandle<()>) {
    if !thread.is_current() {
        let _reported = thread.join();
    }
}

/// What fits of the name into the system's 15 bytes, without the zero that would end it.
fn thread_name(name: &str) -> String {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].replace('\0', " ")
}
