//! What a real server answered is sorted by the adapter as `of_http` sorts it, whatever way it comes.

use crate::{
    answer::{kind_of_answer, kind_of_frame},
    world::{pods, two_pods},
};
use informer::source::{
    ListParams, ListerWatcher, Next,
    RequestKind::{self, List, StreamedList, Watch},
    Scope, SourceError, SourceErrorKind, VersionMatch, WatchParams, WatchStream,
};
use informer::sync::{Clock, Stop, Wake};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::server::{Fault, On, PATIENCE, Server};
use serde_json::Value;
use std::{ops::ControlFlow, time::Duration};

pub fn list(source: &impl ListerWatcher<Object = Pod>, version: VersionMatch) -> Result<String, SourceError> {
    let params = ListParams { version, limit: None, continue_token: None, scope: Scope::default() };
    source.list(&Stop::new(), &params, &mut |_| ControlFlow::Continue(())).map(|end| end.version)
}

pub fn watch(source: &impl ListerWatcher<Object = Pod>, from: &str) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
    watch_of(source, from, false)
}

/// With `initial_events`, the whole state first.
pub fn watch_of(
    source: &impl ListerWatcher<Object = Pod>,
    from: &str,
    initial_events: bool,
) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
    let (from, timeout) = (from.to_owned(), Duration::from_secs(300));
    source.watch(&Stop::new(), &WatchParams { from, timeout, bookmarks: true, initial_events, scope: Scope::default() })
}

pub fn next(stream: &mut dyn WatchStream<Pod>) -> Next<Pod> {
    stream.next(&Wake::new(&Stop::new(), &Clock::real()), PATIENCE.into())
}

fn request_of(path: &str) -> RequestKind {
    match (path.contains("watch=true"), path.contains("sendInitialEvents=true")) {
        (false, _) => List,
        (true, false) => Watch,
        (true, true) => StreamedList,
    }
}

/// Asks in the way of `request`; the class of what failed, at once or in the stream.
fn ask(server: &Server, request: RequestKind) -> Option<SourceErrorKind> {
    let source = pods(server);
    match request {
        List => list(&source, VersionMatch::MostRecent).err().map(|e| e.kind().clone()),
        _ => match watch_of(&source, "5", request == StreamedList) {
            Err(e) => Some(e.kind().clone()),
            Ok(mut stream) => match next(&mut *stream) {
                Next::Failed(e) => Some(e.kind().clone()),
                Next::End => None,
                other => panic!("neither an error nor an end: {other:?}"),
            },
        },
    }
}

#[test]
fn every_recorded_answer_of_a_real_server_comes_out_as_its_class() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recordings/errors.jsonl");
    let text = std::fs::read_to_string(path).expect(path);
    let mut cases = 0;
    for line in text.lines().map(|l| serde_json::from_str::<Value>(l).expect("a line of JSON")) {
        let Some(case) = line["case"].as_str() else { continue };
        let asked = request_of(line["path"].as_str().expect("a path"));
        let on = match asked {
            List => On::List,
            Watch => On::Watch,
            StreamedList => On::StreamedList,
        };
        let status = u16::try_from(line["status"].as_u64().expect("a status")).expect("an HTTP status");
        let frames = line["frames"].as_array();
        let expected = match frames {
            None => kind_of_answer(asked, status, &line["headers"], line.get("body"), line["text"].as_str()),
            Some(frames) => frames.iter().find_map(|f| kind_of_frame(asked, &f["object"])),
        };
        let server = two_pods();
        server.fault(
            on,
            match (frames, line.get("body"), line["text"].as_str()) {
                (Some(frames), ..) => Fault::Lines(frames.iter().map(Value::to_string).collect()),
                (None, Some(body), _) => with_headers(status, &line["headers"], body.to_string()),
                (None, None, Some(text)) => with_headers(status, &line["headers"], text.to_owned()),
                // Silence, and then an end.
                (None, None, None) => Fault::Lines(Vec::new()),
            },
        );
        assert_eq!(ask(&server, asked), expected, "{case}");
        assert_eq!(server.faults(), 0, "{case}: the request was another one");
        cases += 1;
    }
    assert_eq!(cases, 26);
}

fn with_headers(status: u16, headers: &Value, body: String) -> Fault {
    let headers = headers.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.as_str().unwrap_or("").to_owned()));
    Fault::Answer { status, headers: headers.collect(), body: body.into_bytes() }
}

#[test]
fn advice_is_taken_from_the_header_and_from_the_status() {
    let server = two_pods();
    let source = pods(&server);
    let seconds = |s| Some(Duration::from_secs(s));
    let overload = "Too many requests, please try again later.\n";
    let storage = r#"{"kind":"Status","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":1}}"#;
    let young = r#"{"kind":"Status","reason":"ServiceUnavailable","code":503,"details":{"retryAfterSeconds":5}}"#;
    let cases = [
        (Fault::text(429, &[("Retry-After", "7")], overload), SourceErrorKind::TooManyRequests { retry_after: seconds(7) }),
        (Fault::text(429, &[], overload), SourceErrorKind::TooManyRequests { retry_after: None }),
        // A date is no number of seconds, and no reason to fail.
        (
            Fault::text(429, &[("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")], overload),
            SourceErrorKind::TooManyRequests { retry_after: None },
        ),
        (Fault::text(429, &[], storage), SourceErrorKind::TooManyRequests { retry_after: seconds(1) }),
        (
            Fault::text(503, &[], young),
            SourceErrorKind::Server { code: 503, reason: "ServiceUnavailable".to_owned(), retry_after: seconds(5) },
        ),
    ];
    for (fault, expected) in cases {
        server.fault(On::List, fault.clone());
        let error = list(&source, VersionMatch::Any).expect_err("an error");
        assert_eq!(*error.kind(), expected, "{fault:?}");
    }
}

/// Else a version that is too large, and a server that asks for patience, would be kept from the reflector for minutes.
#[test]
fn no_request_is_repeated_below_the_reflector() {
    let server = two_pods();
    let source = pods(&server);
    for code in [429, 503, 504] {
        server.fault(On::List, Fault::text(code, &[("Retry-After", "1")], "busy"));
        list(&source, VersionMatch::Any).expect_err("an error");
    }
    assert_eq!(server.asked(), ["list any"; 3]);
}
