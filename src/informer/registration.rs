//! [`Registration`]: one handler's place on an informer.

use super::shared::Inner;
use crate::{
    processor::{Listener, Processor, Removed},
    sync::{Arc, Deadline, Synced, WaitError, Weak},
};
use std::{fmt, marker::PhantomData};

/// One handler's place on an informer. Dropping it removes the handler.
///
/// client-go: `ResourceEventHandlerRegistration`, which has to be handed back to the informer for removal.
#[must_use = "dropping a registration removes its handler: keep it, or call `detach` to keep the handler for good"]
pub struct Registration<T> {
    listener: Arc<Listener>,
    processor: Arc<Processor>,
    /// Asked only why there is no first state, so it keeps nothing alive.
    informer: Weak<Inner>,
    detached: bool,
    _type: PhantomData<fn() -> T>,
}

impl<T> Registration<T> {
    pub(super) fn new(listener: Arc<Listener>, processor: Arc<Processor>, informer: Weak<Inner>) -> Self {
        Self { listener, processor, informer, detached: false, _type: PhantomData }
    }

    /// Keeps the handler until the informer ends.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Batches that wait for the handler.
    pub fn backlog(&self) -> usize {
        self.listener.backlog()
    }

    /// Events handed to the handler so far, those it panicked on included.
    pub fn delivered(&self) -> u64 {
        self.listener.delivered()
    }

    /// Calls of the handler that panicked.
    pub fn panics(&self) -> u64 {
        self.listener.panics()
    }

    /// Whether the handler has been told of everything that is stored now, and has returned; true once it is gone, since
    /// then there is nothing more to tell. *Blocks*: briefly.
    pub fn is_idle(&self) -> bool {
        self.processor.is_idle(&self.listener)
    }

    /// Removes the handler. Legal anywhere, its own callback included, after which nothing more is called. Idempotent.
    /// *Blocks*: briefly; [`Removed`] says whether a callback may still be running.
    pub fn remove(&self) -> Removed {
        self.processor.remove(&self.listener)
    }

    /// Removes the handler and waits until nothing of it runs any more.
    ///
    /// # Errors
    /// `Timeout` (the handler is removed all the same), `WouldDeadlock` inside a callback of this crate (removed, too).
    pub fn shutdown(&self, deadline: impl Into<Deadline>) -> Result<(), WaitError> {
        self.remove();
        self.listener.wait_ended(deadline.into())
    }
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        if !self.detached {
            self.remove();
        }
    }
}

/// Synced once the handler has returned from the last event of its first state.
impl<T> Synced for Registration<T> {
    fn name(&self) -> &str {
        self.listener.name()
    }

    fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError> {
        self.listener.wait_synced(deadline).map_err(|e| match e {
            // The handler knows of its own panics only; more often it is the source that did not answer.
            WaitError::Timeout { missing, last_error: None } => {
                let why = self.informer.upgrade().and_then(|informer| informer.why_no_first_state());
                WaitError::Timeout { missing, last_error: why }
            }
            other => other,
        })
    }
}

impl<T> fmt::Debug for Registration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("handler", &self.listener.name()).finish_non_exhaustive()
    }
}
