//! Watches that begin with the state, as a kube-apiserver 1.37 answers them.

use super::*;
use crate::{
    memory::{Answer, Asked, Fault},
    source::RequestKind,
    sync,
};
use sync::{Deadline, Wake};

/// A watch that begins with the state, not older than this; with bookmarks.
fn streamed(version: &str) -> WatchParams {
    WatchParams { initial_events: true, bookmarks: true, ..from(version) }
}

fn two_pods(clock: &ManualClock) -> Server {
    let server = Server::new(clock);
    server.create(pod("b")).unwrap();
    server.create(pod("gone")).unwrap();
    server.create(pod("a")).unwrap();
    server.delete::<Pod>(key("gone")).unwrap();
    server
}

/// Whatever version is asked with, and with the watch cache off as well.
#[test]
fn it_brings_the_state_then_a_mark_at_its_version_and_then_the_changes() {
    let clock = ManualClock::new();
    for cached in [true, false] {
        for version in ["", "0", "3", "5"] {
            let server = Server::builder(&clock).cached(cached).build();
            for name in ["b", "a", "gone"] {
                server.create(pod(name)).unwrap();
            }
            server.delete::<Pod>(key("gone")).unwrap();
            let mut stream = watch(&server, &streamed(version));
            server.update(pod("a").on_node("n")).unwrap();
            assert_eq!(drain(&mut stream), ["+a@3", "+b@2", "all 5", "~a@6"], "{version:?}, cached {cached}");
        }
    }
}

#[test]
fn of_nothing_there_is_only_the_mark() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    let mut none = watch(&server, &WatchParams { scope: labels("app=web"), ..streamed("") });
    assert_eq!(drain(&mut none), ["all 5"]);
    server.create(pod("c").with_label("app", "web")).unwrap();
    assert_eq!(drain(&mut none), ["+c@6"]);
}

/// The real server then never says where the state ends.
#[test]
fn without_bookmarks_there_is_no_mark() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    let mut stream = watch(&server, &WatchParams { bookmarks: false, ..streamed("") });
    clock.advance(secs(100));
    server.create(pod("c")).unwrap();
    assert_eq!(drain(&mut stream), ["+a@4", "+b@2", "+c@6"]);
}

/// 200, and after three seconds the failure in the stream; at once without a watch cache.
#[test]
fn a_version_that_is_not_reached_is_waited_for_and_then_told_in_the_stream() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    let (mut reached, mut not) = (watch(&server, &streamed("6")), watch(&server, &streamed("9")));
    assert_eq!((drain(&mut reached), drain(&mut not)), (vec![], vec![]));
    clock.advance(Duration::from_millis(2999));
    // Any write moves the version on.
    server.create(Other(pod("x"))).unwrap();
    assert_eq!(drain(&mut reached), ["+a@4", "+b@2", "all 6"]);
    assert_eq!(drain(&mut not), [""; 0]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(drain(&mut not), ["TooLargeVersion { retry_after: Some(1s) }"]);
    let uncached = Server::builder(&clock).cached(false).build();
    assert_eq!(drain(&mut watch(&uncached, &streamed("9"))), ["TooLargeVersion { retry_after: None }"]);
}

#[test]
fn whoever_waits_for_the_state_is_woken_by_the_write_that_reaches_it_and_by_the_end_of_patience() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    let wait = |version: &str| {
        let mut stream = watch(&server, &streamed(version));
        let wake = Wake::new(&Stop::new(), &clock);
        let thread = sync::spawn(&clock, "watcher", move || say(stream.next(&wake, Deadline::never()))).unwrap();
        clock.settle();
        assert!(!thread.is_finished());
        thread
    };
    let reached = wait("6");
    server.create(Other(pod("x"))).unwrap();
    assert_eq!(reached.join().unwrap(), "+a@4");
    let not = wait("7");
    clock.advance(secs(3));
    assert_eq!(not.join().unwrap(), "TooLargeVersion { retry_after: Some(1s) }");
}

/// "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"; a bad selector is 400.
#[test]
fn a_server_that_does_not_know_it_says_so() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).streams_states(false).build();
    assert_eq!(watch_kind(&server, &streamed("")), SourceErrorKind::WatchListUnsupported);
    let bad = watch_kind(&server, &WatchParams { scope: labels("a in"), ..streamed("") });
    assert!(matches!(bad, SourceErrorKind::Server { code: 400, .. }), "{bad:?}");
    assert_eq!(drain(&mut watch(&server, &from("1"))), [""; 0], "plain watches it knows");
}

#[test]
fn its_faults_strike_before_the_mark_or_take_it_away() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    let faults = [
        (Fault::cut_after(2), vec!["+a@4", "+b@2", "Transport"]),
        (Fault::close_after(1), vec!["+a@4", "end"]),
        (Fault::garble(2), vec!["+a@4", "?ns/b", "all 5"]),
        (Fault::no_end_mark(), vec!["+a@4", "+b@2"]),
        (Fault::silence_after(2), vec!["+a@4", "+b@2"]),
        (Fault::refuse(SourceErrorKind::Forbidden).on_watch(), vec!["+a@4", "+b@2", "all 5"]),
    ];
    for (fault, told) in faults {
        server.clear_faults();
        server.faults([fault.clone()]);
        let mut stream = watch(&server, &streamed(""));
        clock.advance(secs(1));
        assert_eq!(drain(&mut stream), told, "{fault:?}");
    }
    server.clear_faults();
    server.faults([Fault::refuse(SourceErrorKind::Forbidden).on_streamed(), Fault::no_end_mark()]);
    assert!(list(&server, &list_params(VersionMatch::Any)).is_ok());
    drop(watch(&server, &from("5")));
    assert_eq!(watch_kind(&server, &streamed("")), SourceErrorKind::Forbidden);
}

#[test]
fn the_request_log_tells_it_from_a_plain_watch() {
    let clock = ManualClock::new();
    let server = two_pods(&clock);
    drain(&mut watch(&server, &streamed("")));
    drain(&mut watch(&server, &from("5")));
    let log = server.requests();
    assert_eq!(log.iter().map(|r| r.kind()).collect::<Vec<_>>(), [RequestKind::StreamedList, RequestKind::Watch]);
    assert!(matches!(&log[0].asked, Asked::Watch(p) if *p == streamed("")));
    assert!(matches!(log[0].answer, Answer::Watched { frames: 3, .. }));
}
