//! Indices: which objects have which values.
//!
//! # What an index is made of
//! In a version an index is a tree of values; a value has the tree of the ids of the objects that have it. An id is the
//! hash of the object's key, or another number when two keys have one hash (`version.rs`). So an update that keeps an
//! object's values touches no index.
//!
//! # Where the user's code is called
//! In [`Values::resolve`], before anything is changed: the index function, `Hash` and `Eq` of what it emits. It says what
//! is to be added and what taken out, in terms of values that are there and new ones; from there on only hashes, addresses
//! and ids are compared. Readers call `Hash` and `Eq` on their own thread. `Clone` and `Ord` are never called by the
//! writer. Values are shared between versions and dropped contained.
//!
//! # Which values an object had
//! They are not kept: the index function is asked again, for the object as it was. (Keeping them costs more than all the
//! rest of an index.) It should answer as it did. When it does not, the index must not rot: beside each object stands in
//! how many values it is, over all indices, and each step counts what it adds and takes out. An id that is not where the
//! function says it was, or already where it is to be added, gives a function away that answers differently, and then the
//! object's id is looked for in all values of that index ([`IndexVersion::purge`]). When an object goes, the count must
//! come out at nothing, or all indices are searched. So whatever a function answers, an object that is gone is in no
//! index, and one whose values change is in those that the function said last; only an object for which the function
//! says "nothing changed", wrongly, stays where it was until then. The same search helps when the function panics
//! for the old object.

use super::{
    directory::{Bin, Tree},
    node::{Entry, Kept, Leaf},
    reclaim::{Item, Waste},
};
use crate::{
    flow::{Object, ObjectKey, Opaque},
    sync::{
        Arc, Weak,
        call_out::{self, Foreign, Panicked, Site},
    },
};
use hashbrown::{HashTable, hash_table};
use smallvec::SmallVec;
use std::{
    any::{Any, TypeId, type_name},
    borrow::Borrow,
    cell::Cell,
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
};

/// Why an index could not be made or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Two indices of one store have the same name.
    #[error("there are two indices named {name:?}; give one of them another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The store has no such index.
    #[error("there is no index {name:?}; this store has [{}]", .known.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The index is of another type of values.
    #[error("index {name:?} holds values of type {holds}; it was asked as one of {asked}")]
    OtherValues {
        /// The index.
        name: String,
        /// The type of its values.
        holds: &'static str,
        /// The type it was taken for.
        asked: &'static str,
    },
    /// Its function panicked: for an object that is stored when an index was to be added, or for a sample.
    #[error("the function of index {name:?} failed{}: {why}", .key.as_ref().map(|k| format!(" for {k}")).unwrap_or_default())]
    Failed {
        /// The index.
        name: String,
        /// Which object, when it is a stored one.
        key: Option<ObjectKey>,
        /// What it did.
        why: Panicked,
    },
    /// The store's writer is gone, and the index function with it; what was emitted is there to be read.
    #[error("the function of index {name:?} is gone with the informer")]
    Gone {
        /// The index.
        name: String,
    },
    /// Asked for inside an index function, a hook or a value's drop, for which the writer waits.
    #[error("an index must not be added from inside an index function, a hook or a drop")]
    Reentrant,
}

/// An index to be, of a store of `E`: its name and its function.
pub(crate) struct IndexSpec<E = Object<Opaque>> {
    definition: Definition,
    function: Box<dyn Values<E>>,
}

impl IndexSpec {
    /// `f` is called with an object and emits the object's values, any number of them; the same value twice is one.
    /// It runs on the writer's thread, for each object that is added, changed or removed, and for what it was before. It
    /// should emit the same whenever it is called with the same object.
    pub(crate) fn new<T, V, F>(name: impl Into<String>, f: F) -> Self
    where
        T: 'static,
        V: Eq + Ord + Hash + Clone + Send + Sync + 'static,
        F: Fn(&T, &mut dyn FnMut(V)) + Send + Sync + 'static,
    {
        Self::over(name, |object: &Object<Opaque>| &**object.typed_ref::<T>(), f)
    }
}

impl<E: 'static> IndexSpec<E> {
    /// Of a store that shows the function its entries by `view`.
    pub(super) fn over<T, V, F>(name: impl Into<String>, view: fn(&E) -> &T, f: F) -> Self
    where
        T: 'static,
        V: Eq + Hash + Send + Sync + 'static,
        F: Fn(&T, &mut dyn FnMut(V)) + Send + Sync + 'static,
    {
        let f: Arc<Function<T, V>> = Arc::new(Foreign::new(Box::new(f)));
        let function: Weak<Function<T, V>> = Arc::downgrade(&f);
        let definition = Definition {
            name: name.into(),
            value: TypeId::of::<V>(),
            value_name: type_name::<V>(),
            hasher: hashbrown::DefaultHashBuilder::default(),
            function,
        };
        Self { definition, function: Box::new(TypedValues { view, f }) }
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }

    /// What versions have of it, and what only the writer has: its function may hold a reader of this very store, and
    /// must not be held by what that reader holds.
    pub(super) fn split(self) -> (IndexVersion, Box<dyn Values<E>>) {
        (IndexVersion { definition: Arc::new(self.definition), values: Tree::default() }, self.function)
    }
}

impl<E> fmt::Debug for IndexSpec<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {:?} of {}", self.definition.name, self.definition.value_name)
    }
}

/// What does not change of an index.
pub(super) struct Definition {
    name: String,
    value: TypeId,
    value_name: &'static str,
    hasher: hashbrown::DefaultHashBuilder,
    /// A `Function`. The writer has it, because it may hold a reader of this very store.
    function: Weak<dyn Any + Send + Sync>,
}

/// An index function.
type Function<T, V> = Foreign<Box<dyn Fn(&T, &mut dyn FnMut(V)) + Send + Sync>>;

impl Definition {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn holds<V: 'static>(&self) -> Result<(), IndexError> {
        if self.value == TypeId::of::<V>() {
            return Ok(());
        }
        Err(IndexError::OtherValues { name: self.name.clone(), holds: self.value_name, asked: type_name::<V>() })
    }
}

/// The erased index function.
pub(super) trait Values<E>: Send + Sync {
    /// To find the values of many objects at once, for an index that has none yet.
    fn gather(&self, definition: &Definition) -> Box<dyn Gather<E> + '_>
    where
        E: Item;
    /// What has to change in the index when `old` becomes `new`. Calls user code, changes nothing.
    fn resolve(&self, old: Option<&E>, new: Option<&E>, index: &IndexVersion) -> Result<Resolved, Unresolved>;
}

/// The ids of many objects, gathered by value; made trees of at the end. Dropped, nothing was made.
pub(super) trait Gather<E: Item> {
    /// Under how many values the object comes. Calls user code.
    fn add(&mut self, item: &E, id: u64) -> Result<usize, Panicked>;
    /// Forgets the object that was added last, or that could not be added.
    fn undo(&mut self, id: u64);
    fn finish(self: Box<Self>, waste: &mut Waste<E>) -> Tree<Leaf<Value>>;
}

/// A value, its hash, and the ids of the objects that have it.
type Gathered<V> = (u64, Foreign<V>, Vec<u64>);

struct TypedGather<'f, E, T: 'static, V: 'static> {
    of: &'f TypedValues<E, T, V>,
    hasher: hashbrown::DefaultHashBuilder,
    values: HashTable<Gathered<V>>,
    /// The hashes of the values that the object added last has come under.
    last: Vec<u64>,
}

impl<E: Item, T, V: Eq + Hash + Send + Sync> Gather<E> for TypedGather<'_, E, T, V> {
    fn add(&mut self, item: &E, id: u64) -> Result<usize, Panicked> {
        let (item, values, last) = ((self.of.view)(item), &mut self.values, &mut self.last);
        last.clear();
        let mut emit = |value: V| {
            let value = Foreign::new(value);
            let hash = self.hasher.hash_one(&*value);
            match values.entry(hash, |(h, v, _)| *h == hash && **v == *value, |(h, ..)| *h) {
                hash_table::Entry::Occupied(mut known) => {
                    let ids = &mut known.get_mut().2;
                    if ids.last() == Some(&id) {
                        return;
                    }
                    ids.push(id);
                }
                hash_table::Entry::Vacant(new) => drop(new.insert((hash, value, vec![id]))),
            }
            last.push(hash);
        };
        call_out::call(Site::Index, || (self.of.f)(item, &mut emit))?;
        Ok(self.last.len())
    }

    fn undo(&mut self, id: u64) {
        for hash in self.last.drain(..) {
            let has = |(h, _, ids): &Gathered<V>| *h == hash && ids.last() == Some(&id);
            let Ok(mut value) = self.values.find_entry(hash, has) else { continue };
            value.get_mut().2.pop();
            if value.get().2.is_empty() {
                drop(value.remove());
            }
        }
    }

    fn finish(mut self: Box<Self>, waste: &mut Waste<E>) -> Tree<Leaf<Value>> {
        let mut leaves = Vec::with_capacity(self.values.len());
        for (hash, value, mut ids) in self.values.drain() {
            if !ids.is_sorted() {
                ids.sort_unstable();
            }
            let ids = Tree::build(ids.into_iter().map(|id| (id, 0)).collect(), waste);
            leaves.push((Leaf::new(Value { birth: waste.birth(), hash, value: Arc::new(value), ids }), 0));
        }
        leaves.sort_unstable_by_key(|(leaf, _)| leaf.get().hash);
        Tree::build(leaves, waste)
    }
}

/// What has to change in an index.
pub(super) enum Resolved {
    /// Nothing: the object has the values that it had.
    Same,
    Change(Change),
}

#[derive(Default)]
pub(super) struct Change {
    /// All values of the new object, and whether the old one had them.
    pub(super) new: Vec<(Found, bool)>,
    /// The values that only the old object had.
    pub(super) gone: Vec<ValueId>,
    /// False when it is not known which values the old object had: it is said to have had one that is not in the index.
    pub(super) sound: bool,
}

/// Why a function's answer could not be had.
pub(super) enum Unresolved {
    /// For the new object: it is refused.
    New(Panicked),
    /// For the old one: it is on record, and which values that had is not known.
    Old,
}

/// A value of a new object.
#[derive(Clone)]
pub(super) enum Found {
    Known(ValueId),
    New { hash: u64, value: AnyValue },
}

struct TypedValues<E, T: 'static, V: 'static> {
    view: fn(&E) -> &T,
    f: Arc<Function<T, V>>,
}

impl<E, T, V> Values<E> for TypedValues<E, T, V>
where
    V: Eq + Hash + Send + Sync + 'static,
{
    fn gather(&self, definition: &Definition) -> Box<dyn Gather<E> + '_>
    where
        E: Item,
    {
        Box::new(TypedGather { of: self, hasher: definition.hasher.clone(), values: HashTable::new(), last: Vec::new() })
    }

    fn resolve(&self, old: Option<&E>, new: Option<&E>, index: &IndexVersion) -> Result<Resolved, Unresolved> {
        // Outside the containment: an object of another type is a defect of this crate.
        let (old, new) = (old.map(self.view), new.map(self.view));
        let of_old = Cell::new(new.is_none());
        let emitted = |object: Option<&T>| {
            let mut values: SmallVec<[Foreign<V>; 1]> = SmallVec::new();
            if let Some(object) = object {
                (self.f)(object, &mut |value| values.push(Foreign::new(value)));
            }
            values
        };
        let resolve = || {
            let new = emitted(new);
            of_old.set(true);
            let old = emitted(old);
            of_old.set(new.is_empty());
            if new.len() == old.len() && new.iter().zip(&old).all(|(a, b)| **a == **b) {
                return Resolved::Same;
            }
            let (mut had, mut sound) = (Vec::with_capacity(old.len()), true);
            for value in old {
                match index.search::<V, V>(index.definition.hasher.hash_one(&*value), &value) {
                    Some(known) => had.push(known.id()),
                    None => sound = false,
                }
            }
            had.sort_unstable();
            had.dedup();
            let mut found: Vec<(Found, bool)> = Vec::with_capacity(new.len());
            for value in new {
                let hash = index.definition.hasher.hash_one(&*value);
                let known = index.search::<V, V>(hash, &value).map(Value::id);
                if let Some(id) = known {
                    if !found.iter().any(|(f, _)| matches!(f, Found::Known(k) if *k == id)) {
                        found.push((Found::Known(id), had.binary_search(&id).is_ok()));
                    }
                } else if !found.iter().any(|(f, _)| f.is_new::<V>(hash, &value)) {
                    found.push((Found::New { hash, value: Arc::new(value) }, false));
                }
            }
            had.retain(|id| !found.iter().any(|(f, _)| matches!(f, Found::Known(k) if k == id)));
            Resolved::Change(Change { new: found, gone: had, sound })
        };
        call_out::call(Site::Index, resolve).map_err(|why| if of_old.get() { Unresolved::Old } else { Unresolved::New(why) })
    }
}

impl Found {
    fn is_new<V: Eq + 'static>(&self, hash: u64, value: &V) -> bool {
        matches!(self, Self::New { hash: h, value: v } if *h == hash && value_of::<V>(v) == Some(value))
    }
}

/// A `Foreign<V>`.
type AnyValue = Arc<dyn Any + Send + Sync>;

fn value_of<V: 'static>(value: &AnyValue) -> Option<&V> {
    value.downcast_ref::<Foreign<V>>().map(|value| &**value)
}

/// Stands for one value of one index, as long as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ValueId {
    hash: u64,
    /// Of the value's own allocation, which its versions share.
    address: usize,
}

/// A value of an index with the objects that have it, in one version or several.
pub(super) struct Value {
    pub(super) birth: u64,
    hash: u64,
    value: AnyValue,
    /// Never empty once published.
    pub(super) ids: Tree<u64>,
}

impl Value {
    pub(super) fn id(&self) -> ValueId {
        ValueId { hash: self.hash, address: Arc::as_ptr(&self.value).addr() }
    }
}

impl Entry for Leaf<Value> {
    fn hash(&self) -> u64 {
        self.get().hash
    }
}

impl Entry for u64 {
    const TAGS: bool = false;
    /// Ids are copied and searched faster than what has tags, and each page costs its head and its slot above.
    const FULL: usize = 64;

    fn hash(&self) -> u64 {
        *self
    }
}

/// An index as part of a version.
#[derive(Clone)]
pub(super) struct IndexVersion {
    pub(super) definition: Arc<Definition>,
    values: Tree<Leaf<Value>>,
}

impl IndexVersion {
    /// Calls `Eq` of the value.
    fn search<V, Q>(&self, hash: u64, value: &Q) -> Option<&Value>
    where
        V: Borrow<Q> + 'static,
        Q: Eq + ?Sized,
    {
        let is = |leaf: &Leaf<Value>| {
            let known = leaf.get();
            known.hash == hash && value_of::<V>(&known.value).is_some_and(|v| v.borrow() == value)
        };
        self.values.find(hash, is).map(|leaf| leaf.get())
    }

    /// The value, with the objects that have it. Calls its `Hash` and `Eq`.
    pub(super) fn find<V, Q>(&self, value: &Q) -> Option<&Value>
    where
        V: Borrow<Q> + 'static,
        Q: Eq + Hash + ?Sized,
    {
        self.search::<V, Q>(self.definition.hasher.hash_one(value), value)
    }

    /// The values that the function emits for a sample, as far as the index has them, each once. Calls user code.
    pub(super) fn of_sample<T: 'static, V: Eq + Hash + 'static>(&self, sample: &T) -> Result<Vec<&Value>, IndexError> {
        let name = || self.definition.name.clone();
        let function = self.definition.function.upgrade().ok_or_else(|| IndexError::Gone { name: name() })?;
        // Checked when the index was found; the type of objects is that of the store.
        let Some(f) = function.downcast_ref::<Function<T, V>>() else { return Err(IndexError::Gone { name: name() }) };
        let look = || {
            let mut found: Vec<&Value> = Vec::new();
            f(sample, &mut |value: V| {
                let value = Foreign::new(value);
                if let Some(known) = self.find::<V, V>(&value)
                    && !found.iter().any(|other| other.id() == known.id())
                {
                    found.push(known);
                }
            });
            found
        };
        call_out::call(Site::Index, look).map_err(|why| IndexError::Failed { name: name(), key: None, why })
    }

    /// How many values there are, how many objects each has, and the size of the largest.
    pub(super) fn stats(&self) -> IndexStats {
        let mut stats = IndexStats { values: self.values.len(), ..IndexStats::default() };
        for leaf in self.values.iter() {
            let objects = leaf.get().ids.len();
            stats.entries += objects;
            stats.largest = stats.largest.max(objects);
        }
        stats
    }

    pub(super) fn values<V: 'static>(&self) -> impl Iterator<Item = &V> {
        self.values.iter().filter_map(|leaf| value_of::<V>(&leaf.get().value))
    }

    fn leaf(&self, id: ValueId) -> Option<Leaf<Value>> {
        self.values.find(id.hash, |leaf| leaf.get().id() == id).copied()
    }

    /// A private form of a value.
    fn own<E>(&mut self, leaf: Leaf<Value>, waste: &mut Waste<E>) -> Leaf<Value> {
        let shared = leaf.get();
        if shared.birth == waste.birth() {
            return leaf;
        }
        let ids = shared.ids.clone();
        let own = Leaf::new(Value { birth: waste.birth(), hash: shared.hash, value: shared.value.clone(), ids });
        let id = shared.id();
        if self.values.replace(own, |leaf| leaf.get().id() == id, waste).is_ok() {
            waste.value(leaf);
        }
        own
    }

    /// A private form of a value that is there or comes now.
    pub(super) fn have<E>(&mut self, value: Found, waste: &mut Waste<E>) -> Option<Leaf<Value>> {
        match value {
            Found::Known(id) => self.leaf(id).map(|leaf| self.own(leaf, waste)),
            Found::New { hash, value } => {
                let leaf = Leaf::new(Value { birth: waste.birth(), hash, value, ids: Tree::default() });
                self.values.insert(Kept::new(leaf), 0, waste);
                Some(leaf)
            }
        }
    }

    /// Adds an id to a value: whether it was not there.
    pub(super) fn add<E>(&mut self, value: Found, id: u64, waste: &mut Waste<E>) -> bool {
        if let Found::Known(known) = value
            && self.leaf(known).is_none_or(|leaf| contains(leaf, id))
        {
            return false;
        }
        let Some(leaf) = self.have(value, waste) else { return false };
        leaf.edit(|value| value.ids.insert(Kept::new(id), 0, waste));
        true
    }

    /// Takes an id out of a value: whether it was there.
    pub(super) fn remove<E>(&mut self, value: ValueId, id: u64, waste: &mut Waste<E>) -> bool {
        let Some(leaf) = self.leaf(value).filter(|leaf| contains(*leaf, id)) else { return false };
        let own = self.own(leaf, waste);
        own.edit(|value| value.ids.remove(id, |other| *other == id, waste));
        if own.get().ids.len() == 0 {
            self.values.remove(value.hash, |leaf| leaf.get().id() == value, waste);
            waste.value(own);
        }
        true
    }

    /// Takes an id out of every value that has it, but for `stays`: how many those were. Takes as long as there are values.
    pub(super) fn purge<E>(&mut self, id: u64, stays: &[(Found, bool)], waste: &mut Waste<E>) -> usize {
        let stays = |id| stays.iter().any(|(found, _)| matches!(found, Found::Known(known) if *known == id));
        let have = self.values.iter().filter(|leaf| contains(**leaf, id)).map(|leaf| leaf.get().id());
        let have: Vec<ValueId> = have.filter(|value| !stays(*value)).collect();
        have.iter().filter(|value| self.remove(**value, id, waste)).count()
    }

    /// The same index with other values.
    pub(super) fn with(&self, values: Tree<Leaf<Value>>) -> Self {
        Self { definition: self.definition.clone(), values }
    }

    /// Gives all of it away: it is not in the version any more.
    pub(super) fn discard<E>(&self, waste: &mut Waste<E>) {
        self.values.iter().for_each(|leaf| {
            leaf.get().ids.nodes(&mut |node| waste.discard(node.bare()));
            waste.value(*leaf);
        });
        self.values.nodes(&mut |node| waste.discard(node.bare()));
    }

    /// Hands out all values and frees the rest, when no version has the index.
    pub(super) fn dismantle(&self, out: &mut impl FnMut(Leaf<Value>)) {
        self.values.iter().for_each(|leaf| {
            leaf.get().ids.nodes(&mut |node| node.bare().free());
            out(*leaf);
        });
        self.values.nodes(&mut |node| node.bare().free());
    }
}

fn contains(leaf: Leaf<Value>, id: u64) -> bool {
    leaf.get().ids.find(id, |other| *other == id).is_some()
}

/// How an index is filled: see [`Snapshot::index_stats`](super::Snapshot::index_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Values that at least one object has.
    pub values: usize,
    /// Pairs of an object and a value.
    pub entries: usize,
    /// Objects of the value that has the most.
    pub largest: usize,
}

/// A typed handle to an index of one store: `reader.index::<V>(name)`. Clone is one count.
pub struct Index<V> {
    pub(super) definition: Arc<Definition>,
    value: PhantomData<fn() -> V>,
}

impl<V: 'static> Index<V> {
    pub(super) fn of(definition: &Arc<Definition>) -> Result<Self, IndexError> {
        definition.holds::<V>()?;
        Ok(Self { definition: definition.clone(), value: PhantomData })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Self {
        Self { definition: self.definition.clone(), value: PhantomData }
    }
}

impl<V> fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {:?} of {}", self.definition.name, self.definition.value_name)
    }
}

/// How a read names an index: by its typed handle, or by its name when the values are `String`s.
pub trait IndexRef: sealed::Find {
    /// The type of the values.
    type Value: 'static;
}

impl<V: 'static> IndexRef for Index<V> {
    type Value = V;
}

impl IndexRef for str {
    type Value = String;
}

pub(super) mod sealed {
    use super::{Arc, Index, IndexError, IndexVersion};

    /// Picks the index out of a version.
    pub trait Find {
        #[allow(private_interfaces)]
        fn find<'v>(&self, indices: &'v [IndexVersion]) -> Result<&'v IndexVersion, IndexError>;
    }

    impl<V: 'static> Find for Index<V> {
        #[allow(private_interfaces)]
        fn find<'v>(&self, indices: &'v [IndexVersion]) -> Result<&'v IndexVersion, IndexError> {
            let found = indices.iter().find(|i| Arc::ptr_eq(&i.definition, &self.definition));
            found.ok_or_else(|| super::unknown(self.name(), indices))
        }
    }

    impl Find for str {
        #[allow(private_interfaces)]
        fn find<'v>(&self, indices: &'v [IndexVersion]) -> Result<&'v IndexVersion, IndexError> {
            let found = super::named(self, indices)?;
            found.definition.holds::<String>()?;
            Ok(found)
        }
    }
}

pub(super) fn named<'v>(name: &str, indices: &'v [IndexVersion]) -> Result<&'v IndexVersion, IndexError> {
    indices.iter().find(|i| i.definition.name == name).ok_or_else(|| unknown(name, indices))
}

fn unknown(name: &str, indices: &[IndexVersion]) -> IndexError {
    IndexError::Unknown { name: name.to_owned(), known: indices.iter().map(|i| i.definition.name.clone()).collect() }
}
