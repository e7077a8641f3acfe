//! Asking for a whole state as the beginning of a watch: the column "while listing", for the request and for the stream
//! before the end of its state.

use super::*;

fn run(script: Script) -> World {
    World::start_with(script.streaming(), Recorder::default(), |b| b.initial(InitialState::Streamed))
}

/// A later state is asked for, the first being at version 10.
fn later() -> Script {
    Script::new().watch_breaks("B@10", Kind::Expired)
}

const LATER: [&str; 4] = ["0 stream newest", "0 ! Stream Expired: InitialState after 0", "0 because Expired", "0 stream >=10"];

/// The first state is refused, or its stream fails before the end of the state; and the same for a later state.
#[track_caller]
fn state_cell(kind: &Kind, first: &[&str], second: &[&str]) {
    let refused: fn(Script, Kind) -> Script = Script::watch_fails;
    let broken: fn(Script, Kind) -> Script = |s, k| s.watch_breaks("+x@1 ~a@2", k);
    for fails in [refused, broken] {
        for (begins, script, expected) in [(&["0 stream newest"][..], Script::new(), first), (&LATER[..], later(), second)] {
            let mut w = run(fails(script, kind.clone()).watch("+a@1 B@20").list("20: a@1"));
            w.advance(20.0);
            let story: Vec<_> = w.story().into_iter().filter(|l| !l.ends_with("because First")).collect();
            assert_eq!(story[..begins.len()], *begins);
            let rest: Vec<_> = story[begins.len()..].iter().filter(|l| !l.contains("because")).collect();
            assert_eq!(rest, expected, "{kind:?}");
            assert!(w.given().last().unwrap().starts_with("all@20 a@1"), "nothing of the broken one");
            assert_eq!(w.stop(), Ok(()));
        }
    }
}

#[test]
fn state_that_fails_without_another_rule_is_asked_for_again_after_backoff_and_as_a_stream() {
    for (kind, name) in [
        (REASON(500, "StoreReadError"), "500"),
        (Kind::TooManyRequests { retry_after: None }, "TooManyRequests"),
        (Kind::ConnectionRefused, "ConnectionRefused"),
        (Kind::Connect, "Connect"),
        (Kind::Timeout, "Timeout"),
        (Kind::Transport, "Transport"),
        (Kind::Unauthorized, "Unauthorized"),
        (Kind::Forbidden, "Forbidden"),
        (Kind::NotFound, "NotFound"),
        (server(500), "500"),
        (Kind::Decode, "Decode"),
        (Kind::Other, "Other"),
        (Kind::Stopped, "Stopped"),
    ] {
        let failed = format!("0 ! List {name}: SameRequest after 0.8");
        state_cell(&kind, &[&failed, "0.8 stream newest"], &[&failed, "0.8 stream >=10"]);
    }
}

#[test]
fn state_with_advice_when_to_come_back_waits_at_least_that_long() {
    for (kind, name) in [
        (Kind::TooManyRequests { retry_after: ADVICE }, "TooManyRequests"),
        (Kind::Server { code: 503, reason: String::new(), retry_after: ADVICE }, "503"),
    ] {
        let failed = format!("0 ! List {name}: SameRequest after 7");
        state_cell(&kind, &[&failed, "7 stream newest"], &[&failed, "7 stream >=10"]);
    }
}

#[test]
fn state_expired_is_asked_for_the_most_recent_one_at_once_and_once() {
    let first = ["0 ! List Expired: SameRequest after 0.8", "0.8 stream newest"];
    state_cell(&Kind::Expired, &first, &["0 ! List Expired: MostRecent after 0", "0 stream newest"]);
    let mut w = run(later().watch_fails(Kind::Expired).watch_fails(Kind::Expired));
    w.advance(20.0);
    assert_eq!(w.asked()[2..], ["0 stream newest", "0.8 stream newest"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn state_of_a_version_too_large_is_asked_for_the_most_recent_one_at_once_and_then_after_backoff() {
    let first = ["0 ! List TooLargeVersion: SameRequest after 7", "7 stream newest"];
    state_cell(&too_large(), &first, &["0 ! List TooLargeVersion: MostRecent after 0", "0 stream newest"]);
    let script = later().watch_fails(too_large()).watch_breaks("B@20", too_large()).watch("B@30");
    let mut w = run(script);
    w.advance(20.0);
    assert_eq!(w.asked()[1..], ["0 stream >=10", "0 stream newest", "7 stream newest"], "no frame was accepted in between");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn state_with_a_version_that_the_server_finds_invalid_is_asked_for_the_most_recent_one_at_once() {
    for code in [400, 422] {
        let again = format!("0 ! List {code}: SameRequest after 0.8");
        let at_once = format!("0 ! List {code}: MostRecent after 0");
        state_cell(&server(code), &[&again, "0.8 stream newest"], &[&at_once, "0 stream newest"]);
    }
}

#[test]
fn state_that_cannot_be_streamed_is_listed_at_once_and_always_from_then_on() {
    let listed = ["0 ! List WatchListUnsupported: AsList after 0"];
    let first = [listed[0], "0 list any limit 500", "0 watch 20"];
    // The watch that `state_cell` scripts last is not asked for; this is the one after the list.
    let mut w = run(Script::new().watch_fails(Kind::WatchListUnsupported).list("20: a@1").watch_breaks("/1", Kind::Expired));
    w.advance(2.0);
    assert_eq!(
        w.story()[1..],
        [&first[..], &["1 ! Stream Expired: InitialState after 0", "1 because Expired", "1 list >=20"]].concat()
    );
    assert_eq!(w.stop(), Ok(()));
    // Also in the next run.
    w.stop = Stop::with_clock(&w.clock);
    let mut w = w.go();
    assert_eq!(w.asked().last().unwrap(), "2 list >=20");
    assert_eq!(w.stop(), Ok(()));

    let mut w = run(later().watch_breaks("+x@1", Kind::WatchListUnsupported).list("20: a@1"));
    assert_eq!(w.story()[4..], [listed[0], "0 because Expired", "0 list >=10", "0 watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_source_that_does_not_offer_it_is_asked_for_lists() {
    let script = Script::new().list("10: a@1").watch_breaks("", Kind::Expired).list("20:");
    let mut w = World::start_with(script, Recorder::default(), |b| b.initial(InitialState::Streamed));
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10", "0 list >=10", "0 watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn stream_that_ends_in_order_before_the_end_of_its_state_is_asked_for_again_and_the_third_time_by_a_list() {
    let script = Script::new().watch(".").watch("+a@1 .").watch("+a@1 b@5 /2 .").list("10: a@1");
    let mut w = run(script);
    w.advance(20.0);
    let expected = [
        "0 stream newest",
        "0 ! List NoEndMark: SameRequest after 0.8",
        "0.8 stream newest",
        "0.8 ! List NoEndMark: SameRequest after 1.6",
        "2.4 stream newest",
        "4.4 ! List NoEndMark: AsList after 3.2",
        "7.6 list any limit 500",
        "7.6 watch 10",
    ];
    assert_eq!(w.story(), expected);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.stop(), Ok(()));
}

/// A server that never says where a state ends costs one attempt for each state; one that does is trusted again.
#[test]
fn after_that_each_such_stream_is_followed_by_a_list_until_a_streamed_state_came() {
    let script = Script::new().watch(".").watch(".").watch(".").list("10:").watch_breaks("/90", Kind::Expired);
    let script = script.watch(".").list("20:").watch_breaks("/200", Kind::Expired);
    let script = script.watch_breaks("B@30 /300", Kind::Expired).watch(".").watch("B@40");
    let mut w = run(script);
    w.advance(1000.0);
    let asked: Vec<_> = w.asked().into_iter().map(|l| l.split_once(' ').unwrap().1.to_owned()).collect();
    let expected = [
        "stream newest",
        "stream newest",
        "stream newest",
        "list any limit 500",
        "watch 10",
        "stream >=10",
        "list >=10",
        "watch 20",
        "stream >=20",
        "stream >=30",
        "stream >=30",
    ];
    assert_eq!(asked, expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn stream_that_brings_nothing_for_thirty_seconds_before_the_end_of_its_state_has_no_end() {
    for (frames, at) in [("", "30"), ("+a@1 /29 +b@2", "59"), ("+a@1 /29 +b@2 /58 b@3 /200 B@5", "88")] {
        let mut w = run(Script::new().watch(frames).watch("+a@1 B@10"));
        w.advance(100.0);
        let again = at.parse::<f64>().unwrap() + 0.8;
        let expected = [
            "0 stream newest".to_owned(),
            format!("{at} ! List NoEndMark: SameRequest after 0.8"),
            format!("{again} stream newest"),
        ];
        assert_eq!(w.story(), expected, "{frames}");
        let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. }));
        assert!(matches!(&ended[..], [ReflectorEvent::Ended { how: Ending::TimedOut, .. }]), "{ended:?}");
        assert_eq!(w.stop(), Ok(()));
    }
}

/// One that keeps bringing changes and no end is ended by its own time-out.
#[test]
fn stream_that_never_comes_to_the_end_of_its_state_is_closed_when_the_server_should_have_ended_it() {
    let frames: Vec<_> = (1..100).map(|n| format!("/{} ~a@{n}", n * 20)).collect();
    let script = Script::new().watch(&frames.join(" ")).watch("B@1000").streaming();
    let mut w = World::start_with(script, Recorder::default(), |b| {
        b.initial(InitialState::Streamed).watch_timeout(secs(300.0)..=secs(300.0))
    });
    w.advance(320.0);
    assert_eq!(w.story()[1..], ["310 ! List NoEndMark: SameRequest after 0.8", "310.8 stream newest"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn streamed_state_that_the_sink_refuses_is_asked_for_again_after_backoff_and_its_stream_is_closed() {
    for (mood, contained) in [(Mood::Refuse, &[][..]), (Mood::Panic, &["the sink panics"][..])] {
        let script = Script::new().watch("+a@1 B@10 ~a@11").watch("+a@1 B@10 ~a@11").streaming();
        let mut w = World::start_with(script, Recorder::moods([mood]), |b| b.initial(InitialState::Streamed));
        assert_eq!((w.script.open(), w.reflector.last_version().as_str()), (0, ""));
        w.advance(20.0);
        let expected = ["0 stream newest", "0 ! List SinkRefused: SameRequest after 0.8", "0.8 stream newest"];
        assert_eq!(w.story(), expected);
        assert_eq!(w.given(), ["all@10 a@1", "~a@11"]);
        let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. }));
        assert!(matches!(&ended[..], [ReflectorEvent::Ended { how: Ending::SinkRefused, .. }]), "{ended:?}");
        assert_eq!(w.stop(), Ok(()));
        assert_contained(&w.clock, contained);
    }
}

#[test]
fn streamed_state_below_the_position_that_is_not_consistent_is_not_taken() {
    let mut w = run(later().watch("+z@3 B@9 +y@10").watch("+a@1 B@12"));
    let story = ["0 ! List TooLargeVersion: MostRecent after 0", "0 because Expired", "0 stream newest"];
    assert_eq!(w.story()[4..], story);
    assert_eq!(w.given(), ["all@10", "all@12 a@1"]);
    assert_eq!(w.script.open(), 1);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn streamed_state_without_a_version_is_none() {
    let mut w = run(Script::new().watch("+a@1 B").watch("+a@1 B@10"));
    w.advance(5.0);
    assert_eq!(w.story()[1..], ["0 ! List Other: SameRequest after 0.8", "0.8 stream newest"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn objects_of_a_streamed_state_that_cannot_be_read_are_kept_and_without_a_name_nothing_is_deleted() {
    let mut w = run(Script::new().watch("+a@1 +?c@2 +bad@3 B@10"));
    assert_eq!(w.given(), ["all@10 a@1 keep c keep bad"]);
    assert_eq!(w.reflector.health().stale_objects, 2);
    assert_eq!(w.stop(), Ok(()));
    let mut w = run(Script::new().watch("+a@1 +? B@10"));
    assert_eq!(w.given(), ["all@10 a@1 incomplete"]);
    assert_eq!(w.stop(), Ok(()));
}
