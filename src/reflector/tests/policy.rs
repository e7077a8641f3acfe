//! Waits, spreads and ladders, time-outs, batches, position and health.

use super::{script::*, *};
use crate::{
    reflector::{Action, Ending},
    source::SourceErrorKind as Kind,
};

#[test]
fn v7_backoff_begins_anew_after_two_minutes_without_a_failure() {
    let fail = |s: Script| s.watch_fails(Kind::Forbidden).watch_fails(Kind::Forbidden);
    let script = fail(Script::new().list("10:")).watch_breaks("/119", Kind::Forbidden).watch_breaks("/121", Kind::Forbidden);
    let mut w = World::start(script);
    w.advance(300.0);
    let waits: Vec<_> = w.story().iter().filter_map(|l| l.rsplit_once("after ").map(|(_, wait)| wait.to_owned())).collect();
    assert_eq!(waits, ["0.8", "1.6", "3.2", "0.8"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v7_two_reflectors_do_not_wait_in_step_and_a_seed_makes_waits_repeat() {
    let waits = |seed| {
        let mut script = Script::new();
        for _ in 0..5 {
            script = script.list_fails(Kind::Forbidden);
        }
        let w = World::start_with(script, Recorder::default(), |b| b.backoff(Backoff::default()).seed(seed));
        w.advance(100.0);
        w.asked()
    };
    assert_eq!(waits(1), waits(1));
    assert_ne!(waits(1), waits(2));
}

#[test]
fn v11_a_410_adds_nothing_to_the_backoff() {
    let script = Script::new().list("10:").watch_fails(Kind::Expired).list("20:").watch_fails(Kind::Forbidden);
    let mut w = World::start(script);
    w.advance(5.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10", "0 list >=10", "0 watch 20", "0.8 watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v11_the_list_after_a_410_is_spread_over_one_second_unless_told_otherwise() {
    let at: Vec<f64> = (0..20)
        .map(|seed| {
            let script = Script::new().list("10:").watch_fails(Kind::Expired).list("20:");
            let w = World::start_with(script, Recorder::default(), |b| b.seed(seed).relist_spread(secs(1.0)));
            w.advance(2.0);
            w.asked()[2].split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    assert!(at.iter().all(|t| (0.0..=1.0).contains(t)), "{at:?}");
    assert!(at.iter().any(|t| *t < 0.3) && at.iter().any(|t| *t > 0.7), "{at:?}");
}

#[test]
fn v11_a_list_a_bookmark_and_a_410_over_and_over_back_off() {
    let mut script = Script::new().list("10:");
    for n in 1..60 {
        script = script.watch_breaks(&format!("b@{}", 10 * n + 1), Kind::Expired).list(&format!("{}:", 10 * n + 10));
    }
    let mut w = World::start(script);
    w.advance(300.0);
    let at: Vec<_> = w.asked().iter().filter(|l| l.contains("list")).map(|l| l.split(' ').next().unwrap().to_owned()).collect();
    // The first 410 is answered at once; from then on each comes too soon after the list before it.
    let expected = [
        "0", "0", "0.8", "2.4", "5.6", "12", "24.8", "50.4", "80.4", "110.4", "140.4", "170.4", "200.4", "230.4", "260.4",
        "290.4",
    ];
    assert_eq!(at, expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v11_ten_seconds_after_the_last_list_for_this_reason_began_the_next_goes_at_once_again() {
    for (lived, wait) in [("/9.9", 0.8), ("/10", 0.0)] {
        let script = Script::new().list("10:").watch_fails(Kind::Expired).list("20:").watch_breaks(lived, Kind::Expired);
        let mut w = World::start(script);
        w.advance(15.0);
        let line = w.story().into_iter().rfind(|l| l.contains('!')).unwrap();
        assert!(line.ends_with(&format!("Stream Expired: InitialState after {wait}")), "{line}");
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn v15_refused_connections_do_not_make_the_first_answer_meet_a_long_wait() {
    let mut script = Script::new().list("10: a@1").watch_breaks("/1", Kind::Transport);
    for _ in 0..30 {
        script = script.watch_fails(Kind::ConnectionRefused);
    }
    let script = script.watch_fails(Kind::TooManyRequests { retry_after: None }).watch_fails(Kind::Expired).list("20: a@9");
    let mut w = World::start(script);
    w.advance(120.0);
    let story = w.story();
    let up = story.iter().position(|l| l.contains("TooManyRequests")).unwrap();
    // 1 s, then 0.8, 1.6 and 28 times 2 s.
    assert_eq!(story[up], "59.4 ! Watch TooManyRequests: SameWatch after 0.8");
    assert_eq!(
        story[up + 1..],
        [
            "60.2 watch 10",
            "60.2 ! Watch Expired: InitialState after 0",
            "60.2 because Expired",
            "60.2 list >=10",
            "60.2 watch 20"
        ]
    );
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn watch_timeouts_are_taken_as_asked_and_drawn_from_the_whole_range() {
    let timeouts = |least: f64, most: f64| {
        let mut script = Script::new().list("10:");
        for n in 0..40 {
            script = script.watch(&format!("b@{} .", 11 + n));
        }
        let w = World::start_with(script, Recorder::default(), |b| b.watch_timeout(secs(least)..=secs(most)));
        w.told(|e| matches!(e, ReflectorEvent::Watching { .. }))
            .into_iter()
            .map(|e| if let ReflectorEvent::Watching { timeout, .. } = e { timeout.as_secs_f64() } else { 0.0 })
            .collect::<Vec<_>>()
    };
    assert!(timeouts(4.0, 4.0).iter().all(|t| *t == 4.0));
    assert!(timeouts(0.5, 0.5).iter().all(|t| *t == 0.5));
    let drawn = timeouts(300.0, 600.0);
    assert!(drawn.iter().all(|t| (300.0..=600.0).contains(t) && t.fract() == 0.0), "{drawn:?}");
    assert!(drawn.iter().any(|t| *t < 400.0) && drawn.iter().any(|t| *t > 500.0), "{drawn:?}");
}

#[test]
fn a_burst_is_handed_over_in_batches_of_what_is_ready_and_at_most_256() {
    let burst: Vec<_> = (0..600).map(|n| format!("~a@{}", 11 + n)).collect();
    let mut w = World::start(Script::new().list("10: a@1").watch(&format!("{} /1 ~a@700 ~a@701", burst.join(" "))));
    w.advance(1.0);
    assert_eq!(*w.sink.batches.lock(), [1, 256, 256, 88, 2]);
    let given = w.given();
    let expected: Vec<_> = (0..600).map(|n| format!("~a@{}", 11 + n)).collect();
    assert_eq!(given[1..601], expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn the_position_moves_when_the_sink_has_taken_what_leads_there_and_not_before() {
    let gate = Gate::new();
    let script = Script::new().list("10: a@1").watch("~a@11 ~a@12");
    let mut w = World::start_with(script, Recorder::moods([Mood::Wait(gate.clone())]), |b| b);
    assert_eq!(w.reflector.last_version(), "");
    gate.open();
    w.clock.settle();
    assert_eq!(w.reflector.last_version(), "12");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn health_tells_the_last_contact_the_last_event_and_the_last_error() {
    let script = Script::new().list("10: a@1").watch_breaks("/2 ~a@11 /5 b@12 /7", Kind::Forbidden);
    let mut w = World::start(script.watch_fails(Kind::ConnectionRefused));
    let at = |s: f64| Some(crate::sync::Instant::from_start(secs(s)));
    assert_eq!((w.reflector.health().last_contact, w.reflector.health().last_event), (at(0.0), None));
    w.advance(6.0);
    assert_eq!((w.reflector.health().last_contact, w.reflector.health().last_event), (at(5.0), at(2.0)));
    assert_eq!(w.reflector.health().last_error, None);
    w.advance(1.5);
    let health = w.reflector.health();
    assert_eq!((health.last_contact, health.last_error.unwrap().kind), (at(7.0), FailureKind::Source(Kind::Forbidden)));
    w.advance(1.0);
    let health = w.reflector.health();
    assert_eq!(health.last_error.unwrap().kind, FailureKind::Source(Kind::ConnectionRefused));
    assert_eq!(health.last_contact, at(7.0), "nobody was there");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn the_hook_is_told_of_lists_watches_and_ends_with_their_figures() {
    let mut w = World::start(Script::new().list("10: a@1 b@2").watch("~a@11 b@12 /3 ."));
    w.advance(3.0);
    let told = w.told(|e| !matches!(e, ReflectorEvent::Watching { .. } | ReflectorEvent::Listing { .. }));
    let expected = [
        ReflectorEvent::Listed { version: "10".into(), objects: 2, took: secs(0.0) },
        ReflectorEvent::Ended { how: Ending::Clean, frames: 2, lasted: secs(3.0) },
    ];
    assert_eq!(told, expected);
    assert_eq!(w.stop(), Ok(()));
    let told = w.told(|_| true);
    assert_eq!(told, [ReflectorEvent::Ended { how: Ending::Stopped, frames: 0, lasted: secs(0.0) }]);
}

#[test]
fn a_failure_is_told_with_all_that_lies_beneath_it() {
    let beneath = std::io::Error::other("the cable is out");
    let error = crate::source::SourceError::caused_by(Kind::Connect, beneath).with_context("pods");
    let mut w = World::start(Script::new().page(Page::Fail(error)));
    let told = w.told(|e| matches!(e, ReflectorEvent::Failed { .. }));
    let [ReflectorEvent::Failed { message, action: Action::SameRequest, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(message, "pods: the server could not be reached: the cable is out");
    assert_eq!(w.stop(), Ok(()));
}
