//! A whole state as the beginning of a watch, where all goes well; its failures are in `cells::streaming`.

use super::{script::*, *};
use crate::{reflector::Ending, source::SourceErrorKind as Kind};

fn run(script: Script) -> World {
    World::start_with(script.streaming(), Recorder::default(), |b| b.initial(InitialState::Streamed))
}

#[test]
fn s12_a_streamed_state_is_one_request_and_the_same_stream_goes_on() {
    let mut w = run(Script::new().watch_breaks("+a@1 +b@2 ~a@3 +z@4 -z@5 B@5 +c@6", Kind::Expired).watch("+d@9 B@9"));
    assert_eq!(w.story(), ["0 stream newest", "0 ! Stream Expired: InitialState after 0", "0 because Expired", "0 stream >=6"]);
    assert_eq!(w.given(), ["all@5 a@3 b@2", "+c@6", "all@9 d@9"], "in the order of arrival");
    assert_eq!(w.reflector.last_version(), "9");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn p5_nothing_of_a_streamed_state_reaches_the_sink_before_its_end_is_told() {
    let script = Script::new().watch_breaks("+a@1 B@10", Kind::Expired).watch("+b@2 /5 -b@12 +c@13 b@14 /10 B@20");
    let mut w = run(script);
    w.advance(9.9);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.reflector.last_version(), "10", "nor does the position move");
    w.advance(0.1);
    assert_eq!(w.given(), ["all@20 c@13"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_deleted_object_comes_again_and_one_that_could_not_be_read_is_read_or_deleted() {
    let mut w = run(Script::new().watch("+a@1 -a@2 +a@3 +?c@4 +c@5 +?d@6 -?d@7 +e@8 ~?e@9 -x@9 B@10"));
    assert_eq!(w.given(), ["all@10 a@3 c@5 e@8 keep e"], "of e an earlier state came: newer than what the sink has");
    assert_eq!(w.reflector.health().stale_objects, 1);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_stream_after_its_state_is_a_watch_like_others() {
    // Its end in order after a second, a resume from the last frame, a break.
    let mut w = run(Script::new().watch("B@10 /2 b@12 .").watch_breaks("~a@13", Kind::Transport).watch(""));
    w.advance(10.0);
    assert_eq!(w.asked(), ["0 stream newest", "2 watch 12", "2 watch 13"]);
    assert_eq!(w.stop(), Ok(()));
    // It counts as short from its mark on, and counts as others do.
    let mut w = run(Script::new().watch("/5 B@10 .").watch(".").watch("."));
    w.advance(20.0);
    let expected = [
        "0 stream newest",
        "5 ! Stream CleanEnd: SameWatch after 0.8",
        "5.8 watch 10",
        "5.8 ! Stream CleanEnd: SameWatch after 1.6",
        "7.4 watch 10",
        "7.4 ! Stream CleanEnd: InitialState after 3.2",
        "10.6 because Repeated",
        "10.6 stream >=10",
    ];
    assert_eq!(w.story(), expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn the_time_out_of_a_streamed_state_counts_from_its_opening() {
    let script = Script::new().watch("/20 B@10").streaming();
    let mut w = World::start_with(script, Recorder::default(), |b| {
        b.initial(InitialState::Streamed).watch_timeout(secs(300.0)..=secs(300.0))
    });
    w.advance(400.0);
    assert_eq!(w.story()[1..], ["310 ! Stream Timeout: SameWatch after 0", "310 watch 10"]);
    let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. }));
    assert_eq!(ended, [ReflectorEvent::Ended { how: Ending::TimedOut, frames: 0, lasted: secs(290.0) }]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn the_hook_is_told_that_a_state_is_streamed() {
    let w = run(Script::new().watch("+a@1 +b@2 B@10 ~a@11"));
    let told = w.told(|_| true);
    let version = crate::source::VersionMatch::MostRecent;
    let expected = [
        ReflectorEvent::Listing { reason: ListReason::First, version, limit: None, streamed: true },
        ReflectorEvent::Listed { version: "10".into(), objects: 2, took: secs(0.0) },
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_streamed_consistent_state_below_the_position_begins_a_new_era() {
    let too_large = || Kind::TooLargeVersion { retry_after: None };
    let mut w = run(Script::new().watch_breaks("+a@90 B@100", too_large()).watch("+a@90 B@50 ~a@51"));
    assert_eq!(w.given(), ["all@100 a@90", "all@50 a@90 era", "~a@51"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_stop_before_the_end_of_the_state_closes_the_stream_and_hands_over_nothing() {
    let mut w = run(Script::new().watch("+a@1 /10 B@10"));
    assert_eq!(w.script.open(), 1);
    assert_eq!(w.stop(), Ok(()));
    assert_eq!((w.given(), w.asked().len()), (vec![], 1));
    let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. }));
    assert_eq!(ended, [ReflectorEvent::Ended { how: Ending::Stopped, frames: 1, lasted: secs(0.0) }]);
}

#[test]
fn a_stop_while_a_streamed_state_is_asked_for_ends_it() {
    let mut w = run(Script::new().watch_answers(Watch::Hang));
    assert_eq!(w.stop(), Ok(()));
    assert_eq!(w.asked(), ["0 stream newest"]);
}

#[test]
fn a_stop_between_the_end_of_a_state_and_the_sink_closes_the_stream() {
    let gate = Gate::new();
    let script = Script::new().watch("+a@1 B@10 ~a@11").streaming();
    let mut w = World::start_with(script, Recorder::moods([Mood::Wait(gate.clone())]), |b| b.initial(InitialState::Streamed));
    w.stop.stop();
    gate.open();
    assert_eq!(w.join(), Ok(()));
    assert_eq!(w.given(), ["all@10 a@1"], "what the sink was at work on, and no more");
    let mut w = World::start_with(Script::new().watch("B@10").streaming(), Recorder::moods([Mood::Closed]), |b| {
        b.initial(InitialState::Streamed)
    });
    assert_eq!(w.join(), Err(RunError::SinkClosed));
}

#[test]
fn a_stream_that_panics_before_the_end_of_its_state_is_asked_for_again() {
    let script = Script::new().frames(vec![frame("+a@1"), Frame::Panic("next")]).watch("+a@1 B@10");
    let mut w = run(script);
    w.advance(5.0);
    assert_eq!(w.story()[1..], ["0 ! List Other: SameRequest after 0.8", "0.8 stream newest"]);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["next"]);
}

#[test]
fn an_object_of_another_shard_is_not_in_a_streamed_state() {
    let scope = crate::source::Scope { shard: Some(crate::source::Shard::new(0, 2).unwrap()), ..Default::default() };
    assert!(scope.shard.unwrap().owns("", "a") && !scope.shard.unwrap().owns("", "b"));
    let script = Script::new().streaming().scoped(scope.clone()).watch("+a@1 +b@2 +?b@2 B@10 ~b@11 -a@12 -b@13");
    let mut w = World::start_with(script, Recorder::default(), |b| b.initial(InitialState::Streamed).scope(scope));
    assert_eq!(w.given(), ["all@10 a@1", "b@11", "-a@12", "b@13"]);
    assert_eq!(w.stop(), Ok(()));
}

// ---- objects that must not be passed over ------------------------------------------------------------------------------

fn strict(script: Script) -> World {
    World::start_with(script, Recorder::default(), |b| b.on_undecodable(OnUndecodable::Fail))
}

#[test]
fn by_choice_an_object_that_cannot_be_read_makes_its_list_worth_nothing() {
    for broken in ["10: a@1 ?c@2 b@3", "10: a@1 ? b@3", "9: a@1 > t"] {
        let mut script = Script::new().list(broken);
        if broken.ends_with('t') {
            script = script.list("9: ?c@2");
        }
        let mut w = strict(script.list("10: a@1"));
        w.advance(5.0);
        let failed = w.story().into_iter().find(|l| l.contains('!')).unwrap();
        assert_eq!(failed, "0 ! List Unreadable: SameRequest after 0.8");
        assert_eq!(w.given(), ["all@10 a@1"]);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn by_choice_an_object_that_cannot_be_read_makes_a_list_of_a_watch_and_a_deletion_is_one_all_the_same() {
    let mut w = strict(Script::new().list("10: a@1 c@2").watch("-?c@11 ~a@12 ~?a@13 ~a@14").list("20: a@14"));
    assert_eq!(w.given(), ["all@10 a@1 c@2", "-c missed None", "b@11", "~a@12"]);
    w.advance(5.0);
    let expected = ["0 ! Stream Unreadable: InitialState after 0.8", "0.8 because Unreadable", "0.8 list >=12", "0.8 watch 20"];
    assert_eq!(w.story()[2..], expected);
    assert!(w.reflector.health().last_error.unwrap().message.contains("a cannot be read"), "says which");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn by_choice_an_object_that_cannot_be_read_makes_a_streamed_state_worth_nothing() {
    let script = Script::new().streaming().watch("+a@1 +?c@2 B@10").watch("+a@1 B@10");
    let mut w =
        World::start_with(script, Recorder::default(), |b| b.initial(InitialState::Streamed).on_undecodable(OnUndecodable::Fail));
    w.advance(5.0);
    assert_eq!(w.story()[1..], ["0 ! List Unreadable: SameRequest after 0.8", "0.8 stream newest"]);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.stop(), Ok(()));
}

/// The choice is about what a source cannot decode.
#[test]
fn a_transform_that_fails_costs_its_object_only_whatever_was_chosen() {
    let mut w = strict(Script::new().list("10: a@1 bad@2").watch("~bad@11"));
    assert_eq!(w.given(), ["all@10 a@1 keep bad", "b@11"]);
    assert_eq!(w.stop(), Ok(()));
}
