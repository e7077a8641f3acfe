//! Indices: which objects have which values.
//!
//! # How a value becomes a number
//! An index maps [`ValueId`]s to postings; a posting holds the value itself and the keys of the objects that have it.
//! A `ValueId` is the value's hash and a running number that tells values of one hash apart. Finding the id of a value
//! needs its `Hash` and, against the few values of the same hash, its `Eq`: user code, called in [`Values::resolve`]
//! before anything is changed, and by readers on their own thread. All the rest compares ids.
//!
//! Values are shared between versions and dropped by their last owner, contained. `Clone` and `Ord` of a value are
//! never called by the writer.

use crate::{
    flow::{Object, ObjectKey, Opaque},
    sync::{
        Arc,
        call_out::{self, Foreign, Panicked, Site},
    },
};
use std::{
    any::{Any, TypeId, type_name},
    borrow::Borrow,
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    ops::Bound::Included,
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
}

/// An index to be: its name and its function.
pub(crate) struct IndexSpec {
    definition: Definition,
    function: Box<dyn Values>,
}

impl IndexSpec {
    /// `f` is called with an object and emits the object's values, any number of them; the same value twice is one.
    /// It runs on the writer's thread, for each object that is added or changed.
    pub(crate) fn new<T, V, F>(name: impl Into<String>, f: F) -> Self
    where
        T: 'static,
        V: Eq + Ord + Hash + Clone + Send + Sync + 'static,
        F: Fn(&T, &mut dyn FnMut(V)) + Send + Sync + 'static,
    {
        let definition = Definition {
            name: name.into(),
            value: TypeId::of::<V>(),
            value_name: type_name::<V>(),
            hasher: hashbrown::DefaultHashBuilder::default(),
        };
        Self { definition, function: Box::new(TypedValues { f: Foreign::new(f), types: PhantomData::<fn(&T) -> V> }) }
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }

    /// What versions have of it, and what only the writer has: its function may hold a reader of this very store, and
    /// must not be held by what that reader holds.
    pub(super) fn split(self) -> (IndexVersion, Box<dyn Values>) {
        (IndexVersion { definition: Arc::new(self.definition), postings: Postings::new() }, self.function)
    }
}

impl fmt::Debug for IndexSpec {
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
}

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
pub(super) trait Values: Send + Sync {
    /// The values that it emits for `object`. Calls user code, changes nothing.
    fn resolve(&self, object: &Object<Opaque>, index: &IndexVersion) -> Result<Vec<Resolved>, Panicked>;
}

/// A value on the way to its id.
pub(super) enum Resolved {
    Known(ValueId),
    New { hash: u64, value: AnyValue },
}

struct TypedValues<T, V, F> {
    f: Foreign<F>,
    types: PhantomData<fn(&T) -> V>,
}

impl<T, V, F> Values for TypedValues<T, V, F>
where
    T: 'static,
    V: Eq + Hash + Send + Sync + 'static,
    F: Fn(&T, &mut dyn FnMut(V)) + Send + Sync,
{
    fn resolve(&self, object: &Object<Opaque>, index: &IndexVersion) -> Result<Vec<Resolved>, Panicked> {
        // Outside the containment: an object of another type is a defect of this crate.
        let object = object.typed_ref::<T>();
        call_out::call(Site::Index, || {
            let mut emitted: Vec<Foreign<V>> = Vec::new();
            (self.f)(object, &mut |value| emitted.push(Foreign::new(value)));
            let mut resolved = Vec::with_capacity(emitted.len());
            for value in emitted {
                let hash = index.definition.hasher.hash_one(&*value);
                if let Some((id, _)) = index.search::<V, V>(hash, &value) {
                    resolved.push(Resolved::Known(id));
                } else if !resolved.iter().any(|r| r.is_new::<V>(hash, &value)) {
                    resolved.push(Resolved::New { hash, value: Arc::new(value) });
                }
            }
            resolved
        })
    }
}

impl Resolved {
    fn is_new<V: Eq + 'static>(&self, hash: u64, value: &V) -> bool {
        matches!(self, Self::New { hash: h, value: v } if *h == hash && value_of::<V>(v) == Some(value))
    }
}

/// A `Foreign<V>`.
type AnyValue = Arc<dyn Any + Send + Sync>;

fn value_of<V: 'static>(value: &AnyValue) -> Option<&V> {
    value.downcast_ref::<Foreign<V>>().map(|value| &**value)
}

/// Stands for one value of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueId {
    hash: u64,
    number: u64,
}

#[derive(Clone)]
pub(super) struct Posting {
    value: AnyValue,
    /// Never empty.
    pub(super) keys: imbl::OrdSet<ObjectKey>,
}

type Postings = imbl::OrdMap<ValueId, Posting>;

/// An index as part of a version.
#[derive(Clone)]
pub(super) struct IndexVersion {
    pub(super) definition: Arc<Definition>,
    postings: Postings,
}

impl IndexVersion {
    /// Calls `Eq` of the value.
    fn search<V, Q>(&self, hash: u64, value: &Q) -> Option<(ValueId, &Posting)>
    where
        V: Borrow<Q> + 'static,
        Q: Eq + ?Sized,
    {
        let (first, last) = (ValueId { hash, number: 0 }, ValueId { hash, number: u64::MAX });
        let mut same_hash = self.postings.range::<_, ValueId>((Included(first), Included(last)));
        same_hash.find(|(_, p)| value_of::<V>(&p.value).is_some_and(|v| v.borrow() == value)).map(|(id, p)| (*id, p))
    }

    /// The keys of the objects with this value. Calls its `Hash` and `Eq`.
    pub(super) fn find<V, Q>(&self, value: &Q) -> Option<&Posting>
    where
        V: Borrow<Q> + 'static,
        Q: Eq + Hash + ?Sized,
    {
        self.search::<V, Q>(self.definition.hasher.hash_one(value), value).map(|(_, posting)| posting)
    }

    pub(super) fn values<V: 'static>(&self) -> impl Iterator<Item = &V> {
        self.postings.values().filter_map(|p| value_of::<V>(&p.value))
    }

    /// Replaces the values `before` of an object by those resolved, touching only what differs. Calls no user code.
    /// `number` numbers new values.
    pub(super) fn change(
        &mut self,
        key: &ObjectKey,
        before: &[ValueId],
        after: Vec<Resolved>,
        number: &mut u64,
    ) -> Box<[ValueId]> {
        let mut ids = Vec::with_capacity(after.len());
        for resolved in after {
            ids.push(match resolved {
                Resolved::Known(id) => id,
                Resolved::New { hash, value } => {
                    *number += 1;
                    let id = ValueId { hash, number: *number };
                    self.postings.insert(id, Posting { value, keys: imbl::OrdSet::new() });
                    id
                }
            });
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids.iter().filter(|id| !before.contains(id)) {
            if let Some(posting) = self.postings.get_mut(id) {
                posting.keys.insert(key.clone());
            }
        }
        for id in before.iter().filter(|id| ids.binary_search(id).is_err()) {
            self.forget(key, id);
        }
        ids.into()
    }

    fn forget(&mut self, key: &ObjectKey, id: &ValueId) {
        let emptied = self.postings.get_mut(id).is_some_and(|posting| {
            posting.keys.remove(key);
            posting.keys.is_empty()
        });
        if emptied {
            self.postings.remove(id);
        }
    }
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
