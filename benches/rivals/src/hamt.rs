//! Persistent maps of `imbl` (MPL-2.0+) in an `arc-swap`: one version is all objects and all indices.
//!
//! Gives away nothing: snapshots, atomic replaces, readers without locks. Copying a path touches the count of every
//! sibling on it.

use crate::{
    Carries, Delete, Read, Store, object,
    world::{INDICES, Value},
};
use arc_swap::ArcSwap;
use informer::flow::{Object, ObjectKey};
use parking_lot::Mutex;
use std::sync::Arc;

type Map<K, V> = imbl::GenericHashMap<K, V, Carries, imbl::shared_ptr::DefaultSharedPtr>;
type Set<K> = imbl::GenericHashSet<K, Carries, imbl::shared_ptr::DefaultSharedPtr>;

pub struct Hamt<V> {
    published: ArcSwap<Version<V>>,
    writer: Mutex<()>,
}

struct Version<V> {
    items: Map<ObjectKey, Object<V>>,
    indices: Vec<imbl::HashMap<Arc<str>, Set<ObjectKey>>>,
}

impl<V> Clone for Version<V> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), indices: self.indices.clone() }
    }
}

impl<V: Value> Version<V> {
    fn new(indices: usize) -> Self {
        Self { items: Map::default(), indices: vec![imbl::HashMap::new(); indices] }
    }

    fn put(&mut self, new: Object<V>) {
        let key = Object::key(&new);
        let old = self.items.insert(key.clone(), new.clone());
        for (postings, (_, value)) in self.indices.iter_mut().zip(INDICES) {
            let is = value(new.pod());
            if let Some(old) = &old {
                let was = value(old.pod());
                if was == is {
                    continue;
                }
                forget(postings, was, key);
            }
            match postings.get_mut(is) {
                Some(posting) => drop(posting.insert(key.clone())),
                None => drop(postings.insert(is.into(), Set::default().update(key.clone()))),
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(old) = self.items.remove(key) else { return };
        for (postings, (_, value)) in self.indices.iter_mut().zip(INDICES) {
            forget(postings, value(old.pod()), key);
        }
    }
}

fn forget(postings: &mut imbl::HashMap<Arc<str>, Set<ObjectKey>>, value: &str, key: &ObjectKey) {
    let Some(posting) = postings.get_mut(value) else { return };
    posting.remove(key);
    if posting.is_empty() {
        postings.remove(value);
    }
}

impl<V: Value> Hamt<V> {
    fn step(&self, f: impl FnOnce(&mut Version<V>)) {
        let _turn = self.writer.lock();
        let mut next = Version::clone(&self.published.load());
        f(&mut next);
        self.published.store(Arc::new(next));
    }
}

impl<V: Value> Hamt<V> {
    fn new(indices: usize) -> Self {
        Self { published: ArcSwap::from_pointee(Version::new(indices)), writer: Mutex::new(()) }
    }
}

impl<V: Value> Read<V> for Hamt<V> {
    const NAME: &'static str = "imbl";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let store = Self::new(indices);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.published.load().items.get(key).cloned()
    }

    fn list(&self) -> Vec<Object<V>> {
        self.published.load_full().items.values().cloned().collect()
    }

    fn visit(&self, f: impl FnMut(&Object<V>)) {
        self.published.load_full().items.values().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        let version = self.published.load_full();
        let Some(posting) = version.indices[index].get(value) else { return Vec::new() };
        posting.iter().filter_map(|key| version.items.get(key).cloned()).collect()
    }
}

impl<V: Value> Delete<V> for Hamt<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        self.step(|next| keys.iter().for_each(|key| next.remove(key)));
    }
}

impl<V: Value> Store<V> for Hamt<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        self.step(|next| values.map(object).for_each(|object| next.put(object)));
    }

    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        self.step(|next| {
            *next = Version::new(next.indices.len());
            values.map(object).for_each(|object| next.put(object));
        });
    }
}
