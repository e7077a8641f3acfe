//! [`SourceError`]: what went wrong at a source, in the classes the reflector tells apart.

use crate::sync::call_out::Foreign;
use std::{error::Error, fmt, time::Duration};

/// The class of a source's failure. What the reflector does about each is a table in its documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The version or token asked with is older than the server's history. HTTP 410.
    Expired,
    /// The server has not reached the version asked for. HTTP 504 with the cause `ResourceVersionTooLarge`.
    TooLargeVersion {
        /// When the server suggests to ask again.
        retry_after: Option<Duration>,
    },
    /// HTTP 429.
    TooManyRequests {
        /// When the server suggests to ask again.
        retry_after: Option<Duration>,
    },
    /// HTTP 401.
    Unauthorized,
    /// HTTP 403.
    Forbidden,
    /// HTTP 404: the kind or the namespace does not exist (now).
    NotFound,
    /// The server does not know streamed initial lists.
    WatchListUnsupported,
    /// Any other answer that is an error.
    Server {
        /// HTTP status.
        code: u16,
        /// The server's reason, empty when it gave none.
        reason: String,
        /// When the server suggests to ask again.
        retry_after: Option<Duration>,
    },
    /// Nobody listens there.
    ConnectionRefused,
    /// Nobody was reached: name resolution, TLS, a time-out while connecting.
    Connect,
    /// The connection broke.
    Transport,
    /// A whole answer or frame could not be read.
    Decode,
    /// No answer in time.
    Timeout,
    /// The caller stopped it.
    Stopped,
    /// Anything else.
    Other,
}

/// A failure of a source: its class, what was being done, and what lies beneath.
pub struct SourceError {
    kind: SourceErrorKind,
    context: String,
    source: Option<Foreign<Box<dyn Error + Send + Sync>>>,
}

impl SourceError {
    /// A failure of this class.
    pub fn new(kind: SourceErrorKind) -> Self {
        Self { kind, context: String::new(), source: None }
    }

    /// A failure of this class, caused by `source`.
    pub fn caused_by(kind: SourceErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, context: String::new(), source: Some(Foreign::new(source.into())) }
    }

    /// Says what was being done, or what to do about it. Never put a body of an answer here: it may hold secrets.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = context.into();
        self
    }

    /// The class.
    pub fn kind(&self) -> &SourceErrorKind {
        &self.kind
    }

    /// How long the server asked to wait, when it did.
    pub fn retry_after(&self) -> Option<Duration> {
        self.kind.retry_after()
    }
}

impl SourceErrorKind {
    /// How long the server asked to wait, when it did.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooLargeVersion { retry_after } | Self::TooManyRequests { retry_after } | Self::Server { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }
}

impl From<SourceErrorKind> for SourceError {
    fn from(kind: SourceErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the version is too old for the server's history"),
            Self::TooLargeVersion { .. } => f.write_str("the server has not reached the version"),
            Self::TooManyRequests { .. } => f.write_str("the server has too many requests"),
            Self::Unauthorized => f.write_str("the credentials were not accepted; check the user's token or certificate"),
            Self::Forbidden => f.write_str("not allowed; the user needs the verbs list and watch on this resource"),
            Self::NotFound => f.write_str("the server does not know this resource; check its group, version and definition"),
            Self::WatchListUnsupported => f.write_str("the server does not know streamed lists"),
            Self::Server { code, reason, .. } if reason.is_empty() => write!(f, "the server answered {code}"),
            Self::Server { code, reason, .. } => write!(f, "the server answered {code} ({reason})"),
            Self::ConnectionRefused => f.write_str("nobody listens at the server's address"),
            Self::Connect => f.write_str("the server could not be reached"),
            Self::Transport => f.write_str("the connection broke"),
            Self::Decode => f.write_str("the answer could not be read"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Stopped => f.write_str("stopped"),
            Self::Other => f.write_str("the source failed"),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.context.is_empty() {
            write!(f, "{}: ", self.context)?;
        }
        write!(f, "{}", self.kind)
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceError")
            .field("kind", &self.kind)
            .field("context", &self.context)
            .field("source", &self.source.as_ref().map(|e| e.to_string()))
            .finish()
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|e| &***e as _)
    }
}
