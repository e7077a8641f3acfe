//! What does one event cost from the source to the handlers, and how long is one under way?
//!
//! A source in this process hands out updates of 10,000 objects as fast as it is asked; objects are shared values
//! (`Arc`), made before, so no user data is allocated or freed inside. `events` is the time per event at full speed with
//! 0, 1 and 10 handlers; `latency` the time from the source having one event to the handler being called, one event at
//! a time.
#![allow(missing_docs, clippy::disallowed_methods, reason = "a bench measures real time")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use informer::{
    flow::Meta,
    informer::{Engine, InformerHandle, Registration, SharedInformer},
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchEvent, WatchParams, WatchStream},
    sync::{Deadline, Stop, Synced, Wake, Woken},
};
use std::{
    hint::black_box,
    ops::ControlFlow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

const OBJECTS: u64 = 10_000;

struct Item {
    name: String,
    node: String,
}

/// One version of an item: what the source hands out.
struct Pod {
    item: Arc<Item>,
    version: String,
}

struct Shared {
    items: Vec<Arc<Item>>,
    /// Updates that may be handed out so far.
    target: AtomicU64,
    wake: OnceLock<Wake>,
    /// Deliveries so far, all handlers together; whoever reaches `wanted` unparks the bench.
    delivered: AtomicU64,
    wanted: AtomicU64,
    main: Thread,
}

#[derive(Clone)]
struct Source(Arc<Shared>);

struct Stream {
    shared: Arc<Shared>,
    at: u64,
}

impl ListerWatcher for Source {
    type Object = Pod;

    fn meta<'a>(&self, pod: &'a Pod) -> Meta<'a> {
        Meta { namespace: "default", name: &pod.item.name, version: &pod.version, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Pod, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        for (i, item) in self.0.items.iter().enumerate() {
            if sink(Ok(Pod { item: item.clone(), version: (i + 1).to_string() })).is_break() {
                break;
            }
        }
        Ok(ListEnd { version: OBJECTS.to_string(), continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
        Ok(Box::new(Stream { shared: self.0.clone(), at: 0 }))
    }
}

impl WatchStream<Pod> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Pod> {
        let shared = self.shared.clone();
        shared.wake.get_or_init(|| wake.clone());
        match wake.wait_until(deadline, || shared.target.load(Ordering::Acquire) > self.at) {
            None => self.ready().unwrap_or(Next::Deadline),
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Pod>> {
        (self.shared.target.load(Ordering::Acquire) > self.at).then(|| {
            let item = self.shared.items[(self.at * 7919 % OBJECTS) as usize].clone();
            self.at += 1;
            Next::Event(WatchEvent::Modified(Pod { item, version: (OBJECTS + self.at).to_string() }))
        })
    }
}

struct Bench {
    shared: Arc<Shared>,
    informer: SharedInformer<Pod>,
    _registrations: Vec<Registration<Pod>>,
    handlers: u64,
    stop: Stop,
    thread: Option<InformerHandle>,
}

impl Bench {
    fn new(engine: Engine, handlers: u64) -> Self {
        let items =
            (0..OBJECTS).map(|i| Arc::new(Item { name: format!("pod-{i}"), node: format!("node-{}", i % 100) })).collect();
        let (target, delivered, wanted) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let shared = Arc::new(Shared { items, target, wake: OnceLock::new(), delivered, wanted, main: thread::current() });
        let informer = SharedInformer::builder(Source(shared.clone()))
            .engine(engine)
            .index("node", |pod: &Pod, emit: &mut dyn FnMut(String)| emit(pod.item.node.clone()))
            .build()
            .unwrap();
        let registrations = (0..handlers)
            .map(|_| {
                let shared = shared.clone();
                informer
                    .on(move |event| {
                        black_box(event.object());
                        if shared.delivered.fetch_add(1, Ordering::AcqRel) + 1 == shared.wanted.load(Ordering::Acquire) {
                            shared.main.unpark();
                        }
                    })
                    .unwrap()
            })
            .collect::<Vec<_>>();
        let stop = Stop::new();
        let thread = Some(informer.spawn(&stop).unwrap());
        informer.wait_synced(Deadline::never()).unwrap();
        for r in &registrations {
            r.wait_synced(Deadline::never()).unwrap();
        }
        while shared.wake.get().is_none() {
            thread::yield_now();
        }
        Self { shared, informer, _registrations: registrations, handlers, stop, thread }
    }

    /// Hands out `n` more updates and waits until every handler (or the store) has them all.
    fn push(&self, n: u64) {
        let s = &self.shared;
        let last = s.target.load(Ordering::Relaxed) + n;
        s.wanted.store(s.delivered.load(Ordering::Acquire) + n * self.handlers, Ordering::Release);
        s.target.store(last, Ordering::Release);
        s.wake.get().unwrap().poke();
        if self.handlers == 0 {
            let version = (OBJECTS + last).to_string();
            while self.informer.store().version() != version {
                thread::yield_now();
            }
        } else {
            while s.delivered.load(Ordering::Acquire) < s.wanted.load(Ordering::Acquire) {
                thread::park();
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

const ENGINES: [(&str, Engine); 2] = [("merged", Engine::Merged), ("decoupled", Engine::Decoupled)];

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("events");
    group.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(3));
    for (name, engine) in ENGINES {
        for handlers in [0, 1, 10] {
            let bench = Bench::new(engine, handlers);
            group.bench_function(BenchmarkId::new(name, handlers), |b| {
                b.iter_custom(|iters| {
                    let start = Instant::now();
                    bench.push(iters);
                    start.elapsed()
                });
            });
        }
    }
    group.finish();
}

fn latency(c: &mut Criterion) {
    let mut group = c.benchmark_group("latency");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    for (name, engine) in ENGINES {
        let bench = Bench::new(engine, 1);
        group.bench_function(name, |b| b.iter(|| bench.push(1)));
    }
    group.finish();
}

criterion_group!(benches, events, latency);
criterion_main!(benches);
