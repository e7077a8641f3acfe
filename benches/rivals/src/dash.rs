//! `dashmap`, a hash map of locked shards, with one more for each index, whose values are sets of keys.
//!
//! Gives away: as `papaya_map.rs`, and readers of a shard wait for its writer.

use crate::{
    Carries, Delete, Read, Store, object,
    world::{INDICES, Value},
};
use dashmap::DashMap;
use informer::flow::{Object, ObjectKey};
use std::collections::HashSet;

type Postings = DashMap<Box<str>, HashSet<ObjectKey, Carries>>;

pub struct Dash<V> {
    items: DashMap<ObjectKey, Object<V>, Carries>,
    indices: Vec<Postings>,
}

fn forget(postings: &Postings, value: &str, key: &ObjectKey) {
    if let Some(mut posting) = postings.get_mut(value) {
        posting.remove(key);
    }
    postings.remove_if(value, |_, posting| posting.is_empty());
}

impl<V: Value> Dash<V> {
    fn new(indices: usize) -> Self {
        let indices = (0..indices).map(|_| DashMap::new()).collect();
        Self { items: DashMap::with_hasher(Carries::default()), indices }
    }
}

impl<V: Value> Read<V> for Dash<V> {
    const NAME: &'static str = "dashmap";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let store = Self::new(indices);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.items.get(key).map(|object| object.clone())
    }

    fn list(&self) -> Vec<Object<V>> {
        self.items.iter().map(|object| object.clone()).collect()
    }

    fn visit(&self, mut f: impl FnMut(&Object<V>)) {
        self.items.iter().for_each(|object| f(&object));
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        let Some(posting) = self.indices[index].get(value) else { return Vec::new() };
        posting.iter().filter_map(|key| self.get(key)).collect()
    }
}

impl<V: Value> Delete<V> for Dash<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        for key in keys {
            let Some((_, old)) = self.items.remove(key) else { continue };
            for (postings, (_, value)) in self.indices.iter().zip(INDICES) {
                forget(postings, value(old.pod()), key);
            }
        }
    }
}

impl<V: Value> Store<V> for Dash<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        for new in values.map(object) {
            let key = Object::key(&new);
            let old = self.items.insert(key.clone(), new.clone());
            for (postings, (_, value)) in self.indices.iter().zip(INDICES) {
                let is = value(new.pod());
                if let Some(old) = &old {
                    let was = value(old.pod());
                    if was == is {
                        continue;
                    }
                    forget(postings, was, key);
                }
                postings.entry(is.into()).or_default().insert(key.clone());
            }
        }
    }

    /// Stores all; every key of the world is in every replace, so nothing is to be removed.
    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        self.update(values);
    }
}
