//! The promises of the crate, each on the whole pipeline: embedded server, reflector, store, processor, handlers.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

mod common;

use common::{Told, World, pod, show, texts};
use informer::{
    controller::{Action, Context, Controller},
    flow::{Change, Event, Object, ObjectKey},
    informer::{AddHandlerError, Engine, InformerState, PanicPolicy, Removed, RunError, SharedInformer},
    memory::{Fault, Pod, Server},
    source::SourceErrorKind,
    sync::{Deadline, Gate, ManualClock, Stop, Synced, WaitError},
    workqueue::WorkQueue,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

const SOON: Duration = Duration::from_secs(1);

with_each_engine! {
    fn p1_the_store_has_the_effect_of_an_event_or_a_later_one_before_a_handler_is_told(engine) {
        let mut w = World::with(engine, |b| b.index("node", |p: &Pod, emit: &mut dyn FnMut(String)| emit(p.node.clone())));
        w.server.create(pod("a").on_node("n1")).unwrap();
        let (store, wrong, seen) = (w.informer.store(), Told::default(), Arc::new(AtomicUsize::new(0)));
        let (bad, count) = (wrong.clone(), seen.clone());
        let registration = w.informer.on(move |e: &Event<Pod>| {
            count.fetch_add(1, Ordering::Relaxed);
            let version = |o: &Object<Pod>| Object::version(o).parse::<u64>().unwrap();
            let snapshot = store.snapshot();
            let stored = snapshot.object(e.key());
            let told = e.object().unwrap();
            let fine = match &e.change {
                Change::Deleted(_) => stored.is_none_or(|s| version(s) > version(told)),
                _ => match stored {
                    Some(s) => version(s) >= version(told),
                    None => snapshot.version().parse::<u64>().unwrap() > version(told),
                },
            };
            let indexed = snapshot.index_keys("node", &e.object().unwrap().node).unwrap().any(|k| k == e.key());
            let indexed_as_stored = stored.is_none_or(|s| s.node != told.node) || indexed;
            if !fine || !indexed_as_stored {
                bad.push(format!("{} while the store had {stored:?}, indexed {indexed}", show(e)));
            }
        }).unwrap();
        w.start();
        for round in 0..20 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.node = format!("n{round}")).unwrap();
            w.server.create(pod("b")).unwrap();
            if round % 3 == 0 {
                w.settle();
            }
            w.server.delete::<Pod>(("ns", "b")).unwrap();
        }
        w.settle();
        // A relist: missed changes arrive at once.
        w.server.down(informer::memory::Close::Cut);
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.server.create(pod("c")).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        assert_eq!(wrong.take(), texts(&[]));
        assert!(seen.load(Ordering::Relaxed) > 60);
        drop(registration);
    }

    fn p2_a_handler_is_called_one_at_a_time_in_order_and_old_is_what_it_was_given_last(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let inside = Arc::new(AtomicBool::new(false));
        let chain = Arc::new(Mutex::new(None::<Object<Pod>>));
        let (i, c, wrong) = (inside.clone(), chain.clone(), Told::default());
        let bad = wrong.clone();
        let _registration = w.informer.on(move |e: &Event<Pod>| {
            if i.swap(true, Ordering::AcqRel) {
                bad.push("called twice at a time");
            }
            let mut last = c.lock().unwrap();
            match &e.change {
                Change::Added(o) => *last = Some(o.clone()),
                Change::Updated { old, new } => {
                    if !last.as_ref().is_some_and(|l| Object::ptr_eq(l, old)) {
                        bad.push(format!("{} after {last:?}", show(e)));
                    }
                    *last = Some(new.clone());
                }
                other => bad.push(format!("{other:?}")),
            }
            i.store(false, Ordering::Release);
        }).unwrap();
        w.start();
        for round in 0..100 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
            if round % 7 == 0 {
                w.settle();
            }
            if round == 50 {
                // The chain holds across a relist.
                w.server.restart(informer::memory::Close::Cut);
                w.clock.advance(Duration::from_secs(5));
            }
        }
        w.settle();
        assert_eq!(wrong.take(), texts(&[]));
        assert_eq!(chain.lock().unwrap().as_ref().unwrap().generation, 100);
    }

    fn p3_a_stuck_handler_delays_no_other_handler_no_reader_and_not_the_reflector(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let (stuck, gate, held) = w.stuck();
        let (told, _free) = w.told();
        w.start();
        for _ in 0..500 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        }
        w.settle();
        assert_eq!((stuck.len(), told.len()), (1, 501));
        assert_eq!(w.informer.store().get(&("ns", "a")).unwrap().generation, 500);
        // Relists, joins and removals go on as well.
        w.server.restart(informer::memory::Close::Cut);
        w.server.create(pod("b")).unwrap();
        w.clock.advance(Duration::from_secs(5));
        let (late, _late) = w.told();
        w.settle();
        assert_eq!((told.len(), late.len()), (502, 2));
        assert_eq!(held.remove(), Removed::Running);
        gate.open();
        w.settle();
        assert_eq!(stuck.len(), 1, "nothing starts after the removal");
    }

    fn p3_a_stuck_handler_gets_everything_in_order_once_it_moves(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let (stuck, gate, registration) = w.stuck();
        w.start();
        for _ in 0..300 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        }
        w.settle();
        assert!(!registration.is_idle() && registration.backlog() > 0);
        gate.open();
        w.settle();
        let told = stuck.take();
        assert_eq!(told.len(), 301);
        assert_eq!(told[0], "i+ns/a@2");
        assert!(told[1..].iter().enumerate().all(|(i, t)| *t == format!("w~ns/a@{}>{}", i + 2, i + 3)));
        assert!(registration.is_idle() && registration.backlog() == 0);
    }

    fn p5_a_relist_is_seen_as_a_whole_and_an_interrupted_one_not_at_all(engine) {
        let mut w = World::with(engine, |b| b.page_size(2).initial(informer::reflector::InitialState::MostRecent));
        for name in ["a", "b", "c", "d", "e"] {
            w.server.create(pod(name)).unwrap();
        }
        let store = w.informer.store();
        let sizes = Told::default();
        let s = sizes.clone();
        let _registration = w.informer.on(move |e| s.push(format!("{} of {}", show(e), store.len()))).unwrap();
        w.start();
        sizes.take();
        // The next list breaks on its second page, three times.
        w.server.faults([Fault::cut_after(1).on_pages().times(3)]);
        w.server.down(informer::memory::Close::Cut);
        for name in ["a", "b", "c"] {
            w.server.delete::<Pod>(("ns", name)).unwrap();
        }
        for name in ["f", "g", "h", "i"] {
            w.server.create(pod(name)).unwrap();
        }
        w.server.up();
        let before = w.informer.store().snapshot();
        for _ in 0..4 {
            w.clock.advance(Duration::from_millis(700));
            let now = w.informer.store().snapshot();
            assert!(now.len() == 5 && now.seq() == before.seq() || now.len() == 6, "{now:?}");
        }
        w.clock.advance(Duration::from_secs(60));
        assert!(w.server.faults_struck() >= 3);
        assert_eq!(w.informer.store().len(), 6);
        let mut told = sizes.take();
        told.sort();
        let want = ["r+ns/f@10 of 6", "r+ns/g@11 of 6", "r+ns/h@12 of 6", "r+ns/i@13 of 6", "r?ns/a@2 of 6", "r?ns/b@3 of 6", "r?ns/c@4 of 6"];
        assert_eq!(told, texts(&want));
    }

    fn p6_a_key_is_with_one_worker_at_a_time_and_is_reconciled_after_its_last_change(engine) {
        let mut w = World::new(engine);
        let names = ["a", "b", "c"];
        for name in names {
            w.server.create(pod(name)).unwrap();
        }
        let queue = WorkQueue::<ObjectKey>::builder().clock(&w.clock).build();
        let keys = queue.clone();
        let _registration = w.informer.on(move |e: &Event<Pod>| assert!(keys.add(e.key().clone()))).unwrap();
        // A reconcile holds its key until the gate lets it go; what it saw is written down when it ends.
        let (held, last) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(Mutex::new(HashMap::new())));
        let (twice, gate) = (Told::default(), Gate::new());
        let (h, l, t, g, store) = (held.clone(), last.clone(), twice.clone(), gate.clone(), w.informer.store());
        let reconcile = move |key: &ObjectKey, _: &Context| {
            if !h.lock().unwrap().insert(key.clone()) {
                t.push(key.to_string());
            }
            let seen = store.get(key).map(|p| p.generation);
            g.wait();
            l.lock().unwrap().insert(key.to_string(), seen);
            h.lock().unwrap().remove(key);
            Ok(Action::Done)
        };
        let synced: Arc<dyn Synced> = Arc::new(w.informer.clone());
        let controller = Controller::builder(queue.clone(), reconcile).workers(4).wait_for([synced]).build();
        let stop = w.stop.clone();
        let controlling = std::thread::spawn(move || controller.run(&stop));
        w.start();
        for round in 0..50 {
            if round % 5 == 0 {
                gate.open();
                w.settle();
                gate.close();
            }
            for name in names {
                w.server.edit::<Pod>(("ns", name), |p| p.generation += 1).unwrap();
            }
            w.settle();
        }
        w.server.delete::<Pod>(("ns", "c")).unwrap();
        gate.open();
        w.settle();
        // The controller's own thread is not ours: wait until every key has been seen in its last state.
        let want = HashMap::from([("ns/a".to_owned(), Some(50)), ("ns/b".to_owned(), Some(50)), ("ns/c".to_owned(), None)]);
        while *last.lock().unwrap() != want {
            std::thread::yield_now();
            w.settle();
        }
        w.end().unwrap();
        let report = controlling.join().unwrap().unwrap();
        assert!(report.reconciles >= 6);
        assert_eq!(twice.take(), texts(&[]));
        assert!(w.clock.threads().is_empty());
    }

    fn p7_synced_means_that_the_handler_has_returned_from_the_last_initial_event(engine) {
        let mut w = World::new(engine);
        for name in ["a", "b", "c"] {
            w.server.create(pod(name)).unwrap();
        }
        let (told, gate, registration) = w.stuck();
        assert!(!w.informer.has_synced());
        w.start();
        assert!(w.informer.has_synced() && !registration.has_synced());
        assert_eq!(told.len(), 1);
        let names = |e| match e {
            Err(WaitError::Timeout { missing, .. }) => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(names(registration.wait_synced(Duration::ZERO.into())), ["handler-1"]);
        gate.open();
        w.settle();
        assert!(registration.has_synced());
        assert_eq!(registration.wait_synced(Deadline::never()), Ok(()));
        // A handler that joins later is synced when its own first state has been told.
        gate.close();
        let (_, late_gate, late) = w.stuck();
        w.settle();
        assert!(!late.has_synced() && registration.has_synced());
        late_gate.open();
        w.settle();
        assert!(late.has_synced());
        w.end().unwrap();
        assert!(w.informer.has_synced() && late.has_synced(), "it never turns back");
    }

    fn p7_a_wait_says_what_is_missing_and_why(engine) {
        let mut w = World::with(engine, |b| b.name("pods"));
        w.server.faults([Fault::refuse(SourceErrorKind::Forbidden).on_list().times(100)]);
        let (_, registration) = w.told();
        let why = |e| match e {
            Err(WaitError::Timeout { last_error, .. }) => last_error.unwrap_or_default(),
            other => panic!("{other:?}"),
        };
        for early in [&w.informer as &dyn Synced, &registration] {
            let why = why(early.wait_synced(Duration::ZERO.into()));
            assert!(why.contains("does not run yet"), "{}: {why}", early.name());
        }
        w.start();
        w.clock.advance(Duration::from_secs(3));
        match w.informer.wait_synced(Duration::ZERO.into()) {
            Err(WaitError::Timeout { missing, last_error: Some(why) }) => {
                assert_eq!(missing, ["pods"]);
                assert!(why.contains("not allowed"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        let why = why(registration.wait_synced(Duration::ZERO.into()));
        assert!(why.contains("pods") && why.contains("not allowed"), "the handler waits for the source: {why}");
        w.end().unwrap();
        assert_eq!(w.informer.wait_synced(Deadline::never()), Err(WaitError::Stopped));
    }

    fn p8_run_returns_only_when_every_thread_has_ended_and_nothing_is_called_afterwards(engine) {
        let mut w = World::new(engine);
        for name in ["a", "b", "c"] {
            w.server.create(pod(name)).unwrap();
        }
        let (stuck, gate, _held) = w.stuck();
        let (_, _free) = w.told();
        w.start();
        assert!(w.clock.threads().iter().all(|name| !name.is_empty() && name.len() <= 15), "{:?}", w.clock.threads());
        let threads = w.clock.threads().len();
        assert_eq!(threads, if engine == Engine::Merged { 3 } else { 4 });
        w.stop.stop();
        w.settle();
        assert_eq!(w.informer.state(), InformerState::Running, "a callback has not returned");
        assert!(matches!(w.informer.shutdown(Duration::ZERO), Err(WaitError::Timeout { .. })));
        gate.open();
        w.end().unwrap();
        assert_eq!(w.informer.state(), InformerState::Stopped);
        assert!(w.clock.threads().is_empty(), "{:?}", w.clock.threads());
        assert_eq!((stuck.len(), w.server.open_streams()), (1, 0));
        assert!(matches!(w.informer.on(|_| ()), Err(AddHandlerError::Stopped)));
        assert!(matches!(w.informer.run(&Stop::new()), Err(RunError::AlreadyRan)));
        assert_eq!(w.informer.store().len(), 3, "readers keep what was stored last");
    }

    fn p8_run_on_a_thread_of_the_users_is_seen_by_the_clock(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let (told, _registration) = w.told();
        let (informer, stop) = (w.informer.clone(), w.stop.clone());
        let running = std::thread::spawn(move || informer.run(&stop));
        while w.informer.state() == InformerState::New {
            std::thread::yield_now();
        }
        w.settle();
        assert_eq!(told.take(), texts(&["i+ns/a@2"]));
        w.server.create(pod("b")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["w+ns/b@3"]));
        w.stop.stop();
        running.join().unwrap().unwrap();
        w.handle = None;
        assert!(w.clock.threads().is_empty());
    }

    fn p8_stop_reaches_the_informer_in_every_state(engine) {
        // Before it runs: nothing is asked.
        let mut w = World::new(engine);
        w.stop.stop();
        w.start();
        w.end().unwrap();
        assert!(w.server.requests().is_empty());
        // While the list hangs, while it waits after a failure, while the watch is silent.
        for fault in [Some(Fault::hang()), Some(Fault::refuse(SourceErrorKind::Connect).times(9)), None] {
            let mut w = World::new(engine);
            w.server.faults(fault);
            w.start();
            w.clock.advance(SOON);
            w.end().unwrap();
            assert!(w.clock.threads().is_empty());
            assert_eq!(w.server.open_streams(), 0);
        }
    }

    fn p8_dropping_the_last_handle_stops_it_and_dropping_the_thread_joins_it(engine) {
        let mut w = World::new(engine);
        w.start();
        drop(w.handle.take());
        assert!(w.clock.threads().is_empty());
        assert_eq!(w.informer.state(), InformerState::Stopped);

        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let informer = SharedInformer::builder(server.source::<Pod>()).engine(engine).clock(&clock).build().unwrap();
        let (registration, handle) = (informer.on(|_| ()).unwrap(), informer.spawn(&Stop::new()).unwrap());
        let other = informer.clone();
        drop(informer);
        clock.settle();
        assert_eq!(server.open_streams(), 1, "a handle is left");
        drop(other);
        handle.join().unwrap();
        assert!(clock.threads().is_empty());
        assert_eq!(registration.wait_synced(Deadline::never()), Ok(()));
        // Never run: its listeners sleep, and end with it.
        let informer = SharedInformer::builder(server.source::<Pod>()).engine(engine).clock(&clock).build().unwrap();
        informer.on(|_| ()).unwrap().detach();
        drop(informer);
        assert!(clock.threads().is_empty());
    }

    fn p8_a_handler_that_asked_for_it_ends_the_informer_with_an_error_that_names_it(engine) {
        let mut w = World::new(engine);
        let (_, _bad) = w.panicking(PanicPolicy::Abort);
        w.start();
        w.server.create(pod("bad")).unwrap();
        w.settle();
        match w.handle.take().unwrap().join() {
            Err(RunError::HandlerPanicked { handler, message }) => {
                assert_eq!((handler.as_str(), message.as_str()), ("bad", "cannot bear ns/bad"));
            }
            other => panic!("{other:?}"),
        }
        assert!(w.clock.threads().is_empty());
        w.contained(&["cannot bear ns/bad"]);
    }

    fn p9_panics_of_handler_index_and_hook_lose_nothing_of_others(engine) {
        let mut w = World::with(engine, |b| {
            b.index("node", |p: &Pod, emit: &mut dyn FnMut(String)| {
                assert!(p.node != "cursed", "cursed node");
                emit(p.node.clone());
            })
            .observe(|_| panic!("hook"))
        });
        w.server.create(pod("a").on_node("n1")).unwrap();
        w.server.create(pod("bad").on_node("n1")).unwrap();
        w.server.create(pod("c").on_node("cursed")).unwrap();
        let (good, _good) = w.told();
        let (isolated, bad) = w.panicking(PanicPolicy::Isolate);
        w.start();
        // The index refused c; everybody else is told of the rest.
        assert_eq!(good.take(), texts(&["i+ns/a@2", "i+ns/bad@3"]));
        assert_eq!(isolated.take(), texts(&["i+ns/a@2"]));
        assert!(bad.has_synced() && bad.panics() == 1);
        w.server.edit::<Pod>(("ns", "a"), |p| p.node = "cursed".into()).unwrap();
        w.server.edit::<Pod>(("ns", "c"), |p| p.node = "n2".into()).unwrap();
        w.server.edit::<Pod>(("ns", "bad"), |p| p.generation = 1).unwrap();
        w.server.create(pod("d").on_node("n2")).unwrap();
        w.settle();
        assert_eq!(good.take(), texts(&["w+ns/c@6", "w~ns/bad@3>7", "w+ns/d@8"]));
        assert_eq!(isolated.take(), texts(&["w+ns/c@6", "w+ns/d@8"]));
        // The refused update left a as it was, in the items and in the index.
        let store = w.informer.store().snapshot();
        assert_eq!(store.get(&("ns", "a")).unwrap().node, "n1");
        assert_eq!(store.index_keys("node", "n1").unwrap().map(ToString::to_string).collect::<Vec<_>>(), ["ns/a", "ns/bad"]);
        let f = w.informer.failures();
        assert_eq!((f.refused_objects, f.handler_panics), (2, 2));
        w.end().unwrap();
        // The hook panics at each of many events; what counts is that the others are among the record as well.
        let record = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.contained(&[]))).unwrap_err();
        let record = record.downcast_ref::<String>().unwrap();
        assert!(record.contains("cursed node") && record.contains("cannot bear ns/bad") && record.contains("hook"), "{record}");
    }

    fn p9_a_transform_that_fails_or_panics_keeps_the_old_state_of_that_object(engine) {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        for (name, node) in [("a", "n1"), ("b", "refused"), ("c", "cursed")] {
            server.create(pod(name).on_node(node)).unwrap();
        }
        let builder = SharedInformer::builder_with(server.source::<Pod>(), |p: Pod| match p.node.as_str() {
            "refused" => Err("refused"),
            "cursed" => panic!("cursed"),
            _ => Ok((p.name, p.node)),
        });
        let mut w = World::of(engine, clock, server, builder, |b| b);
        let (told, _registration) = w.told();
        w.start();
        assert_eq!(told.take(), texts(&["i+ns/a@2"]));
        assert!(w.informer.has_synced());
        for (name, node) in [("a", "refused"), ("b", "n2"), ("c", "cursed")] {
            w.server.edit::<Pod>(("ns", name), |p| { p.node = node.into(); p.generation += 1 }).unwrap();
        }
        w.settle();
        assert_eq!(told.take(), texts(&["w+ns/b@6"]));
        assert_eq!(w.informer.store().get(&("ns", "a")).unwrap().1, "n1");
        assert_eq!(w.informer.health().stale_objects, 2);
        // Deletions are never refused.
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.server.delete::<Pod>(("ns", "c")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["w?ns/a@2"]));
        w.contained(&["cursed"; 3]);
    }

    fn p9_values_that_panic_while_dropped_harm_nobody(engine) {
        struct Mine(String);
        impl Drop for Mine {
            fn drop(&mut self) {
                assert!(!self.0.contains("bad"), "bad drop");
            }
        }
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let builder = SharedInformer::builder_with(server.source::<Pod>(), |p: Pod| Ok::<_, String>(Mine(p.name)));
        let mut w = World::of(engine, clock, server, builder, |b| b);
        let (told, _registration) = w.told();
        w.server.create(pod("bad")).unwrap();
        w.start();
        w.server.edit::<Pod>(("ns", "bad"), |p| p.generation = 1).unwrap();
        w.server.delete::<Pod>(("ns", "bad")).unwrap();
        w.server.create(pod("a")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["i+ns/bad@2", "w~ns/bad@2>3", "w-ns/bad@4", "w+ns/a@5"]));
        w.end().unwrap();
        w.contained(&["bad drop"; 3]);
    }

    fn p10_every_door_may_be_used_inside_a_callback_and_joining_ones_refuse(engine) {
        let mut w = World::with(engine, |b| b.index("node", |p: &Pod, emit: &mut dyn FnMut(String)| emit(p.node.clone())));
        w.server.create(pod("a").on_node("n1")).unwrap();
        let (informer, stop, server) = (w.informer.clone(), w.stop.clone(), w.server.clone());
        let (told, added) = (Told::default(), Arc::new(Mutex::new(Vec::new())));
        let own = Arc::new(Mutex::new(None));
        let (t, registrations, me) = (told.clone(), added.clone(), own.clone());
        let registration = w.informer.on(move |e: &Event<Pod>| {
            let store = informer.store();
            let held = store.snapshot();
            assert!(store.get(e.key()).is_some() && held.by_index("node", "n1").unwrap().count() == 1);
            assert_eq!(informer.lister().namespace("ns").all().len(), 1);
            assert!(informer.wait_synced(SOON.into()).is_ok());
            assert!(matches!(informer.run(&Stop::new()), Err(RunError::AlreadyRan)));
            let other = informer.on(|_| ()).unwrap();
            assert_eq!(other.shutdown(SOON), Err(WaitError::WouldDeadlock));
            registrations.lock().unwrap().push(informer.on(|_| ()).unwrap());
            server.create(pod("b").on_node("n2")).unwrap();
            let own: &informer::informer::Registration<Pod> = &me.lock().unwrap().take().unwrap();
            assert_eq!(own.wait_synced(SOON.into()), Err(WaitError::WouldDeadlock));
            assert_eq!(own.shutdown(SOON), Err(WaitError::WouldDeadlock));
            assert!(!stop.is_stopped());
            assert_eq!(informer.shutdown(SOON), Err(WaitError::WouldDeadlock));
            t.push("all doors used");
        }).unwrap();
        *own.lock().unwrap() = Some(registration);
        w.start();
        // `shutdown` inside the callback stopped the informer; the own registration was removed inside as well.
        assert_eq!(told.take(), texts(&["all doors used"]));
        w.end().unwrap();
        assert!(w.clock.threads().is_empty());
    }

    fn p10_callbacks_of_the_source_and_of_indices_may_read_the_store(engine) {
        // Index functions and transforms run while the engine writes: reading must not wait for it.
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        server.create(pod("a")).unwrap();
        let reader = Arc::new(Mutex::new(None::<informer::store::StoreReader<Pod>>));
        let (in_index, in_transform) = (reader.clone(), reader.clone());
        let look = |at: &Mutex<Option<informer::store::StoreReader<Pod>>>| at.lock().unwrap().as_ref().map_or(0, |r| r.snapshot().len());
        let builder = SharedInformer::builder_with(server.source::<Pod>(), move |p: Pod| {
            look(&in_transform);
            Ok::<_, String>(p)
        });
        let mut w = World::of(engine, clock, server, builder, |b| {
            b.index("size", move |_: &Pod, emit: &mut dyn FnMut(usize)| emit(look(&in_index)))
        });
        *reader.lock().unwrap() = Some(w.informer.store());
        w.start();
        w.server.create(pod("b")).unwrap();
        w.settle();
        assert_eq!(w.informer.store().len(), 2);
        // The store keeps its indices, so what an index function owns of the store would keep both for ever.
        reader.lock().unwrap().take();
    }

    fn an_index_that_is_added_to_a_running_informer_is_whole_and_goes_on(engine) {
        let mut w = World::new(engine);
        for i in 0..50 {
            w.server.create(pod(&format!("p{i}")).on_node(format!("n{}", i % 5))).unwrap();
        }
        let (told, registration) = w.told();
        w.start();
        told.take();
        let store = w.informer.store();
        let before = store.snapshot();
        let index = w.informer.add_index("node", |p: &Pod, emit: &mut dyn FnMut(String)| emit(p.node.clone())).unwrap();
        assert_eq!(store.by_index(&index, "n3").unwrap().len(), 10);
        assert!(before.by_index(&index, "n3").is_err(), "a version does not change");
        w.settle();
        assert!(registration.is_idle(), "there is nothing to tell");
        w.server.edit::<Pod>(("ns", "p3"), |p| p.node = "n4".into()).unwrap();
        w.settle();
        assert_eq!((store.by_index(&index, "n3").unwrap().len(), store.by_index(&index, "n4").unwrap().len()), (9, 11));
        assert_eq!(told.take().len(), 1);
        // From inside of what the writer waits for it would wait for itself.
        let (informer, refused) = (Arc::new(Mutex::new(Some(w.informer.clone()))), Told::default());
        let (own, answers) = (informer.clone(), refused.clone());
        w.informer.add_index("greedy", move |_: &Pod, emit: &mut dyn FnMut(u32)| {
            if let Some(informer) = &*own.lock().unwrap() {
                let more = informer.add_index("more", |_: &Pod, _: &mut dyn FnMut(u32)| ());
                answers.push(format!("{:?}", more.unwrap_err()));
            }
            emit(1);
        }).unwrap();
        assert_eq!(refused.take(), vec!["Reentrant".to_owned(); 50]);
        // An informer keeps its index functions, so what one of those owns of the informer would keep both for ever.
        informer.lock().unwrap().take();
    }

    fn what_a_held_version_kept_is_freed_when_it_is_let_go_of_though_nothing_comes(engine) {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        for i in 0..20 {
            server.create(pod(&format!("p{i}"))).unwrap();
        }
        let alive = Arc::new(AtomicUsize::new(0));
        let counter = alive.clone();
        let builder = SharedInformer::builder_with(server.source::<Pod>(), move |_: Pod| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, String>(Counted(counter.clone()))
        });
        let mut w = World::of(engine, clock, server, builder, |b| b);
        w.start();
        let held = w.informer.store().snapshot();
        for i in 0..20 {
            w.server.edit::<Pod>(("ns", format!("p{i}").as_str()), |p| p.generation += 1).unwrap();
            w.settle();
        }
        assert_eq!(alive.load(Ordering::Relaxed), 40);
        drop(held);
        w.settle();
        assert_eq!(alive.load(Ordering::Relaxed), 20);
        // One that is being read when it is replaced is let go of without a word.
        w.informer.store().with(&("ns", "p0"), |_| {
            w.server.edit::<Pod>(("ns", "p1"), |p| p.generation += 1).unwrap();
            w.settle();
            assert_eq!(alive.load(Ordering::Relaxed), 21);
        });
        w.clock.advance(SOON);
        assert_eq!(alive.load(Ordering::Relaxed), 20);
    }

    /// Containment must not blind a test: an assertion that fails inside a handler fails the test it belongs to.
    #[should_panic(expected = "the test did not declare")]
    fn a_failed_assertion_inside_a_handler_fails_its_test(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let _registration = w.informer.on(|_| assert_eq!(1, 2, "planted")).unwrap();
        w.start();
    }

    fn v1_unchanged_objects_of_a_relist_are_told_to_nobody_and_keep_their_allocation(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        w.server.create(pod("b")).unwrap();
        let (told, _registration) = w.told();
        w.start();
        told.take();
        let before = w.informer.store().get(&("ns", "a")).unwrap();
        w.server.down(informer::memory::Close::Cut);
        w.server.edit::<Pod>(("ns", "b"), |p| p.generation = 1).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        assert_eq!(w.lists(), 2, "a restarted server knows no history");
        assert_eq!(told.take(), texts(&["r~ns/b@3>4"]));
        assert!(Object::ptr_eq(&before, &w.informer.store().get(&("ns", "a")).unwrap()));
    }

    fn v3_the_deletion_of_an_object_that_is_not_there_is_counted_and_told_to_the_hook_only(engine) {
        let mut w = World::new(engine);
        let (told, _registration) = w.told();
        w.start();
        let mut ghost = pod("ghost");
        ghost.version = "1".into();
        w.server.inject(&informer::source::WatchEvent::Deleted(ghost)).unwrap();
        w.server.create(pod("a")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["w+ns/a@2"]));
        assert_eq!(w.failures.take(), texts(&["unknown deletes 1"]));
        assert_eq!(w.informer.failures().unknown_deletes, 1);
    }

    fn every_thread_is_named_and_gone_after_the_end(engine) {
        let mut w = World::with(engine, |b| b.name("a name much longer than a thread's may be"));
        let _registrations = (0..5).map(|_| w.told().1).collect::<Vec<_>>();
        w.start();
        let threads = w.clock.threads();
        assert_eq!(threads.len(), 5 + if engine == Engine::Merged { 1 } else { 2 });
        assert!(threads.iter().all(|t| !t.is_empty() && t.len() <= 15), "{threads:?}");
        w.end().unwrap();
        assert!(w.clock.threads().is_empty());
    }
}

#[test]
fn the_gate_of_a_handler_that_waits_for_nothing_of_ours_lets_the_clock_settle() {
    // A handler blocked on something the clock cannot see counts as at rest after a grace.
    let mut w = World::new(Engine::Merged);
    w.server.create(pod("a")).unwrap();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let receive = Mutex::new(receive);
    let _registration = w.informer.on(move |_| receive.lock().unwrap().recv().unwrap_or_default()).unwrap();
    w.start();
    assert!(w.informer.has_synced());
    drop(send);
    let gate = Gate::new();
    gate.open();
    gate.wait();
}
