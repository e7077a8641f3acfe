//! Whole stories: the scenarios of the specification, and the public faults.

use super::{script::*, *};
use crate::{reflector::Ending, source::SourceErrorKind as Kind};

#[test]
fn s1_list_watch_bookmark_and_what_nobody_knows() {
    let script = Script::new().list("10: a@1 b@2").watch("+c@11 ~a@12 -b@13 b@50 -zzz@51 ~c@52 +q@53");
    let mut w = World::start(script);
    assert_eq!(w.story(), ["0 list any limit 500", "0 watch 10"]);
    let given = ["all@10 a@1 b@2", "+c@11", "~a@12", "-b@13", "b@50", "-zzz@51", "~c@52", "+q@53"];
    assert_eq!(w.given(), given, "in the order of arrival; what to do with an unknown key is the store's business");
    assert_eq!(w.reflector.last_version(), "53");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s2_an_empty_list_is_a_state() {
    let mut w = World::start(Script::new().list("5:").watch("+a@6"));
    assert_eq!(w.given(), ["all@5", "+a@6"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s4_after_an_orderly_end_the_watch_goes_on_at_the_same_instant_without_a_list() {
    let mut w = World::start(Script::new().list("10: a@1").watch("b@20 /3 .").watch("~a@21 ."));
    w.advance(10.0);
    assert_eq!(w.story(), ["0 list any limit 500", "0 watch 10", "3 watch 20", "3 watch 21"]);
    assert_eq!(w.given(), ["all@10 a@1", "b@20", "~a@21"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s5_very_short_watches_are_watched_again_with_backoff_and_listed_at_the_third() {
    let script = Script::new().list("10: a@1").watch(".").watch(".").watch(".").list("20: a@1").watch("/2 .").watch("+b@40 .");
    let mut w = World::start(script);
    w.advance(20.0);
    let asked = [
        "0 list any limit 500",
        "0 watch 10",
        "0.8 watch 10",
        "2.4 watch 10",
        "5.6 list >=10",
        "5.6 watch 20",
        "7.6 watch 20",
        "7.6 watch 40",
    ];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s6_a_410_in_a_watch_is_followed_at_once_by_a_list_that_shows_the_missed_deletion() {
    let script = Script::new().list("10: a@1 b@2").watch_breaks("/5", Kind::Expired).list("20: c@20 a@1");
    let mut w = World::start(script);
    w.advance(10.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10", "5 list >=10", "5 watch 20"]);
    assert_eq!(w.given(), ["all@10 a@1 b@2", "all@20 c@20 a@1"], "one delta: what is not in it is gone");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s7_a_410_for_the_watch_and_then_for_the_list_ends_in_the_most_recent_state_and_is_forgotten() {
    let script = Script::new().list("10:").watch_fails(Kind::Expired).list_fails(Kind::Expired).list("30:");
    let mut w = World::start(script.watch_breaks("/20", Kind::Expired).list("40:"));
    w.advance(30.0);
    let asked = [
        "0 list any limit 500",
        "0 watch 10",
        "0 list >=10",
        "0 list newest limit 500",
        "0 watch 30",
        "20 list >=30",
        "20 watch 40",
    ];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s8_b68_a_version_too_large_leads_to_the_most_recent_state_each_time_frames_came_between() {
    let too_large = || Kind::TooLargeVersion { retry_after: Some(secs(1.0)) };
    let mut script = Script::new().list("20:");
    for n in [30, 40] {
        let script_ = std::mem::take(&mut script).watch_breaks(&format!("b@{}/ /11", n - 5).replace("/ ", " "), Kind::Expired);
        script = script_.list_fails(too_large()).list(&format!("{n}:"));
    }
    let mut w = World::start(script);
    w.advance(30.0);
    let asked = [
        "0 list any limit 500",
        "0 watch 20",
        "11 list >=25",
        "11 list newest limit 500",
        "11 watch 30",
        "22 list >=35",
        "22 list newest limit 500",
        "22 watch 40",
    ];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s9_an_overloaded_server_is_asked_ever_more_rarely_and_the_position_is_kept() {
    let busy = || Kind::TooManyRequests { retry_after: None };
    let script = Script::new().list("10: a@1").watch_fails(busy()).watch_fails(busy()).watch_fails(busy());
    let internal = Kind::Server { code: 500, reason: "InternalError".into(), retry_after: None };
    let mut w = World::start(script.watch_breaks("", busy()).watch_breaks("", internal));
    w.advance(60.0);
    let asked =
        ["0 list any limit 500", "0 watch 10", "0.8 watch 10", "2.4 watch 10", "5.6 watch 10", "12 watch 10", "24.8 watch 10"];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s10_a_dead_server_is_asked_every_30_s_in_the_end_and_never_faster_again() {
    let mut script = Script::new();
    for _ in 0..30 {
        script = script.list_fails(Kind::Other);
    }
    let mut w = World::start(script);
    w.advance(300.0);
    let at: Vec<f64> = w.asked().iter().map(|l| l.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(at, [0.0, 0.8, 2.4, 5.6, 12.0, 24.8, 50.4, 80.4, 110.4, 140.4, 170.4, 200.4, 230.4, 260.4, 290.4]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn s11_a_token_that_expires_costs_one_list_in_one_page_and_pages_are_remembered() {
    let script = Script::new().list("10: a@1 > c1").list_fails(Kind::Expired).list("12: a@1 b@2");
    let mut w = World::start(script.watch_breaks("/1", Kind::Expired).list("13: a@1 > c2").list("14: b@2"));
    w.advance(5.0);
    let asked = [
        "0 list any limit 500",
        "0 list newest limit 500 token c1",
        "0 list any",
        "0 watch 12",
        "1 list >=12 limit 500",
        "1 list newest limit 500 token c2",
        "1 watch 13",
    ];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.given(), ["all@12 a@1 b@2", "all@13 a@1 b@2"], "the version is that of the first page");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn pages_of_a_list_that_asked_for_a_version_are_not_remembered() {
    let script = Script::new().list("10: a@1").watch_breaks("", Kind::Expired).list("11: > c").list("11: a@1");
    let mut w = World::start(script.watch_breaks("/11", Kind::Expired).list("12: a@1"));
    w.advance(20.0);
    let asked = [
        "0 list any limit 500",
        "0 watch 10",
        "0 list >=10",
        "0 list newest token c",
        "0 watch 11",
        "11 list >=11",
        "11 watch 12",
    ];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn an_asked_page_size_is_that_of_every_list_and_the_first_state_may_be_the_most_recent() {
    let script = Script::new().list("10:").watch_breaks("", Kind::Expired).list_fails(Kind::Expired).list("11:");
    let mut w = World::start_with(script, Recorder::default(), |b| b.page_size(7).initial(InitialState::MostRecent));
    let asked = ["0 list newest limit 7", "0 watch 10", "0 list >=10 limit 7", "0 list newest limit 7", "0 watch 11"];
    assert_eq!(w.asked(), asked);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b09_a_deletion_during_a_broken_line_is_told_once_by_the_resumed_watch() {
    let script = Script::new().list("1: a@1").watch_breaks("/2", Kind::Transport).watch("-a@4");
    let mut w = World::start(script);
    w.advance(10.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 1", "2 watch 1"], "from where it was, never from now");
    assert_eq!(w.given(), ["all@1 a@1", "-a@4"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b09_a_deletion_during_a_broken_line_is_told_once_by_the_list_after_a_410() {
    let script = Script::new().list("1: a@1").watch_breaks("/2", Kind::Transport).watch_fails(Kind::Expired).list("9:");
    let mut w = World::start(script);
    w.advance(10.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 1", "2 watch 1", "2 list >=1", "2 watch 9"]);
    assert_eq!(w.given(), ["all@1 a@1", "all@9"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b21_what_a_watch_brought_is_handed_over_before_the_list_that_follows_it_and_nothing_after() {
    let script = Script::new().list("1000:").watch_breaks("+a@1001", Kind::Expired).list("1003: a@1003");
    let gate = Gate::new();
    let moods = [Mood::Take, Mood::Wait(gate.clone())];
    let mut w = World::start_with(script, Recorder::moods(moods), |b| b);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 1000"], "no list while the sink still works on the watch");
    gate.open();
    w.clock.settle();
    assert_eq!(w.asked()[2..], ["0 list >=1001", "0 watch 1003"]);
    assert_eq!(w.given(), ["all@1000", "+a@1001", "all@1003 a@1003"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b58_a_watch_that_the_server_never_ends_is_closed_and_opened_again_from_the_same_version() {
    let script = Script::new().list("10: a@1").watch("").watch("~a@11");
    let mut w = World::start_with(script, Recorder::default(), |b| b.watch_timeout(secs(300.0)..=secs(300.0)));
    w.advance(309.0);
    assert_eq!((w.asked().len(), w.script.open()), (2, 1));
    w.advance(2.0);
    assert_eq!(w.story()[2..], ["310 ! Stream Timeout: SameWatch after 0", "310 watch 10"]);
    assert_eq!(w.given(), ["all@10 a@1", "~a@11"]);
    let ended = w.told(|e| matches!(e, ReflectorEvent::Ended { .. }));
    assert_eq!(ended, [ReflectorEvent::Ended { how: Ending::TimedOut, frames: 0, lasted: secs(310.0) }]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b69_expired_in_a_good_stream_lists_and_anything_else_resumes_from_the_last_frame() {
    let script = Script::new().list("10:").watch_breaks("+a@11 ~a@12", Kind::Other).watch_breaks("~a@13", Kind::Expired);
    let mut w = World::start(script.list("20: a@13"));
    w.advance(5.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10", "0.8 watch 12", "0.8 list >=13", "0.8 watch 20"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b136_a_watch_that_opens_and_ends_at_once_for_ever_is_asked_for_less_than_thirty_times_in_ten_minutes() {
    let mut script = Script::new();
    for n in 0..40 {
        script = script.list(&format!("{}:", 10 + n)).watch(".").watch(".").watch(".");
    }
    let mut w = World::start(script);
    w.advance(600.0);
    let watches = w.asked().iter().filter(|l| l.contains("watch")).count();
    assert!(watches < 30, "{watches} watches");
    assert_eq!(w.stop(), Ok(()));
}
