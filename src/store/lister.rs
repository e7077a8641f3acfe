//! [`Lister`]: owned lists of a store, all of it or what a selector chooses.
//!
//! Labels are read when a list is asked for, from the objects as they are stored; the store keeps none. Where the values of
//! a label are indexed, a selector that names the values it wants reads the index's entries instead of every object: those
//! of the requirement that has the fewest. Each candidate is then judged by the whole selector, so what is listed does not
//! depend on which way was taken.

use super::{IndexSpec, Snapshot, StoreReader};
use crate::{
    flow::{AsKey, KeyRef, Object, ObjectKey},
    source::Selector,
    sync::{
        Arc,
        call_out::{self, Panicked, Site},
    },
};
use std::fmt;

/// How to read the labels of an object: calls the second argument with each.
pub(crate) type LabelsOf<T> = Arc<dyn Fn(&T, &mut dyn FnMut(&str, &str)) + Send + Sync>;

/// What a lister knows of labels.
pub(crate) struct Labels<T> {
    of: Option<LabelsOf<T>>,
    /// The labels whose values are indexed.
    indexed: Vec<String>,
}

impl<T> Labels<T> {
    /// `of` reads an object's labels, if they can be read at all; for each of `indexed` the store has [`Labels::index`].
    pub(crate) fn new(of: Option<LabelsOf<T>>, indexed: Vec<String>) -> Self {
        Self { of, indexed }
    }

    /// The index by the values of `label`. Of a label that is emitted more than once the last value counts, so an object
    /// is under one value at most.
    pub(crate) fn index(label: &str, of: LabelsOf<T>) -> IndexSpec
    where
        T: 'static,
    {
        let (name, label) = (index_name(label), label.to_owned());
        IndexSpec::new(name, move |value: &T, emit: &mut dyn FnMut(String)| {
            let mut found = None;
            of(value, &mut |name, value| {
                if name == label {
                    found = Some(value.to_owned());
                }
            });
            if let Some(value) = found {
                emit(value);
            }
        })
    }
}

fn index_name(label: &str) -> String {
    format!("label:{label}")
}

/// Why a selector could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The informer's transform makes objects of another type than the source's, and nobody said how to read labels of
    /// those.
    #[error("the labels of these objects are not known: a transform made them; build the informer with `.labels(..)`")]
    NoLabels,
    /// Reading an object's labels panicked.
    #[error("the labels of {key} could not be read: {why}")]
    Unreadable {
        /// Which object.
        key: ObjectKey,
        /// What happened.
        why: Panicked,
    },
}

/// Lists a store. Clones are handles to the same store; a lister keeps the source that it reads labels by.
/// *Blocks*: never, none of its methods (`store/freeze.rs`); reading labels is the source's code.
///
/// Each call sees the store at one instant, and what it returns is owned. client-go: `GenericLister`.
pub struct Lister<T> {
    reader: StoreReader<T>,
    labels: Arc<Labels<T>>,
}

impl<T: 'static> Lister<T> {
    pub(crate) fn of(reader: StoreReader<T>, labels: Arc<Labels<T>>) -> Self {
        Self { reader, labels }
    }

    /// The objects that `selector` matches, in no order of keys (sort them when it matters). Their labels are read on this
    /// thread; [`Selector::everything`] reads none. client-go: `List`, in no order either.
    ///
    /// # Errors
    /// [`SelectError`].
    pub fn list(&self, selector: &Selector) -> Result<Vec<Object<T>>, SelectError> {
        self.select(None, selector)
    }

    /// Every object, in no order of keys.
    pub fn all(&self) -> Vec<Object<T>> {
        self.reader.snapshot().detach()
    }

    /// One object.
    pub fn get(&self, key: &impl AsKey) -> Option<Object<T>> {
        self.reader.get(key)
    }

    /// The same for one namespace; the empty one stands for all, as in client-go.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<T> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }

    fn select(&self, namespace: Option<&str>, selector: &Selector) -> Result<Vec<Object<T>>, SelectError> {
        let snapshot = self.reader.snapshot();
        let inside = |object: &&Object<T>| namespace.is_none_or(|n| Object::key(object).namespace() == n);
        if selector.is_everything() {
            return Ok(match namespace {
                None => snapshot.detach(),
                Some(_) => snapshot.objects().filter(inside).cloned().collect(),
            });
        }
        let of = self.labels.of.as_ref().ok_or(SelectError::NoLabels)?;
        match self.by_index(&snapshot, selector) {
            Some(candidates) => choose(of, selector, candidates.into_iter().filter(inside)),
            None => choose(of, selector, snapshot.objects().filter(inside)),
        }
    }

    /// The candidates that the index with the fewest of them offers, each once.
    fn by_index<'s>(&self, snapshot: &'s Snapshot<T>, selector: &Selector) -> Option<Vec<&'s Object<T>>> {
        let indexed = selector.values().filter(|(label, _)| self.labels.indexed.iter().any(|i| i == label));
        let entries = |(label, values): (&str, &[String])| {
            let name = index_name(label);
            let mut entries = Vec::new();
            for value in values {
                // An object has one value of a label, so it is under one of these at most.
                entries.extend(snapshot.by_index(name.as_str(), value.as_str()).ok()?);
            }
            Some(entries)
        };
        indexed.filter_map(entries).min_by_key(Vec::len)
    }
}

/// Those of the candidates that the selector matches.
fn choose<'o, T: 'static>(
    of: &LabelsOf<T>,
    selector: &Selector,
    candidates: impl Iterator<Item = &'o Object<T>>,
) -> Result<Vec<Object<T>>, SelectError> {
    let (mut chosen, mut at, mut matcher) = (Vec::new(), None, selector.matcher());
    // One call for all of them: entering user code is dearer than reading a few labels.
    let read = call_out::call(Site::Source, || {
        for object in candidates {
            at = Some(object);
            if matcher.matches(|emit| of(object, emit)) {
                chosen.push(object.clone());
            }
        }
    });
    match (read, at) {
        (Err(why), Some(object)) => Err(SelectError::Unreadable { key: Object::key(object).clone(), why }),
        _ => Ok(chosen),
    }
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), labels: self.labels.clone() }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("reader", &self.reader).field("indexed", &self.labels.indexed).finish_non_exhaustive()
    }
}

/// Lists one namespace of a store. *Blocks*: as [`Lister`]. client-go: `GenericNamespaceLister`.
pub struct NamespaceLister<T> {
    lister: Lister<T>,
    namespace: String,
}

impl<T: 'static> NamespaceLister<T> {
    /// The objects of the namespace that `selector` matches, in no order; for the empty namespace of the whole store.
    /// Takes as long as the store is large, unless an index by label helps.
    ///
    /// # Errors
    /// [`SelectError`].
    pub fn list(&self, selector: &Selector) -> Result<Vec<Object<T>>, SelectError> {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        self.lister.select(namespace, selector)
    }

    /// Every object of the namespace, in no order; for the empty namespace of the whole store. Takes as long as the store
    /// is large.
    pub fn all(&self) -> Vec<Object<T>> {
        let inside = |object: &&Object<T>| self.namespace.is_empty() || Object::key(object).namespace() == self.namespace;
        self.lister.reader.snapshot().objects().filter(inside).cloned().collect()
    }

    /// The object of this name in the namespace; for the empty namespace the object without a namespace (client-go
    /// never finds those here).
    pub fn get(&self, name: &str) -> Option<Object<T>> {
        self.lister.get(&KeyRef { namespace: &self.namespace, name })
    }
}

impl<T> Clone for NamespaceLister<T> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}

impl<T> fmt::Debug for NamespaceLister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "namespace {:?} of {:?}", self.namespace, self.lister)
    }
}
