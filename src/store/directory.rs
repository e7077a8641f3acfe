//! The tree that a version's objects, an index's values and a value's ids are kept in: extendible hashing on the top bits
//! of a 64-bit hash, copied where it is written.
//!
//! # Shape
//! Pages hold up to [`Entry::FULL`] entries. Above them are directories of 2^bits children: chunks of at most 2^[`CHUNK_BITS`],
//! and over those one root, which doubles without limit. A tree is nothing, a page, a chunk over pages, or a root over
//! chunks (and pages where a chunk shrank to one). A node of depth `d` is reached by the first `d` bits of a hash; a child
//! of depth `c` fills a run of 2^(d + bits - c) slots of its directory.
//!
//! A full page splits on its next bit. A chunk that cannot tell its halves apart doubles; one that must not grow splits in
//! two; the root doubles. A page that became small is merged with its buddy, a chunk halves when it can, and a directory
//! over one page gives way to it; so the tree shrinks as it grew. When more hashes begin alike than a good hash would
//! give, pages grow beyond their size instead of splitting further ([`deepest`]), so a skewed hash makes long pages and
//! never a large directory.
//!
//! # Who may what
//! Reading is for everybody: what is handed out lives as long as the borrow of the [`Tree`], whose owner (a version) keeps
//! the nodes. Editing is for the maker of a version: it changes a `Tree` of its own, copies each node that it changes
//! unless it is of this very version, and gives what is replaced to its [`Bin`]. Nothing here calls user code but the
//! `is` of a caller, and that before anything is changed.

use super::{
    node::{Bare, Entry, Kept, Kind, Ptr},
    tags::Places,
};
use std::marker::PhantomData;

/// A chunk has at most 2^6 children.
const CHUNK_BITS: u8 = 6;

/// Entries of one version. A copy of it is another version's, and shares the nodes.
pub(super) struct Tree<E> {
    top: Option<Ptr<E>>,
    len: usize,
}

impl<E> Clone for Tree<E> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<E> Default for Tree<E> {
    fn default() -> Self {
        Self { top: None, len: 0 }
    }
}

/// Takes the nodes that a version in the making has replaced.
pub(super) trait Bin {
    /// The version in the making. Nodes of this birth are private.
    fn birth(&self) -> u64;
    /// The node is not in the version any more; it may be in others.
    fn discard(&mut self, node: Bare);
}

/// From where to where the hashes of a page go.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) first: u64,
    depth: u8,
}

impl Range {
    /// The first hash behind it.
    pub(super) fn next(self) -> Option<u64> {
        if self.depth == 0 { None } else { self.first.checked_add(1 << (64 - self.depth)) }
    }

    pub(super) fn contains(self, hash: u64) -> bool {
        prefix(self.first, self.depth) == prefix(hash, self.depth)
    }

    /// The smaller one of two of which one contains the other.
    pub(super) fn smaller(self, other: Self) -> Self {
        if self.depth < other.depth { other } else { self }
    }
}

/// The first `depth` bits.
fn prefix(hash: u64, depth: u8) -> u64 {
    if depth == 0 { 0 } else { hash >> (64 - depth) }
}

/// Which of the slots of a directory leads to a hash.
#[inline]
fn slot<E: Entry>(directory: Ptr<E>, hash: u64) -> usize {
    ((hash << directory.depth()) >> (64 - directory.bits())) as usize
}

/// The slots that a child of this depth fills, among them that of the hash.
fn run<E: Entry>(directory: Ptr<E>, depth: u8, hash: u64) -> std::ops::Range<usize> {
    let width = 1 << (directory.depth() + directory.bits() - depth);
    let first = slot(directory, hash) & !(width - 1);
    first..first + width
}

/// No page is deeper with so many entries. A good hash stays below.
fn deepest<E: Entry>(len: usize) -> u8 {
    4 + (len / (E::FULL / 4)).max(1).ilog2() as u8
}

#[inline]
fn page_of<E: Entry>(mut node: Ptr<E>, hash: u64) -> Ptr<E> {
    while node.kind() != Kind::Page {
        node = node.child(slot(node, hash));
    }
    node
}

/// The page for a hash, not looked at, if that is known without; else what is above it.
#[inline]
fn towards<E: Entry>(mut node: Ptr<E>, hash: u64) -> Ptr<E> {
    loop {
        match node.kind() {
            Kind::Page => return node,
            Kind::Chunk => return node.child(slot(node, hash)),
            _ => node = node.child(slot(node, hash)),
        }
    }
}

/// The places of a page at which an entry of this hash may be: all of those where one is, and now and then another.
#[inline]
fn candidates<E: Entry>(page: Ptr<E>, hash: u64) -> Places<'static> {
    Places::of(hash as u16, page.tags(), page.len())
}

#[inline]
fn position<E: Entry>(page: Ptr<E>, hash: u64, is: impl FnMut(&E) -> bool) -> Option<usize> {
    search(page, hash, is).map(|(i, _)| i)
}

#[inline]
fn search<'v, E: Entry>(page: Ptr<E>, hash: u64, mut is: impl FnMut(&E) -> bool) -> Option<(usize, &'v E)> {
    let entries = page.entries();
    if !E::TAGS {
        return entries.iter().map(|e| e.get()).enumerate().find(|(_, e)| is(e));
    }
    candidates(page, hash).map(|i| (i, entries[i].get())).find(|(_, e)| is(e))
}

/// A page that a hash leads to, or a node above it.
pub(super) struct Way<'v, E> {
    to: Ptr<E>,
    hash: u64,
    _in: PhantomData<&'v Tree<E>>,
}

impl<E> Clone for Way<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Way<'_, E> {}

impl<'v, E: Entry> Way<'v, E> {
    pub(super) fn hash(self) -> u64 {
        self.hash
    }

    /// Asks for the memory of the page, but for the entry itself: for many at once.
    #[inline]
    pub(super) fn prefetch_tags(self) {
        self.to.prefetch_tags();
    }

    /// See [`Tree::known`].
    #[inline]
    pub(super) fn known(self) -> Option<&'v E> {
        let page = page_of(self.to, self.hash);
        let at = match candidates(page, self.hash).only() {
            Some(at) => at,
            None => position(page, self.hash, |e| e.hash() == self.hash)?,
        };
        Some(page.entries()[at].get())
    }
}

impl<E: Entry> Tree<E> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entry of this hash for which `is` holds. `is` is asked of entries of any hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&E> {
        let page = towards(self.top?, hash);
        page.prefetch();
        let page = page_of(page, hash);
        search(page, hash, is).map(|(_, e)| e)
    }

    /// [`Tree::find`] of an entry that is there, no other of its hash: not looked at, unless another one may have its tag.
    #[inline]
    pub(super) fn known(&self, hash: u64) -> Option<&E> {
        self.way(hash)?.known()
    }

    /// The way to an entry of the hash, for whoever looks at it later. Its page is not looked at.
    #[inline]
    pub(super) fn way(&self, hash: u64) -> Option<Way<'_, E>> {
        Some(Way { to: towards(self.top?, hash), hash, _in: PhantomData })
    }

    /// Asks for the memory in which an entry of the hash is found.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(top) = self.top {
            towards(top, hash).prefetch();
        }
    }

    /// The mark beside an entry.
    pub(super) fn mark(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<u8> {
        let page = page_of(self.top?, hash);
        position(page, hash, is).map(|i| page.mark(i))
    }

    /// The page for a hash, with its range.
    pub(super) fn page(&self, hash: u64) -> Option<(Ptr<E>, Range)> {
        let page = page_of(self.top?, hash);
        let depth = page.depth();
        let first = if depth == 0 { 0 } else { prefix(hash, depth) << (64 - depth) };
        Some((page, Range { first, depth }))
    }

    /// Every entry, page by page in the order of hashes, in no order within a page.
    pub(super) fn iter(&self) -> Iter<'_, E> {
        Iter { tree: self.clone(), next: Some(0), page: [].iter(), left: self.len }
    }

    /// Every entry by page, as [`Tree::iter`].
    pub(super) fn pages(&self) -> impl Iterator<Item = &[Kept<E>]> {
        let mut at = Some(0);
        std::iter::from_fn(move || {
            let (page, range) = self.page(at?)?;
            at = range.next();
            if let Some(next) = at {
                self.prefetch(next);
            }
            Some(page.entries())
        })
    }

    /// Where the largest part that has `hash` and is one node in both trees ends.
    pub(super) fn shared(&self, other: &Self, hash: u64) -> Option<Range> {
        let (mut a, mut b) = (self.top?, other.top?);
        loop {
            if a == b {
                let depth = a.depth();
                return Some(Range { first: if depth == 0 { 0 } else { prefix(hash, depth) << (64 - depth) }, depth });
            }
            // The one that is not as deep may lead to the other.
            let down = |node: Ptr<E>| (node.kind() != Kind::Page).then(|| node.child(slot(node, hash)));
            match (down(a), down(b)) {
                (Some(next), _) if a.depth() < b.depth() => a = next,
                (_, Some(next)) if b.depth() < a.depth() => b = next,
                (Some(x), Some(y)) => (a, b) = (x, y),
                _ => return None,
            }
        }
    }

    /// Adds an entry that is not there.
    pub(super) fn insert(&mut self, entry: Kept<E>, mark: u8, bin: &mut impl Bin) {
        let hash = entry.get().hash();
        let Some(top) = self.top else {
            let page = Ptr::page(bin.birth(), 0, 1);
            page.push(entry, mark);
            *self = Self { top: Some(page), len: 1 };
            return;
        };
        let mut page = page_of(top, hash);
        while page.len() >= E::FULL && page.depth() < deepest::<E>(self.len) {
            self.split(page, hash, bin);
            page = self.top.map_or(page, |top| page_of(top, hash));
        }
        let (len, private) = (page.len(), page.birth() == bin.birth());
        let own = if private && page.capacity() > len {
            page
        } else {
            // More may come to a private one; another one is copied by each version that changes it.
            let larger = page.copy(bin.birth(), len + if private { 1 + len / 4 } else { 1 });
            self.put(page, larger, hash, bin);
            larger
        };
        own.push(entry, mark);
        self.len += 1;
    }

    /// Puts `entry` in the place of the one of the same hash for which `is` holds; that one is returned.
    pub(super) fn replace(&mut self, entry: E, is: impl FnMut(&E) -> bool, bin: &mut impl Bin) -> Result<Kept<E>, E> {
        let hash = entry.hash();
        let Some((page, i)) = self.place(hash, is) else { return Err(entry) };
        Ok(self.own(page, hash, bin).swap(i, Kept::new(entry)))
    }

    /// Writes the mark beside an entry.
    pub(super) fn set_mark(&mut self, hash: u64, mark: u8, is: impl FnMut(&E) -> bool, bin: &mut impl Bin) {
        if let Some((page, i)) = self.place(hash, is)
            && page.mark(i) != mark
        {
            self.own(page, hash, bin).set_mark(i, mark);
        }
    }

    /// Takes out the entry of this hash for which `is` holds.
    pub(super) fn remove(&mut self, hash: u64, is: impl FnMut(&E) -> bool, bin: &mut impl Bin) -> Option<Kept<E>> {
        let (page, i) = self.place(hash, is)?;
        let out = if self.len == 1 {
            let out = page.entry_again(i);
            self.nodes(&mut |node| bin.discard(node.bare()));
            *self = Self::default();
            out
        } else {
            let own = self.own(page, hash, bin);
            self.len -= 1;
            let out = own.swap_remove(i);
            while self.merge(hash, bin) {}
            out
        };
        Some(out)
    }

    fn place(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<(Ptr<E>, usize)> {
        let page = page_of(self.top?, hash);
        position(page, hash, is).map(|i| (page, i))
    }

    /// A private form of a node that leads to `hash`, and of all above it.
    fn own(&mut self, node: Ptr<E>, hash: u64, bin: &mut impl Bin) -> Ptr<E> {
        let birth = bin.birth();
        let Some(mut at) = self.top.filter(|_| node.birth() != birth) else { return node };
        let mut above = None;
        loop {
            let last = at == node;
            if at.birth() != birth {
                let own = at.copy(birth, 0);
                self.link(above, at.depth(), own, hash);
                bin.discard(at.bare());
                at = own;
            }
            if last {
                return at;
            }
            above = Some(at);
            at = at.child(slot(at, hash));
        }
    }

    /// Puts a private node in the place of one that leads to `hash` and fills the same slots.
    fn put(&mut self, node: Ptr<E>, new: Ptr<E>, hash: u64, bin: &mut impl Bin) {
        self.fill(self.above(node, hash), node.depth(), new, hash, bin);
        bin.discard(node.bare());
    }

    /// Makes the slots for `hash` at `depth` of a directory, or the top, lead to `child`.
    fn fill(&mut self, directory: Option<Ptr<E>>, depth: u8, child: Ptr<E>, hash: u64, bin: &mut impl Bin) {
        let own = directory.map(|directory| self.own(directory, hash, bin));
        self.link(own, depth, child, hash);
    }

    /// [`Tree::fill`] of a private directory.
    fn link(&mut self, directory: Option<Ptr<E>>, depth: u8, child: Ptr<E>, hash: u64) {
        match directory {
            None => self.top = Some(child),
            Some(own) => run(own, depth, hash).for_each(|slot| own.set_child(slot, child)),
        }
    }

    /// The directory of a node that leads to `hash`; none when it is the top.
    fn above(&self, node: Ptr<E>, hash: u64) -> Option<Ptr<E>> {
        let mut at = self.top?;
        let mut above = None;
        while at != node {
            above = Some(at);
            at = at.child(slot(at, hash));
        }
        above
    }

    /// One step towards splitting a page: the page itself, or its chunk, or the root, whichever has to come first.
    fn split(&mut self, page: Ptr<E>, hash: u64, bin: &mut impl Bin) {
        let (birth, depth) = (bin.birth(), page.depth());
        let chunk = match self.above(page, hash) {
            Some(above) if above.kind() == Kind::Chunk => above,
            // A chunk over the page alone, for now.
            above => {
                let chunk = Ptr::directory(Kind::Chunk, birth, depth, 1, page);
                return self.fill(above, depth, chunk, hash, bin);
            }
        };
        if chunk.depth() + chunk.bits() > depth {
            let mut count = [0; 2];
            let side = |e: &Kept<E>| (e.get().hash() >> (63 - depth) & 1) as usize;
            page.entries().iter().for_each(|e| count[side(e)] += 1);
            // Room for the one to come.
            let halves = count.map(|n| Ptr::page(birth, depth + 1, n + 1));
            for (i, e) in page.entries().iter().enumerate() {
                halves[side(e)].push(page.entry_again(i), if E::MARKS { page.mark(i) } else { 0 });
            }
            let own = self.own(chunk, hash, bin);
            let slots = run(own, depth, hash);
            let middle = slots.start + slots.len() / 2;
            slots.for_each(|slot| own.set_child(slot, halves[usize::from(slot >= middle)]));
            bin.discard(page.bare());
        } else if chunk.bits() < CHUNK_BITS {
            let larger = doubled(chunk, birth);
            self.put(chunk, larger, hash, bin);
        } else {
            self.split_chunk(chunk, hash, bin);
        }
    }

    /// One step towards splitting a chunk.
    fn split_chunk(&mut self, chunk: Ptr<E>, hash: u64, bin: &mut impl Bin) {
        let (birth, depth) = (bin.birth(), chunk.depth());
        let Some(root) = self.above(chunk, hash) else {
            self.top = Some(Ptr::directory(Kind::Root, birth, 0, 1, chunk));
            return;
        };
        if root.depth() + root.bits() == depth {
            let larger = doubled(root, birth);
            return self.put(root, larger, hash, bin);
        }
        let size = 1 << (chunk.bits() - 1);
        let halves = [0, size].map(|from| {
            // No larger than its pages ask for; a page that fills it needs none.
            let first = chunk.child(from);
            let bits = (from..from + size).map(|slot| chunk.child(slot).depth()).max().unwrap_or(depth) - depth - 1;
            if bits == 0 {
                return first;
            }
            let (half, every) = (Ptr::directory(Kind::Chunk, birth, depth + 1, bits, first), size >> bits);
            (0..1 << bits).for_each(|slot| half.set_child(slot, chunk.child(from + slot * every)));
            half
        });
        let own = self.own(root, hash, bin);
        let slots = run(own, depth, hash);
        let middle = slots.start + slots.len() / 2;
        slots.for_each(|slot| own.set_child(slot, halves[usize::from(slot >= middle)]));
        bin.discard(chunk.bare());
    }

    /// One step of shrinking where `hash` leads: whether there may be another.
    fn merge(&mut self, hash: u64, bin: &mut impl Bin) -> bool {
        let Some(top) = self.top else { return false };
        let page = page_of(top, hash);
        let Some(above) = self.above(page, hash) else { return false };
        if page.depth() == above.depth() {
            // The directory leads to this page only.
            self.put(above, page, hash, bin);
            return true;
        }
        let buddy = above.child(slot(above, hash ^ 1 << (64 - page.depth())));
        let small = buddy.kind() == Kind::Page && buddy.depth() == page.depth() && page.len() + buddy.len() <= E::FULL / 2;
        if !small {
            return false;
        }
        let merged = Ptr::page(bin.birth(), page.depth() - 1, page.len() + buddy.len());
        for from in [page, buddy] {
            (0..from.len()).for_each(|i| merged.push(from.entry_again(i), if E::MARKS { from.mark(i) } else { 0 }));
        }
        self.fill(Some(above), merged.depth(), merged, hash, bin);
        bin.discard(page.bare());
        bin.discard(buddy.bare());
        self.halve(hash, bin);
        true
    }

    /// Halves the directories that lead to `hash` and do not use their last bit.
    fn halve(&mut self, hash: u64, bin: &mut impl Bin) {
        let mut at = self.top;
        while let Some(directory) = at.filter(|node| node.kind() != Kind::Page) {
            let deepest = directory.depth() + directory.bits();
            let uses = |slot| directory.child(slot).depth() == deepest;
            if directory.bits() > 1 && !(0..1 << directory.bits()).step_by(2).any(uses) {
                let (kind, depth) = (directory.kind(), directory.depth());
                let half = Ptr::directory(kind, bin.birth(), depth, directory.bits() - 1, directory.child(0));
                (0..1 << half.bits()).for_each(|slot| half.set_child(slot, directory.child(2 * slot)));
                self.put(directory, half, hash, bin);
                at = Some(half);
            } else {
                at = Some(directory.child(slot(directory, hash)));
            }
        }
    }

    /// Every node, children first.
    pub(super) fn nodes(&self, f: &mut impl FnMut(Ptr<E>)) {
        fn below<E: Entry>(node: Ptr<E>, f: &mut impl FnMut(Ptr<E>)) {
            if node.kind() != Kind::Page {
                let mut at = 0;
                while at < 1 << node.bits() {
                    let child = node.child(at);
                    at += 1 << (node.depth() + node.bits() - child.depth());
                    below(child, f);
                }
            }
            f(node);
        }
        if let Some(top) = self.top {
            below(top, f);
        }
    }

    /// A tree of entries that are in the order of their hashes, each with its mark; a good deal faster than one by one.
    pub(super) fn build(entries: Vec<(E, u8)>, bin: &mut impl Bin) -> Self {
        let (len, birth) = (entries.len(), bin.birth());
        // So deep that a page is not full on average.
        let depth = (0..).find(|depth| len >> depth <= E::FULL * 7 / 8).unwrap_or(0);
        let hashes = |run: &[(E, u8)]| prefix(run[0].0.hash(), depth) == prefix(run[run.len() - 1].0.hash(), depth);
        if entries.windows(2 * E::FULL).any(hashes) {
            // Skewed.
            let mut tree = Self::default();
            entries.into_iter().for_each(|(e, mark)| tree.insert(Kept::new(e), mark, bin));
            return tree;
        }
        if entries.is_empty() {
            return Self::default();
        }
        let mut entries = entries.into_iter().peekable();
        let mut ready = Vec::new();
        let mut page = |number: u64| {
            while let Some(e) = entries.next_if(|(e, _)| prefix(e.hash(), depth) == number) {
                ready.push(e);
            }
            let page = Ptr::page(birth, depth, ready.len());
            ready.drain(..).for_each(|(e, mark)| page.push(Kept::new(e), mark));
            page
        };
        if depth == 0 {
            return Self { top: Some(page(0)), len };
        }
        let chunk_bits = depth.min(CHUNK_BITS);
        let root_bits = depth - chunk_bits;
        let mut chunk = |number: u64| {
            let first = number << chunk_bits;
            let chunk = Ptr::directory(Kind::Chunk, birth, root_bits, chunk_bits, page(first));
            (1..1 << chunk_bits).for_each(|at| chunk.set_child(at, page(first + at as u64)));
            chunk
        };
        let mut top = chunk(0);
        if root_bits > 0 {
            top = Ptr::directory(Kind::Root, birth, 0, root_bits, top);
            (1..1 << root_bits).for_each(|at| top.set_child(at, chunk(at as u64)));
        }
        Self { top: Some(top), len }
    }
}

fn doubled<E: Entry>(directory: Ptr<E>, birth: u64) -> Ptr<E> {
    let larger = Ptr::directory(directory.kind(), birth, directory.depth(), directory.bits() + 1, directory.child(0));
    (0..1 << directory.bits()).for_each(|slot| {
        larger.set_child(2 * slot, directory.child(slot));
        larger.set_child(2 * slot + 1, directory.child(slot));
    });
    larger
}

/// See [`Tree::iter`].
pub(super) struct Iter<'v, E> {
    tree: Tree<E>,
    next: Option<u64>,
    page: std::slice::Iter<'v, Kept<E>>,
    left: usize,
}

impl<E> Default for Iter<'_, E> {
    /// Over nothing.
    fn default() -> Self {
        Self { tree: Tree::default(), next: None, page: [].iter(), left: 0 }
    }
}

impl<'v, E: Entry> Iterator for Iter<'v, E> {
    type Item = &'v E;

    #[inline]
    fn next(&mut self) -> Option<&'v E> {
        loop {
            if let Some(entry) = self.page.next() {
                self.left -= 1;
                return Some(entry.get());
            }
            let (page, range) = self.tree.page(self.next?)?;
            (self.page, self.next) = (page.entries().iter(), range.next());
            if let Some(next) = self.next {
                self.tree.prefetch(next);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests {
    use super::{Bin, Tree};
    use crate::{
        store::node::{Bare, Entry, Kept, Kind, Ptr, keep_no_spares, spares},
        sync::{ManualClock, spawn},
    };
    use proptest::{collection::vec, prelude::*};
    use std::collections::BTreeMap;

    /// Numbers with hashes of some quality.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number<const QUALITY: u8>(u32);

    impl<const QUALITY: u8> Entry for Number<QUALITY> {
        const MARKS: bool = true;

        fn hash(&self) -> u64 {
            let good =
                u64::from(self.0 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93);
            match QUALITY {
                0 => good,
                // All begin alike, and many have one tag.
                1 => good >> 20 & !0xfff0,
                // Few hashes.
                _ => good & 0xc000_0000_0000_0003,
            }
        }
    }

    #[derive(Default)]
    struct Heap {
        birth: u64,
        discarded: Vec<Bare>,
    }

    impl Bin for Heap {
        fn birth(&self) -> u64 {
            self.birth
        }

        fn discard(&mut self, node: Bare) {
            if node.birth() == self.birth { node.free() } else { self.discarded.push(node) }
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// All of a range: those that are not there are added, the others replaced.
        Put(u32, u32),
        Remove(u32, u32),
        Keep,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..600u32, 0..40u32).prop_map(|(from, n)| Op::Put(from, n)),
            1 => (0..600u32, 0..600u32).prop_map(|(from, n)| Op::Put(from, n)),
            3 => (0..600u32, 0..40u32).prop_map(|(from, n)| Op::Remove(from, n)),
            1 => (0..600u32, 0..600u32).prop_map(|(from, n)| Op::Remove(from, n)),
            1 => Just(Op::Keep),
        ]
    }

    type Model = BTreeMap<u32, u8>;

    fn check<const Q: u8>(tree: &Tree<Number<Q>>, model: &Model) {
        assert_eq!(tree.len(), model.len());
        let mut all: Vec<u32> = tree.iter().map(|n| n.0).collect();
        all.sort_unstable();
        assert!(all.iter().eq(model.keys()));
        for n in 0..1200 {
            let (hash, is) = (Number::<Q>(n).hash(), |other: &Number<Q>| other.0 == n);
            assert_eq!(tree.find(hash, is).map(|n| n.0), model.contains_key(&n).then_some(n));
            assert_eq!(tree.mark(hash, is), model.get(&n).copied());
        }
        let mut at = Some(0);
        while let Some((page, range)) = at.and_then(|at| tree.page(at)) {
            assert!(page.entries().iter().all(|e| range.contains(e.get().hash())));
            at = range.next();
        }
        tree.nodes(&mut |node| {
            if node.kind() == Kind::Page {
                assert!(Q != 0 || node.len() <= 2 * Number::<Q>::FULL, "a page is long without need");
            } else {
                let children = (0..1 << node.bits()).map(|slot| node.child(slot));
                assert!(children.map(Ptr::depth).all(|d| d > node.depth() && d <= node.depth() + node.bits()));
                assert!(node.kind() == Kind::Root || node.bits() <= super::CHUNK_BITS);
            }
        });
    }

    fn behaves<const Q: u8>(ops: &[Op]) {
        let (mut tree, mut model, mut heap) = (Tree::<Number<Q>>::default(), Model::new(), Heap::default());
        let mut kept = vec![(tree.clone(), model.clone())];
        for (n, op) in ops.iter().enumerate() {
            heap.birth = n as u64 + 1;
            match *op {
                Op::Put(from, count) => {
                    for key in from..from + count {
                        let (entry, mark, is) = (Number::<Q>(key), n as u8, |other: &Number<Q>| other.0 == key);
                        match tree.replace(entry, is, &mut heap) {
                            Ok(_) => tree.set_mark(entry.hash(), mark, is, &mut heap),
                            Err(entry) => tree.insert(Kept::new(entry), mark, &mut heap),
                        }
                        model.insert(key, mark);
                    }
                }
                Op::Remove(from, count) => {
                    for key in from..from + count {
                        let out = tree.remove(Number::<Q>(key).hash(), |other| other.0 == key, &mut heap);
                        assert_eq!(out.is_some(), model.remove(&key).is_some());
                    }
                }
                Op::Keep => kept.push((tree.clone(), model.clone())),
            }
            check(&tree, &model);
        }
        // What was kept has not changed, and where two trees share a node they have the same.
        for (old, model) in &kept {
            check(old, model);
            let mut at = Some(0);
            while let Some((hash, (_, range))) = at.and_then(|at| Some((at, old.page(at)?))) {
                if let Some(shared) = old.shared(&tree, hash) {
                    let of = |tree: &Tree<Number<Q>>| {
                        tree.iter().filter(|n| shared.contains(n.hash())).map(|n| n.0).collect::<Vec<_>>()
                    };
                    assert_eq!(of(old), of(&tree));
                }
                at = range.next();
            }
        }
        let built = {
            let mut entries: Vec<(Number<Q>, u8)> = model.iter().map(|(key, mark)| (Number(*key), *mark)).collect();
            entries.sort_by_key(|(n, _)| n.hash());
            Tree::build(entries, &mut heap)
        };
        check(&built, &model);
        // Everything that was discarded is of an older version and of no other tree, so it is freed once.
        heap.birth = u64::MAX;
        built.nodes(&mut |node| node.bare().free());
        tree.nodes(&mut |node| node.bare().free());
        heap.discarded.into_iter().for_each(Bare::free);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn a_tree_behaves_as_a_map_and_what_is_kept_of_it_never_changes(ops in vec(op(), 1..40)) {
            behaves::<0>(&ops);
            behaves::<1>(&ops);
            behaves::<2>(&ops);
        }
    }

    #[test]
    fn a_node_is_made_of_one_of_its_very_size_only() {
        struct Plain(#[allow(dead_code, reason = "entries have eight bytes")] u64);
        impl Entry for Plain {
            fn hash(&self) -> u64 {
                0
            }
        }
        let (plain, marked) = (|| Ptr::<Plain>::page(1, 0, 6), || Ptr::<Number<0>>::page(1, 0, 6));
        let (first, second) = (plain(), marked());
        first.bare().free();
        // 80 bytes, and it would take 86, which are as many words.
        let third = marked();
        assert_eq!(spares(), 1);
        let fourth = plain();
        assert_eq!(spares(), 0);
        [second.bare(), third.bare(), fourth.bare()].into_iter().for_each(Bare::free);
    }

    #[test]
    fn a_step_makes_of_what_the_steps_before_have_freed_and_little_is_kept_for_it() {
        let (mut tree, mut heap) = (Tree::<Number<0>>::default(), Heap::default());
        (0..20_000).for_each(|n| tree.insert(Kept::new(Number(n)), 0, &mut heap));
        let mut step = |numbers: &[u32]| {
            heap.birth += 1;
            let before = spares();
            for n in numbers {
                assert!(tree.replace(Number(*n), |e| e.0 == *n, &mut heap).is_ok());
            }
            let (taken, made) = (before - spares(), heap.discarded.len());
            heap.discarded.drain(..).for_each(Bare::free);
            assert!(spares() <= 128);
            (taken, made)
        };
        let mut steps = |n: u32| (0..n).map(|n| step(&[n * 7919 % 20_000]).0).sum::<usize>();
        steps(6000);
        // Three nodes each.
        assert!(steps(1000) > 2900);
        // After one that makes very many they come to the same.
        let all: Vec<u32> = (0..20_000).collect();
        let (taken, made) = step(&all);
        assert!(taken < 128 && made > 500);
        let mut steps = |n: u32| (0..n).map(|n| step(&[n * 7919 % 20_000]).0).sum::<usize>();
        steps(1000);
        assert!(steps(1000) > 2900 && spares() > 0);
        keep_no_spares();
        assert_eq!(spares(), 0);
        // A thread that only frees keeps none either.
        let mut all = Vec::new();
        tree.nodes(&mut |node| all.push(node.bare()));
        let frees = move || {
            all.into_iter().for_each(Bare::free);
            spares()
        };
        assert_eq!(spawn(&ManualClock::new(), "frees", frees).unwrap().join(), Ok(0));
    }

    #[test]
    fn a_tree_shrinks_as_it_grew_and_a_skewed_hash_makes_no_large_directory() {
        fn sizes<const Q: u8>(tree: &Tree<Number<Q>>) -> (usize, usize) {
            let (mut pages, mut slots) = (0, 0);
            tree.nodes(&mut |node| match node.kind() {
                Kind::Page => pages += 1,
                _ => slots += 1 << node.bits(),
            });
            (pages, slots)
        }
        fn run<const Q: u8>() -> [(usize, usize); 3] {
            let (mut tree, mut heap) = (Tree::<Number<Q>>::default(), Heap::default());
            heap.birth = 1;
            (0..20_000).for_each(|n| tree.insert(Kept::new(Number(n)), 0, &mut heap));
            let full = sizes(&tree);
            for n in 0..18_000 {
                assert!(tree.remove(Number::<Q>(n).hash(), |e| e.0 == n, &mut heap).is_some());
            }
            let tenth = sizes(&tree);
            for n in 18_000..19_999 {
                assert!(tree.remove(Number::<Q>(n).hash(), |e| e.0 == n, &mut heap).is_some());
            }
            let one = sizes(&tree);
            tree.remove(Number::<Q>(19_999).hash(), |_| true, &mut heap);
            assert_eq!(sizes(&tree), (0, 0));
            [full, tenth, one]
        }
        let [full, tenth, one] = run::<0>();
        assert!(full.0 < 1300 && full.1 < 2 * full.0 + 64, "{full:?}");
        assert!(tenth.0 <= full.0 / 4 && tenth.1 <= full.1 / 2, "{tenth:?} of {full:?}");
        assert!(one.0 <= 2, "{one:?}");
        for [full, ..] in [run::<1>(), run::<2>()] {
            assert!(full.1 < 1 << 15, "{full:?}");
        }
    }
}
