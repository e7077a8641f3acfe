//! T14: updates a second from a watch to all handlers, or to the store when there is none. 10,000 objects, 200,000
//! updates that were made before and are kept (`T` is an `Arc`), so the source costs next to nothing.

use crate::{Row, Target};
use informer::{
    flow::{Change, Meta},
    informer::SharedInformer,
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchEvent, WatchParams, WatchStream},
    sync::{Deadline, Stop, Synced, Wake, Woken},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const OBJECTS: usize = 10_000;
const UPDATES: usize = 200_000;

pub const ROWS: &[Row] = &[
    row("T14.0", "informer, no handler", 2.5, 1.05e6, || events(0)),
    row("T14.1", "informer, 1 handler", 3.5, 668e3, || events(1)),
    row("T14.10", "informer, 10 handlers", 8.0, 215e3, || events(10)),
];

const fn row(id: &'static str, what: &'static str, least: f64, before: f64, measure: fn() -> f64) -> Row {
    Row { id, what, unit: "events/s", target: Target::AtLeast(least), before, measure }
}

struct Pod {
    name: String,
    version: String,
    _node: String,
}

struct World {
    first: Vec<Arc<Pod>>,
    later: Vec<Arc<Pod>>,
    open: AtomicBool,
    wake: OnceLock<Wake>,
}

#[derive(Clone)]
struct Source(Arc<World>);

struct Stream {
    world: Arc<World>,
    at: usize,
}

impl ListerWatcher for Source {
    type Object = Arc<Pod>;

    fn meta<'a>(&self, pod: &'a Arc<Pod>) -> Meta<'a> {
        Meta { namespace: "default", name: &pod.name, version: &pod.version, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Arc<Pod>, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        for pod in &self.0.first {
            if sink(Ok(pod.clone())).is_break() {
                break;
            }
        }
        Ok(ListEnd { version: OBJECTS.to_string(), continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Arc<Pod>>>, SourceError> {
        Ok(Box::new(Stream { world: self.0.clone(), at: 0 }))
    }
}

impl Stream {
    fn has_more(&self) -> bool {
        self.at < UPDATES && self.world.open.load(Ordering::Acquire)
    }
}

impl WatchStream<Arc<Pod>> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Arc<Pod>> {
        self.world.wake.get_or_init(|| wake.clone());
        match wake.wait_until(deadline, || self.has_more()) {
            None => self.ready().unwrap_or(Next::Deadline),
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Arc<Pod>>> {
        self.has_more().then(|| {
            self.at += 1;
            Next::Event(WatchEvent::Modified(self.world.later[self.at - 1].clone()))
        })
    }
}

fn events(handlers: usize) -> f64 {
    let pod = |i: usize, version: usize| {
        Arc::new(Pod { name: format!("pod-{i}"), version: version.to_string(), _node: format!("node-{}", i % 100) })
    };
    let first = (0..OBJECTS).map(|i| pod(i, i + 1)).collect();
    let later = (0..UPDATES).map(|i| pod(i * 7919 % OBJECTS, OBJECTS + 1 + i)).collect();
    let world = Arc::new(World { first, later, open: AtomicBool::new(false), wake: OnceLock::new() });
    let informer = SharedInformer::builder(Source(world.clone())).build().expect("an informer");
    let delivered = Arc::new(AtomicUsize::new(0));
    let registrations: Vec<_> = (0..handlers)
        .map(|_| {
            let delivered = delivered.clone();
            let handler = informer.on(move |event| {
                if matches!(event.change, Change::Updated { .. }) {
                    delivered.fetch_add(1, Ordering::AcqRel);
                }
            });
            handler.expect("a handler")
        })
        .collect();
    let stop = Stop::new();
    let running = informer.spawn(&stop).expect("a thread");
    informer.wait_synced(Deadline::never()).expect("it syncs");
    for registration in &registrations {
        registration.wait_synced(Deadline::never()).expect("it syncs");
    }
    let wake = loop {
        match world.wake.get() {
            Some(wake) => break wake,
            None => thread::yield_now(),
        }
    };
    let last = (OBJECTS + UPDATES).to_string();
    let done = || match handlers {
        0 => informer.store().version() == last,
        _ => delivered.load(Ordering::Acquire) == handlers * UPDATES,
    };
    let start = Instant::now();
    world.open.store(true, Ordering::Release);
    wake.poke();
    while !done() {
        thread::sleep(Duration::from_micros(100));
    }
    let took = start.elapsed();
    stop.stop();
    running.join().expect("it ends well");
    UPDATES as f64 / took.as_secs_f64()
}
