//! What the server has and had: the truth of now, and every change.

use super::watch_cache::Op;
use crate::flow::{AsKey, Object};

/// Everything that the server has of one resource.
#[derive(Clone, Debug)]
pub struct Truth<R> {
    /// The server's version.
    pub version: String,
    /// Every object, in the order of its keys.
    pub objects: Vec<Object<R>>,
}

/// Every change of one resource since the server was made, whatever was compacted, trimmed or restored.
#[derive(Clone, Debug)]
pub struct Audit<R> {
    /// In the order in which they were made.
    pub records: Vec<Record<R>>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Record<R> {
    /// Counts the changes of the server; goes on when versions go back.
    pub seq: u64,
    /// The version that it gave.
    pub version: u64,
    /// What it did.
    pub op: Op,
    /// The object as it was written; for a deletion the last state, with the deletion's version.
    pub object: Object<R>,
}

impl<R> Audit<R> {
    /// The changes of one object, in order.
    pub fn of(&self, key: impl AsKey) -> impl Iterator<Item = &Record<R>> {
        self.records.iter().filter(move |r| Object::key(&r.object).as_key() == key.as_key())
    }
}
