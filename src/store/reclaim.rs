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
//! if that has it not, no older one has. An object that was taken out and put in again is several entries, of which one is
//! enough to keep it. A list that has more of them than its version has objects must have such; when there are twice as
//! many, the others are dropped ([`Live::once`]).
//!
//! # Dead or alive
//! A replaced version is alive while somebody has a handle to it or stands on it in the cell; the [`Ledger`] has one handle
//! of its own, and a version whose only handle that is can be had by nobody again (`cell.rs`: slots first, then the count).
//! Nothing is placed on the list of a dead one, so of many that die together none hands its list through the others.
//!
//! # Steps
//! Nothing here is done in one go but the end, and [`Live::once`], which goes through the list of one version, at most once
//! in as many placements as that version has objects. What is dead waits in piles, and each step frees a bounded part
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
use hashbrown::HashSet;
use smallvec::SmallVec;
use std::collections::{LinkedList, VecDeque};

/// What a step frees beyond twice what it replaced, at most. Things may be the user's, and dear to free.
pub(super) const AT_ONCE: usize = 16;

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

/// Replaced versions that are looked at in a step.
const SWEEP: usize = 8;

/// So many are worth being sorted before they are dropped.
const WORTH_SORTING: usize = 1024;

/// Something that a version has replaced.
pub(super) enum Dead<E> {
    Node(Bare),
    Value(Leaf<Value>),
    Item(Kept<E>),
}

/// A stack in pieces: neither growing nor shrinking moves more than one of them or asks the allocator for anything large, which
/// would take longer than all else in a step.
struct Pieces<T> {
    last: Vec<T>,
    full: LinkedList<Vec<T>>,
}

/// Room of a piece.
const PIECE: usize = 64;

impl<T> Pieces<T> {
    /// With room of an empty one.
    fn on(room: Vec<T>) -> Self {
        Self { last: room, full: LinkedList::new() }
    }

    fn push(&mut self, thing: T) {
        if self.last.len() >= PIECE {
            self.full.push_back(std::mem::replace(&mut self.last, Vec::with_capacity(PIECE)));
        }
        self.last.push(thing);
    }

    fn pop(&mut self) -> Option<T> {
        while self.last.is_empty() {
            self.last = self.full.pop_back()?;
        }
        self.last.pop()
    }

    /// Takes out those for which `is` holds, and the room they had.
    fn take_if(&mut self, mut is: impl FnMut(&T) -> bool, mut out: impl FnMut(T)) {
        let Self { last, full } = std::mem::replace(self, Self::on(Vec::new()));
        for thing in full.into_iter().flatten().chain(last) {
            if is(&thing) { out(thing) } else { self.push(thing) }
        }
    }
}

/// What a version in the making has replaced.
pub(super) struct Waste<E> {
    birth: u64,
    dead: Pieces<Dead<E>>,
    len: usize,
}

impl<E> Waste<E> {
    fn push(&mut self, dead: Dead<E>) {
        self.dead.push(dead);
        self.len += 1;
    }

    pub(super) fn item(&mut self, item: Kept<E>) {
        self.push(Dead::Item(item));
    }

    pub(super) fn value(&mut self, value: Leaf<Value>) {
        if value.get().birth == self.birth {
            drop(value.free());
        } else {
            self.push(Dead::Value(value));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
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
            self.push(Dead::Node(node));
        }
    }
}

/// What no version has any more and contains the user's. Drops it when dropped: where nobody waits.
#[must_use = "dropped where nobody waits"]
pub(super) struct Freed<E: Item> {
    values: Vec<Leaf<Value>>,
    items: SmallVec<[Kept<E>; 4]>,
}

impl<E: Item> Default for Freed<E> {
    fn default() -> Self {
        Self { values: Vec::new(), items: SmallVec::new() }
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
        if self.items.len() >= WORTH_SORTING {
            in_order_of_memory(&mut self.items);
        }
        // Each is asked for while those before it are dropped.
        while let Some(item) = self.items.pop() {
            if let Some(later) = self.items.len().checked_sub(AHEAD) {
                prefetch(self.items[later].get().address());
            }
            drop(item.release());
        }
    }
}

/// So that they can be dropped one after another as they stand in memory, which is mostly how they were made; what they point
/// to was made with them.
pub(super) fn in_order_of_memory<E: Item>(items: &mut [Kept<E>]) {
    items.sort_unstable_by_key(|item| item.get().address());
}

/// A replaced version that somebody may have.
struct Live<E> {
    version: Held<Version<E>>,
    dead: Pieces<Dead<E>>,
    pinned: usize,
    /// How many of them are objects.
    items: usize,
}

impl<E: Item> Live<E> {
    /// Keeps each object once.
    fn once(&mut self, freed: &mut Freed<E>) {
        let mut seen = HashSet::with_capacity(self.version.items.len());
        let again = |dead: &Dead<E>| matches!(dead, Dead::Item(item) if !seen.insert(item.get().address()));
        self.dead.take_if(again, |dead| freed.take(dead));
        self.pinned -= self.items - seen.len();
        self.items = seen.len();
    }
}

/// Dead things that may be in versions before this one.
struct Pile<E> {
    before: u64,
    dead: Pieces<Dead<E>>,
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
    /// Room of a small pile that was freed, for the next one.
    room: Vec<Dead<E>>,
}

impl<E> Default for Ledger<E> {
    fn default() -> Self {
        let (live, piles, room) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Self { live, piles, pinned: 0, waiting: 0, standing: 0, turn: 0, room }
    }
}

impl<E: Item> Ledger<E> {
    /// For what the making of the version `birth` replaces.
    pub(super) fn waste(&mut self, birth: u64) -> Waste<E> {
        Waste { birth, dead: Pieces::on(std::mem::take(&mut self.room)), len: 0 }
    }

    /// `old` was replaced by the version `seq`, in whose making this came up. Frees, or hands to an older version, so many
    /// of the things that nobody has any more.
    pub(super) fn replaced(&mut self, old: Held<Version<E>>, seq: u64, waste: Waste<E>, budget: usize, freed: &mut Freed<E>) {
        if !old.is_only() {
            self.live.push_back(Live { version: old, dead: Pieces::on(Vec::new()), pinned: 0, items: 0 });
        }
        let Waste { mut dead, len, .. } = waste;
        if self.live.is_empty() && self.piles.is_empty() && len <= budget {
            // Mostly so: nobody has an older version, and nothing is left from before.
            while let Some(dead) = dead.pop() {
                freed.take(dead);
            }
            self.room = dead.last;
            return;
        }
        if len > 0 {
            self.waiting += len;
            self.piles.push_back(Pile { before: seq, dead });
        }
        self.sweep(SWEEP);
        self.drain(budget, freed);
    }

    /// Looks which of so many replaced versions are dead.
    fn sweep(&mut self, versions: usize) {
        for _ in 0..versions.min(self.live.len()) {
            if self.turn >= self.live.len() {
                self.turn = 0;
            }
            if !self.live[self.turn].version.is_only() {
                self.turn += 1;
            } else {
                self.bury(self.turn);
            }
        }
        without_room(&mut self.live);
    }

    /// A live version was found to be dead.
    fn bury(&mut self, at: usize) {
        let Some(Live { version, dead, pinned, .. }) = self.live.remove(at) else { return };
        self.pinned -= pinned;
        self.waiting += pinned;
        if pinned > 0 {
            self.piles.push_back(Pile { before: version.seq, dead });
        }
    }

    /// Frees, or hands to an older version, so many dead things.
    pub(super) fn drain(&mut self, mut budget: usize, freed: &mut Freed<E>) {
        while budget > 0
            && let Some(Pile { before, mut dead }) = self.piles.pop_front()
        {
            while budget > 0
                && let Some(dead) = dead.pop()
            {
                budget -= 1;
                self.waiting -= 1;
                self.place(dead, before, freed);
            }
            if budget > 0 {
                self.room = dead.last;
            } else {
                self.piles.push_front(Pile { before, dead });
            }
        }
        without_room(&mut self.piles);
    }

    /// Puts it on the list of the newest version before `before` that has it and somebody has, or frees it.
    #[inline]
    fn place(&mut self, dead: Dead<E>, before: u64, freed: &mut Freed<E>) {
        if self.live.is_empty() { freed.take(dead) } else { self.hand_on(dead, before, freed) }
    }

    /// See [`Ledger::place`].
    fn hand_on(&mut self, dead: Dead<E>, before: u64, freed: &mut Freed<E>) {
        let newest = loop {
            let older = self.live.partition_point(|live| live.version.seq < before);
            let Some(at) = older.checked_sub(1) else { return freed.take(dead) };
            if !self.live[at].version.is_only() {
                break &mut self.live[at];
            }
            self.bury(at);
        };
        let seq = newest.version.seq;
        let has = match &dead {
            Dead::Node(node) => node.birth() <= seq,
            Dead::Value(value) => value.get().birth <= seq,
            Dead::Item(item) => {
                let address = item.get().address();
                newest.version.items.find(item.get().hash(), |e| e.address() == address).is_some()
            }
        };
        if !has {
            return freed.take(dead);
        }
        newest.items += usize::from(matches!(dead, Dead::Item(_)));
        newest.dead.push(dead);
        newest.pinned += 1;
        self.pinned += 1;
        if newest.items > 2 * newest.version.items.len() {
            let before = newest.pinned;
            newest.once(freed);
            self.pinned -= before - newest.pinned;
        }
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
        let lists = self.live.iter().map(|live| live.dead.last.capacity() + PIECE * live.dead.full.len());
        self.live.capacity() + self.piles.capacity() + self.room.capacity() + lists.sum::<usize>()
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
    for index in version.indices.iter() {
        index.dismantle(&mut |value| freed.values.push(value));
    }
}
