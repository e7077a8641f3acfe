//! Lists: versions, pages, tokens.

use super::*;
use crate::{memory::Close, sync};

fn filled(clock: &ManualClock, n: usize) -> Server {
    let server = Server::builder(clock).first_version(10).build();
    for i in 0..n {
        server.create(pod(&format!("p{i}"))).unwrap();
    }
    server
}

/// Reads all pages, calling `between` after each.
fn pages(server: &Server, limit: u32, mut between: impl FnMut(usize)) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut versions, mut all, mut token) = (Vec::new(), Vec::new(), None);
    loop {
        let (end, items) = list(server, &page(limit, token)).unwrap();
        versions.push(end.version);
        all.push(items);
        between(all.len());
        token = end.continue_token;
        match &token {
            None => return (versions, all),
            Some(t) => assert!(!t.is_empty(), "an empty token means none and is never given"),
        }
    }
}

#[test]
fn a_list_gives_everything_selected_in_the_order_of_keys_with_the_servers_version() {
    let clock = ManualClock::new();
    let server = filled(&clock, 3);
    server.create(Pod::new("a", "z").with_label("app", "web")).unwrap();
    server.create(Pod::new("", "cluster-wide")).unwrap();
    let (end, items) = list(&server, &list_params(VersionMatch::MostRecent)).unwrap();
    assert_eq!((end.version.as_str(), end.continue_token), ("15", None));
    assert_eq!(items, ["cluster-wide@15", "z@14", "p0@11", "p1@12", "p2@13"]);
    let select = |scope: Scope| list(&server, &ListParams { scope, ..list_params(VersionMatch::Any) }).unwrap().1;
    assert_eq!(select(labels("app=web")), ["z@14"]);
    assert_eq!(select(Scope { namespace: Some("a".to_owned()), ..Scope::default() }), ["z@14"]);
    assert_eq!(select(Scope { namespace: Some("absent".to_owned()), ..Scope::default() }), [""; 0], "`no-such-namespace`");
    assert_eq!(select(Scope { fields: Some("metadata.name=p1".to_owned()), ..Scope::default() }), ["p1@12"]);
    for scope in [labels("a===b"), Scope { fields: Some("data.n=1".to_owned()), ..Scope::default() }] {
        let kind = list_kind(&server, &ListParams { scope: scope.clone(), ..list_params(VersionMatch::Any) });
        assert!(matches!(kind, SourceErrorKind::Server { code: 400, .. }), "{kind:?}");
        assert!(matches!(watch_kind(&server, &WatchParams { scope, ..from("10") }), SourceErrorKind::Server { code: 400, .. }));
    }
}

/// Recording `configmaps-paged`: every page shows the version, and the state, of the first.
#[test]
fn all_pages_show_the_state_at_the_first_one() {
    let clock = ManualClock::new();
    let server = filled(&clock, 7);
    let (versions, all) = pages(&server, 3, |n| {
        if n == 1 {
            server.create(pod("p31")).unwrap();
            server.update(pod("p4").on_node("n")).unwrap();
            server.delete::<Pod>(key("p5")).unwrap();
        }
    });
    assert_eq!(versions, ["17"; 3]);
    assert_eq!(all, [vec!["p0@11", "p1@12", "p2@13"], vec!["p3@14", "p4@15", "p5@16"], vec!["p6@17"]]);
    let mut stream = watch(&server, &from("17"));
    assert_eq!(drain(&mut stream), ["+p31@18", "~p4@19", "-p5@20"], "the rest comes with the watch");
}

#[test]
fn a_page_that_takes_the_last_object_has_no_token() {
    let clock = ManualClock::new();
    let server = filled(&clock, 6);
    assert_eq!(pages(&server, 3, |_| ()).1.len(), 2);
    assert_eq!(pages(&server, 6, |_| ()).1.len(), 1);
    assert_eq!(pages(&server, 0, |_| ()).1.len(), 1, "no limit");
    assert_eq!(pages(&filled(&clock, 0), 3, |_| ()).1, [vec![""; 0]]);
}

/// As etcd's reader does: a page is full before it is known whether the keys that are left are selected.
#[test]
fn with_a_selector_the_last_page_may_be_empty() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    server.create(pod("a").with_label("app", "web")).unwrap();
    server.create(pod("b").with_label("app", "db")).unwrap();
    let scope = labels("app=web");
    let (end, items) = list(&server, &ListParams { scope: scope.clone(), ..page(1, None) }).unwrap();
    assert_eq!(items, ["a@2"]);
    let (end, items) = list(&server, &ListParams { scope, ..page(1, end.continue_token) }).unwrap();
    assert_eq!((items.len(), end.continue_token), (0, None));
}

/// As a real server: version 0 is never paged with the watch cache, and is without.
#[test]
fn a_list_at_any_version_is_not_paged() {
    let clock = ManualClock::new();
    for (cached, want) in [(true, 5), (false, 2)] {
        let server = Server::builder(&clock).cached(cached).build();
        for i in 0..5 {
            server.create(pod(&format!("p{i}"))).unwrap();
        }
        let (end, items) = list(&server, &ListParams { limit: Some(2), ..list_params(VersionMatch::Any) }).unwrap();
        assert_eq!((items.len(), end.continue_token.is_none()), (want, cached));
    }
}

/// Recordings README: compaction alone does not expire a token, compaction and a restart do.
#[test]
fn page_tokens_outlive_compaction_and_restart_but_not_both() {
    let clock = ManualClock::new();
    let prepare = || {
        let server = filled(&clock, 4);
        let token = list(&server, &page(2, None)).unwrap().0.continue_token;
        server.update(pod("p3").on_node("n")).unwrap();
        (server, page(2, token))
    };
    let (server, second) = prepare();
    server.compact();
    assert_eq!(list(&server, &second).unwrap().1, ["p2@13", "p3@14"], "compaction alone");
    server.restart(Close::Cut);
    assert_eq!(list_kind(&server, &second), SourceErrorKind::Expired, "and then a restart");
    let (server, second) = prepare();
    server.restart(Close::Cut);
    let (end, items) = list(&server, &second).unwrap();
    assert_eq!((end.version.as_str(), items), ("14", vec!["p2@13".to_owned(), "p3@14".to_owned()]), "a restart alone");
    server.compact();
    assert_eq!(list_kind(&server, &second), SourceErrorKind::Expired, "and then compaction");
}

#[test]
fn page_tokens_expire_with_time() {
    let clock = ManualClock::new();
    let server = filled(&clock, 6);
    let first = list(&server, &page(2, None)).unwrap().0.continue_token;
    clock.advance(secs(200));
    let second = list(&server, &page(2, first.clone())).unwrap().0.continue_token;
    clock.advance(secs(99));
    assert!(list(&server, &page(2, second.clone())).is_ok());
    clock.advance(secs(1));
    for token in [first, second] {
        assert_eq!(list_kind(&server, &page(2, token)), SourceErrorKind::Expired, "5 minutes after the first page");
    }
}

/// `errors.jsonl`: `continue-garbage` and `continue-with-version`.
#[test]
fn a_token_that_is_none_and_a_token_with_a_version_are_bad_requests() {
    let clock = ManualClock::new();
    let server = filled(&clock, 6);
    for garbage in ["abc", "zz", "61", "é", "3132333420"] {
        let kind = list_kind(&server, &page(2, Some(garbage.to_owned())));
        assert!(matches!(kind, SourceErrorKind::Server { code: 400, .. }), "{garbage}: {kind:?}");
    }
    let token = list(&server, &page(2, None)).unwrap().0.continue_token;
    let both = ListParams { continue_token: token, ..list_params(VersionMatch::Exact("16".to_owned())) };
    assert!(matches!(list_kind(&server, &both), SourceErrorKind::Server { code: 400, .. }));
    assert_eq!(list(&server, &page(9, Some(String::new()))).unwrap().1.len(), 6, "an empty token means none");
}

/// `errors.jsonl`, `expired-exact`.
#[test]
fn an_exact_list_shows_its_version_until_that_is_compacted() {
    let clock = ManualClock::new();
    let server = filled(&clock, 2);
    server.update(pod("p0").on_node("n")).unwrap();
    server.delete::<Pod>(key("p1")).unwrap();
    let exact = |v: u32| list(&server, &list_params(VersionMatch::Exact(v.to_string())));
    let seen = |v: u32| exact(v).map(|(end, items)| (end.version, items.join(" "))).unwrap();
    assert_eq!(seen(10), ("10".to_owned(), String::new()));
    assert_eq!(seen(12), ("12".to_owned(), "p0@11 p1@12".to_owned()));
    assert_eq!(seen(13), ("13".to_owned(), "p0@13 p1@12".to_owned()));
    assert_eq!(seen(14), ("14".to_owned(), "p0@13".to_owned()));
    server.create(pod("p1")).unwrap();
    assert!(list(&server, &page(1, None)).unwrap().0.continue_token.is_some());
    server.create(pod("p2")).unwrap();
    server.compact();
    assert_eq!(seen(16).1, "p0@13 p1@15 p2@16");
    for gone in [13, 15] {
        let kind = exact(gone).unwrap_err().kind().clone();
        assert_eq!(kind, SourceErrorKind::Expired, "{gone}, though pages at version 15 may still be read");
    }
}

/// `errors.jsonl`: `too-large`, `too-large-exact`: 504 with the cause and `Retry-After: 1`, after 3 s.
#[test]
fn a_list_waits_three_seconds_for_a_version_that_is_not_reached() {
    let clock = ManualClock::new();
    let server = filled(&clock, 1);
    let ask = |version: VersionMatch, stop: &Stop| {
        let (source, stop, params) = (server.source::<Pod>(), stop.clone(), list_params(version));
        sync::spawn(&clock, "lister", move || {
            let end = source.list(&stop, &params, &mut |_| ControlFlow::Continue(()));
            end.map(|e| e.version).map_err(|e| e.kind().clone())
        })
        .unwrap()
    };
    let too_large = SourceErrorKind::TooLargeVersion { retry_after: Some(secs(1)) };
    for version in [VersionMatch::NotOlderThan("99".to_owned()), VersionMatch::Exact("99".to_owned())] {
        let thread = ask(version, &Stop::new());
        clock.advance(Duration::from_millis(2999));
        assert!(!thread.is_finished());
        clock.advance(Duration::from_millis(1));
        assert_eq!(thread.join().unwrap(), Err(too_large.clone()));
    }
    let thread = ask(VersionMatch::NotOlderThan("12".to_owned()), &Stop::new());
    clock.advance(secs(1));
    server.create(pod("b")).unwrap();
    assert_eq!(thread.join().unwrap(), Ok("12".to_owned()), "the version was reached in time");
    let stop = Stop::new();
    let thread = ask(VersionMatch::NotOlderThan("99".to_owned()), &stop);
    clock.settle();
    stop.stop();
    assert_eq!(thread.join().unwrap(), Err(SourceErrorKind::Stopped));
    let thread = ask(VersionMatch::NotOlderThan("99".to_owned()), &Stop::new());
    clock.settle();
    server.drop_connections();
    assert_eq!(thread.join().unwrap(), Err(SourceErrorKind::Transport));
}

/// As a real server without its watch cache.
#[test]
fn without_a_watch_cache_a_too_large_version_is_refused_at_once_and_without_advice() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).cached(false).build();
    let kind = list_kind(&server, &list_params(VersionMatch::NotOlderThan("99".to_owned())));
    assert_eq!(kind, SourceErrorKind::TooLargeVersion { retry_after: None });
}

#[test]
fn a_list_stops_when_its_caller_says_so() {
    let clock = ManualClock::new();
    let server = filled(&clock, 3);
    let mut seen = 0;
    let end = server.source::<Pod>().list(&Stop::new(), &list_params(VersionMatch::Any), &mut |_| {
        seen += 1;
        ControlFlow::Break(())
    });
    assert_eq!((end.unwrap_err().kind(), seen), (&SourceErrorKind::Stopped, 1));
    let stop = Stop::new();
    stop.stop();
    let end = server.source::<Pod>().list(&stop, &list_params(VersionMatch::Any), &mut |_| panic!("stopped before"));
    assert_eq!(end.unwrap_err().kind(), &SourceErrorKind::Stopped);
}
