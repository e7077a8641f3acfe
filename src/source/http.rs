//! From an HTTP answer to a [`SourceErrorKind`].

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
