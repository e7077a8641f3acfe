//! What changed between two versions, found piece by piece.
//!
//! A [`Diff`] owns both snapshots and remembers the last key it looked at, so it can be kept, moved to another thread
//! and dropped half-way; it holds at most [`PIECE`] changes at a time. The first piece comes from a walk of both trees
//! that skips what they share, and mostly it is the only one. When it is full, the rest comes from walking both in
//! order of keys from the last key on, which looks at each object once: as many changes as that are a relist or the
//! first state of a listener, where little is shared.

use super::{
    AnySnapshot,
    version::{Item, Items},
};
use crate::flow::{Change, Deleted, ObjectKey, Opaque};
use imbl::ordmap::DiffItem;
use std::{
    collections::VecDeque,
    iter::FusedIterator,
    ops::Bound::{Excluded, Unbounded},
};

/// How many changes are looked up at a time.
pub(super) const PIECE: usize = if cfg!(test) { 4 } else { 64 };

/// The changes from one snapshot to a later one, in the order of keys.
pub(crate) struct Diff {
    old: AnySnapshot,
    new: AnySnapshot,
    ready: VecDeque<Change<Opaque>>,
    at: At,
}

enum At {
    Start,
    After(ObjectKey),
    End,
}

impl Diff {
    pub(super) fn new(old: AnySnapshot, new: AnySnapshot) -> Self {
        Self { old, new, ready: VecDeque::new(), at: At::Start }
    }

    fn refill(&mut self) {
        let (old, new) = (&self.old.0.items, &self.new.0.items);
        match &self.at {
            At::Start => self.ready.extend(skipping_shared(old, new).take(PIECE)),
            At::After(key) => in_order(old, new, key, |change| {
                self.ready.push_back(change);
                self.ready.len() < PIECE
            }),
            At::End => {}
        }
        self.at = match self.ready.back() {
            Some(last) if self.ready.len() == PIECE => At::After(key_of(last).clone()),
            _ => At::End,
        };
    }
}

impl Iterator for Diff {
    type Item = Change<Opaque>;

    fn next(&mut self) -> Option<Change<Opaque>> {
        if self.ready.is_empty() {
            self.refill();
        }
        self.ready.pop_front()
    }
}

impl FusedIterator for Diff {}

fn key_of(change: &Change<Opaque>) -> &ObjectKey {
    match change {
        Change::Added(o) | Change::Updated { new: o, .. } => crate::flow::Object::key(o),
        Change::Deleted(d) => d.key(),
    }
}

fn added(new: &Item) -> Change<Opaque> {
    Change::Added(new.0.clone())
}

fn updated(old: &Item, new: &Item) -> Change<Opaque> {
    Change::Updated { old: old.0.clone(), new: new.0.clone() }
}

fn deleted(key: &ObjectKey, old: &Item) -> Change<Opaque> {
    Change::Deleted(Deleted::Missed { key: key.clone(), last_known: Some(old.0.clone()) })
}

fn skipping_shared<'a>(old: &'a Items, new: &'a Items) -> impl Iterator<Item = Change<Opaque>> {
    old.diff(new).map(|item| match item {
        DiffItem::Add(_, new) => added(new),
        DiffItem::Update { old: (_, old), new: (_, new) } => updated(old, new),
        DiffItem::Remove(key, old) => deleted(key, old),
    })
}

/// Walks both behind `key` until `more` has enough.
fn in_order(old: &Items, new: &Items, key: &ObjectKey, mut more: impl FnMut(Change<Opaque>) -> bool) {
    let range = || (Excluded(key.clone()), Unbounded::<ObjectKey>);
    let (mut old, mut new) = (old.range(range()).peekable(), new.range(range()).peekable());
    loop {
        let gone = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some((o, _)), Some((n, _))) if o == n => None,
            (Some((o, _)), Some((n, _))) => Some(o < n),
            (o, _) => Some(o.is_some()),
        };
        let change = match gone {
            Some(true) => old.next().map(|(key, old)| deleted(key, old)),
            Some(false) => new.next().map(|(_, new)| added(new)),
            None => old.next().zip(new.next()).filter(|(o, n)| o.1 != n.1).map(|(o, n)| updated(o.1, n.1)),
        };
        if change.is_some_and(|change| !more(change)) {
            return;
        }
    }
}
