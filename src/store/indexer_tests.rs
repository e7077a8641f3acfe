//! The stand-alone store, and the one whose values expire.

use super::{ExpirationStore, IndexError, Indexer, RefusedWrite, Stored, Write, WriteError};
use crate::sync::{
    Arc, Clock, ManualClock, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    call_out::assert_contained,
    spawn,
};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    time::Duration,
};

/// A key with a hash of eight values, so that many keys have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u8);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.0 % 8);
    }
}

/// An index of every residue that is nought, which cannot bear thirteen.
fn residues(_: &Key, value: &u32, emit: &mut dyn FnMut(u32)) {
    assert_ne!(value % 100, 13, "cannot bear thirteen");
    [2, 3, 5].into_iter().filter(|n: &u32| value.is_multiple_of(*n)).for_each(emit);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u32),
    Delete(u8),
    Apply(Vec<(u8, Option<u32>)>),
    Replace(Vec<(u8, u32)>),
    AddIndex,
    Hold,
    Reclaim,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (key, value) = (0..40u8, 0..40u32);
    let op = prop_oneof![
        8 => (key.clone(), value.clone()).prop_map(|(k, v)| Op::Put(k, v)),
        4 => key.clone().prop_map(Op::Delete),
        2 => vec((key.clone(), proptest::option::of(value.clone())), 0..12).prop_map(Op::Apply),
        1 => vec((key, value), 0..60).prop_map(Op::Replace),
        1 => Just(Op::AddIndex),
        1 => Just(Op::Hold),
        1 => Just(Op::Reclaim),
    ];
    vec(op, 0..60)
}

type Model = BTreeMap<u8, u32>;

fn agrees(model: &Model, store: &Indexer<Key, u32>, indexed: bool) {
    let now = store.snapshot();
    let stored: Model = now.iter().map(|s| (Stored::key(s).0, **s)).collect();
    assert_eq!((&stored, now.len(), store.len()), (model, model.len(), model.len()));
    for key in 0..40 {
        assert_eq!(store.get(&Key(key)).map(|s| *s), model.get(&key).copied());
    }
    if !indexed {
        assert!(matches!(store.index::<u32>("residues"), Err(IndexError::Unknown { .. })));
        return;
    }
    let index = store.index::<u32>("residues").unwrap();
    let mut values = BTreeSet::new();
    for n in [2, 3, 5, 7] {
        let want: BTreeSet<u8> = model.iter().filter(|(_, v)| n != 7 && **v % n == 0).map(|(k, _)| *k).collect();
        let found: Vec<u8> = now.by_index(&index, &n).unwrap().map(|s| Stored::key(s).0).collect();
        assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (want.len(), want.clone()), "of {n}");
        if !want.is_empty() {
            values.insert(n);
        }
    }
    assert_eq!(now.index_values(&index).unwrap(), values.iter().collect::<Vec<_>>());
}

fn refused(why: &WriteError) -> bool {
    matches!(why, WriteError::Index { index, .. } if index == "residues")
}

proptest! {
    #[test]
    fn an_indexer_behaves_as_its_plain_model(ops in ops()) {
        let store = Indexer::<Key, u32>::new();
        let (mut model, mut indexed, mut held, mut panics) = (Model::new(), false, Vec::new(), 0);
        for op in ops {
            let bears = |v: u32| !indexed || v % 100 != 13;
            match op {
                Op::Put(k, v) => match store.put(Key(k), v) {
                    Ok(old) => {
                        assert!(bears(v));
                        assert_eq!(old.map(|old| *old), model.insert(k, v));
                    }
                    Err(why) => {
                        assert!(refused(&why) && !bears(v));
                        panics += 1;
                    }
                },
                Op::Delete(k) => assert_eq!(store.delete(&Key(k)).unwrap().map(|old| *old), model.remove(&k)),
                Op::Apply(batch) => {
                    let seq = store.snapshot().seq();
                    let write = |(k, v): &(u8, Option<u32>)| v.map_or(Write::Delete(Key(*k)), |v| Write::Put(Key(*k), v));
                    let mut want = Vec::new();
                    for (at, (k, v)) in batch.iter().enumerate() {
                        match v {
                            Some(v) if !bears(*v) => want.push(at),
                            Some(v) => drop(model.insert(*k, *v)),
                            None => drop(model.remove(k)),
                        }
                    }
                    let refusals = store.apply(batch.iter().map(write));
                    assert!(refusals.iter().all(|r| refused(&r.why)));
                    panics += refusals.len();
                    assert_eq!(refusals.iter().map(|r| r.at).collect::<Vec<_>>(), want);
                    assert!(store.snapshot().seq() <= seq + 1, "a batch is one version");
                }
                Op::Replace(all) => {
                    let last: BTreeMap<u8, (usize, u32)> = all.iter().enumerate().map(|(at, (k, v))| (*k, (at, *v))).collect();
                    let before = std::mem::take(&mut model);
                    let mut want = Vec::new();
                    for (k, (at, v)) in last {
                        if bears(v) {
                            model.insert(k, v);
                        } else {
                            want.push(at);
                            before.get(&k).map(|old| model.insert(k, *old));
                        }
                    }
                    want.sort_unstable();
                    let mut refusals: Vec<_> =
                        store.replace(all.into_iter().map(|(k, v)| (Key(k), v))).unwrap().iter().map(|r| r.at).collect();
                    refusals.sort_unstable();
                    panics += refusals.len();
                    assert_eq!(refusals, want);
                }
                Op::AddIndex => match store.add_index("residues", residues) {
                    Ok(_) => {
                        assert!(!indexed && model.values().all(|v| v % 100 != 13));
                        indexed = true;
                    }
                    Err(IndexError::Duplicate { .. }) => assert!(indexed),
                    Err(why) => {
                        assert!(matches!(why, IndexError::Failed { .. }) && model.values().any(|v| v % 100 == 13));
                        panics += 1;
                    }
                },
                Op::Hold => held.push((store.snapshot(), model.clone())),
                Op::Reclaim => drop(store.reclaim(10)),
            }
            agrees(&model, &store, indexed);
            // What is held does not change.
            for (snapshot, then) in &held {
                assert_eq!(&snapshot.iter().map(|s| (Stored::key(s).0, **s)).collect::<Model>(), then);
            }
        }
        drop(held);
        while store.reclaim(100) {}
        assert_eq!(store.gauge(), super::Gauge::default());
        assert_contained(&Clock::real(), &vec!["thirteen"; panics]);
    }
}

/// B-61 on a store that is written directly: the error is the writer's.
#[test]
fn b_61_a_write_that_an_index_refuses_is_refused_by_all_and_a_delete_leaves_no_trace() {
    let store = Indexer::<&str, u32>::new();
    let all = store.add_index("all", |_, value: &u32, emit| emit(*value)).unwrap();
    let picky = store.add_index("picky", |_, value: &u32, emit: &mut dyn FnMut(u32)| {
        assert_ne!(*value, 13, "cannot bear thirteen");
        emit(*value);
    });
    let picky = picky.unwrap();
    store.put("a", 1).unwrap();
    let why = store.put("a", 13).unwrap_err();
    assert!(matches!(&why, WriteError::Index { index, .. } if index == "picky"), "{why}");
    let refusals = store.apply([Write::Put("b", 2), Write::Put("a", 13), Write::Put("c", 3)]);
    assert_eq!(refusals, [RefusedWrite { at: 1, why }]);
    let values = |index| store.snapshot().index_values(index).unwrap().into_iter().copied().collect::<Vec<_>>();
    assert_eq!((*store.get("a").unwrap(), values(&all), values(&picky)), (1, vec![1, 2, 3], vec![1, 2, 3]));
    store.delete("a").unwrap();
    assert_eq!((values(&all), values(&picky)), (vec![2, 3], vec![2, 3]));
    assert_contained(&Clock::real(), &["thirteen", "thirteen"]);
}

/// B-63: an index added after values exist, while others write; a name twice.
#[test]
fn b_63_an_index_that_is_added_late_covers_what_was_there_what_comes_and_what_came_meanwhile() {
    let (clock, store) = (ManualClock::new(), Indexer::<u32, u32>::new());
    for key in 0..1000 {
        store.put(key, key % 7).unwrap();
    }
    let (early, before) = (store.clone(), store.snapshot());
    let (writing, stop) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let writer = spawn(&clock, "writer", move || {
        let mut n = 0;
        while !stopped.load(Relaxed) {
            n += 1;
            writing.put(1000 + n % 500, n % 7).unwrap();
            writing.delete(&(n % 300)).unwrap();
        }
    });
    let by_value = store.add_index("value", |_, value: &u32, emit| emit(*value)).unwrap();
    for _ in 0..100 {
        let now = store.snapshot();
        let counted: usize = (0..7).map(|v| now.by_index(&by_value, &v).unwrap().count()).sum();
        assert_eq!(counted, now.len());
    }
    stop.store(true, Relaxed);
    writer.unwrap().join().unwrap();
    assert!(before.by_index(&by_value, &1).is_err(), "an older instant had no such index");
    early.put(5000, 3).unwrap();
    assert!(early.by_index(&by_value, &3).unwrap().iter().any(|s| *Stored::key(s) == 5000));
    let again = store.add_index("value", |_, _: &u32, emit: &mut dyn FnMut(u32)| emit(9)).unwrap_err();
    assert!(matches!(again, IndexError::Duplicate { name } if name == "value"));
    assert!(store.by_index(&by_value, &9).unwrap().is_empty());
}

#[test]
fn writers_on_several_threads_lose_nothing_and_each_sees_what_it_wrote() {
    let (clock, store) = (ManualClock::new(), Indexer::<(u32, u32), u32>::new());
    let by_value = store.add_index("value", |_, value: &u32, emit| emit(*value)).unwrap();
    let write = |thread: u32| {
        let (store, by_value) = (store.clone(), by_value.clone());
        move || {
            for n in 0..300 {
                let seq = store.snapshot().seq();
                store.put((thread, n % 20), n).unwrap();
                store.put((9, 9), thread).unwrap();
                let now = store.snapshot();
                assert!(now.seq() >= seq + 2);
                assert_eq!(now.get(&(thread, n % 20)).map(|s| **s), Some(n), "nobody else writes this key");
                // Items and index are of one instant.
                let shared = **now.get(&(9, 9)).unwrap();
                assert!(now.by_index(&by_value, &shared).unwrap().any(|s| *Stored::key(s) == (9, 9)));
                let batch = (0..5).map(|key| Write::Put((thread, 100 + key), n));
                assert_eq!(store.apply(batch), []);
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|n| spawn(&clock, "writer", write(n)).unwrap()).collect();
    // A batch is seen whole.
    for _ in 0..200 {
        let now = store.snapshot();
        for thread in 0..4 {
            let values: BTreeSet<_> = (0..5).map(|key| now.get(&(thread, 100 + key)).map(|s| **s)).collect();
            assert_eq!(values.len(), 1);
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let now = store.snapshot();
    assert_eq!((now.len(), now.seq()), (4 * 25 + 1, 1 + 4 * 900));
    assert!((0..4).all(|t| (0..20).all(|k| **now.get(&(t, k)).unwrap() == 280 + k)));
}

#[test]
fn a_write_from_inside_a_write_is_told_so_and_a_read_works() {
    let store = Indexer::<u32, u32>::new();
    // In a slot, because the store keeps the function.
    let (slot, told) = (Arc::new(Mutex::new(Some(store.clone()))), Arc::new(Mutex::new(Vec::new())));
    let (inside, t) = (slot.clone(), told.clone());
    let index = store.add_index("spy", move |_, value: &u32, emit: &mut dyn FnMut(u32)| {
        emit(*value);
        let Some(inner) = inside.lock().clone() else { return };
        let put = inner.put(99, 0).map(drop);
        let all = inner.apply([Write::Delete(1), Write::Delete(2)]).len();
        let replaced = inner.replace([]).map(drop);
        let added = inner.add_index("x", |_, _, _: &mut dyn FnMut(u32)| ()).map(drop);
        let read = (inner.len(), inner.get(value).is_some(), inner.reclaim(1));
        t.lock().push((put, all, replaced, added, read));
    });
    index.unwrap();
    store.put(1, 1).unwrap();
    let reentrant = Err(WriteError::Reentrant);
    let first = (reentrant.clone(), 2, reentrant, Err(IndexError::Reentrant), (0, false, false));
    assert_eq!(*told.lock(), [first]);
    store.put(2, 1).unwrap();
    assert!(matches!(told.lock()[1], (_, _, _, _, (1, true, _))));
    slot.lock().take();
    assert_eq!((store.len(), store.put(1, 5).unwrap().map(|old| *old)), (2, Some(1)));
}

/// Nor does one that panics for it.
#[test]
fn an_index_function_that_answers_anew_for_the_old_value_loses_no_key() {
    for panics in [false, true] {
        let (store, moody) = (Indexer::<u32, u32>::new(), Arc::new(AtomicBool::new(false)));
        let mood = moody.clone();
        let five = move |_: &u32, value: &u32, emit: &mut dyn FnMut(u32)| {
            let of_the_old_one = mood.load(Relaxed) && *value == 1;
            assert!(!panics || !of_the_old_one, "no more");
            emit(if of_the_old_one { 77 } else { 5 });
        };
        let by = store.add_index("five", five).unwrap();
        store.put(1, 1).unwrap();
        moody.store(true, Relaxed);
        store.put(1, 2).unwrap();
        assert_eq!(store.by_index(&by, &5).unwrap().len(), 1, "{panics}");
        store.delete(&1).unwrap();
        assert!(store.snapshot().index_values(&by).unwrap().is_empty());
    }
    assert_contained(&Clock::real(), &["no more"]);
}

#[test]
fn a_drop_of_what_an_index_refused_may_write_the_store() {
    struct Loud(u32, Mutex<Option<Indexer<u32, Loud>>>, Arc<Mutex<Vec<bool>>>);
    impl Drop for Loud {
        fn drop(&mut self) {
            let store = self.1.lock().take();
            if let Some(store) = store {
                let written = store.put(100 + self.0, Self(0, Mutex::new(None), self.2.clone())).is_ok();
                self.2.lock().push(written);
            }
        }
    }
    let (store, told) = (Indexer::<u32, Loud>::new(), Arc::new(Mutex::new(Vec::new())));
    let picky = |_: &u32, value: &Loud, emit: &mut dyn FnMut(u32)| {
        assert_ne!(value.0, 13, "thirteen");
        emit(value.0);
    };
    store.add_index("picky", picky).unwrap();
    let loud = |n| Loud(n, Mutex::new(Some(store.clone())), told.clone());
    assert!(store.put(1, loud(13)).is_err());
    assert_eq!(store.apply([Write::Put(1, loud(13))]).len(), 1);
    assert_eq!(store.replace([(1, loud(13)), (2, loud(2)), (2, loud(3))]).unwrap().len(), 1);
    assert_eq!(store.replace([(1, loud(13)), (2, loud(2)), (2, loud(4))]).unwrap().len(), 1);
    store.replace([]).unwrap();
    // Three of each replace: one is refused, one superseded and one replaced by the next; and the two before.
    assert_eq!(*told.lock(), [true; 8]);
    assert_contained(&Clock::real(), &["thirteen"; 4]);
}

#[test]
fn a_drop_of_what_was_replaced_may_write_the_store() {
    struct Loud(u32, Mutex<Option<Indexer<u32, Loud>>>, Arc<AtomicUsize>);
    impl Drop for Loud {
        fn drop(&mut self) {
            self.2.fetch_add(1, Relaxed);
            let store = self.1.lock().take();
            if let Some(store) = store {
                store.put(100 + self.0, Self(0, Mutex::new(None), self.2.clone())).unwrap();
            }
        }
    }
    let (store, dropped) = (Indexer::<u32, Loud>::new(), Arc::new(AtomicUsize::new(0)));
    let loud = |n| Loud(n, Mutex::new(Some(store.clone())), dropped.clone());
    store.put(1, loud(1)).unwrap();
    drop(store.put(1, loud(2)).unwrap());
    assert_eq!(store.apply([Write::Put(1, loud(3)), Write::Put(1, loud(4)), Write::Delete(1)]), []);
    store.put(1, loud(5)).unwrap();
    assert_eq!(store.replace([]), Ok(vec![]));
    while store.reclaim(100) {}
    let now = store.snapshot();
    let mut keys: Vec<_> = now.iter().map(|s| *Stored::key(s)).collect();
    keys.sort_unstable();
    // What `replace` took out was put back by the drop of it, after it.
    assert_eq!((keys, dropped.load(Relaxed)), (vec![105], 9));
}

#[test]
fn a_key_that_panics_is_refused_and_nothing_is_changed() {
    #[derive(Debug)]
    struct Bad(u32);
    impl PartialEq for Bad {
        fn eq(&self, other: &Self) -> bool {
            assert!(self.0 != 66 && other.0 != 66, "incomparable");
            self.0 == other.0
        }
    }
    impl Eq for Bad {}
    impl Hash for Bad {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert_ne!(self.0, 77, "no hash");
            state.write_u8(0);
        }
    }
    let store = Indexer::<Bad, u32>::new();
    store.put(Bad(1), 1).unwrap();
    for key in [66, 77] {
        assert!(matches!(store.put(Bad(key), 0), Err(WriteError::Key { .. })));
        assert!(matches!(store.delete(&Bad(key)), Err(WriteError::Key { .. })));
        assert!(matches!(store.replace([(Bad(2), 2), (Bad(key), 0)]), Err(WriteError::Key { .. })));
        let refusals = store.apply([Write::Put(Bad(key), 0), Write::Put(Bad(3), 3), Write::Delete(Bad(key))]);
        assert_eq!(refusals.iter().map(|r| r.at).collect::<Vec<_>>(), [0, 2]);
        store.delete(&Bad(3)).unwrap();
        assert_eq!((store.len(), *store.get(&Bad(1)).unwrap()), (1, 1));
    }
    let texts = ["incomparable"; 5].into_iter().chain(["no hash"; 5]).collect::<Vec<_>>();
    assert_contained(&Clock::real(), &texts);
}

/// B-104 and the reclamation contract: what is gone is gone, but for what a snapshot shows.
#[test]
fn what_nobody_can_see_is_freed_and_a_snapshot_keeps_its_own_only() {
    let (store, counted) = (Indexer::<u32, Arc<u32>>::new(), Arc::new(7));
    store.add_index("value", |key: &u32, _, emit: &mut dyn FnMut(u32)| emit(*key)).unwrap();
    for key in 0..500 {
        store.put(key, counted.clone()).unwrap();
    }
    let held = store.snapshot();
    for round in 0..5 {
        for key in 0..500 {
            store.put(key, counted.clone()).unwrap();
            if round == 4 {
                store.delete(&key).unwrap();
            }
        }
    }
    while store.reclaim(1000) {}
    assert_eq!((Arc::strong_count(&counted), store.gauge().versions, store.len()), (1 + 500, 1, 0));
    assert!(store.gauge().pinned >= 500);
    drop(held);
    while store.reclaim(64) {}
    assert_eq!((Arc::strong_count(&counted), store.gauge()), (1, super::Gauge::default()));
    assert!(store.snapshot().index_values(&store.index::<u32>("value").unwrap()).unwrap().is_empty());
    // A snapshot outlives its store, and frees the rest.
    store.put(1, counted.clone()).unwrap();
    let last = store.snapshot();
    drop(store);
    assert_eq!((last.len(), Arc::strong_count(&counted)), (1, 2));
    drop(last);
    assert_eq!(Arc::strong_count(&counted), 1);
}

fn expiring() -> (ManualClock, ExpirationStore<u32, u32>) {
    let clock = ManualClock::new();
    let store = ExpirationStore::new(&clock, Duration::from_secs(10));
    (clock, store)
}

fn keys(store: &ExpirationStore<u32, u32>) -> Vec<u32> {
    let mut keys: Vec<_> = store.all().iter().map(|s| *super::Unexpired::key(s)).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_value_lives_to_the_last_instant_of_its_time_and_longer_when_it_is_put_again() {
    let (clock, store) = expiring();
    store.put(1, 1).unwrap();
    store.put_for(2, 2, Duration::from_secs(20)).unwrap();
    store.put_for(3, 3, Duration::MAX).unwrap();
    clock.advance(Duration::from_secs(5));
    store.put(4, 4).unwrap();
    clock.advance(Duration::from_secs(5));
    assert_eq!((keys(&store), store.get(&1).map(|v| *v)), (vec![1, 2, 3, 4], Some(1)), "the last instant is its own");
    clock.advance(Duration::from_nanos(1));
    assert_eq!((keys(&store), store.get(&1).map(|v| *v)), (vec![2, 3, 4], None));
    store.put(2, 22).unwrap();
    clock.advance(Duration::from_secs(10));
    assert_eq!((keys(&store), *store.get(&2).unwrap()), (vec![2, 3], 22));
    store.delete(&3).unwrap();
    store.replace([(7, 7), (8, 8)]).unwrap();
    assert_eq!((keys(&store), store.kept()), (vec![7, 8], 2));
    clock.advance(Duration::from_secs(3600));
    assert_eq!((keys(&store), store.evict(), store.kept(), store.evict()), (vec![], Ok(2), 0, Ok(0)));
}

#[test]
fn writes_take_out_what_has_expired_and_nothing_else() {
    let (clock, store) = expiring();
    for key in 0..5000 {
        store.put(key, 0).unwrap();
    }
    for key in 0..100 {
        store.put_for(key, 1, Duration::MAX).unwrap();
    }
    clock.advance(Duration::from_secs(11));
    let mut writes = 0;
    while store.kept() > 101 {
        store.put(6000, 0).unwrap();
        writes += 1;
        assert!(writes < 5000 / 16, "{} are kept after {writes} writes", store.kept());
    }
    assert_eq!(keys(&store), (0..100).chain([6000]).collect::<Vec<_>>());
}
