//! What the store keeps, counted node by node: it grows and shrinks with what is stored, and a held version pins what it
//! shows and nothing else. All on one thread, whose nodes the census of `node.rs` counts.

use super::{Counted, apply, assert_contained, check_indices, contents, identity, key, object, remainders, whole};
use crate::{
    flow::{Deleted, Delta, Object, Opaque},
    store::{
        AnySnapshot, Gauge, IndexSpec, Writer,
        node::{census, spares},
        reclaim::AT_ONCE,
    },
    sync::{
        Arc, Clock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use std::collections::VecDeque;

/// `benches/store_memory.rs` asks the same of a hundred times as many, and of all bytes.
const OBJECTS: u32 = 1000;

/// Objects that count themselves.
struct World {
    writer: Writer,
    alive: Arc<AtomicUsize>,
    version: u64,
    random: fastrand::Rng,
}

fn index(name: &str, of: u32) -> IndexSpec {
    IndexSpec::new(name, move |value: &Counted, emit: &mut dyn FnMut(u32)| emit(value.number % of))
}

impl World {
    fn new(indices: Vec<IndexSpec>) -> Self {
        let random = fastrand::Rng::with_seed(7);
        Self { writer: Writer::new(indices).unwrap(), alive: Arc::default(), version: 0, random }
    }

    fn object(&mut self, name: u32, number: u32) -> Object<Opaque> {
        self.version += 1;
        let value = Counted::new(&self.alive, number);
        Object::with_key(key(&name.to_string()), &self.version.to_string(), "", value).erase()
    }

    fn step(&mut self, deltas: impl Into<VecDeque<Delta<Opaque>>>) {
        self.writer.apply(&mut deltas.into());
    }

    fn put(&mut self, name: u32, number: u32) {
        let object = self.object(name, number);
        self.step([Delta::Updated(object)]);
    }

    fn delete(&mut self, name: u32) {
        self.step([Delta::Deleted(Deleted::Missed { key: key(&name.to_string()), last_known: None })]);
    }

    fn replace(&mut self, names: impl Iterator<Item = u32>) {
        let objects = names.map(|name| self.object(name, name)).collect();
        self.step([whole("1", objects)]);
    }

    fn rewrite(&mut self, times: u32) {
        for _ in 0..times {
            let (name, number) = (self.random.u32(..OBJECTS), self.random.u32(..));
            self.put(name, number);
        }
    }

    fn settled(&mut self) -> (usize, usize) {
        while self.writer.reclaim(100) {}
        (census(), self.alive.load(Relaxed))
    }
}

#[test]
fn after_many_updates_the_store_is_as_large_as_before() {
    let mut w = World::new(vec![index("a", 10), index("b", 300)]);
    w.replace(0..OBJECTS);
    w.rewrite(3000);
    let (nodes, objects) = w.settled();
    let mut most = nodes;
    for _ in 0..50 {
        w.rewrite(100);
        // Nobody looks, so each step frees what it replaced.
        assert_eq!((w.writer.gauge().waiting, w.alive.load(Relaxed)), (0, objects));
        most = most.max(census());
    }
    let (after, alive) = w.settled();
    assert_eq!((objects, alive, after), (OBJECTS as usize, OBJECTS as usize, census()));
    assert!(most < nodes + nodes / 10, "{nodes} bytes of nodes became {most}, and {after} in the end");
}

#[test]
fn a_version_held_over_many_updates_of_one_key_pins_one_object_and_a_few_kilobytes() {
    let mut w = World::new(vec![index("a", 10)]);
    w.replace(0..OBJECTS);
    let (nodes, objects) = w.settled();
    let held = w.writer.reader().snapshot();
    for n in 0..3000 {
        w.put(17, n);
    }
    let pinned = w.writer.gauge();
    assert_eq!((pinned.versions, pinned.waiting), (1, 0));
    assert!(pinned.pinned < 40, "{pinned:?}");
    let (now, alive) = w.settled();
    assert_eq!(alive, objects + 1);
    assert!(now < nodes + (8 << 10), "{nodes} bytes of nodes became {now}");
    drop(held);
    assert_eq!(w.settled(), (w.settled().0, objects));
    assert!(w.settled().0 < nodes + 1024);
}

#[test]
fn a_held_version_pins_no_more_than_its_own_size_however_long_it_is_held_and_nothing_when_it_is_let_go_of() {
    let mut w = World::new(vec![index("a", 10), index("b", 300)]);
    w.replace(0..OBJECTS);
    let (nodes, _) = w.settled();
    let mut held: Vec<AnySnapshot> = Vec::new();
    for round in 1..=4 {
        held.push(w.writer.reader().snapshot());
        w.rewrite(3000);
        let (now, alive) = w.settled();
        assert!(alive <= (round + 1) * OBJECTS as usize, "{alive} objects with {round} versions held");
        assert!(now <= (round + 1) * nodes * 6 / 5, "{now} bytes of nodes with {round} versions held, {nodes} without");
    }
    // In any order; the objects of one that goes are not those of the others.
    for at in [1, 2, 0, 0] {
        let gone = held.remove(at);
        let before = w.alive.load(Relaxed);
        drop(gone);
        w.settled();
        assert!(w.alive.load(Relaxed) < before);
    }
    let (after, alive) = w.settled();
    assert_eq!((alive, w.writer.gauge()), (OBJECTS as usize, Default::default()));
    assert!(after < nodes * 6 / 5, "{nodes} bytes of nodes became {after}");
}

#[test]
fn after_versions_were_let_go_of_each_update_frees_a_bounded_part_of_what_they_kept_once() {
    for versions in [1, 50] {
        let mut w = World::new(vec![index("a", 10)]);
        w.replace(0..OBJECTS);
        w.settled();
        let mut held: Vec<AnySnapshot> = Vec::new();
        for _ in 0..versions {
            held.push(w.writer.reader().snapshot());
            w.rewrite(3000 / versions);
        }
        let (kept, mut updates) = (w.writer.gauge().pinned, 0);
        drop(held);
        while w.writer.gauge() != Gauge::default() {
            let before = w.alive.load(Relaxed);
            w.put(1, updates);
            // Its own are fewer than 20, and it frees twice as many besides.
            let freed = before + 1 - w.alive.load(Relaxed);
            assert!(freed < AT_ONCE + 40, "{freed} objects were freed by one update");
            updates += 1;
        }
        assert!(w.writer.room() < 80, "lists for {}", w.writer.room());
        let updates = updates as usize;
        // None is handed from one version that has ended to another: each is freed when it is come to.
        assert!(updates > kept / (AT_ONCE + 40) && updates <= 1 + kept / AT_ONCE, "{updates} updates for {kept} things");
        assert_eq!(w.settled().1, OBJECTS as usize);
    }
}

#[test]
fn of_many_versions_that_are_held_each_pins_what_the_next_one_lacks() {
    for held in [1, 10, 100, 1000] {
        let mut w = World::new(vec![index("a", 10)]);
        w.replace(0..OBJECTS);
        let (nodes, objects) = w.settled();
        let mut versions: Vec<AnySnapshot> = Vec::new();
        for n in 0..held {
            versions.push(w.writer.reader().snapshot());
            w.put(17, 1_000_000 + n);
        }
        let (now, alive) = w.settled();
        let held = held as usize;
        assert_eq!((alive, w.writer.gauge().versions), (objects + held, held));
        // For each its own object; the page of it and those of its old and new value, and what leads there.
        assert!(now < nodes + held * 8192, "{nodes} bytes of nodes became {now} with {held} versions held");
        w.random.shuffle(&mut versions);
        versions.truncate(held / 2);
        assert_eq!((w.settled().1, w.writer.gauge().versions), (objects + held / 2, held / 2));
        drop(versions);
        let (after, alive) = w.settled();
        assert_eq!((alive, w.writer.gauge()), (objects, Gauge::default()));
        assert!(w.writer.room() < 80, "the lists of {held} versions have room for {}", w.writer.room());
        assert!(after < nodes + 8192, "{nodes} bytes of nodes became {after}");
    }
}

#[test]
fn objects_that_go_and_come_back_are_pinned_twice_at_most() {
    for objects in [1, 100] {
        let mut w = World::new(vec![]);
        let again: Vec<_> = (0..objects).map(|name| w.object(name, name)).collect();
        w.step(again.iter().cloned().map(Delta::Added).collect::<VecDeque<_>>());
        let mut held = Vec::new();
        for round in 0..40 * objects {
            if round % (20 * objects) == 0 {
                held.push(w.writer.reader().snapshot());
            }
            let name = w.random.u32(..objects);
            w.delete(name);
            w.step([Delta::Added(again[name as usize].clone())]);
        }
        // And pages and what leads to them: less than one for each object.
        let most = held.len() * (3 * objects as usize + 1);
        assert!(w.writer.gauge().pinned <= most, "{:?} of {objects}", w.writer.gauge());
        assert!(w.writer.room() < 100 + 2 * most, "room for {} of {objects}", w.writer.room());
        held.remove(0);
        w.delete(0);
        drop((held, again));
        (1..objects).for_each(|name| w.delete(name));
        assert_eq!(w.settled(), (0, 0));
    }
}

#[test]
fn what_a_whole_state_replaces_is_freed_in_steps() {
    let mut w = World::new(vec![]);
    w.replace(0..OBJECTS);
    w.settled();
    w.replace(0..OBJECTS);
    let old = OBJECTS as usize;
    assert!(w.alive.load(Relaxed) > 2 * old - 2 * AT_ONCE, "all at once");
    assert!(w.writer.reclaim(100) && w.alive.load(Relaxed) >= 2 * old - 2 * AT_ONCE - 100, "more than it was asked for");
    // Another one does not come on top of it.
    w.replace(0..OBJECTS);
    assert!(w.alive.load(Relaxed) <= 2 * old);
    assert_eq!(w.settled().1, old);
}

#[test]
fn the_store_shrinks_as_objects_are_deleted_and_is_nothing_without_any() {
    const MANY: u32 = 6 * OBJECTS;
    for indices in [0, 1, 3] {
        // Of 200, 40 and 400 objects each.
        let all = [("a", MANY / 200), ("b", MANY / 40), ("c", MANY / 400)];
        let mut w = World::new(all[..indices].iter().map(|(name, of)| index(name, *of)).collect());
        w.replace(0..MANY);
        let full = w.settled().0 * 10 / MANY as usize;
        // 13, 23 and 46 bytes are aimed at; how full the pages are depends on the seed of the hash.
        assert!(full <= [140, 245, 490][indices.min(2)], "{full} tenths of a byte for each object with {indices} indices");
        for name in MANY / 10..MANY {
            w.delete(name);
        }
        let left = w.settled().0 * 10 / (MANY as usize / 10);
        assert!(left <= 2 * full, "{left} tenths of a byte for each object left with {indices} indices, {full} before");
        for name in 0..MANY / 10 {
            w.delete(name);
        }
        assert_eq!(w.settled(), (0, 0));
    }
}

#[test]
fn without_a_store_the_last_version_held_frees_what_is_left() {
    let mut w = World::new(vec![index("a", 10)]);
    w.replace(0..100);
    let reader = w.writer.reader();
    let old = reader.snapshot();
    for n in 0..100 {
        w.put(n, n + 1);
    }
    let World { writer, alive, .. } = w;
    drop(writer);
    assert_eq!(alive.load(Relaxed), 200, "both versions can be read");
    assert_eq!((old.len(), reader.snapshot().len()), (100, 100));
    drop(old);
    assert_eq!(alive.load(Relaxed), 100, "what only the older one had");
    let last = reader.snapshot();
    drop(reader);
    assert_eq!((alive.load(Relaxed), last.len()), (100, 100));
    drop(last);
    assert_eq!((alive.load(Relaxed), census()), (0, 0));
}

#[test]
fn letting_go_of_an_overtaken_version_tells_the_owner_once_until_it_has_looked() {
    let mut w = World::new(vec![]);
    w.replace(0..100);
    let told = Arc::new(AtomicUsize::new(0));
    let tells = told.clone();
    w.writer.on_garbage(move || {
        tells.fetch_add(1, Relaxed);
    });
    w.settled();
    drop(w.writer.reader().snapshot());
    assert_eq!(told.load(Relaxed), 0, "it is the current one");
    let held = [w.writer.reader().snapshot(), w.writer.reader().snapshot()];
    w.put(1, 2);
    let other = w.writer.reader().snapshot();
    w.put(1, 3);
    let [one, two] = held;
    drop(one);
    assert_eq!(told.load(Relaxed), 0, "somebody else has it");
    drop(two);
    drop(other);
    assert_eq!(told.load(Relaxed), 1);
    assert_eq!(w.settled().1, 100);
}

#[test]
fn whatever_an_index_function_answers_nothing_stays_behind() {
    // The values change with the mood, whatever the object is.
    let mood = Arc::new(AtomicUsize::new(0));
    let moody = {
        let mood = mood.clone();
        IndexSpec::new("remainders", move |value: &u32, emit: &mut dyn FnMut(String)| match mood.load(Relaxed) {
            0 => super::emit_remainders(value, emit),
            1 => emit("one".into()),
            2 => (0..3).for_each(|n| emit(n.to_string())),
            3 => {}
            4 => panic!("moody"),
            n => (0..300).for_each(|i| emit(format!("{n} {i}"))),
        })
    };
    let mut writer = Writer::new(vec![moody, identity()]).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut unsteady = 0;
    for n in 1..2000 {
        mood.store(random.usize(..6), Relaxed);
        let name = random.u32(..20).to_string();
        let version = n.to_string();
        let delta = match random.u8(..4) {
            0 => Delta::Deleted(Deleted::Missed { key: key(&name), last_known: None }),
            _ => Delta::Added(object(&name, &version, random.u32(..12))),
        };
        unsteady += apply(&mut writer, [delta]).unsteady;
        let snapshot = writer.reader().snapshot().typed::<u32>();
        for value in snapshot.index_values("remainders").unwrap() {
            assert!(snapshot.by_index("remainders", value.as_str()).unwrap().count() > 0, "a value without an object");
        }
    }
    assert!(unsteady > 100, "{unsteady}");
    std::panic::catch_unwind(|| assert_contained(&Clock::real(), &[])).unwrap_err();
    // A steady function puts it right, object by object.
    mood.store(0, Relaxed);
    for name in 0..20 {
        let delta = Delta::Deleted(Deleted::Missed { key: key(&name.to_string()), last_known: None });
        apply(&mut writer, [delta]);
        let kept: Vec<String> = contents(&writer.reader().snapshot()).into_iter().filter(|l| l.contains(": ")).collect();
        assert!(!kept.iter().any(|line| line.split(' ').any(|k| k == format!("ns/{name}"))), "{kept:?}");
        apply(&mut writer, [Delta::Added(object(&name.to_string(), "", name))]);
    }
    check_indices(&writer.reader().snapshot(), &writer.reader());
}

#[test]
fn objects_whose_keys_have_one_hash_are_told_apart_in_every_index() {
    use crate::flow::ObjectKey;
    let named = |n: u32| ObjectKey::with_hash("ns", &format!("k{n}"), [5, 5, 6, 7, 5][n as usize % 5]);
    let object = |n: u32, version: u32| Object::with_key(named(n), &version.to_string(), "", version).erase();
    let mut writer = Writer::new(vec![remainders(), identity()]).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut model = std::collections::BTreeMap::new();
    for version in 1..3000 {
        // 13 panics in one of the indices.
        let (n, version) = (random.u32(..10), version * 14);
        if random.u8(..3) == 0 {
            apply(&mut writer, [Delta::Deleted(Deleted::Missed { key: named(n), last_known: None })]);
            model.remove(&named(n).to_string());
        } else if random.u8(..20) == 0 {
            let listed: Vec<_> = (0..10).filter(|_| random.bool()).map(|n| object(n, version)).collect();
            model = listed.iter().map(|o| (Object::key(o).to_string(), version)).collect();
            apply(&mut writer, [whole("1", listed)]);
        } else {
            apply(&mut writer, [Delta::Added(object(n, version))]);
            model.insert(named(n).to_string(), version);
        }
        let snapshot = writer.reader().snapshot();
        let stored = snapshot.typed::<u32>();
        let all: std::collections::BTreeMap<_, _> = stored.objects().map(|o| (Object::key(o).to_string(), **o)).collect();
        assert_eq!(all, model);
        check_indices(&snapshot, &writer.reader());
    }
    (0..10).for_each(|n| drop(apply(&mut writer, [Delta::Deleted(Deleted::Missed { key: named(n), last_known: None })])));
    while writer.reclaim(100) {}
    assert_eq!(census(), 0);
}

#[test]
fn a_writer_that_has_nothing_left_to_free_keeps_no_nodes() {
    let mut w = World::new(Vec::new());
    w.replace(0..OBJECTS);
    w.rewrite(100);
    assert!(spares() > 0, "what a step freed is there for the next");
    while w.writer.reclaim(100) {}
    assert_eq!(spares(), 0);
}
