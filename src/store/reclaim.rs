//! Who frees what of the versions, and when.
//!
//! # The interval rule
//! What a version in the making replaces was in an unbroken row of versions: from its birth to the one before. So it is
//! freed at once when none of those lives; else it goes on the list of the newest of them that does. When a version dies,
//! its list is placed again in the same way, among older ones. Hence a held version keeps what it reaches and nothing else,
//! and when it is let go of, so is all of that.
//!
//! Nodes and values know their birth. An object does not: it may be in two stores at once, so there is no room for it in
//! the object, and none in the page. Whether a version has it is asked of that version, and of the newest older one only:
//! if that has it not, no older one has. An object that was taken out and put in again is several entries; a version's
//! list holds one of them and drops the others, since one keeps the object for all.
//!
//! # Dead or alive
//! A replaced version is alive while somebody has a handle to it or stands on it in the cell; the [`Ledger`] has one handle
//! of its own, and a version whose only handle that is can be had by nobody again (`cell.rs`: slots first, then the count).
//!
//! # Steps
//! Nothing here is done in one go but the end. What is dead waits in piles, and each step frees a bounded part
//! ([`Ledger::drain`]). What contains the user's is not dropped here but handed out ([`Freed`]), so that its `Drop` runs
//! where nobody waits.

use super::{
    cell::{Held, VersionCell},
    directory::Bin,
    index::Value,
    node::{Bare, Entry, Kept, Leaf, prefetch},
    typed::OneType,
    version::Version,
};
use crate::sync::Seed;
use hashbrown::{HashTable, hash_table};
use std::{collections::VecDeque, hash::BuildHasher};

/// What a step frees beyond twice what it replaced, at most. Things may be the user's, and dear to free.
pub(super) const AT_ONCE: usize = 64;

/// What a store keeps: a counted handle, compared by what it points to.
pub(super) trait Item: Entry + Clone + Send + Sync + 'static {
    /// Equal for handles to one allocation only.
    fn address(&self) -> usize;

    /// Called before it is put into a store. Panics when it does not belong there.
    fn admit(&self, to: &OneType) {
        let _ = to;
    }
}

/// How many objects that are to be dropped are asked for ahead.
const AHEAD: usize = 8;

/// Something that a version has replaced.
pub(super) enum Dead<E> {
    Node(Bare),
    Value(Leaf<Value>),
    Item(Kept<E>),
}

/// What a version in the making has replaced.
pub(super) struct Waste<E> {
    birth: u64,
    dead: Vec<Dead<E>>,
}

impl<E> Waste<E> {
    pub(super) fn of(birth: u64) -> Self {
        Self { birth, dead: Vec::new() }
    }

    pub(super) fn item(&mut self, item: Kept<E>) {
        self.dead.push(Dead::Item(item));
    }

    pub(super) fn value(&mut self, value: Leaf<Value>) {
        if value.get().birth == self.birth {
            drop(value.free());
        } else {
            self.dead.push(Dead::Value(value));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.dead.len()
    }
}

impl<E> Bin for Waste<E> {
    fn birth(&self) -> u64 {
        self.birth
    }

    fn discard(&mut self, node: Bare) {
        if node.birth() == self.birth {
            node.free();
        } else {
            self.dead.push(Dead::Node(node));
        }
    }
}

/// What no version has any more and contains the user's. Drops it when dropped: where nobody waits.
#[must_use = "dropped where nobody waits"]
pub(super) struct Freed<E: Item> {
    values: Vec<Leaf<Value>>,
    items: Vec<Kept<E>>,
}

impl<E: Item> Default for Freed<E> {
    fn default() -> Self {
        Self { values: Vec::new(), items: Vec::new() }
    }
}

impl<E: Item> Freed<E> {
    fn take(&mut self, dead: Dead<E>) {
        match dead {
            Dead::Node(node) => node.free(),
            Dead::Value(value) => self.values.push(value),
            Dead::Item(item) => self.items.push(item),
        }
    }
}

impl<E: Item> Drop for Freed<E> {
    fn drop(&mut self) {
        // Objects and values contain the panics of their own drops.
        self.values.drain(..).for_each(|value| drop(value.free()));
        // Each is asked for while those before it are dropped.
        while let Some(item) = self.items.pop() {
            if let Some(later) = self.items.len().checked_sub(AHEAD) {
                prefetch(self.items[later].get().address());
            }
            drop(item.release());
        }
    }
}

/// A replaced version that somebody may have.
struct Live<E> {
    version: Held<Version<E>>,
    nodes: Vec<Bare>,
    values: Vec<Leaf<Value>>,
    /// By address.
    items: HashTable<Kept<E>>,
}

impl<E> Live<E> {
    fn pinned(&self) -> usize {
        self.nodes.len() + self.values.len() + self.items.len()
    }
}

/// Dead things that may be in versions before this one.
struct Pile<E> {
    before: u64,
    dead: Vec<Dead<E>>,
    nodes: Vec<Bare>,
    values: Vec<Leaf<Value>>,
    items: hash_table::IntoIter<Kept<E>>,
}

impl<E> Pile<E> {
    fn pop(&mut self) -> Option<Dead<E>> {
        let nodes = || self.nodes.pop().map(Dead::Node);
        let dead = self.dead.pop().or_else(nodes);
        dead.or_else(|| self.values.pop().map(Dead::Value)).or_else(|| self.items.next().map(Dead::Item))
    }
}

/// What a store keeps for whoever looks at older versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Replaced versions that somebody has, or had when it was last looked.
    pub versions: usize,
    /// Nodes, values and objects that only those have.
    pub pinned: usize,
    /// The same, of versions that nobody has, waiting to be freed.
    pub waiting: usize,
    /// Versions that somebody was in the middle of reading when it was last looked. Nobody tells of the end of that.
    pub standing: usize,
}

/// See the file's text. There is one per store, and one thread at a time has it.
pub(super) struct Ledger<E> {
    /// Oldest first.
    live: VecDeque<Live<E>>,
    piles: VecDeque<Pile<E>>,
    pinned: usize,
    waiting: usize,
    standing: usize,
    /// Which live version is looked at next.
    turn: usize,
    hasher: Seed,
}

impl<E> Default for Ledger<E> {
    fn default() -> Self {
        let (live, piles, hasher) = (VecDeque::new(), VecDeque::new(), Seed::default());
        Self { live, piles, pinned: 0, waiting: 0, standing: 0, turn: 0, hasher }
    }
}

impl<E: Item> Ledger<E> {
    /// `old` was replaced by the version `seq`, in whose making this came up.
    pub(super) fn replaced(&mut self, old: Held<Version<E>>, seq: u64, waste: Waste<E>) {
        if !old.is_only() {
            self.live.push_back(Live { version: old, nodes: Vec::new(), values: Vec::new(), items: HashTable::new() });
        }
        if waste.len() > 0 {
            self.waiting += waste.len();
            let (nodes, values, items) = (Vec::new(), Vec::new(), HashTable::new().into_iter());
            self.piles.push_back(Pile { before: seq, dead: waste.dead, nodes, values, items });
        }
    }

    /// Looks which of so many replaced versions are dead.
    pub(super) fn sweep(&mut self, versions: usize) {
        for _ in 0..versions.min(self.live.len()) {
            if self.turn >= self.live.len() {
                self.turn = 0;
            }
            if !self.live[self.turn].version.is_only() {
                self.turn += 1;
            } else if let Some(dead) = self.live.remove(self.turn) {
                self.pinned -= dead.pinned();
                self.waiting += dead.pinned();
                let Live { version, nodes, values, items } = dead;
                self.piles.push_back(Pile { before: version.seq, dead: Vec::new(), nodes, values, items: items.into_iter() });
            }
        }
        without_room(&mut self.live);
    }

    /// Frees, or hands to an older version, so many dead things.
    pub(super) fn drain(&mut self, mut budget: usize, freed: &mut Freed<E>) {
        while let Some(pile) = self.piles.front_mut() {
            let before = pile.before;
            let Some(dead) = pile.pop() else {
                self.piles.pop_front();
                continue;
            };
            if budget == 0 {
                // It was popped to see whether there is one.
                pile.dead.push(dead);
                return;
            }
            budget -= 1;
            self.waiting -= 1;
            let older = self.live.partition_point(|live| live.version.seq < before);
            self.place(dead, older, freed);
        }
        without_room(&mut self.piles);
    }

    /// `older`: how many of the live versions may have it.
    fn place(&mut self, dead: Dead<E>, older: usize, freed: &mut Freed<E>) {
        let Some(newest) = older.checked_sub(1).map(|at| &mut self.live[at]) else { return freed.take(dead) };
        let seq = newest.version.seq;
        match dead {
            Dead::Node(node) if node.birth() <= seq => newest.nodes.push(node),
            Dead::Value(value) if value.get().birth <= seq => newest.values.push(value),
            Dead::Item(item) => {
                let address = item.get().address();
                if newest.version.items.find(item.get().hash(), |e| e.address() == address).is_none() {
                    return freed.take(Dead::Item(item));
                }
                let hasher = |item: &Kept<E>| self.hasher.hash_one(item.get().address());
                match newest.items.entry(hasher(&item), |e| e.get().address() == address, hasher) {
                    hash_table::Entry::Occupied(_) => return freed.take(Dead::Item(item)),
                    hash_table::Entry::Vacant(vacant) => drop(vacant.insert(item)),
                }
            }
            _ => return freed.take(dead),
        }
        self.pinned += 1;
    }

    /// Frees everything but what versions hold that somebody has.
    pub(super) fn settle(&mut self, cell: &VersionCell<Version<E>>, freed: &mut Freed<E>) {
        self.look(cell, usize::MAX);
        self.drain(usize::MAX, freed);
    }

    /// Looks which of so many replaced versions are dead.
    pub(super) fn look(&mut self, cell: &VersionCell<Version<E>>, versions: usize) {
        let (left, let_go) = cell.tidy();
        self.standing = left;
        // Nobody tells of the end of a read.
        self.sweep(if let_go > 0 { usize::MAX } else { versions });
    }

    pub(super) fn versions(&self) -> usize {
        self.live.len()
    }

    /// What its own lists have room for.
    #[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
    pub(super) fn room(&self) -> usize {
        self.live.capacity() + self.piles.capacity()
    }

    pub(super) fn gauge(&self) -> Gauge {
        Gauge { versions: self.live.len(), pinned: self.pinned, waiting: self.waiting, standing: self.standing }
    }
}

/// While a large pile is freed, each step puts a small one behind it; and there may have been many versions.
fn without_room<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > 32 {
        *queue = VecDeque::new();
    }
}

/// Frees a whole version, when it is the last one and nobody has it.
pub(super) fn dismantle<E: Item>(version: &Version<E>, freed: &mut Freed<E>) {
    freed.items.reserve_exact(version.items.len());
    version.items.nodes(&mut |node| {
        if node.kind() == super::node::Kind::Page {
            (0..node.len()).for_each(|i| freed.items.push(node.entry_again(i)));
        }
        node.bare().free();
    });
    for index in &version.indices {
        index.dismantle(&mut |value| freed.values.push(value));
    }
}
