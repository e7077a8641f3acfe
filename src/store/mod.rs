//! The store: what is known of the source's objects, as a row of immutable versions.
//!
//! # Promise
//! * One writer (the engine's). Readers take a version and look at it for as long as they like: all objects, all
//!   indices, the source's version and the publish counter `seq` of one instant, in O(1) (P4,
//!   `the_store_behaves_as_its_plain_model`, `one_snapshot_is_one_instant_while_the_writer_writes`). A version that is
//!   held is never changed. It keeps the objects it shows and no others
//!   (`an_object_that_no_version_shows_is_freed_and_a_snapshot_keeps_its_own`), however long it is held
//!   (`a_held_version_pins_no_more_than_its_own_size_however_long_it_is_held_and_nothing_when_it_is_let_go_of`).
//! * No read waits for the writer, wherever that is, and no write for a reader that holds a version or is in the middle of
//!   reading one (`no_read_of_the_store_waits_for_a_frozen_writer`,
//!   `no_write_waits_for_a_frozen_reader_that_holds_a_version`).
//! * Memory follows what is stored, upwards and downwards
//!   (`the_store_shrinks_as_objects_are_deleted_and_is_nothing_without_any`). What a step replaces is freed in bounded
//!   parts, by whoever writes (`what_a_whole_state_replaces_is_freed_in_steps`); what a version kept, when it is let go of,
//!   in the same way (`after_versions_were_let_go_of_each_update_frees_a_bounded_part_of_what_they_kept_once`), and though nothing
//!   comes (`what_a_held_version_kept_is_freed_when_it_is_let_go_of_though_nothing_comes`).
//! * A version is published by one swap, before anybody is told of what is in it (P1,
//!   `b_07_a_relist_made_delete_is_in_store_and_indices_before_it_is_told`). A relist is one version (P5,
//!   `b_58_readers_see_the_old_set_until_they_see_the_whole_new_one`).
//! * An object that did not change keeps its allocation, so "changed" is "another pointer"
//!   (`an_unchanged_object_is_told_to_nobody_and_the_old_one_stays`), and the difference of two versions is exactly what
//!   a listener between them has to be told.
//! * An update whose index function panics is refused whole: the object's old state stays, in the items and in every
//!   index; it is reported with the publication, and everything else is applied (P9,
//!   `b_61_an_index_that_fails_refuses_the_update_whole`). client-go stores first and panics half-way.
//!
//! * Whoever waits for a version or a condition looks at what is published, first and again after each publication; it
//!   misses none and polls nothing, and a publication that nobody waits for costs one fence and one load more
//!   (`a_waiter_looks_once_for_each_publication_and_never_by_itself`; `wait.rs` has the argument).
//! * Lists by label are the same with and without an index
//!   (`an_index_changes_how_long_a_list_takes_and_nothing_else`).
//! * What was written and has not come back yet can be laid over the store; what is read is then never older than an answer
//!   of the source, nor than the store (`a_read_is_never_older_than_the_store_and_never_older_than_an_answer`; `overlay.rs`).
//! * [`Indexer`] is the same tree for values of any kind, written by any thread; a write that an index refuses changes
//!   nothing and is an error (`an_indexer_behaves_as_its_plain_model`; `indexer.rs`).
//!
//! # Argument
//! The current version is in a cell (`cell.rs`): readers take no lock, and neither side waits for the other. The swap in it is the
//! linearization point of a publication; a reader that looks later has the new version or a later one. What is replaced
//! is dropped outside of everything that others could wait for (`a_drop_that_reads_the_store_runs_outside_its_lock`).
//!
//! User code is called in one phase, *before* anything is changed: the index functions, and with them `Hash` and `Eq`
//! of the values they emit (`index.rs`). The phase ends with numbers. From there on only numbers and keys are compared,
//! so nothing can unwind half-way through a change. A deletion is never refused, whatever an index function does.
//!
//! # Inside
//! A version is a tree of objects and, per index, a tree of values with a tree of ids each (`directory.rs`): pages of some
//! thirty entries (sixty ids) under a directory of their hashes, copied where the next version differs. Nodes are plain memory that
//! nothing counts (`node.rs`); the writer alone makes and frees them, by the rule in `reclaim.rs`. `table.rs` makes
//! versions of whatever is stored, `writer.rs` makes them from deltas, `diff.rs` compares two, skipping what they share.
//! Objects stand in no order of keys.
//!
//! All objects of a store are of one type, which is asked of the store when all are walked (`typed.rs`).
//!
//! Nothing of this room names the type of the objects but the shells [`Snapshot`], [`StoreReader`] and [`Lister`], and
//! [`ReadYourWrites`], and `typed.rs` for them. [`Indexer`] and [`ExpirationStore`] are over `table.rs` as well.

mod cell;
mod diff;
mod directory;
mod expiration;
mod index;
mod indexer;
mod lister;
mod node;
mod overlay;
mod reader;
mod reclaim;
mod table;
mod tags;
mod typed;
mod version;
mod wait;
mod writer;

pub(crate) use cell::Held;
pub(crate) use diff::Diff;
pub use expiration::{ExpirationStore, Unexpired};
pub(crate) use index::IndexSpec;
pub use index::{Index, IndexError, IndexRef, IndexStats};
pub use indexer::{Indexer, IndexerSnapshot, RefusedWrite, Stored, Write, WriteError};
pub(crate) use lister::{Labels, LabelsOf};
pub use lister::{Lister, NamespaceLister, SelectError};
pub use overlay::ReadYourWrites;
pub use reader::{Snapshot, StoreReader};
pub use reclaim::Gauge;
pub(crate) use version::{AnyReader, AnySnapshot};
pub(crate) use wait::{Compare, Reason, Waits};
pub(crate) use writer::{Changes, Publication, Writer};

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod door_tests;
#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod indexer_tests;
#[cfg(all(test, informer_shuttle))]
mod lin;
#[cfg(all(test, informer_loom))]
mod model;
#[cfg(any(all(test, not(informer_loom), not(informer_shuttle)), fuzzing))]
mod script;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use script::fuzz;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod overlay_tests;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
#[cfg(all(test, informer_loom))]
mod wait_model;

/// What readers are handed is shared, and cannot be changed through it (B-74). A type that can change behind a shared
/// reference (a `Mutex`, a `Cell`) is the user's own choice.
///
/// ```
/// fn read(object: informer::flow::Object<String>) -> usize {
///     let other = object.clone();
///     other.len()
/// }
/// ```
///
/// ```compile_fail,E0596
/// fn change(object: informer::flow::Object<String>) {
///     let mut other = object.clone();
///     other.push('!');
/// }
/// ```
///
/// ```compile_fail,E0596
/// fn change(snapshot: informer::store::Snapshot<String>) {
///     for value in snapshot.iter() {
///         value.push('!');
///     }
/// }
/// ```
#[cfg(doctest)]
mod b_74_what_is_stored_cannot_be_changed_under_others {}
