//! The embedded server against recordings of a real one: asked the same, it must answer the same.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "replay/answer.rs"]
mod answer;

use answer::{kind_of_answer, kind_of_frame};
use informer::{
    memory::{Close, Pod, Server},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, RequestKind, Scope, SourceErrorKind, VersionMatch, WatchEvent, WatchParams,
        WatchStream,
    },
    sync::{ManualClock, Stop},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    time::Duration,
};

fn lines(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/recordings/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect()
}

fn list_params(version: VersionMatch) -> ListParams {
    ListParams { version, limit: None, continue_token: None, scope: Scope::default() }
}

fn watch_params(from: &str) -> WatchParams {
    WatchParams {
        from: from.to_owned(),
        timeout: Duration::from_secs(5),
        bookmarks: false,
        initial_events: false,
        scope: Scope::default(),
    }
}

fn list(server: &Server, stop: &Stop, params: &ListParams) -> Result<ListEnd, SourceErrorKind> {
    let end = server.source::<Pod>().list(stop, params, &mut |_| ControlFlow::Continue(()));
    end.map_err(|e| e.kind().clone())
}

/// How a request of `errors.jsonl` is put to the embedded server.
enum Ask {
    List(ListParams),
    Watch(WatchParams),
    /// It cannot be, and why.
    Not(&'static str),
}

/// Cases as in the recording: `token` is that of a list begun before the compaction and the restart.
fn ask(case: &str, token: Option<String>) -> Ask {
    let labels = |text: &str| Scope { labels: Some(text.to_owned()), ..Scope::default() };
    let version = |v: &str| v.to_owned();
    let continued = |version, token| Ask::List(ListParams { limit: Some(2), continue_token: token, ..list_params(version) });
    match case {
        "no-certificate" | "no-right" | "no-right-watch" => Ask::Not("there are no users"),
        "no-such-resource" => Ask::Not("every type is a resource"),
        "limit-not-a-number" | "match-without-version" | "match-unknown" => Ask::Not("the parameters' types exclude it"),
        "too-large-without-match" => Ask::Not("a version has a match"),
        "initial-events-without-match" | "initial-events-on-a-list" | "too-large-watch-list" => Ask::Not("no streamed lists"),
        "crowded-list" => Ask::Not("only as a fault"),
        "no-such-namespace" => {
            let scope = Scope { namespace: Some("absent".to_owned()), ..Scope::default() };
            Ask::List(ListParams { limit: Some(1), scope, ..list_params(VersionMatch::MostRecent) })
        }
        "version-not-a-number" => Ask::List(list_params(VersionMatch::NotOlderThan(version("abc")))),
        "watch-version-not-a-number" => Ask::Watch(watch_params("abc")),
        "continue-garbage" => continued(VersionMatch::MostRecent, Some("abc".to_owned())),
        "continue-with-version" => continued(VersionMatch::NotOlderThan(version("5")), token),
        "field-selector-unknown" => {
            let scope = Scope { fields: Some("data.n=1".to_owned()), ..Scope::default() };
            Ask::List(ListParams { scope, ..list_params(VersionMatch::MostRecent) })
        }
        "label-selector-bad" => Ask::List(ListParams { scope: labels("a===b"), ..list_params(VersionMatch::MostRecent) }),
        "too-large" => Ask::List(list_params(VersionMatch::NotOlderThan(version("999999999")))),
        "too-large-exact" => Ask::List(ListParams { limit: Some(2), ..list_params(VersionMatch::Exact(version("999999999"))) }),
        "too-large-watch" => Ask::Watch(watch_params("999999999")),
        "expired-continue" => continued(VersionMatch::MostRecent, token),
        "expired-exact" => Ask::List(list_params(VersionMatch::Exact(version("10")))),
        "expired-watch" => Ask::Watch(watch_params("10")),
        "expired-watch-with-bookmarks" => Ask::Watch(WatchParams { bookmarks: true, ..watch_params("10") }),
        other => panic!("{other} is a new case: say here how it is asked"),
    }
}

/// What the embedded server answered, and after how many seconds a stream did.
fn answered(clock: &ManualClock, server: &Server, what: Ask) -> (Option<SourceErrorKind>, u64) {
    let params = match what {
        Ask::Not(why) => panic!("not to be asked: {why}"),
        Ask::List(params) => return (list(server, &Stop::new(), &params).err(), 0),
        Ask::Watch(params) => params,
    };
    let mut stream = match server.source::<Pod>().watch(&Stop::new(), &params) {
        Ok(stream) => stream,
        Err(e) => return (Some(e.kind().clone()), 0),
    };
    for seconds in 0..60 {
        match stream.ready() {
            None => clock.advance(Duration::from_secs(1)),
            Some(Next::Failed(e)) => return (Some(e.kind().clone()), seconds),
            Some(Next::End) => return (None, seconds),
            Some(other) => panic!("neither an error nor the end: {other:?}"),
        }
    }
    panic!("the stream has no end");
}

#[test]
fn every_refusal_of_the_real_server_is_one_of_the_embedded_server() {
    let clock = ManualClock::new();
    // The three seconds of a version that is too large are measured elsewhere, on a thread of its own.
    let server = Server::builder(&clock).first_version(2830).too_large_wait(Duration::ZERO).build();
    for n in 0..6 {
        server.create(Pod::new("ns", format!("p{n}"))).expect("a new name");
    }
    let first = ListParams { limit: Some(2), ..list_params(VersionMatch::MostRecent) };
    let token = list(&server, &Stop::new(), &first).expect("a first page").continue_token;
    let mut compared = 0;
    for line in &lines("errors")[1..] {
        let case = line["case"].as_str().expect("a case");
        if case == "expired-continue" {
            // Between the recorded cases: changes, compaction, a restart.
            server.create(Pod::new("ns", "late")).expect("a new name");
            server.compact();
            server.restart(Close::Cut);
        }
        let what = match ask(case, token.clone()) {
            Ask::Not(_) => continue,
            what => what,
        };
        let watch = matches!(what, Ask::Watch(_));
        let kind = if watch { RequestKind::Watch } else { RequestKind::List };
        let status = u16::try_from(line["status"].as_u64().expect("a status")).expect("an HTTP status");
        let whole = kind_of_answer(kind, status, &line["headers"], line.get("body"), line["text"].as_str());
        let in_stream = line["frames"].as_array().and_then(|f| f.iter().find_map(|f| kind_of_frame(kind, &f["object"])));
        let (found, took) = answered(&clock, &server, what);
        assert_eq!(found, whole.or(in_stream), "{case}");
        if watch {
            // Five seconds for the silent one, else at once.
            assert_eq!(took, line["took_ms"].as_u64().expect("a duration") / 1000, "{case}");
        }
        compared += 1;
    }
    assert_eq!(compared, 14);
}

/// The writes of `pods-selector`, made to the embedded server: its watches with the same selector tell, frame by frame,
/// what the real ones told, also across the clean end between them.
#[test]
fn a_selector_tells_what_the_real_servers_selector_told() {
    let recording = lines("pods-selector");
    let text = |v: &Value| v.as_str().map(str::to_owned).unwrap_or_default();
    let frame_of = |line: &Value| {
        let (kind, meta) = (text(&line["frame"]["type"]), &line["frame"]["object"]["metadata"]);
        (kind != "BOOKMARK" && !kind.is_empty()).then(|| {
            [
                kind,
                text(&meta["name"]),
                text(&meta["resourceVersion"]),
                text(&meta["labels"]["app"]),
                text(&meta["annotations"]["i"]),
            ]
        })
    };
    let frames: Vec<(u64, [String; 5])> = recording.iter().filter_map(|l| Some((l["n"].as_u64()?, frame_of(l)?))).collect();
    assert!(frames.len() > 30 && frames.iter().any(|f| f.1[0] == "DELETED"));
    // Which writes left the object selected, and what they wrote, as the real server's answers tell.
    let mut selected: HashMap<String, String> = HashMap::new();
    for item in recording.iter().flat_map(|l| l["body"]["items"].as_array().into_iter().flatten()) {
        selected.insert(text(&item["metadata"]["resourceVersion"]), String::new());
    }
    for (_, [kind, _, version, _, i]) in &frames {
        if kind != "DELETED" {
            selected.insert(version.clone(), i.clone());
        }
    }

    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(700).build();
    let scope = Scope { labels: Some("app=web".to_owned()), ..Scope::default() };
    // From the real server's versions to ours, and back.
    let (mut ours, mut theirs) = (BTreeMap::new(), HashMap::new());
    let mut told = Vec::new();
    let mut stream: Option<Box<dyn WatchStream<Pod>>> = None;
    let mut read = |stream: &mut Option<Box<dyn WatchStream<Pod>>>, theirs: &HashMap<String, String>| {
        while let Some(next) = stream.as_mut().and_then(|s| s.ready()) {
            let (kind, pod) = match next {
                Next::Event(WatchEvent::Added(pod)) => ("ADDED", pod),
                Next::Event(WatchEvent::Modified(pod)) => ("MODIFIED", pod),
                Next::Event(WatchEvent::Deleted(pod)) => ("DELETED", pod),
                Next::End => return,
                other => panic!("no frame: {other:?}"),
            };
            let label = |name: &str| pod.label(name).unwrap_or_default().to_owned();
            told.push([kind.to_owned(), pod.name.clone(), theirs[&pod.version].clone(), label("app"), label("i")]);
        }
    };
    for line in &recording {
        if let Some(did) = line["did"].as_str() {
            let key = text(&line["key"]);
            let (namespace, name) = key.split_once('/').expect("a namespaced key");
            let version = text(&line["rv"]);
            let app = if selected.contains_key(&version) { "web" } else { "db" };
            // The annotation of the recording becomes a label; what is outside differs from write to write as well.
            let i = selected.get(&version).filter(|i| !i.is_empty()).cloned();
            let pod = Pod::new(namespace, name).with_label("app", app);
            let pod = match &i {
                Some(i) => pod.with_label("i", i.clone()),
                None => pod,
            };
            let written = match did {
                "create" => server.create(pod),
                "update" => server.update(pod.with_generation(ours.len() as u64)),
                "delete" => server.delete::<Pod>((namespace, name)),
                other => panic!("{other} is not done in this scenario"),
            };
            let ours_now = written.expect("the real server took it, too").version.clone();
            // A deletion is not recorded with its version.
            let version = if version.is_empty() { format!("deletion {ours_now}") } else { version };
            theirs.insert(ours_now.clone(), version.clone());
            ours.insert(version, ours_now);
        }
        if line["request"] == "list" {
            let params = ListParams { scope: scope.clone(), ..list_params(VersionMatch::Any) };
            let end = list(&server, &Stop::new(), &params).expect("a list");
            ours.insert("listed".to_owned(), end.version);
        }
        if line["request"] == "watch" {
            read(&mut stream, &theirs);
            server.close_connections();
            let asked = text(&line["query"]["resourceVersion"]);
            // The list's version may be that of a write elsewhere; ours is the newest write's.
            let from = ours.get(&asked).unwrap_or(&ours["listed"]).clone();
            let params = WatchParams { scope: scope.clone(), timeout: Duration::ZERO, ..watch_params(&from) };
            stream = Some(server.source::<Pod>().watch(&Stop::new(), &params).expect("a watch"));
        }
    }
    read(&mut stream, &theirs);
    let want: Vec<_> = frames.into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(told, want);
}
