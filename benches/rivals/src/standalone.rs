//! The stand-alone `Indexer`, through its public doors: the tree of an informer's store, with writers of its own.
//!
//! Gives away: a record has a key and a value and nothing else, where the others keep an object with a version and a uid.
//! In the world that is written these are empty, so that nobody spends time on them.

use crate::{
    Delete, Read, Store,
    world::{INDICES, Value},
};
use informer::{
    flow::ObjectKey,
    store::{Indexer, Stored, Write},
};

pub struct Standalone<V: Value>(Indexer<ObjectKey, V>);

impl<V: Value> Read<V> for Standalone<V> {
    const NAME: &'static str = "ours";
    type Kept = Stored<ObjectKey, V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let indexer = Indexer::new();
        for (name, value) in &INDICES[..indices] {
            let emits = |_: &ObjectKey, v: &V, emit: &mut dyn FnMut(String)| emit(value(v.pod()).to_owned());
            indexer.add_index(*name, emits).expect("an index");
        }
        let store = Self(indexer);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Self::Kept> {
        self.0.get(key)
    }

    fn list(&self) -> Vec<Self::Kept> {
        self.0.snapshot().iter().cloned().collect()
    }

    fn visit(&self, f: impl FnMut(&Self::Kept)) {
        self.0.snapshot().iter().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Self::Kept> {
        self.0.by_index(INDICES[index].0, value).expect("there is such an index")
    }
}

impl<V: Value> Delete<V> for Standalone<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        for key in keys {
            self.0.delete(key).expect("no index refuses it");
        }
        while self.0.reclaim(usize::MAX) {}
    }
}

impl<V: Value> Store<V> for Standalone<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        if values.len() == 1 {
            for value in values {
                self.0.put(value.key(), value).expect("no index refuses it");
            }
        } else {
            let refused = self.0.apply(values.map(|value| Write::Put(value.key(), value)));
            assert!(refused.is_empty());
        }
    }

    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        let refused = self.0.replace(values.map(|value| (value.key(), value))).expect("keys behave");
        assert!(refused.is_empty());
    }
}
