//! One version of the store, the core that the current one is published in, and the erased handles to both.
//!
//! # Ids
//! An index knows an object by a number: the hash of its key. Should another key of the store have that hash already, the
//! object gets another number that begins with the same bits (so that it leads to the same page) and that no object has:
//! an *alias*. The list of aliases is part of the version, and empty as long as hashes differ.
//!
//! # The last one out
//! A [`Snap`] has a handle to its version and one to the core, and lets go of the version first. While there is a writer
//! it has the ledger, and nobody else frees anything. When the writer goes it leaves the ledger in the core, and whoever
//! lets go of an overtaken version frees what that kept, on its own thread. Who goes last, reader or snapshot, frees the
//! rest. A writer that leaves and a snapshot that goes at the same moment meet at the word `gone`, which both swap: the writer
//! leaves the ledger, swaps, and looks who is dead; the snapshot lets go, swaps, and looks for the ledger. Whoever swaps second
//! sees what the other did. In the same way a snapshot that goes meets a writer that looks for the dead (`waiting`).

use super::{
    Diff, Index, IndexError, StoreReader,
    cell::{Held, VersionCell},
    directory::{Tree, Way},
    index::IndexVersion,
    node::{Entry, LINE, prefetch},
    reader::{Snapshot, index_of},
    reclaim::{Freed, Item, Ledger, dismantle},
    typed::OneType,
};
use crate::{
    flow::{AsKey, KeyRef, KnownObjects, Object, ObjectKey, Opaque, Sought},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        keep, order,
    },
};
use hashbrown::HashSet;
use std::fmt;

impl Entry for Object<Opaque> {
    const MARKS: bool = true;

    fn hash(&self) -> u64 {
        Object::key(self).hash64()
    }
}

impl Item for Object<Opaque> {
    fn admit(&self, to: &OneType) {
        to.admit(self);
    }

    fn address(&self) -> usize {
        Object::address(self)
    }
}

/// How many objects are on their way at once when several are asked for.
const AHEAD: usize = 16;

/// An object whose id is not the hash of its key.
#[derive(Clone, Copy)]
struct Alias {
    id: u64,
    address: usize,
}

/// Everything that is true at one instant. Never changed once published; the writer edits a copy, which shares the nodes.
pub(super) struct Version<E> {
    pub(super) seq: u64,
    pub(super) version: Arc<str>,
    pub(super) initial_done: bool,
    pub(super) items: Tree<E>,
    /// Shared with the version before, when no index changed.
    pub(super) indices: Arc<Vec<IndexVersion>>,
    aliases: Option<Arc<Vec<Alias>>>,
    /// Objects that are left from an era before the current one: their versions prove nothing. Mostly none.
    pub(super) outdated: Option<Arc<HashSet<ObjectKey>>>,
}

impl<E: Item> Version<E> {
    pub(super) fn before_anything(indices: Vec<IndexVersion>) -> Self {
        let (version, items, indices) = (Arc::from(""), Tree::default(), Arc::new(indices));
        Self { seq: 0, version, initial_done: false, items, indices, aliases: None, outdated: None }
    }

    /// The one after it, to be changed.
    pub(super) fn next(&self) -> Self {
        Self {
            seq: self.seq + 1,
            version: self.version.clone(),
            initial_done: self.initial_done,
            items: self.items.clone(),
            indices: self.indices.clone(),
            aliases: self.aliases.clone(),
            outdated: self.outdated.clone(),
        }
    }

    fn aliases(&self) -> &[Alias] {
        self.aliases.as_ref().map_or(&[], |aliases| aliases)
    }

    /// By which number indices know a stored object.
    pub(super) fn id_of(&self, item: &E) -> u64 {
        let alias = self.aliases().iter().find(|alias| alias.address == item.address());
        alias.map_or_else(|| item.hash(), |alias| alias.id)
    }

    /// The object that indices of this version know by a number, which one of them has.
    pub(super) fn by_id(&self, id: u64) -> Option<&E> {
        let aliases = self.aliases();
        if aliases.is_empty() {
            return self.items.known(id);
        }
        if let Some(alias) = aliases.iter().find(|alias| alias.id == id) {
            let (page, _) = self.items.page(id)?;
            return page.entries().iter().map(|e| e.get()).find(|item| item.address() == alias.address);
        }
        let is = |item: &E| item.hash() == id && !aliases.iter().any(|alias| alias.address == item.address());
        self.items.find(id, is)
    }

    /// The objects of such numbers. Looks ahead: while some objects are handed out, the memory of the next ones is on its
    /// way, and the pages of those after them.
    pub(super) fn by_ids<I: Iterator<Item = u64>>(&self, ids: I) -> ByIds<'_, E, I> {
        ByIds { version: self, ids, next: [None; AHEAD], found: [None; AHEAD], ready: [None; AHEAD], at: AHEAD, left: 0 }
    }

    /// Asks for the memory of what will be looked up, in the order of when it will be: `hash` says what is looked up so
    /// many look-ups later.
    #[inline]
    pub(super) fn ask_ahead(&self, hash: impl Fn(usize) -> Option<u64>) {
        if let Some(later) = hash(AHEAD) {
            self.items.prefetch(later);
        }
        if let Some(item) = hash(AHEAD / 2).and_then(|soon| self.items.known(soon)) {
            prefetch(item.address());
        }
    }

    /// Every object, to be counted up: their memory is asked for page by page.
    pub(super) fn all(&self) -> impl Iterator<Item = &E> {
        self.items.pages().flat_map(|page| {
            page.iter().for_each(|e| prefetch(e.get().address()));
            page.iter().map(|e| e.get())
        })
    }

    /// Forgets the numbers: every object has that of its hash from now on, since no two have one hash.
    pub(super) fn forget_aliases(&mut self) {
        self.aliases = None;
    }

    /// Gives an object that is about to be added its number.
    pub(super) fn new_id(&mut self, item: &E) -> u64 {
        let hash = item.hash();
        let taken = |version: &Self, id| {
            version.aliases().iter().any(|alias| alias.id == id) || version.items.find(id, |e| e.hash() == id).is_some()
        };
        if !taken(self, hash) {
            return hash;
        }
        // A page's range is larger than this for any tree that fits into memory.
        let near = |n: u64| hash & !0xffff_ffff | hash.wrapping_add(n) & 0xffff_ffff;
        let id = (1..=u64::from(u32::MAX)).map(near).find(|id| !taken(self, *id)).unwrap_or(hash);
        let aliases = self.aliases.get_or_insert_default();
        Arc::make_mut(aliases).push(Alias { id, address: item.address() });
        id
    }

    /// The number of `old` is that of `new` from now on, or nobody's.
    pub(super) fn pass_id(&mut self, old: &E, new: Option<&E>) {
        let Some(aliases) = &mut self.aliases else { return };
        let Some(at) = aliases.iter().position(|alias| alias.address == old.address()) else { return };
        let aliases = Arc::make_mut(aliases);
        match new {
            Some(new) => aliases[at].address = new.address(),
            None => drop(aliases.swap_remove(at)),
        }
        if aliases.is_empty() {
            self.aliases = None;
        }
    }
}

impl Version<Object<Opaque>> {
    #[inline]
    pub(super) fn get(&self, key: Sought<'_>) -> Option<&Object<Opaque>> {
        self.items.find(key.hash(), |object| {
            // Whoever finds an object looks at its value, which begins behind the first line.
            prefetch(Object::address(object) + LINE);
            key.is(Object::key(object))
        })
    }

    pub(super) fn is_outdated(&self, key: &ObjectKey) -> bool {
        self.outdated.as_ref().is_some_and(|outdated| outdated.contains(key))
    }
}

/// See [`Version::by_ids`].
pub(super) struct ByIds<'v, E, I> {
    version: &'v Version<E>,
    ids: I,
    /// Their pages are on their way.
    next: [Option<Way<'v, E>>; AHEAD],
    /// These are themselves.
    found: [Option<&'v E>; AHEAD],
    ready: [Option<&'v E>; AHEAD],
    at: usize,
    /// So many were taken from `ids` and are not handed out.
    left: usize,
}

impl<'v, E: Item, I: Iterator<Item = u64>> ByIds<'v, E, I> {
    /// Moves each of the three one step on.
    fn step(&mut self) {
        (self.ready, self.at) = (self.found, 0);
        let plain = self.version.aliases().is_empty();
        // All of them at once: no count is touched in between, so their look-ups overlap.
        for (found, next) in self.found.iter_mut().zip(&mut self.next) {
            let Some(way) = next.take() else {
                *found = None;
                continue;
            };
            *found = if plain { way.known() } else { self.version.by_id(way.hash()) };
            match found {
                Some(item) => prefetch(item.address()),
                None => self.left -= 1,
            }
        }
        for (next, id) in self.next.iter_mut().zip(&mut self.ids) {
            // There is a way to each: nothing is stored when there is none.
            *next = self.version.items.way(id);
            if let Some(way) = next {
                way.prefetch_tags();
                self.left += 1;
            }
        }
    }
}

impl<'v, E: Item, I: Iterator<Item = u64>> Iterator for ByIds<'v, E, I> {
    type Item = &'v E;

    #[inline]
    fn next(&mut self) -> Option<&'v E> {
        loop {
            while let Some(ready) = self.ready.get(self.at) {
                self.at += 1;
                if ready.is_some() {
                    self.left -= 1;
                    return *ready;
                }
            }
            self.step();
            if self.left == 0 {
                return None;
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.ids.size_hint();
        (least + self.left, most.map(|most| most + self.left))
    }
}

/// What readers, snapshots and the writer of one store share.
pub(super) struct Core<E: Item> {
    pub(super) cell: VersionCell<Version<E>>,
    /// Something waits for a version to be let go of, and the writer's owner is to be told when one is.
    pub(super) waiting: AtomicBool,
    /// One was, since the writer last looked at all of them.
    pub(super) gone: AtomicBool,
    /// There is no writer any more, and `left` has its ledger.
    orphaned: AtomicBool,
    /// Never contended: it is there before anybody is told, and then `asked` says who looks into it.
    left: Mutex<Option<Ledger<E>>>,
    /// How often it was asked to free what nobody has, since that was last done; whoever asks first does it, for all.
    asked: AtomicUsize,
    /// What all its objects are of, when it does not say it in its own type.
    pub(super) one_type: OneType,
    /// Tells the writer's owner that there is something to free.
    pub(super) nudge: Once<Box<dyn Fn() + Send + Sync>>,
}

impl<E: Item> Core<E> {
    pub(super) fn new(first: Held<Version<E>>) -> Self {
        Self {
            cell: VersionCell::new(first),
            waiting: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            left: Mutex::new(None),
            asked: AtomicUsize::new(0),
            one_type: OneType::default(),
            nudge: Once::new(),
        }
    }

    /// A version was let go of, and only the ledger has it now; or the current one is, after the end of the writer.
    fn let_go(&self) {
        self.gone.swap(true, order("store: a snapshot that goes says so", Ordering::AcqRel));
        if self.orphaned.load(Ordering::Relaxed) {
            self.settle();
        } else if self.waiting.load(Ordering::Relaxed)
            && self.waiting.swap(false, Ordering::Relaxed)
            && let Some(nudge) = self.nudge.get()
        {
            nudge();
        }
    }

    /// The writer goes.
    pub(super) fn orphan(&self, ledger: Ledger<E>) {
        *self.left.lock() = Some(ledger);
        self.orphaned.store(true, Ordering::Relaxed);
        self.gone.swap(false, order("store: a writer that goes asks who has gone", Ordering::AcqRel));
        self.settle();
    }

    /// Frees what nobody has, when there is no writer to do it. Whoever finds somebody at it leaves it to them, who look
    /// again before they go; so nobody waits.
    fn settle(&self) {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let mut answered = 1;
        loop {
            let mut freed = Freed::default();
            if let Some(ledger) = &mut *self.left.lock() {
                ledger.settle(&self.cell, &mut freed);
            }
            drop(freed);
            if !keep("store: whoever frees looks again when asked meanwhile") {
                self.asked.store(0, Ordering::Relaxed);
                return;
            }
            match self.asked.compare_exchange(answered, 0, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => answered = now,
            }
        }
    }
}

impl<E: Item> Drop for Core<E> {
    fn drop(&mut self) {
        let mut freed = Freed::default();
        // Whoever held a version held this, so nobody does; and the writer has left its ledger.
        let ledger = self.left.lock().take();
        if let Some(mut ledger) = ledger {
            ledger.settle(&self.cell, &mut freed);
            debug_assert_eq!(ledger.versions(), 0, "a version outlives its store");
            dismantle(&self.cell.load(), &mut freed);
        }
    }
}

/// A version that somebody keeps.
pub(super) struct Snap<E: Item> {
    /// There until the drop.
    version: Option<Held<Version<E>>>,
    core: Arc<Core<E>>,
}

impl<E: Item> Snap<E> {
    pub(super) fn of(version: Held<Version<E>>, core: &Arc<Core<E>>) -> Self {
        Self { version: Some(version), core: core.clone() }
    }

    pub(super) fn current(core: &Arc<Core<E>>) -> Self {
        Self::of(core.cell.load(), core)
    }

    pub(super) fn version(&self) -> &Version<E> {
        self.version.as_deref().unwrap_or_else(|| unreachable!("a snapshot has its version until it is dropped"))
    }
}

impl<E: Item> Clone for Snap<E> {
    fn clone(&self) -> Self {
        Self { version: self.version.clone(), core: self.core.clone() }
    }
}

impl<E: Item> Drop for Snap<E> {
    fn drop(&mut self) {
        if self.version.take().is_some_and(|version| version.release() == 1) {
            self.core.let_go();
        }
    }
}

/// A snapshot that does not know the type of its objects. Clone is two counts.
#[derive(Clone)]
pub(crate) struct AnySnapshot(pub(super) Snap<Object<Opaque>>);

impl AnySnapshot {
    /// What a listener has that was told nothing yet: no objects, `seq` 0.
    pub(crate) fn empty() -> Self {
        let nothing = Held::new(Version::before_anything(Vec::new()));
        Self(Snap::of(nothing.clone(), &Arc::new(Core::new(nothing))))
    }

    pub(super) fn version_of(&self) -> &Version<Object<Opaque>> {
        self.0.version()
    }

    pub(super) fn one_type(&self) -> &OneType {
        &self.0.core.one_type
    }

    /// The number of the publication that made it; 0 before the first.
    pub(crate) fn seq(&self) -> u64 {
        self.0.version().seq
    }

    /// The source's version, opaque.
    pub(crate) fn version(&self) -> &str {
        &self.0.version().version
    }

    /// Whether the source's first whole state is in it.
    pub(crate) fn initial_done(&self) -> bool {
        self.0.version().initial_done
    }

    /// How many objects.
    pub(crate) fn len(&self) -> usize {
        self.0.version().items.len()
    }

    /// The object with this key.
    pub(crate) fn get(&self, key: &impl AsKey) -> Option<&Object<Opaque>> {
        self.0.version().get(Sought::by(key))
    }

    /// Every object, in no order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object<Opaque>> {
        self.0.version().items.iter()
    }

    /// What has to be told to somebody who has `self` so that they have `newer`, found as it is asked for, each key once,
    /// in no order of keys. Objects that are the same allocation in both are skipped; what is gone is `Deleted::Missed`
    /// with the object of `self`.
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
pub(crate) struct AnyReader(pub(super) Arc<Core<Object<Opaque>>>);

impl AnyReader {
    /// The current version.
    pub(crate) fn snapshot(&self) -> AnySnapshot {
        AnySnapshot(Snap::current(&self.0))
    }

    /// The object that is stored for a key now.
    pub(crate) fn get(&self, key: &impl AsKey) -> Option<Object<Opaque>> {
        let key = Sought::by(key);
        self.0.cell.peek(|version| version.get(key).cloned())
    }

    /// Lends the object that is stored for a key now, touching no count.
    pub(crate) fn with<R>(&self, key: &impl AsKey, f: impl FnOnce(&Object<Opaque>) -> R) -> Option<R> {
        let key = Sought::by(key);
        self.0.cell.peek(|version| version.get(key).map(f))
    }

    /// Lends the current version, touching no count.
    pub(super) fn peek<R>(&self, f: impl FnOnce(&Version<Object<Opaque>>) -> R) -> R {
        self.0.cell.peek(f)
    }

    /// The object that stands for its version: what is stored for the key, unless it is left from an era before.
    pub(crate) fn known(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        let key = Sought::by(&key);
        self.0.cell.peek(|version| version.get(key).filter(|o| !version.is_outdated(Object::key(o))).cloned())
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
        Self::get(self, &key)
    }

    fn for_each_key(&self, f: &mut dyn FnMut(&ObjectKey)) {
        self.snapshot().objects().map(Object::key).for_each(f);
    }
}
