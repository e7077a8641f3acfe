//! [`Object`] and the text of its key: thin, shared, immutable handles to one allocation each. An `unsafe` room.
//!
//! # Layout
//! `Stored<T>` is `Header` followed by the value, `repr(C)`, so a pointer to one is a pointer to its header, and code
//! that knows only the header can count, compare and read metadata. The header's table knows how to free the whole.
//!
//! # Types
//! The rooms carry `Object<Opaque>`. `Opaque` has no size and no content: a reference to it reads nothing. The way
//! back, [`Object::typed`] and [`Object::typed_ref`], compares the `TypeId` in the table with the type asked for and
//! panics when they differ, so a mix-up inside the crate is a loud defect and never undefined behaviour.
//!
//! # Counting
//! As `Arc`: clone is a relaxed increment, drop a release decrement; the last one loads the count once more (acquire)
//! and frees. The load orders as a fence would, since decrements continue each other's release, and unlike a fence it is
//! understood by ThreadSanitizer. The value's `Drop` runs contained, as user code, on the thread of the last owner.
//! Checks: `flow/model.rs` (loom).
#![allow(unsafe_code)]

use super::{
    AsKey, Change, Deleted, Event, KeyError, KeyRef, ObjectKey, Text,
    text::{parse_decimal, parse_uuid},
};
use crate::sync::{
    UnsafeCell,
    atomic::{AtomicU32, Ordering},
    call_out::{self, Site},
    keep, order,
};
use std::{
    alloc::{self, Layout},
    any::TypeId,
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull,
};

/// What a source knows of an object besides its value. Read once, when the [`Object`] is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Meta<'a> {
    /// Empty when the object has none.
    pub namespace: &'a str,
    /// Never empty.
    pub name: &'a str,
    /// The source's version, opaque; empty when there is none.
    pub version: &'a str,
    /// Tells an object from a later one of the same name; empty when there is none.
    pub uid: &'a str,
}

/// The type of objects whose type is not known here.
#[derive(Debug)]
pub struct Opaque(());

/// A shared, immutable object: its value, its key, and the version and uid its source gave it.
///
/// Cloning is one count and never allocates. Dereferences to `T`; the rest are associated functions, so that `T`'s own
/// methods stay visible. client-go keeps bare pointers and reads metadata through an accessor each time.
#[repr(transparent)]
pub struct Object<T>(NonNull<Header>, PhantomData<T>);

#[repr(C)]
struct Header {
    count: AtomicU32,
    table: &'static Table,
    key: ObjectKey,
    marks: Marks,
}

#[repr(C)]
struct Stored<T> {
    header: Header,
    value: T,
}

/// What is known of a type at run time.
struct Table {
    /// A function, since `TypeId::of` is const only from Rust 1.91 on.
    type_id: fn() -> TypeId,
    /// Frees a `Stored` of this type whose last handle is gone.
    free: unsafe fn(NonNull<Header>),
}

/// Version and uid, as a source told them. Canonical decimals below 2^56 and uuids stand here in binary, anything else is
/// boxed.
enum Marks {
    Usual {
        version: [u8; 7],
        uid: [u8; 16],
    },
    /// Without a uid.
    Version([u8; 7]),
    /// Neither.
    Nothing,
    Other(Box<(Box<str>, Box<str>)>),
}

/// What an object's header will say, read from the source's form of it before a transform consumes that.
pub(crate) struct Label {
    key: ObjectKey,
    marks: Marks,
}

impl Label {
    pub(crate) fn new(key: ObjectKey, version: &str, uid: &str) -> Self {
        Self { key, marks: Marks::new(version, uid) }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    pub(crate) fn version(&self) -> Text<'_> {
        self.marks.version()
    }

    /// Whether `object` has the same, non-empty version.
    pub(crate) fn same_version<T>(&self, object: &Object<T>) -> bool {
        self.marks.same_version(&Object::header(object).marks)
    }
}

impl Marks {
    fn new(version: &str, uid: &str) -> Self {
        let small = parse_decimal(version).map(u64::to_le_bytes).and_then(|n| match n {
            [low @ .., 0] => Some(low),
            _ => None,
        });
        match (small, parse_uuid(uid)) {
            (Some(version), Some(uid)) => Self::Usual { version, uid },
            (Some(version), None) if uid.is_empty() => Self::Version(version),
            _ if version.is_empty() && uid.is_empty() => Self::Nothing,
            _ => Self::Other(Box::new((version.into(), uid.into()))),
        }
    }

    fn version(&self) -> Text<'_> {
        match self {
            Self::Usual { version: [a, b, c, d, e, f, g], .. } | Self::Version([a, b, c, d, e, f, g]) => {
                Text::decimal(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, 0]))
            }
            Self::Nothing => Text::borrowed(""),
            Self::Other(texts) => Text::borrowed(&texts.0),
        }
    }

    fn uid(&self) -> Text<'_> {
        match self {
            Self::Usual { uid, .. } => Text::uuid(*uid),
            Self::Version(_) | Self::Nothing => Text::borrowed(""),
            Self::Other(texts) => Text::borrowed(&texts.1),
        }
    }

    /// Equal and not empty. A decimal that is boxed because of the uid beside it is still the same.
    fn same_version(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Usual { version: a, .. } | Self::Version(a), Self::Usual { version: b, .. } | Self::Version(b)) => a == b,
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            _ => {
                let (a, b) = (self.version(), other.version());
                !a.is_empty() && *a == *b
            }
        }
    }
}

struct TableOf<T>(PhantomData<T>);

impl<T: 'static> TableOf<T> {
    const TABLE: &'static Table = &Table { type_id: TypeId::of::<T>, free: Self::free };

    /// # Safety
    /// `header` begins a `Stored<T>` made by `Object::<T>::with_key`, and no handle to it is left.
    unsafe fn free(header: NonNull<Header>) {
        // SAFETY: by the contract the allocation came from `Box<Stored<T>>` and nobody else can reach it.
        let stored = unsafe { Box::from_raw(header.cast::<Stored<T>>().as_ptr()) };
        if std::mem::needs_drop::<T>() {
            // Dropping the box inside frees the memory even when the value's `Drop` unwinds.
            call_out::contain(Site::Drop, move || drop(stored));
        }
    }
}

// SAFETY: a handle gives shared access to `T` and may drop it on any thread, as `Arc<T>` does; the rest of the header
// is immutable but for the atomic count.
unsafe impl<T: Send + Sync> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Object<T> {}

impl<T: Send + Sync + 'static> Object<T> {
    /// An object with the metadata its source gave it.
    ///
    /// # Errors
    /// [`KeyError`] when namespace and name make no key.
    pub fn new(meta: Meta<'_>, value: T) -> Result<Self, KeyError> {
        Ok(Self::with_key(ObjectKey::new(meta.namespace, meta.name)?, meta.version, meta.uid, value))
    }

    /// [`Object::new`] that shares the text of a key made before.
    pub fn with_key(key: ObjectKey, version: &str, uid: &str, value: T) -> Self {
        Self::with_label(Label::new(key, version, uid), value)
    }

    /// An object with metadata read before, when the value was still another.
    pub(crate) fn with_label(label: Label, value: T) -> Self {
        let Label { key, marks } = label;
        let header = Header { count: AtomicU32::new(1), table: TableOf::<T>::TABLE, key, marks };
        let stored = Box::leak(Box::new(Stored { header, value }));
        Self(NonNull::from(stored).cast(), PhantomData)
    }

    /// The value, when this is the only handle; else the handle back.
    ///
    /// # Errors
    /// The handle, when others exist.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        this.check::<T>();
        let header = Self::header(&this);
        // From one to none: nobody else holds a handle, so nobody can make one.
        if header
            .count
            .compare_exchange(1, 0, order("object: the only handle is taken", Ordering::Acquire), Ordering::Relaxed)
            .is_err()
        {
            return Err(this);
        }
        let this = ManuallyDrop::new(this);
        // SAFETY: the count was one and is now zero, so this handle was the last; the exchange made what the
        // others did visible; `check` says that the allocation was made by `with_key` of this very `T`.
        let stored = unsafe { Box::from_raw(this.0.cast::<Stored<T>>().as_ptr()) };
        Ok(stored.value)
    }

    /// Forgets the type.
    pub(crate) fn erase(self) -> Object<Opaque> {
        let this = ManuallyDrop::new(self);
        Object(this.0, PhantomData)
    }
}

impl Object<Opaque> {
    /// Remembers the type.
    ///
    /// # Panics
    /// When the object was made of another type.
    pub(crate) fn typed<T: 'static>(self) -> Object<T> {
        self.check::<T>();
        let this = ManuallyDrop::new(self);
        Object(this.0, PhantomData)
    }

    /// Remembers the type, by reference.
    ///
    /// # Panics
    /// When the object was made of another type.
    pub(crate) fn typed_ref<T: 'static>(&self) -> &Object<T> {
        self.check::<T>();
        // SAFETY: the table says it was made of `T`.
        unsafe { self.typed_ref_unchecked() }
    }

    /// [`Object::typed_ref`] by somebody who knows. Does not look at the object.
    ///
    /// # Safety
    /// The object was made of this very type.
    pub(crate) unsafe fn typed_ref_unchecked<T: 'static>(&self) -> &Object<T> {
        // SAFETY: `Object` is `repr(transparent)` over a pointer whatever `T` is, and the caller knows that it was made of
        // `T`.
        unsafe { &*std::ptr::from_ref(self).cast::<Object<T>>() }
    }

    /// The type that it was made of.
    pub(crate) fn type_of(this: &Self) -> TypeId {
        (Self::header(this).table.type_id)()
    }
}

impl Event<Opaque> {
    /// Remembers the type, by reference.
    ///
    /// # Panics
    /// When an object in it was made of another type.
    pub(crate) fn typed_ref<T: 'static>(&self) -> &Event<T> {
        match &self.change {
            Change::Added(o) | Change::Deleted(Deleted::Observed(o)) => o.check::<T>(),
            Change::Updated { old, new } => {
                old.check::<T>();
                new.check::<T>();
            }
            Change::Deleted(Deleted::Missed { last_known, .. }) => last_known.iter().for_each(|o| o.check::<T>()),
        }
        // SAFETY: `Event`, `Change` and `Deleted` are `repr(C)` and mention `T` only inside `Object<T>`, which has one
        // layout for all `T` (and `Option` of it the null niche, guaranteed for transparent wrappers of `NonNull`);
        // every object inside was just checked.
        unsafe { &*std::ptr::from_ref(self).cast::<Event<T>>() }
    }
}

impl<T> Object<T> {
    fn check<U: 'static>(&self) {
        let table = Self::header(self).table;
        // Nearly always the same table; one type may have several, one per codegen unit.
        let same = std::ptr::eq(table, TableOf::<U>::TABLE) || (table.type_id)() == TypeId::of::<U>();
        assert!(same, "an object of another type came down this pipeline");
    }

    fn header(this: &Self) -> &Header {
        // SAFETY: a handle keeps its allocation alive, and a `Stored` begins with its header.
        unsafe { this.0.as_ref() }
    }

    /// The key.
    pub fn key(this: &Self) -> &ObjectKey {
        &Self::header(this).key
    }

    /// The version its source gave it, taken before any transform; empty when it gave none.
    pub fn version(this: &Self) -> Text<'_> {
        Self::header(this).marks.version()
    }

    /// The uid its source gave it; empty when it gave none.
    pub fn uid(this: &Self) -> Text<'_> {
        Self::header(this).marks.uid()
    }

    /// Whether both have the same, non-empty version.
    pub(crate) fn same_version(a: &Self, b: &Self) -> bool {
        Self::header(a).marks.same_version(&Self::header(b).marks)
    }

    /// Where it is; equal for handles to the same allocation only.
    pub(crate) fn address(this: &Self) -> usize {
        this.0.addr().get()
    }

    /// Whether both are the same allocation.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        a.0 == b.0
    }
}

impl<T> Deref for Object<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the handle keeps the allocation alive; it is a `Stored<T>` (by construction, or checked by `typed`),
        // or `T` is `Opaque`, which has no size and whose place after the header lies within the allocation.
        unsafe { &self.0.cast::<Stored<T>>().as_ref().value }
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        count_up(&Self::header(self).count);
        Self(self.0, PhantomData)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        let header = Self::header(self);
        if header.count.fetch_sub(1, order("object: a handle is given up", Ordering::Release)) != 1 {
            return;
        }
        if keep("object: the last handle looks again") {
            header.count.load(Ordering::Acquire);
        }
        let free = header.table.free;
        // SAFETY: the count fell to zero here, so no handle is left, and the table is that of the type it was made of.
        unsafe { free(self.0) };
    }
}

impl<T> AsKey for Object<T> {
    fn as_key(&self) -> KeyRef<'_> {
        Self::key(self).as_key()
    }

    fn key_hash(&self) -> u64 {
        Self::key(self).hash64()
    }

    fn as_object_key(&self) -> Option<&ObjectKey> {
        Some(Self::key(self))
    }
}

impl<T> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", Self::key(self), Self::version(self))
    }
}

/// The text of a key, with its hash and where it splits, behind one thin pointer.
pub(super) struct KeyText(NonNull<KeyHead>);

/// Followed by `len` bytes of UTF-8 in the same allocation.
#[repr(C)]
struct KeyHead {
    count: AtomicU32,
    split: u16,
    len: u16,
    hash: u64,
    /// Stands for the text, so that a checker sees who reads it and who frees it.
    text: UnsafeCell<()>,
}

// SAFETY: the text is immutable, the count atomic.
unsafe impl Send for KeyText {}
// SAFETY: as above.
unsafe impl Sync for KeyText {}

impl KeyText {
    /// The text `namespace/name`, or `name` alone when the namespace is empty. The caller has seen that it has at most
    /// 65,535 bytes.
    pub(super) fn new(namespace: &str, name: &str, hash: u64) -> Self {
        let parts = if namespace.is_empty() { ["", "", name] } else { [namespace, "/", name] };
        let len = parts.iter().map(|p| p.len()).sum();
        let layout = Self::layout(len);
        let head =
            KeyHead { count: AtomicU32::new(1), split: namespace.len() as u16, len: len as u16, hash, text: UnsafeCell::new(()) };
        assert!(usize::from(head.len) == len, "the key is too long");
        // SAFETY: the layout is not empty. The head fits and is aligned, by the layout; the parts fit behind it, since
        // their lengths add up to the `len` of the layout; fresh memory overlaps nothing.
        unsafe {
            let Some(raw) = NonNull::new(alloc::alloc(layout)) else { alloc::handle_alloc_error(layout) };
            raw.cast::<KeyHead>().write(head);
            let mut to = raw.add(size_of::<KeyHead>());
            for part in parts {
                to.copy_from_nonoverlapping(NonNull::from(part).cast::<u8>(), part.len());
                to = to.add(part.len());
            }
            Self(raw.cast())
        }
    }

    fn layout(len: usize) -> Layout {
        // At most 64 KiB and a few bytes, so it cannot overflow.
        Layout::from_size_align(size_of::<KeyHead>() + len, align_of::<KeyHead>()).expect("a key is small")
    }

    fn head(&self) -> &KeyHead {
        // SAFETY: a handle keeps its allocation alive, and it begins with its head.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn hash(&self) -> u64 {
        self.head().hash
    }

    /// Length of the namespace.
    pub(super) fn split(&self) -> usize {
        usize::from(self.head().split)
    }

    pub(super) fn as_str(&self) -> &str {
        let len = usize::from(self.head().len);
        // SAFETY: `new` wrote `len` bytes behind the head, taken whole from `str`s; they live as long as this handle.
        // The pointer is that of the whole allocation, not of a reference to its head.
        self.head().text.with(|_| unsafe {
            let bytes = std::slice::from_raw_parts(self.0.cast::<u8>().add(size_of::<KeyHead>()).as_ptr(), len);
            std::str::from_utf8_unchecked(bytes)
        })
    }

    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Clone for KeyText {
    fn clone(&self) -> Self {
        count_up(&self.head().count);
        Self(self.0)
    }
}

impl Drop for KeyText {
    fn drop(&mut self) {
        let head = self.head();
        if head.count.fetch_sub(1, order("key: a handle is given up", Ordering::Release)) == 1 {
            if keep("key: the last handle looks again") {
                head.count.load(Ordering::Acquire);
            }
            head.text.with_mut(|_| ());
            let layout = Self::layout(usize::from(head.len));
            // SAFETY: the last handle is gone, so the head may go; the memory was allocated with this very layout.
            unsafe {
                self.0.drop_in_place();
                alloc::dealloc(self.0.cast::<u8>().as_ptr(), layout);
            }
        }
    }
}

/// As `Arc`: two thousand million leaked handles would wrap the count and free something live, so that aborts.
fn count_up(count: &AtomicU32) {
    if count.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
        std::process::abort();
    }
}

/// Bytes of an object besides its value and the text of its key.
#[cfg(test)]
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
