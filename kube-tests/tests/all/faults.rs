//! Every failure, made by a server over a socket: how the adapter sorts it, and the requests that follow. What they must
//! be is the table of the reflector's documentation.

use crate::world::{Failure, World, two_pods};
use informer::{
    reflector::{During, FailureKind, InitialState, ReflectorEvent},
    source::SourceErrorKind::{self, *},
};
use kube_tests::server::{Fault, Inject, On, line, status};
use serde_json::{Value, json};
use std::time::Duration;

fn seconds(s: u64) -> Option<Duration> {
    Some(Duration::from_secs(s))
}

fn server_says(code: u16, reason: &str, retry_after: Option<Duration>) -> SourceErrorKind {
    Server { code, reason: reason.to_owned(), retry_after }
}

/// Status answers as faults, with the class that each is.
fn answers() -> Vec<(&'static str, Fault, SourceErrorKind)> {
    let none = Value::Null;
    let too_large = json!({"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1});
    let storage = json!({"retryAfterSeconds": 1});
    let young = json!({"retryAfterSeconds": 5});
    let large = "Timeout: Too large resource version: 9, current: 5";
    let (crowd, busy) = ("Too many requests, please try again later.\n", "storage is (re)initializing");
    vec![
        ("store unread", Fault::status(500, "StoreReadError", "", none.clone()), server_says(500, "StoreReadError", None)),
        ("expired", Fault::status(410, "Expired", "too old", none.clone()), Expired),
        ("too large", Fault::status(504, "Timeout", large, too_large), TooLargeVersion { retry_after: seconds(1) }),
        ("storage", Fault::status(429, "TooManyRequests", busy, storage), TooManyRequests { retry_after: seconds(1) }),
        ("crowd", Fault::text(429, &[("Retry-After", "9")], crowd), TooManyRequests { retry_after: seconds(9) }),
        (
            "young",
            Fault::status(503, "ServiceUnavailable", "before all known HTTP paths have been installed", young),
            server_says(503, "ServiceUnavailable", seconds(5)),
        ),
        ("leaving", Fault::text(503, &[], "apiserver is shutting down"), server_says(503, "", None)),
        ("no credential", Fault::status(401, "Unauthorized", "Unauthorized", none.clone()), Unauthorized),
        ("no right", Fault::status(403, "Forbidden", "pods is forbidden", none.clone()), Forbidden),
        ("no such kind", Fault::text(404, &[], "404 page not found\n"), NotFound),
        ("bad request", Fault::status(400, "BadRequest", "no selector", none.clone()), server_says(400, "BadRequest", None)),
        ("invalid", Fault::status(422, "Invalid", "invalid", none.clone()), server_says(422, "Invalid", None)),
        ("a bug", Fault::status(500, "", "it broke", none), server_says(500, "", None)),
        ("cut", Fault::Cut, Transport),
    ]
}

fn expect(what: &str, failure: &Failure, during: During, kind: &SourceErrorKind) {
    assert_eq!((failure.during, failure.source()), (during, kind), "{what}: {}", failure.message);
    let least = kind.retry_after().filter(|_| !matches!(kind, TooLargeVersion { .. })).unwrap_or_default();
    assert!(failure.wait >= least, "{what}: waits {:?}, asked to wait {least:?}", failure.wait);
    // So the time to agreement is bounded: what follows a wait is compared below.
    let most = least.max(Duration::from_secs(2));
    assert!(failure.wait <= most, "{what}: waits {:?}, at most {most:?}", failure.wait);
}

#[test]
fn a_first_list_that_fails_is_asked_again_as_the_table_says() {
    let mut more = answers();
    more.push(("half a body", Fault::HalfBody, Transport));
    more.push(("no JSON", Fault::text(200, &[], "<html>log in</html>"), Decode));
    for (what, fault, kind) in more {
        let server = two_pods();
        server.fault(On::List, fault);
        let mut world = World::new(server).start();
        expect(what, &world.sit_out(), During::List, &kind);
        let again = if matches!(kind, Expired | TooLargeVersion { .. }) { "list newest" } else { "list any" };
        world.asked(what, &["list any", again, "watch 102"]);
        world.agrees(what);
        world.end(what);
    }
}

#[test]
fn a_later_list_that_fails_is_asked_again_as_the_table_says() {
    let gone = line("ERROR", &status(410, "Expired", "too old resource version: 102 (200)", Value::Null));
    for (what, fault, kind) in answers() {
        let mut world = World::new(two_pods()).start().watching();
        world.server.put_named("pods", "ns", "c", json!({}));
        world.agrees("before the fault");
        world.server.fault(On::List, fault);
        world.server.inject(Inject::Line(gone.clone()));
        expect("expired", &world.sit_out(), During::Stream, &Expired);
        expect(what, &world.sit_out(), During::List, &kind);
        let newest = matches!(kind, Expired | TooLargeVersion { .. } | Server { code: 400 | 422, .. });
        let again = if newest { "list newest" } else { "list >=103" };
        world.asked(what, &["list any", "watch 102", "list >=103", again, "watch 103"]);
        world.agrees(what);
        world.end(what);
    }
}

#[test]
fn a_watch_that_is_not_opened_is_asked_for_again_as_the_table_says() {
    for (what, fault, kind) in answers() {
        let server = two_pods();
        server.fault(On::Watch, fault);
        let mut world = World::new(server).start();
        expect(what, &world.sit_out(), During::Watch, &kind);
        match kind {
            Expired => world.asked(what, &["list any", "watch 102", "list >=102", "watch 102"]),
            TooLargeVersion { .. } => world.asked(what, &["list any", "watch 102", "list newest", "watch 102"]),
            Server { ref reason, .. } if reason == "StoreReadError" => {
                world.asked(what, &["list any", "watch 102", "list >=102", "watch 102"]);
            }
            _ => world.asked(what, &["list any", "watch 102", "watch 102"]),
        }
        world.server.put_named("pods", "ns", "c", json!({}));
        world.agrees(what);
        world.end(what);
    }
}

/// 200, and the error in the stream: how a real server says 410 to a watch.
#[test]
fn an_error_within_a_stream_is_sorted_as_the_same_answer_is() {
    for (what, fault, kind) in answers() {
        // What has a body in JSON can stand in a stream.
        let Fault::Answer { body, .. } = fault else { continue };
        let Ok(told) = serde_json::from_slice::<Value>(&body) else { continue };
        let mut world = World::new(two_pods()).start().watching();
        world.server.put_named("pods", "ns", "c", json!({}));
        world.agrees("before the fault");
        world.server.inject(Inject::Line(line("ERROR", &told)));
        expect(what, &world.sit_out(), During::Stream, &kind);
        let again: &[&str] = match &kind {
            Expired => &["list any", "watch 102", "list >=103", "watch 103"],
            TooLargeVersion { .. } => &["list any", "watch 102", "list newest", "watch 103"],
            Server { reason, .. } if reason == "StoreReadError" => &["list any", "watch 102", "list >=103", "watch 103"],
            _ => &["list any", "watch 102", "watch 103"],
        };
        world.asked(what, again);
        world.server.put_named("pods", "ns", "d", json!({}));
        world.agrees(what);
        world.end(what);
    }
}

/// kube's own watch cannot tell the two apart.
#[test]
fn a_stream_that_was_cut_is_told_from_one_that_ended() {
    let event = line("MODIFIED", &json!({"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "103"}}));
    let cuts: [(&str, &[Inject]); 4] = [
        ("between events", &[Inject::Cut]),
        ("within an event", &[Inject::HalfLine(event.clone()), Inject::Cut]),
        // In order as HTTP goes, and yet no whole event.
        ("an end within an event", &[Inject::HalfLine(event.clone()), Inject::End]),
        ("in order", &[Inject::End]),
    ];
    for (what, cut) in cuts {
        let mut world = World::new(two_pods()).start().watching();
        world.server.put_named("pods", "ns", "a", json!({"app": "z"}));
        world.agrees(what);
        for step in cut {
            world.server.inject(step.clone());
        }
        if what == "in order" {
            world.asked(what, &["list any", "watch 102", "watch 103"]);
            let failed = world.told.all().iter().any(|e| matches!(e, ReflectorEvent::Failed { .. }));
            assert!(!failed, "an orderly end is no failure");
        } else {
            expect(what, &world.sit_out(), During::Stream, &Transport);
            world.asked(what, &["list any", "watch 102", "watch 103"]);
        }
        world.server.delete("pods", "ns", "b");
        world.agrees(what);
        assert_eq!(world.server.asked().len(), 3, "{what}: nothing is listed again");
        world.end(what);
    }
}

#[test]
fn a_line_that_is_no_event_ends_the_stream_and_is_asked_for_again() {
    for (what, garbage) in [
        ("no JSON", "{\"type\":".to_owned()),
        ("no object", "{\"type\":\"ADDED\"}".to_owned()),
        ("an unknown type", line("RENAMED", &json!({}))),
    ] {
        let mut world = World::new(two_pods()).start().watching();
        world.server.inject(Inject::Line(garbage));
        expect(what, &world.sit_out(), During::Stream, &Decode);
        world.asked(what, &["list any", "watch 102", "watch 102"]);
        world.server.delete("pods", "ns", "b");
        world.agrees(what);
        world.end(what);
    }
}

fn spoil_a(object: &mut Value) {
    if object["metadata"]["name"] == "a" {
        object["spec"]["containers"] = json!("hunter2");
    }
}

fn spoil_a_with_its_name(object: &mut Value) {
    if object["metadata"]["name"] == "a" {
        object["metadata"] = json!({"name": 7});
    }
}

#[test]
fn one_object_that_cannot_be_decoded_costs_itself_and_not_the_list() {
    let server = two_pods();
    server.fault(On::List, Fault::Change(spoil_a));
    let mut world = World::new(server).start().watching();
    assert_eq!(world.stored().into_keys().collect::<Vec<_>>(), ["ns/b"]);
    let (_, (key, version, why)) = world.told.wait(0, "it is told", |e| match e {
        ReflectorEvent::Skipped { key, version, why } => Some((key.clone(), version.clone(), why.clone())),
        _ => None,
    });
    assert_eq!((key.map(|k| k.to_string()).as_deref(), version.as_deref()), (Some("ns/a"), Some("101")));
    assert!(why.contains("Pod") && !why.contains("hunter2"), "{why}");
    assert_eq!(world.informer.health().stale_objects, 1);

    // It changes into something that can be read.
    world.server.put_named("pods", "ns", "a", json!({}));
    world.agrees("after it has changed");
    assert_eq!(world.informer.health().stale_objects, 0);
    world.end("one bad object");
}

#[test]
fn an_object_in_a_watch_that_cannot_be_decoded_keeps_its_old_state() {
    let mut world = World::new(two_pods()).start().watching();
    let before = world.stored();
    let mut bad = json!({"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "103"}, "spec": {}});
    spoil_a(&mut bad);
    world.server.inject(Inject::Line(line("MODIFIED", &bad)));
    world.told.wait(0, "it is told", |e| matches!(e, ReflectorEvent::Skipped { .. }).then_some(()));
    assert_eq!(world.stored(), before);
    // And the watch goes on.
    assert_eq!((world.server.open_watches(), world.server.asked().len()), (1, 2));
    world.end("a bad frame");
}

/// Whose change was lost is not known, so the whole state is asked for.
#[test]
fn a_frame_of_nobody_knows_which_object_leads_to_a_list() {
    let mut world = World::new(two_pods()).start().watching();
    let mut nameless = json!({"metadata": {"name": "a"}, "spec": {}});
    spoil_a_with_its_name(&mut nameless);
    world.server.inject(Inject::Line(line("MODIFIED", &nameless)));
    let failure = world.sit_out();
    assert_eq!(failure.kind, FailureKind::Unreadable, "{}", failure.message);
    world.asked("a list", &["list any", "watch 102", "list >=102", "watch 102"]);
    world.end("a nameless frame");
}

#[test]
fn a_token_that_expires_between_pages_leads_to_one_list_without_pages() {
    let server = two_pods();
    server.put_named("pods", "ns", "c", json!({}));
    server.fault(On::Page, Fault::status(410, "Expired", "too old", Value::Null));
    let mut world = World::with(server, |b| b.initial(InitialState::MostRecent).page_size(2)).start();
    expect("expired", &world.sit_out(), During::List, &Expired);
    world.asked("unpaged", &["list newest", "page", "list newest", "watch 103"]);
    let limits: Vec<_> = world.server.requests().iter().map(|r| r.query.get("limit").cloned()).collect();
    assert_eq!(limits, [Some("2".to_owned()), Some("2".to_owned()), None, None]);
    world.agrees("unpaged");
    world.end("unpaged");
}

/// 410 as an answer, which a real server seldom gives to a watch, in the stream, and to the list that follows.
#[test]
fn a_version_that_is_forgotten_is_found_out_in_each_of_three_ways() {
    let gone = || Fault::status(410, "Gone", "too old", Value::Null);
    for how in ["answer", "stream", "list"] {
        let mut world = World::new(two_pods()).start().watching();
        world.server.put_named("pods", "ns", "c", json!({}));
        world.agrees(how);
        // The line breaks, and is away for a while.
        world.server.fault(On::Watch, Fault::text(500, &[], "it broke"));
        world.server.inject(Inject::Cut);
        expect(how, &world.sit_out(), During::Stream, &Transport);
        let away = world.failure();
        expect(how, &away, During::Watch, &server_says(500, "", None));
        world.server.delete("pods", "ns", "a");
        world.server.put_named("pods", "ns", "d", json!({}));
        world.server.forget();
        if how == "answer" {
            world.server.fault(On::Watch, gone());
        }
        if how == "list" {
            world.server.fault(On::List, gone());
        }
        world.clock.advance(away.wait);
        let during = if how == "answer" { During::Watch } else { During::Stream };
        expect(how, &world.sit_out(), during, &Expired);
        if how == "list" {
            expect(how, &world.sit_out(), During::List, &Expired);
            world.asked(how, &["list any", "watch 102", "watch 103", "watch 103", "list >=103", "list newest", "watch 105"]);
        } else {
            world.asked(how, &["list any", "watch 102", "watch 103", "watch 103", "list >=103", "watch 105"]);
        }
        world.agrees(how);
        world.end(how);
    }
}

#[test]
fn a_list_that_is_not_answered_is_given_up_after_its_time() {
    for (what, fault) in [("no answer", Fault::Silent), ("half an answer", Fault::StalledBody)] {
        let server = two_pods();
        server.fault(On::List, fault);
        let mut world = World::new(server).start();
        world.server.wait(what, |s| s.asked().len() == 1);
        world.clock.advance(Duration::from_secs(74));
        assert!(!world.told.all().iter().any(|e| matches!(e, ReflectorEvent::Failed { .. })), "{what}: too early");
        world.clock.advance(Duration::from_secs(1));
        expect(what, &world.sit_out(), During::List, &Timeout);
        world.asked(what, &["list any", "list any", "watch 102"]);
        world.agrees(what);
        world.end(what);
    }
}

#[test]
fn a_watch_that_is_not_opened_is_given_up_after_its_time() {
    let server = two_pods();
    server.fault(On::Watch, Fault::Silent);
    let mut world = World::new(server).start();
    world.server.wait("the watch", |s| s.asked().len() == 2);
    world.clock.advance(Duration::from_secs(30));
    expect("silence", &world.sit_out(), During::Watch, &Timeout);
    world.asked("again", &["list any", "watch 102", "watch 102"]);
    world.end("a silent watch");
}

/// Nobody listens for a while, and then the server is back: nothing is listed again.
#[test]
fn a_server_that_goes_away_and_comes_back_is_resumed_from() {
    let mut world = World::new(two_pods()).start().watching();
    world.server.put_named("pods", "ns", "c", json!({}));
    world.agrees("before");
    world.server.shut_down();
    expect("cut", &world.sit_out(), During::Stream, &Transport);
    for _ in 0..3 {
        let failure = world.sit_out();
        expect("refused", &failure, During::Watch, &ConnectionRefused);
        assert!(failure.message.contains("is the server running"), "{}", failure.message);
    }
    let last = world.failure();
    expect("refused", &last, During::Watch, &ConnectionRefused);
    world.server.come_back();
    world.server.delete("pods", "ns", "a");
    world.clock.advance(last.wait);
    world.agrees("after");
    world.asked("nothing is listed again", &["list any", "watch 102", "watch 103"]);
    world.end("an outage");
}
