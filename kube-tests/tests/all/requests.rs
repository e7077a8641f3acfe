//! What is asked, to the letter of the query.

use crate::{
    errors::{list, watch},
    world::{World, pods, two_pods},
};
use informer::{
    kube::{Io, KubeSource},
    reflector::InitialState,
    source::{ListParams, ListerWatcher, Scope, Shard, SourceErrorKind, VersionMatch, WatchParams},
    sync::Stop,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube_tests::server::{Request, Server};
use serde_json::json;
use std::{ops::ControlFlow, time::Duration};

fn query(request: &Request) -> Vec<(&str, &str)> {
    request.query.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

#[test]
fn each_form_of_a_list_has_its_query() {
    let server = two_pods();
    let source = pods(&server);
    let ask = |version, limit, token: Option<&str>| {
        let continue_token = token.map(str::to_owned);
        let params = ListParams { version, limit, continue_token, scope: Scope::default() };
        let _whatever = source.list(&Stop::new(), &params, &mut |_| ControlFlow::Continue(()));
    };
    // A limit does not make a consistent read of a list that may be old.
    ask(VersionMatch::Any, Some(500), None);
    ask(VersionMatch::MostRecent, None, None);
    ask(VersionMatch::NotOlderThan("7".into()), None, None);
    ask(VersionMatch::Exact("102".into()), Some(2), None);
    // A page carries neither version nor match: the server refuses both.
    ask(VersionMatch::MostRecent, Some(2), Some("102 ns a"));
    let requests = server.requests();
    let queries: Vec<_> = requests.iter().map(query).collect();
    assert_eq!(
        queries,
        [
            vec![("limit", "500"), ("resourceVersion", "0"), ("resourceVersionMatch", "NotOlderThan")],
            vec![],
            vec![("resourceVersion", "7"), ("resourceVersionMatch", "NotOlderThan")],
            vec![("limit", "2"), ("resourceVersion", "102"), ("resourceVersionMatch", "Exact")],
            vec![("continue", "102 ns a"), ("limit", "2")],
        ]
    );
    assert!(requests.iter().all(|r| r.path == "/api/v1/pods" && r.headers["accept"] == "application/json"));
}

#[test]
fn a_watch_says_how_long_wants_bookmarks_and_no_compression() {
    let server = two_pods();
    drop(watch(&pods(&server), "7").unwrap());
    let request = &server.requests()[0];
    let expected = [("allowWatchBookmarks", "true"), ("resourceVersion", "7"), ("timeoutSeconds", "300"), ("watch", "true")];
    assert_eq!(query(request), expected);
    assert_eq!(request.headers["accept-encoding"], "identity");
}

#[test]
fn the_scope_is_in_every_request() {
    let server = two_pods();
    server.put_named("pods", "other", "c", json!({"app": "x"}));
    let scope = Scope {
        namespace: Some("ns".to_owned()),
        labels: Some("app=x".to_owned()),
        fields: Some("spec.nodeName=n1".to_owned()),
        ..Scope::default()
    };
    let mut world = World::with(server, |b| b.scope(scope)).start().watching();
    assert_eq!(world.stored().into_keys().collect::<Vec<_>>(), ["ns/a"]);
    for request in world.server.requests() {
        assert_eq!(request.path, "/api/v1/namespaces/ns/pods");
        assert_eq!((&*request.query["labelSelector"], &*request.query["fieldSelector"]), ("app=x", "spec.nodeName=n1"));
    }
    // One that leaves the selection is deleted here, and one that enters it is new.
    world.server.put_named("pods", "ns", "a", json!({"app": "y"}));
    world.server.put_named("pods", "ns", "b", json!({"app": "x"}));
    world.server.wait("the change", |_| world.stored().into_keys().eq(["ns/b".to_owned()]));
    world.end("a scope");
}

/// The server knows nothing of shards: they are made of names, here.
#[test]
fn the_shards_of_a_kind_are_its_parts() {
    let mut all = Vec::new();
    for index in 0..3 {
        let server = two_pods();
        for i in 0..20 {
            server.put_named("pods", "ns", &format!("p{i}"), json!({}));
        }
        let truth = server.truth("pods");
        let scope = Scope { shard: Some(Shard::new(index, 3).unwrap()), ..Scope::default() };
        let mut world = World::with(server, |b| b.scope(scope)).start().watching();
        let mine: Vec<_> = world.stored().into_keys().collect();
        assert!(mine.len() < truth.len(), "{mine:?}");
        all.extend(mine);
        world.end("a shard");
        if index == 2 {
            all.sort();
            assert!(all.iter().eq(truth.keys()), "{all:?}");
        }
    }
}

#[test]
fn a_large_kind_is_listed_page_by_page() {
    let server = two_pods();
    for i in 0..5 {
        server.put_named("pods", "ns", &format!("p{i}"), json!({}));
    }
    let mut world = World::with(server, |b| b.initial(InitialState::MostRecent).page_size(3)).start().watching();
    world.agrees("all pages");
    world.asked("pages", &["list newest", "page", "page", "watch 107"]);
    world.end("pages");
}

/// A server without a watch cache pages even that.
#[test]
fn a_list_of_any_version_is_paged_where_the_server_has_no_cache() {
    let server = two_pods();
    server.cached(false);
    let mut world = World::with(server, |b| b.page_size(1)).start().watching();
    world.agrees("all pages");
    world.asked("pages", &["list any", "page", "watch 102"]);
    world.end("no cache");
}

#[test]
fn an_api_for_one_namespace_asks_for_that() {
    let server = two_pods();
    server.put_named("pods", "other", "c", json!({}));
    let io = Io::shared().unwrap();
    let source = KubeSource::of(&io, Api::<Pod>::namespaced(io.client(server.config()).unwrap(), "ns"));
    assert_eq!(list(&source, VersionMatch::Any).unwrap(), "103");
    assert_eq!(server.requests()[0].path, "/api/v1/namespaces/ns/pods");

    let scope = Scope { namespace: Some("other".to_owned()), ..Scope::default() };
    let params =
        WatchParams { from: "1".into(), timeout: Duration::from_secs(60), bookmarks: true, initial_events: false, scope };
    let error = source.watch(&Stop::new(), &params).err().expect("two namespaces");
    assert_eq!(*error.kind(), SourceErrorKind::Other);
    assert!(error.to_string().contains("say it once"), "{error}");
    assert_eq!(server.requests().len(), 1, "nothing was asked");
}

#[test]
fn a_kind_without_namespaces_is_asked_for_at_its_own_path() {
    let server = Server::plain();
    let io = Io::shared().unwrap();
    let source = KubeSource::<Node>::new(&io, io.client(server.config()).unwrap());
    let params = ListParams { version: VersionMatch::Any, limit: None, continue_token: None, scope: Scope::default() };
    let error = source.list(&Stop::new(), &params, &mut |_| ControlFlow::Continue(())).expect_err("it has no nodes");
    assert_eq!(*error.kind(), SourceErrorKind::NotFound);
    assert_eq!(server.requests()[0].path, "/api/v1/nodes");
}

/// It becomes a part of the path.
#[test]
fn a_namespace_that_is_none_is_refused_before_it_is_asked_for() {
    let server = two_pods();
    let source = pods(&server);
    for namespace in ["", "a/b", "../x", "a?b", "a b", ".."] {
        let scope = Scope { namespace: Some(namespace.to_owned()), ..Scope::default() };
        let params = ListParams { version: VersionMatch::Any, limit: None, continue_token: None, scope };
        let error = source.list(&Stop::new(), &params, &mut |_| ControlFlow::Continue(())).expect_err(namespace);
        assert_eq!(*error.kind(), SourceErrorKind::Other, "{namespace:?}: {error}");
    }
    assert!(server.asked().is_empty());
}
