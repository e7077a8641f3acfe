//! Public faults of informers and caches elsewhere, each as a test named after its number, on the whole pipeline.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

mod common;

use common::{Told, World, pod, show, texts};
use informer::{
    flow::{Change, Event, Object},
    informer::{Engine, PanicPolicy, Registration},
    memory::{Close, Fault, Pod},
    reflector::InitialState,
    source::VersionMatch,
    sync::{Deadline, Gate, Synced},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

fn by_node(p: &Pod, emit: &mut dyn FnMut(String)) {
    emit(p.node.clone());
}

with_each_engine! {
    /// Relist drops an object that exists only in the queue: an addition that nobody has processed yet, then a relist
    /// without it. (The queue's own half is in `src/queue`.)
    fn b_01_an_object_that_a_relist_lacks_is_deleted_although_its_addition_was_just_under_way(engine) {
        let mut w = World::new(engine);
        let (told, _registration) = w.told();
        w.start();
        // The addition and the broken stream come in one moment, so the relist follows on its heels.
        w.server.create(pod("a")).unwrap();
        w.settle();
        w.server.down(Close::Cut);
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        assert_eq!(told.take(), texts(&["w+ns/a@2", "r?ns/a@2"]));
        assert!(w.informer.store().is_empty());
    }

    /// Relist-made delete notifies handlers but leaves the index untouched.
    fn b_07_a_delete_made_by_a_relist_leaves_store_and_index_before_anybody_is_told(engine) {
        let mut w = World::with(engine, |b| b.index("node", by_node));
        w.server.create(pod("a").on_node("n1")).unwrap();
        let (told, store) = (Told::default(), w.informer.store());
        let t = told.clone();
        let _registration = w.informer.on(move |e: &Event<Pod>| {
            let indexed = store.by_index("node", "n1").unwrap().len();
            t.push(format!("{} stored {} indexed {indexed}", show(e), store.get(e.key()).is_some()));
        }).unwrap();
        w.start();
        w.server.down(Close::Cut);
        w.server.delete::<Pod>(("ns", "a")).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        assert_eq!(told.take(), texts(&["i+ns/a@2 stored true indexed 1", "r?ns/a@2 stored false indexed 0"]));
        let after = w.informer.store().snapshot();
        assert!(after.is_empty() && after.index_values::<str>("node").map_or(true, |v| v.is_empty()));
    }

    /// Reconnect resubscribes without reconciling deletions: (i) the watch resumes, (ii) it cannot.
    fn b_09_a_deletion_during_an_outage_is_told_exactly_once(engine) {
        for expired in [false, true] {
            let mut w = World::new(engine);
            w.server.create(pod("a")).unwrap();
            let (told, _registration) = w.told();
            w.start();
            told.take();
            w.server.take_requests();
            if expired {
                w.server.down(Close::Cut);
                w.server.delete::<Pod>(("ns", "a")).unwrap();
                w.server.up();
            } else {
                w.server.faults([Fault::refuse(informer::source::SourceErrorKind::ConnectionRefused).on_watch()]);
                w.server.drop_connections();
                w.server.delete::<Pod>(("ns", "a")).unwrap();
            }
            w.clock.advance(Duration::from_secs(10));
            let want = if expired { "r?ns/a@2" } else { "w-ns/a@3" };
            assert_eq!(told.take(), texts(&[want]));
            // Never from nothing: every request names where it goes on from.
            for request in w.server.requests() {
                if let Some(watch) = request.watch() {
                    assert!(matches!(watch.from.as_str(), "2" | "3"), "{request:?}");
                }
                if let Some(list) = request.list() {
                    assert!(expired && matches!(&list.version, VersionMatch::NotOlderThan(v) if v == "2"), "{request:?}");
                }
            }
        }
    }

    /// Handler registration races with live events: every interleaving gives a legal stream.
    fn b_19_a_handler_that_joins_among_live_events_sees_one_instant_and_then_everything_after_it(engine) {
        // The join happens before, between or after the three changes; within a burst the clock decides nothing.
        for joined_after in 0..=3 {
            let mut w = World::new(engine);
            w.server.create(pod("a")).unwrap();
            w.start();
            let mut late = None;
            let changes: [&dyn Fn(&World); 3] = [
                &|w| drop(w.server.edit::<Pod>(("ns", "a"), |p| p.generation = 1).unwrap()),
                &|w| drop(w.server.delete::<Pod>(("ns", "a")).unwrap()),
                &|w| drop(w.server.create(pod("b")).unwrap()),
            ];
            for (i, change) in changes.iter().enumerate() {
                if i == joined_after {
                    late = Some(w.told());
                }
                change(&w);
            }
            let (told, _registration) = late.unwrap_or_else(|| w.told());
            w.settle();
            let told = told.take();
            let legal = [
                texts(&["i+ns/a@2", "w~ns/a@2>3", "w-ns/a@4", "w+ns/b@5"]),
                texts(&["i+ns/a@3", "w-ns/a@4", "w+ns/b@5"]),
                texts(&["w+ns/b@5"]),
                texts(&["i+ns/b@5"]),
            ];
            assert!(legal.contains(&told), "{told:?}");
        }
    }

    /// The same from inside callbacks, many times, while the events flow.
    fn b_19_handlers_that_join_from_callbacks_while_events_flow_miss_and_repeat_nothing(engine) {
        let mut w = World::new(engine);
        for name in ["a", "b", "c"] {
            w.server.create(pod(name)).unwrap();
        }
        let joined = Arc::new(Mutex::new(Vec::<(Told, Registration<Pod>)>::new()));
        let (informer, into) = (w.informer.clone(), joined.clone());
        let _registration = w.informer.on(move |_| {
            let told = Told::default();
            let t = told.clone();
            let registration = informer.on(move |e| t.push(show(e))).unwrap();
            into.lock().unwrap().push((told, registration));
        }).unwrap();
        w.start();
        for round in 0..30 {
            w.server.edit::<Pod>(("ns", ["a", "b", "c"][round % 3]), |p| p.generation += 1).unwrap();
            if round % 4 == 0 {
                w.settle();
            }
        }
        w.settle();
        let joined = std::mem::take(&mut *joined.lock().unwrap());
        assert_eq!(joined.len(), 33);
        for (told, registration) in joined {
            assert!(registration.has_synced());
            let told = told.take();
            // Replayed, each stream ends in the truth: versions 32, 33, 34 of the three objects.
            let mut last = std::collections::BTreeMap::new();
            for t in &told {
                let (key, version) = match t[2..].split_once('>') {
                    Some((old, new)) => {
                        let (key, from) = old.split_once('@').unwrap();
                        assert_eq!(last.get(key).map(String::as_str), Some(from), "{told:?}");
                        (key, new)
                    }
                    None => {
                        let (key, version) = t[2..].split_once('@').unwrap();
                        assert!(t.starts_with("i+") && !last.contains_key(key), "{told:?}");
                        (key, version)
                    }
                };
                last.insert(key.to_owned(), version.to_owned());
            }
            assert_eq!(last.into_values().collect::<Vec<_>>(), ["32", "33", "34"], "{told:?}");
        }
    }

    /// Fake list/watch source loses writes made between list and watch.
    fn b_20_a_write_between_the_list_and_the_watch_arrives(engine) {
        let mut w = World::new(engine);
        // The watch is answered late, and the write comes before it is.
        w.server.faults([Fault::delay(Duration::from_secs(1)).on_watch()]);
        let (told, _registration) = w.told();
        w.start();
        assert!(w.informer.has_synced());
        w.server.create(pod("a")).unwrap();
        w.clock.advance(Duration::from_secs(2));
        assert_eq!(told.take(), texts(&["w+ns/a@2"]));
    }

    /// Relist overtakes watch events that are still in flight.
    fn b_21_events_of_a_watch_come_before_the_list_that_follows_it_and_none_after(engine) {
        let mut w = World::new(engine);
        let (told, _registration) = w.told();
        w.start();
        // In one moment: an event, and the end of the server's history behind it.
        w.server.create(pod("a")).unwrap();
        w.server.down(Close::Cut);
        w.server.edit::<Pod>(("ns", "a"), |p| p.generation = 1).unwrap();
        w.server.up();
        w.clock.advance(Duration::from_secs(5));
        w.server.edit::<Pod>(("ns", "a"), |p| p.generation = 2).unwrap();
        w.settle();
        let told = told.take();
        // Whether the first event made it through before the cut is the race of the real world; the order is not.
        let legal = [texts(&["w+ns/a@2", "r~ns/a@2>3", "w~ns/a@3>4"]), texts(&["r+ns/a@3", "w~ns/a@3>4"])];
        assert!(legal.contains(&told), "{told:?}");
    }

    /// One thread per event reorders.
    fn b_42_a_hundred_updates_arrive_one_at_a_time_in_order(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let threads = Arc::new(Mutex::new(std::collections::HashSet::new()));
        let (told, t) = (Told::default(), threads.clone());
        let into = told.clone();
        let _registration = w.informer.on(move |e| {
            t.lock().unwrap().insert(std::thread::current().id());
            into.push(show(e));
        }).unwrap();
        w.start();
        for _ in 0..100 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        }
        w.settle();
        let want: Vec<_> = (2..102).map(|v| format!("w~ns/a@{v}>{}", v + 1)).collect();
        assert_eq!(told.take()[1..], want);
        assert_eq!(threads.lock().unwrap().len(), 1);
    }

    /// Informer synced before handlers saw the initial list.
    fn b_46_a_registration_is_synced_only_when_its_handler_has_returned_from_the_last_initial_object(engine) {
        let mut w = World::new(engine);
        for name in ["a", "b", "c"] {
            w.server.create(pod(name)).unwrap();
        }
        let gate = Gate::new();
        let (g, told) = (gate.clone(), Told::default());
        let t = told.clone();
        let registration = w.informer.on(move |e: &Event<Pod>| {
            if t.len() == 1 {
                g.wait();
            }
            t.push(show(e));
        }).unwrap();
        w.start();
        assert!(w.informer.has_synced() && !registration.has_synced());
        assert_eq!(told.len(), 1);
        gate.open();
        w.settle();
        assert!(registration.has_synced());
        assert_eq!(told.take(), texts(&["i+ns/a@2", "i+ns/b@3", "i+ns/c@4"]));
    }

    /// Readers see an empty or half-filled store while a re-list is applied.
    fn b_58_a_reader_sees_the_old_set_until_it_sees_the_whole_new_one(engine) {
        let mut w = World::with(engine, |b| {
            b.page_size(1).initial(InitialState::MostRecent).index("node", by_node)
        });
        for name in ["a", "b"] {
            w.server.create(pod(name).on_node("n")).unwrap();
        }
        w.start();
        // The next list stops for a while between its pages, then breaks, then comes through.
        w.server.faults([
            Fault::delay(Duration::from_secs(2)).on_pages(),
            Fault::cut_after(0).on_pages(),
        ]);
        w.server.down(Close::Cut);
        for name in ["a", "b"] {
            w.server.edit::<Pod>(("ns", name), |p| p.generation = 1).unwrap();
        }
        w.server.create(pod("c").on_node("n")).unwrap();
        w.server.up();
        let store = w.informer.store();
        let mut seen = Vec::new();
        for _ in 0..100 {
            w.clock.advance(Duration::from_millis(100));
            let now = store.snapshot();
            let mut state: Vec<String> = now.iter().map(|p| format!("{}{}", p.name, p.generation)).collect();
            // The order of a snapshot is nobody's business.
            state.sort();
            let state = state.concat();
            assert_eq!(now.index_keys("node", "n").unwrap().count(), now.len());
            if seen.last() != Some(&state) {
                seen.push(state);
            }
        }
        assert_eq!(seen, ["a0b0", "a1b1c0"]);
    }

    /// Handlers of restarted controllers cannot be removed.
    fn b_100_handlers_come_and_go_and_leave_nothing_behind(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        w.start();
        let threads = w.clock.threads();
        for round in 0..100 {
            let (told, registration) = w.told();
            w.settle();
            assert_eq!(told.take(), texts(&[&format!("i+ns/a@{}", round + 2)]));
            drop(registration);
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
            w.settle();
            assert_eq!(told.take(), texts(&[]), "a removed handler gets nothing more");
        }
        assert_eq!((w.informer.handlers(), w.clock.threads()), (0, threads));
        for _ in 0..1000 {
            w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        }
        w.settle();
        assert!(w.informer.has_synced());
        assert_eq!(w.informer.store().get(&("ns", "a")).unwrap().generation, 1100);
    }

    /// Handler panic leaves a zombie: contained, it costs the handler one event; as an abort, it ends the informer.
    fn b_113_a_handler_that_panics_is_neither_a_zombie_nor_the_end_of_others(engine) {
        let mut w = World::new(engine);
        w.start();
        let (good, _good) = w.told();
        let (told, registration) = w.panicking(PanicPolicy::Isolate);
        for name in ["a", "bad", "b", "c"] {
            w.server.create(pod(name)).unwrap();
        }
        w.settle();
        assert_eq!(told.take(), texts(&["w+ns/a@2", "w+ns/b@4", "w+ns/c@5"]));
        assert_eq!(good.take(), texts(&["w+ns/a@2", "w+ns/bad@3", "w+ns/b@4", "w+ns/c@5"]));
        assert_eq!(registration.wait_synced(Deadline::never()), Ok(()));
        assert_eq!((registration.panics(), w.failures.take()), (1, texts(&["bad panicked: cannot bear ns/bad"])));
        w.contained(&["cannot bear ns/bad"]);
    }
}

#[test]
fn the_chain_of_a_listener_survives_relists_that_miss_changes() {
    let mut w = World::new(Engine::Merged);
    w.server.create(pod("a")).unwrap();
    let last = Arc::new(Mutex::new(None::<Object<Pod>>));
    let l = last.clone();
    let _registration = w
        .informer
        .on(move |e: &Event<Pod>| {
            let mut last = l.lock().unwrap();
            match &e.change {
                Change::Added(o) => {
                    assert!(last.is_none());
                    *last = Some(o.clone());
                }
                Change::Updated { old, new } => {
                    assert!(last.as_ref().is_some_and(|l| Object::ptr_eq(l, old)));
                    *last = Some(new.clone());
                }
                Change::Deleted(d) => {
                    assert!(d.object().is_some());
                    *last = None;
                }
            }
        })
        .unwrap();
    w.start();
    for round in 0..10 {
        w.server.down(Close::Cut);
        w.server.edit::<Pod>(("ns", "a"), |p| p.generation += 1).unwrap();
        if round % 3 == 2 {
            w.server.delete::<Pod>(("ns", "a")).unwrap();
            w.server.create(pod("a").with_generation(100 * round)).unwrap();
        }
        w.server.up();
        w.clock.advance(Duration::from_secs(30));
    }
    assert!(last.lock().unwrap().is_some());
}
