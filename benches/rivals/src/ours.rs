//! The store of an informer, read through its public doors.
//!
//! An informer lists the values from a source of this process and then waits, so what is read is what users read.

use crate::{
    Read,
    world::{INDICES, Value},
};
use informer::{
    flow::{KeyRef, Meta, Object, ObjectKey},
    informer::{InformerHandle, SharedInformer},
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchParams, WatchStream},
    store::StoreReader,
    sync::{Deadline, Stop, Synced, Wake, Woken},
};
use parking_lot::Mutex;
use std::ops::ControlFlow;

pub struct Ours<V: Value> {
    reader: StoreReader<V>,
    _informer: SharedInformer<V>,
    /// Dropped, it stops the informer and waits.
    _running: InformerHandle,
}

/// Lists once; a watch of it tells nothing.
struct Source<V>(Mutex<Vec<V>>);

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
        Ok(Box::new(Quiet))
    }
}

struct Quiet;

impl<V> WatchStream<V> for Quiet {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<V> {
        match wake.wait_until(deadline, || false) {
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) | None => Next::Deadline,
        }
    }
}

impl<V: Value> Read<V> for Ours<V> {
    const NAME: &'static str = "ours";

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let source = Source(Mutex::new(values.collect()));
        let builder = SharedInformer::builder(source);
        let builder = INDICES[..indices].iter().fold(builder, |builder, (name, value)| {
            builder.index(name, |v: &V, emit: &mut dyn FnMut(String)| emit(value(v.pod()).to_owned()))
        });
        let informer = builder.build().expect("an informer");
        let running = informer.spawn(&Stop::new()).expect("a thread");
        informer.wait_synced(Deadline::never()).expect("it syncs");
        Self { reader: informer.store(), _informer: informer, _running: running }
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.reader.get(key)
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<V>> {
        self.reader.get(&key)
    }

    fn list(&self) -> Vec<Object<V>> {
        self.reader.snapshot().objects().cloned().collect()
    }

    fn visit(&self, f: impl FnMut(&Object<V>)) {
        self.reader.snapshot().objects().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        self.reader.by_index(INDICES[index].0, value).expect("there is such an index")
    }
}
