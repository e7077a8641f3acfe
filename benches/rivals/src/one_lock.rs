//! One `RwLock` around hash tables, keyed by the hash that the key carries: the strongest form with a lock.
//!
//! Gives away: readers wait for the writer and the writer for readers; no snapshots. A posting is a table of hashes, so
//! two keys of one hash would be taken for one.

use crate::{
    Delete, Read, Store, hash, object,
    world::{INDICES, Value},
};
use hashbrown::{HashMap, HashTable, hash_table::Entry};
use informer::flow::{AsKey, KeyRef, Object, ObjectKey};
use parking_lot::RwLock;

pub struct OneLock<V>(RwLock<Tables<V>>);

pub(crate) struct Tables<V> {
    items: HashTable<Object<V>>,
    indices: Vec<HashMap<String, HashTable<u64>>>,
}

impl<V: Value> Tables<V> {
    pub(crate) fn new(indices: usize, capacity: usize) -> Self {
        let indices = (0..indices).map(|_| HashMap::new()).collect();
        Self { items: HashTable::with_capacity(capacity), indices }
    }

    /// Gives back what was there, to be dropped without the lock.
    pub(crate) fn put(&mut self, new: Object<V>) -> Option<Object<V>> {
        let h = hash(&new);
        let old = match self.items.entry(h, |o| Object::key(o) == Object::key(&new), hash) {
            Entry::Occupied(mut there) => Some(std::mem::replace(there.get_mut(), new.clone())),
            Entry::Vacant(free) => {
                free.insert(new.clone());
                None
            }
        };
        for (postings, (_, value)) in self.indices.iter_mut().zip(INDICES) {
            let is = value(new.pod());
            if let Some(old) = &old {
                let was = value(old.pod());
                if was == is {
                    continue;
                }
                forget(postings, was, h);
            }
            postings.entry_ref(is).or_default().insert_unique(h, h, |h| *h);
        }
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Object<V>> {
        let h = key.key_hash();
        let (old, _) = self.items.find_entry(h, |o| Object::key(o) == key).ok()?.remove();
        for (postings, (_, value)) in self.indices.iter_mut().zip(INDICES) {
            forget(postings, value(old.pod()), h);
        }
        Some(old)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Object<V>> {
        self.items.find(key.key_hash(), |o| Object::key(o) == key)
    }

    pub(crate) fn find(&self, hash: u64, key: KeyRef<'_>) -> Option<&Object<V>> {
        self.items.find(hash, |o| o.as_key() == key)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Object<V>> {
        self.items.iter()
    }

    pub(crate) fn by_index(&self, index: usize, value: &str) -> impl Iterator<Item = &Object<V>> {
        let posting = self.indices[index].get(value);
        posting.into_iter().flatten().filter_map(|h| self.items.find(*h, |o| hash(o) == *h))
    }
}

fn forget(postings: &mut HashMap<String, HashTable<u64>>, value: &str, h: u64) {
    let Some(posting) = postings.get_mut(value) else { return };
    if let Ok(there) = posting.find_entry(h, |other| *other == h) {
        there.remove();
    }
    if posting.is_empty() {
        postings.remove(value);
    }
}

impl<V: Value> OneLock<V> {
    fn new(indices: usize) -> Self {
        Self(RwLock::new(Tables::new(indices, 0)))
    }
}

impl<V: Value> Read<V> for OneLock<V> {
    const NAME: &'static str = "one lock";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let store = Self::new(indices);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.0.read().get(key).cloned()
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<V>> {
        let hash = key.key_hash();
        self.0.read().find(hash, key).cloned()
    }

    fn list(&self) -> Vec<Object<V>> {
        self.0.read().iter().cloned().collect()
    }

    fn visit(&self, f: impl FnMut(&Object<V>)) {
        self.0.read().iter().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        self.0.read().by_index(index, value).cloned().collect()
    }
}

impl<V: Value> Delete<V> for OneLock<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        let mut old = Vec::with_capacity(keys.len());
        let mut tables = self.0.write();
        old.extend(keys.iter().map(|key| tables.remove(key)));
        drop(tables);
    }
}

impl<V: Value> Store<V> for OneLock<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        let mut old = Vec::with_capacity(values.len());
        let new: Vec<_> = values.map(object).collect();
        let mut tables = self.0.write();
        old.extend(new.into_iter().map(|object| tables.put(object)));
        drop(tables);
    }

    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        let mut tables = Tables::new(self.0.read().indices.len(), values.len());
        for value in values {
            tables.put(object(value));
        }
        let old = std::mem::replace(&mut *self.0.write(), tables);
        drop(old);
    }
}
