//! From kube's errors and a server's answers to [`SourceError`], with a word on what to do.
//!
//! Classes come from types: of the errors beneath, and of `HttpAnswer`. Hints come from texts of other crates, which may
//! change; a hint that is missed costs nothing else. What goes into a text: the request's path, the message of a
//! `Status`, and the errors of sockets and TLS. Never a body.

use super::decode::Status;
use crate::source::{HttpAnswer, RequestKind, SourceError, SourceErrorKind};
use http::HeaderMap;
use std::{error::Error, fmt, io, time::Duration};
use tower::buffer::error::Closed;

type Foreign = Box<dyn Error + Send + Sync>;

/// How deep errors are looked into.
const DEPTH: usize = 16;
/// A message of a server may be this long.
const MESSAGE: usize = 400;

/// A request that was not answered.
pub(super) fn of_send(what: &str, e: ::kube::Error) -> SourceError {
    let found = Found::within(&e);
    let kind = found.kind();
    let hint = match kind {
        SourceErrorKind::ConnectionRefused => "; is the server running, and is the kubeconfig's `server` its address?",
        SourceErrorKind::Connect => connect_hint(&text(&e)),
        SourceErrorKind::Other if found.closed => {
            "; the runtime on which the client was made has ended: keep it, or make the client with `Io::client`"
        }
        _ => "",
    };
    SourceError::caused_by(kind, inner(e)).with_context(format!("{what}{hint}"))
}

/// A body that broke.
pub(super) fn of_body(e: ::kube::Error) -> SourceError {
    SourceError::caused_by(SourceErrorKind::Transport, inner(e))
}

/// An answer that is an error; `None` when it is none.
pub(super) fn of_answer(request: RequestKind, what: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Option<SourceError> {
    let told = serde_json::from_slice::<Status>(body).ok().filter(|s| s.kind.as_deref() == Some("Status"));
    let header = headers.get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
    let retry_after = header.map(Duration::from_secs);
    match told {
        Some(told) => of_status(request, what, status, retry_after, &told),
        None => {
            let text = String::from_utf8_lossy(body);
            let answer = HttpAnswer { request, status, retry_after, reason: "", message: &text, causes: &[] };
            let kind = SourceErrorKind::of_http(&answer)?;
            let plain = status == 400 && text.starts_with("Client sent an HTTP request to an HTTPS server");
            let hint = if plain { "; the server speaks TLS: its address in the kubeconfig must begin with https" } else { "" };
            Some(SourceError::new(kind).with_context(format!("{what}{hint}")))
        }
    }
}

/// A `Status` within a stream.
pub(super) fn of_frame(request: RequestKind, what: &str, status: &Status) -> SourceError {
    let code = status.code.unwrap_or(0);
    of_status(request, what, code, None, status).unwrap_or_else(|| {
        let kind = SourceErrorKind::Server { code, reason: status.reason.clone().unwrap_or_default(), retry_after: None };
        SourceError::new(kind).with_context(format!("{what}: an error in the stream that says it is none"))
    })
}

fn of_status(request: RequestKind, what: &str, status: u16, header: Option<Duration>, told: &Status) -> Option<SourceError> {
    let details = told.details.as_ref();
    let advised = details.and_then(|d| d.retry_after_seconds).filter(|s| *s > 0).map(Duration::from_secs);
    let causes: Vec<&str> = details
        .and_then(|d| d.causes.as_ref())
        .map(|causes| causes.iter().filter_map(|c| c.reason.as_deref()).collect())
        .unwrap_or_default();
    let message = told.message.as_deref().unwrap_or("");
    let kind = SourceErrorKind::of_http(&HttpAnswer {
        request,
        status,
        retry_after: header.or(advised),
        reason: told.reason.as_deref().unwrap_or(""),
        message,
        causes: &causes,
    })?;
    let context = if message.is_empty() { what.to_owned() } else { format!("{what}: {}", shortened(message)) };
    Some(SourceError::new(kind).with_context(context))
}

/// There is no configuration.
pub(super) fn no_config(e: impl Error + Send + Sync + 'static) -> SourceError {
    SourceError::caused_by(SourceErrorKind::Other, e).with_context(
        "no configuration of a cluster; set KUBECONFIG, write ~/.kube/config, or run in a pod with a service account",
    )
}

/// A configuration that no client can be made from.
pub(super) fn no_client(e: ::kube::Error) -> SourceError {
    let context = match &e {
        ::kube::Error::TlsRequired => {
            "the server's address is https and no TLS is compiled in; give the application's `kube` the features \
             `rustls-tls` and `ring` (or `aws-lc-rs`), or `openssl-tls`"
        }
        ::kube::Error::Auth(_) => "the credentials of the configuration cannot be used",
        ::kube::Error::ProxyProtocolDisabled { .. } => "the configuration's proxy needs another feature of `kube`",
        _ => "no client can be made from the configuration; check its certificates and its server",
    };
    SourceError::caused_by(SourceErrorKind::Other, inner(e)).with_context(context)
}

/// What an error has beneath it, as far as it matters.
#[derive(Default)]
struct Found {
    refused: bool,
    connecting: bool,
    closed: bool,
    /// Neither a socket nor the protocol: credentials, a layer of the user's client.
    ours: bool,
}

impl Found {
    fn within(e: &::kube::Error) -> Self {
        let carried = matches!(e, ::kube::Error::Service(_) | ::kube::Error::HyperError(_));
        let mut found = Self { ours: !carried, ..Self::default() };
        walk(e, DEPTH, &mut |e| {
            found.refused |= e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            found.connecting |= e.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|e| e.is_connect());
            found.closed |= e.is::<Closed>();
        });
        found
    }

    fn kind(&self) -> SourceErrorKind {
        match self {
            Self { closed: true, .. } => SourceErrorKind::Other,
            Self { refused: true, .. } => SourceErrorKind::ConnectionRefused,
            Self { connecting: true, .. } => SourceErrorKind::Connect,
            Self { ours: true, .. } => SourceErrorKind::Other,
            _ => SourceErrorKind::Transport,
        }
    }
}

/// Looks at an error and at all that lies beneath it, also inside io errors, whose `source` leaves out what they hold.
fn walk(e: &(dyn Error + 'static), depth: usize, look: &mut dyn FnMut(&(dyn Error + 'static))) {
    look(e);
    if depth == 0 {
        return;
    }
    let held = e.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match held {
        Some(held) => walk(held, depth - 1, look),
        None => {
            if let Some(beneath) = e.source() {
                walk(beneath, depth - 1, look);
            }
        }
    }
}

fn text(e: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    walk(e, DEPTH, &mut |e| {
        text.push_str(&e.to_string());
        text.push('\n');
    });
    text
}

/// What kube wrapped; its own texts repeat what is beneath them, and one holds a whole `Status`.
fn inner(e: ::kube::Error) -> Foreign {
    match e {
        ::kube::Error::Service(e) => e,
        ::kube::Error::HyperError(e) => Box::new(e),
        ::kube::Error::Api(status) => Box::new(Answered(status.code)),
        e => Box::new(e),
    }
}

/// Stands for a `Status` that a layer of the user's client made an error of.
#[derive(Debug)]
struct Answered(u16);

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.0)
    }
}

impl Error for Answered {}

fn connect_hint(text: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&[
        "UnknownIssuer",
        "BadSignature",
        "certificate verify failed",
        "self-signed certificate",
        "unable to get local issuer",
    ]) {
        "; the server's certificate is not signed by the kubeconfig's certificate-authority: is it this cluster's, and is it \
         up to date?"
    } else if says(&["NotValidForName", "hostname mismatch", "IP address mismatch", "not valid for name"]) {
        "; the server's certificate is for another name: use an address that it names, or set tls-server-name in the kubeconfig"
    } else if says(&["certificate expired", "certificate has expired", "NotValidYet", "not valid yet"]) {
        "; the server's certificate is not valid at this time: is it renewed, and is the clock of this machine right?"
    } else if says(&["InvalidContentType", "InvalidMessage", "wrong version number", "corrupt message"]) {
        "; what answers there speaks no TLS: is the kubeconfig's `server` right, and should it begin with http or https?"
    } else if says(&["failed to lookup address", "dns error"]) {
        "; the server's name does not resolve: is the kubeconfig's `server` right?"
    } else {
        "; nobody answers at the kubeconfig's `server`: is the address right, and the network up?"
    }
}

fn shortened(message: &str) -> String {
    let mut line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE).collect();
    if message.chars().nth(MESSAGE).is_some() {
        line.push('…');
    }
    line
}
