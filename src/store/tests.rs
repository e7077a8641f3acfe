//! The store against a plain model, and its promises one by one.

use super::script::*;
use super::{AnyReader, Changes, Diff, IndexError, IndexSpec, Publication, Writer};
use crate::{
    flow::{Change, Deleted, Delta, KeyRef, KnownObjects, Object, ObjectKey, Opaque},
    sync::{
        Arc, Clock, Mutex, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        call_out::{Site, assert_contained},
        spawn,
    },
};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::{HashSet, VecDeque},
    hash::{Hash, Hasher},
};

mod memory;

type Emit<'a, V> = &'a mut dyn FnMut(V);

/// Counts how many of it there are.
struct Counted {
    number: u32,
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn new(alive: &Arc<AtomicUsize>, number: u32) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { number, alive: alive.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name).unwrap()
}

fn typed<T: Send + Sync + 'static>(name: &str, version: &str, value: T) -> Object<T> {
    Object::with_key(key(name), version, "", value)
}

fn object(name: &str, version: &str, value: u32) -> Object<Opaque> {
    typed(name, version, value).erase()
}

fn add(name: &str, version: &str, value: u32) -> Delta<Opaque> {
    Delta::Added(object(name, version, value))
}

fn observed(name: &str, version: &str) -> Delta<Opaque> {
    Delta::Deleted(Deleted::Observed(object(name, version, 0)))
}

fn missed(name: &str) -> Delta<Opaque> {
    Delta::Deleted(Deleted::Missed { key: key(name), last_known: None })
}

fn whole(version: &str, objects: Vec<Object<Opaque>>) -> Delta<Opaque> {
    Delta::ReplacedAll { version: version.into(), objects, kept: vec![], complete: true, new_era: false }
}

/// Applies what makes one publication.
fn apply(writer: &mut Writer, deltas: impl Into<VecDeque<Delta<Opaque>>>) -> Step {
    let mut deltas = deltas.into();
    let step = step(writer, &mut deltas).unwrap();
    assert!(deltas.is_empty(), "more than one publication");
    step
}

fn key_of<T>(change: &Change<T>) -> &ObjectKey {
    match change {
        Change::Added(o) | Change::Updated { new: o, .. } => Object::key(o),
        Change::Deleted(d) => d.key(),
    }
}

fn each(publication: &Publication) -> Vec<String> {
    match &publication.changes {
        Changes::Each(events) => events.iter().map(|e| show(&e.change)).collect(),
        Changes::All { .. } => panic!("a whole state"),
    }
}

fn all(publication: &Publication) -> Vec<String> {
    let Changes::All { old, new } = &publication.changes else { panic!("not a whole state") };
    let mut changes: Vec<_> = old.diff(new).collect();
    changes.sort_by_key(|change| key_of(change).clone());
    changes.iter().map(show).collect()
}

fn op() -> impl Strategy<Value = Op> {
    let (k, v, n) = (0..KEYS, 0..VERSIONS.len(), 0u32..21);
    prop_oneof![
        8 => (k.clone(), v.clone(), n.clone(), any::<bool>())
            .prop_map(|(key, version, value, updated)| Op::Put { key, version, value, updated }),
        1 => k.clone().prop_map(|key| Op::Again { key }),
        2 => k.clone().prop_map(|key| Op::Back { key }),
        2 => (k.clone(), v.clone()).prop_map(|(key, version)| Op::Observed { key, version }),
        1 => k.clone().prop_map(|key| Op::Missed { key }),
        1 => v.clone().prop_map(|version| Op::Bookmark { version }),
        2 => (vec((k.clone(), v.clone(), n), 0..60), vec(k, 0..4), any::<bool>(), any::<bool>(), v).prop_map(
            |(listed, kept, complete, new_era, version)| Op::Replace { listed, kept, complete, new_era, version }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_store_behaves_as_its_plain_model(batches in vec(vec(op(), 1..12), 1..8)) {
        behaves(&batches, 1);
    }
}

#[test]
fn a_run_is_one_publication_and_a_whole_state_another() {
    let mut writer = Writer::new(vec![]).unwrap();
    let mut deltas = VecDeque::from([add("a", "1", 1), bookmark("2"), whole("3", vec![object("b", "3", 1)]), add("c", "4", 1)]);
    let mut seen = Vec::new();
    while let Some(p) = step(&mut writer, &mut deltas) {
        assert_eq!(writer.reader().snapshot().seq(), p.seq);
        seen.push((p.seq, p.new.version().to_owned(), matches!(p.changes, Changes::All { .. }), p.new.initial_done()));
    }
    assert_eq!(seen, [(1, "2".into(), false, false), (2, "3".into(), true, true), (3, "4".into(), false, true)]);
    assert!(writer.apply(&mut deltas).is_none());
}

#[test]
fn what_is_stored_decides_and_deltas_of_one_key_chain() {
    let mut writer = Writer::new(vec![]).unwrap();
    let p = apply(
        &mut writer,
        [Delta::Updated(object("a", "1", 1)), add("a", "2", 2), observed("a", "3"), add("a", "4", 4), missed("a")],
    );
    assert_eq!(each(&p), ["A ns/a@1", "U ns/a@1 -> ns/a@2", "D ns/a@3", "A ns/a@4", "M ns/a Some(ns/a@4)"]);
    assert_eq!((p.new.len(), p.new.version()), (0, "4"));
}

#[test]
fn an_unchanged_object_is_told_to_nobody_and_the_old_one_stays() {
    let mut writer = Writer::new(vec![]).unwrap();
    let first = object("a", "1", 1);
    apply(&mut writer, [Delta::Added(first.clone())]);
    let p = apply(&mut writer, [add("a", "1", 2)]);
    assert_eq!((each(&p), p.unchanged), (vec![], 1));
    let p = apply(&mut writer, [whole("5", vec![object("a", "1", 3), object("b", "", 1)])]);
    assert_eq!((all(&p), p.unchanged), (vec!["A ns/b@".to_owned()], 1));
    assert!(Object::ptr_eq(p.new.get(&KeyRef { namespace: "ns", name: "a" }).unwrap(), &first));
    // No version proves nothing.
    assert_eq!(each(&apply(&mut writer, [add("b", "", 1)])), ["U ns/b@ -> ns/b@"]);
}

#[test]
fn in_a_new_era_equal_versions_prove_nothing() {
    let mut writer = Writer::new(vec![]).unwrap();
    apply(&mut writer, [add("a", "1", 1), add("b", "1", 1), add("c", "1", 1)]);
    let p = apply(
        &mut writer,
        [Delta::ReplacedAll {
            version: "1".into(),
            objects: vec![object("a", "1", 9)],
            kept: vec![key("b")],
            complete: true,
            new_era: true,
        }],
    );
    assert_eq!(all(&p), ["U ns/a@1 -> ns/a@1", "M ns/c Some(ns/c@1)"]);
    let known = |name| writer.reader().known(KeyRef { namespace: "ns", name }).map(|o| format!("{o:?}"));
    assert_eq!((known("a"), known("b"), known("c")), (Some("ns/a@1".into()), None, None));
    // `b` is still the object of the old era, so the new era's b@1 is another one.
    let p = apply(&mut writer, [add("a", "1", 10), add("b", "1", 10), add("b", "1", 11)]);
    assert_eq!((each(&p), p.unchanged), (vec!["U ns/b@1 -> ns/b@1".to_owned()], 2));
    assert!(writer.reader().known(KeyRef { namespace: "ns", name: "b" }).is_some());
}

#[test]
fn a_delete_of_an_unknown_key_is_counted_and_not_told() {
    let mut writer = Writer::new(vec![]).unwrap();
    let p = apply(&mut writer, [observed("a", "7"), missed("b")]);
    assert_eq!((each(&p), p.unknown_deletes, p.new.version()), (vec![], 2, "7"));
}

#[test]
fn a_bookmark_publishes_its_version() {
    let mut writer = Writer::new(vec![]).unwrap();
    let p = apply(&mut writer, [add("a", "1", 1), bookmark("9")]);
    assert_eq!((p.new.version(), p.new.len()), ("9", 1));
    // What says nothing of a version does not blank it.
    let p = apply(&mut writer, [bookmark(""), missed("a"), add("b", "", 1)]);
    assert_eq!(p.new.version(), "9");
}

#[test]
fn a_whole_state_keeps_what_it_could_not_name() {
    let mut writer = Writer::new(vec![]).unwrap();
    apply(&mut writer, [add("a", "1", 1), add("b", "1", 1)]);
    let p = apply(
        &mut writer,
        [Delta::ReplacedAll {
            version: "5".into(),
            objects: vec![object("c", "2", 1), object("c", "5", 5)],
            kept: vec![key("a"), key("never seen")],
            complete: true,
            new_era: false,
        }],
    );
    assert_eq!(all(&p), ["M ns/b Some(ns/b@1)", "A ns/c@5"]);
    let p = apply(
        &mut writer,
        [Delta::ReplacedAll { version: "6".into(), objects: vec![], kept: vec![], complete: false, new_era: false }],
    );
    assert_eq!((all(&p), p.new.len(), p.new.version()), (vec![], 2, "6"));
}

#[test]
fn b_07_a_relist_made_delete_is_in_store_and_indices_before_it_is_told() {
    let mut writer = Writer::new(vec![remainders()]).unwrap();
    apply(&mut writer, [whole("1", vec![object("a", "1", 7)])]);
    let reader = writer.reader().typed::<u32>();
    assert_eq!(reader.by_index("remainders", "1 by 2").unwrap().len(), 1);
    let p = apply(&mut writer, [whole("5", vec![])]);
    // The delete is found by walking the publication, which is published already.
    assert!(reader.get(&key("a")).is_none());
    assert_eq!(reader.snapshot().index_values("remainders").unwrap().len(), 0);
    assert_eq!(reader.by_index("remainders", "1 by 2").unwrap().len(), 0);
    assert_eq!(all(&p), ["M ns/a Some(ns/a@1)"]);
}

#[test]
fn b_58_readers_see_the_old_set_until_they_see_the_whole_new_one() {
    let reader: Arc<Once<AnyReader>> = Arc::default();
    let during = Arc::new(Mutex::new(Vec::new()));
    // Weak, because the reader keeps the index and its function.
    let (of_index, seen) = (Arc::downgrade(&reader), during.clone());
    // An index function runs in the midst of the replacement.
    let spy = IndexSpec::new("spy", move |_: &u32, _: Emit<'_, u32>| {
        if let Some(reader) = of_index.upgrade().as_ref().and_then(|reader| reader.get()) {
            let now = sorted(reader.typed::<u32>().snapshot().objects().map(|o| format!("{o:?}")));
            seen.lock().push(now);
        }
    });
    let mut writer = Writer::new(vec![spy]).unwrap();
    apply(&mut writer, [whole("1", vec![object("a", "1", 1), object("b", "1", 1)])]);
    reader.set(writer.reader()).ok().unwrap();
    apply(&mut writer, [whole("2", vec![object("a", "2", 2), object("b", "2", 2), object("c", "2", 2)])]);
    // For the three that are listed.
    assert_eq!(*during.lock(), [["ns/a@1", "ns/b@1"]; 3]);
    assert_eq!(writer.reader().snapshot().len(), 3);
}

#[test]
fn b_61_an_index_that_fails_refuses_the_update_whole() {
    // `identity` comes first and works: it must not show the refused value either.
    let mut writer = Writer::new(vec![identity(), remainders()]).unwrap();
    let reader = writer.reader();
    apply(&mut writer, [add("a", "1", 7)]);
    let p = apply(&mut writer, [add("a", "2", 13), add("b", "3", 4), add("c", "4", 13)]);
    assert_eq!(each(&p), ["A ns/b@3"]);
    assert_eq!(
        p.refused.iter().map(|r| (&r.key, &*r.index)).collect::<Vec<_>>(),
        [(&key("a"), "remainders"), (&key("c"), "remainders")]
    );
    assert_eq!(p.refused[0].why.site, Site::Index);
    assert!(p.refused[0].to_string().contains("thirteen"), "{}", p.refused[0]);
    assert_eq!(p.new.version(), "4");
    let identities = reader.index::<u32>("identity").unwrap();
    assert_eq!(p.new.typed::<u32>().index_values(&identities).unwrap(), [&4, &7]);
    check_indices(&p.new, &reader);
    // A later update of the same key chains with what was told last; a delete removes every trace.
    assert_eq!(each(&apply(&mut writer, [add("a", "5", 8)])), ["U ns/a@1 -> ns/a@5"]);
    let p = apply(&mut writer, [observed("a", "6"), observed("b", "7")]);
    assert_eq!(p.new.typed::<u32>().index_values(&identities).unwrap().len(), 0);
    assert_contained(&Clock::real(), &["thirteen", "thirteen"]);
}

#[test]
fn a_listed_object_that_an_index_refuses_keeps_its_old_state() {
    let mut writer = Writer::new(vec![identity(), remainders()]).unwrap();
    apply(&mut writer, [whole("1", vec![object("a", "1", 7), object("gone", "1", 1)])]);
    let p = apply(&mut writer, [whole("2", vec![object("a", "2", 13), object("b", "2", 13), object("c", "2", 3)])]);
    assert_eq!(all(&p), ["A ns/c@2", "M ns/gone Some(ns/gone@1)"]);
    assert_eq!((p.refused.len(), p.new.version()), (2, "2"));
    check_indices(&p.new, &writer.reader());
    assert_contained(&Clock::real(), &["thirteen", "thirteen"]);
}

/// A value that panics where it is told to.
#[derive(Clone, Debug, PartialOrd, Ord)]
struct Touchy(&'static str, u32);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(self.0 != "eq" && other.0 != "eq", "no eq");
        self.1 == other.1
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert_ne!(self.0, "hash", "no hash");
        state.write_u32(self.1);
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        assert_ne!(self.0, "drop", "no drop");
    }
}

#[test]
fn a_value_that_panics_when_compared_or_hashed_refuses_its_update_and_one_that_panics_when_dropped_harms_nobody() {
    let touchy = |(what, n): &(&'static str, u32), emit: Emit<'_, Touchy>| {
        emit(Touchy(what, *n));
        emit(Touchy(what, *n));
        assert_ne!(*what, "drop and panic", "index");
    };
    let mut writer = Writer::new(vec![IndexSpec::new("touchy", touchy)]).unwrap();
    let put = |name: &str, version: &str, what: &'static str, n: u32| Delta::Added(typed(name, version, (what, n)).erase());
    let p = apply(&mut writer, [put("a", "1", "", 1), put("b", "1", "hash", 1), put("c", "1", "eq", 1)]);
    assert_eq!((each(&p), p.refused.len()), (vec!["A ns/a@1".to_owned()], 2));
    assert_contained(&Clock::real(), &["no hash", "no eq"]);

    // The second of the two emitted is dropped at once, the first with its posting.
    assert_eq!(each(&apply(&mut writer, [put("a", "2", "drop", 2)])), ["U ns/a@1 -> ns/a@2"]);
    assert_contained(&Clock::real(), &["no drop"]);
    // Asked for the object as it was, the function emits two more.
    assert_eq!(each(&apply(&mut writer, [put("a", "3", "", 3)])), ["U ns/a@2 -> ns/a@3"]);
    let index = writer.reader().index::<Touchy>("touchy").unwrap();
    assert_eq!(writer.reader().typed::<(&str, u32)>().snapshot().index_values(&index).unwrap(), [&Touchy("", 3)]);
    writer.reclaim(usize::MAX);
    assert_contained(&Clock::real(), &["no drop"; 3]);
}

#[test]
fn values_that_panic_while_an_index_function_unwinds_do_not_abort() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    #[derive(Clone)]
    struct Armed(Arc<Bomb>);
    impl Armed {
        fn id(&self) -> *const Bomb {
            Arc::as_ptr(&self.0)
        }
    }
    impl PartialEq for Armed {
        fn eq(&self, other: &Self) -> bool {
            self.id() == other.id()
        }
    }
    impl Eq for Armed {}
    impl PartialOrd for Armed {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Armed {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            self.id().cmp(&other.id())
        }
    }
    impl Hash for Armed {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.id().hash(state);
        }
    }
    let index = IndexSpec::new("armed", |_: &u32, emit: Emit<'_, Armed>| {
        emit(Armed(Arc::new(Bomb)));
        emit(Armed(Arc::new(Bomb)));
        panic!("index");
    });
    let mut writer = Writer::new(vec![index]).unwrap();
    let p = apply(&mut writer, [add("a", "1", 1)]);
    assert_eq!((p.refused.len(), p.new.len()), (1, 0));
    assert_contained(&Clock::real(), &["bomb", "bomb", "index"]);
}

#[test]
fn a_drop_that_reads_the_store_runs_outside_its_lock() {
    #[derive(Clone)]
    struct Reads(Arc<Once<AnyReader>>, Arc<AtomicUsize>);
    impl Drop for Reads {
        fn drop(&mut self) {
            if let Some(reader) = self.0.get() {
                reader.snapshot();
                self.1.fetch_add(1, Relaxed);
            }
        }
    }
    let (reader, drops): (Arc<Once<AnyReader>>, Arc<AtomicUsize>) = Default::default();
    let mut writer = Writer::new(vec![]).unwrap();
    reader.set(writer.reader()).ok().unwrap();
    let put = |version: &str| Delta::Added(typed("a", version, Reads(reader.clone(), drops.clone())).erase());
    drop(apply(&mut writer, [put("1")]));
    writer.apply(&mut [put("2")].into());
    assert_eq!(drops.load(Relaxed), 1, "the version before was the last owner");
    drop(apply(&mut writer, [whole("3", vec![])]));
    writer.reclaim(usize::MAX);
    assert_eq!(drops.load(Relaxed), 2);
    assert_contained(&Clock::real(), &[]);
}

#[test]
fn an_object_that_no_version_shows_is_freed_and_a_snapshot_keeps_its_own() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut writer = Writer::new(vec![]).unwrap();
    let put = |version: &str| Delta::Added(typed("a", version, Counted::new(&alive, 0)).erase());
    writer.apply(&mut [put("0")].into());
    let held = writer.reader().snapshot();
    for n in 1..100u32 {
        writer.apply(&mut [put(&n.to_string())].into());
    }
    assert_eq!(alive.load(Relaxed), 2, "what is held and what is stored");
    drop(held);
    assert!(!writer.reclaim(usize::MAX), "all at once");
    assert_eq!(alive.load(Relaxed), 1);
    drop(writer);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn indices_are_found_by_name_and_by_typed_handle_and_mistakes_are_told() {
    let twice = Writer::new(vec![remainders(), remainders()]);
    assert_eq!(twice.unwrap_err(), IndexError::Duplicate { name: "remainders".into() });

    let mut writer = Writer::new(vec![remainders(), identity()]).unwrap();
    apply(&mut writer, [add("a", "1", 7), add("b", "1", 9), add("c", "1", 7)]);
    let reader = writer.reader().typed::<u32>();
    let identity_index = reader.index::<u32>("identity").unwrap();
    let keys = |objects: Vec<Object<u32>>| sorted(objects.iter().map(|o| Object::key(o).to_string()));
    assert_eq!(keys(reader.by_index(&identity_index, &7).unwrap()), ["ns/a", "ns/c"]);
    assert_eq!(keys(reader.by_index("remainders", "0 by 3").unwrap()), ["ns/b"]);
    let named = reader.index::<String>("remainders").unwrap();
    assert_eq!(keys(reader.by_index(&named, "0 by 3").unwrap()), ["ns/b"]);
    assert_eq!(reader.by_index("remainders", "no such value").unwrap().len(), 0);

    let known = vec!["remainders".to_owned(), "identity".to_owned()];
    assert_eq!(reader.by_index("no", "x").unwrap_err(), IndexError::Unknown { name: "no".into(), known });
    assert!(matches!(reader.by_index("identity", "7"), Err(IndexError::OtherValues { .. })));
    assert!(matches!(reader.index::<u64>("identity"), Err(IndexError::OtherValues { .. })));
    // A handle belongs to one store.
    let other = Writer::new(vec![identity()]).unwrap().reader().typed::<u32>();
    assert!(matches!(other.by_index(&identity_index, &7), Err(IndexError::Unknown { .. })));
}

#[test]
fn every_look_up_finds_the_same_object() {
    let mut writer = Writer::new(vec![]).unwrap();
    apply(&mut writer, [add("a", "1", 7), add("b", "1", 8)]);
    let any = writer.reader();
    let reader = any.typed::<u32>();
    let snapshot = reader.snapshot();
    assert_eq!((snapshot.len(), snapshot.is_empty(), reader.len(), reader.is_empty()), (2, false, 2, false));
    assert_eq!(snapshot.get(&key("a")), Some(&7));
    assert_eq!(sorted(snapshot.iter().copied()), [7, 8]);
    assert_eq!(reader.with(&("ns", "b"), |v| v + 1), Some(9));
    assert_eq!(reader.with(&("ns", "c"), |v| v + 1), None);
    let o = reader.get(&key("a")).unwrap();
    assert!(Object::ptr_eq(snapshot.object(&("ns", "a")).unwrap(), &o));
    assert!(Object::ptr_eq(&KnownObjects::get(&reader, KeyRef { namespace: "ns", name: "a" }).unwrap(), &o));
    assert!(Object::ptr_eq(&KnownObjects::get(&any, KeyRef { namespace: "ns", name: "a" }).unwrap().typed(), &o));
    let mut keys = Vec::new();
    any.for_each_key(&mut |k| keys.push(k.clone()));
    assert!(snapshot.keys().eq(&keys));
    assert_eq!(sorted(keys), [key("a"), key("b")]);
    assert_eq!((reader.version(), snapshot.seq()), ("1".to_owned(), 1));
}

#[test]
fn a_difference_is_found_as_it_is_asked_for_and_keeps_its_snapshots() {
    fn owned<T: Send + 'static>(_: &T) {}
    let mut writer = Writer::new(vec![]).unwrap();
    let objects = |version: &str| (0..1000).map(|n| object(&format!("{n:04}"), version, n)).collect();
    let p = apply(&mut writer, [whole("1", objects("1"))]);
    let mut walk: Diff = p.old.diff(&p.new);
    owned(&walk);
    let mut told: Vec<String> = walk.by_ref().take(10).map(|c| show(&c)).collect();
    drop(p);
    apply(&mut writer, [whole("2", vec![])]);
    // The rest is what it would have been.
    told.extend(walk.map(|c| show(&c)));
    assert_eq!(sorted(told), (0..1000).map(|n| format!("A ns/{n:04}@1")).collect::<Vec<_>>());
    // A relist that changes nothing has nothing to walk.
    apply(&mut writer, [whole("3", objects("3"))]);
    let p = apply(&mut writer, [whole("4", objects("3"))]);
    assert_eq!((p.old.diff(&p.new).count(), p.unchanged), (0, 1000));
    assert_eq!(p.new.diff(&p.new).count(), 0);
}

#[test]
fn one_snapshot_is_one_instant_while_the_writer_writes() {
    // B-57 and B-62 in small: an object is in exactly one of the index's values, and every posting has its object.
    let clock = Clock::real();
    let half = IndexSpec::new("half", |v: &u32, emit: Emit<'_, u32>| emit(v % 2));
    let mut writer = Writer::new(vec![half]).unwrap();
    apply(&mut writer, [add("a", "1", 0), add("b", "1", 1)]);
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (reader, stop) = (writer.reader().typed::<u32>(), stop.clone());
            let look = move || {
                let half = reader.index::<u32>("half").unwrap();
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let s = reader.snapshot();
                    let mut seen = HashSet::new();
                    for n in [0, 1] {
                        let objects = s.by_index(&half, &n).unwrap();
                        assert!(objects.inspect(|o| assert_eq!(***o % 2, n)).all(|o| seen.insert(Object::key(o).clone())));
                    }
                    assert_eq!(seen.len(), s.len());
                    assert!(s.len() >= 2, "neither a nor b was ever missing");
                    assert!(s.seq() >= last);
                    last = s.seq();
                }
            };
            spawn(&clock, "reader", look).unwrap()
        })
        .collect();
    for n in 2..400u32 {
        let v = n.to_string();
        apply(&mut writer, [add("a", &v, n), add("b", &v, n + 1), add("c", &v, n), observed("c", &v)]);
        if n % 7 == 0 {
            apply(&mut writer, [whole(&v, vec![object("a", "", n), object("b", "", n), object("d", "", n)])]);
        }
    }
    stop.store(true, Relaxed);
    readers.into_iter().for_each(|r| r.join().unwrap());
}

#[test]
fn an_index_that_is_added_later_is_as_one_that_was_there_from_the_beginning() {
    let mut writer = Writer::new(vec![identity()]).unwrap();
    let reader = writer.reader();
    apply(&mut writer, [whole("1", (0..500).map(|n| object(&n.to_string(), "1", n % 13)).collect())]);
    let before = reader.snapshot();
    let added = writer.add_index(remainders()).unwrap();
    assert_eq!((added.seq, each(&added)), (2, vec![]));
    let now = reader.snapshot();
    assert_eq!((before.diff(&now).count(), now.seq(), now.version()), (0, 2, "1"));
    check_indices(&now, &reader);
    assert!(matches!(before.typed::<u32>().index_values("remainders"), Err(IndexError::Unknown { .. })));
    // It goes on.
    for n in 0..500u32 {
        let delta = if n % 3 == 0 { missed(&n.to_string()) } else { add(&n.to_string(), "2", (n + 1) % 13) };
        apply(&mut writer, [delta]);
    }
    check_indices(&reader.snapshot(), &reader);
    for n in 0..500 {
        assert_eq!(apply(&mut writer, [missed(&n.to_string())]).unsteady, 0);
    }
    assert_eq!(reader.snapshot().typed::<u32>().index_values("remainders").unwrap().len(), 0);

    assert!(matches!(writer.add_index(remainders()), Err(IndexError::Duplicate { .. })));
    apply(&mut writer, [add("a", "1", 7), add("b", "1", 13)]);
    let fails = IndexSpec::new("fails", emit_remainders);
    let mut other = Writer::new(vec![identity()]).unwrap();
    apply(&mut other, [add("a", "1", 7), add("b", "1", 13)]);
    let failed = other.add_index(fails).unwrap_err();
    assert!(matches!(&failed, IndexError::Failed { name, key: Some(k), .. } if name == "fails" && *k == key("b")), "{failed}");
    assert_eq!(other.reader().snapshot().seq(), 1);
    drop((before, now));
    drop((writer, reader, other));
    assert_eq!(super::node::census(), 0);
    assert_contained(&Clock::real(), &["thirteen", "thirteen"]);
}

#[test]
fn a_sample_finds_what_shares_a_value_with_it() {
    let mut writer = Writer::new(vec![remainders(), identity()]).unwrap();
    apply(&mut writer, [add("a", "1", 1), add("b", "1", 2), add("c", "1", 3), add("d", "1", 10), add("e", "1", 7)]);
    let snapshot = writer.reader().typed::<u32>().snapshot();
    let like = |sample: u32| {
        let found = snapshot.by_sample("remainders", &sample)?;
        Ok::<_, IndexError>(sorted(found.map(|o| Object::key(o).name().to_owned())))
    };
    // 5 is odd, and 2 more than a multiple of three.
    assert_eq!(like(5).unwrap(), ["a", "b", "c", "e"]);
    assert_eq!(like(20).unwrap(), [""; 0]);
    assert!(matches!(like(13), Err(IndexError::Failed { key: None, .. })));
    assert_contained(&Clock::real(), &["thirteen"]);
    let stats = snapshot.index_stats("remainders").unwrap();
    assert_eq!((stats.values, stats.entries, stats.largest), (5, 8, 3));
    drop(writer);
    assert!(matches!(like(5), Err(IndexError::Gone { .. })));
    let kept = snapshot.detach();
    assert_eq!(sorted(kept.iter().map(|o| **o)), [1, 2, 3, 7, 10]);
}
