//! The typed shells: [`Snapshot`] and [`StoreReader`].

use super::{
    AnyReader, AnySnapshot, Index, IndexError, IndexRef, IndexStats, Waits,
    index::{IndexVersion, named},
    typed,
};
use crate::{
    flow::{AsKey, Change, Deleted, KeyRef, KnownObjects, Object, ObjectKey, Opaque},
    sync::{Arc, Deadline, WaitError},
};
use std::{borrow::Borrow, fmt, hash::Hash, marker::PhantomData};

pub(super) fn index_of<V: 'static>(snapshot: &AnySnapshot, name: &str) -> Result<Index<V>, IndexError> {
    Index::of(&named(name, &snapshot.version_of().indices)?.definition)
}

fn typed_change<T: 'static>(change: Change<Opaque>) -> Change<T> {
    match change {
        Change::Added(o) => Change::Added(o.typed()),
        Change::Updated { old, new } => Change::Updated { old: old.typed(), new: new.typed() },
        Change::Deleted(Deleted::Observed(o)) => Change::Deleted(Deleted::Observed(o.typed())),
        Change::Deleted(Deleted::Missed { key, last_known }) => {
            Change::Deleted(Deleted::Missed { key, last_known: last_known.map(Object::typed) })
        }
    }
}

/// All objects, all indices and the version of one instant. Never changes.
///
/// Taking one and cloning one is O(1). While it is held it keeps the objects it contains. Look-ups by a borrowed key
/// allocate nothing. *Blocks*: never, none of its methods (`store/freeze.rs`).
///
/// Its drop frees nothing while the informer runs, which does that afterwards, in steps. After the informer's end the last
/// handle of a version frees what that alone had, and the last of all handles, reader or snapshot, all that is left: in one
/// go on the thread that drops it, every object's `Drop` included. No lock is held meanwhile.
///
/// client-go has no such thing: each call on its store sees an instant of its own.
pub struct Snapshot<T> {
    any: AnySnapshot,
    of: PhantomData<fn() -> T>,
}

impl<T: 'static> Snapshot<T> {
    pub(super) fn of(any: AnySnapshot) -> Self {
        Self { any, of: PhantomData }
    }

    /// The object's value. client-go: `GetByKey`.
    pub fn get(&self, key: &impl AsKey) -> Option<&T> {
        self.object(key).map(|o| &**o)
    }

    /// The object with its metadata; clone it to keep it.
    pub fn object(&self, key: &impl AsKey) -> Option<&Object<T>> {
        self.any.get(key).map(Object::typed_ref)
    }

    /// Every value, in no order of keys; the same order whenever this snapshot is walked.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.objects().map(|o| &**o)
    }

    /// Every object with its metadata, in the order of [`Snapshot::iter`]. client-go: `List`.
    pub fn objects(&self) -> impl Iterator<Item = &Object<T>> {
        typed::objects(&self.any)
    }

    /// Every key, in the order of [`Snapshot::iter`]. client-go: `ListKeys`.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.any.objects().map(Object::key)
    }

    /// The objects for which the index emitted `value`, in no order; none when no object has the value.
    ///
    /// Calls `Hash` and `Eq` of the value on this thread; a panic in them is the caller's. client-go: `ByIndex`.
    ///
    /// # Errors
    /// [`IndexError`] when the store has no such index, or one of other values.
    pub fn by_index<I, Q>(&self, index: &I, value: &Q) -> Result<impl Iterator<Item = &Object<T>>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let version = self.any.version_of();
        let posting = self.find(index)?.find::<I::Value, Q>(value);
        let ids = posting.map(|posting| posting.ids.iter()).unwrap_or_default();
        Ok(version.by_ids(ids.copied()).map(Object::typed_ref))
    }

    /// The keys of the objects for which the index emitted `value`, sorted. client-go: `IndexKeys`.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`].
    pub fn index_keys<I, Q>(&self, index: &I, value: &Q) -> Result<impl Iterator<Item = &ObjectKey>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut keys: Vec<_> = self.by_index(index, value)?.map(Object::key).collect();
        keys.sort_unstable();
        Ok(keys.into_iter())
    }

    /// Every value that the index emitted for at least one object, sorted. client-go: `ListIndexFuncValues`, unsorted.
    ///
    /// Calls `Ord` of the values on this thread; a panic in it is the caller's.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`].
    pub fn index_values<I>(&self, index: &I) -> Result<Vec<&I::Value>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Ord,
    {
        let mut values: Vec<_> = self.find(index)?.values::<I::Value>().collect();
        values.sort_unstable();
        Ok(values)
    }

    /// The objects that share a value with `sample`, as the index function sees it, each once, in no order. The sample
    /// need not be stored. client-go: `Index`.
    ///
    /// Calls the index function, and `Hash` and `Eq` of its values, on this thread, contained.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`]; `Failed` when the function panics, `Gone` when the informer is gone.
    pub fn by_sample<I>(&self, index: &I, sample: &T) -> Result<impl Iterator<Item = &Object<T>>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Eq + Hash,
    {
        let version = self.any.version_of();
        let values = self.find(index)?.of_sample::<T, I::Value>(sample)?;
        let mut ids: Vec<u64> = values.into_iter().flat_map(|value| value.ids.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(version.by_ids(ids.into_iter()).map(Object::typed_ref))
    }

    /// How an index is filled. Takes as long as it has values.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`].
    pub fn index_stats<I: IndexRef + ?Sized>(&self, index: &I) -> Result<IndexStats, IndexError> {
        Ok(self.find(index)?.stats())
    }

    /// What has to be told to somebody who has this snapshot so that they have `newer`, a later one of the same store: each
    /// key once, in no order, found as it is asked for. Objects that are the same in both are skipped without being looked
    /// at; what is gone is [`Deleted::Missed`](crate::flow::Deleted) with the object of this snapshot.
    pub fn diff(&self, newer: &Self) -> impl Iterator<Item = Change<T>> + use<T> {
        self.any.diff(&newer.any).map(typed_change)
    }

    /// Every object, and not the snapshot: to keep objects without keeping the rest of what the store knew then.
    pub fn detach(self) -> Vec<Object<T>> {
        typed::to_vec(&self.any)
    }

    fn find<I: IndexRef + ?Sized>(&self, index: &I) -> Result<&IndexVersion, IndexError> {
        index.find(&self.any.version_of().indices)
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.any.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version that the source had reached, opaque; empty before its first state. client-go:
    /// `LastStoreSyncResourceVersion`.
    pub fn version(&self) -> &str {
        self.any.version()
    }

    /// The store's own count of publications, 0 before the first. Grows with each; only of use between snapshots of
    /// one store.
    pub fn seq(&self) -> u64 {
        self.any.seq()
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self { any: self.any.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any.fmt(f)
    }
}

/// Reads the store. Clones are handles to the same store; they outlive the informer and then show its last state.
///
/// Each method sees the store at one instant of its own; for several reads of one instant take a
/// [`StoreReader::snapshot`]. What it returns is owned. *Blocks*: never (`store/freeze.rs`), but for the
/// two methods that wait. The drop of the last handle after the informer's end frees what is stored: see [`Snapshot`].
///
/// client-go: the reading half of `Indexer`.
pub struct StoreReader<T> {
    any: AnyReader,
    /// `None`: nobody tells of publications.
    waits: Option<Arc<Waits>>,
    of: PhantomData<fn() -> T>,
}

impl<T: 'static> StoreReader<T> {
    pub(super) fn of(any: AnyReader) -> Self {
        Self { any, waits: None, of: PhantomData }
    }

    /// Whoever publishes does so through `waits`.
    pub(crate) fn waiting(self, waits: &Arc<Waits>) -> Self {
        Self { waits: Some(waits.clone()), ..self }
    }

    /// The store as it is now.
    pub fn snapshot(&self) -> Snapshot<T> {
        self.any.snapshot().typed()
    }

    /// The object. client-go: `GetByKey`.
    pub fn get(&self, key: &impl AsKey) -> Option<Object<T>> {
        self.any.get(key).map(Object::typed)
    }

    /// Calls `f` with the object's value. Touches no count and allocates nothing. As long as `f` runs, the version it was
    /// found in is kept.
    pub fn with<R>(&self, key: &impl AsKey, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.any.with(key, |object| f(object.typed_ref::<T>()))
    }

    /// The objects for which the index emitted `value`, in no order. client-go: `ByIndex`.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`].
    pub fn by_index<I, Q>(&self, index: &I, value: &Q) -> Result<Vec<Object<T>>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        Ok(self.snapshot().by_index(index, value)?.cloned().collect())
    }

    /// The typed handle of the index with this name.
    ///
    /// # Errors
    /// [`IndexError`] when there is none, or one of other values.
    pub fn index<V: 'static>(&self, name: &str) -> Result<Index<V>, IndexError> {
        self.any.index(name)
    }

    /// How many objects there are now.
    pub fn len(&self) -> usize {
        self.any.peek(|version| version.items.len())
    }

    /// Whether there are none now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version that the source had reached with what is stored now, opaque.
    pub fn version(&self) -> String {
        self.any.peek(|version| version.version.to_string())
    }

    /// Waits until the store holds everything that the source had done at `version`, or more; returns the store as it is
    /// then. So whoever has written to the source waits here for the version that was answered, and then reads what
    /// they wrote.
    ///
    /// What the source orders ([`ListerWatcher::compare`](crate::source::ListerWatcher::compare)) counts as reached when
    /// the store is at that version or a later one. Of versions that are not ordered only the very same one does; a store
    /// that passes it within one batch is then never seen at it, so wait for the object with
    /// [`StoreReader::wait_until`] instead.
    ///
    /// *Blocks*: until then or until `deadline`, on the informer's clock; without looking again before something was
    /// published. A publication does not wait for it.
    ///
    /// # Errors
    /// * `Timeout`, which names the version that is missing and the one that is there;
    /// * `Stopped` when the informer has ended before;
    /// * `EraReset` when the source began a new era of versions meanwhile, with which `version` cannot be compared;
    /// * `WouldDeadlock` in a transform, an index function, a hook or a source, on which the next publication may depend.
    ///   Handlers and reconcilers may wait: no publication waits for them.
    pub fn wait_for_version(&self, version: &str, deadline: impl Into<Deadline>) -> Result<Snapshot<T>, WaitError> {
        let began_at = self.any.snapshot().seq();
        let look = |waits: &Waits| {
            let now = self.any.snapshot();
            if waits.era_began_after(began_at) {
                return Some(Err(WaitError::EraReset));
            }
            waits.reaches(now.version(), version).then(|| Ok(now.typed()))
        };
        self.wait(deadline.into(), look, || format!("version {version:?}"))
    }

    /// Waits until `wanted` says yes to the store as it is then, which is returned. It is asked at once, and after each
    /// publication (several may pass between two questions), on this thread, without a lock held; a panic in it is the
    /// caller's.
    ///
    /// *Blocks*: as [`StoreReader::wait_for_version`].
    ///
    /// # Errors
    /// `Timeout`, `Stopped` and `WouldDeadlock`, as [`StoreReader::wait_for_version`].
    pub fn wait_until(
        &self,
        mut wanted: impl FnMut(&Snapshot<T>) -> bool,
        deadline: impl Into<Deadline>,
    ) -> Result<Snapshot<T>, WaitError> {
        let look = |_: &Waits| {
            let now = self.snapshot();
            wanted(&now).then_some(Ok(now))
        };
        self.wait(deadline.into(), look, || "what is waited for".to_owned())
    }

    /// Those who wait with it; none when nobody tells of publications.
    pub(super) fn waits(&self) -> Option<&Waits> {
        self.waits.as_deref()
    }

    fn wait<R>(
        &self,
        deadline: Deadline,
        mut look: impl FnMut(&Waits) -> Option<Result<R, WaitError>>,
        missing: impl FnOnce() -> String,
    ) -> Result<R, WaitError> {
        // Without anybody who publishes nothing can come.
        let Some(waits) = &self.waits else { return Err(WaitError::Stopped) };
        waits.wait(deadline, || look(waits), || format!("{} (the store is at version {:?})", missing(), self.version()))
    }
}

impl<T: Send + Sync + 'static> KnownObjects<T> for StoreReader<T> {
    fn get(&self, key: KeyRef<'_>) -> Option<Object<T>> {
        Self::get(self, &key)
    }

    fn for_each_key(&self, f: &mut dyn FnMut(&ObjectKey)) {
        self.any.for_each_key(f);
    }
}

impl<T> Clone for StoreReader<T> {
    fn clone(&self) -> Self {
        Self { any: self.any.clone(), waits: self.waits.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for StoreReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reader of {:?}", self.any.snapshot())
    }
}
