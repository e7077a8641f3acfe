//! The store: what is known of the source's objects, as a row of immutable versions.
//!
//! # Promise
//! * One writer ([`Writer`], the engine's). Readers take a version and look at it for as long as they like: all
//!   objects, all indices, the source's version and the publish counter `seq` of one instant.
//! * A version is published by one swap, before anybody is told of what is in it (P1). A relist is one version (P5).
//! * `snapshot()` is O(1); a version that is held is never changed. Versions share what did not change.
//! * An object that did not change keeps its allocation, so "changed" is "another pointer" (V1), and the difference of
//!   two versions is exactly what a listener between them has to be told.
//! * An update whose index function panics is refused whole: the object's old state stays, in the items and in every
//!   index; it is reported in the [`Publication`], and everything else is applied.
//!
//! # Argument
//! The published version is an `Arc` in a mutex whose critical section is a clone or a swap of that `Arc`, nothing
//! else; the old version is dropped after the lock, so user `Drop` never runs in it. The swap is the linearization
//! point of a publication; a reader that enters the lock later has the new version or a later one.
//!
//! User code is called in one phase, *before* anything is changed: the index functions, and with them `Hash` and `Eq`
//! of the values they emit ([`index`]). The phase ends with numbers. From there on only numbers and keys are compared,
//! so nothing can unwind half-way through a change. Deleting calls no user code at all but `Drop`, contained.
//!
//! Inside: persistent B-trees. Items are ordered by key, so a namespace is a range; see [`diff`] for the walk of two
//! versions. Nothing of this room names the type of the objects but the shells [`Snapshot`], [`StoreReader`] and
//! [`Lister`].

mod diff;
mod index;
mod lister;
mod reader;
mod version;
mod writer;

pub(crate) use diff::Diff;
pub(crate) use index::IndexSpec;
pub use index::{Index, IndexError, IndexRef};
pub use lister::{Lister, NamespaceLister};
pub use reader::{Snapshot, StoreReader};
pub(crate) use version::{AnyReader, AnySnapshot};
pub(crate) use writer::{Changes, Publication, Refusal, Writer};

#[cfg(test)]
mod tests;
