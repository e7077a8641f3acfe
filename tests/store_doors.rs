//! The doors of an informer's store: listing by label, and waiting for what was written.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types and threads")]

mod common;

use common::{Told, World, pod, texts};
use informer::{
    flow::{Event, Object},
    informer::{BuildError, Engine, InformerBuilder, SharedInformer},
    memory::{Fault, Pod, Server},
    source::{Selector, SourceErrorKind},
    store::{Indexer, SelectError, StoreReader},
    sync::{Deadline, Gate, ManualClock, WaitError},
};
use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

fn names<T>(objects: &[Object<T>]) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(|o| Object::key(o).to_string()).collect();
    names.sort();
    names
}

/// What `f` answers on a thread of its own.
fn asking<R: Send + 'static>(w: &World, f: impl FnOnce(StoreReader<Pod>) -> R + Send + 'static) -> JoinHandle<R> {
    let store = w.informer.store();
    thread::spawn(move || f(store))
}

/// Its answer, while the clock goes on.
fn answer<R>(w: &World, asking: JoinHandle<R>) -> R {
    // It needs the processor now and then; nothing here depends on how soon it gets it.
    let patience = Instant::now() + 60 * SECOND;
    while Instant::now() < patience {
        if asking.is_finished() {
            return asking.join().unwrap();
        }
        w.clock.advance(SECOND);
        thread::yield_now();
    }
    panic!("no answer; the store is {:?}, the informer {:?}", w.informer.store(), w.informer.health());
}

fn meanwhile<R: Send + 'static>(w: &World, f: impl FnOnce(StoreReader<Pod>) -> R + Send + 'static) -> R {
    answer(w, asking(w, f))
}

with_each_engine! {
    fn whoever_writes_and_waits_for_the_version_reads_what_they_wrote(engine) {
        let mut w = World::new(engine);
        w.start();
        let server = w.server.clone();
        meanwhile(&w, move |store| {
            for n in 1..100 {
                let written = if n == 1 {
                    server.create(pod("a")).unwrap()
                } else {
                    server.edit::<Pod>(("ns", "a"), |p| p.generation = n).unwrap()
                };
                let version = Object::version(&written).to_string();
                let seen = store.wait_for_version(&version, Deadline::never()).unwrap();
                assert!(seen.get(&("ns", "a")).unwrap().generation >= written.generation);
            }
            // A deletion answers with a version as well.
            let gone = server.delete::<Pod>(("ns", "a")).unwrap();
            let seen = store.wait_for_version(&Object::version(&gone), Deadline::never()).unwrap();
            assert!(seen.is_empty());
        });
    }

    fn a_wait_that_times_out_says_what_is_missing_and_why(engine) {
        let mut w = World::with(engine, |b| b.name("pods"));
        let wait = |w: &World| match meanwhile(w, |store| store.wait_for_version("9", SECOND)).unwrap_err() {
            WaitError::Timeout { missing, last_error } => (missing.join(";"), last_error.unwrap_or_default()),
            other => panic!("{other:?}"),
        };
        let (missing, why) = wait(&w);
        assert_eq!(missing, "pods: version \"9\" (the store is at version \"\")");
        assert!(why.contains("does not run yet"), "{why}");
        w.server.faults([Fault::refuse(SourceErrorKind::Forbidden).always()]);
        w.start();
        let (_, why) = wait(&w);
        assert!(why.contains("not allowed"), "{why}");
    }

    fn a_new_era_ends_the_waits_of_the_old_one(engine) {
        let mut w = World::new(engine);
        for _ in 0..20 {
            w.server.create(pod("a")).unwrap();
            w.server.delete::<Pod>(("ns", "a")).unwrap();
        }
        let backup = w.server.version();
        w.server.create(pod("b")).unwrap();
        w.start();
        let waiting = asking(&w, |store| store.wait_for_version("1000", Deadline::never()).map(drop));
        // The wait begins when its thread gets to it; of several restores one comes after that.
        let patience = Instant::now() + 60 * SECOND;
        while !waiting.is_finished() && Instant::now() < patience {
            w.clock.advance(SECOND);
            assert!(w.server.restore(&backup));
            // A watch at a version that was lost is silent; the informer learns of the restore when it lists.
            w.server.faults([Fault::refuse(SourceErrorKind::TooLargeVersion { retry_after: None }).on_watch()]);
            w.clock.advance(60 * SECOND);
            if !waiting.is_finished() {
                w.server.create(pod("b")).unwrap();
            }
        }
        assert_eq!(answer(&w, waiting), Err(WaitError::EraReset));
    }

    fn a_handler_that_waits_delays_no_publication_and_is_released_by_the_end(engine) {
        let mut w = World::new(engine);
        let (store, answers) = (w.informer.store(), Told::default());
        let a = answers.clone();
        let _registration = w.informer.on(move |e: &Event<Pod>| {
            let version = if e.key().name() == "a" { "4" } else { "1000" };
            a.push(match store.wait_for_version(version, Deadline::never()) {
                Ok(seen) => format!("{} objects", seen.len()),
                Err(e) => format!("{e:?}"),
            });
        }).unwrap();
        w.start();
        for name in ["a", "b", "c"] {
            w.server.create(pod(name)).unwrap();
            w.settle();
        }
        assert_eq!(answers.take(), texts(&["3 objects"]));
        assert!(w.end().is_ok());
        // Of what is queued behind it some may be told still, and hears the same.
        let answers = answers.take();
        assert!(!answers.is_empty() && answers.iter().all(|a| a == "Stopped"), "{answers:?}");
        assert_eq!(w.informer.store().wait_for_version("5", Deadline::never()).unwrap_err(), WaitError::Stopped);
        assert_eq!(w.informer.store().wait_for_version("4", Deadline::never()).unwrap().len(), 3);
    }

    fn an_index_function_that_waits_is_told_that_it_would_deadlock(engine) {
        let store: Arc<OnceLock<StoreReader<Pod>>> = Arc::default();
        let (of_index, answers) = (store.clone(), Told::default());
        let a = answers.clone();
        let mut w = World::with(engine, |b| b.index::<String>("spy", move |_, _| {
            if let Some(store) = of_index.get() {
                a.push(format!("{:?}", store.wait_until(|_| true, Deadline::never()).unwrap_err()));
            }
        }));
        store.set(w.informer.store()).unwrap();
        w.start();
        w.server.create(pod("a")).unwrap();
        w.settle();
        assert_eq!(answers.take(), texts(&["WouldDeadlock"]));
    }

    fn listers_select_by_label_with_and_without_an_index(engine) {
        let mut w = World::with(engine, |b| b.label_index("app"));
        for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
            w.server.create(pod(name).with_label("app", app).with_label("name", name)).unwrap();
        }
        w.server.create(Pod::new("other", "d").with_label("app", "web")).unwrap();
        w.server.create(pod("e")).unwrap();
        w.start();
        let lister = w.informer.lister();
        for (text, want) in [
            ("", vec!["ns/a", "ns/b", "ns/c", "ns/e", "other/d"]),
            ("app=web", vec!["ns/a", "ns/c", "other/d"]),
            ("app=web,name=c", vec!["ns/c"]),
            ("app in (db,web),name!=a", vec!["ns/b", "ns/c", "other/d"]),
            ("name in (a,b)", vec!["ns/a", "ns/b"]),
            ("!app", vec!["ns/e"]),
            ("app!=web", vec!["ns/b", "ns/e"]),
        ] {
            let all = lister.list(&selector(text)).unwrap();
            assert_eq!(names(&all), want, "{text:?}");
            let own: Vec<_> = want.into_iter().filter(|n| n.starts_with("ns/")).collect();
            assert_eq!(names(&lister.namespace("ns").list(&selector(text)).unwrap()), own, "{text:?}");
        }
        assert_eq!(w.informer.store().by_index("label:app", "db").unwrap().len(), 1);
        w.server.edit::<Pod>(("ns", "a"), |p| p.labels.clear()).unwrap();
        w.settle();
        assert_eq!(names(&lister.list(&selector("app=web")).unwrap()), ["ns/c", "other/d"]);
        // A list is the reader's own, whatever becomes of the informer.
        let owned = lister.list(&Selector::everything()).unwrap();
        drop(w);
        assert_eq!((owned.len(), lister.list(&selector("app")).unwrap().len()), (5, 3));
    }
}

#[test]
fn labels_are_those_of_the_source_unless_a_transform_makes_something_else() {
    fn world<T: Send + Sync + 'static>(builder: impl FnOnce(&Server) -> InformerBuilder<T>) -> World<T> {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        server.create(pod("a").with_label("app", "web")).unwrap();
        let builder = builder(&server);
        let mut w = World::of(Engine::Merged, clock, server, builder, |b| b);
        w.start();
        w
    }
    let name = |p: Pod| Ok::<_, Infallible>(p.name);
    let named = |server: &Server| SharedInformer::builder_with(server.source::<Pod>(), name);
    let list = |w: &World<String>| w.informer.lister().list(&selector("app=web")).map(|found| names(&found));

    let w = world(named);
    assert_eq!((list(&w), w.informer.lister().all().len()), (Err(SelectError::NoLabels), 1));
    let refused = named(&w.server).label_index("app").build().unwrap_err();
    assert!(matches!(refused, BuildError::NoLabels { label } if label == "app"));

    let w = world(|server| named(server).labels(|_, emit| emit("app", "web")).label_index("app"));
    assert_eq!(list(&w), Ok(vec!["ns/a".to_owned()]));

    // A transform that leaves the type leaves the labels, those that it made included.
    let relabel = |p: Pod| Ok::<_, Infallible>(p.with_label("seen", "yes"));
    let w = world(|server| SharedInformer::builder_with(server.source::<Pod>(), relabel));
    assert_eq!(names(&w.informer.lister().list(&selector("app=web,seen=yes")).unwrap()), ["ns/a"]);
}

#[test]
fn a_publication_does_not_wait_for_who_looks_at_it() {
    let mut w = World::new(Engine::Merged);
    w.start();
    let (store, gate) = (w.informer.store(), Gate::new());
    let g = gate.clone();
    let looking = thread::spawn(move || {
        store.wait_until(
            |now| {
                // Stuck in its look at an early state.
                g.wait();
                now.len() == 100
            },
            Deadline::never(),
        )
    });
    for n in 0..100 {
        w.server.create(pod(&format!("p{n}"))).unwrap();
    }
    w.settle();
    assert_eq!(w.informer.store().len(), 100);
    gate.open();
    assert_eq!(looking.join().unwrap().unwrap().len(), 100);
}

/// A value whose end writes another store, which no lock of this crate may be held for.
struct Ends {
    number: u32,
    other: Indexer<u32, u32>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.other.put(self.number, self.number).unwrap();
    }
}

#[test]
fn the_last_handle_of_a_large_store_frees_it_on_a_small_stack_and_under_no_lock() {
    const VALUES: u32 = 10_000;
    let (store, other) = (Indexer::new(), Indexer::new());
    store.add_index("rest", |_, value: &Ends, emit| emit(value.number % 1000)).unwrap();
    let value = |number| (number, Ends { number, other: other.clone() });
    assert!(store.replace((0..VALUES).map(value)).unwrap().is_empty());
    let last = store.snapshot();
    drop(store);
    assert_eq!((last.len(), other.len()), (VALUES as usize, 0));
    // A frame for each value would not fit.
    let thread = thread::Builder::new().stack_size(128 << 10).spawn(move || drop(last)).unwrap();
    thread.join().unwrap();
    assert_eq!(other.len(), VALUES as usize);
}
