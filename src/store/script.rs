//! Any sequence of deltas against a plain model: what proptest and the fuzzer run.

use super::{AnyReader, AnySnapshot, Changes, Gauge, IndexSpec, Publication, Writer};
use crate::{
    flow::{Cause, Change, Deleted, Delta, Event, KeyRef, Object, ObjectKey, Opaque},
    sync::{Clock, call_out::assert_contained},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    ops::Deref,
};

type Emit<'a, V> = &'a mut dyn FnMut(V);

pub(super) fn bookmark(version: &str) -> Delta<Opaque> {
    Delta::Bookmark { version: version.into() }
}

/// A publication with the versions around it.
pub(super) struct Step {
    pub(super) old: AnySnapshot,
    pub(super) new: AnySnapshot,
    pub(super) publication: Publication,
}

impl Deref for Step {
    type Target = Publication;
    fn deref(&self) -> &Publication {
        &self.publication
    }
}

pub(super) fn step(writer: &mut Writer, deltas: &mut VecDeque<Delta<Opaque>>) -> Option<Step> {
    let old = writer.reader().snapshot();
    let publication = writer.apply(deltas)?;
    let new = writer.reader().snapshot();
    assert_eq!((publication.was_done, publication.initial_done), (old.initial_done(), new.initial_done()));
    if let Changes::All { old: before, new: after } = &publication.changes {
        assert_eq!((before.seq(), after.seq()), (old.seq(), new.seq()));
    }
    Some(Step { old, new, publication })
}

pub(super) fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort();
    items
}

pub(super) fn show<T>(change: &Change<T>) -> String {
    match change {
        Change::Added(o) => format!("A {o:?}"),
        Change::Updated { old, new } => format!("U {old:?} -> {new:?}"),
        Change::Deleted(Deleted::Observed(o)) => format!("D {o:?}"),
        Change::Deleted(Deleted::Missed { key, last_known }) => format!("M {key} {last_known:?}"),
    }
}

/// Whether both tell the same, of the same objects.
fn same(a: &Change<Opaque>, b: &Change<Opaque>) -> bool {
    match (a, b) {
        (Change::Added(a), Change::Added(b)) => Object::ptr_eq(a, b),
        (Change::Updated { old: a, new: new_a }, Change::Updated { old: b, new: new_b }) => {
            Object::ptr_eq(a, b) && Object::ptr_eq(new_a, new_b)
        }
        (Change::Deleted(Deleted::Observed(a)), Change::Deleted(Deleted::Observed(b))) => Object::ptr_eq(a, b),
        (
            Change::Deleted(Deleted::Missed { key: a, last_known: x }),
            Change::Deleted(Deleted::Missed { key: b, last_known: y }),
        ) => a == b && x.as_ref().map(Object::address) == y.as_ref().map(Object::address),
        _ => false,
    }
}

/// The remainders by 2 and by 3, the one by 2 twice; nothing for multiples of 10; panics for 13.
pub(super) fn emit_remainders(value: &u32, emit: Emit<'_, String>) {
    if !value.is_multiple_of(10) {
        emit(format!("{} by 2", value % 2));
        assert_ne!(*value, 13, "thirteen");
        emit(format!("{} by 3", value % 3));
        emit(format!("{} by 2", value % 2));
    }
}

pub(super) fn remainders() -> IndexSpec {
    IndexSpec::new("remainders", emit_remainders)
}

pub(super) fn identity() -> IndexSpec {
    IndexSpec::new("identity", |value: &u32, emit: Emit<'_, u32>| emit(*value))
}

/// Every object, and every index rebuilt from the objects, as text.
pub(super) fn contents(snapshot: &AnySnapshot) -> Vec<String> {
    let typed = snapshot.typed::<u32>();
    let mut out: Vec<String> = sorted(typed.objects().map(|o| format!("{o:?} = {}", **o)));
    for value in typed.index_values("remainders").unwrap() {
        let keys: Vec<_> = typed.index_keys("remainders", value.as_str()).unwrap().map(ToString::to_string).collect();
        out.push(format!("{value}: {}", keys.join(" ")));
    }
    out.push(format!("{} {:?} {}", snapshot.seq(), snapshot.version(), snapshot.initial_done()));
    out
}

/// That an index is what a rebuild from the objects would give.
pub(super) fn check_indices(snapshot: &AnySnapshot, reader: &AnyReader) {
    let typed = snapshot.typed::<u32>();
    let mut rebuilt: BTreeMap<String, Vec<&ObjectKey>> = BTreeMap::new();
    for o in typed.objects() {
        let mut values = BTreeSet::new();
        emit_remainders(o, &mut |v| values.extend([v]));
        values.into_iter().for_each(|v| rebuilt.entry(v).or_default().push(Object::key(o)));
    }
    rebuilt.values_mut().for_each(|keys| keys.sort());
    let values: Vec<&String> = typed.index_values("remainders").unwrap();
    assert_eq!(values, rebuilt.keys().collect::<Vec<_>>());
    for (value, keys) in rebuilt {
        assert_eq!(typed.index_keys("remainders", &*value).unwrap().collect::<Vec<_>>(), keys);
        assert_eq!(sorted(typed.by_index("remainders", &*value).unwrap().map(Object::key)), keys);
    }
    let by_identity = reader.index::<u32>("identity").unwrap();
    for o in typed.objects() {
        assert!(typed.index_keys(&by_identity, &**o).unwrap().any(|k| k == Object::key(o)));
    }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Put {
        key: usize,
        version: usize,
        value: u32,
        updated: bool,
    },
    /// Hands in the very object that is stored.
    Again {
        key: usize,
    },
    /// Hands in the very object that was stored for the key first.
    Back {
        key: usize,
    },
    Observed {
        key: usize,
        version: usize,
    },
    Missed {
        key: usize,
    },
    Bookmark {
        version: usize,
    },
    Replace {
        listed: Vec<(usize, usize, u32)>,
        kept: Vec<usize>,
        complete: bool,
        new_era: bool,
        version: usize,
    },
}

pub(super) const KEYS: usize = 50;
pub(super) const VERSIONS: [&str; 5] = ["", "1", "2", "3", "x"];

pub(super) fn model_key(n: usize) -> ObjectKey {
    ObjectKey::new(["", "a", "b"][n % 3], &format!("k{n:02}")).unwrap()
}

pub(super) fn model_object(key: usize, version: usize, value: u32) -> Object<Opaque> {
    Object::with_key(model_key(key), VERSIONS[version], "", value).erase()
}

#[derive(Default)]
pub(super) struct Model {
    /// With whether the object is left from an era before.
    items: BTreeMap<ObjectKey, (Object<Opaque>, bool)>,
    /// What was stored for each key first.
    first: BTreeMap<ObjectKey, Object<Opaque>>,
    version: String,
    initial_done: bool,
    refused: usize,
    unknown: usize,
    unchanged: usize,
}

impl Model {
    fn delta(&self, op: &Op) -> Option<Delta<Opaque>> {
        Some(match op {
            Op::Put { key, version, value, updated: false } => Delta::Added(model_object(*key, *version, *value)),
            Op::Put { key, version, value, updated: true } => Delta::Updated(model_object(*key, *version, *value)),
            Op::Again { key } => Delta::Updated(self.items.get(&model_key(*key))?.0.clone()),
            Op::Back { key } => Delta::Added(self.first.get(&model_key(*key))?.clone()),
            Op::Observed { key, version } => Delta::Deleted(Deleted::Observed(model_object(*key, *version, 0))),
            Op::Missed { key } => {
                let lie = Some(model_object(*key, 1, 99));
                Delta::Deleted(Deleted::Missed { key: model_key(*key), last_known: lie })
            }
            Op::Bookmark { version } => bookmark(VERSIONS[*version]),
            Op::Replace { listed, kept, complete, new_era, version } => Delta::ReplacedAll {
                version: VERSIONS[*version].into(),
                objects: listed.iter().map(|(k, v, n)| model_object(*k, *v, *n)).collect(),
                kept: kept.iter().map(|k| model_key(*k)).collect(),
                complete: *complete,
                new_era: *new_era,
            },
        })
    }

    fn put(&mut self, new: &Object<Opaque>) -> Option<Change<Opaque>> {
        let key = Object::key(new).clone();
        if let Some((old, outdated)) = self.items.get_mut(&key)
            && (Object::ptr_eq(old, new) || Object::same_version(old, new) && !*outdated)
        {
            *outdated = false;
            self.unchanged += 1;
            return None;
        }
        if **new.typed_ref::<u32>() == 13 {
            self.refused += 1;
            return None;
        }
        self.first.entry(key.clone()).or_insert_with(|| new.clone());
        Some(match self.items.insert(key, (new.clone(), false)) {
            None => Change::Added(new.clone()),
            Some((old, _)) => Change::Updated { old, new: new.clone() },
        })
    }

    /// What listeners are told of a delta that is not a whole state.
    fn step(&mut self, delta: &Delta<Opaque>) -> Option<Change<Opaque>> {
        if let Some(v) = delta.version().filter(|v| !v.is_empty()) {
            self.version = v.to_string();
        }
        match delta {
            Delta::Added(o) | Delta::Updated(o) => self.put(o),
            Delta::Deleted(d) => match (self.items.remove(d.key()), d) {
                (None, _) => {
                    self.unknown += 1;
                    None
                }
                (Some(_), Deleted::Observed(o)) => Some(Change::Deleted(Deleted::Observed(o.clone()))),
                (Some((old, _)), Deleted::Missed { key, .. }) => {
                    Some(Change::Deleted(Deleted::Missed { key: key.clone(), last_known: Some(old) }))
                }
            },
            _ => None,
        }
    }

    fn replace(&mut self, delta: &Delta<Opaque>) {
        let Delta::ReplacedAll { version, objects, kept, complete, new_era } = delta else { panic!() };
        let last: BTreeMap<&ObjectKey, &Object<Opaque>> = objects.iter().map(|o| (Object::key(o), o)).collect();
        if *new_era {
            self.items.values_mut().for_each(|item| item.1 = true);
        }
        if *complete {
            self.items.retain(|k, _| last.contains_key(k) || kept.contains(k));
        }
        last.into_values().for_each(|o| drop(self.put(o)));
        self.version = version.clone();
        self.initial_done = true;
    }

    /// What a step is seen to have done: in numbers, and for the keys that it named.
    fn check(&mut self, publication: &Step, named: &[ObjectKey]) {
        let new = &publication.new;
        assert_eq!(new.len(), self.items.len());
        for key in named {
            let stored = new.get(&KeyRef { namespace: key.namespace(), name: key.name() });
            assert_eq!(stored.map(Object::address), self.items.get(key).map(|(object, _)| Object::address(object)), "{key}");
        }
        assert_eq!(new.version(), self.version);
        assert_eq!(new.initial_done(), self.initial_done);
        let counts = [publication.refused.len(), publication.unknown_deletes, publication.unchanged];
        assert_eq!(counts, [self.refused, self.unknown, self.unchanged]);
        assert_contained(&Clock::real(), &vec!["thirteen"; self.refused]);
        (self.refused, self.unknown, self.unchanged) = (0, 0, 0);
    }

    /// All that there is.
    fn check_all(&self, new: &AnySnapshot) {
        let stored = new.typed::<u32>();
        assert!(sorted(stored.keys()).into_iter().eq(self.items.keys()));
        for (key, (object, _)) in &self.items {
            assert!(Object::ptr_eq(new.get(&KeyRef { namespace: key.namespace(), name: key.name() }).unwrap(), object));
        }
    }
}

/// Applies the difference of two snapshots to a plain copy of the first.
pub(super) fn patched(old: &AnySnapshot, new: &AnySnapshot) -> BTreeMap<ObjectKey, Object<Opaque>> {
    let mut items: BTreeMap<_, _> = old.typed::<u32>().objects().map(|o| (Object::key(o).clone(), o.clone().erase())).collect();
    let mut told = HashSet::new();
    for change in old.diff(new) {
        let key = Event { cause: Cause::Relist, change: change.clone() }.key().clone();
        assert!(told.insert(key.clone()), "each key once");
        let before = match change {
            Change::Added(o) => (items.insert(key.clone(), o), None),
            Change::Updated { old, new } => {
                assert!(!Object::ptr_eq(&old, &new), "what did not change is not told");
                (items.insert(key.clone(), new), Some(old))
            }
            Change::Deleted(Deleted::Missed { last_known, .. }) => (items.remove(&key), last_known),
            Change::Deleted(Deleted::Observed(_)) => panic!("nobody observed it"),
        };
        match before {
            (Some(was), Some(told)) => assert!(Object::ptr_eq(&was, &told)),
            (was, told) => assert!(was.is_none() && told.is_none()),
        }
    }
    items
}

pub(super) fn assert_diff_leads_from(old: &AnySnapshot, new: &AnySnapshot) {
    let patched = patched(old, new);
    assert_eq!(patched.len(), new.len());
    let reached = new.typed::<u32>();
    assert!(reached.objects().all(|o| Object::ptr_eq(&patched[Object::key(o)], &o.clone().erase())));
}

pub(super) fn clone(delta: &Delta<Opaque>) -> Delta<Opaque> {
    match delta {
        Delta::Added(o) => Delta::Added(o.clone()),
        Delta::Updated(o) => Delta::Updated(o.clone()),
        Delta::Deleted(d) => Delta::Deleted(d.clone()),
        Delta::Bookmark { version } => bookmark(version),
        Delta::ReplacedAll { version, objects, kept, complete, new_era } => Delta::ReplacedAll {
            version: version.clone(),
            objects: objects.clone(),
            kept: kept.clone(),
            complete: *complete,
            new_era: *new_era,
        },
    }
}

/// Applies the batches, and looks at what changed after each step; at everything after each `full`-th step and the last; and
/// at the end once more at every version of which everything was looked at.
pub(super) fn behaves(batches: &[Vec<Op>], full: usize) {
    let mut writer = Writer::new(vec![remainders(), identity()]).unwrap();
    let reader = writer.reader();
    let mut model = Model::default();
    let mut along_the_way = vec![(reader.snapshot(), contents(&reader.snapshot()))];
    // What a failed case before this one (while shrinking) left on record.
    std::panic::catch_unwind(|| assert_contained(&Clock::real(), &[])).unwrap_or_default();
    let look = |model: &Model, now: &AnySnapshot, along_the_way: &mut Vec<(AnySnapshot, Vec<String>)>| {
        model.check_all(now);
        check_indices(now, &reader);
        if let Some((before, _)) = along_the_way.last() {
            assert_diff_leads_from(before, now);
        }
        along_the_way.push((now.clone(), contents(now)));
    };
    let mut steps = 0;
    for ops in batches {
        // What to expect is worked out delta by delta; what is handed in is the batch.
        let mut deltas = VecDeque::new();
        let mut ahead = Model { items: model.items.clone(), first: model.first.clone(), ..Model::default() };
        for op in ops {
            if let Some(delta) = ahead.delta(op) {
                match &delta {
                    Delta::ReplacedAll { .. } => ahead.replace(&delta),
                    one => drop(ahead.step(one)),
                }
                deltas.push_back(delta);
            }
        }
        let mut expected: VecDeque<Delta<Opaque>> = deltas.iter().map(clone).collect();
        while let Some(publication) = step(&mut writer, &mut deltas) {
            let seen = reader.snapshot();
            assert_eq!((seen.seq(), publication.seq), (publication.new.seq(), publication.old.seq() + 1));
            let named: Vec<ObjectKey> = match &publication.changes {
                Changes::All { .. } => {
                    let replaced = expected.pop_front().unwrap();
                    model.replace(&replaced);
                    let Delta::ReplacedAll { objects, .. } = &replaced else { unreachable!("`replace` looked") };
                    objects.iter().map(|o| Object::key(o).clone()).collect()
                }
                Changes::Each(events) => {
                    let upto = expected.iter().position(|d| matches!(d, Delta::ReplacedAll { .. }));
                    let run: Vec<_> = expected.drain(..upto.unwrap_or(expected.len())).collect();
                    let told: Vec<Change<Opaque>> = run.iter().filter_map(|d| model.step(d)).collect();
                    let equal = events.len() == told.len() && events.iter().zip(&told).all(|(e, t)| same(&e.change, t));
                    let shown = || [events.iter().map(|e| show(&e.change)).collect::<Vec<_>>(), told.iter().map(show).collect()];
                    assert!(equal, "told and expected: {:#?}", shown());
                    run.iter().filter_map(|d| d.key().cloned()).collect()
                }
            };
            model.check(&publication, &named);
            steps += 1;
            if steps % full == 0 {
                look(&model, &publication.new, &mut along_the_way);
            }
        }
        assert!(expected.is_empty());
    }
    let last = reader.snapshot();
    look(&model, &last, &mut along_the_way);
    for (snapshot, was) in &along_the_way {
        assert_eq!(&contents(snapshot), was, "a snapshot changed");
        assert_diff_leads_from(snapshot, &last);
        assert_diff_leads_from(&last, snapshot);
        assert_diff_leads_from(&AnySnapshot::empty(), snapshot);
        assert_eq!(snapshot.diff(snapshot).count(), 0);
    }
    // Let go of from both ends: nothing that another one shows goes with it.
    let mut held = VecDeque::from(along_the_way);
    while let Some((_, _gone)) = if held.len() % 2 == 0 { held.pop_front() } else { held.pop_back() } {
        writer.reclaim(7);
        held.front().into_iter().chain(held.back()).for_each(|(snapshot, was)| assert_eq!(&contents(snapshot), was));
    }
    while writer.reclaim(usize::MAX) {}
    assert_eq!(writer.gauge(), Gauge::default());
}

/// Batches from any bytes. No value is one for which an index function panics, since a fuzzer takes every panic for a find.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut batches = vec![Vec::new()];
    while let Some(kind) = bytes.next() {
        let mut next = |below: usize| usize::from(bytes.next().unwrap_or(0)) % below;
        let value = |n: usize| if n == 13 { 14 } else { n as u32 };
        let op = match kind % 16 {
            0..8 => Op::Put { key: next(KEYS), version: next(VERSIONS.len()), value: value(next(21)), updated: kind & 16 > 0 },
            8 if kind & 16 > 0 => Op::Back { key: next(KEYS) },
            8 => Op::Again { key: next(KEYS) },
            9 | 10 => Op::Observed { key: next(KEYS), version: next(VERSIONS.len()) },
            11 => Op::Missed { key: next(KEYS) },
            12 => Op::Bookmark { version: next(VERSIONS.len()) },
            13 | 14 => Op::Replace {
                listed: (0..next(40)).map(|_| (next(KEYS), next(VERSIONS.len()), value(next(21)))).collect(),
                kept: (0..next(4)).map(|_| next(KEYS)).collect(),
                complete: kind & 16 > 0,
                new_era: kind & 32 > 0,
                version: next(VERSIONS.len()),
            },
            _ => {
                batches.push(Vec::new());
                continue;
            }
        };
        batches.last_mut().into_iter().for_each(|batch| batch.push(op.clone()));
    }
    behaves(&batches, 16);
}
