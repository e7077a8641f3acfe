//! [`Lister`]: owned lists of a store.

use super::StoreReader;
use crate::flow::{AsKey, KeyRef, Object};

/// Lists a store. Clones are handles to the same store. *Blocks*: never, none of its methods (`store/freeze.rs`).
///
/// Each call sees the store at one instant. client-go: `GenericLister`.
#[derive(Clone, Debug)]
pub struct Lister<T> {
    reader: StoreReader<T>,
}

impl<T: 'static> Lister<T> {
    pub(super) fn of(reader: StoreReader<T>) -> Self {
        Self { reader }
    }

    /// Every object, in no order. client-go: `List`.
    pub fn list(&self) -> Vec<Object<T>> {
        self.reader.snapshot().objects().cloned().collect()
    }

    /// One object.
    pub fn get(&self, key: &impl AsKey) -> Option<Object<T>> {
        self.reader.get(key)
    }

    /// The same for one namespace; the empty one stands for all, as in client-go.
    pub fn namespace(&self, namespace: impl Into<String>) -> NamespaceLister<T> {
        NamespaceLister { reader: self.reader.clone(), namespace: namespace.into() }
    }
}

/// Lists one namespace of a store. *Blocks*: never, none of its methods (`store/freeze.rs`). client-go: `GenericNamespaceLister`.
#[derive(Clone, Debug)]
pub struct NamespaceLister<T> {
    reader: StoreReader<T>,
    namespace: String,
}

impl<T: 'static> NamespaceLister<T> {
    /// Every object of the namespace, in no order; for the empty namespace every object of the store. Takes as long as the
    /// store is large.
    pub fn list(&self) -> Vec<Object<T>> {
        let snapshot = self.reader.snapshot();
        if self.namespace.is_empty() {
            snapshot.objects().cloned().collect()
        } else {
            snapshot.objects().filter(|o| Object::key(o).namespace() == self.namespace).cloned().collect()
        }
    }

    /// The object of this name in the namespace; for the empty namespace the object without a namespace (client-go
    /// never finds those here).
    pub fn get(&self, name: &str) -> Option<Object<T>> {
        self.reader.get(&KeyRef { namespace: &self.namespace, name })
    }
}
