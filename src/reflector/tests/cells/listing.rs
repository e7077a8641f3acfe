//! Asking for a whole state.

use super::*;

#[test]
fn list_that_the_server_cannot_read_is_asked_again_after_backoff() {
    cell(
        first_list(REASON(500, "StoreReadError")),
        &["0 list any limit 500", "0 ! List 500: SameRequest after 0.8", "0.8 list any limit 500", "0.8 watch 10"],
    );
}

#[test]
fn list_expired_on_a_later_page_is_asked_again_in_one_page_at_once() {
    let script = Script::new().list("9: a@1 > t").list_fails(Kind::Expired).list("10: a@1");
    cell(
        script,
        &[
            "0 list any limit 500",
            "0 list newest limit 500 token t",
            "0 ! List Expired: Unpaged after 0",
            "0 list any",
            "0 watch 10",
        ],
    );
}

#[test]
fn list_expired_on_its_first_page_is_asked_for_the_most_recent_state_at_once_and_once() {
    let expected = [
        "0 ! List Expired: MostRecent after 0",
        "0 because Expired",
        "0 list newest limit 500",
        "0 ! List Expired: SameRequest after 0.8",
        "0.8 because Expired",
        "0.8 list newest limit 500",
        "0.8 watch 30",
    ];
    let script = Script::new().list("10:").watch_breaks("", Kind::Expired);
    cell(script.list_fails(Kind::Expired).list_fails(Kind::Expired).list("30:"), &later(&expected));
}

#[test]
fn list_expired_when_asked_in_one_page_falls_to_the_most_recent_state() {
    let script = Script::new().list("9: > t").list_fails(Kind::Expired).list_fails(Kind::Expired).list("10:");
    let expected = [
        "0 list any limit 500",
        "0 list newest limit 500 token t",
        "0 ! List Expired: Unpaged after 0",
        "0 list any",
        "0 ! List Expired: MostRecent after 0",
        "0 list newest limit 500",
        "0 watch 10",
    ];
    cell(script, &expected);
}

#[test]
fn list_of_a_version_too_large_is_asked_for_the_most_recent_state_at_once_whatever_the_server_advises() {
    let expected = ["0 ! List TooLargeVersion: MostRecent after 0", "0 because Expired", "0 list newest limit 500", "0 watch 20"];
    cell(later_list(too_large()), &later(&expected));
}

#[test]
fn list_of_a_version_too_large_again_without_a_frame_between_waits() {
    let script = later_list(too_large()).watch_fails(too_large()).list_fails(too_large()).list("30:");
    let expected = [
        "0 ! List TooLargeVersion: MostRecent after 0",
        "0 because Expired",
        "0 list newest limit 500",
        "0 watch 20",
        "0 ! Watch TooLargeVersion: MostRecent after 7",
        "7 because TooLargeVersion",
        "7 list newest limit 500",
        "7 ! List TooLargeVersion: SameRequest after 7",
        "14 because TooLargeVersion",
        "14 list newest limit 500",
        "14 watch 30",
    ];
    cell(script, &later(&expected));
}

#[test]
fn list_with_advice_when_to_come_back_waits_at_least_that_long() {
    for (kind, name) in [
        (Kind::TooManyRequests { retry_after: ADVICE }, "TooManyRequests"),
        (Kind::Server { code: 503, reason: String::new(), retry_after: ADVICE }, "503"),
        (Kind::Server { code: 400, reason: String::new(), retry_after: ADVICE }, "400"),
    ] {
        let expected = [format!("0 ! List {name}: SameRequest after 7")];
        let expected = [&expected[0], "7 because Expired", "7 list >=10", "7 watch 20"];
        let mut w = World::start(later_list(kind));
        w.advance(20.0);
        assert_eq!(w.story()[..5], LATER);
        assert_eq!(w.story()[5..], expected);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn list_with_too_many_requests_and_no_advice_backs_off() {
    let expected = ["0 ! List TooManyRequests: SameRequest after 0.8", "0.8 because Expired", "0.8 list >=10", "0.8 watch 20"];
    cell(later_list(Kind::TooManyRequests { retry_after: None }), &later(&expected));
}

#[test]
fn list_refused_connections_have_a_ladder_of_their_own_up_to_two_seconds() {
    let mut script = Script::new();
    for kind in [Kind::ConnectionRefused, Kind::ConnectionRefused, Kind::ConnectionRefused, Kind::Timeout] {
        script = script.list_fails(kind);
    }
    let expected = [
        "0 list any limit 500",
        "0 ! List ConnectionRefused: SameRequest after 0.8",
        "0.8 list any limit 500",
        "0.8 ! List ConnectionRefused: SameRequest after 1.6",
        "2.4 list any limit 500",
        "2.4 ! List ConnectionRefused: SameRequest after 2",
        "4.4 list any limit 500",
        "4.4 ! List Timeout: SameRequest after 0.8",
        "5.2 list any limit 500",
        "5.2 watch 10",
    ];
    cell(script.list("10:"), &expected);
}

#[test]
fn list_that_a_server_on_its_way_back_says_no_to_is_asked_again_as_soon_as_a_refused_one() {
    let script = Script::new().list_fails(Kind::ConnectionRefused).list_fails(Kind::Forbidden).list("10:");
    let expected = [
        "0 list any limit 500",
        "0 ! List ConnectionRefused: SameRequest after 0.8",
        "0.8 list any limit 500",
        "0.8 ! List Forbidden: SameRequest after 1.6",
        "2.4 list any limit 500",
        "2.4 watch 10",
    ];
    cell(script, &expected);
}

#[test]
fn list_failures_without_another_rule_back_off_and_ask_the_same() {
    for (kind, name) in [
        (Kind::Connect, "Connect"),
        (Kind::Timeout, "Timeout"),
        (Kind::Transport, "Transport"),
        (Kind::Unauthorized, "Unauthorized"),
        (Kind::Forbidden, "Forbidden"),
        (Kind::NotFound, "NotFound"),
        (server(500), "500"),
        (server(404), "404"),
        (Kind::Decode, "Decode"),
        (Kind::Other, "Other"),
        (Kind::Stopped, "Stopped"),
        // The form that knows streamed lists is not asked here: nothing to fall back from.
        (Kind::WatchListUnsupported, "WatchListUnsupported"),
    ] {
        let mut w = World::start(later_list(kind));
        w.advance(20.0);
        let failed = format!("0 ! List {name}: SameRequest after 0.8");
        assert_eq!(w.story()[5..], [&failed, "0.8 because Expired", "0.8 list >=10", "0.8 watch 20"]);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn list_on_a_later_page_that_fails_is_asked_again_from_its_first_page() {
    let script = Script::new().list("9: a@1 > t").list_fails(Kind::Transport).list("10: a@1 b@2");
    let mut w = World::start(script);
    w.advance(20.0);
    let expected = [
        "0 list any limit 500",
        "0 list newest limit 500 token t",
        "0 ! List Transport: SameRequest after 0.8",
        "0.8 list any limit 500",
        "0.8 watch 10",
    ];
    assert_eq!(w.story(), expected);
    assert_eq!(w.given(), ["all@10 a@1 b@2"], "nothing of the broken list");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn list_with_a_version_that_the_server_finds_invalid_is_asked_for_the_most_recent_state_at_once_and_once() {
    for code in [400, 422] {
        let mut w = World::start(
            Script::new()
                .list("10:")
                .watch_breaks("", Kind::Expired)
                .list_fails(server(code))
                .list_fails(server(code))
                .list("20:"),
        );
        w.advance(20.0);
        let (first, second) = (format!("0 ! List {code}: MostRecent after 0"), format!("0 ! List {code}: SameRequest after 0.8"));
        let expected = [
            &first,
            "0 because Expired",
            "0 list newest limit 500",
            &second,
            "0.8 because Expired",
            "0.8 list newest limit 500",
            "0.8 watch 20",
        ];
        assert_eq!(w.story()[5..], expected);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn list_without_a_version_that_the_server_finds_invalid_backs_off() {
    cell(
        first_list(server(400)),
        &["0 list any limit 500", "0 ! List 400: SameRequest after 0.8", "0.8 list any limit 500", "0.8 watch 10"],
    );
}

#[test]
fn list_that_the_sink_refuses_is_asked_for_again_after_backoff() {
    for (mood, contained) in [(Mood::Refuse, &[][..]), (Mood::Panic, &["the sink panics"][..])] {
        let script = Script::new().list("10: a@1").list("11: a@1");
        let mut w = World::start_with(script, Recorder::moods([mood]), |b| b);
        assert_eq!(w.reflector.last_version(), "", "the sink took nothing");
        w.advance(20.0);
        let expected =
            ["0 list any limit 500", "0 ! List SinkRefused: SameRequest after 0.8", "0.8 list any limit 500", "0.8 watch 11"];
        assert_eq!(w.story(), expected);
        assert_eq!(w.told(|e| matches!(e, ReflectorEvent::Refused { .. })).len(), 1);
        assert_eq!(w.stop(), Ok(()));
        assert_contained(&w.clock, contained);
    }
}

#[test]
fn list_without_a_version_is_no_list() {
    let expected = ["0 list any limit 500", "0 ! List Other: SameRequest after 0.8", "0.8 list any limit 500", "0.8 watch 10"];
    cell(Script::new().list(": a@1").list("10: a@1"), &expected);
}
