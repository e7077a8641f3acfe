//! [`StreamChecker`]: was what a listener was told legal?
//!
//! The server keeps every change of every object. Per key that is a sequence of *steps*, each leaving the object there
//! or gone (with a selection: selected or not). The checker follows one listener along it:
//!
//! * an event with cause `Watch` is the very next step of its key;
//! * `Relist` may jump forwards, but only to what some answered list showed;
//! * `Initial` comes once per key, before anything else, and all of it fits one moment;
//! * `old` is what the listener was last given; nothing is added twice, changed or deleted before it was added, or given
//!   again when something newer was.
//!
//! One jump is silent: a key that is gone for the listener may come and go unseen between two streams. It is legal
//! exactly if a list was answered while the key was gone, or if the listener joined only then. The moment of joining is
//! not told to the checker: it keeps the interval in which it must lie, narrowed by every event, and reports when none
//! is left.

use super::{
    Server, Truth,
    resource::Resource,
    selector::Selection,
    watch_cache::{Change, Op},
};
use crate::{
    flow::{Cause, Change as Told, Deleted, Event, Object, ObjectKey},
    source::{Scope, SourceError},
    sync::{
        Arc, Turn,
        call_out::{self, Panicked, Site},
    },
};
use std::collections::HashMap;

/// Something that a listener must not be told, or must have been told. Versions are as text; an absent object has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// No change of this object gave this version and uid, or it was never deleted.
    #[error("{key}: {} never was", said(.given))]
    Unknown {
        /// Which object.
        key: ObjectKey,
        /// The version told; empty for a deletion that was not observed.
        given: String,
    },
    /// Added while the listener had it.
    #[error("{key}: added at {given} though the listener has it at {held}")]
    AddedTwice {
        /// Which object.
        key: ObjectKey,
        /// The version that the listener has.
        held: String,
        /// The version told.
        given: String,
    },
    /// Updated or deleted while the listener did not have it.
    #[error("{key}: changed or deleted ({}) though the listener does not have it", said(.given))]
    NotHeld {
        /// Which object.
        key: ObjectKey,
        /// The version told; empty for a deletion that was not observed.
        given: String,
    },
    /// `old`, or the last state of a deletion, is not what the listener was last given.
    #[error("{key}: told of a change from {old} though the listener has {held}")]
    WrongOld {
        /// Which object.
        key: ObjectKey,
        /// The version that the listener has.
        held: String,
        /// The version told as the old one.
        old: String,
    },
    /// The same again, or older than what the listener was given before.
    #[error("{key}: told {} after version {held}", said(.given))]
    Backwards {
        /// Which object.
        key: ObjectKey,
        /// The version of the last change told.
        held: String,
        /// The version told.
        given: String,
    },
    /// A change reported by the watch is not the next one.
    #[error("{key}: told {} after version {}, though {expected} comes next", said(.given), .held.as_deref().unwrap_or("none"))]
    Skipped {
        /// Which object.
        key: ObjectKey,
        /// The version of the last change told, `None` when none was.
        held: Option<String>,
        /// The version of the next change.
        expected: String,
        /// The version told; empty for a deletion that was not observed.
        given: String,
    },
    /// A relist brought what no list showed.
    #[error("{key}: no list showed {}", said(.given))]
    NotListed {
        /// Which object.
        key: ObjectKey,
        /// The version told; empty for a deletion.
        given: String,
    },
    /// Part of the initial state that is no addition, comes a second time, or after later events.
    #[error("{key}: {} cannot be part of the initial state any more", said(.given))]
    NotInitial {
        /// Which object.
        key: ObjectKey,
        /// The version told.
        given: String,
    },
    /// The initial state and what followed do not fit any one moment of joining.
    #[error("{key}: {} does not fit the moment that the initial state was taken at", said(.given))]
    Torn {
        /// Which object.
        key: ObjectKey,
        /// The version told.
        given: String,
    },
    /// The right version with another value than the server's.
    #[error("{key}: the value told at {given} is not the server's")]
    WrongValue {
        /// Which object.
        key: ObjectKey,
        /// The version told.
        given: String,
    },
    /// In the end the listener does not have an object that exists.
    #[error("{key}: exists at {truth}, and the listener does not have it")]
    Missing {
        /// Which object.
        key: ObjectKey,
        /// The version of the truth.
        truth: String,
    },
    /// In the end the listener has an object that is gone.
    #[error("{key}: is gone, and the listener has it at {held}")]
    Left {
        /// Which object.
        key: ObjectKey,
        /// The version that the listener has.
        held: String,
    },
    /// In the end the listener has an old state.
    #[error("{key}: is at {truth}, and the listener has it at {held}")]
    Stale {
        /// Which object.
        key: ObjectKey,
        /// The version that the listener has.
        held: String,
        /// The version of the truth.
        truth: String,
    },
    /// A method of the resource panicked: nothing can be said about the object from here on.
    #[error("{key}: cannot be judged: {why}")]
    CannotJudge {
        /// Which object.
        key: ObjectKey,
        /// What happened.
        why: Panicked,
    },
}

/// Judges what one listener is told against the history of a [`Server`]. Strict: see the module.
///
/// Made before or after the server was written to, for one listener; call [`StreamChecker::observe`] from its handler
/// with every event, in order. A clone is a handle to the same checker. Objects may have been transformed: keys,
/// versions and uids are compared, and values only by [`StreamChecker::observe_values`].
///
/// *Blocks*: its methods wait for each other and, shortly, for the server; never for a writer.
pub struct StreamChecker<R: Resource>(Arc<Inner<R>>);

struct Inner<R: Resource> {
    server: Server,
    scope: Scope,
    selection: Selection,
    /// A turn, because selecting calls user code.
    judge: Turn<Judge<R>>,
}

/// One change of one key, as the selection sees it.
struct Step<R> {
    seq: u64,
    version: u64,
    present: bool,
    object: Object<R>,
    /// Declared never to have reached the listener.
    excused: bool,
}

/// What the listener holds of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    version: String,
    uid: String,
}

struct Track<R> {
    steps: Vec<Step<R>>,
    /// The last step that the listener was told.
    at: Option<usize>,
    holds: Option<Held>,
}

struct Judge<R> {
    /// How much of the server's log, and of its list of lists, has been read.
    read: (usize, usize),
    keys: HashMap<ObjectKey, Track<R>>,
    /// The last change in each list that was answered, ascending.
    lists: Vec<u64>,
    /// The last change before the listener joined is one of these: the earliest and the latest possible.
    joined: (u64, u64),
    after_initial: bool,
    events: u64,
    violations: Vec<Violation>,
}

impl<R> Default for Track<R> {
    fn default() -> Self {
        Self { steps: Vec::new(), at: None, holds: None }
    }
}

impl<R> Track<R> {
    /// The first step from `start` on that left the object as `told` says.
    fn find(&self, start: usize, told: &Claim) -> Option<usize> {
        self.steps.iter().skip(start).position(|s| s.is(told)).map(|i| start + i)
    }

    /// The first step after the last one told, leaving out what is excused.
    fn next(&self) -> Option<usize> {
        let start = self.after();
        self.steps.iter().skip(start).position(|s| !s.excused).map(|i| start + i)
    }

    fn after(&self) -> usize {
        self.at.map_or(0, |i| i + 1)
    }

    fn last_told(&self) -> Option<String> {
        self.at.and_then(|i| self.steps.get(i)).map(|s| s.version.to_string())
    }
}

impl<R> Step<R> {
    fn is(&self, told: &Claim) -> bool {
        match &told.now {
            Some(now) => {
                self.present
                    && Object::version(&self.object) == now.version.as_str()
                    && Object::uid(&self.object) == now.uid.as_str()
            }
            None => !self.present && (told.given.is_empty() || self.version.to_string() == told.given),
        }
    }
}

impl Held {
    fn of<T>(object: &Object<T>) -> Self {
        Self { version: Object::version(object).to_string(), uid: Object::uid(object).to_string() }
    }
}

/// What an event says.
struct Claim {
    key: ObjectKey,
    added: bool,
    /// What the listener had, as far as the event says.
    old: Option<Held>,
    /// What it has now; `None` when the object is gone.
    now: Option<Held>,
    /// The version told; empty for a deletion that was not observed.
    given: String,
}

impl Claim {
    fn of<T>(event: &Event<T>) -> Self {
        let key = event.key().clone();
        match &event.change {
            Told::Added(new) => Self::new(key, true, None, Some(Held::of(new))),
            Told::Updated { old, new } => Self::new(key, false, Some(Held::of(old)), Some(Held::of(new))),
            Told::Deleted(Deleted::Observed(o)) => {
                Self { given: Object::version(o).to_string(), ..Self::new(key, false, None, None) }
            }
            Told::Deleted(Deleted::Missed { last_known, .. }) => Self::new(key, false, last_known.as_ref().map(Held::of), None),
        }
    }

    fn new(key: ObjectKey, added: bool, old: Option<Held>, now: Option<Held>) -> Self {
        let given = now.as_ref().map(|n| n.version.clone()).unwrap_or_default();
        Self { key, added, old, now, given }
    }
}

impl<R: Resource> StreamChecker<R> {
    /// For a listener that is told of every object.
    pub fn new(server: &Server) -> Self {
        Self::with(server, Scope::default(), Selection::default())
    }

    /// For a listener behind a source with this scope, its shard included.
    ///
    /// # Errors
    /// As a request with this scope.
    pub fn scoped(server: &Server, scope: &Scope) -> Result<Self, SourceError> {
        Ok(Self::with(server, scope.clone(), Selection::parse::<R>(scope)?.sharded(scope.shard)))
    }

    fn with(server: &Server, scope: Scope, selection: Selection) -> Self {
        let judge = Judge {
            read: (0, 0),
            keys: HashMap::new(),
            lists: Vec::new(),
            joined: (0, u64::MAX),
            after_initial: false,
            events: 0,
            violations: Vec::new(),
        };
        Self(Arc::new(Inner { server: server.clone(), scope, selection, judge: Turn::new(judge) }))
    }

    /// Judges the next event.
    ///
    /// # Errors
    /// What is wrong with it. It is remembered as well; the checker then takes the event for given and goes on.
    pub fn observe<T>(&self, event: &Event<T>) -> Result<(), Violation> {
        self.judge(event, None)
    }

    /// [`StreamChecker::observe`], and the value told must be the server's.
    ///
    /// # Errors
    /// As [`StreamChecker::observe`].
    pub fn observe_values(&self, event: &Event<R>) -> Result<(), Violation>
    where
        R: PartialEq,
    {
        let value = match &event.change {
            Told::Added(o) | Told::Updated { new: o, .. } => Some(o),
            // A last state: the server keeps only what was stored.
            Told::Deleted(_) => None,
        };
        match value {
            Some(told) => self.judge(event, Some(&|stored: &R| *stored == **told)),
            None => self.judge(event, None),
        }
    }

    /// Declares that the change of `key` that gave `version` never reached the listener, for a good reason: its object
    /// could not be decoded, or its transform failed.
    pub fn excuse(&self, key: &ObjectKey, version: &str) {
        let mut judge = self.0.judge.take();
        self.read(&mut judge);
        if let Some(track) = judge.keys.get_mut(key) {
            track.steps.iter_mut().filter(|s| s.version.to_string() == version).for_each(|s| s.excused = true);
        }
    }

    /// How many events were judged.
    pub fn events(&self) -> u64 {
        self.0.judge.take().events
    }

    /// What was wrong so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.0.judge.take().violations.clone()
    }

    /// Compares what the listener holds with `truth`, once nothing is under way to it any more.
    ///
    /// # Errors
    /// Everything that was wrong with the stream, and then the differences, in the order of their keys.
    pub fn finish(&self, truth: &Truth<R>) -> Result<(), Vec<Violation>> {
        let mut judge = self.0.judge.take();
        self.read(&mut judge);
        let mut differences = Vec::new();
        let mut exist: HashMap<&ObjectKey, String> = HashMap::new();
        for object in &truth.objects {
            let key = Object::key(object);
            match call_out::call(Site::Source, || self.0.selection.matches(&**object)) {
                Ok(true) => drop(exist.insert(key, Object::version(object).to_string())),
                Ok(false) => {}
                Err(why) => differences.push(Violation::CannotJudge { key: key.clone(), why }),
            }
        }
        for (key, track) in &judge.keys {
            let key = key.clone();
            match (track.holds.as_ref().map(|h| h.version.clone()), exist.remove(&key)) {
                (Some(held), Some(truth)) if held != truth => differences.push(Violation::Stale { key, held, truth }),
                (Some(held), None) => differences.push(Violation::Left { key, held }),
                (None, Some(truth)) => differences.push(Violation::Missing { key, truth }),
                _ => {}
            }
        }
        differences.extend(exist.into_iter().map(|(key, truth)| Violation::Missing { key: key.clone(), truth }));
        differences.sort_by(|a, b| a.key().cmp(b.key()));
        let all = [judge.violations.clone(), differences].concat();
        if all.is_empty() { Ok(()) } else { Err(all) }
    }

    /// Takes over what the server has logged meanwhile.
    fn read(&self, judge: &mut Judge<R>) {
        let shared = &self.0.server.0;
        let (log, lists): (Vec<Arc<Change<R>>>, Vec<u64>) = {
            let mut state = shared.lock();
            let collection = shared.collection::<R>(&mut state);
            let (log, lists) = (collection.log(), collection.lists());
            let mine = lists[judge.read.1..].iter().filter(|(scope, _)| *scope == self.0.scope).map(|(_, seq)| *seq).collect();
            let new = log[judge.read.0..].to_vec();
            judge.read = (log.len(), lists.len());
            (new, mine)
        };
        judge.lists.extend(lists);
        judge.lists.sort_unstable();
        for change in log {
            let key = Object::key(&change.object);
            let selected = call_out::call(Site::Source, || self.0.selection.matches(&*change.object));
            let present = match selected {
                Ok(yes) => yes && change.op != Op::Deleted,
                Err(why) => {
                    judge.violations.push(Violation::CannotJudge { key: key.clone(), why });
                    continue;
                }
            };
            let steps = &mut judge.keys.entry(key.clone()).or_default().steps;
            // Changes of what is not selected are no steps.
            if present || steps.last().is_some_and(|s| s.present) {
                let (seq, version, object) = (change.seq, change.version, change.object.clone());
                steps.push(Step { seq, version, present, object, excused: false });
            }
        }
    }

    fn judge<T>(&self, event: &Event<T>, same: Option<&dyn Fn(&R) -> bool>) -> Result<(), Violation> {
        let mut judge = self.0.judge.take();
        judge.events += 1;
        self.read(&mut judge);
        let verdict = judge.event(event).and_then(|step| match same {
            Some(same) => {
                let key = event.key();
                let Some(step) = judge.keys.get(key).and_then(|t| t.steps.get(step)) else { return Ok(()) };
                match call_out::call(Site::Source, || same(&step.object)) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Violation::WrongValue { key: key.clone(), given: step.version.to_string() }),
                    Err(why) => Err(Violation::CannotJudge { key: key.clone(), why }),
                }
            }
            None => Ok(()),
        });
        if let Err(violation) = &verdict {
            judge.violations.push(violation.clone());
        }
        verdict
    }
}

impl<R> Judge<R> {
    /// Judges an event and moves the listener on; says which step it was.
    fn event<T>(&mut self, event: &Event<T>) -> Result<usize, Violation> {
        let (claim, cause) = (Claim::of(event), event.cause);
        let mut track = self.keys.remove(&claim.key).unwrap_or_default();
        // A relist may tell once more what the listener was told last.
        let start = if cause == Cause::Relist && claim.old.is_some() { track.at.unwrap_or(0) } else { track.after() };
        let step = track.find(start, &claim);
        let verdict = self.verdict(&track, &claim, cause, step);
        // Taken for given, whatever the verdict, so that one defect is reported once.
        track.at = step.or(track.at);
        track.holds = claim.now;
        self.keys.insert(claim.key, track);
        self.after_initial |= cause != Cause::Initial;
        verdict
    }

    fn verdict(&mut self, track: &Track<R>, claim: &Claim, cause: Cause, step: Option<usize>) -> Result<usize, Violation> {
        let (key, given) = (claim.key.clone(), claim.given.clone());
        match (&track.holds, &claim.old) {
            (Some(held), _) if claim.added => return Err(Violation::AddedTwice { key, held: held.version.clone(), given }),
            (None, _) if !claim.added => return Err(Violation::NotHeld { key, given }),
            (Some(held), Some(old)) if held != old => {
                return Err(Violation::WrongOld { key, held: held.version.clone(), old: old.version.clone() });
            }
            _ => {}
        }
        let Some(step) = step else {
            return Err(match track.last_told().filter(|_| track.find(0, claim).is_some()) {
                Some(held) => Violation::Backwards { key, held, given },
                None => Violation::Unknown { key, given },
            });
        };
        let (seq, then) = (track.steps[step].seq, track.steps.get(step + 1).map_or(u64::MAX, |next| next.seq));
        let fits = match cause {
            Cause::Initial if !claim.added || track.at.is_some() || self.after_initial => {
                return Err(Violation::NotInitial { key, given });
            }
            // It was like this at the moment of joining.
            Cause::Initial => self.joined_between(seq, then - 1),
            Cause::Watch => {
                let next = track.next().unwrap_or(step);
                if step != next && !(claim.added && self.unseen(track, step)) {
                    let expected = track.steps[next].version.to_string();
                    return Err(Violation::Skipped { key, held: track.last_told(), expected, given });
                }
                // It was not yet like this.
                self.joined_between(0, seq - 1)
            }
            // Of a deletion, a list may show the next object of that name.
            Cause::Relist if self.lists.iter().any(|l| *l >= seq && (*l < then || claim.now.is_none())) => true,
            Cause::Relist => return Err(Violation::NotListed { key, given }),
        };
        if fits { Ok(step) } else { Err(Violation::Torn { key, given }) }
    }

    /// Whether the listener, not having the key, can have missed all steps before `step`: the key was gone when a list
    /// was answered, or when the listener joined.
    fn unseen(&mut self, track: &Track<R>, step: usize) -> bool {
        let Some(last) = step.checked_sub(1).map(|i| &track.steps[i]).filter(|s| !s.present) else { return false };
        let listed = self.lists.iter().any(|l| (last.seq..track.steps[step].seq).contains(l));
        listed || (track.at.is_none() && self.joined_between(last.seq, u64::MAX))
    }

    /// Narrows down when the listener joined: after this change, and not after that one. False when that cannot be.
    fn joined_between(&mut self, from: u64, until: u64) -> bool {
        let (from, until) = (self.joined.0.max(from), self.joined.1.min(until));
        let possible = from <= until;
        if possible {
            self.joined = (from, until);
        }
        possible
    }
}

/// A version told, in words.
fn said(given: &str) -> String {
    if given.is_empty() { "a deletion".to_owned() } else { format!("version {given}") }
}

impl Violation {
    /// Which object.
    pub const fn key(&self) -> &ObjectKey {
        match self {
            Self::Unknown { key, .. }
            | Self::AddedTwice { key, .. }
            | Self::NotHeld { key, .. }
            | Self::WrongOld { key, .. }
            | Self::Backwards { key, .. }
            | Self::Skipped { key, .. }
            | Self::NotListed { key, .. }
            | Self::NotInitial { key, .. }
            | Self::Torn { key, .. }
            | Self::WrongValue { key, .. }
            | Self::Missing { key, .. }
            | Self::Left { key, .. }
            | Self::Stale { key, .. }
            | Self::CannotJudge { key, .. } => key,
        }
    }
}

impl<R: Resource> Clone for StreamChecker<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Resource> std::fmt::Debug for StreamChecker<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamChecker").field("scope", &self.0.scope).finish_non_exhaustive()
    }
}
