//! One informer over the embedded server, on a clock that is moved by hand. Every test takes the engine as a parameter.
#![allow(dead_code, clippy::disallowed_types, reason = "shared by several test programs; tests use the user's types")]

use informer::{
    flow::{Cause, Change, Deleted, Event, Object},
    informer::{
        Engine, HandlerOptions, InformerBuilder, InformerEvent, InformerHandle, PanicPolicy, Registration, SharedInformer,
    },
    memory::{Pod, Server},
    reflector::Backoff,
    source::{ListerWatcher, RequestKind},
    sync::{Gate, ManualClock, Stop, call_out::assert_contained},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Declares each test twice, once per engine.
#[macro_export]
macro_rules! with_each_engine {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn body($engine: Engine) $body
            $(#[$meta])*
            #[test]
            fn merged() { body(Engine::Merged) }
            $(#[$meta])*
            #[test]
            fn decoupled() { body(Engine::Decoupled) }
        }
    )* };
}

/// What a handler was told, as short texts: cause, then `+key@version`, `~key@old>new`, `-key@version`, `?key@last`.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn push(&self, s: impl Into<String>) {
        self.0.lock().unwrap().push(s.into());
    }

    /// What a first state or a relist told stands in the order of keys, since the order in which it is told is anybody's.
    pub fn take(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.0.lock().unwrap());
        let of_one_state = |a: &String, b: &String| matches!(a.get(..1), Some("i" | "r")) && a.get(..1) == b.get(..1);
        told.chunk_by_mut(of_one_state).for_each(|state| state.sort_by(|a, b| a.get(2..).cmp(&b.get(2..))));
        told
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

pub fn show<T>(e: &Event<T>) -> String {
    let cause = match e.cause {
        Cause::Initial => 'i',
        Cause::Watch => 'w',
        Cause::Relist => 'r',
        _ => '!',
    };
    match &e.change {
        Change::Added(o) => format!("{cause}+{o:?}"),
        Change::Updated { old, new } => format!("{cause}~{old:?}>{}", Object::version(new)),
        Change::Deleted(Deleted::Observed(o)) => format!("{cause}-{o:?}"),
        Change::Deleted(Deleted::Missed { key, last_known }) => {
            format!("{cause}?{key}@{}", last_known.as_ref().map_or(String::new(), |o| Object::version(o).to_string()))
        }
    }
}

pub struct World<T: Send + Sync + 'static = Pod> {
    // Dropped in this order: the informer ends before the clock looks for panics that nobody declared.
    pub handle: Option<InformerHandle>,
    pub informer: SharedInformer<T>,
    pub stop: Stop,
    pub server: Server,
    /// What the hook was told of failures.
    pub failures: Told,
    pub clock: ManualClock,
}

pub fn pod(name: &str) -> Pod {
    Pod::new("ns", name)
}

impl World<Pod> {
    pub fn new(engine: Engine) -> Self {
        Self::with(engine, |b| b)
    }

    pub fn with(engine: Engine, more: impl FnOnce(InformerBuilder<Pod>) -> InformerBuilder<Pod>) -> Self {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        Self::over(engine, clock, server.clone(), server.source::<Pod>(), more)
    }

    pub fn over<S: ListerWatcher<Object = Pod>>(
        engine: Engine,
        clock: ManualClock,
        server: Server,
        source: S,
        more: impl FnOnce(InformerBuilder<Pod>) -> InformerBuilder<Pod>,
    ) -> Self {
        Self::of(engine, clock, server, SharedInformer::builder(source), more)
    }
}

impl<T: Send + Sync + 'static> World<T> {
    pub fn of(
        engine: Engine,
        clock: ManualClock,
        server: Server,
        builder: InformerBuilder<T>,
        more: impl FnOnce(InformerBuilder<T>) -> InformerBuilder<T>,
    ) -> Self {
        let failures = Told::default();
        let told = failures.clone();
        let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
        let builder = builder.engine(engine).clock(&clock).seed(1).relist_spread(Duration::ZERO).backoff(backoff);
        let builder = builder.observe(move |e| match e {
            InformerEvent::Reflector(_) => {}
            InformerEvent::HandlerPanicked { handler, message } => told.push(format!("{handler} panicked: {message}")),
            InformerEvent::Refused { key, .. } => told.push(format!("refused {key}")),
            InformerEvent::UnknownDeletes { count } => told.push(format!("unknown deletes {count}")),
            other => told.push(format!("{other:?}")),
        });
        let informer = more(builder).build().unwrap();
        let stop = Stop::with_clock(&clock);
        Self { handle: None, informer, stop, server, failures, clock }
    }

    pub fn start(&mut self) {
        self.handle = Some(self.informer.spawn(&self.stop).unwrap());
        self.settle();
    }

    pub fn settle(&self) {
        self.clock.settle();
    }

    /// A handler that writes down what it is told.
    pub fn told(&self) -> (Told, Registration<T>) {
        let told = Told::default();
        let t = told.clone();
        (told, self.informer.on(move |e| t.push(show(e))).unwrap())
    }

    /// A handler that writes down what it is told, then waits at a gate.
    pub fn stuck(&self) -> (Told, Gate, Registration<T>) {
        let (told, gate) = (Told::default(), Gate::new());
        let (t, g) = (told.clone(), gate.clone());
        let registration = self
            .informer
            .on(move |e| {
                t.push(show(e));
                g.wait();
            })
            .unwrap();
        (told, gate, registration)
    }

    /// A handler named `bad` with a policy, panicking on objects whose name contains `bad`.
    pub fn panicking(&self, panic: PanicPolicy) -> (Told, Registration<T>) {
        let told = Told::default();
        let t = told.clone();
        let handler = move |e: &Event<T>| {
            assert!(!e.key().name().contains("bad"), "cannot bear {}", e.key());
            t.push(show(e));
        };
        let options = HandlerOptions { name: Some("bad".into()), panic };
        (told, self.informer.add_handler_with(handler, options).unwrap())
    }

    /// Stops it and waits; what `run` returned.
    pub fn end(&mut self) -> Result<(), informer::informer::RunError> {
        self.stop.stop();
        self.handle.take().unwrap().join()
    }

    pub fn lists(&self) -> usize {
        self.server.requests().iter().filter(|r| r.kind() == RequestKind::List).count()
    }

    pub fn contained(&self, expected: &[&str]) {
        assert_contained(&self.clock, expected);
    }
}

pub fn texts(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}
