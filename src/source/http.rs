//! From an HTTP answer to a [`SourceErrorKind`].
//!
//! One pure function, so that every source over HTTP sorts failures alike. Kubernetes says what is wrong in up to four
//! places: the HTTP status, `reason` and `details.causes` of a `Status` body, and for some answers only a plain text.
//! A reason or the status is enough for a class. Words of a message count in one case only: servers too old to send
//! the cause `ResourceVersionTooLarge`.

use super::SourceErrorKind;
use std::time::Duration;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A list.
    List,
    /// A watch.
    Watch,
    /// A watch that begins with the initial state.
    StreamedList,
}

/// What the server answered, as far as it matters. Filled by the caller: the core parses no JSON. A `Status` inside a
/// stream is described the same way, with its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpAnswer<'a> {
    /// What was asked.
    pub request: RequestKind,
    /// HTTP status, or the `code` of a `Status` inside a stream.
    pub status: u16,
    /// The `Retry-After` header, or `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
    /// `Status.reason`, empty when there is none.
    pub reason: &'a str,
    /// `Status.message`, or the text of an answer without a `Status`.
    pub message: &'a str,
    /// `reason` of each of `Status.details.causes`.
    pub causes: &'a [&'a str],
}

impl SourceErrorKind {
    /// The class of what the server answered; `None` when the answer is no error: any status from 200 to 299.
    ///
    /// A stream is opened with 200 even when it has nothing but an error to say. That `Status` is another
    /// [`HttpAnswer`], with `status` set to its own `code` (0 when it has none, which is an error too).
    ///
    /// The first that fits, top down:
    ///
    /// | answer | class |
    /// |---|---|
    /// | 200 to 299 | `None` |
    /// | cause `ResourceVersionTooLarge`; or 504 or reason `Timeout`, with the message that says so | [`TooLargeVersion`](Self::TooLargeVersion) |
    /// | 410, reason `Expired` or `Gone` | [`Expired`](Self::Expired) |
    /// | 429, reason `TooManyRequests` | [`TooManyRequests`](Self::TooManyRequests) |
    /// | 401, reason `Unauthorized` | [`Unauthorized`](Self::Unauthorized) |
    /// | 403, reason `Forbidden` | [`Forbidden`](Self::Forbidden) |
    /// | 404, reason `NotFound` | [`NotFound`](Self::NotFound) |
    /// | 422 or reason `Invalid`, to a [`StreamedList`](RequestKind::StreamedList) | [`WatchListUnsupported`](Self::WatchListUnsupported) |
    /// | anything else | [`Server`](Self::Server) |
    ///
    /// A bad selector is a 400, so it is not taken for a server that knows no streamed lists. client-go:
    /// `apierrors.ReasonForError` and the `Is…` functions beside it, `IsTooLargeResourceVersion`.
    pub fn of_http(a: &HttpAnswer<'_>) -> Option<Self> {
        if (200..300).contains(&a.status) {
            return None;
        }
        let is = |status: u16, reasons: &[&str]| a.status == status || reasons.contains(&a.reason);
        let retry_after = a.retry_after;
        Some(if a.causes.contains(&"ResourceVersionTooLarge") || (is(504, &["Timeout"]) && says_too_large(a.message)) {
            Self::TooLargeVersion { retry_after }
        } else if is(410, &["Expired", "Gone"]) {
            Self::Expired
        } else if is(429, &["TooManyRequests"]) {
            Self::TooManyRequests { retry_after }
        } else if is(401, &["Unauthorized"]) {
            Self::Unauthorized
        } else if is(403, &["Forbidden"]) {
            Self::Forbidden
        } else if is(404, &["NotFound"]) {
            Self::NotFound
        } else if a.request == RequestKind::StreamedList && is(422, &["Invalid"]) {
            Self::WatchListUnsupported
        } else {
            Self::Server { code: a.status, reason: a.reason.to_owned(), retry_after }
        })
    }
}

/// What servers wrote before they sent a cause.
fn says_too_large(message: &str) -> bool {
    message.contains("Too large resource version")
}
