//! States as the beginning of a watch, silent watches, and shards, on the whole pipeline over the embedded server.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

mod common;

use common::{Told, World, pod, texts};
use informer::{
    flow::Object,
    informer::{Engine, InformerEvent, SharedInformer},
    memory::{Asked, Close, Fault, Pod, Request, Server, check::StreamChecker},
    reflector::{InitialState, ReflectorEvent},
    source::{RequestKind, Scope, Shard, SourceErrorKind, VersionMatch},
    sync::{ManualClock, Stop, Synced},
};
use std::time::Duration;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// What was asked since the last look, in short.
fn asked(server: &Server) -> Vec<String> {
    let short = |r: &Request| match &r.asked {
        Asked::List(p) => match (&p.version, p.limit) {
            (VersionMatch::NotOlderThan(v), Some(1)) => format!("probe {v}"),
            (VersionMatch::NotOlderThan(v), _) => format!("list {v}"),
            (VersionMatch::MostRecent, _) => "list newest".to_owned(),
            (other, _) => format!("list {other:?}"),
        },
        Asked::Watch(p) if p.initial_events => format!("stream {}", p.from),
        Asked::Watch(p) => format!("watch {}", p.from),
    };
    server.take_requests().iter().map(short).collect()
}

fn stored(w: &World) -> Vec<String> {
    let mut all: Vec<_> = w.informer.store().snapshot().objects().map(|o| format!("{o:?}")).collect();
    all.sort();
    all
}

with_each_engine! {
    fn a_streamed_state_and_all_that_follows_is_one_request(engine) {
        let mut w = World::with(engine, |b| b.initial(InitialState::Streamed));
        for name in ["a", "b"] {
            w.server.create(pod(name)).unwrap();
        }
        let (told, registration) = w.told();
        w.start();
        w.server.update(pod("a").on_node("n")).unwrap();
        w.server.delete::<Pod>(("ns", "b")).unwrap();
        w.settle();
        assert!(w.informer.has_synced() && registration.has_synced());
        let mut first = told.take();
        first[..2].sort();
        assert_eq!(first, texts(&["i+ns/a@2", "i+ns/b@3", "w~ns/a@2>4", "w-ns/b@5"]));
        assert_eq!(asked(&w.server), ["stream "]);
        assert_eq!(w.informer.store().version(), "5");
        w.end().unwrap();
        assert_eq!(w.server.open_streams(), 0);
    }

    fn p5_readers_see_the_old_set_until_a_streamed_state_has_come_to_its_end(engine) {
        let mut w = World::with(engine, |b| b.initial(InitialState::Streamed));
        w.server.create(pod("old")).unwrap();
        let (told, _registration) = w.told();
        w.start();
        // 410, and the state that follows breaks off before its end, twice.
        w.server.faults([Fault::cut_after(1).on_streamed(), Fault::no_end_mark()]);
        w.server.down(Close::Cut);
        w.server.delete::<Pod>(("ns", "old")).unwrap();
        for name in ["new-1", "new-2"] {
            w.server.create(pod(name)).unwrap();
        }
        w.server.up();
        for _ in 0..30 {
            w.clock.advance(secs(1));
            assert_eq!(stored(&w), ["ns/old@2"]);
        }
        assert_eq!(told.take(), texts(&["i+ns/old@2"]));
        w.clock.advance(secs(10));
        assert_eq!(stored(&w), ["ns/new-1@4", "ns/new-2@5"]);
        let mut rest = told.take();
        rest.sort();
        assert_eq!(rest, texts(&["r+ns/new-1@4", "r+ns/new-2@5", "r?ns/old@2"]));
        let states = asked(&w.server).iter().filter(|a| a.starts_with("stream")).count();
        assert_eq!(states, 4, "the first, one cut, one without an end, one whole");
        w.end().unwrap();
    }

    fn a_server_that_cannot_stream_states_is_asked_for_lists_and_not_again(engine) {
        let clock = ManualClock::new();
        let server = Server::builder(&clock).streams_states(false).build();
        let mut w = World::over(engine, clock, server.clone(), server.source::<Pod>(), |b| b.initial(InitialState::Streamed));
        w.server.create(pod("a")).unwrap();
        w.start();
        assert!(w.informer.has_synced());
        w.server.create(pod("b")).unwrap();
        w.settle();
        w.server.down(Close::Cut);
        w.server.create(pod("c")).unwrap();
        w.server.up();
        w.clock.advance(secs(5));
        assert_eq!(stored(&w), ["ns/a@2", "ns/b@3", "ns/c@4"]);
        let asked = asked(&w.server);
        assert_eq!(asked[..3], ["stream ", "list Any", "watch 2"], "{asked:?}");
        assert!(asked[3..].contains(&"list 3".to_owned()), "{asked:?}");
        assert!(asked[3..].iter().all(|a| !a.starts_with("stream")), "{asked:?}");
        w.end().unwrap();
    }

    /// Watches from the version that was lost are silent for ever, and a resumed one is just that.
    fn v13_a_cluster_restored_from_a_backup_is_noticed_although_its_watches_say_nothing(engine) {
        let mut w = World::with(engine, |b| b.watch_timeout(secs(1000)..=secs(1000)));
        w.server.create(pod("kept")).unwrap();
        let backup = w.server.version();
        for n in 0..5 {
            w.server.create(pod(&format!("phantom-{n}"))).unwrap();
        }
        let (told, _registration) = w.told();
        w.start();
        told.take();
        assert!(w.server.restore(&backup));
        w.server.update(pod("kept").on_node("n")).unwrap();
        w.clock.advance(secs(149));
        assert_eq!(stored(&w).len(), 6, "nothing can be known yet");
        // The check is made 150 s after the watch began, and answered after the three seconds that a server waits for a
        // version.
        w.clock.advance(secs(5));
        assert_eq!(stored(&w), ["ns/kept@3"]);
        assert_eq!(asked(&w.server), ["list Any", "watch 7", "watch 7", "probe 7", "list newest", "watch 3"]);
        let mut all = told.take();
        all.sort();
        let mut expected: Vec<_> = (0..5).map(|n| format!("r?ns/phantom-{n}@{}", 3 + n)).collect();
        expected.push("r~ns/kept@2>3".to_owned());
        assert_eq!(all, expected);
        assert_eq!(w.informer.store().version(), "3");
        w.server.create(pod("later")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["w+ns/later@4"]), "and the watch works");
        w.end().unwrap();
    }

    fn v13_a_connection_that_died_without_a_word_is_noticed_and_nothing_is_lost(engine) {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let patient = server.source::<Pod>().give_up_after(secs(30));
        let mut w = World::over(engine, clock, server, patient, |b| b.watch_timeout(secs(1000)..=secs(1000)));
        w.server.create(pod("a")).unwrap();
        let (told, _registration) = w.told();
        // The first watch falls silent, and the check is not answered either.
        w.server.faults([Fault::silence_in(secs(10)), Fault::hang().on_list().nth(2)]);
        w.start();
        w.clock.advance(secs(20));
        w.server.create(pod("unseen")).unwrap();
        w.clock.advance(secs(159));
        assert_eq!(told.take(), texts(&["i+ns/a@2"]));
        w.clock.advance(secs(2));
        assert_eq!(told.take(), texts(&["w+ns/unseen@3"]));
        assert_eq!(asked(&w.server), ["list Any", "watch 2", "probe 2", "watch 2"]);
        assert_eq!(w.server.open_streams(), 1, "the dead one was closed");
        w.end().unwrap();
    }

    /// After a 410 a server answers that has not seen what the last one had shown.
    fn b_28_a_server_that_lags_behind_takes_nobody_back_in_time(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let (told, _registration) = w.told();
        w.start();
        w.server.update(pod("a").on_node("n1")).unwrap();
        w.settle();
        // The list not older than 3 waits there in vain; the next server is the storage itself.
        w.server.faults([Fault::fail_in(secs(1), SourceErrorKind::Expired).on_watch(), Fault::behind(1).on_list()]);
        w.server.close_connections();
        w.clock.advance(secs(10));
        assert_eq!(asked(&w.server)[2..], ["watch 3", "list 3", "list newest", "watch 3"]);
        assert_eq!(told.take(), texts(&["i+ns/a@2", "w~ns/a@2>3"]), "nothing twice, and nothing backwards");
        // A watch at such a server is late, and nothing worse.
        w.server.faults([Fault::behind(1).on_watch()]);
        w.server.close_connections();
        w.clock.advance(secs(1));
        w.server.update(pod("a").on_node("n2")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&[]));
        w.server.create(pod("b")).unwrap();
        w.settle();
        assert_eq!(told.take(), texts(&["w~ns/a@3>4"]));
        w.end().unwrap();
    }

    fn v13_a_quiet_cluster_costs_nothing(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        w.start();
        w.clock.advance(secs(3600));
        assert!(asked(&w.server).iter().all(|a| !a.starts_with("probe")), "bookmarks come each minute");
        w.end().unwrap();
    }

    /// A server without a watch cache sends no bookmarks: one question for each silence.
    fn v13_silence_alone_proves_nothing(engine) {
        let clock = ManualClock::new();
        let server = Server::builder(&clock).cached(false).build();
        let source = server.source::<Pod>();
        let mut w = World::over(engine, clock, server, source, |b| b.watch_timeout(secs(600)..=secs(600)));
        w.server.create(pod("a")).unwrap();
        w.start();
        w.clock.advance(secs(1300));
        assert_eq!(asked(&w.server), ["list Any", "watch 2", "probe 2", "watch 2", "probe 2", "watch 2"]);
        w.end().unwrap();
    }
}

/// Two informers divide the objects: each is told of its own, each object has one owner, also across broken watches and
/// new states in either form.
#[test]
fn shards_divide_the_objects_whatever_happens_to_the_watches() {
    for (engine, initial) in [(Engine::Merged, InitialState::Any), (Engine::Decoupled, InitialState::Streamed)] {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let part = |index| Scope { shard: Some(Shard::new(index, 2).unwrap()), ..Scope::default() };
        let name = |n: u64| format!("p{n}");
        for n in 0..20 {
            server.create(pod(&name(n))).unwrap();
        }
        let informers: Vec<_> = (0..2)
            .map(|index| {
                let checker = StreamChecker::<Pod>::scoped(&server, &part(index)).unwrap();
                let informer = SharedInformer::builder(server.source::<Pod>())
                    .engine(engine)
                    .initial(initial)
                    .scope(part(index))
                    .clock(&clock)
                    .seed(u64::from(index))
                    .relist_spread(Duration::ZERO)
                    .build()
                    .unwrap();
                let judge = checker.clone();
                let registration = informer.on(move |e| drop(judge.observe(e))).unwrap();
                let handle = informer.spawn(&Stop::with_clock(&clock)).unwrap();
                (informer, checker, registration, handle)
            })
            .collect();
        clock.settle();
        for n in 20..80_u64 {
            server.create(pod(&name(n))).unwrap();
            server.update(pod(&name(n / 2)).with_generation(n)).unwrap();
            if n % 3 == 0 {
                server.delete::<Pod>(("ns", name(n).as_str())).unwrap();
                server.create(pod(&name(n))).unwrap();
            }
            match n % 10 {
                1 => server.drop_connections(),
                5 => server.restart(Close::Cut),
                7 => server.faults([Fault::cut_after(n % 4).times(2)]),
                _ => {}
            }
            clock.advance(secs(2));
        }
        server.clear_faults();
        clock.advance(secs(60));
        let truth = server.all::<Pod>();
        let mut sizes = Vec::new();
        for (informer, checker, _, _) in &informers {
            assert_eq!(checker.finish(&truth), Ok(()), "{engine:?}");
            sizes.push(informer.store().len());
        }
        assert_eq!(sizes.iter().sum::<usize>(), truth.objects.len(), "{sizes:?}");
        assert!(sizes.iter().all(|n| *n > 20), "{sizes:?}");
        for object in &truth.objects {
            let owners = informers.iter().filter(|(i, ..)| i.store().get(Object::key(object)).is_some()).count();
            assert_eq!(owners, 1, "{object:?}");
        }
        for (_, _, registration, handle) in informers {
            registration.detach();
            drop(handle);
        }
    }
}

/// The hook is told of each check.
#[test]
fn the_informers_hook_is_told_of_checks() {
    let checks = Told::default();
    let told = checks.clone();
    let mut w = World::with(Engine::Merged, |b| {
        b.silence(secs(20)).observe(move |e| {
            if let InformerEvent::Reflector(ReflectorEvent::Probed { from, failure, again, .. }) = e {
                told.push(format!("{from} {failure:?} {again:?}"));
            }
        })
    });
    w.server.faults([Fault::refuse(SourceErrorKind::Forbidden).on_list().nth(2)]);
    w.start();
    w.clock.advance(secs(40));
    assert_eq!(checks.take(), texts(&["1 Some(Forbidden) Some(800ms)", "1 None None"]));
    assert!(w.server.requests().iter().any(|r| r.kind() == RequestKind::List));
    w.end().unwrap();
}
