//! 64 of the one-lock tables, an object in that of the top bits of its hash.
//!
//! Gives away: lists, indices and replaces are not of one instant; no snapshots. Otherwise as `one_lock.rs`.

use crate::{Delete, Read, Store, object, one_lock::Tables, world::Value};
use informer::flow::{AsKey, KeyRef, Object, ObjectKey};
use parking_lot::RwLock;

const SHARDS: usize = 64;

pub struct Shards<V> {
    shards: Vec<Shard<V>>,
    indices: usize,
}

/// A cache line, or two that are fetched together, for each.
#[repr(align(128))]
struct Shard<V>(RwLock<Tables<V>>);

impl<V: Value> Shards<V> {
    fn of(&self, hash: u64) -> &RwLock<Tables<V>> {
        &self.shards[(hash >> (u64::BITS - SHARDS.ilog2())) as usize].0
    }

    fn all(&self) -> impl Iterator<Item = &RwLock<Tables<V>>> {
        self.shards.iter().map(|shard| &shard.0)
    }
}

impl<V: Value> Shards<V> {
    fn new(indices: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Shard(RwLock::new(Tables::new(indices, 0)))).collect();
        Self { shards, indices }
    }
}

impl<V: Value> Read<V> for Shards<V> {
    const NAME: &'static str = "64 locks";
    type Kept = Object<V>;

    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self {
        let store = Self::new(indices);
        store.replace(values);
        store
    }

    fn get(&self, key: &ObjectKey) -> Option<Object<V>> {
        self.of(key.key_hash()).read().get(key).cloned()
    }

    fn find(&self, key: KeyRef<'_>) -> Option<Object<V>> {
        let hash = key.key_hash();
        self.of(hash).read().find(hash, key).cloned()
    }

    fn list(&self) -> Vec<Object<V>> {
        let mut all = Vec::with_capacity(self.all().map(|shard| shard.read().iter().len()).sum());
        self.all().for_each(|shard| all.extend(shard.read().iter().cloned()));
        all
    }

    fn visit(&self, mut f: impl FnMut(&Object<V>)) {
        self.all().for_each(|shard| shard.read().iter().for_each(&mut f));
    }

    fn by_index(&self, index: usize, value: &str) -> Vec<Object<V>> {
        let mut found = Vec::new();
        self.all().for_each(|shard| found.extend(shard.read().by_index(index, value).cloned()));
        found
    }
}

impl<V: Value> Delete<V> for Shards<V> {
    fn delete(&self, keys: &[ObjectKey]) {
        for key in keys {
            let old = self.of(key.key_hash()).write().remove(key);
            drop(old);
        }
    }
}

impl<V: Value> Store<V> for Shards<V> {
    fn update(&self, values: impl ExactSizeIterator<Item = V>) {
        for object in values.map(object) {
            let old = self.of(object.key_hash()).write().put(object);
            drop(old);
        }
    }

    fn replace(&self, values: impl ExactSizeIterator<Item = V>) {
        let mut parts: Vec<Vec<_>> = (0..SHARDS).map(|_| Vec::with_capacity(values.len() / SHARDS * 5 / 4)).collect();
        for object in values.map(object) {
            parts[(object.key_hash() >> (u64::BITS - SHARDS.ilog2())) as usize].push(object);
        }
        for (shard, part) in self.all().zip(parts) {
            let mut tables = Tables::new(self.indices, part.len());
            for object in part {
                tables.put(object);
            }
            let old = std::mem::replace(&mut *shard.write(), tables);
            drop(old);
        }
    }
}
