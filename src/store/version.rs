//! One version of the store, the cell that the current one is published in, and the erased handles to both.

use super::{
    Diff, Index, IndexError, StoreReader,
    cell::{Held, VersionCell},
    index::IndexVersion,
    reader::{Snapshot, index_of},
};
use crate::{
    flow::{AsKey, KeyRef, KnownObjects, Object, ObjectKey, Opaque},
    sync::Arc,
};
use equivalent::{Comparable, Equivalent};
use hashbrown::HashSet;
use std::{
    cmp::Ordering,
    fmt,
    ops::Bound::{Included, Unbounded},
};

/// An object in a version. Equal means: the same allocation.
#[derive(Clone)]
pub(super) struct Item(pub(super) Object<Opaque>);

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        Object::ptr_eq(&self.0, &other.0)
    }
}

pub(super) type Items = imbl::OrdMap<ObjectKey, Item>;

/// A borrowed key as the items compare it.
pub(super) struct Look<'a>(pub(super) KeyRef<'a>);

impl Equivalent<ObjectKey> for Look<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        self.0 == key.as_key()
    }
}

impl Comparable<ObjectKey> for Look<'_> {
    fn compare(&self, key: &ObjectKey) -> Ordering {
        self.0.cmp(&key.as_key())
    }
}

/// Everything that is true at one instant. Never changed once published; the writer edits a clone.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) seq: u64,
    pub(super) version: Arc<str>,
    pub(super) initial_done: bool,
    pub(super) items: Items,
    pub(super) indices: Vec<IndexVersion>,
    /// Objects that are left from an era before the current one: their versions prove nothing. Mostly empty.
    pub(super) outdated: Arc<HashSet<ObjectKey>>,
}

impl Version {
    pub(super) fn before_anything(indices: Vec<IndexVersion>) -> Self {
        let (version, items, outdated) = (Arc::from(""), Items::new(), Arc::default());
        Self { seq: 0, version, initial_done: false, items, indices, outdated }
    }

    fn get(&self, key: KeyRef<'_>) -> Option<&Object<Opaque>> {
        self.items.get(&Look(key)).map(|item| &item.0)
    }
}

/// A snapshot that does not know the type of its objects. Clone is one count.
#[derive(Clone)]
pub(crate) struct AnySnapshot(pub(super) Held<Version>);

impl AnySnapshot {
    /// What a listener has that was told nothing yet: no objects, `seq` 0.
    pub(crate) fn empty() -> Self {
        Self(Held::new(Version::before_anything(Vec::new())))
    }

    /// The number of the publication that made it; 0 before the first.
    pub(crate) fn seq(&self) -> u64 {
        self.0.seq
    }

    /// The source's version, opaque.
    pub(crate) fn version(&self) -> &str {
        &self.0.version
    }

    /// Whether the source's first whole state is in it.
    pub(crate) fn initial_done(&self) -> bool {
        self.0.initial_done
    }

    /// How many objects.
    pub(crate) fn len(&self) -> usize {
        self.0.items.len()
    }

    /// The object with this key.
    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<&Object<Opaque>> {
        self.0.get(key)
    }

    /// The objects of one namespace, ordered by name; those without a namespace for an empty one.
    pub(super) fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Object<Opaque>> {
        // No name is empty, so this is just before the first key of the namespace.
        let before = Look(KeyRef { namespace, name: "" });
        let behind = self.0.items.range((Included(before), Unbounded));
        behind.take_while(move |(key, _)| key.namespace() == namespace).map(|(_, item)| &item.0)
    }

    /// What has to be told to somebody who has `self` so that they have `newer`, in the order of keys, found as it is
    /// asked for. Objects that are the same allocation in both are skipped; what is gone is `Deleted::Missed` with the
    /// object of `self`.
    pub(crate) fn diff(&self, newer: &Self) -> Diff {
        Diff::new(self.clone(), newer.clone())
    }

    /// The shell that knows the type.
    pub(crate) fn typed<T: 'static>(&self) -> Snapshot<T> {
        Snapshot::of(self.clone())
    }
}

impl fmt::Debug for AnySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot {} at {:?} ({} objects)", self.seq(), self.version(), self.len())
    }
}

/// A reader that does not know the type of the objects. Clone is one count; lives on when the writer is gone.
#[derive(Clone)]
pub(crate) struct AnyReader(pub(super) Arc<VersionCell<Version>>);

impl AnyReader {
    /// The current version.
    pub(crate) fn snapshot(&self) -> AnySnapshot {
        AnySnapshot(self.0.load())
    }

    /// The object that is stored for a key now.
    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        self.0.peek(|version| version.get(key).cloned())
    }

    /// The object that stands for its version: what is stored for the key, unless it is left from an era before.
    pub(crate) fn known(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        self.0.peek(|version| version.get(key).filter(|o| !version.outdated.contains(Object::key(o))).cloned())
    }

    /// The typed handle of an index.
    pub(crate) fn index<V: 'static>(&self, name: &str) -> Result<Index<V>, IndexError> {
        index_of(&self.snapshot(), name)
    }

    /// The shell that knows the type.
    pub(crate) fn typed<T: 'static>(&self) -> StoreReader<T> {
        StoreReader::of(self.clone())
    }
}

impl KnownObjects<Opaque> for AnyReader {
    fn get(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        Self::get(self, key)
    }

    fn for_each_key(&self, f: &mut dyn FnMut(&ObjectKey)) {
        self.snapshot().0.items.keys().for_each(f);
    }
}
