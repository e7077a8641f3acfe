//! Silent watches are checked: what is asked, when, and what follows from each answer.

use super::{script::*, *};
use crate::{reflector::Ending, source::SourceErrorKind as Kind};

/// Watches may last 1000 s; a silence of 150 s is checked.
fn run(script: Script) -> World {
    run_with(script, 1000.0)
}

fn run_with(script: Script, timeout: f64) -> World {
    World::start_with(script, Recorder::default(), |b| b.silence(secs(150.0)).watch_timeout(secs(timeout)..=secs(timeout)))
}

fn probed(w: &World) -> Vec<(Option<Kind>, Option<Duration>)> {
    w.told(|e| matches!(e, ReflectorEvent::Probed { .. }))
        .into_iter()
        .map(|e| match e {
            ReflectorEvent::Probed { failure, again, .. } => (failure, again),
            _ => (None, None),
        })
        .collect()
}

fn too_large() -> Kind {
    Kind::TooLargeVersion { retry_after: Some(secs(7.0)) }
}

#[test]
fn v13_a_silent_watch_is_checked_once_and_goes_on_when_the_server_answers() {
    let mut w = run(Script::new().list("10: a@1").watch("/400 ~a@11 /450 b@12").list("300: a@1").list("300: a@1"));
    w.advance(900.0);
    let expected = ["0 list any limit 500", "0 watch 10", "150 list >=10 limit 1", "600 list >=12 limit 1"];
    assert_eq!(w.story(), expected, "once for each silence, which a bookmark ends too");
    assert_eq!(w.given(), ["all@10 a@1", "~a@11", "b@12"], "of the answer nothing is kept");
    assert_eq!(probed(&w), [(None, None), (None, None)]);
    assert_eq!((w.script.open(), w.reflector.last_version().as_str()), (1, "12"));
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_frames_that_keep_coming_keep_it_from_being_checked() {
    let frames: Vec<_> = (1..10).map(|n| format!("/{} b@{}", n * 100, 10 + n)).collect();
    let mut w = run(Script::new().list("10:").watch(&frames.join(" ")));
    w.advance(900.0);
    assert_eq!(w.asked().len(), 2);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_a_server_that_has_not_reached_the_version_is_asked_for_the_most_recent_state_at_once() {
    let script = Script::new().list("500: a@400 b@450").watch("").list_fails(too_large()).list("100: a@90").watch("~a@101");
    let mut w = run(script);
    w.advance(200.0);
    let expected = [
        "150 list >=500 limit 1",
        "150 ! Stream TooLargeVersion: MostRecent after 0",
        "150 because TooLargeVersion",
        "150 list newest limit 500",
        "150 watch 100",
    ];
    assert_eq!(w.story()[2..], expected);
    assert_eq!(w.given(), ["all@500 a@400 b@450", "all@100 a@90 era", "~a@101"], "restored from a backup");
    assert_eq!(probed(&w), [(Some(too_large()), None)]);
    assert_eq!((w.script.open(), w.reflector.last_version().as_str()), (1, "101"));
    assert_eq!(w.stop(), Ok(()));
}

/// Versions without an order: the answer alone decides.
#[test]
fn v13_needs_no_order_of_versions() {
    let script = Script::new().orderless().list("x: a@p").watch("").list_fails(too_large()).list("q: a@p");
    let mut w = run(script);
    w.advance(200.0);
    assert_eq!(w.given(), ["all@x a@p", "all@q a@p era"]);
    assert_eq!(w.stop(), Ok(()));
}

/// A source may take the version for advice.
#[test]
fn v13_an_answer_below_the_position_is_one_that_has_not_reached_it() {
    let mut w = run(Script::new().list("500: a@400").watch("").list("100: a@90").list("100: a@90"));
    w.advance(200.0);
    assert_eq!(w.asked()[2..], ["150 list >=500 limit 1", "150 list newest limit 500", "150 watch 100"]);
    assert_eq!(w.given(), ["all@500 a@400", "all@100 a@90 era"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_when_nobody_answers_the_stream_is_closed_and_watched_again_at_once() {
    for kind in [Kind::Timeout, Kind::Transport, Kind::Connect, Kind::ConnectionRefused] {
        let mut w =
            run(Script::new().list("10: a@1").watch("").list_fails(kind.clone()).watch_fails(Kind::Transport).watch("~a@11"));
        w.advance(200.0);
        let expected = [
            "150 list >=10 limit 1",
            "150 ! Stream Timeout: SameWatch after 0",
            "150 watch 10",
            // As after every broken stream: the first request may meet a dead connection of the same pool.
            "150 ! Watch Transport: SameWatch after 0",
            "150 watch 10",
        ];
        assert_eq!(w.story()[2..], expected);
        assert_eq!(w.script.open(), 1, "the dead one was closed");
        let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. } | ReflectorEvent::Probed { .. }));
        let [ReflectorEvent::Probed { failure, .. }, ReflectorEvent::Ended { how, .. }] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((failure, how), (&Some(kind), &Ending::HalfOpen));
        assert_eq!(w.given(), ["all@10 a@1", "~a@11"]);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn v13_any_other_answer_shows_a_server_and_the_check_is_repeated_after_backoff() {
    let advice = Kind::TooManyRequests { retry_after: Some(secs(7.0)) };
    for (kind, waits) in
        [(Kind::Forbidden, [0.8, 1.6]), (Kind::Other, [0.8, 1.6]), (advice, [7.0, 7.0]), (Kind::Expired, [0.8, 1.6])]
    {
        let script = Script::new().list("10:").watch("").list_fails(kind.clone()).list_fails(kind.clone()).list("11:");
        let mut w = run(script);
        w.advance(500.0);
        let (second, third) = (150.0 + waits[0], 150.0 + waits[0] + waits[1]);
        let lines = [second, third].map(|at| format!("{at} list >=10 limit 1"));
        assert_eq!(w.story()[2..], [&["150 list >=10 limit 1".to_owned()][..], &lines].concat(), "{kind:?}");
        assert_eq!(w.reflector.health().last_error.unwrap().during, crate::reflector::During::Probe);
        let waits = waits.map(|wait| (Some(kind.clone()), Some(secs(wait))));
        assert_eq!(probed(&w), [&waits[..], &[(None, None)]].concat());
        assert_eq!(w.script.open(), 1);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn v13_a_frame_ends_the_repeated_check() {
    let script = Script::new().list("10:").watch("/150.4 b@11").list_fails(Kind::Forbidden).list("12:");
    let mut w = run(script);
    w.advance(400.0);
    assert_eq!(w.asked()[2..], ["150 list >=10 limit 1", "300.4 list >=11 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_a_watch_that_brought_nothing_until_its_orderly_end_is_checked_before_the_next() {
    let mut w = run_with(Script::new().list("10:").watch("/4 .").list("10:").watch("/8 ."), 4.0);
    w.advance(7.0);
    assert_eq!(w.story()[2..], ["4 list >=10 limit 1", "4 watch 10"]);
    assert_eq!(w.stop(), Ok(()));

    let script = Script::new().list("500:").watch("/4 .").list_fails(too_large()).list("100: a@90");
    let mut w = run_with(script, 4.0);
    w.advance(7.0);
    assert_eq!(w.asked()[2..], ["4 list >=500 limit 1", "4 list newest limit 500", "4 watch 100"]);
    assert_eq!(w.given(), ["all@500", "all@100 a@90 era"]);
    assert_eq!(w.stop(), Ok(()));

    // Nobody answers: the next watch will see for itself, and may meet a dead connection once.
    let script = Script::new().list("10:").watch("/4 .").list_fails(Kind::Timeout).watch_fails(Kind::Transport);
    let mut w = run_with(script, 4.0);
    w.advance(7.0);
    assert_eq!(w.asked()[2..], ["4 list >=10 limit 1", "4 watch 10", "4 watch 10"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_an_unclear_check_is_repeated_in_the_next_watch_too() {
    let refused = || Kind::TooManyRequests { retry_after: Some(secs(20.0)) };
    let script = Script::new().list("10:").watch("/4 .").list_fails(refused()).watch("").list("10:");
    let mut w = run_with(script, 1000.0);
    w.advance(400.0);
    assert_eq!(w.asked()[2..], ["4 list >=10 limit 1", "4 watch 10", "24 list >=10 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
    // Nor does the orderly end make a check of its own of it.
    let script = Script::new().list("10:").watch("/160 .").list_fails(refused()).watch("").list("10:");
    let mut w = run_with(script, 1000.0);
    w.advance(400.0);
    assert_eq!(w.asked()[2..], ["150 list >=10 limit 1", "160 watch 10", "170 list >=10 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_nothing_is_checked_twice_nor_after_a_frame_nor_in_a_watch_that_was_too_short() {
    for (frames, asked) in [
        // Checked while it was silent, and not again at its end.
        ("/160 .", vec!["150 list >=10 limit 1", "160 watch 10"]),
        ("/4 b@10 .", vec!["4 watch 10"]),
        ("/0.9 .", vec!["1.7 watch 10"]),
    ] {
        let mut w = run_with(Script::new().list("10:").watch(frames).list("10:"), 1000.0);
        w.advance(165.0);
        let rest: Vec<_> = w.asked().into_iter().skip(2).filter(|l| !l.starts_with("15")).collect();
        let expected: Vec<_> = asked.iter().filter(|l| !l.starts_with("15")).collect();
        assert_eq!(rest, expected.iter().map(|l| (**l).to_owned()).collect::<Vec<_>>(), "{frames}");
        if frames == "/160 ." {
            assert_eq!(w.asked()[2], asked[0]);
        }
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn v13_is_off_when_nothing_is_silence() {
    let mut w = World::start_with(Script::new().list("10:").watch("/4 .").watch(""), Recorder::default(), |b| {
        b.watch_timeout(secs(100_000.0)..=secs(100_000.0))
    });
    w.advance(90_000.0);
    assert_eq!(w.asked()[1..], ["0 watch 10", "4 watch 10"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_a_stop_ends_a_check_and_closes_the_stream() {
    let mut w = run(Script::new().list("10:").watch("").page(Page::Hang));
    w.advance(160.0);
    assert_eq!(w.asked()[2..], ["150 list >=10 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
    assert_eq!(w.told(|e| matches!(e, ReflectorEvent::Probed { .. })), []);
}

#[test]
fn v13_a_check_that_panics_shows_nothing_and_is_repeated() {
    let mut w = run(Script::new().list("10:").watch("").page(Page::Panic("list")).list("10:"));
    w.advance(160.0);
    assert_eq!(w.asked()[2..], ["150 list >=10 limit 1", "150.8 list >=10 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["list"]);
}

#[test]
fn v13_what_a_check_brings_is_neither_transformed_nor_handed_over() {
    let mut w = run(Script::new().list("10:").watch("").list("20: panic@15 ?c@16 a@17"));
    w.advance(160.0);
    assert_eq!(w.given(), ["all@10"]);
    assert_eq!((w.reflector.health().stale_objects, w.reflector.last_version().as_str()), (0, "10"));
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_a_watch_that_began_with_a_state_is_silent_from_the_end_of_that_on() {
    let script = Script::new().watch("+a@1 /20 B@10").list("10:").streaming();
    let mut w = World::start_with(script, Recorder::default(), |b| {
        b.initial(InitialState::Streamed).silence(secs(150.0)).watch_timeout(secs(1000.0)..=secs(1000.0))
    });
    w.advance(400.0);
    assert_eq!(w.asked(), ["0 stream newest", "170 list >=10 limit 1"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v13_the_watch_that_should_have_ended_is_closed_without_a_check() {
    let mut w = World::start_with(Script::new().list("10:"), Recorder::default(), |b| {
        b.silence(secs(310.0)).watch_timeout(secs(300.0)..=secs(300.0))
    });
    w.advance(320.0);
    assert_eq!(w.story()[2..], ["310 ! Stream Timeout: SameWatch after 0", "310 watch 10"]);
    assert_eq!(w.stop(), Ok(()));
}
