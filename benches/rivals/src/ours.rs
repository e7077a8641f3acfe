//! The store of an informer, read through its public doors.
//!
//! An informer lists the values from a source of this process and then waits, so what is read is what users read.

use crate::{
    Delete, Read,
    questions::Held,
    world::{INDICES, Value},
};
use informer::{
    flow::{KeyRef, Meta, Object, ObjectKey},
    informer::{InformerHandle, SharedInformer},
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchEvent, WatchParams, WatchStream},
    store::StoreReader,
    sync::{Deadline, Stop, Synced, Wake, Woken},
};
use parking_lot::Mutex;
use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

pub struct Ours<V: Value> {
    reader: StoreReader<V>,
    gone: Arc<Gone<V>>,
    _informer: SharedInformer<V>,
    /// Dropped, it stops the informer and waits.
    running: Mutex<Option<InformerHandle>>,
}

/// What the watch tells: that these are gone. Nothing else.
struct Gone<V> {
    values: Mutex<Vec<V>>,
    wake: OnceLock<Wake>,
}

/// Lists once.
struct Source<V>(Mutex<Vec<V>>, Arc<Gone<V>>);

impl<V: Value> ListerWatcher for Source<V> {
    type Object = V;

    fn meta<'a>(&self, value: &'a V) -> Meta<'a> {
        let pod = value.pod();
        Meta { namespace: &pod.namespace, name: &pod.name, version: &pod.version, uid: &pod.uid }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<V, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        for value in std::mem::take(&mut *self.0.lock()) {
            if sink(Ok(value)).is_break() {
                break;
            }
        }
        Ok(ListEnd { version: "1".to_owned(), continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<V>>, SourceError> {
        Ok(Box::new(Stream(self.1.clone())))
    }
}

struct Stream<V>(Arc<Gone<V>>);

impl<V: Value> WatchStream<V> for Stream<V> {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<V> {
        self.0.wake.get_or_init(|| wake.clone());
        match wake.wait_until(deadline, || !self.0.values.lock().is_empty()) {
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
            None => self.ready().unwrap_or(Next::Woken),
        }
    }

    fn ready(&mut self) -> Option<Next<V>> {
        self.0.values.lock().pop().map(|value| Next::Event(WatchEvent::Deleted(value)))
    }
}

impl<V: Value> Read<V> for Ours<V> {
    const NAME: &'static str = "ours";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let gone = Arc::new(Gone { values: Mutex::new(Vec::new()), wake: OnceLock::new() });
        let source = Source(Mutex::new(values.collect()), gone.clone());
        let builder = SharedInformer::builder(source);
        let builder = INDICES[..indices].iter().fold(builder, |builder, (name, value)| {
            builder.index(name, |v: &V, emit: &mut dyn FnMut(String)| emit(value(v.pod()).to_owned()))
        });
        let informer = builder.build().expect("an informer");
        let running = informer.spawn(&Stop::new()).expect("a thread");
        informer.wait_synced(Deadline::never()).expect("it syncs");
        Self { reader: informer.store(), gone, _informer: informer, running: Mutex::new(Some(running)) }
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.reader.get(key)
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<V>> {
        self.reader.get(&key)
    }

    fn list(&self) -> Vec<Object<V>> {
        self.reader.snapshot().detach()
    }

    fn visit(&self, f: impl FnMut(&Object<V>)) {
        self.reader.snapshot().objects().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        self.reader.by_index(INDICES[index].0, value).expect("there is such an index")
    }
}

impl Delete<Held> for Ours<Held> {
    /// Told by the source. Then the informer ends, and has freed what it had to.
    fn delete(&self, keys: &[ObjectKey]) {
        let left = self.reader.len() - keys.len();
        self.gone.values.lock().extend(keys.iter().filter_map(|key| self.reader.get(key)).map(|object| Held::clone(&object)));
        self.gone.wake.wait().poke();
        self.reader.wait_until(|now| now.len() == left, Deadline::never()).expect("they are gone");
        self.running.lock().take();
        *self.gone.values.lock() = Vec::new();
    }
}
