//! The one writer: deltas in, versions out.

use super::{
    AnyReader, AnySnapshot, IndexError, IndexSpec,
    cell::{Held, VersionCell},
    index::{IndexVersion, Resolved, ValueId, Values},
    version::{Item, Version},
};
use crate::{
    flow::{Cause, Change, Deleted, Delta, Event, Object, ObjectKey, Opaque},
    sync::{Arc, call_out::Panicked},
};
use hashbrown::{HashMap, HashSet};
use std::{collections::VecDeque, fmt};

/// Writes a store: applies deltas, publishes versions.
///
/// There is one per store and it is moved or lent, never shared. Index functions run inside [`Writer::apply`], with no
/// lock held.
pub(crate) struct Writer {
    published: Arc<VersionCell<Version>>,
    current: Held<Version>,
    /// Per index, its function.
    functions: Vec<Box<dyn Values>>,
    /// Per index, what each object's values are. Objects without values are not in it.
    values: Vec<HashMap<ObjectKey, Box<[ValueId]>>>,
    /// Numbers the values of all indices.
    number: u64,
}

/// What one step did.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Its number: the one of the step before plus one.
    pub(crate) seq: u64,
    /// The version before.
    pub(crate) old: AnySnapshot,
    /// The version now. It is published already.
    pub(crate) new: AnySnapshot,
    /// What listeners are told.
    pub(crate) changes: Changes,
    /// Updates that were not applied.
    pub(crate) refused: Vec<Refusal>,
    /// Deletions of keys that were not stored; nobody is told of them.
    pub(crate) unknown_deletes: usize,
    /// Objects that came again as they are stored; nobody is told of them.
    #[cfg_attr(not(test), allow(dead_code, reason = "read by tests only so far"))]
    pub(crate) unchanged: usize,
}

/// The changes of a publication.
#[derive(Debug)]
pub(crate) enum Changes {
    /// These, in this order. The cause of each is `Watch`.
    Each(Vec<Event<Opaque>>),
    /// The difference of the old and the new snapshot; each listener walks it itself.
    All,
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

impl Writer {
    /// A writer of an empty store with these indices.
    ///
    /// # Errors
    /// [`IndexError::Duplicate`] when two have the same name.
    pub(crate) fn new(specs: Vec<IndexSpec>) -> Result<Self, IndexError> {
        for (at, spec) in specs.iter().enumerate() {
            if specs[..at].iter().any(|other| other.name() == spec.name()) {
                return Err(IndexError::Duplicate { name: spec.name().to_owned() });
            }
        }
        let values = specs.iter().map(|_| HashMap::new()).collect();
        let (indices, functions) = specs.into_iter().map(IndexSpec::split).unzip();
        let current = Held::new(Version::before_anything(indices));
        let published = Arc::new(VersionCell::new(current.clone()));
        Ok(Self { published, current, functions, values, number: 0 })
    }

    /// A reader of this store.
    pub(crate) fn reader(&self) -> AnyReader {
        AnyReader(self.published.clone())
    }

    /// Takes one step's deltas from the front of `deltas`, applies them and publishes the result before it returns:
    /// either one `ReplacedAll`, or all that comes before the next one. `None` when `deltas` is empty, so
    /// `while let Some(publication) = writer.apply(&mut deltas)` takes everything.
    ///
    /// Each step is a publication with a number of its own, also when no object changed: it carries the version that
    /// the source has reached (a bookmark does only that) and the counts.
    ///
    /// What decides is what is stored, not the name of the delta: `Added` or `Updated` of a stored key is an update,
    /// of another key an addition; with the version of the stored object it is nothing, and the *old* object stays
    /// (V1). Several deltas of one key chain: `old` of the second is `new` of the first.
    pub(crate) fn apply(&mut self, deltas: &mut VecDeque<Delta<Opaque>>) -> Option<Publication> {
        let mut step =
            Step { next: Version::clone(&self.current), writer: self, refused: Vec::new(), unknown_deletes: 0, unchanged: 0 };
        step.next.seq += 1;
        let changes = match deltas.front()? {
            Delta::ReplacedAll { .. } => {
                let whole = deltas.pop_front()?;
                step.replace(whole);
                Changes::All
            }
            _ => Changes::Each(step.each(deltas)),
        };
        Some(step.publish(changes))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer of {:?}", AnySnapshot(self.current.clone()))
    }
}

/// A version in the making.
struct Step<'w> {
    writer: &'w mut Writer,
    next: Version,
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

    fn replace(&mut self, whole: Delta<Opaque>) {
        let Delta::ReplacedAll { version, objects, kept, complete, new_era } = whole else { return };
        if new_era {
            // Until it is replaced, each is of an era before.
            self.next.outdated = Arc::new(self.next.items.keys().cloned().collect());
        }
        let mut named = HashSet::with_capacity(objects.len() + kept.len());
        // From the back, so that the last of several with one key is the one.
        for object in objects.iter().rev() {
            if named.insert(Object::key(object).clone()) {
                self.put(object);
            }
        }
        if complete {
            named.extend(kept);
            let gone: Vec<ObjectKey> = self.next.items.keys().filter(|key| !named.contains(*key)).cloned().collect();
            for key in &gone {
                self.remove(key);
            }
        }
        self.next.initial_done = true;
        // Also when it is empty: a whole state without a version says that the source has none.
        self.reach(&version);
    }

    /// Stores an object, unless it is what is stored or an index refuses it.
    fn put(&mut self, object: &Object<Opaque>) -> Put {
        let key = Object::key(object);
        let old = self.next.items.get(key);
        if let Some(Item(old)) = old {
            let same = Object::ptr_eq(old, object);
            if same || (Object::same_version(old, object) && !self.next.outdated.contains(key)) {
                // Whoever hands in what is stored says that it holds in this era too.
                self.up_to_date(key);
                self.unchanged += 1;
                return Put::Nothing;
            }
        }
        let resolved = match self.resolve(object) {
            Ok(resolved) => resolved,
            Err(refusal) => {
                self.refused.push(refusal);
                return Put::Nothing;
            }
        };
        // From here on no user code runs but `Drop`.
        for (at, after) in resolved.into_iter().enumerate() {
            self.change_index(at, key, after);
        }
        self.up_to_date(key);
        match self.next.items.insert(key.clone(), Item(object.clone())) {
            None => Put::Added,
            Some(Item(old)) => Put::Updated { old },
        }
    }

    fn resolve(&self, object: &Object<Opaque>) -> Result<Vec<Vec<Resolved>>, Refusal> {
        let of_index = |(index, function): (&IndexVersion, &dyn Values)| {
            let key = Object::key(object);
            let refused = |why| Refusal { key: key.clone(), index: index.definition.name().to_owned(), why };
            function.resolve(object, index).map_err(refused)
        };
        let functions = self.writer.functions.iter().map(|f| &**f);
        self.next.indices.iter().zip(functions).map(of_index).collect()
    }

    fn change_index(&mut self, at: usize, key: &ObjectKey, after: Vec<Resolved>) {
        let (index, values) = (&mut self.next.indices[at], &mut self.writer.values[at]);
        let before = values.get(key).map(|ids| &**ids).unwrap_or_default();
        let ids = index.change(key, before, after, &mut self.writer.number);
        if ids.is_empty() {
            values.remove(key);
        } else if before != &*ids {
            values.insert(key.clone(), ids);
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Object<Opaque>> {
        let Item(old) = self.next.items.remove(key)?;
        for at in 0..self.next.indices.len() {
            self.change_index(at, key, Vec::new());
        }
        self.up_to_date(key);
        Some(old)
    }

    /// What is stored for the key, if anything, is of this era.
    fn up_to_date(&mut self, key: &ObjectKey) {
        if self.next.outdated.contains(key) {
            Arc::make_mut(&mut self.next.outdated).remove(key);
        }
    }

    fn reach(&mut self, version: &str) {
        if *self.next.version != *version {
            self.next.version = version.into();
        }
    }

    fn publish(self, changes: Changes) -> Publication {
        for values in &mut self.writer.values {
            shrink(values);
        }
        let new = Held::new(self.next);
        self.writer.current = new.clone();
        let old = self.writer.published.publish(new.clone());
        Publication {
            seq: new.seq,
            old: AnySnapshot(old),
            new: AnySnapshot(new),
            changes,
            refused: self.refused,
            unknown_deletes: self.unknown_deletes,
            unchanged: self.unchanged,
        }
    }
}

/// Gives memory back after a mass deletion.
fn shrink(values: &mut HashMap<ObjectKey, Box<[ValueId]>>) {
    if values.capacity() > 1024 && values.len() < values.capacity() / 8 {
        values.shrink_to(values.len() * 2);
    }
}
