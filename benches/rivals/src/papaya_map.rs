//! `papaya`, a lock-free hash map, with one more for each index, whose values are such maps.
//!
//! Gives away: nothing is of one instant but a single key; a reader of an index can miss an object that is on its way from
//! one value to another, or find it under both; a reader of a replace sees a mixture of old and new. No snapshots.

use crate::{
    Carries, Delete, Read, Store, object,
    world::{INDICES, Value},
};
use informer::flow::{KeyRef, Object, ObjectKey};
use papaya::{Equivalent, HashMap, HashSet};
use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

type Postings = HashMap<Box<str>, Arc<HashSet<ObjectKey, Carries>>>;

pub struct Papaya<V> {
    items: HashMap<ObjectKey, Object<V>, Carries>,
    indices: Vec<Postings>,
}

struct Borrowed<'a>(KeyRef<'a>);

impl Hash for Borrowed<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        use informer::flow::AsKey;
        state.write_u64(self.0.key_hash());
    }
}

impl Equivalent<ObjectKey> for Borrowed<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        use informer::flow::AsKey;
        self.0 == key.as_key()
    }
}

impl<V: Value> Papaya<V> {
    fn put(&self, new: Object<V>) {
        let items = self.items.pin();
        let key = Object::key(&new);
        let old = items.insert(key.clone(), new.clone());
        for (postings, (_, value)) in self.indices.iter().zip(INDICES) {
            let is = value(new.pod());
            if let Some(old) = old {
                let was = value(old.pod());
                if was == is {
                    continue;
                }
                forget(postings, was, key);
            }
            let postings = postings.pin();
            let posting = match postings.get(is) {
                Some(posting) => posting,
                None => postings.get_or_insert_with(is.into(), || Arc::new(HashSet::with_hasher(Carries::default()))),
            };
            posting.pin().insert(key.clone());
        }
    }
}

/// Keeps the posting when it is empty: whether it is cannot be asked in one step with removing it.
fn forget(postings: &Postings, value: &str, key: &ObjectKey) {
    if let Some(posting) = postings.pin().get(value) {
        posting.pin().remove(key);
    }
}

impl<V: Value> Papaya<V> {
    fn new(indices: usize) -> Self {
        let indices = (0..indices).map(|_| HashMap::new()).collect();
        Self { items: HashMap::with_hasher(Carries::default()), indices }
    }
}

impl<V: Value> Read<V> for Papaya<V> {
    const NAME: &'static str = "papaya";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let store = Self::new(indices);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.items.pin().get(key).cloned()
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<V>> {
        self.items.pin().get(&Borrowed(key)).cloned()
    }

    fn list(&self) -> Vec<Object<V>> {
        self.items.pin().values().cloned().collect()
    }

    fn visit(&self, f: impl FnMut(&Object<V>)) {
        self.items.pin().values().for_each(f);
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        let (items, postings) = (self.items.pin(), self.indices[index].pin());
        let Some(posting) = postings.get(value) else { return Vec::new() };
        posting.pin().iter().filter_map(|key| items.get(key).cloned()).collect()
    }
}

impl<V: Value> Delete<V> for Papaya<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        let items = self.items.pin();
        for key in keys {
            let Some(old) = items.remove(key) else { continue };
            for (postings, (_, value)) in self.indices.iter().zip(INDICES) {
                forget(postings, value(old.pod()), key);
            }
        }
    }
}

impl<V: Value> Store<V> for Papaya<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        values.map(object).for_each(|object| self.put(object));
    }

    /// Stores all; every key of the world is in every replace, so nothing is to be removed.
    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        self.items.pin().reserve(values.len());
        self.update(values);
    }
}
