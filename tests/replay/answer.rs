//! Recorded HTTP answers, in the words of [`HttpAnswer`].

use informer::source::{HttpAnswer, RequestKind, SourceErrorKind};
use serde_json::Value;
use std::time::Duration;

/// The class of a whole answer: `headers` and `body` as recorded, `text` when the body is no JSON.
pub fn kind_of_answer(
    request: RequestKind,
    status: u16,
    headers: &Value,
    body: Option<&Value>,
    text: Option<&str>,
) -> Option<SourceErrorKind> {
    let header = headers["Retry-After"].as_str().and_then(|s| s.parse().ok()).map(Duration::from_secs);
    let none = Value::Null;
    let body = body.filter(|b| b["kind"] == "Status").unwrap_or(&none);
    kind_of(request, status, header, body, text)
}

/// The class of an ERROR frame's object, which has a code of its own.
pub fn kind_of_frame(request: RequestKind, object: &Value) -> Option<SourceErrorKind> {
    let code = object["code"].as_u64().and_then(|c| u16::try_from(c).ok()).unwrap_or(0);
    kind_of(request, code, None, object, None)
}

fn kind_of(
    request: RequestKind,
    status: u16,
    header: Option<Duration>,
    body: &Value,
    text: Option<&str>,
) -> Option<SourceErrorKind> {
    let details = &body["details"];
    let causes: Vec<&str> = details["causes"].as_array().into_iter().flatten().filter_map(|c| c["reason"].as_str()).collect();
    SourceErrorKind::of_http(&HttpAnswer {
        request,
        status,
        retry_after: header.or_else(|| details["retryAfterSeconds"].as_u64().map(Duration::from_secs)),
        reason: body["reason"].as_str().unwrap_or(""),
        message: body["message"].as_str().or(text).unwrap_or(""),
        causes: &causes,
    })
}
