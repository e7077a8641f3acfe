//! What changed between two versions, found page by page.
//!
//! A [`Diff`] owns both snapshots and remembers the hash it has come to, so it can be kept, moved to another thread and
//! dropped half-way. Where both versions have the same node, everything below it is skipped. Elsewhere the pages of both
//! are compared, within the range of the smaller one; it holds no more changes at a time than two pages have objects.

use super::AnySnapshot;
use crate::flow::{AsKey, Change, Deleted, Object, Opaque, Sought};
use std::{collections::VecDeque, iter::FusedIterator};

/// The changes from one snapshot to a later one, in no order of keys.
pub(crate) struct Diff {
    old: AnySnapshot,
    new: AnySnapshot,
    ready: VecDeque<Change<Opaque>>,
    /// The first hash that was not looked at.
    at: Option<u64>,
}

impl Diff {
    pub(super) fn new(old: AnySnapshot, new: AnySnapshot) -> Self {
        Self { old, new, ready: VecDeque::new(), at: Some(0) }
    }

    /// Looks at the pages for one hash; where the next ones begin.
    fn refill(&mut self, at: u64) -> Option<u64> {
        let (old, new) = (self.old.version_of(), self.new.version_of());
        if let Some(range) = old.items.shared(&new.items, at) {
            return range.next();
        }
        let (before, after) = (old.items.page(at), new.items.page(at));
        let range = match (before, after) {
            (Some((_, a)), Some((_, b))) => a.smaller(b),
            (one, other) => one.or(other)?.1,
        };
        let entries = |page: Option<(super::node::Ptr<Object<Opaque>>, _)>| page.map_or(&[][..], |(page, _)| page.entries());
        let (before, after) = (entries(before), entries(after));
        let here = |object: &Object<Opaque>| range.contains(object.key_hash());
        for (i, new) in after.iter().enumerate() {
            let new = new.get();
            // An update leaves the others where they are.
            if before.get(i).is_some_and(|old| Object::ptr_eq(old.get(), new)) || !here(new) {
                continue;
            }
            match old.get(Sought::by(new)) {
                Some(old) if Object::ptr_eq(old, new) => {}
                Some(old) => self.ready.push_back(Change::Updated { old: old.clone(), new: new.clone() }),
                None => self.ready.push_back(Change::Added(new.clone())),
            }
        }
        for (i, old) in before.iter().enumerate() {
            let old = old.get();
            if after.get(i).is_some_and(|new| Object::ptr_eq(old, new.get())) || !here(old) {
                continue;
            }
            if new.get(Sought::by(old)).is_none() {
                let (key, last_known) = (Object::key(old).clone(), Some(old.clone()));
                self.ready.push_back(Change::Deleted(Deleted::Missed { key, last_known }));
            }
        }
        range.next()
    }
}

impl Iterator for Diff {
    type Item = Change<Opaque>;

    fn next(&mut self) -> Option<Change<Opaque>> {
        while self.ready.is_empty() {
            self.at = self.refill(self.at?);
        }
        self.ready.pop_front()
    }
}

impl FusedIterator for Diff {}
