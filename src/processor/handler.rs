//! [`Handler`]: the user's code that is told of events, and how it is to be treated.

use crate::{
    flow::{Event, Opaque},
    sync::{
        atomic::{AtomicBool, Ordering},
        call_out::Foreign,
    },
};
use std::marker::PhantomData;

/// Is told of every event of its registration, one at a time, in order, on a thread of its own.
///
/// Implement [`Handler::on_event`]; closures `FnMut(&Event<T>)` are handlers. *Panics*: contained, then as
/// [`PanicPolicy`] says. *Blocking* in a handler delays this registration only; its backlog grows meanwhile.
/// client-go: `ResourceEventHandler`.
pub trait Handler<T>: Send {
    /// One event.
    fn on_event(&mut self, event: &Event<T>);

    /// What is at hand at once. Override it to do work per batch; events that are not taken by [`Batch::next`] before
    /// this returns are skipped.
    fn on_batch(&mut self, batch: &mut Batch<'_, T>)
    where
        T: 'static,
    {
        while let Some(event) = batch.next() {
            self.on_event(event);
        }
    }
}

impl<T, F: FnMut(&Event<T>) + Send> Handler<T> for F {
    fn on_event(&mut self, event: &Event<T>) {
        self(event);
    }
}

impl<T: 'static> Handler<T> for Box<dyn Handler<T>> {
    fn on_event(&mut self, event: &Event<T>) {
        (**self).on_event(event);
    }

    fn on_batch(&mut self, batch: &mut Batch<'_, T>) {
        (**self).on_batch(batch);
    }
}

/// Events at hand, with a cursor. After a panic the next batch goes on behind the last event taken.
pub struct Batch<'a, T> {
    events: &'a [Event<Opaque>],
    at: &'a mut usize,
    leave: &'a AtomicBool,
    _type: PhantomData<fn() -> T>,
}

impl<T: 'static> Batch<'_, T> {
    /// The next event; `None` at the end of the batch, and as soon as the registration is removed or the informer
    /// stops.
    #[allow(clippy::should_implement_trait, reason = "an iterator could not lend its events")]
    pub fn next(&mut self) -> Option<&Event<T>> {
        if self.leave.load(Ordering::Relaxed) {
            return None;
        }
        let event = self.events.get(*self.at)?;
        *self.at += 1;
        Some(event.typed_ref())
    }

    /// Events of the batch that were not taken yet.
    pub fn remaining(&self) -> usize {
        self.events.len() - *self.at
    }
}

/// What happens when a handler panics. The panic is contained, counted and reported in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PanicPolicy {
    /// The event is given up; the handler goes on with the next one at once.
    #[default]
    Isolate,
    /// The registration is removed.
    Remove,
    /// The handler is told of nothing more, and the informer stops; its `run` returns the panic.
    Abort,
}

/// How a handler is to be treated.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HandlerOptions {
    /// Names it in reports, waits and the thread's name (of which the system keeps 15 bytes).
    pub name: Option<String>,
    /// What a panic does.
    pub panic: PanicPolicy,
}

/// A handler whose type is forgotten.
pub(crate) trait AnyHandler: Send {
    /// Hands over `events` from `at` on, moving `at` behind each event taken.
    fn on_batch(&mut self, events: &[Event<Opaque>], at: &mut usize, leave: &AtomicBool);
}

/// Whoever drops it contains the handler's `Drop`, also when no thread could be had for it.
struct Typed<H, T>(Foreign<H>, PhantomData<fn() -> T>);

impl<T: 'static, H: Handler<T>> AnyHandler for Typed<H, T> {
    fn on_batch(&mut self, events: &[Event<Opaque>], at: &mut usize, leave: &AtomicBool) {
        self.0.on_batch(&mut Batch { events, at, leave, _type: PhantomData });
    }
}

/// Forgets the type of a handler.
pub(crate) fn erase<T: 'static>(handler: impl Handler<T> + 'static) -> Box<dyn AnyHandler> {
    Box::new(Typed(Foreign::new(handler), PhantomData))
}
