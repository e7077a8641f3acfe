//! The life of the server: down, up, restarted, restored; and its request log.

use super::*;
use crate::memory::{Answer, Close, Ended};

/// Recordings `configmaps-server-stopped` (410 though nothing was compacted) and `-server-killed` (resumed);
/// On a real server a resume from exactly the version of the cache's first list works, one older is 410.
#[test]
fn a_restarted_server_knows_no_history_before_its_own_first_list() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(10).build();
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    server.restart(Close::Cut);
    assert_eq!(drain(&mut watch(&server, &from("11"))), ["Expired"]);
    let mut newest = watch(&server, &from("12"));
    server.create(pod("c")).unwrap();
    assert_eq!(drain(&mut newest), ["+c@13"]);
    assert_eq!(drain(&mut watch(&server, &from("12"))), ["+c@13"], "it still is the first version known");
    assert_eq!(list(&server, &list_params(VersionMatch::MostRecent)).unwrap().1.len(), 3, "the objects are all there");
}

#[test]
fn a_new_server_knows_no_history_before_its_first_version() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(10).build();
    assert_eq!(drain(&mut watch(&server, &from("9"))), ["Expired"]);
    assert_eq!(drain(&mut watch(&server, &from("10"))), [""; 0]);
}

#[test]
fn that_holds_for_resources_that_nobody_asked_for_before() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(Other(pod("a"))).unwrap();
    server.restart(Close::Cut);
    assert_eq!(drain(&mut watch(&server, &from("1"))), ["Expired"]);
    assert_eq!(drain(&mut watch(&server, &from("2"))), [""; 0]);
}

#[test]
fn a_server_that_is_down_refuses_connections_and_its_streams_end_as_told() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    for (how, told) in [(Close::Cut, "Transport"), (Close::Clean, "end")] {
        let mut stream = watch(&server, &from(&server.version()));
        server.down(how);
        assert_eq!(drain(&mut stream), [told]);
        assert_eq!(watch_kind(&server, &from("1")), SourceErrorKind::ConnectionRefused);
        assert_eq!(list_kind(&server, &list_params(VersionMatch::Any)), SourceErrorKind::ConnectionRefused);
        server.up();
        assert!(list(&server, &list_params(VersionMatch::Any)).is_ok());
    }
    let before = server.version();
    server.down(Close::Cut);
    server.create(pod(&format!("while-down-{before}"))).unwrap();
    server.up();
    assert_eq!(drain(&mut watch(&server, &from(&before))), ["Expired"], "it began after that change");
}

/// As on a real cluster: after a restored backup a watch at the lost version is silent, and only a list tells.
#[test]
fn a_restored_backup_takes_versions_and_objects_back() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let kept = server.create(pod("kept")).unwrap();
    server.create(pod("deleted-later")).unwrap();
    let backup = server.version();
    server.update(pod("kept").on_node("n")).unwrap();
    server.delete::<Pod>(key("deleted-later")).unwrap();
    server.create(pod("lost")).unwrap();
    let lost = server.version();
    let mut open = watch(&server, &from(&lost));
    assert!(server.restore(&backup));
    assert_eq!(drain(&mut open), ["Transport"]);
    let (end, items) = list(&server, &list_params(VersionMatch::MostRecent)).unwrap();
    assert_eq!((end.version, items), (backup.clone(), vec!["deleted-later@3".to_owned(), "kept@2".to_owned()]));
    assert_eq!(server.get::<Pod>(key("kept")).map(|o| o.uid.clone()), Some(kept.uid.clone()));
    let mut silent = watch(&server, &from(&lost));
    server.update(pod("kept").on_node("m")).unwrap();
    assert_eq!(drain(&mut silent), [""; 0]);
    assert_eq!(drain(&mut watch(&server, &from(&backup))), ["~kept@4"], "versions are given a second time");
    assert_eq!(list(&server, &list_params(VersionMatch::Exact("3".to_owned()))).unwrap().1.len(), 2);
    assert_eq!(server.audit::<Pod>().records.len(), 9, "5 changes, 3 steps back (one key gone, two as they were), 1 change");
    assert!(!server.restore("99") && !server.restore("1"), "neither the future nor a past that was lost");
}

#[test]
fn the_request_log_tells_what_was_asked_when_and_what_came_of_it() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    list(&server, &page(1, None)).unwrap();
    clock.advance(secs(2));
    let mut stream = watch(&server, &from("2"));
    drain(&mut stream);
    let mut expired = watch(&server, &from("0"));
    server.down(Close::Clean);
    list_kind(&server, &list_params(VersionMatch::Any));
    server.up();
    drain(&mut expired);
    let open = watch(&server, &from("3"));
    let dropped = watch(&server, &from("3"));
    drop(dropped);
    drain(&mut stream);

    let log = server.requests();
    let frames = |frames, ended| Answer::Watched { frames, ended };
    let answers: Vec<_> = log.iter().map(|r| r.answer.clone()).collect();
    assert_eq!(
        answers,
        [
            Answer::Listed { version: "3".to_owned(), items: 1, more: true },
            frames(1, Some(Ended::Clean)),
            frames(0, Some(Ended::Clean)),
            Answer::Failed(SourceErrorKind::ConnectionRefused),
            frames(0, None),
            frames(0, Some(Ended::Dropped)),
        ]
    );
    assert_eq!(log.iter().map(|r| r.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(log.iter().map(|r| r.at.since_start().as_secs()).collect::<Vec<_>>(), [0, 2, 2, 2, 2, 2]);
    assert_eq!(log[0].list(), Some(&page(1, None)));
    assert_eq!(log[1].watch().map(|p| p.from.as_str()), Some("2"));
    assert!(log[0].resource.ends_with("Pod"));
    assert_eq!(server.take_requests().len(), 6);
    drop(open);
    assert_eq!(server.requests(), []);
}
