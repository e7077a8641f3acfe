//! The one writer: deltas in, versions out.

use super::{
    AnyReader, AnySnapshot, IndexError, IndexSpec,
    reclaim::{AT_ONCE, Freed, Gauge},
    table::{AddIndex, Draft, Refused, Table, Whole},
};
use crate::{
    flow::{AsKey, Cause, Change, Deleted, Delta, Event, Object, ObjectKey, Opaque, Sought},
    sync::{Arc, call_out::Panicked},
};
use hashbrown::HashSet;
use std::{collections::VecDeque, fmt};

/// Writes a store: applies deltas, publishes versions.
///
/// There is one per store and it is moved or lent, never shared. Index functions run inside [`Writer::apply`], with no
/// lock held.
pub(crate) struct Writer {
    table: Table<Object<Opaque>>,
}

/// What one step did.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Its number: the one of the step before plus one.
    pub(crate) seq: u64,
    /// Whether the source's first whole state is in the version now, which is published already.
    pub(crate) initial_done: bool,
    /// Whether it was in the version before.
    pub(crate) was_done: bool,
    /// What listeners are told.
    pub(crate) changes: Changes,
    /// Updates that were not applied.
    pub(crate) refused: Vec<Refusal>,
    /// Deletions of keys that were not stored; nobody is told of them.
    pub(crate) unknown_deletes: usize,
    /// Objects that came again as they are stored; nobody is told of them.
    #[cfg_attr(not(test), allow(dead_code, reason = "read by tests only so far"))]
    pub(crate) unchanged: usize,
    /// How often an index function was found to answer differently for one object. The index was put right.
    #[cfg_attr(not(test), allow(dead_code, reason = "read by tests only so far"))]
    pub(crate) unsteady: usize,
}

/// The changes of a publication.
#[derive(Debug)]
pub(crate) enum Changes {
    /// These, in this order. The cause of each is `Watch`.
    Each(Vec<Event<Opaque>>),
    /// The difference of the two versions; each listener walks it itself.
    All {
        /// The version before.
        old: AnySnapshot,
        /// The version now.
        new: AnySnapshot,
    },
}

/// An update that an index refused. What was stored for the key stays as it was, in the items and in every index.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the update of {key} was refused, its old state stays: index {index:?}: {why}")]
pub(crate) struct Refusal {
    /// Which object.
    pub(crate) key: ObjectKey,
    /// Which index.
    pub(crate) index: String,
    /// What its function did, or `Hash` or `Eq` of a value it emitted.
    pub(crate) why: Panicked,
}

impl Refusal {
    fn of(object: &Object<Opaque>, names: &[String], Refused { index, why }: Refused) -> Self {
        Self { key: Object::key(object).clone(), index: names[index].clone(), why }
    }
}

impl Writer {
    /// A writer of an empty store with these indices.
    ///
    /// # Errors
    /// [`IndexError::Duplicate`] when two have the same name.
    pub(crate) fn new(specs: Vec<IndexSpec>) -> Result<Self, IndexError> {
        Ok(Self { table: Table::new(specs)? })
    }

    /// A reader of this store.
    pub(crate) fn reader(&self) -> AnyReader {
        AnyReader(self.table.core().clone())
    }

    /// Takes one step's deltas from the front of `deltas`, applies them and publishes the result before it returns:
    /// either one `ReplacedAll`, or all that comes before the next one. `None` when `deltas` is empty, so
    /// `while let Some(publication) = writer.apply(&mut deltas)` takes everything.
    ///
    /// Each step is a publication with a number of its own, also when no object changed: it carries the version that
    /// the source has reached (a bookmark does only that) and the counts.
    ///
    /// What decides is what is stored, not the name of the delta: `Added` or `Updated` of a stored key is an update,
    /// of another key an addition; with the version of the stored object it is nothing, and the *old* object stays.
    /// Several deltas of one key chain: `old` of the second is `new` of the first.
    pub(crate) fn apply(&mut self, deltas: &mut VecDeque<Delta<Opaque>>) -> Option<Publication> {
        let whole = matches!(deltas.front()?, Delta::ReplacedAll { .. });
        let was_done = self.table.current().initial_done;
        let waiting = self.table.gauge().waiting;
        let old = whole.then(|| AnySnapshot(self.table.snapshot()));
        let draft = self.table.draft();
        let mut step = Step { draft, all_outdated: false, refused: Vec::new(), unknown_deletes: 0, unchanged: 0 };
        let events = if whole {
            step.replace(deltas.pop_front()?);
            Vec::new()
        } else {
            step.each(deltas)
        };
        let Step { draft, refused, unknown_deletes, unchanged, .. } = step;
        let unsteady = draft.unsteady;
        // A whole state pays for what was left before, and leaves something of its own for later; all else pays for itself
        // and for as much again.
        let budget = if whole { waiting } else { 2 * draft.replaced() } + AT_ONCE;
        drop(draft.publish(budget));
        let current = self.table.current();
        let (seq, initial_done) = (current.seq, current.initial_done);
        let changes = match old {
            Some(old) => Changes::All { old, new: AnySnapshot(self.table.snapshot()) },
            None => Changes::Each(events),
        };
        Some(Publication { seq, initial_done, was_done, changes, refused, unknown_deletes, unchanged, unsteady })
    }

    /// Adds an index of what is stored now and later, in a publication in which nothing changes.
    ///
    /// # Errors
    /// `Duplicate`; `Failed`, when its function panics for a stored object, and then nothing is added.
    pub(crate) fn add_index(&mut self, spec: IndexSpec) -> Result<Publication, IndexError> {
        let name = spec.name().to_owned();
        let freed = self.table.add_index(spec, AT_ONCE).map_err(|why| match why {
            AddIndex::Duplicate => IndexError::Duplicate { name },
            AddIndex::Failed(object, why) => IndexError::Failed { name, key: Some(Object::key(&object).clone()), why },
        })?;
        drop(freed);
        let now = self.table.current();
        Ok(Publication {
            seq: now.seq,
            initial_done: now.initial_done,
            was_done: now.initial_done,
            changes: Changes::Each(Vec::new()),
            refused: Vec::new(),
            unknown_deletes: 0,
            unchanged: 0,
            unsteady: 0,
        })
    }

    /// Frees so many of the things that nobody has any more, the user's among them: whether there are more.
    pub(crate) fn reclaim(&mut self, budget: usize) -> bool {
        let mut freed = Freed::default();
        self.table.reclaim(budget, &mut freed)
    }

    /// `f` is called when somebody lets go of an older version, so that [`Writer::reclaim`] has something to do: at most
    /// once until it is called again, on the thread that lets go. It must not block.
    pub(crate) fn on_garbage(&self, f: impl Fn() + Send + Sync + 'static) {
        self.table.core().nudge.set(Box::new(f)).ok();
    }

    /// What is kept because somebody looks at it, or looked.
    pub(crate) fn gauge(&self) -> Gauge {
        self.table.gauge()
    }

    /// What the lists of all that have room for.
    #[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
    pub(super) fn room(&self) -> usize {
        self.table.room()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer of {:?}", AnySnapshot(self.table.snapshot()))
    }
}

/// A version in the making.
struct Step<'w> {
    draft: Draft<'w, Object<Opaque>>,
    /// A new era has begun: what is stored and was not handed in since proves nothing.
    all_outdated: bool,
    refused: Vec<Refusal>,
    unknown_deletes: usize,
    unchanged: usize,
}

/// What [`Step::put`] did.
enum Put {
    Added,
    Updated { old: Object<Opaque> },
    Nothing,
}

/// Where a version is read from, once, at the end of a step.
enum Reached {
    Object(Object<Opaque>),
    Text(String),
}

impl Reached {
    fn by(object: &Object<Opaque>) -> Option<Self> {
        (!Object::version(object).is_empty()).then(|| Self::Object(object.clone()))
    }
}

impl Step<'_> {
    fn each(&mut self, deltas: &mut VecDeque<Delta<Opaque>>) -> Vec<Event<Opaque>> {
        let mut events = Vec::with_capacity(deltas.len());
        // The last version that is told; what tells none moves nothing.
        let mut reached = None;
        let mut tell = |change| events.push(Event { cause: Cause::Watch, change });
        while let Some(delta) = deltas.pop_front() {
            self.draft.next.ask_ahead(|ahead| deltas.get(ahead)?.key().map(AsKey::key_hash));
            match delta {
                Delta::Added(new) | Delta::Updated(new) => {
                    reached = Reached::by(&new).or(reached);
                    match self.put(&new) {
                        Put::Added => tell(Change::Added(new)),
                        Put::Updated { old } => tell(Change::Updated { old, new }),
                        Put::Nothing => {}
                    }
                }
                Delta::Deleted(deleted) => {
                    if let Deleted::Observed(last) = &deleted {
                        reached = Reached::by(last).or(reached);
                    }
                    match (self.remove(deleted.key()), deleted) {
                        (None, _) => self.unknown_deletes += 1,
                        (Some(_), observed @ Deleted::Observed(_)) => tell(Change::Deleted(observed)),
                        // What the store had, whatever the delta thought it had.
                        (Some(old), Deleted::Missed { key, .. }) => {
                            tell(Change::Deleted(Deleted::Missed { key, last_known: Some(old) }));
                        }
                    }
                }
                Delta::Bookmark { version } if version.is_empty() => {}
                Delta::Bookmark { version } => reached = Some(Reached::Text(version)),
                whole @ Delta::ReplacedAll { .. } => {
                    deltas.push_front(whole);
                    break;
                }
            }
        }
        match reached {
            Some(Reached::Object(object)) => self.reach(&Object::version(&object)),
            Some(Reached::Text(text)) => self.reach(&text),
            None => {}
        }
        events
    }

    /// A whole state: made at once when nothing is stored or most of it is new, else put one by one in the order of hashes, so
    /// that each page is visited once. What is stored and not listed is looked for by its hash; there is no table of keys.
    fn replace(&mut self, whole: Delta<Opaque>) {
        let Delta::ReplacedAll { version, objects, kept, complete, new_era } = whole else { return };
        let mut listed = Whole::of(objects, |a, b| Object::key(a) == Object::key(b));
        let at_once = listed.has_one_of_each_hash();
        if at_once && self.draft.next.items.len() == 0 {
            self.draft.next.outdated = None;
            let refused = &mut self.refused;
            let names = self.draft.index_names();
            self.draft.fill(listed, |object, why| refused.push(Refusal::of(object, &names, why)));
        } else {
            if at_once && complete && kept.is_empty() && self.is_mostly_new(&listed) {
                match self.refill(listed, new_era) {
                    Ok(()) => return self.is_whole(&version),
                    Err(again) => listed = again,
                }
            }
            let mut gone = Vec::new();
            if complete || new_era {
                let kept: HashSet<ObjectKey> = kept.into_iter().collect();
                let mut left = HashSet::new();
                for stored in unlisted(&self.draft.next, &listed) {
                    if complete && !kept.contains(Object::key(stored)) {
                        gone.push(stored.clone());
                    } else if new_era {
                        left.insert(Object::key(stored).clone());
                    }
                }
                if new_era {
                    self.draft.next.outdated = (!left.is_empty()).then(|| Arc::new(left));
                }
            }
            self.all_outdated = new_era;
            listed.iter().for_each(|(_, object)| drop(self.put(object)));
            self.all_outdated = false;
            for stored in &gone {
                self.take_out(stored);
            }
        }
        self.is_whole(&version);
    }

    /// Also when the version is empty: a whole state without one says that the source has none.
    fn is_whole(&mut self, version: &str) {
        self.draft.next.initial_done = true;
        self.reach(version);
    }

    /// Whether most of the listed objects seem to differ from what is stored, by looking at a few.
    fn is_mostly_new(&self, listed: &Whole<Object<Opaque>>) -> bool {
        const FEW: usize = 32;
        let looked: Vec<_> = listed.iter().step_by(listed.order.len() / FEW + 1).collect();
        let same = |object: &Object<Opaque>| {
            let key = Object::key(object);
            let old = self.draft.next.get(Sought::by(key));
            old.is_some_and(|old| Object::ptr_eq(old, object) || Object::same_version(old, object))
        };
        looked.iter().filter(|(_, object)| same(object)).count() * 4 <= looked.len()
    }

    /// Makes the version of these alone, at once. Gives them back, with nothing done, when that is not possible; those that
    /// are stored as they are may be what is stored, then.
    fn refill(&mut self, mut listed: Whole<Object<Opaque>>, new_era: bool) -> Result<(), Whole<Object<Opaque>>> {
        let mut unchanged = 0;
        for (_, at) in &listed.order {
            let Some(object) = &mut listed.items[*at] else { continue };
            let key = Object::key(object);
            let old = self.draft.next.get(Sought::by(key)).filter(|old| {
                let outdated = new_era || self.draft.next.is_outdated(key);
                Object::ptr_eq(old, object) || (Object::same_version(old, object) && !outdated)
            });
            if let Some(old) = old {
                unchanged += 1;
                *object = old.clone();
            }
        }
        let (before, names) = (self.draft.next.items.clone(), self.draft.index_names());
        let (mut left, mut refused) = (HashSet::new(), Vec::new());
        let outdated = self.draft.next.outdated.clone();
        let instead = |_, new: &Object<Opaque>, why| {
            refused.push(Refusal::of(new, &names, why));
            let key = Object::key(new);
            let old = before.find(key.key_hash(), |old| Object::key(old) == key).cloned();
            if old.is_some() && (new_era || outdated.as_ref().is_some_and(|outdated| outdated.contains(key))) {
                left.insert(key.clone());
            }
            old
        };
        self.draft.refill(listed, instead)?;
        self.unchanged += unchanged;
        self.refused.extend(refused);
        self.draft.next.outdated = (!left.is_empty()).then(|| Arc::new(left));
        Ok(())
    }

    /// Stores an object, unless it is what is stored or an index refuses it.
    fn put(&mut self, object: &Object<Opaque>) -> Put {
        let key = Object::key(object);
        let old = self.draft.next.get(Sought::by(key)).cloned();
        if let Some(old) = &old {
            let same = Object::ptr_eq(old, object);
            let outdated = self.all_outdated || self.draft.next.is_outdated(key);
            if same || (Object::same_version(old, object) && !outdated) {
                // Whoever hands in what is stored says that it holds in this era too.
                self.up_to_date(key);
                self.unchanged += 1;
                return Put::Nothing;
            }
        }
        if let Err(why) = self.draft.put(old.as_ref(), object) {
            let names = self.draft.index_names();
            self.refused.push(Refusal::of(object, &names, why));
            if self.all_outdated && old.is_some() {
                Arc::make_mut(self.draft.next.outdated.get_or_insert_default()).insert(key.clone());
            }
            return Put::Nothing;
        }
        self.up_to_date(key);
        old.map_or(Put::Added, |old| Put::Updated { old })
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Object<Opaque>> {
        let old = self.draft.next.get(Sought::by(key))?.clone();
        self.take_out(&old);
        Some(old)
    }

    fn take_out(&mut self, stored: &Object<Opaque>) {
        self.draft.remove(stored);
        self.up_to_date(Object::key(stored));
    }

    /// What is stored for the key, if anything, is of this era.
    fn up_to_date(&mut self, key: &ObjectKey) {
        if self.draft.next.is_outdated(key)
            && let Some(outdated) = &mut self.draft.next.outdated
        {
            Arc::make_mut(outdated).remove(key);
        }
    }

    fn reach(&mut self, version: &str) {
        if *self.draft.next.version != *version {
            self.draft.next.version = version.into();
        }
    }
}

/// The stored objects that a list does not have.
fn unlisted<'v>(
    version: &'v super::version::Version<Object<Opaque>>,
    listed: &Whole<Object<Opaque>>,
) -> impl Iterator<Item = &'v Object<Opaque>> {
    version.items.iter().filter(move |stored| {
        let key = Object::key(stored);
        !listed.of_hash(key.key_hash()).any(|object| Object::key(object) == key)
    })
}
