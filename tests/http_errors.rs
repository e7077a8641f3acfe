//! `SourceErrorKind::of_http` against a written table: every line of `errors.jsonl`, which a real API server answered,
//! and the shapes seen elsewhere.

#[path = "replay/answer.rs"]
mod answer;

use answer::{kind_of_answer, kind_of_frame};
use informer::source::{
    HttpAnswer,
    RequestKind::{List, StreamedList, Watch},
    SourceErrorKind::{self, *},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

fn server(code: u16, reason: &str) -> Option<SourceErrorKind> {
    Some(Server { code, reason: reason.to_owned(), retry_after: None })
}

/// What each case of the file is. `None`: no error.
fn table() -> BTreeMap<&'static str, Option<SourceErrorKind>> {
    BTreeMap::from([
        ("no-certificate", Some(Unauthorized)),
        ("no-right", Some(Forbidden)),
        ("no-right-watch", Some(Forbidden)),
        // Plain text, no Status.
        ("no-such-resource", Some(NotFound)),
        // An empty list: the server does not ask whether the namespace exists.
        ("no-such-namespace", None),
        ("limit-not-a-number", server(400, "BadRequest")),
        ("match-without-version", server(422, "Invalid")),
        ("match-unknown", server(422, "Invalid")),
        ("version-not-a-number", server(400, "BadRequest")),
        // The same mistake in a watch has neither the status nor a reason.
        ("watch-version-not-a-number", server(500, "")),
        ("continue-garbage", server(400, "BadRequest")),
        ("continue-with-version", server(400, "BadRequest")),
        ("initial-events-without-match", Some(WatchListUnsupported)),
        // A list, so there is nothing to fall back from.
        ("initial-events-on-a-list", server(422, "Invalid")),
        ("field-selector-unknown", server(400, "BadRequest")),
        ("label-selector-bad", server(400, "BadRequest")),
        ("too-large", Some(TooLargeVersion { retry_after: SECOND })),
        ("too-large-without-match", Some(TooLargeVersion { retry_after: SECOND })),
        ("too-large-exact", Some(TooLargeVersion { retry_after: SECOND })),
        // Answered with silence.
        ("too-large-watch", None),
        ("too-large-watch-list", Some(TooLargeVersion { retry_after: SECOND })),
        ("expired-continue", Some(Expired)),
        ("expired-exact", Some(Expired)),
        ("expired-watch", Some(Expired)),
        ("expired-watch-with-bookmarks", Some(Expired)),
        // Plain text; the advice is in the header alone.
        ("crowded-list", Some(TooManyRequests { retry_after: SECOND })),
    ])
}

#[test]
fn every_recorded_answer_is_sorted_as_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recordings/errors.jsonl");
    let text = std::fs::read_to_string(path).expect(path);
    let mut open = table();
    for line in text.lines().map(|l| serde_json::from_str::<Value>(l).expect("a line of JSON")) {
        let Some(case) = line["case"].as_str() else {
            assert_eq!(line["scenario"], "errors", "a line without a case is the file's first");
            continue;
        };
        let expected = open.remove(case).unwrap_or_else(|| panic!("{case} is not in the table, or twice in the file"));
        let path = line["path"].as_str().expect("a path");
        let request = match (path.contains("watch=true"), path.contains("sendInitialEvents=true")) {
            (false, _) => List,
            (true, false) => Watch,
            (true, true) => StreamedList,
        };
        let status = u16::try_from(line["status"].as_u64().expect("a status")).expect("an HTTP status");
        let whole = kind_of_answer(request, status, &line["headers"], line.get("body"), line["text"].as_str());
        let found = match line["frames"].as_array() {
            None => whole,
            Some(frames) => {
                assert_eq!(whole, None, "{case}: a stream is opened with 200, so the answer itself is no error");
                assert!(frames.iter().all(|f| f["type"] == "ERROR"), "{case} has frames of another type");
                frames.iter().find_map(|f| kind_of_frame(request, &f["object"]))
            }
        };
        assert_eq!(found, expected, "{case}: {path}");
    }
    assert!(open.is_empty(), "cases of the table that the file does not have: {:?}", open.keys());
}

/// Answers seen from the same server at other times, by what they look like to whoever fills an `HttpAnswer`.
#[test]
fn the_shapes_of_one_class_are_all_sorted_into_it() {
    let shape = |status, reason, message, causes, seconds: Option<u64>| HttpAnswer {
        request: List,
        status,
        retry_after: seconds.map(Duration::from_secs),
        reason,
        message,
        causes,
    };
    let of = |a: HttpAnswer<'_>| SourceErrorKind::of_http(&a);
    let too_large: &[&str] = &["ResourceVersionTooLarge"];
    let five = Some(Duration::from_secs(5));

    // Without the watch cache the answer comes at once and advises nothing; the cause is there.
    let text = "Timeout: Too large resource version: 9, current: 5";
    assert_eq!(of(shape(504, "Timeout", text, too_large, None)), Some(TooLargeVersion { retry_after: None }));
    // Servers too old for the cause say it in words, with the status or with the reason.
    assert_eq!(of(shape(504, "", text, &[], None)), Some(TooLargeVersion { retry_after: None }));
    assert_eq!(of(shape(0, "Timeout", text, &[], Some(1))), Some(TooLargeVersion { retry_after: SECOND }));
    // Any other 504 is one, and words alone prove nothing.
    assert_eq!(of(shape(504, "Timeout", "the request did not complete", &[], None)), server(504, "Timeout"));
    assert_eq!(of(shape(500, "", text, &[], None)), server(500, ""));

    // Two shapes of 429.
    let storage = "storage is (re)initializing";
    let crowd = Some(TooManyRequests { retry_after: SECOND });
    assert_eq!(of(shape(429, "TooManyRequests", storage, &[], Some(1))), crowd);
    assert_eq!(of(shape(429, "", "Too many requests, please try again later.", &[], Some(1))), crowd);
    // What a client makes of a 429 that it could not read.
    let lost = "Failed to parse error data";
    assert_eq!(of(shape(429, lost, lost, &[], None)), Some(TooManyRequests { retry_after: None }));

    // 503 carries advice or none.
    let young = "not ready: installed paths are not complete";
    let expected = Some(Server { code: 503, reason: "ServiceUnavailable".to_owned(), retry_after: five });
    assert_eq!(of(shape(503, "ServiceUnavailable", young, &[], Some(5))), expected);
    let leaving = "apiserver is shutting down";
    assert_eq!(of(shape(503, "ServiceUnavailable", leaving, &[], None)), server(503, "ServiceUnavailable"));

    // Plain HTTP to the port for TLS.
    let plain = "Client sent an HTTP request to an HTTPS server.";
    assert_eq!(of(shape(400, "", plain, &[], None)), server(400, ""));
    // A reason that the reflector looks for.
    assert_eq!(of(shape(500, "StoreReadError", "", &[], None)), server(500, "StoreReadError"));
    // A redirect, or anything that is not 2xx, is no list.
    assert_eq!(of(shape(302, "", "", &[], None)), server(302, ""));

    // A Status in a stream may lack its code: the reason is enough, as the code is without a reason.
    let by_reason = [
        ("Expired", Expired),
        ("Gone", Expired),
        ("TooManyRequests", TooManyRequests { retry_after: None }),
        ("Unauthorized", Unauthorized),
        ("Forbidden", Forbidden),
        ("NotFound", NotFound),
    ];
    for (reason, kind) in by_reason {
        assert_eq!(of(shape(0, reason, "", &[], None)), Some(kind), "reason {reason}");
    }
    let by_status =
        [(410, Expired), (429, TooManyRequests { retry_after: None }), (401, Unauthorized), (403, Forbidden), (404, NotFound)];
    for (status, kind) in by_status {
        assert_eq!(of(shape(status, "", "", &[], None)), Some(kind), "status {status}");
    }
    assert_eq!(of(shape(0, "", "", &[], None)), server(0, ""), "an ERROR frame without a Status");
}

/// Only a refused streamed list means that the server knows none, and a bad selector does not.
#[test]
fn only_an_invalid_streamed_list_falls_back_to_a_list() {
    let off = json!({
        "kind": "Status", "reason": "Invalid", "code": 422,
        "message": "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        "details": { "causes": [{ "reason": "FieldValueForbidden", "field": "sendInitialEvents" }] },
    });
    let selector = json!({ "kind": "Status", "reason": "BadRequest", "code": 400, "message": "unable to parse requirement" });
    let of = |request, body: &Value| kind_of_frame(request, body);
    assert_eq!(of(StreamedList, &off), Some(WatchListUnsupported));
    assert_eq!(of(Watch, &off), server(422, "Invalid"));
    assert_eq!(of(List, &off), server(422, "Invalid"));
    assert_eq!(of(StreamedList, &selector), server(400, "BadRequest"));
    // The feature may be on and the version too new: that is answered in the stream, by the cause.
    let ahead = json!({
        "kind": "Status", "reason": "Timeout", "code": 504,
        "details": { "causes": [{ "reason": "ResourceVersionTooLarge" }], "retryAfterSeconds": 1 },
    });
    assert_eq!(of(StreamedList, &ahead), Some(TooLargeVersion { retry_after: SECOND }));
}

#[test]
fn every_success_is_no_error_whatever_its_body_says() {
    for status in 200..300 {
        for request in [List, Watch, StreamedList] {
            let a = HttpAnswer { request, status, retry_after: SECOND, reason: "Expired", message: "", causes: &[] };
            assert_eq!(SourceErrorKind::of_http(&a), None, "{status}");
        }
    }
}
