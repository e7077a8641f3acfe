//! What the models and the tests of progress have in common: a store with one object, whose value is the number of its
//! publication, and nobody to report to.

use super::{HandlerOptions, Listener, Processor, Report, erase};
use crate::{
    flow::{Change, Delta, Event, Object, ObjectKey, Opaque},
    store::{AnyReader, Writer},
    sync::{Arc, Clock},
};
use std::collections::VecDeque;

struct Nobody;

impl Report for Nobody {
    fn handler_panicked(&self, _: &str, _: &str) {}

    fn abort(&self, _: &str, _: &str) {}
}

/// The one who writes and hands out, and what it hands out to.
pub(super) struct Small {
    writer: Writer,
    pub(super) processor: Arc<Processor>,
    last: u64,
}

impl Small {
    pub(super) fn new(clock: &Clock) -> Self {
        let writer = Writer::new(vec![]).unwrap_or_else(|e| panic!("{e}"));
        let processor = Arc::new(Processor::new(clock, writer.reader(), Arc::new(Nobody)));
        Self { writer, processor, last: 0 }
    }

    pub(super) fn reader(&self) -> AnyReader {
        self.writer.reader()
    }

    fn next(&mut self) -> Object<Opaque> {
        self.last += 1;
        let key = ObjectKey::new("", "a").unwrap_or_else(|e| panic!("{e}"));
        Object::with_key(key, &self.last.to_string(), "", self.last).erase()
    }

    /// Publishes the next state of the object and hands it out.
    pub(super) fn publish(&mut self) {
        let next = self.next();
        self.hand_out(Delta::Updated(next));
    }

    /// As above, as a whole state.
    pub(super) fn publish_whole(&mut self) {
        let objects = vec![self.next()];
        let version = self.last.to_string();
        self.hand_out(Delta::ReplacedAll { version, objects, kept: vec![], complete: true, new_era: false });
    }

    fn hand_out(&mut self, delta: Delta<Opaque>) {
        let mut deltas = VecDeque::from([delta]);
        while let Some(publication) = self.writer.apply(&mut deltas) {
            self.processor.distribute(publication);
        }
    }
}

/// Adds a handler that demands to be told of each state once and in order, and calls `then` with its number.
pub(super) fn add(processor: &Processor, mut then: impl FnMut(u64) + Send + 'static) -> Arc<Listener> {
    try_add(processor, move |n| then(n)).unwrap_or_else(|| panic!("the processor has ended"))
}

/// As above; `None` when the processor has ended.
pub(super) fn try_add(processor: &Processor, mut then: impl FnMut(u64) + Send + 'static) -> Option<Arc<Listener>> {
    let mut last = None;
    let handler = move |event: &Event<u64>| {
        let (old, new) = match &event.change {
            Change::Added(new) => (None, **new),
            Change::Updated { old, new } => (Some(**old), **new),
            Change::Deleted(_) => panic!("nothing is deleted"),
        };
        assert_eq!(old, last, "each state is told once and in order, before {new}");
        last = Some(new);
        then(new);
    };
    processor.add(erase(handler), &HandlerOptions::default()).ok()
}
