//! Stop in each state: no request afterwards, no call of the sink, no open stream. And how a run ends otherwise.

use super::{script::*, *};
use crate::source::SourceErrorKind as Kind;

/// Stops where the world stands, and compares what was asked and given.
#[track_caller]
fn stops(mut w: World, asked: &[&str], given: &[&str]) {
    assert_eq!(w.stop(), Ok(()));
    w.clock.advance(secs(100.0));
    assert_eq!(w.asked(), asked);
    assert_eq!(w.given(), given);
}

#[test]
fn s19_v9_a_stop_before_the_run_means_no_request_at_all() {
    let w = World::build(Script::new().list("10:"), Recorder::default(), |b| b);
    w.stop.stop();
    stops(w.go(), &[], &[]);
}

#[test]
fn while_a_list_is_asked_for() {
    stops(World::start(Script::new().page(Page::Hang)), &["0 list any limit 500"], &[]);
}

/// Stops when the first object comes in, after this was asked and given.
#[track_caller]
fn stops_at_the_first_object(script: Script, asked: &[&str], given: &[&str]) {
    let place = Arc::new(Mutex::new(None::<Stop>));
    let stop = place.clone();
    let on_known = move || {
        let stop = stop.lock().take();
        stop.unwrap().stop();
    };
    let sink = Recorder { on_known: Mutex::new(Some(Box::new(on_known))), ..Recorder::default() };
    let w = World::build(script, sink, |b| b);
    *place.lock() = Some(w.stop.clone());
    stops(w.go(), asked, given);
}

#[test]
fn while_a_list_streams_in() {
    let endless = Page::Endless(Item { name: "a".into(), version: "1".into() });
    stops_at_the_first_object(Script::new().page(endless), &["0 list any limit 500"], &[]);
}

#[test]
fn between_pages() {
    stops_at_the_first_object(Script::new().list("10: a@1 > t").list("10: b@2"), &["0 list any limit 500"], &[]);
}

#[test]
fn between_the_end_of_a_list_and_the_sink() {
    stops_at_the_first_object(Script::new().list("10: a@1"), &["0 list any limit 500"], &[]);
}

#[test]
fn between_a_frame_and_the_sink() {
    let script = Script::new().list("10:").watch("+a@11 ~a@12");
    stops_at_the_first_object(script, &["0 list any limit 500", "0 watch 10"], &["all@10"]);
}

#[test]
fn in_a_backoff() {
    stops(World::start(Script::new().list_fails(Kind::Forbidden)), &["0 list any limit 500"], &[]);
}

#[test]
fn in_a_backoff_of_a_watch() {
    let w = World::start(Script::new().list("10:").watch_fails(Kind::TooManyRequests { retry_after: Some(secs(60.0)) }));
    stops(w, &["0 list any limit 500", "0 watch 10"], &["all@10"]);
}

#[test]
fn in_the_spread_after_a_410() {
    let script = Script::new().list("10:").watch_fails(Kind::Expired);
    let w = World::start_with(script, Recorder::default(), |b| b.relist_spread(secs(50.0)));
    stops(w, &["0 list any limit 500", "0 watch 10"], &["all@10"]);
}

#[test]
fn while_a_watch_is_asked_for() {
    let w = World::start(Script::new().list("10:").watch_answers(Watch::Hang));
    stops(w, &["0 list any limit 500", "0 watch 10"], &["all@10"]);
}

#[test]
fn while_a_watch_is_open() {
    let w = World::start(Script::new().list("10:").watch("+a@11 /500 +b@12"));
    assert_eq!(w.script.open(), 1);
    stops(w, &["0 list any limit 500", "0 watch 10"], &["all@10", "+a@11"]);
}

#[test]
fn while_the_sink_works_nothing_more_is_handed_over() {
    let gate = Gate::new();
    let burst: Vec<_> = (0..300).map(|n| format!("~a@{}", 11 + n)).collect();
    let script = Script::new().list("10:").watch(&burst.join(" "));
    let mut w = World::start_with(script, Recorder::moods([Mood::Take, Mood::Wait(gate.clone())]), |b| b);
    w.stop.stop();
    gate.open();
    assert_eq!(w.join(), Ok(()));
    assert_eq!(*w.sink.batches.lock(), [1, 256], "the rest was ready and is not handed over");
}

#[test]
fn a_closed_sink_ends_the_run_with_an_error_and_every_stream_is_closed() {
    let mut w = World::start_with(Script::new().list("10:"), Recorder::moods([Mood::Closed]), |b| b);
    assert_eq!(w.join(), Err(RunError::SinkClosed));
    let script = Script::new().list("10:").watch("+a@11");
    let mut w = World::start_with(script, Recorder::moods([Mood::Take, Mood::Closed]), |b| b);
    assert_eq!(w.join(), Err(RunError::SinkClosed));
    assert_eq!(w.told(|e| matches!(e, ReflectorEvent::Refused { .. })).len(), 1);
    assert_eq!(w.reflector.last_version(), "10");
}

#[test]
fn a_sink_that_was_closed_after_stop_is_no_error() {
    let gate = Gate::new();
    let script = Script::new().list("10:").watch("+a@11");
    let mut w = World::start_with(script, Recorder::moods([Mood::Take, Mood::WaitThenClosed(gate.clone())]), |b| b);
    w.stop.stop();
    gate.open();
    assert_eq!(w.join(), Ok(()));
}

#[test]
fn a_second_run_at_the_same_time_is_refused_and_one_after_the_other_goes_on_from_the_position() {
    let mut w = World::start(Script::new().list("10: a@1").watch("~a@11").list("20: a@11").watch("/1 ."));
    assert_eq!(w.reflector.run(&Stop::new()), Err(RunError::AlreadyRunning));
    assert_eq!(w.stop(), Ok(()));
    w.stop = Stop::with_clock(&w.clock);
    let mut w = w.go();
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10", "0 list >=11", "0 watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}
