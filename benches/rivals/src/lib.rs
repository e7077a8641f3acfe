//! The store beside structures that could have been taken instead: the same objects, the same questions.
//!
//! Each structure is a [`Store`]. All keep `Object`s, made inside from a value that was there before, so that what differs
//! is the structure around them; all know the index values of the world by name, so none calls a user's function but ours.
//! Ours is asked twice: what readers ask is asked of an informer's store ([`Ours`]), what writers ask of the stand-alone
//! `Indexer` ([`Standalone`]), which is the same tree with a door for writers, and a record of its own around each value.
//! What they give away for it stands at the top of each. `src/questions.rs` has the questions, `src/main.rs` prints the
//! table, `src/bin/bytes.rs` counts memory in a process of its own. `benches/compare` asks the same questions beside
//! client-go.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "benches measure real time and hold rivals' locks")]

pub mod count;
pub mod questions;
pub mod world;

mod dash;
#[cfg(feature = "imbl")]
mod hamt;
mod one_lock;
mod ours;
mod papaya_map;
mod shards;
mod standalone;

pub use dash::Dash;
#[cfg(feature = "imbl")]
pub use hamt::Hamt;
use informer::flow::{AsKey, KeyRef, Object, ObjectKey};
pub use one_lock::OneLock;
pub use ours::Ours;
pub use papaya_map::Papaya;
pub use shards::Shards;
pub use standalone::Standalone;
use std::{
    hash::{BuildHasherDefault, Hasher},
    ops::Deref,
};
use world::Value;

/// What readers ask of each structure.
pub trait Read<V: Value>: Send + Sync + Sized {
    /// In the table.
    const NAME: &'static str;

    /// With these objects, made here, and so many of [`world::INDICES`].
    fn filled(indices: usize, values: impl ExactSizeIterator<Item = V>) -> Self;

    /// An object as the structure keeps it.
    type Kept: Deref<Target = V>;

    /// By a key that carries its hash.
    fn get(&self, key: &ObjectKey) -> Option<Self::Kept>;

    /// By a borrowed key, hashed here.
    fn find(&self, key: KeyRef<'_>) -> Option<Self::Kept> {
        self.get(&ObjectKey::new(key.namespace, key.name).expect("a key"))
    }

    /// All of them.
    fn list(&self) -> Vec<Self::Kept>;

    /// Calls `f` with all of them; where that is possible, without touching any.
    fn visit(&self, f: impl FnMut(&Self::Kept));

    /// Those with this value.
    fn by_index(&self, index: usize, value: &str) -> Vec<Self::Kept>;
}

/// What is asked when memory is counted.
pub trait Delete<V: Value>: Read<V> {
    /// Removes these. What that frees is freed when it returns.
    fn delete(&self, keys: &[ObjectKey]);
}

/// What writers ask.
pub trait Store<V: Value>: Delete<V> {
    /// Stores each under its key, made here; in one step, if the structure has such a thing.
    fn update(&self, values: impl ExactSizeIterator<Item = V>);

    /// Stores these and nothing else.
    fn replace(&self, values: impl ExactSizeIterator<Item = V>);
}

/// The value as it is stored.
fn object<V: Value>(value: V) -> Object<V> {
    value.object()
}

/// For keys that carry their hash.
#[derive(Default)]
struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only keys that carry their hash are hashed by it");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type Carries = BuildHasherDefault<Carried>;

fn hash<V>(object: &Object<V>) -> u64 {
    object.key_hash()
}
