//! Nodes of the versions' trees: one allocation each, and the only pointers of the store that nothing counts. An `unsafe`
//! file: it makes, reads and frees nodes, and decides nothing.
//!
//! # Contract
//! A [`Ptr`], a [`Leaf`] and the entries in a page are shared by all versions that reach them, and no count says how many
//! those are. The functions here are safe to call because of what their only callers keep (`directory.rs` reads and edits,
//! `reclaim.rs` frees, `index.rs` keeps leaves):
//!
//! 1. A node is written only while it is *private*: born in the version that is being made, which nobody else has.
//! 2. What is reachable from a version is not freed before the version is dead: nobody has it, and nobody can get it.
//! 3. What is freed was taken out of the version being made before, and is freed once; likewise an entry is released once.
//!
//! So references that are handed out here live as long as the version they were reached from, and the functions that hand
//! them on say so in their signatures. In debug builds a freed node is marked, and touching a marked one panics.
//!
//! # Layout
//! | page | head, tags (16 bits of each entry's hash, in whole eights), entries, marks (a byte each) |
//! |---|---|
//! | directory | head, 2^bits children |
//!
//! Tags and marks are there when the entry's type says so. Tags are looked at a block at a time ([`Tags`]), and what is
//! behind them in the last block may be entries, or nothing; so the smallest page has room for a block, and the first block
//! of a page is zeroed before anything is written.
#![allow(unsafe_code)]

use super::tags::AT_ONCE;
use crate::sync::thread_local;
use std::{
    alloc::{self, Layout},
    cell::RefCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull,
};

/// What pages hold; at most eight bytes.
pub(super) trait Entry: Sized {
    /// Where it belongs.
    fn hash(&self) -> u64;
    /// Whether pages have tags: worth it when asking an entry for its hash follows a pointer.
    const TAGS: bool = true;
    /// Whether pages have a byte beside each entry.
    const MARKS: bool = false;
    /// A page with so many entries splits.
    const FULL: usize = 32;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Page,
    /// A small directory, over pages.
    Chunk,
    /// The directory over chunks. It may have pages among its children.
    Root,
    Freed,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    /// The version in which it was made.
    birth: u64,
    /// Of a page: how many entries.
    len: u32,
    /// Of a page: its capacity, see [`capacity`]. Of a directory: the logarithm of its size.
    size: u16,
    /// How many bits of the hash lead here, in six bits; above them whether a page has tags, and marks.
    form: u8,
    kind: Kind,
}

const DEPTH: u8 = 63;
const TAGGED: u8 = 64;
const MARKED: u8 = 128;

impl Head {
    fn layout(&self) -> Layout {
        let bytes = match self.kind {
            Kind::Page => {
                let (has, capacity) = (|bit| self.form & bit != 0, capacity(self.size));
                HEAD + tag_bytes(has(TAGGED), capacity) + capacity * (ENTRY + usize::from(has(MARKED)))
            }
            _ => HEAD + (size_of::<Bare>() << self.size),
        };
        layout(bytes)
    }
}

/// A node, whatever it holds.
pub(super) struct Bare(NonNull<Head>);

// SAFETY: it is only looked at and freed, by one thread at a time.
unsafe impl Send for Bare {}
// SAFETY: as above.
unsafe impl Sync for Bare {}

impl Bare {
    pub(super) fn birth(&self) -> u64 {
        self.head().birth
    }

    fn head(&self) -> &Head {
        // SAFETY: the file's contract: it is not freed yet.
        let head = unsafe { self.0.as_ref() };
        debug_assert_ne!(head.kind, Kind::Freed, "a node was used after it was freed");
        head
    }

    /// Frees the node; not what is in it.
    pub(super) fn free(mut self) {
        let layout = self.head().layout();
        count(-(layout.size() as isize));
        if !ROOM_FOR.contains(&layout.size()) {
            // SAFETY: made with this very layout, and by the file's contract nobody has it any more.
            unsafe {
                if cfg!(debug_assertions) {
                    self.0.as_mut().kind = Kind::Freed;
                }
                return alloc::dealloc(self.0.cast().as_ptr(), layout);
            }
        }
        let mut spare = Some(Spare::of(self, layout.size() as u16));
        // A thread at its very end keeps nothing.
        SPARES.try_with(|spares| spare = spare.take().and_then(|spare| spares.borrow_mut().put(spare))).ok();
        if let Some(spare) = spare {
            spare.free();
        }
    }
}

/// A node that has ended: memory of its size and nothing else. Nobody else has it.
struct Spare(NonNull<Ended>);

/// What is written over the head of a node that has ended.
#[repr(C)]
struct Ended {
    next: Option<Spare>,
    /// Of the whole allocation.
    bytes: u16,
    _as_head: [u8; 5],
    /// Where [`Head`] has it.
    kind: Kind,
}

const _: () = assert!(std::mem::offset_of!(Ended, kind) == std::mem::offset_of!(Head, kind) && size_of::<Ended>() == HEAD);

impl Spare {
    fn of(node: Bare, bytes: u16) -> Self {
        let spare = node.0.cast();
        // SAFETY: a node has room for this, and by the file's contract nobody has it any more.
        unsafe { spare.write(Ended { next: None, bytes, _as_head: [0; 5], kind: Kind::Freed }) };
        Self(spare)
    }

    fn ended(&mut self) -> &mut Ended {
        // SAFETY: `of` wrote it, and nobody else has it.
        unsafe { self.0.as_mut() }
    }

    fn free(mut self) {
        let layout = layout(self.ended().bytes.into());
        // SAFETY: allocated with this very layout, and nobody else has it.
        unsafe { alloc::dealloc(self.0.cast().as_ptr(), layout) };
    }
}

/// Of a node.
fn layout(bytes: usize) -> Layout {
    // Smaller than the address space, since a node of this size exists, or is about to.
    Layout::from_size_align(bytes, 8).unwrap_or_else(|_| unreachable!("a node is small"))
}

/// Nodes that have ended and wait to be made into others of their size, so that the allocator need not be asked: a step mostly
/// makes what the steps before have freed. Each thread has its own, so writers that take turns share nothing here.
///
/// A thread that makes no nodes keeps none. When there is no more room others give way, so those of sizes that are not made
/// any more do not stay.
struct Spares {
    /// By size in words; those of one are mostly of one size in bytes, too.
    sizes: [Size; SIZES],
    len: usize,
    /// Which size gives way next.
    turn: usize,
}

struct Size {
    first: Option<Spare>,
    len: u16,
    /// One was asked for since one gave way.
    made: bool,
}

impl Size {
    #[inline]
    fn pop_if(&mut self, is: impl FnOnce(&mut Spare) -> bool) -> Option<Spare> {
        let mut spare = self.first.take_if(is)?;
        self.first = spare.ended().next.take();
        self.len -= 1;
        Some(spare)
    }
}

/// In words: pages, chunks, and the root over some thousand pages.
const SIZES: usize = 80;
/// In bytes.
const ROOM_FOR: std::ops::Range<usize> = if ROOM > 0 { 0..SIZES * size_of::<u64>() } else { 0..0 };

/// So many are kept, and so many of one size. With none a sanitizer sees each use after the end, and a model has nothing that
/// one execution leaves to the next.
const ROOM: usize = if cfg!(any(fuzzing, informer_loom, informer_shuttle)) { 0 } else { 128 };
const ROOM_OF_SIZE: u16 = 64;

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares::NONE) };
}

/// Ends all that the calling thread keeps: for when no step is expected that would make anything of them.
pub(super) fn keep_no_spares() {
    SPARES.try_with(|spares| spares.borrow_mut().clear()).ok();
}

/// How many the calling thread keeps.
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
pub(super) fn spares() -> usize {
    SPARES.with(|spares| spares.borrow().len)
}

/// Memory for a node of so many bytes.
#[inline]
fn spare(bytes: usize) -> Option<NonNull<u8>> {
    if !ROOM_FOR.contains(&bytes) {
        return None;
    }
    SPARES.try_with(|spares| spares.borrow_mut().take(bytes)).ok().flatten()
}

impl Spares {
    const NONE: Self = Self { sizes: [const { Size { first: None, len: 0, made: false } }; SIZES], len: 0, turn: 0 };

    fn size(&mut self, bytes: usize) -> &mut Size {
        &mut self.sizes[bytes / size_of::<u64>()]
    }

    fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let size = self.size(bytes);
        size.made = true;
        let spare = size.pop_if(|spare| usize::from(spare.ended().bytes) == bytes)?;
        self.len -= 1;
        Some(spare.0.cast())
    }

    /// Gives it back when there is no room.
    fn put(&mut self, mut spare: Spare) -> Option<Spare> {
        if self.len >= ROOM {
            self.give_way();
        }
        let full = self.len >= ROOM;
        let size = self.size(spare.ended().bytes.into());
        if full || !size.made || size.len >= ROOM_OF_SIZE {
            return Some(spare);
        }
        spare.ended().next = size.first.take();
        size.first = Some(spare);
        size.len += 1;
        self.len += 1;
        None
    }

    #[cold]
    fn give_way(&mut self) {
        const LOOKS: usize = 4;
        for _ in 0..LOOKS {
            self.turn = (self.turn + 1) % SIZES;
            let size = &mut self.sizes[self.turn];
            size.made = false;
            if let Some(spare) = size.pop_if(|_| true) {
                self.len -= 1;
                spare.free();
            }
        }
    }

    fn clear(&mut self) {
        for size in &mut self.sizes {
            while let Some(spare) = size.pop_if(|_| true) {
                spare.free();
            }
        }
        self.len = 0;
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A node over entries `E`. See the file's contract.
pub(super) struct Ptr<E>(NonNull<Head>, PhantomData<*const E>);

// SAFETY: a node is written by one thread only, before it is published, and gives shared access to its entries after.
unsafe impl<E: Send + Sync> Send for Ptr<E> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync> Sync for Ptr<E> {}

impl<E> Clone for Ptr<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Ptr<E> {}

impl<E> PartialEq for Ptr<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// An entry as pages hold it: several pages have the same one, and it is dropped by whoever releases it.
#[repr(C, align(8))]
pub(super) struct Kept<E>(ManuallyDrop<E>);

impl<E> Kept<E> {
    /// An entry that is going into a tree.
    pub(super) fn new(entry: E) -> Self {
        Self(ManuallyDrop::new(entry))
    }

    pub(super) fn get(&self) -> &E {
        &self.0
    }

    /// The entry, to be dropped. Once, when no version has it.
    pub(super) fn release(self) -> E {
        ManuallyDrop::into_inner(self.0)
    }
}

/// Capacities from here on are powers of two, so that sixteen bits hold any.
const LARGE: usize = 1 << 15;

fn encoded(entries: usize) -> u16 {
    let entries = entries.max(1);
    if entries < LARGE { entries as u16 } else { LARGE as u16 | entries.next_power_of_two().trailing_zeros() as u16 }
}

/// In entries.
fn capacity(size: u16) -> usize {
    let size = usize::from(size);
    if size < LARGE { size } else { 1 << (size - LARGE) }
}

/// A block of tags, four to a word, the first in the lowest bits.
pub(super) type Tags = [u64; AT_ONCE / 4];

const TAG: usize = size_of::<u16>();
const BLOCK: usize = size_of::<Tags>();
/// Tags of a page come in so many.
const TAGS: usize = 8;
/// A page with tags has room for so many entries at least: then it has a block's bytes behind its head.
const LEAST: usize = 6;

/// Bytes of tags of a page.
const fn tag_bytes(tagged: bool, capacity: usize) -> usize {
    if tagged { capacity.div_ceil(TAGS) * TAGS * TAG } else { 0 }
}

const HEAD: usize = size_of::<Head>();
const ENTRY: usize = size_of::<Kept<u64>>();

impl<E: Entry> Ptr<E> {
    const FORM: u8 = if E::TAGS { TAGGED } else { 0 } | if E::MARKS { MARKED } else { 0 };

    /// Bytes of tags of a page.
    const fn tag_bytes(capacity: usize) -> usize {
        const { assert!(HEAD == 16 && ENTRY == 8 && size_of::<Kept<E>>() == ENTRY && align_of::<Head>() == 8) };
        const { assert!(tag_bytes(true, LEAST) + LEAST * ENTRY >= BLOCK) };
        tag_bytes(E::TAGS, capacity)
    }

    /// For so many entries.
    fn size(room: usize) -> u16 {
        encoded(if E::TAGS { room.max(LEAST) } else { room })
    }

    fn make(head: Head) -> Self {
        Self::make_of(head, head.layout())
    }

    /// The layout is that of the head.
    #[inline]
    fn make_of(head: Head, layout: Layout) -> Self {
        count(layout.size() as isize);
        let raw = spare(layout.size()).unwrap_or_else(|| {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc::alloc(layout) }).unwrap_or_else(|| alloc::handle_alloc_error(layout))
        });
        // SAFETY: it begins with room for a head, and nobody else has it.
        unsafe { raw.cast::<Head>().write(head) };
        Self(raw.cast(), PhantomData)
    }

    /// An empty page with room for at least so many.
    pub(super) fn page(birth: u64, depth: u8, room: usize) -> Self {
        let head = Head { birth, len: 0, size: Self::size(room), form: depth | Self::FORM, kind: Kind::Page };
        let page = Self::make(head);
        page.blank();
        page
    }

    /// Zeroes the tags, and the first block, of a page that is being made.
    fn blank(self) {
        if E::TAGS {
            let bytes = Self::tag_bytes(self.capacity()).max(BLOCK);
            // SAFETY: a page has its tags behind the head, and room for a block by `LEAST`; nobody else has it yet.
            unsafe { self.at::<u8>(0).write_bytes(0, bytes) };
        }
    }

    /// A directory of 2^bits children, all of them `child`.
    pub(super) fn directory(kind: Kind, birth: u64, depth: u8, bits: u8, child: Self) -> Self {
        let directory = Self::make(Head { birth, len: 0, size: bits.into(), form: depth | Self::FORM, kind });
        for slot in 0..1 << bits {
            directory.set_child(slot, child);
        }
        directory
    }

    /// A private copy, a page with room for at least so many. The entries are the same ones.
    pub(super) fn copy(self, birth: u64, room: usize) -> Self {
        let from = *self.head();
        let len = from.len as usize;
        let size = if from.kind == Kind::Page { Self::size(room.max(len)) } else { from.size };
        let head = Head { birth, size, ..from };
        let layout = head.layout();
        let to = Self::make_of(head, layout);
        if size == from.size {
            // SAFETY: both are of one size, and the copy is new. What is behind the last entry may be nothing, and is copied as
            // such. Entries are `Kept`, so there may be several of one.
            unsafe { to.at::<u8>(0).copy_from_nonoverlapping(self.at(0), layout.size() - HEAD) };
            return to;
        }
        to.blank();
        let (old, new) = (Self::tag_bytes(self.capacity()), Self::tag_bytes(to.capacity()));
        // SAFETY: both are pages whose capacity is at least `len`; tags, entries and marks are copied; the copy is new.
        // Entries are `Kept`, so there may be several of one.
        unsafe {
            to.at::<u8>(0).copy_from_nonoverlapping(self.at(0), Self::tag_bytes(len));
            to.at::<Kept<E>>(new).copy_from_nonoverlapping(self.at(old), len);
            if E::MARKS {
                to.at::<u8>(to.marks()).copy_from_nonoverlapping(self.at(self.marks()), len);
            }
        }
        to
    }

    /// The node to be freed.
    pub(super) fn bare(self) -> Bare {
        Bare(self.0)
    }

    #[inline]
    fn head<'v>(self) -> &'v Head {
        // SAFETY: the file's contract: whoever has the pointer has it out of a version that lives, or made the node.
        let head: &'v Head = unsafe { &*self.0.as_ptr() };
        debug_assert_ne!(head.kind, Kind::Freed, "a node was used after it was freed");
        head
    }

    /// A place behind the head.
    #[inline]
    fn at<X>(self, bytes: usize) -> NonNull<X> {
        // SAFETY: callers ask for places within the allocation.
        unsafe { self.0.cast::<u8>().add(HEAD + bytes).cast() }
    }

    /// Asks for the lines of a page of usual size, before it is known how large it is: one wait instead of three, for the
    /// head, the tags and the entry.
    #[inline]
    pub(super) fn prefetch(self) {
        let address = self.0.addr().get();
        (0..6).for_each(|line| prefetch(address + line * LINE));
    }

    /// Asks for the head and the tags of a page of usual size.
    #[inline]
    pub(super) fn prefetch_tags(self) {
        let address = self.0.addr().get();
        (0..2).for_each(|line| prefetch(address + line * LINE));
    }

    fn marks(self) -> usize {
        let n = self.capacity();
        Self::tag_bytes(n) + n * ENTRY
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        self.head().kind
    }

    pub(super) fn birth(self) -> u64 {
        self.head().birth
    }

    #[inline]
    pub(super) fn depth(self) -> u8 {
        self.head().form & DEPTH
    }

    /// The logarithm of a directory's size.
    #[inline]
    pub(super) fn bits(self) -> u8 {
        self.head().size as u8
    }

    pub(super) fn capacity(self) -> usize {
        capacity(self.head().size)
    }

    /// How many entries a page has.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.head().len as usize
    }

    #[inline]
    pub(super) fn entries<'v>(self) -> &'v [Kept<E>] {
        debug_assert_eq!(self.kind(), Kind::Page);
        // SAFETY: a page has `len` entries there, and they live as long as a version that has the page.
        unsafe { std::slice::from_raw_parts(self.at(Self::tag_bytes(self.capacity())).as_ptr(), self.len()) }
    }

    /// Those of the entries; what is behind the last one's means nothing.
    #[inline]
    pub(super) fn tags<'v>(self) -> &'v [Tags] {
        debug_assert!(E::TAGS && self.kind() == Kind::Page);
        // SAFETY: they begin at a multiple of eight. The first block is there and was written, by `blank`. A further one
        // begins within the tags and ends at most a block behind them, where the first 32 and more entries are.
        unsafe { std::slice::from_raw_parts(self.at(0).as_ptr(), self.len().div_ceil(AT_ONCE)) }
    }

    pub(super) fn mark(self, i: usize) -> u8 {
        assert!(E::MARKS && i < self.len());
        // SAFETY: entry `i` exists, and has its mark.
        unsafe { self.at::<u8>(self.marks() + i).read() }
    }

    #[inline]
    pub(super) fn child(self, slot: usize) -> Self {
        debug_assert!(self.kind() != Kind::Page && slot < 1 << self.bits());
        // SAFETY: callers ask for one of the 2^bits children, which `directory` and `copy` filled in.
        unsafe { self.at::<Self>(slot * size_of::<Self>()).read() }
    }

    // What follows writes, so the node is private.

    pub(super) fn set_child(self, slot: usize, child: Self) {
        debug_assert!(self.kind() != Kind::Page && slot < 1 << self.bits());
        // SAFETY: one of the 2^bits children of a private node.
        unsafe { self.at::<Self>(slot * size_of::<Self>()).write(child) };
    }

    fn set_tag(self, i: usize, hash: u64) {
        if E::TAGS {
            let (word, shift) = (self.at::<u64>(i / 4 * 8), i % 4 * 16);
            // SAFETY: callers have `i` below the capacity of a private page.
            unsafe { word.write(word.read() & !(0xffff << shift) | (hash & 0xffff) << shift) };
        }
    }

    pub(super) fn set_mark(self, i: usize, mark: u8) {
        if E::MARKS {
            assert!(i < self.len());
            // SAFETY: entry `i` of a private page exists, and has its mark.
            unsafe { self.at::<u8>(self.marks() + i).write(mark) };
        }
    }

    fn entry(self, i: usize) -> NonNull<Kept<E>> {
        self.at(Self::tag_bytes(self.capacity()) + i * ENTRY)
    }

    fn set_len(self, len: usize) {
        // SAFETY: the head of a private node; no reference to it is kept.
        unsafe { (*self.0.as_ptr()).len = len as u32 };
    }

    /// Appends an entry; there is room.
    pub(super) fn push(self, entry: Kept<E>, mark: u8) {
        let n = self.len();
        assert!(n < self.capacity(), "the page is full");
        self.set_tag(n, entry.get().hash());
        // SAFETY: below the capacity of a private page.
        unsafe { self.entry(n).write(entry) };
        self.set_len(n + 1);
        self.set_mark(n, mark);
    }

    /// Puts an entry of the same hash in the place of another one, which is returned.
    pub(super) fn swap(self, i: usize, entry: Kept<E>) -> Kept<E> {
        assert!(i < self.len());
        // SAFETY: entry `i` of a private page exists.
        unsafe { self.entry(i).replace(entry) }
    }

    /// Takes an entry out; the last one fills its place.
    pub(super) fn swap_remove(self, i: usize) -> Kept<E> {
        let last = self.len() - 1;
        assert!(i <= last);
        let mark = if E::MARKS { self.mark(last) } else { 0 };
        // SAFETY: both entries of a private page exist.
        let out = unsafe {
            let moved = self.entry(last).read();
            if E::TAGS {
                let word = self.at::<u64>(last / 4 * 8).read();
                self.set_tag(i, word >> (last % 4 * 16));
            }
            self.entry(i).replace(moved)
        };
        if i < last {
            self.set_mark(i, mark);
        }
        self.set_len(last);
        out
    }

    /// One more handle to an entry that goes into another page of the same version, in place of this page's.
    pub(super) fn entry_again(self, i: usize) -> Kept<E> {
        assert!(i < self.len());
        // SAFETY: entry `i` exists, and is `Kept`.
        unsafe { self.entry(i).read() }
    }
}

/// Asks the processor for what is at an address, which need not be anything. A hint.
#[inline]
pub(super) fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads nothing that the program could tell, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// At which of these tags the wanted one is: a bit for each.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn same(tags: &Tags, wanted: u16) -> u32 {
    use core::arch::x86_64::{__m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};
    // SAFETY: every x86-64 has what these ask for, and they read the four parts of `tags`.
    unsafe {
        let wanted = _mm_set1_epi16(wanted.cast_signed());
        let part = |i: usize| _mm_cmpeq_epi16(_mm_loadu_si128(std::ptr::from_ref(tags).cast::<__m128i>().add(i)), wanted);
        let half = |i: usize| _mm_movemask_epi8(_mm_packs_epi16(part(2 * i), part(2 * i + 1))).cast_unsigned();
        half(0) | half(1) << 16
    }
}

/// What a processor fetches at once.
pub(super) const LINE: usize = 64;

#[cfg(not(all(test, not(informer_loom), not(informer_shuttle))))]
fn count(_bytes: isize) {}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
pub(super) use counted::census;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
use counted::count;

/// How many bytes of nodes and leaves there are, made and ended by one thread.
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod counted {
    use crate::sync::thread_local;
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<isize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: isize) {
        BYTES.with(|all| all.set(all.get() + bytes));
    }

    /// Of the calling thread.
    pub(in crate::store) fn census() -> usize {
        BYTES.with(|all| usize::try_from(all.get()).unwrap_or_else(|_| panic!("more freed than made")))
    }
}

/// A value in an allocation of its own, shared like a node.
pub(super) struct Leaf<T>(NonNull<T>);

// SAFETY: as for `Ptr`.
unsafe impl<T: Send + Sync> Send for Leaf<T> {}
// SAFETY: as for `Ptr`.
unsafe impl<T: Send + Sync> Sync for Leaf<T> {}

impl<T> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Leaf<T> {}

impl<T> Leaf<T> {
    pub(super) fn new(value: T) -> Self {
        count(size_of::<T>() as isize);
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    #[inline]
    pub(super) fn get<'v>(self) -> &'v T {
        // SAFETY: the file's contract, as for a node.
        unsafe { &*self.0.as_ptr() }
    }

    /// Changes a private one.
    pub(super) fn edit<R>(self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: a private leaf is reached by the writer only, which is here.
        f(unsafe { &mut *self.0.as_ptr() })
    }

    /// Takes it back, when no version has it.
    pub(super) fn free(self) -> T {
        count(-(size_of::<T>() as isize));
        // SAFETY: it came from a box, and by the file's contract this is the last use of it.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}
