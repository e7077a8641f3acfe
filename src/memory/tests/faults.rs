//! The fault script: every class of failure, on a list, on the opening of a watch and inside a stream; and whom it
//! strikes.

use super::*;
use crate::{
    memory::{Answer, Close, Ended, Fault},
    source::Undecodable,
    sync,
};

/// Every class that a source can report.
fn kinds() -> Vec<SourceErrorKind> {
    use SourceErrorKind::*;
    let retry_after = Some(secs(7));
    vec![
        Expired,
        TooLargeVersion { retry_after },
        TooManyRequests { retry_after },
        Unauthorized,
        Forbidden,
        NotFound,
        WatchListUnsupported,
        Server { code: 500, reason: "StoreReadError".to_owned(), retry_after: None },
        Server { code: 503, reason: String::new(), retry_after },
        Server { code: 400, reason: "BadRequest".to_owned(), retry_after: None },
        Server { code: 422, reason: "Invalid".to_owned(), retry_after: None },
        ConnectionRefused,
        Connect,
        Transport,
        Decode,
        Timeout,
        Other,
    ]
}

fn three_pods(clock: &ManualClock) -> Server {
    let server = Server::new(clock);
    for name in ["a", "b", "c"] {
        server.create(pod(name)).unwrap();
    }
    server
}

#[test]
fn every_class_of_failure_can_answer_a_list_and_a_watch() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    for kind in kinds() {
        server.faults([Fault::refuse(kind.clone()).times(2)]);
        assert_eq!(list_kind(&server, &list_params(VersionMatch::Any)), kind);
        assert_eq!(watch_kind(&server, &from("4")), kind);
        assert!(list(&server, &list_params(VersionMatch::Any)).is_ok(), "the fault is used up");
    }
    assert_eq!(server.faults_struck(), 2 * kinds().len() as u64);
    assert_eq!(server.open_streams(), 0);
    assert_eq!(server.requests()[1].answer, Answer::Failed(SourceErrorKind::Expired));
}

#[test]
fn every_class_of_failure_can_come_after_some_frames_or_some_time() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    for kind in kinds() {
        let failed = format!("{kind:?}");
        server.faults([Fault::fail_after(0, kind.clone()), Fault::fail_after(2, kind.clone()), Fault::fail_in(secs(3), kind)]);
        assert_eq!(drain(&mut watch(&server, &from("1"))), [failed.as_str()], "at once, in the stream");
        assert_eq!(drain(&mut watch(&server, &from("1"))), ["+a@2", "+b@3", &failed]);
        let mut timed = watch(&server, &from("1"));
        assert_eq!(drain(&mut timed).len(), 3);
        clock.advance(Duration::from_millis(2999));
        assert_eq!(drain(&mut timed), [""; 0]);
        clock.advance(Duration::from_millis(1));
        assert_eq!(drain(&mut timed), [failed.as_str()]);
    }
}

#[test]
fn a_list_can_break_in_the_middle() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    for (n, given) in [(0, 0), (2, 2), (3, 3), (9, 3)] {
        server.faults([Fault::cut_after(n).on_list()]);
        let mut seen = 0;
        let end = server.source::<Pod>().list(&Stop::new(), &list_params(VersionMatch::Any), &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((end.unwrap_err().kind(), seen), (&SourceErrorKind::Transport, given), "after {n}");
    }
}

#[test]
fn a_stream_can_be_ended_in_order_early() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.faults([Fault::close_after(0), Fault::close_after(1), Fault::close_in(secs(1))]);
    assert_eq!(drain(&mut watch(&server, &from("1"))), ["end"]);
    assert_eq!(drain(&mut watch(&server, &from("1"))), ["+a@2", "end"]);
    let mut timed = watch(&server, &from("3"));
    assert_eq!(drain(&mut timed), ["+c@4"]);
    clock.advance(secs(1));
    assert_eq!(drain(&mut timed), ["end"]);
    assert_eq!(server.requests()[1].answer, Answer::Watched { frames: 1, ended: Some(Ended::Clean) });
}

#[test]
fn a_half_open_stream_delivers_nothing_more_until_it_is_cut() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.faults([Fault::silence_after(1)]);
    let mut stream = watch(&server, &WatchParams { bookmarks: true, timeout: secs(100), ..from("1") });
    assert_eq!(drain(&mut stream), ["+a@2"]);
    clock.advance(secs(1000));
    assert_eq!(drain(&mut stream), [""; 0], "no frame, no bookmark, no end");
    assert_eq!(server.open_streams(), 1);
    server.restart(Close::Cut);
    assert_eq!(drain(&mut stream), ["Transport"]);
}

#[test]
fn a_stream_can_fall_silent_after_some_time() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.faults([Fault::silence_in(secs(5))]);
    let mut stream = watch(&server, &from("3"));
    assert_eq!(drain(&mut stream), ["+c@4"]);
    clock.advance(secs(5));
    server.create(pod("d")).unwrap();
    clock.advance(secs(1000));
    assert_eq!(drain(&mut stream), [""; 0], "not even the end");
}

#[test]
fn an_undecodable_object_of_a_deletion_is_known_to_be_gone() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.delete::<Pod>(key("b")).unwrap();
    server.faults([Fault::garble(2), Fault::garble_whole(2)]);
    assert_eq!(drain(&mut watch(&server, &from("3"))), ["+c@4", "-?ns/b"]);
    assert_eq!(drain(&mut watch(&server, &from("3"))), ["+c@4", "-?"]);
}

/// As a client over a network does; the real one's default is longer than the three seconds of a version too large.
#[test]
fn a_source_with_patience_gives_up() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    let source = server.source::<Pod>().give_up_after(secs(10));
    for (fault, watch, after, answer) in [
        (Fault::hang(), false, 10, Err(SourceErrorKind::Timeout)),
        (Fault::hang(), true, 10, Err(SourceErrorKind::Timeout)),
        (Fault::delay(secs(11)), true, 10, Err(SourceErrorKind::Timeout)),
        (Fault::delay(secs(9)), false, 9, Ok(())),
    ] {
        server.faults([fault]);
        let source = source.clone();
        let asker = sync::spawn(&clock, "asker", move || {
            let outcome = if watch {
                source.watch(&Stop::new(), &from("4")).map(drop)
            } else {
                source.list(&Stop::new(), &list_params(VersionMatch::Any), &mut |_| ControlFlow::Continue(())).map(drop)
            };
            outcome.map_err(|e| e.kind().clone())
        })
        .unwrap();
        clock.advance(secs(after) - Duration::from_millis(1));
        assert!(!asker.is_finished());
        clock.advance(Duration::from_millis(1));
        assert_eq!(asker.join().unwrap(), answer);
    }
}

#[test]
fn an_undecodable_object_comes_with_or_without_its_key() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.faults([Fault::garble(2).times(2), Fault::garble_whole(2).times(2)]);
    assert_eq!(list(&server, &list_params(VersionMatch::Any)).unwrap().1, ["a@2", "?ns/b", "c@4"]);
    let mut stream = watch(&server, &from("1"));
    assert_eq!(stream.ready().map(say).unwrap(), "+a@2");
    let Some(Next::Event(WatchEvent::Undecodable { object: broken, deleted: false })) = stream.ready() else {
        panic!("it must not decode")
    };
    assert!(
        matches!(broken, Undecodable { key: Some(k), version: Some(v), .. } if k.as_str() == "ns/b" && v == "3"),
        "key and version are readable"
    );
    assert_eq!(drain(&mut stream), ["+c@4"]);
    assert_eq!(list(&server, &list_params(VersionMatch::Any)).unwrap().1, ["a@2", "?", "c@4"]);
    assert_eq!(drain(&mut watch(&server, &from("1"))), ["+a@2", "?", "+c@4"]);
}

#[test]
fn an_answer_can_be_late_or_never_come() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    let ask = |watch: bool, stop: &Stop| {
        let (source, stop) = (server.source::<Pod>(), stop.clone());
        let thread = sync::spawn(&clock, "asker", move || {
            let outcome = if watch {
                source.watch(&stop, &from("4")).map(drop)
            } else {
                source.list(&stop, &list_params(VersionMatch::Any), &mut |_| ControlFlow::Continue(())).map(drop)
            };
            outcome.map_err(|e| e.kind().clone())
        })
        .unwrap();
        clock.settle();
        thread
    };
    for watch in [false, true] {
        server.faults([Fault::delay(secs(5))]);
        let late = ask(watch, &Stop::new());
        clock.advance(Duration::from_millis(4999));
        assert!(!late.is_finished());
        clock.advance(Duration::from_millis(1));
        assert_eq!(late.join().unwrap(), Ok(()));

        server.faults([Fault::refuse(SourceErrorKind::Forbidden).late_by(secs(5))]);
        let late = ask(watch, &Stop::new());
        assert!(!late.is_finished());
        clock.advance(secs(5));
        assert_eq!(late.join().unwrap(), Err(SourceErrorKind::Forbidden));

        server.faults([Fault::hang().times(3)]);
        let stop = Stop::new();
        let stopped = ask(watch, &stop);
        let cut = ask(watch, &Stop::new());
        clock.advance(secs(100_000));
        assert!(!stopped.is_finished() && !cut.is_finished());
        stop.stop();
        assert_eq!(stopped.join().unwrap(), Err(SourceErrorKind::Stopped));
        server.drop_connections();
        assert_eq!(cut.join().unwrap(), Err(SourceErrorKind::Transport));
        let down = ask(watch, &Stop::new());
        server.down(Close::Clean);
        assert_eq!(down.join().unwrap(), Err(SourceErrorKind::Transport), "a request without an answer has no orderly end");
        server.up();
    }
    assert_eq!(server.open_streams(), 0);
}

#[test]
fn a_fault_strikes_those_it_is_for_and_as_often_as_it_says() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    let refused = || Fault::refuse(SourceErrorKind::Forbidden);
    let lists = |server: &Server| list(server, &list_params(VersionMatch::Any)).is_ok();
    let watches = |server: &Server| server.source::<Pod>().watch(&Stop::new(), &from("4")).is_ok();

    server.faults([refused().on_watch()]);
    assert!(lists(&server) && !watches(&server) && watches(&server));
    server.faults([refused().on_list().nth(2).times(2)]);
    assert_eq!([(); 5].map(|()| lists(&server)), [true, false, false, true, true]);
    server.faults([refused().always().until(sync::Instant::from_start(secs(10)))]);
    clock.advance(Duration::from_millis(9999));
    assert!(!lists(&server) && !watches(&server));
    clock.advance(Duration::from_millis(1));
    assert!(lists(&server) && watches(&server), "not at its time and later");
    server.faults([refused().always()]);
    assert!(!lists(&server));
    server.clear_faults();
    assert!(lists(&server));

    server.faults([refused().on_pages()]);
    let token = list(&server, &page(1, None)).unwrap().0.continue_token;
    assert_eq!(list_kind(&server, &page(1, token.clone())), SourceErrorKind::Forbidden, "only lists that go on");
    assert!(list(&server, &page(1, token)).is_ok());

    server.faults([refused().of::<Other>(), Fault::refuse(SourceErrorKind::NotFound)]);
    assert_eq!(list_kind(&server, &list_params(VersionMatch::Any)), SourceErrorKind::NotFound, "the first is for others");
    let other = server.source::<Other>().list(&Stop::new(), &list_params(VersionMatch::Any), &mut |_| ControlFlow::Continue(()));
    assert_eq!(other.unwrap_err().kind(), &SourceErrorKind::Forbidden);
    assert!(lists(&server));
}

#[test]
fn faults_are_looked_at_in_order_and_one_strikes_a_request() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    server.faults([SourceErrorKind::NotFound, SourceErrorKind::Forbidden].map(Fault::refuse));
    assert_eq!(list_kind(&server, &list_params(VersionMatch::Any)), SourceErrorKind::NotFound);
    assert_eq!(list_kind(&server, &list_params(VersionMatch::Any)), SourceErrorKind::Forbidden);
    assert!(list(&server, &list_params(VersionMatch::Any)).is_ok());
    assert_eq!(server.faults_struck(), 2);
}

#[test]
fn an_injected_frame_reaches_every_open_stream_behind_what_is_due() {
    let clock = ManualClock::new();
    let server = three_pods(&clock);
    let mut one = watch(&server, &from("3"));
    let mut selected = watch(&server, &WatchParams { scope: labels("app=web"), ..from("3") });
    let mut ghost = pod("never-seen");
    ghost.version = "2".to_owned();
    server.inject(&WatchEvent::Deleted(ghost)).unwrap();
    server.inject::<Pod>(&WatchEvent::Bookmark { version: "1".to_owned(), initial_events_end: false }).unwrap();
    assert_eq!(drain(&mut one), ["+c@4", "-never-seen@2", "mark 1"]);
    assert_eq!(drain(&mut selected), ["-never-seen@2", "mark 1"]);
    assert_eq!(drain(&mut watch(&server, &from("3"))), ["+c@4"], "later streams do not see it");
}
