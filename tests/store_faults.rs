//! Public faults of stores and caches elsewhere, each as a test named after its number, on an informer's store.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types and threads")]

mod common;

use common::{World, pod, texts};
use informer::{
    flow::{KeyRef, Object},
    informer::Engine,
    memory::{Close, Pod},
    store::{Snapshot, StoreReader},
    sync::{Deadline, Gate},
};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

fn by_node(p: &Pod, emit: &mut dyn FnMut(String)) {
    emit(p.node.clone());
}

/// Reads again and again on threads of their own until told to end; says how often.
struct Readers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Readers {
    fn start(n: usize, store: &StoreReader<Pod>, look: impl Fn(&StoreReader<Pod>) + Send + Clone + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (started, wait) = mpsc::channel();
        let threads = (0..n).map(|_| {
            let (store, over, look, started) = (store.clone(), over.clone(), look.clone(), started.clone());
            thread::spawn(move || {
                let mut looks = 0;
                while !over.load(Relaxed) {
                    look(&store);
                    looks += 1;
                    if looks == 1 {
                        started.send(()).unwrap();
                    }
                }
                looks
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.iter().for_each(|_| wait.recv().unwrap());
        Self { over, threads }
    }

    fn end(mut self) {
        self.over.store(true, Relaxed);
        for reader in self.threads.drain(..) {
            assert!(reader.join().unwrap() > 0);
        }
    }
}

/// When the test fails, the readers end with it.
impl Drop for Readers {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

with_each_engine! {
    /// Store key function rejects the tombstone: an object found missing by a relist stays in the store.
    fn b_06_what_a_relist_lacks_is_removed_by_its_own_key_and_one_bad_object_stops_nothing(engine) {
        let mut w = World::with(engine, |b| b.index::<String>("node", |p, emit| {
            assert_ne!(p.generation, 13, "thirteen");
            emit(p.node.clone());
        }));
        for name in ["a", "b"] {
            w.server.create(pod(name).on_node("n")).unwrap();
        }
        let (told, _registration) = w.told();
        w.start();
        told.take();
        w.server.down(Close::Cut);
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.server.edit::<Pod>(("ns", "b"), |p| p.generation = 13).unwrap();
        w.server.create(pod("c").on_node("n")).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        let mut told = told.take();
        told.sort();
        assert_eq!(told, texts(&["r+ns/c@6", "r?ns/a@2"]));
        assert_eq!(w.failures.take(), texts(&["refused ns/b"]));
        assert_eq!(w.informer.failures().refused_objects, 1);
        let now = w.informer.store().snapshot();
        assert!(now.object(&("ns", "a")).is_none() && now.get(&("ns", "b")).unwrap().generation == 0);
        assert_eq!(now.index_keys("node", "n").unwrap().map(ToString::to_string).collect::<Vec<_>>(), ["ns/b", "ns/c"]);
        w.contained(&["thirteen"]);
    }

    /// Index function fails after the object is already stored.
    fn b_61_an_update_that_an_index_refuses_is_refused_by_all_and_a_delete_leaves_no_trace(engine) {
        let mut w = World::with(engine, |b| b.index("node", by_node).index::<u64>("generation", |p, emit| {
            assert_ne!(p.generation, 13, "thirteen");
            emit(p.generation);
        }));
        w.server.create(pod("a").on_node("n1")).unwrap();
        w.start();
        let store = w.informer.store();
        let by_generation = store.index::<u64>("generation").unwrap();
        w.server.edit::<Pod>(("ns", "a"), |p| (p.node, p.generation) = ("n2".into(), 13)).unwrap();
        w.settle();
        let now = store.snapshot();
        assert_eq!(now.index_values("node").unwrap(), ["n1"]);
        assert_eq!(now.index_values(&by_generation).unwrap(), [&0]);
        assert_eq!(now.by_index("node", "n1").unwrap().map(|o| o.generation).collect::<Vec<_>>(), [0]);
        assert_eq!(w.failures.take(), texts(&["refused ns/a"]));
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.settle();
        let now = store.snapshot();
        assert!(now.is_empty() && now.index_values("node").unwrap().is_empty());
        assert!(now.index_values(&by_generation).unwrap().is_empty());
        w.contained(&["thirteen"]);
    }

    /// Replace is seen as remove-then-insert.
    fn b_57_a_key_that_is_updated_is_never_missing(engine) {
        let (told, missing) = (Arc::new(Mutex::new(None::<StoreReader<Pod>>)), Arc::new(AtomicBool::new(false)));
        let (looks, misses) = (told.clone(), missing.clone());
        let mut w = World::with(engine, |b| b.index("node", by_node).label_index("app").index::<u64>("spy", move |p, emit| {
            // Runs in the midst of each update.
            if looks.lock().unwrap().as_ref().is_some_and(|store| store.get(&("ns", "k")).is_none()) {
                misses.store(true, Relaxed);
            }
            emit(p.generation);
        }));
        w.server.create(pod("k").on_node("x").with_label("app", "web")).unwrap();
        w.start();
        let (store, lister) = (w.informer.store(), w.informer.lister());
        *told.lock().unwrap() = Some(store.clone());
        let web = "app=web".parse().unwrap();
        let readers = Readers::start(2, &store, move |store| {
            assert!(store.get(&("ns", "k")).is_some());
            assert_eq!(store.by_index("label:app", "web").unwrap().len(), 1);
            assert_eq!((lister.all().len(), lister.list(&web).unwrap().len()), (1, 1));
            // A value that moves is in one place at any instant.
            let now = store.snapshot();
            let there = |node| now.by_index("node", node).unwrap().count();
            assert_eq!(there("x") + there("y"), 1);
        });
        for n in 0..300 {
            w.server.edit::<Pod>(("ns", "k"), |p| {
                p.generation += 1;
                p.node = if n % 3 == 0 { "y" } else { "x" }.into();
            }).unwrap();
            if n % 10 == 0 {
                // So that some come one by one, by the watch.
                w.settle();
            }
            if n % 60 == 59 {
                w.server.restart(Close::Cut);
                // Longer than any backoff.
                w.clock.advance(Duration::from_secs(60));
            }
        }
        w.settle();
        readers.end();
        // The informer keeps the index function, which must not keep the informer's store.
        told.lock().unwrap().take();
        assert!(!missing.load(Relaxed), "the key was missing while it was updated");
        assert_eq!(store.get(&("ns", "k")).unwrap().generation, 300);
    }

    /// Namespace listing yields an empty element.
    fn b_62_whatever_a_list_returns_exists_and_is_where_it_was_asked_for(engine) {
        let mut w = World::with(engine, |b| b.index("node", by_node));
        w.start();
        let lister = w.informer.lister();
        let readers = Readers::start(2, &w.informer.store(), move |store| {
            for n in 0..5 {
                let namespace = format!("ns{n}");
                let listed = lister.namespace(&*namespace).all();
                let names: HashSet<_> = listed.iter().map(|o| o.name.clone()).collect();
                assert_eq!(names.len(), listed.len(), "nothing twice");
                assert!(listed.iter().all(|o| o.namespace == namespace && Object::key(o).namespace() == namespace));
                let now = store.snapshot();
                for key in now.index_keys("node", &namespace).unwrap() {
                    assert_eq!(now.get(key).expect("a key of an index has its object").node, namespace);
                }
                assert_eq!((0..5).map(|n| now.index_keys("node", &format!("ns{n}")).unwrap().count()).sum::<usize>(), now.len());
            }
        });
        let mut random = 1_u64;
        for _ in 0..1500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (n, name) = ((random >> 33) % 5, format!("p{}", (random >> 40) % 50));
            let (namespace, id) = (format!("ns{n}"), format!("ns{n}"));
            let key = (id.as_str(), name.as_str());
            // The index says what namespace it is in, or another one now and then.
            match (random >> 50) % 4 {
                0 => drop(w.server.delete::<Pod>(key)),
                1 => drop(w.server.edit::<Pod>(key, |p| p.node = format!("ns{}", (random >> 55) % 5))),
                _ => drop(w.server.create(Pod::new(&*namespace, &*name).on_node(&*namespace))),
            }
        }
        w.settle();
        readers.end();
        assert_eq!(w.informer.store().len(), w.server.all::<Pod>().objects.len());
    }

    /// Versions compared as strings.
    fn b_66_an_update_from_9_to_10_and_from_99_to_100_is_an_update(engine) {
        let mut w = World::new(engine);
        w.start();
        let (told, _registration) = w.told();
        w.server.create(pod("a")).unwrap();
        for _ in 0..120 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        }
        w.settle();
        let told = told.take();
        for step in ["w~ns/a@9>10", "w~ns/a@99>100"] {
            assert!(told.iter().any(|t| t == step), "{step} is among {told:?}");
        }
        // A version of two digits is reached by one of three, and not the other way round.
        let store = w.informer.store();
        assert_eq!(store.version(), "122");
        assert!(store.wait_for_version("99", Deadline::never()).is_ok());
        assert!(store.wait_for_version("1000", Duration::ZERO).is_err());
    }

    /// Reference guard kept while touching the same shard again.
    fn b_84_what_a_read_returns_holds_nothing_and_outlives_the_store(engine) {
        fn owned<T: Send + Sync + 'static>(value: T) -> T {
            value
        }
        let mut w = World::with(engine, |b| b.index("node", by_node));
        for name in ["a", "b", "c"] {
            w.server.create(pod(name).on_node("n")).unwrap();
        }
        w.start();
        let (store, lister) = (w.informer.store(), w.informer.lister());
        let kept = owned(store.get(&("ns", "a")).unwrap());
        let (all, by_node, now) =
            (owned(lister.all()), owned(store.by_index("node", "n").unwrap()), owned(store.snapshot()));
        // Reads within reads, and writes while all of that is kept.
        let mut seen = 0;
        for object in now.objects() {
            assert!(store.get(Object::key(object)).is_some());
            seen += store.with(&("ns", "b"), |_| store.by_index("node", "n").unwrap().len() + lister.all().len()).unwrap();
        }
        assert_eq!(seen, 18);
        w.server.edit::<Pod>(("ns", "a"), |p| p.generation = 1).unwrap();
        w.server.create(pod("d")).unwrap();
        w.settle();
        assert_eq!((store.len(), store.get(&("ns", "a")).unwrap().generation, kept.generation), (4, 1, 0));
        drop((w, store, lister));
        assert_eq!((all.len(), by_node.len(), now.len(), kept.name.as_str()), (3, 3, 3, "a"));
    }

    /// Empty index sets stay behind.
    fn b_104_an_index_keeps_no_value_that_nobody_has(engine) {
        static ALIVE: AtomicIsize = AtomicIsize::new(0);
        #[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        struct Value(u64);
        impl Value {
            fn new(n: u64) -> Self {
                ALIVE.fetch_add(1, Relaxed);
                Self(n)
            }
        }
        impl Clone for Value {
            fn clone(&self) -> Self {
                Self::new(self.0)
            }
        }
        impl Drop for Value {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Relaxed);
            }
        }
        // Both engines count in one place, so one after the other.
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock();
        let mut w = World::with(engine, |b| b.index::<Value>("value", |p, emit| emit(Value::new(p.generation))));
        w.start();
        let store = w.informer.store();
        let index = store.index::<Value>("value").unwrap();
        for n in 0..2000 {
            w.server.create(pod("a").with_generation(2 * n)).unwrap();
            // From one value to the next, and away.
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
            w.server.delete::<Pod>(("ns", "a")).unwrap();
        }
        w.server.create(pod("z").with_generation(1_000_000)).unwrap();
        w.settle();
        let now = store.snapshot();
        assert_eq!(now.index_values(&index).unwrap().iter().map(|v| v.0).collect::<Vec<_>>(), [1_000_000]);
        drop(now);
        w.server.delete::<Pod>(("ns", "z")).unwrap();
        // What is freed is freed in steps, with what is published later.
        for _ in 0..10 {
            w.server.create(pod("y").with_generation(7)).unwrap();
            w.settle();
            w.server.delete::<Pod>(("ns", "y")).unwrap();
            w.settle();
        }
        assert!(store.snapshot().index_values(&index).unwrap().is_empty());
        assert!(ALIVE.load(Relaxed) <= 2, "{} values are kept", ALIVE.load(Relaxed));
    }
}

/// Long readers starve the writer: how long they take is a matter for `benches/`; that nobody waits is shown here.
#[test]
fn b_130_readers_in_the_middle_of_a_list_delay_no_publication() {
    let mut w = World::new(Engine::Merged);
    for n in 0..50 {
        w.server.create(pod(&format!("p{n}"))).unwrap();
    }
    w.start();
    let (gate, store) = (Gate::new(), w.informer.store());
    let (inside, wait) = mpsc::channel();
    let readers: Vec<_> = (0..8)
        .map(|n| {
            let (store, gate, inside) = (store.clone(), gate.clone(), inside.clone());
            thread::spawn(move || {
                let list = |now: Snapshot<Pod>| {
                    let half: u64 = now.iter().take(25).map(|p| p.generation).sum();
                    inside.send(()).unwrap();
                    gate.wait();
                    half + now.iter().skip(25).map(|p| p.generation).sum::<u64>()
                };
                match n % 2 {
                    0 => list(store.snapshot()),
                    // Inside the store's own read.
                    _ => {
                        let key = KeyRef { namespace: "ns", name: "p0" };
                        store.with(&key, |_| list(store.snapshot())).unwrap()
                    }
                }
            })
        })
        .collect();
    readers.iter().for_each(|_| wait.recv().unwrap());
    for _ in 0..20 {
        for n in 0..50 {
            w.server.edit::<Pod>(("ns", &*format!("p{n}")), |p| p.generation += 1).unwrap();
        }
    }
    w.settle();
    assert_eq!(store.snapshot().iter().map(|p| p.generation).sum::<u64>(), 1000, "all is published");
    gate.open();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 0, "each reader saw its own instant to the end");
    }
}
