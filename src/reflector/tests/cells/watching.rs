//! Asking for a watch, and in one. Where the two columns agree, one test checks both.

use super::*;

/// Both columns of the watch where they agree. A stream fails at once here: it did not live.
#[track_caller]
fn watch_cell(kind: &Kind, then: impl Fn(Script) -> Script, expected: &[&str]) {
    for (during, script) in [
        ("Watch", Script::new().list("10:").watch_fails(kind.clone())),
        ("Stream", Script::new().list("10:").watch_breaks("", kind.clone())),
    ] {
        let mut w = World::start(then(script));
        w.advance(20.0);
        let expected: Vec<_> = expected.iter().map(|line| line.replace("! Watch", &format!("! {during}"))).collect();
        assert_eq!(w.story()[..2], ["0 list any limit 500", "0 watch 10"]);
        assert_eq!(w.story()[2..], expected, "{during} {kind:?}");
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn watch_that_the_server_cannot_read_leads_to_a_list_after_backoff() {
    let expected = ["0 ! Watch 500: InitialState after 0.8", "0.8 because StoreReadError", "0.8 list >=10", "0.8 watch 20"];
    watch_cell(&REASON(500, "StoreReadError"), |s| s.list("20:"), &expected);
}

#[test]
fn watch_of_an_expired_version_leads_to_a_list_at_once() {
    let expected = ["0 ! Watch Expired: InitialState after 0", "0 because Expired", "0 list >=10", "0 watch 20"];
    watch_cell(&Kind::Expired, |s| s.list("20:"), &expected);
}

#[test]
fn watch_of_a_version_too_large_leads_to_the_most_recent_state_at_once_and_then_after_backoff() {
    let expected = [
        "0 ! Watch TooLargeVersion: MostRecent after 0",
        "0 because TooLargeVersion",
        "0 list newest limit 500",
        "0 watch 20",
        "0 ! Watch TooLargeVersion: MostRecent after 7",
        "7 because TooLargeVersion",
        "7 list newest limit 500",
        "7 watch 30",
        "7 ! Watch TooLargeVersion: MostRecent after 0",
        "7 because TooLargeVersion",
        "7 list newest limit 500",
        "7 watch 50",
    ];
    let then = |s: Script| {
        let s = s.list("20:").watch_fails(too_large()).list("30:");
        // A frame was accepted: the next one goes at once again.
        s.watch_breaks("b@40", too_large()).list("50:")
    };
    // The stream's own lines differ in the middle, so this row is checked by its requests and waits.
    for first in [Script::new().list("10:").watch_fails(too_large()), Script::new().list("10:").watch_breaks("", too_large())] {
        let mut w = World::start(then(first));
        w.advance(20.0);
        let strip = |line: &str| line.replace("! Stream", "! Watch");
        assert_eq!(w.story()[2..].iter().map(|l| strip(l)).collect::<Vec<_>>(), expected);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn watch_with_advice_when_to_come_back_waits_at_least_that_long_and_resumes() {
    for (kind, name) in [
        (Kind::TooManyRequests { retry_after: ADVICE }, "TooManyRequests"),
        (Kind::Server { code: 503, reason: String::new(), retry_after: ADVICE }, "503"),
    ] {
        watch_cell(&kind, |s| s, &[&format!("0 ! Watch {name}: SameWatch after 7"), "7 watch 10"]);
    }
    let kind = Kind::TooManyRequests { retry_after: None };
    watch_cell(&kind, |s| s, &["0 ! Watch TooManyRequests: SameWatch after 0.8", "0.8 watch 10"]);
}

#[test]
fn watch_refused_connections_keep_the_position_on_a_ladder_of_their_own() {
    let expected = [
        "0 ! Watch ConnectionRefused: SameWatch after 0.8",
        "0.8 watch 10",
        "0.8 ! Watch ConnectionRefused: SameWatch after 1.6",
        "2.4 watch 10",
        "2.4 ! Watch ConnectionRefused: SameWatch after 2",
        "4.4 watch 10",
        "4.4 ! Watch ConnectionRefused: SameWatch after 2",
        "6.4 watch 10",
    ];
    let mut script = Script::new().list("10:");
    for _ in 0..4 {
        script = script.watch_fails(Kind::ConnectionRefused);
    }
    cell(script, &[&["0 list any limit 500", "0 watch 10"], &expected[..]].concat());
}

#[test]
fn watch_that_a_server_on_its_way_back_says_no_to_is_asked_again_as_soon_as_a_refused_one_for_ten_seconds() {
    let mut script = Script::new().list("10:").watch_fails(Kind::ConnectionRefused);
    for kind in [Kind::Forbidden, Kind::Unauthorized, Kind::NotFound, Kind::Forbidden, Kind::Forbidden, Kind::Forbidden] {
        script = script.watch_fails(kind);
    }
    let expected = [
        "0 list any limit 500",
        "0 watch 10",
        "0 ! Watch ConnectionRefused: SameWatch after 0.8",
        "0.8 watch 10",
        "0.8 ! Watch Forbidden: SameWatch after 1.6",
        "2.4 watch 10",
        "2.4 ! Watch Unauthorized: SameWatch after 2",
        "4.4 watch 10",
        "4.4 ! Watch NotFound: SameWatch after 2",
        "6.4 watch 10",
        "6.4 ! Watch Forbidden: SameWatch after 2",
        "8.4 watch 10",
        "8.4 ! Watch Forbidden: SameWatch after 2",
        // Ten seconds after the last refused connection no is no, and the other ladder stands where it stood.
        "10.4 watch 10",
        "10.4 ! Watch Forbidden: SameWatch after 0.8",
        "11.2 watch 10",
    ];
    cell(script, &expected);
}

#[test]
fn watch_that_cannot_be_opened_backs_off_and_resumes() {
    for (kind, name) in [(Kind::Connect, "Connect"), (Kind::Timeout, "Timeout"), (Kind::Transport, "Transport")] {
        let script = Script::new().list("10:").watch_fails(kind.clone()).watch_fails(kind);
        let lines = [0.8, 1.6].map(|wait| format!("! Watch {name}: SameWatch after {wait}"));
        let lines = [format!("0 {}", lines[0]), "0.8 watch 10".into(), format!("0.8 {}", lines[1]), "2.4 watch 10".into()];
        let mut w = World::start(script);
        w.advance(20.0);
        assert_eq!(w.story()[2..], lines);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn watch_that_cannot_be_opened_directly_after_a_broken_stream_is_asked_again_at_once_and_once() {
    let script = Script::new().list("10:").watch_breaks("/2", Kind::Transport);
    let script = script.watch_fails(Kind::Transport).watch_fails(Kind::Transport).watch_fails(Kind::Transport);
    let expected = [
        "0 list any limit 500",
        "0 watch 10",
        "2 ! Stream Transport: SameWatch after 0",
        "2 watch 10",
        "2 ! Watch Transport: SameWatch after 0",
        "2 watch 10",
        "2 ! Watch Transport: SameWatch after 0.8",
        "2.8 watch 10",
        "2.8 ! Watch Transport: SameWatch after 1.6",
        "4.4 watch 10",
    ];
    cell(script, &expected);
}

#[test]
fn watch_that_cannot_be_opened_after_an_orderly_end_is_no_stale_connection() {
    let script = Script::new().list("10:").watch("/2 .").watch_fails(Kind::Transport);
    let expected =
        ["0 list any limit 500", "0 watch 10", "2 watch 10", "2 ! Watch Transport: SameWatch after 0.8", "2.8 watch 10"];
    cell(script, &expected);
}

#[test]
fn stream_that_broke_after_it_lived_is_resumed_at_once() {
    for kind in [Kind::Connect, Kind::Timeout, Kind::Transport] {
        let name = format!("{kind:?}");
        for (frames, at, from) in [("~a@11", 0, 11), ("/1", 1, 10), ("/1 ~a@11", 1, 11)] {
            let mut w = World::start(Script::new().list("10: a@1").watch_breaks(frames, kind.clone()));
            w.advance(20.0);
            let failed = format!("{at} ! Stream {name}: SameWatch after 0");
            assert_eq!(w.story()[2..], [failed, format!("{at} watch {from}")], "{frames}");
            assert_eq!(w.stop(), Ok(()));
        }
    }
}

#[test]
fn stream_that_broke_before_it_lived_backs_off() {
    // A bookmark at the very version moves nothing.
    for frames in ["", "/0.9", "b@10"] {
        let mut w = World::start(Script::new().list("10: a@1").watch_breaks(frames, Kind::Transport));
        w.advance(20.0);
        let story = w.story();
        assert!(story[2].ends_with("! Stream Transport: SameWatch after 0.8"), "{story:?}");
        assert!(story[3].ends_with("watch 10"), "{story:?}");
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn watch_without_the_right_keeps_its_position() {
    for (kind, name) in [(Kind::Unauthorized, "Unauthorized"), (Kind::Forbidden, "Forbidden"), (Kind::NotFound, "NotFound")] {
        let then = |s: Script| s.watch_fails(kind.clone()).watch_fails(kind.clone()).watch_fails(kind.clone());
        let lines = [
            format!("0 ! Watch {name}: SameWatch after 0.8"),
            "0.8 watch 10".into(),
            format!("0.8 ! Watch {name}: SameWatch after 1.6"),
            "2.4 watch 10".into(),
            format!("2.4 ! Watch {name}: SameWatch after 3.2"),
            "5.6 watch 10".into(),
            format!("5.6 ! Watch {name}: SameWatch after 6.4"),
            "12 watch 10".into(),
        ];
        let mut w = World::start(then(Script::new().list("10:").watch_fails(kind.clone())));
        w.advance(20.0);
        assert_eq!(w.story()[2..], lines, "never counted: no list at the third");
        assert_eq!(w.stop(), Ok(()));
    }
    watch_cell(&Kind::Forbidden, |s| s, &["0 ! Watch Forbidden: SameWatch after 0.8", "0.8 watch 10"]);
}

#[test]
fn watch_failures_that_count_lead_to_a_list_at_the_third_in_a_row_after_its_backoff() {
    for (kind, name) in [
        (server(400), "400"),
        (server(422), "422"),
        (server(500), "500"),
        (Kind::Decode, "Decode"),
        (Kind::Other, "Other"),
        (Kind::Stopped, "Stopped"),
        (Kind::WatchListUnsupported, "WatchListUnsupported"),
    ] {
        for during in ["Watch", "Stream"] {
            let mut script = Script::new().list("10:");
            for _ in 0..3 {
                script = if during == "Watch" { script.watch_fails(kind.clone()) } else { script.watch_breaks("", kind.clone()) };
            }
            let mut w = World::start(script.list("20:"));
            w.advance(20.0);
            let failed = |at, action: &str, wait| format!("{at} ! {during} {name}: {action} after {wait}");
            let expected = [
                failed(0.0, "SameWatch", 0.8),
                "0.8 watch 10".into(),
                failed(0.8, "SameWatch", 1.6),
                "2.4 watch 10".into(),
                failed(2.4, "InitialState", 3.2),
                "5.6 because Repeated".into(),
                "5.6 list >=10".into(),
                "5.6 watch 20".into(),
            ];
            assert_eq!(w.story()[2..], expected);
            assert_eq!(w.stop(), Ok(()));
        }
    }
}

#[test]
fn watch_failures_are_counted_anew_after_an_accepted_frame_and_after_a_list() {
    let script = Script::new().list("10:").watch_fails(Kind::Other).watch_fails(Kind::Other);
    // The frame makes the third the first.
    let script = script.watch_breaks("b@11", Kind::Other).watch_fails(Kind::Other).watch_fails(Kind::Other).list("20:");
    let script = script.watch_fails(Kind::Other).watch_fails(Kind::Other);
    let mut w = World::start(script);
    w.advance(300.0);
    let asked: Vec<_> = w.asked().into_iter().map(|l| l.split_once(' ').unwrap().1.to_owned()).collect();
    let expected = [
        "list any limit 500",
        "watch 10",
        "watch 10",
        "watch 10",
        "watch 11",
        "watch 11",
        "list >=11",
        "watch 20",
        "watch 20",
        "watch 20",
    ];
    assert_eq!(asked, expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn watch_failures_before_a_list_for_another_reason_are_forgotten() {
    let script = Script::new().list("10:").watch_fails(Kind::Other).watch_fails(Kind::Other).watch_fails(Kind::Expired);
    let mut w = World::start(script.list("20:").watch_fails(Kind::Other).watch_fails(Kind::Other));
    w.advance(60.0);
    let asked: Vec<_> = w.asked().into_iter().map(|l| l.split_once(' ').unwrap().1.to_owned()).collect();
    assert_eq!(asked[3..], ["watch 10", "list >=10", "watch 20", "watch 20", "watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn stream_that_ends_in_order_after_it_lived_is_followed_by_another_at_once_and_is_no_failure() {
    for (frames, at, from) in [("~a@11 .", 0, 11), ("/1 .", 1, 10)] {
        let mut w = World::start(Script::new().list("10: a@1").watch(frames));
        w.advance(5.0);
        assert_eq!(w.story()[2..], [format!("{at} watch {from}")]);
        assert_eq!(w.reflector.health().last_error, None);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn stream_that_ends_at_once_backs_off_and_counts() {
    let script = Script::new().list("10:").watch(".").watch("/0.9 .").watch(".").list("20:");
    let expected = [
        "0 list any limit 500",
        "0 watch 10",
        "0 ! Stream CleanEnd: SameWatch after 0.8",
        "0.8 watch 10",
        "1.7 ! Stream CleanEnd: SameWatch after 1.6",
        "3.3 watch 10",
        "3.3 ! Stream CleanEnd: InitialState after 3.2",
        "6.5 because Repeated",
        "6.5 list >=10",
        "6.5 watch 20",
    ];
    cell(script, &expected);
}

#[test]
fn stream_whose_batch_the_sink_refuses_is_followed_by_a_list_after_backoff() {
    for (mood, contained) in [(Mood::Refuse, &[][..]), (Mood::Panic, &["the sink panics"][..])] {
        let script = Script::new().list("10: a@1").watch("~a@11").list("12: a@11");
        let mut w = World::start_with(script, Recorder::moods([Mood::Take, mood]), |b| b);
        assert_eq!(w.reflector.last_version(), "10", "what the sink did not take moves nothing");
        w.advance(20.0);
        let expected =
            ["0 ! Stream SinkRefused: InitialState after 0.8", "0.8 because SinkRefused", "0.8 list >=10", "0.8 watch 12"];
        assert_eq!(w.story()[2..], expected);
        assert_eq!(w.told(|e| matches!(e, ReflectorEvent::Refused { .. })).len(), 1);
        assert_eq!(w.given(), ["all@10 a@1", "all@12 a@11"]);
        assert_eq!(w.stop(), Ok(()));
        assert_contained(&w.clock, contained);
    }
}

#[test]
fn stream_whose_batch_the_sink_took_in_part_is_followed_by_the_most_recent_state() {
    let script = Script::new().list("10: a@1").watch("~a@11 ~a@12").list("12: a@12");
    let mut w = World::start_with(script, Recorder::moods([Mood::Take, Mood::TakeSome(1)]), |b| b);
    w.advance(20.0);
    let expected = [
        "0 ! Stream SinkRefused: InitialState after 0.8",
        "0.8 because SinkRefused",
        "0.8 list newest limit 500",
        "0.8 watch 12",
    ];
    assert_eq!(w.story()[2..], expected, "a list not older than 10 could undo a@11");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn stream_with_an_object_of_unknown_name_is_followed_by_a_list_after_backoff() {
    let script = Script::new().list("10: a@1").watch("~a@11 ~? ~a@12").list("12: a@12");
    let mut w = World::start(script);
    assert_eq!(w.given(), ["all@10 a@1", "~a@11"], "what came before it is applied, what came after it is not");
    w.advance(20.0);
    let expected = ["0 ! Stream Unreadable: InitialState after 0.8", "0.8 because Unreadable", "0.8 list >=11", "0.8 watch 12"];
    assert_eq!(w.story()[2..], expected);
    assert_eq!(w.told(|e| matches!(e, ReflectorEvent::Skipped { key: None, .. })).len(), 1);
    assert_eq!(w.stop(), Ok(()));
}
