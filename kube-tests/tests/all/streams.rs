//! Open watches.

use crate::{
    errors::{next, watch, watch_of},
    world::{World, pods, two_pods},
};
use informer::source::{Next, SourceErrorKind, WatchEvent};
use kube_tests::server::{Inject, line};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};

#[test]
fn what_came_at_once_can_be_had_at_once() {
    let server = two_pods();
    let mut stream = watch(&pods(&server), "100").unwrap();
    // Both pods lie after version 100.
    let Next::Event(WatchEvent::Added(first)) = next(&mut *stream) else { panic!("no event") };
    assert_eq!(first.metadata.name.as_deref(), Some("a"));
    let mut second = None;
    server.wait("the second", |_| {
        second = stream.ready();
        second.is_some()
    });
    assert!(matches!(second, Some(Next::Event(WatchEvent::Added(p))) if p.metadata.name.as_deref() == Some("b")));
    assert!(stream.ready().is_none(), "no more has come");
    server.inject(Inject::Line(String::new()));
    server.inject(Inject::Bookmark);
    assert!(matches!(next(&mut *stream), Next::Event(WatchEvent::Bookmark { version, .. }) if version == "102"));
    server.inject(Inject::End);
    assert!(matches!(next(&mut *stream), Next::End));
    assert!(matches!(next(&mut *stream), Next::End), "and stays so");
}

/// Lines are cut anywhere on their way.
#[test]
fn events_are_put_together_from_any_pieces() {
    let server = two_pods();
    let mut stream = watch(&pods(&server), "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    let event = line("ADDED", &json!({"metadata": {"namespace": "ns", "name": "é☃", "resourceVersion": "103"}}));
    // Two events in one piece, and an end of a line that comes by itself.
    server.inject(Inject::Line(format!("{event}\n{event}")));
    for _ in 0..2 {
        let Next::Event(WatchEvent::Added(pod)) = next(&mut *stream) else { panic!("no event") };
        assert_eq!(pod.metadata.name.as_deref(), Some("é☃"));
    }
    for piece in 1..event.len() {
        let (head, tail) = event.as_bytes().split_at(piece);
        server.inject(Inject::Bytes(head.to_vec()));
        server.inject(Inject::Bytes(tail.to_vec()));
        server.inject(Inject::Bytes(b"\n".to_vec()));
        let Next::Event(WatchEvent::Added(pod)) = next(&mut *stream) else { panic!("no event at {piece}") };
        assert_eq!(pod.metadata.name.as_deref(), Some("é☃"), "{piece}");
    }
}

#[test]
fn a_streamed_state_comes_with_its_end_and_goes_on() {
    let server = two_pods();
    let mut stream = watch_of(&pods(&server), "", true).unwrap();
    for name in ["a", "b"] {
        let Next::Event(WatchEvent::Added(pod)) = next(&mut *stream) else { panic!("no event") };
        assert_eq!(pod.metadata.name.as_deref(), Some(name));
    }
    let mark = next(&mut *stream);
    assert!(
        matches!(&mark, Next::Event(WatchEvent::Bookmark { version, initial_events_end: true }) if version == "102"),
        "{mark:?}"
    );
    server.delete("pods", "ns", "a");
    assert!(matches!(next(&mut *stream), Next::Event(WatchEvent::Deleted(_))));
    server.inject(Inject::Bookmark);
    let later = next(&mut *stream);
    assert!(
        matches!(&later, Next::Event(WatchEvent::Bookmark { version, initial_events_end: false }) if version == "103"),
        "{later:?}"
    );
    let query = &server.requests()[0].query;
    let asked: Vec<_> = query.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", ""),
        ("resourceVersionMatch", "NotOlderThan"),
        ("sendInitialEvents", "true"),
        ("timeoutSeconds", "300"),
        ("watch", "true"),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn an_object_that_cannot_be_decoded_is_told_with_its_frame() {
    let server = two_pods();
    let mut stream = watch(&pods(&server), "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    let bad = json!({"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "103"}, "spec": "none"});
    for (kind, gone) in [("ADDED", false), ("MODIFIED", false), ("DELETED", true)] {
        server.inject(Inject::Line(line(kind, &bad)));
        let Next::Event(WatchEvent::Undecodable { object, deleted }) = next(&mut *stream) else { panic!("no event") };
        assert_eq!((object.key.unwrap().to_string().as_str(), deleted), ("ns/a", gone), "{kind}");
    }
}

#[test]
fn a_line_that_never_ends_is_given_up() {
    let server = two_pods();
    let mut stream = watch(&pods(&server), "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    server.inject(Inject::Bytes(vec![b' '; (64 << 20) + 1]));
    let Next::Failed(error) = next(&mut *stream) else { panic!("no error") };
    assert_eq!(*error.kind(), SourceErrorKind::Decode, "{error}");
    assert!(matches!(next(&mut *stream), Next::End), "it is over");
}

#[test]
fn a_stream_that_is_dropped_closes_its_connection() {
    let server = two_pods();
    let stream = watch(&pods(&server), "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    drop(stream);
    server.wait("the client has gone", |s| s.open_watches() == 0);
}

/// A connection that says nothing at all, not even that it is gone.
#[test]
fn a_silent_watch_is_given_up_after_its_time_and_resumed() {
    let watch_for = Duration::from_secs(300);
    let mut world = World::with(two_pods(), |b| b.watch_timeout(watch_for..=watch_for)).start().watching();
    world.clock.advance(watch_for + Duration::from_secs(10));
    world.server.wait("resumed", |s| s.asked().iter().filter(|a| *a == "watch 102").count() == 2);
    world.server.delete("pods", "ns", "a");
    world.agrees("resumed");
    world.end("silence");
}

#[test]
fn an_informer_agrees_with_the_server_through_all_that_can_happen_to_a_watch() {
    let mut world = World::new(two_pods()).start().watching();
    let mut rng = 7_u64;
    for round in 0..60 {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let name = format!("p{}", (rng >> 33) % 7);
        let there: BTreeMap<_, _> = world.server.truth("pods");
        if there.contains_key(&format!("ns/{name}")) && (rng >> 40).is_multiple_of(2) {
            world.server.delete("pods", "ns", &name);
        } else {
            world.server.put_named("pods", "ns", &name, json!({"round": round.to_string()}));
        }
        match round % 6 {
            0 => drop(world.server.inject(Inject::Cut)),
            1 => drop(world.server.inject(Inject::End)),
            2 => world.server.cut_connections(),
            3 => {
                world.server.inject(Inject::Cut);
                world.server.forget();
            }
            4 => drop(world.server.inject(Inject::Bookmark)),
            _ => {}
        }
        // Whatever waits are due are over.
        world.server.wait("agreement", |s| {
            let agrees = world.stored() == s.truth("pods") && s.open_watches() == 1;
            if !agrees {
                world.clock.advance(Duration::from_secs(1));
            }
            agrees
        });
    }
    world.end("storm");
}
