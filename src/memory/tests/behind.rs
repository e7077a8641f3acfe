//! Servers of the cluster that lag behind the others.

use super::*;
use crate::{memory::Fault, sync};

/// Versions 2 to 5; `b` is gone at 4.
fn four_changes(clock: &ManualClock) -> Server {
    let server = Server::new(clock);
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    server.delete::<Pod>(key("b")).unwrap();
    server.create(pod("c")).unwrap();
    server
}

#[test]
fn a_server_that_is_behind_lists_what_it_has_seen_and_the_storage_what_there_is() {
    let clock = ManualClock::new();
    let server = four_changes(&clock);
    server.faults([Fault::behind(2).always()]);
    let seen =
        |version: VersionMatch| list(&server, &list_params(version)).map(|(end, items)| (end.version, items.join(" "))).unwrap();
    let old = || ("3".to_owned(), "a@2 b@3".to_owned());
    assert_eq!(seen(VersionMatch::Any), old());
    assert_eq!(seen(VersionMatch::NotOlderThan("2".to_owned())), old(), "not older than asked for, and older than there is");
    assert_eq!(seen(VersionMatch::MostRecent), ("5".to_owned(), "a@2 c@5".to_owned()));
    assert_eq!(seen(VersionMatch::Exact("5".to_owned())), ("5".to_owned(), "a@2 c@5".to_owned()));
    server.create(pod("d")).unwrap();
    assert_eq!(seen(VersionMatch::Any), ("4".to_owned(), "a@2".to_owned()), "it stays as far behind");
    server.clear_faults();
    assert_eq!(seen(VersionMatch::Any).0, "6");
}

#[test]
fn it_waits_for_a_version_that_others_have_reached_and_says_that_it_has_not() {
    let clock = ManualClock::new();
    let server = four_changes(&clock);
    server.faults([Fault::behind(2).times(2)]);
    let ask = |version: &str| {
        let (source, params) = (server.source::<Pod>(), list_params(VersionMatch::NotOlderThan(version.to_owned())));
        let asker = sync::spawn(&clock, "lister", move || {
            let end = source.list(&Stop::new(), &params, &mut |_| ControlFlow::Continue(()));
            end.map(|e| e.version).map_err(|e| e.kind().clone())
        })
        .unwrap();
        clock.settle();
        asker
    };
    let (reached, not) = (ask("4"), ask("5"));
    server.create(pod("d")).unwrap();
    assert_eq!(reached.join().unwrap(), Ok("4".to_owned()));
    clock.advance(secs(3));
    assert_eq!(not.join().unwrap(), Err(SourceErrorKind::TooLargeVersion { retry_after: Some(secs(1)) }));
}

#[test]
fn its_watches_are_late_and_from_what_it_has_not_seen_silent() {
    let clock = ManualClock::new();
    let server = four_changes(&clock);
    server.faults([Fault::behind(2).times(3)]);
    let mut late = watch(&server, &WatchParams { bookmarks: true, ..from("1") });
    let mut future = watch(&server, &from("5"));
    let mut whole = watch(&server, &from("0"));
    assert_eq!(drain(&mut late), ["+a@2", "+b@3"]);
    assert_eq!((drain(&mut future), drain(&mut whole)), (vec![], vec!["+a@2".to_owned(), "+b@3".to_owned()]));
    server.create(pod("d")).unwrap();
    assert_eq!((drain(&mut late), drain(&mut whole)), (vec!["-b@4".to_owned()], vec!["-b@4".to_owned()]));
    clock.advance(secs(60));
    assert_eq!(drain(&mut late), ["mark 4"], "it says no more than it knows");
    for name in ["e", "f"] {
        server.create(pod(name)).unwrap();
    }
    assert_eq!(drain(&mut future), ["+d@6"]);
}

#[test]
fn a_state_that_its_watch_begins_with_is_what_it_has_seen_or_waits_for_the_most_recent_one() {
    let clock = ManualClock::new();
    let server = four_changes(&clock);
    server.faults([Fault::behind(2).times(4)]);
    let begin = |version: &str| watch(&server, &WatchParams { initial_events: true, bookmarks: true, ..from(version) });
    let (mut any, mut not_older, mut newest, mut never) = (begin("0"), begin("3"), begin(""), begin("9"));
    for stream in [&mut any, &mut not_older] {
        assert_eq!(drain(stream), ["+a@2", "+b@3", "all 3"]);
    }
    assert_eq!(drain(&mut newest), [""; 0], "the storage is at 5");
    for name in ["d", "e"] {
        server.create(pod(name)).unwrap();
    }
    assert_eq!(drain(&mut newest), ["+a@2", "+c@5", "all 5"]);
    assert_eq!(drain(&mut any), ["-b@4", "+c@5"]);
    clock.advance(secs(3));
    assert_eq!(drain(&mut never), ["TooLargeVersion { retry_after: Some(1s) }"]);
}

#[test]
fn no_server_is_behind_what_was_restored() {
    let clock = ManualClock::new();
    let server = four_changes(&clock);
    server.restore("3");
    server.faults([Fault::behind(100)]);
    assert_eq!(list(&server, &list_params(VersionMatch::Any)).unwrap(), {
        let end = ListEnd { version: "3".to_owned(), continue_token: None };
        (end, vec!["a@2".to_owned(), "b@3".to_owned()])
    });
}
