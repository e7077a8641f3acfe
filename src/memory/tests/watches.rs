//! Watches: what is delivered, from where, until when.

use super::*;
use crate::{memory::Close, sync};
use sync::{Deadline, Wake};

/// B-20: a source that loses what is written between a list and the watch.
#[test]
fn b_20_nothing_is_lost_between_list_and_watch() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(10).build();
    let (end, items) = list(&server, &list_params(VersionMatch::MostRecent)).unwrap();
    assert_eq!((end.version.as_str(), items.len()), ("10", 0));
    server.create(pod("a")).unwrap();
    let mut stream = watch(&server, &from(&end.version));
    assert_eq!(drain(&mut stream), ["+a@11"]);
}

#[test]
fn a_watch_starts_exactly_after_its_version_and_tells_every_change_in_order() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    server.update(pod("a").on_node("n")).unwrap();
    server.delete::<Pod>(key("b")).unwrap();
    server.create(pod("b")).unwrap();
    let all = ["+a@2", "+b@3", "~a@4", "-b@5", "+b@6"];
    for skip in 0..=all.len() {
        let mut stream = watch(&server, &from(&(skip + 1).to_string()));
        assert_eq!(drain(&mut stream), all[skip..], "from version {}", skip + 1);
    }
}

#[test]
fn a_slow_watcher_loses_nothing_while_its_changes_are_remembered() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).window(100).build();
    let mut stream = watch(&server, &from("1"));
    for n in 0..100 {
        server.create(pod(&format!("p{n}"))).unwrap();
    }
    let told = drain(&mut stream);
    assert_eq!(told.len(), 100);
    assert_eq!(told.last().unwrap(), "+p99@101");
}

#[test]
fn a_watcher_that_falls_out_of_the_window_is_told_so_in_the_stream() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).window(10).build();
    let mut stream = watch(&server, &from("1"));
    for n in 0..11 {
        server.create(pod(&format!("p{n}"))).unwrap();
    }
    assert_eq!(drain(&mut stream), ["Expired"]);
    assert_eq!(server.open_streams(), 0);
    let mut exact = watch(&server, &from("2"));
    assert_eq!(drain(&mut exact).len(), 10, "the window holds ten changes");
}

/// `errors.jsonl`, `expired-watch`: status 200, one ERROR frame with code 410, the end.
#[test]
fn a_watch_from_a_forgotten_version_is_opened_and_then_told_410() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    server.trim();
    let mut old = watch(&server, &from("2"));
    assert_eq!(old.ready().map(say).as_deref(), Some("Expired"));
    assert!(old.ready().is_none(), "it is over");
    assert_eq!(drain(&mut watch(&server, &from("3"))), [""; 0], "the newest version resumes");
}

/// `errors.jsonl`, `too-large-watch`, and a cluster whose etcd was reset: 200, silence, not even a bookmark, a clean end.
#[test]
fn a_watch_from_a_version_the_server_has_not_reached_is_silent_until_its_end() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut stream = watch(&server, &WatchParams { bookmarks: true, timeout: secs(200), ..from("5") });
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    clock.advance(secs(199));
    assert_eq!(drain(&mut stream), [""; 0]);
    clock.advance(secs(1));
    assert_eq!(drain(&mut stream), ["end"]);
}

#[test]
fn a_watch_from_the_future_begins_once_the_server_has_passed_its_version() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).window(1).build();
    let mut stream = watch(&server, &from("3"));
    for name in ["a", "b", "c"] {
        server.create(pod(name)).unwrap();
    }
    assert_eq!(drain(&mut stream), ["+c@4"]);
}

/// `errors.jsonl`, `watch-version-not-a-number` (500 without a reason) against `version-not-a-number` (400).
#[test]
fn a_version_that_is_no_number_is_500_for_a_watch_and_400_for_a_list() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let kind = watch_kind(&server, &from("abc"));
    assert_eq!(kind, SourceErrorKind::Server { code: 500, reason: String::new(), retry_after: None });
    for version in [VersionMatch::Exact("abc".to_owned()), VersionMatch::NotOlderThan("1x".to_owned())] {
        let kind = list_kind(&server, &list_params(version));
        assert!(matches!(kind, SourceErrorKind::Server { code: 400, .. }), "{kind:?}");
    }
}

#[test]
fn a_watch_from_version_zero_begins_with_the_state() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("b")).unwrap();
    server.create(pod("a")).unwrap();
    server.delete::<Pod>(key("b")).unwrap();
    server.create(pod("c")).unwrap();
    for version in ["0", ""] {
        let mut stream = watch(&server, &from(version));
        assert_eq!(drain(&mut stream), ["+a@3", "+c@5"]);
    }
}

/// Recording `pods-selector`: DELETED with the previous labels and the version of the change; ADDED on the way in;
/// nothing of what happens outside.
#[test]
fn an_object_that_leaves_the_selection_is_deleted_with_its_previous_state_and_a_new_version() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("a").with_label("app", "web").on_node("n1")).unwrap();
    let mut stream = watch(&server, &WatchParams { scope: labels("app=web"), ..from("1") });
    assert_eq!(drain(&mut stream), ["+a@2"]);
    server.update(pod("a").with_label("app", "db").on_node("n2")).unwrap();
    let Some(Next::Event(WatchEvent::Deleted(left))) = stream.ready() else { panic!("it must be deleted") };
    assert_eq!((left.version.as_str(), left.label("app"), left.node.as_str()), ("3", Some("web"), "n1"));
    server.update(pod("a").with_label("app", "db").on_node("n3")).unwrap();
    assert_eq!(drain(&mut stream), [""; 0], "changes outside are unseen");
    server.update(pod("a").with_label("app", "web")).unwrap();
    server.update(pod("a").with_label("app", "web").on_node("n4")).unwrap();
    server.update(pod("a").with_label("app", "db")).unwrap();
    server.delete::<Pod>(key("a")).unwrap();
    assert_eq!(drain(&mut stream), ["+a@5", "~a@6", "-a@7"], "the deletion outside is unseen");
    server.create(pod("b").with_label("app", "web")).unwrap();
    let b = server.delete::<Pod>(key("b")).unwrap();
    assert_eq!(drain(&mut stream), ["+b@9", &format!("-b@{}", version_of(&b))]);
}

#[test]
fn namespaces_and_fields_select_too() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let in_other = Scope { namespace: Some("other".to_owned()), ..Scope::default() };
    let on_n1 = Scope { fields: Some("spec.nodeName=n1,metadata.name!=b".to_owned()), ..Scope::default() };
    let mut other = watch(&server, &WatchParams { scope: in_other, ..from("1") });
    let mut node = watch(&server, &WatchParams { scope: on_n1, ..from("1") });
    server.create(pod("a")).unwrap();
    server.create(Pod::new("other", "a")).unwrap();
    server.update(pod("a").on_node("n1")).unwrap();
    server.create(pod("b").on_node("n1")).unwrap();
    server.update(pod("a").on_node("n2")).unwrap();
    assert_eq!(drain(&mut other), ["+a@3"]);
    assert_eq!(drain(&mut node), ["+a@4", "-a@6"]);
}

/// The recordings, and a real server: `timeoutSeconds=N` ends at N; of a longer watch the last bookmark comes 2 s
/// before, others each minute.
#[test]
fn bookmarks_come_each_minute_and_two_seconds_before_the_end() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let marked = WatchParams { bookmarks: true, timeout: secs(150), ..from("1") };
    let mut stream = watch(&server, &marked);
    let mut unmarked = watch(&server, &WatchParams { bookmarks: false, ..marked.clone() });
    server.create(pod("a")).unwrap();
    let mut told = Vec::new();
    for second in 1..=151 {
        clock.advance(secs(1));
        if second == 60 {
            server.create(pod("b")).unwrap();
        }
        told.extend(drain(&mut stream).into_iter().map(|what| format!("{second} {what}")));
    }
    let want = ["1 +a@2", "60 +b@3", "60 mark 3", "120 mark 3", "148 mark 3", "150 end"];
    assert_eq!(told, want);
    assert_eq!(drain(&mut unmarked), ["+a@2", "+b@3", "end"], "only if asked for");
    let mut short = watch(&server, &WatchParams { bookmarks: true, timeout: secs(2), ..from("3") });
    clock.advance(secs(2));
    assert_eq!(drain(&mut short), ["end"], "a watch of two seconds has no room for one");
}

/// The frames before a bookmark are those up to its version: resuming from it loses and repeats nothing.
#[test]
fn a_bookmark_says_no_more_than_what_was_delivered() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut stream = watch(&server, &WatchParams { bookmarks: true, ..from("1") });
    for n in 0..10 {
        server.create(pod(&format!("p{n}"))).unwrap();
    }
    clock.advance(secs(60));
    let told: Vec<String> = drain(&mut stream);
    let at = told.iter().position(|t| t.starts_with("mark")).expect("a bookmark is due");
    let version: usize = told[at].strip_prefix("mark ").unwrap().parse().unwrap();
    assert_eq!(version, at + 1, "{told:?}: version {version} after {at} changes");
    let mut resumed = watch(&server, &from(&version.to_string()));
    let rest: Vec<_> = told[at + 1..].iter().filter(|t| !t.starts_with("mark")).cloned().collect();
    assert_eq!(drain(&mut resumed), rest);
}

#[test]
fn a_bookmark_moves_on_with_changes_of_others() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let marked = WatchParams { bookmarks: true, scope: labels("app=web"), ..from("1") };
    let mut stream = watch(&server, &marked);
    for n in 0..10 {
        server.create(pod(&format!("p{n}"))).unwrap();
    }
    clock.advance(secs(60));
    assert_eq!(drain(&mut stream).last().map(String::as_str), Some("mark 11"));
}

/// As a real server without its watch cache: no bookmarks at all, and compaction expires watches only then.
#[test]
fn without_a_watch_cache_there_are_no_bookmarks_and_compaction_expires_watches() {
    let clock = ManualClock::new();
    for cached in [true, false] {
        let server = Server::builder(&clock).cached(cached).build();
        let mut marked = watch(&server, &WatchParams { bookmarks: true, ..from("1") });
        clock.advance(secs(60));
        assert_eq!(drain(&mut marked).len(), usize::from(cached));
        for name in ["a", "b", "c"] {
            server.create(pod(name)).unwrap();
        }
        server.compact();
        let told = drain(&mut watch(&server, &from("1")));
        if cached {
            assert_eq!(told, ["+a@2", "+b@3", "+c@4"]);
        } else {
            assert_eq!(told, ["Expired"]);
        }
    }
}

#[test]
fn a_waiting_watcher_is_woken_by_news_nudges_deadlines_cuts_and_stop() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let stop = Stop::new();
    let wake = Wake::new(&stop, &clock);
    let told = sync::Arc::new(sync::Mutex::new(Vec::new()));
    let mut stream = watch(&server, &from("1"));
    let thread = {
        let (wake, told) = (wake.clone(), told.clone());
        sync::spawn(&clock, "watcher", move || {
            loop {
                let text = say(stream.next(&wake, Deadline::from(secs(5))));
                let last = text == "stopped";
                told.lock().push(text);
                if last {
                    return;
                }
            }
        })
        .unwrap()
    };
    let heard = |what: &[&str]| {
        clock.settle();
        assert_eq!(std::mem::take(&mut *told.lock()), what);
    };
    heard(&[]);
    server.create(pod("a")).unwrap();
    heard(&["+a@2"]);
    wake.nudge();
    heard(&["woken"]);
    clock.advance(secs(5));
    heard(&["deadline"]);
    server.create(pod("b")).unwrap();
    server.delete::<Pod>(key("a")).unwrap();
    heard(&["+b@3", "-a@4"]);
    stop.stop();
    heard(&["stopped"]);
    thread.join().unwrap();
    assert_eq!(server.open_streams(), 0, "a dropped stream is closed");
}

#[test]
fn connections_end_as_told_and_open_streams_are_counted() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut cut = watch(&server, &from("1"));
    let mut unread = watch(&server, &from("1"));
    assert_eq!(server.open_streams(), 2);
    server.create(pod("a")).unwrap();
    assert_eq!(drain(&mut cut), ["+a@2"]);
    server.drop_connections();
    server.create(pod("b")).unwrap();
    assert_eq!(drain(&mut cut), ["Transport"]);
    assert_eq!(drain(&mut unread), ["Transport"], "what was not read is lost with the line");
    assert_eq!(server.open_streams(), 0);
    let mut closed = watch(&server, &from("3"));
    server.close_connections();
    assert_eq!(drain(&mut closed), ["end"]);
    let dropped = watch(&server, &from("3"));
    assert_eq!(server.open_streams(), 1);
    drop(dropped);
    assert_eq!(server.open_streams(), 0);
}

#[test]
fn a_watcher_inside_a_silent_stream_still_hears_of_the_cut() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.faults([crate::memory::Fault::silence_after(1)]);
    let stop = Stop::new();
    let wake = Wake::new(&stop, &clock);
    let mut stream = watch(&server, &WatchParams { timeout: secs(10), ..from("1") });
    server.create(pod("a")).unwrap();
    server.create(pod("b")).unwrap();
    let thread = sync::spawn(&clock, "watcher", move || {
        [say(stream.next(&wake, Deadline::never())), say(stream.next(&wake, Deadline::never()))]
    })
    .unwrap();
    clock.advance(secs(1000));
    assert!(!thread.is_finished(), "half open: not even the end at 10 s comes");
    server.down(Close::Clean);
    assert_eq!(thread.join().unwrap(), ["+a@2", "end"]);
}

/// Writers race with a watcher that waits, and with one that asks now and then: both are told the audit log.
#[test]
fn racing_writers_lose_no_change_and_no_wake_up() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let stop = Stop::new();
    let wake = Wake::new(&stop, &clock);
    let mut waiting = watch(&server, &from("1"));
    let mut asking = watch(&server, &from("1"));
    let watcher = sync::spawn(&clock, "watcher", move || {
        let mut told = Vec::new();
        while told.last().is_none_or(|t: &String| t != "+last@902") {
            told.push(say(waiting.next(&wake, Deadline::from(secs(60)))));
        }
        told
    })
    .unwrap();
    let writers = [0, 1, 2].map(|w| {
        let server = server.clone();
        sync::spawn(&clock, "writer", move || {
            for n in 0..100 {
                let name = format!("w{w}-{n}");
                server.create(pod(&name)).unwrap();
                server.edit::<Pod>(key(&name), |p| p.generation += 1).unwrap();
                server.update(pod(&format!("w{w}-{}", n / 2)).with_generation(n + 7)).unwrap();
            }
        })
        .unwrap()
    });
    let mut asked = Vec::new();
    for writer in writers {
        asked.extend(drain(&mut asking));
        writer.join().unwrap();
    }
    assert_eq!(server.version(), "901");
    let last = server.create(pod("last")).unwrap();
    assert_eq!(version_of(&last), "902");
    asked.extend(drain(&mut asking));
    let mut told = Vec::new();
    for record in server.audit::<Pod>().records {
        let sign = if record.op == crate::memory::Op::Added { '+' } else { '~' };
        told.push(format!("{sign}{}@{}", record.object.name, record.version));
    }
    assert_eq!(asked, told, "asked now and then");
    assert_eq!(watcher.join().unwrap(), told, "waited");
}

#[test]
fn a_watch_that_has_read_everything_survives_trimming() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut read = watch(&server, &from("1"));
    let mut unread = watch(&server, &from("1"));
    server.create(pod("a")).unwrap();
    assert_eq!(drain(&mut read), ["+a@2"]);
    server.trim();
    server.create(pod("b")).unwrap();
    assert_eq!(drain(&mut read), ["+b@3"]);
    assert_eq!(drain(&mut unread), ["Expired"]);
}
