//! A store to be measured: an informer over a source that lists 100,000 objects, and then changes as many as it is told to.

use informer::{
    flow::{Meta, ObjectKey},
    informer::{InformerHandle, SharedInformer},
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchEvent, WatchParams, WatchStream},
    store::StoreReader,
    sync::{Deadline, Stop, Synced, Wake, Woken},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

pub const OBJECTS: usize = 100_000;

pub struct Record {
    name: Arc<str>,
    version: String,
    pub number: u32,
    _payload: [u64; 32],
}

struct Shared {
    names: Vec<Arc<str>>,
    /// Changes that may be handed out so far.
    target: AtomicU64,
    wake: OnceLock<Wake>,
}

impl Shared {
    fn record(&self, at: usize, version: u64) -> Record {
        let number = version as u32;
        Record { name: self.names[at].clone(), version: version.to_string(), number, _payload: [version; 32] }
    }
}

#[derive(Clone)]
struct Source(Arc<Shared>);

impl ListerWatcher for Source {
    type Object = Record;

    fn meta<'a>(&self, record: &'a Record) -> Meta<'a> {
        Meta { namespace: "default", name: &record.name, version: &record.version, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Record, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let _all = (0..OBJECTS).try_for_each(|i| sink(Ok(self.0.record(i, i as u64 + 1))));
        Ok(ListEnd { version: OBJECTS.to_string(), continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Record>>, SourceError> {
        Ok(Box::new(Stream { shared: self.0.clone(), at: 0 }))
    }
}

struct Stream {
    shared: Arc<Shared>,
    at: u64,
}

impl WatchStream<Record> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Record> {
        let shared = self.shared.clone();
        shared.wake.get_or_init(|| wake.clone());
        match wake.wait_until(deadline, || shared.target.load(Ordering::Acquire) > self.at) {
            None => self.ready().unwrap_or(Next::Deadline),
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Record>> {
        (self.shared.target.load(Ordering::Acquire) > self.at).then(|| {
            // A walk that visits all and that no cache likes.
            let at = (self.at * 76_963 % OBJECTS as u64) as usize;
            self.at += 1;
            Next::Event(WatchEvent::Modified(self.shared.record(at, OBJECTS as u64 + self.at)))
        })
    }
}

pub struct World {
    shared: Arc<Shared>,
    informer: SharedInformer<Record>,
    stop: Stop,
    thread: Option<InformerHandle>,
}

impl World {
    /// With so many indices of 100 values.
    pub fn new(indices: usize) -> Self {
        let names = (0..OBJECTS).map(|i| format!("record-{i}").into()).collect();
        let shared = Arc::new(Shared { names, target: AtomicU64::new(0), wake: OnceLock::new() });
        let builder = SharedInformer::builder(Source(shared.clone()));
        let informer = ["rest", "second", "third"][..indices].iter().fold(builder, |builder, name| {
            builder.index(name, |record: &Record, emit: &mut dyn FnMut(u32)| emit(record.number % 100))
        });
        let informer = informer.build().unwrap();
        let stop = Stop::new();
        let thread = Some(informer.spawn(&stop).unwrap());
        informer.wait_synced(Deadline::never()).unwrap();
        while shared.wake.get().is_none() {
            std::thread::yield_now();
        }
        Self { shared, informer, stop, thread }
    }

    pub fn store(&self) -> StoreReader<Record> {
        self.informer.store()
    }

    /// Every key, in an order that no cache likes.
    #[allow(dead_code, reason = "for the bench that reads")]
    pub fn shuffled_keys(&self) -> Vec<ObjectKey> {
        let name = |i: usize| &self.shared.names[i * 76_963 % OBJECTS];
        (0..OBJECTS).map(|i| ObjectKey::new("default", name(i)).unwrap()).collect()
    }

    /// Has the source change so many objects, and waits until the store has them all.
    #[allow(dead_code, reason = "for the bench that writes")]
    pub fn change(&self, n: u64) {
        let last = self.shared.target.fetch_add(n, Ordering::Release) + n;
        self.shared.wake.get().unwrap().poke();
        let (store, version) = (self.store(), (OBJECTS as u64 + last).to_string());
        while store.version() != version {
            std::thread::yield_now();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        drop(self.thread.take());
    }
}
