//! [`Indexer`]: a store of its own, for whoever needs the tree and the indices without an informer.
//!
//! # Writers
//! Any thread may write; they take turns. A turn makes one version of what one call writes, publishes it by the same swap
//! as an informer's store, and is over; a batch is one turn and one version. So the swap is the linearization point of the
//! whole call, and whoever looks after a call returned sees what it wrote. Turns are short: the
//! key is hashed before, values are dropped after. Writers do not work side by side: two that touch one value of an index
//! would have to agree on its list of keys, and a version on both, so they would meet in the end.
//!
//! # The user's code
//! `Hash` of a key runs before the turn. `Eq` of keys and the index functions run in it, before anything is changed, and a
//! panic there refuses the one write that it came from. From there on hashes and addresses are compared. In the turn
//! itself this store can be read and not written: a write is told `Reentrant` instead of waiting for itself. What a write
//! replaced is dropped after the turn, so a `Drop` may do either.
//!
//! # Readers
//! They take no lock; see `cell.rs`. `Hash` and `Eq` run on the reader's thread, and a panic in them is the reader's.

use super::{
    Gauge, Index, IndexError, IndexRef, IndexSpec,
    index::{IndexVersion, named},
    node::Entry,
    reclaim::{AT_ONCE, Freed, Item},
    table::{AddIndex, Draft, Refused, Table, Whole},
    version::{Core, Snap, Version},
};
use crate::sync::{
    Arc, Seed, Turn,
    atomic::{AtomicUsize, Ordering::Relaxed},
    call_out::{self, Foreign, Panicked, Site},
    keep, thread_local,
};
use hashbrown::HashSet;
use std::{
    borrow::Borrow,
    fmt,
    hash::{BuildHasher, Hash},
    ops::Deref,
};

/// A value as it is stored, with its key. Clone is one count; it stays as it is whatever happens to the store.
pub struct Stored<K, V>(Arc<Record<K, V>>);

struct Record<K, V> {
    hash: u64,
    key: Foreign<K>,
    value: Foreign<V>,
}

impl<K, V> Stored<K, V> {
    fn new(hash: u64, key: Foreign<K>, value: Foreign<V>) -> Self {
        Self(Arc::new(Record { hash, key, value }))
    }

    /// The key.
    pub fn key(this: &Self) -> &K {
        &this.0.key
    }

    /// Whether both are of the same write.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        Arc::ptr_eq(&a.0, &b.0)
    }
}

impl<K, V> Deref for Stored<K, V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<K, V> Clone for Stored<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Stored<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", *self.0.key, *self.0.value)
    }
}

impl<K, V> Entry for Stored<K, V> {
    const MARKS: bool = true;

    fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Item for Stored<K, V> {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// Why a write was not done. Nothing of it was: the key has its old value, in every index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An index function panicked, or `Hash` or `Eq` of a value it emitted.
    #[error("refused by index {index:?}: {why}")]
    Index {
        /// Which index.
        index: String,
        /// What it did.
        why: Panicked,
    },
    /// `Hash` or `Eq` of a key panicked.
    #[error("the key could not be looked up: {why}")]
    Key {
        /// What it did.
        why: Panicked,
    },
    /// Called from an index function of this store, or from something else that runs in a write of this thread.
    #[error("this store is being written by this very thread; write it after the index function has returned")]
    Reentrant,
}

/// One write of several. See [`Indexer::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<K, V> {
    /// As [`Indexer::put`].
    Put(K, V),
    /// As [`Indexer::delete`].
    Delete(K),
}

/// A write of several that was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write {at}: {why}")]
pub struct RefusedWrite {
    /// Which, counted from 0.
    pub at: usize,
    /// Why.
    pub why: WriteError,
}

/// Values by key, with indices; any number of threads write and read. Clones are handles to the same store.
///
/// For an informer's objects there is [`StoreReader`](super::StoreReader): this one is for embedders that keep something
/// of their own. Keys are any type with `Eq` and `Hash`; both must behave, as in a `HashMap`.
///
/// *Blocks*: reads as those of [`StoreReader`](super::StoreReader); a write while another thread writes, index functions
/// included. client-go: `Indexer`,
/// `ThreadSafeStore`.
///
/// The drop of the last handle frees everything in one go on its thread, but for what a snapshot shows: the last one of
/// those frees that. Every value's `Drop` runs there, under no lock.
///
/// ```
/// let pods = informer::store::Indexer::<String, &str>::new();
/// let by_node = pods.add_index("node", |_, node: &&str, emit| emit((*node).to_owned()))?;
/// pods.put("a".into(), "n1")?;
/// pods.put("b".into(), "n1")?;
/// assert_eq!(*pods.get("a").unwrap(), "n1");
/// assert_eq!(pods.by_index(&by_node, "n1")?.len(), 2);
/// pods.delete("a")?;
/// assert_eq!(pods.by_index("node", "n1")?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Indexer<K: Send + Sync + 'static, V: Send + Sync + 'static>(Arc<Inner<K, V>>);

struct Inner<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    seed: Seed,
    core: Arc<Core<Stored<K, V>>>,
    turn: Turn<Table<Stored<K, V>>>,
    /// The thread that has the turn, as [`me`] says; 0 for none.
    holder: AtomicUsize,
}

thread_local! {
    static ME: u8 = const { 0 };
}

/// Differs between threads that are alive at the same time.
fn me() -> usize {
    ME.with(|here| std::ptr::from_ref(here).addr())
}

/// Says who has the turn, until it is dropped.
struct Named<'i>(&'i AtomicUsize);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

/// What the two halves of a write know of the stored value: nothing, or the value.
type Old<K, V> = Option<Stored<K, V>>;

impl<K, V> Indexer<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// An empty store without indices.
    pub fn new() -> Self {
        // Only names that are there twice are refused.
        let table = Table::new(Vec::new()).unwrap_or_else(|_| unreachable!("there is no index"));
        let (seed, core, holder) = (Seed::default(), table.core().clone(), AtomicUsize::new(0));
        Self(Arc::new(Inner { seed, core, turn: Turn::new(table), holder }))
    }

    /// Puts a value under a key, and returns what it replaced. client-go: `Add`, `Update`.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn put(&self, key: K, value: V) -> Result<Option<Stored<K, V>>, WriteError> {
        let new = self.record(key, value)?;
        self.write(|draft| put(draft, &new))?
    }

    /// Takes a key out, and returns what it had. Deleting what is not there is nothing. client-go: `Delete`.
    ///
    /// # Errors
    /// `Key` and `Reentrant`: no index refuses a deletion.
    pub fn delete<Q>(&self, key: &Q) -> Result<Option<Stored<K, V>>, WriteError>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hash_contained(key)?;
        self.write(|draft| delete(draft, hash, key))?
    }

    /// Writes several, in order, as one version: nobody sees a part of them. Each is refused for itself; the others are
    /// done. Returns those that were not. client-go: `Transaction`.
    #[must_use = "some may have been refused"]
    pub fn apply(&self, batch: impl IntoIterator<Item = Write<K, V>>) -> Vec<RefusedWrite> {
        enum Ready<K, V> {
            Put(Stored<K, V>),
            Delete(u64, Foreign<K>),
        }
        impl<K, V> Ready<K, V> {
            fn hash(&self) -> u64 {
                match self {
                    Self::Put(new) => new.0.hash,
                    Self::Delete(hash, _) => *hash,
                }
            }
        }
        let batch = batch.into_iter();
        let (mut ready, mut refused) = (Vec::with_capacity(batch.size_hint().0), Vec::new());
        for (at, write) in batch.enumerate() {
            let hashed = match write {
                Write::Put(key, value) => self.record(key, value).map(Ready::Put),
                Write::Delete(key) => {
                    let key = Foreign::new(key);
                    self.hash_contained(&*key).map(|hash| Ready::Delete(hash, key))
                }
            };
            match hashed {
                Ok(write) => ready.push((at, write)),
                Err(why) => refused.push(RefusedWrite { at, why }),
            }
        }
        let at_once = if keep("indexer: a batch is one version") { ready.len().max(1) } else { 1 };
        for part in ready.chunks(at_once) {
            let done = self.write(|draft| {
                // What is replaced is kept until the turn is over: its drop is the user's.
                let (mut changed, mut replaced, mut refused) = (false, Vec::with_capacity(part.len()), Vec::new());
                for (i, (at, write)) in part.iter().enumerate() {
                    draft.next.ask_ahead(|ahead| part.get(i + ahead).map(|(_, write)| write.hash()));
                    let (this, outcome) = match write {
                        Ready::Put(new) => put(draft, new),
                        Ready::Delete(hash, key) => delete(draft, *hash, &**key),
                    };
                    changed |= this;
                    match outcome {
                        Ok(old) => replaced.push(old),
                        Err(why) => refused.push(RefusedWrite { at: *at, why }),
                    }
                }
                (changed, (replaced, refused))
            });
            match done {
                Ok((_replaced, more)) => refused.extend(more),
                Err(why) => refused.extend(part.iter().map(|(at, _)| RefusedWrite { at: *at, why: why.clone() })),
            }
        }
        refused.sort_by_key(|refused| refused.at);
        refused
    }

    /// Puts these in the place of everything, as one version; of several with one key the last counts. A value that an
    /// index refuses is returned; its key keeps the value it had, if any. client-go: `Replace`.
    ///
    /// # Errors
    /// `Key` and `Reentrant`; then nothing was changed.
    pub fn replace(&self, all: impl IntoIterator<Item = (K, V)>) -> Result<Vec<RefusedWrite>, WriteError> {
        let all = all.into_iter();
        let mut items = Vec::with_capacity(all.size_hint().0);
        for (key, value) in all {
            items.push(self.record(key, value)?);
        }
        let same = |a: &Stored<K, V>, b: &Stored<K, V>| Stored::key(a) == Stored::key(b);
        let listed = call_out::call(Site::Key, || Whole::of(items, same)).map_err(|why| WriteError::Key { why })?;
        let (_left, outcome) = self.write(|draft| replace(draft, listed))?;
        outcome
    }

    /// Adds an index of what is stored now, at once, and of all that comes. `f` emits the values of a stored value, any
    /// number of them; the same one twice is one. It is called for every stored value before this returns, and should emit
    /// the same whenever it is called with the same. client-go: `AddIndexers`.
    ///
    /// # Errors
    /// [`IndexError`]: `Duplicate`; `Failed` when `f` panics for a stored value, and then nothing is added; `Reentrant`.
    pub fn add_index<W>(
        &self,
        name: impl Into<String>,
        f: impl Fn(&K, &V, &mut dyn FnMut(W)) + Send + Sync + 'static,
    ) -> Result<Index<W>, IndexError>
    where
        W: Eq + Hash + Send + Sync + 'static,
    {
        let name = name.into();
        let by_stored = move |stored: &Stored<K, V>, emit: &mut dyn FnMut(W)| f(Stored::key(stored), stored, emit);
        let spec = IndexSpec::over(name.clone(), itself, by_stored);
        let (done, index) = self
            .in_turn(|table| {
                let done = table.add_index(spec, AT_ONCE);
                (done, named(&name, &table.current().indices).and_then(|index| Index::of(&index.definition)))
            })
            .map_err(|_| IndexError::Reentrant)?;
        match done {
            Ok(_freed) => index,
            Err(AddIndex::Duplicate) => Err(IndexError::Duplicate { name }),
            Err(AddIndex::Failed(_stored, why)) => Err(IndexError::Failed { name, key: None, why }),
        }
    }

    /// What is stored under the key. client-go: `GetByKey`.
    pub fn get<Q>(&self, key: &Q) -> Option<Stored<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.0.seed.hash_one(key);
        // Not in the cell's own look, where user code has no place.
        self.snap().version().stored(hash, key).cloned()
    }

    /// The values for which the index emitted `value`, in no order. client-go: `ByIndex`.
    ///
    /// # Errors
    /// [`IndexError`] when there is no such index, or one of other values.
    pub fn by_index<I, Q>(&self, index: &I, value: &Q) -> Result<Vec<Stored<K, V>>, IndexError>
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
    pub fn index<W: 'static>(&self, name: &str) -> Result<Index<W>, IndexError> {
        Index::of(&named(name, &self.snap().version().indices)?.definition)
    }

    /// Everything as it is now. O(1).
    pub fn snapshot(&self) -> IndexerSnapshot<K, V> {
        IndexerSnapshot { snap: self.snap(), seed: self.0.seed.clone() }
    }

    /// How many values there are now.
    pub fn len(&self) -> usize {
        self.0.core.cell.peek(|version| version.items.len())
    }

    /// Whether there are none now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees up to `budget` things that nobody has any more: whether there are more. Each write frees what it replaced and
    /// some more, so this is for the time when nothing is written after an old snapshot was let go of. Does nothing, and
    /// says so, in a write of this thread. *Blocks*: as a write.
    pub fn reclaim(&self, budget: usize) -> bool {
        let mut freed = Freed::default();
        self.in_turn(|table| table.reclaim(budget, &mut freed)).unwrap_or(false)
    }

    /// What is kept because somebody looks at it, or looked; nothing in a write of this thread. *Blocks*: as a write.
    pub fn gauge(&self) -> Gauge {
        self.in_turn(|table| table.gauge()).unwrap_or_default()
    }

    fn snap(&self) -> Snap<Stored<K, V>> {
        Snap::current(&self.0.core)
    }

    fn hash_contained<Q: Hash + ?Sized>(&self, key: &Q) -> Result<u64, WriteError> {
        call_out::call(Site::Key, || self.0.seed.hash_one(key)).map_err(|why| WriteError::Key { why })
    }

    pub(super) fn record(&self, key: K, value: V) -> Result<Stored<K, V>, WriteError> {
        let (key, value) = (Foreign::new(key), Foreign::new(value));
        let hash = self.hash_contained(&*key)?;
        Ok(Stored::new(hash, key, value))
    }

    /// `f` in this thread's turn. What it hands out is dropped after.
    fn in_turn<R>(&self, f: impl FnOnce(&mut Table<Stored<K, V>>) -> R) -> Result<R, WriteError> {
        // Nobody else stores this thread's own name, so a stale look tells the truth about this thread.
        if self.0.holder.load(Relaxed) == me() {
            return Err(WriteError::Reentrant);
        }
        let mut table = self.0.turn.take();
        self.0.holder.store(me(), Relaxed);
        // Dropped before the turn is passed on.
        let _named = Named(&self.0.holder);
        Ok(f(&mut table))
    }

    /// One turn. `f` says whether it changed anything; if not, there is no new version.
    pub(super) fn write<R>(&self, f: impl FnOnce(&mut Draft<'_, Stored<K, V>>) -> (bool, R)) -> Result<R, WriteError> {
        let (_freed, answer) = self.in_turn(|table| {
            let mut draft = table.draft();
            let (changed, answer) = f(&mut draft);
            let budget = 2 * draft.replaced() + AT_ONCE;
            // Before anything is changed nothing is made, so a draft that did not change may be dropped.
            (changed.then(|| draft.publish(budget)), answer)
        })?;
        Ok(answer)
    }
}

fn itself<E>(stored: &E) -> &E {
    stored
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Version<Stored<K, V>> {
    /// Calls `Eq` of keys.
    fn stored<Q>(&self, hash: u64, key: &Q) -> Option<&Stored<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.items.find(hash, |stored| stored.0.hash == hash && Stored::key(stored).borrow() == key)
    }
}

/// What is stored under a key, as the writer sees it.
fn old<K, V, Q>(draft: &Draft<'_, Stored<K, V>>, hash: u64, key: &Q) -> Result<Old<K, V>, WriteError>
where
    K: Borrow<Q> + Send + Sync + 'static,
    V: Send + Sync + 'static,
    Q: Eq + ?Sized,
{
    let found = call_out::call(Site::Key, || draft.next.stored(hash, key).cloned());
    found.map_err(|why| WriteError::Key { why })
}

fn refusal<K: Send + Sync + 'static, V: Send + Sync + 'static>(
    draft: &Draft<'_, Stored<K, V>>,
    Refused { index, why }: Refused,
) -> WriteError {
    WriteError::Index { index: draft.index_names().swap_remove(index), why }
}

/// Whether the draft was changed, and the outcome.
type Step<K, V> = (bool, Result<Old<K, V>, WriteError>);

pub(super) fn put<K, V>(draft: &mut Draft<'_, Stored<K, V>>, new: &Stored<K, V>) -> Step<K, V>
where
    K: Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    match old(draft, new.0.hash, Stored::key(new)) {
        Err(why) => (false, Err(why)),
        Ok(old) => match draft.put(old.as_ref(), new) {
            Err(why) => (false, Err(refusal(draft, why))),
            Ok(()) => (true, Ok(old)),
        },
    }
}

fn delete<K, V, Q>(draft: &mut Draft<'_, Stored<K, V>>, hash: u64, key: &Q) -> Step<K, V>
where
    K: Borrow<Q> + Send + Sync + 'static,
    V: Send + Sync + 'static,
    Q: Eq + ?Sized,
{
    match old(draft, hash, key) {
        Ok(Some(old)) => {
            draft.remove(&old);
            (true, Ok(Some(old)))
        }
        nothing => (false, nothing),
    }
}

/// Whether the draft was changed; what is not stored, to be dropped after the turn; and the outcome.
type Replaced<K, V> = (bool, (Vec<Stored<K, V>>, Result<Vec<RefusedWrite>, WriteError>));

fn replace<K, V>(draft: &mut Draft<'_, Stored<K, V>>, mut listed: Whole<Stored<K, V>>) -> Replaced<K, V>
where
    K: Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let mut left = Vec::new();
    if listed.has_one_of_each_hash() && !listed.order.is_empty() {
        let before = draft.next.items.clone();
        let (names, mut refused) = (draft.index_names(), Vec::new());
        let instead = |at: usize, new: &Stored<K, V>, Refused { index, why }: Refused| {
            left.push(new.clone());
            refused.push(RefusedWrite { at, why: WriteError::Index { index: names[index].clone(), why } });
            let same = |old: &Stored<K, V>| old.0.hash == new.0.hash && Stored::key(old) == Stored::key(new);
            // Of a key that panics nothing is stored.
            call_out::call(Site::Key, || before.find(new.0.hash, same).cloned()).unwrap_or_default()
        };
        match draft.refill(listed, instead) {
            Ok(()) => return (true, (left, Ok(refused))),
            // One by one.
            Err(again) => listed = again,
        }
    }
    // All user code that compares keys first.
    let find = || listed.iter().map(|(_, new)| draft.next.stored(new.0.hash, Stored::key(new)).cloned()).collect();
    let olds: Result<Vec<Old<K, V>>, _> = call_out::call(Site::Key, find);
    let mut changed = false;
    let outcome = olds.map_err(|why| WriteError::Key { why }).map(|olds| {
        let again: HashSet<usize> = olds.iter().flatten().map(Item::address).collect();
        let gone: Vec<_> = draft.next.items.iter().filter(|stored| !again.contains(&stored.address())).cloned().collect();
        changed = !gone.is_empty();
        gone.iter().for_each(|stored| draft.remove(stored));
        let mut refused = Vec::new();
        for ((at, new), old) in listed.iter().zip(&olds) {
            match draft.put(old.as_ref(), new) {
                Ok(()) => changed = true,
                Err(why) => refused.push(RefusedWrite { at, why: refusal(draft, why) }),
            }
        }
        refused.sort_unstable_by_key(|refused| refused.at);
        refused
    });
    left.extend(listed.items.into_iter().flatten());
    (changed, (left, outcome))
}

impl<K, V> Default for Indexer<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Clone for Indexer<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> fmt::Debug for Indexer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "indexer of {} values", self.0.core.cell.peek(|version| version.items.len()))
    }
}

/// Everything that an [`Indexer`] had at one instant. Never changes; keeps what it shows while it is held. Clone is O(1).
/// *Blocks*: as [`Snapshot`](super::Snapshot).
pub struct IndexerSnapshot<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    snap: Snap<Stored<K, V>>,
    seed: Seed,
}

impl<K, V> IndexerSnapshot<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// What is stored under the key.
    pub fn get<Q>(&self, key: &Q) -> Option<&Stored<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.snap.version().stored(self.seed.hash_one(key), key)
    }

    /// Everything, in no order; the same order whenever this snapshot is walked. client-go: `List`.
    pub fn iter(&self) -> impl Iterator<Item = &Stored<K, V>> {
        self.snap.version().items.iter()
    }

    /// The values for which the index emitted `value`, in no order; none when there are none.
    ///
    /// # Errors
    /// [`IndexError`] when there is no such index, or one of other values.
    pub fn by_index<I, Q>(&self, index: &I, value: &Q) -> Result<impl Iterator<Item = &Stored<K, V>>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let version = self.snap.version();
        let posting = self.find(index)?.find::<I::Value, Q>(value);
        let ids = posting.map(|posting| posting.ids.iter()).unwrap_or_default();
        Ok(version.by_ids(ids.copied()))
    }

    /// Every value that the index emitted for something stored, sorted. client-go: `ListIndexFuncValues`, unsorted.
    ///
    /// # Errors
    /// As [`IndexerSnapshot::by_index`].
    pub fn index_values<I>(&self, index: &I) -> Result<Vec<&I::Value>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Ord,
    {
        let mut values: Vec<_> = self.find(index)?.values::<I::Value>().collect();
        values.sort_unstable();
        Ok(values)
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.snap.version().items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the version: 0 before the first write, and one more with each call that changed something.
    pub fn seq(&self) -> u64 {
        self.snap.version().seq
    }

    fn find<I: IndexRef + ?Sized>(&self, index: &I) -> Result<&IndexVersion, IndexError> {
        index.find(&self.snap.version().indices)
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Clone for IndexerSnapshot<K, V> {
    fn clone(&self) -> Self {
        Self { snap: self.snap.clone(), seed: self.seed.clone() }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> fmt::Debug for IndexerSnapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.snap.version();
        write!(f, "snapshot {} of {} values", version.seq, version.items.len())
    }
}
