//! One resource's objects and its history.
//!
//! The log holds every change and is never shortened: it is the audit log. What requests may see of it is decided by
//! numbers. `compacted` (the storage's, in [`super::state`]) bounds the versions that can be listed exactly, and
//! `floor` bounds the versions that a watch can start from: `floor` is the highest version whose change is forgotten, so
//! a watch may start from `floor` or later. A restart lifts it to the newest version, a full window to the change that
//! just fell out.
//!
//! Streams read the log by position. Nothing is queued per watcher, so a slow one loses nothing while its position is
//! above the floor, and is told so (410) when it is not.
//!
//! No method calls user code: objects are only moved and counted.

use crate::{
    flow::{Object, ObjectKey},
    source::Scope,
    sync::{Arc, Instant},
};
use std::{any::Any, collections::BTreeMap, time::Duration};

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The object is new.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone.
    Deleted,
}

/// One change of one object.
pub(super) struct Change<R> {
    /// Position among all changes of the server: grows even when versions go back.
    pub(super) seq: u64,
    pub(super) version: u64,
    pub(super) at: Instant,
    pub(super) op: Op,
    /// What it was, for updates and deletions.
    pub(super) before: Option<Object<R>>,
    /// What it is; for a deletion the last state with the deletion's version.
    pub(super) object: Object<R>,
}

/// All objects of one moment.
pub(super) struct State<R> {
    pub(super) objects: imbl::OrdMap<ObjectKey, Object<R>>,
    pub(super) version: u64,
    /// The last change that is in it.
    pub(super) seq: u64,
}

impl<R> Clone for State<R> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), ..*self }
    }
}

/// A list that somebody is reading page by page.
struct Paged<R> {
    begun: Instant,
    state: State<R>,
}

/// Objects and history of one resource.
pub(super) struct Collection<R> {
    objects: imbl::OrdMap<ObjectKey, Object<R>>,
    log: Vec<Arc<Change<R>>>,
    /// Where the present history begins in the log: later than zero after a restored backup.
    base: usize,
    /// Where the changes begin that watches can see.
    served_from: usize,
    /// A watch may start from this version or later.
    floor: u64,
    window: usize,
    pages: BTreeMap<u64, Paged<R>>,
    /// Every list that was answered to its last page: what was asked for, and the last change in it. For the checker.
    lists: Vec<(Scope, u64)>,
}

/// Where a stream is in the log, and what it wants of it.
pub(super) struct Reader {
    pub(super) position: usize,
    /// Only changes after this version: a watch from the future waits until the server has passed it.
    pub(super) from: u64,
    /// Only changes before this time: they are on the line, however late it is read.
    pub(super) ends: Option<Instant>,
}

/// What a stream finds at its position.
pub(super) enum Pulled {
    /// Changes were taken; more may be there.
    Some,
    /// There is nothing more for it now.
    CaughtUp,
    /// What it would have to see next is forgotten.
    Expired,
}

impl<R: Send + Sync + 'static> Collection<R> {
    pub(super) fn new(floor: u64, window: usize) -> Self {
        Self {
            objects: imbl::OrdMap::new(),
            log: Vec::new(),
            base: 0,
            served_from: 0,
            floor,
            window,
            pages: BTreeMap::new(),
            lists: Vec::new(),
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Object<R>> {
        self.objects.get(key)
    }

    pub(super) fn log(&self) -> &[Arc<Change<R>>] {
        &self.log
    }

    pub(super) fn lists(&self) -> &[(Scope, u64)] {
        &self.lists
    }

    pub(super) fn listed(&mut self, scope: Scope, seq: u64) {
        self.lists.push((scope, seq));
    }

    /// Puts a change into effect. Nothing is dropped for good: the log holds what the map lets go.
    pub(super) fn publish(&mut self, change: Change<R>) {
        let change = Arc::new(change);
        let key = Object::key(&change.object);
        if change.op == Op::Deleted {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), change.object.clone());
        }
        self.log.push(change);
        if let Some(forgotten) = self.log.len().checked_sub(self.window.saturating_add(1))
            && forgotten >= self.served_from
        {
            self.floor = self.floor.max(self.log[forgotten].version);
        }
    }

    pub(super) fn now(&self, version: u64, seq: u64) -> State<R> {
        State { objects: self.objects.clone(), version, seq }
    }

    /// The state as a server knows it that has seen everything up to `seen`.
    pub(super) fn of_cache(&self, seen: u64, newest: u64, seq: u64) -> State<R> {
        let earlier = if seen < newest { self.at(seen, 0) } else { None };
        earlier.unwrap_or_else(|| self.now(newest, seq))
    }

    /// The state at an earlier `version`: from a list in progress, or, above `compacted`, from the history.
    pub(super) fn at(&self, version: u64, compacted: u64) -> Option<State<R>> {
        if let Some(page) = self.pages.get(&version) {
            return Some(page.state.clone());
        }
        if version < compacted {
            return None;
        }
        let mut state = State { objects: imbl::OrdMap::new(), version, seq: 0 };
        for change in self.log[self.base..].iter().take_while(|c| c.version <= version) {
            let key = Object::key(&change.object);
            if change.op == Op::Deleted {
                state.objects.remove(key);
            } else {
                state.objects.insert(key.clone(), change.object.clone());
            }
            state.seq = change.seq;
        }
        Some(state)
    }

    /// Keeps a state for the pages that follow.
    pub(super) fn keep_for_pages(&mut self, state: &State<R>, now: Instant) {
        self.pages.entry(state.version).or_insert_with(|| Paged { begun: now, state: state.clone() });
    }

    /// Forgets the states whose pages have expired.
    pub(super) fn forget_pages(&mut self, now: Instant, life: Duration) {
        self.pages.retain(|_, p| now.since(p.begun) < life);
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// For a watch from `from` that ends at `ends`.
    pub(super) fn reader(&self, from: u64, ends: Option<Instant>) -> Reader {
        let position = self.served_from + self.log[self.served_from..].partition_point(|c| c.version <= from);
        Reader { position, from, ends }
    }

    /// Takes up to `most` of the changes that `reader` wants, beginning at its position, which moves on; none that is
    /// newer than `seen`.
    pub(super) fn pull(&self, reader: &mut Reader, seen: u64, most: usize, mut take: impl FnMut(&Arc<Change<R>>)) -> Pulled {
        let mut taken = 0;
        while taken < most
            && let Some(change) = self.log.get(reader.position)
            && change.version <= seen
            && reader.ends.is_none_or(|end| change.at < end)
        {
            if change.version > reader.from {
                if change.version <= self.floor {
                    return if taken > 0 { Pulled::Some } else { Pulled::Expired };
                }
                take(change);
                taken += 1;
            }
            reader.position += 1;
        }
        if taken > 0 { Pulled::Some } else { Pulled::CaughtUp }
    }
}

/// What can be done to a collection without knowing its type.
pub(super) trait AnyCollection: Send {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// The watch cache begins anew with a list at `version`.
    fn restart(&mut self, version: u64);
    /// Watches from versions below `floor` are refused from now on.
    fn raise_floor(&mut self, floor: u64);
    /// The watch cache forgets all changes it has.
    fn trim(&mut self);
    /// Goes back to the state at `version`, which is not below the last one restored. `seq` counts on.
    fn restore(&mut self, version: u64, at: Instant, seq: &mut u64);
}

impl<R: Send + Sync + 'static> AnyCollection for Collection<R> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn restart(&mut self, version: u64) {
        self.pages.clear();
        self.floor = self.floor.max(version);
    }

    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    fn trim(&mut self) {
        if let Some(last) = self.log[self.served_from..].last() {
            self.floor = self.floor.max(last.version);
        }
    }

    fn restore(&mut self, version: u64, at: Instant, seq: &mut u64) {
        self.pages.clear();
        let Some(old) = self.at(version, 0) else { return };
        let base = self.log.len();
        // For the audit each key makes one step, to what it was then; no watch is served these.
        let gone: Vec<_> =
            self.objects.iter().filter(|(key, _)| !old.objects.contains_key(*key)).map(|(_, o)| o.clone()).collect();
        let steps = gone.into_iter().map(|o| (Op::Deleted, version, o)).chain(old.objects.values().map(|o| {
            let own = super::parse_version(&Object::version(o)).unwrap_or(version);
            (Op::Modified, own, o.clone())
        }));
        for (op, version, object) in steps {
            *seq += 1;
            self.log.push(Arc::new(Change { seq: *seq, version, at, op, before: None, object }));
        }
        self.objects = old.objects;
        self.base = base;
        self.served_from = self.log.len();
        self.floor = version;
    }
}
