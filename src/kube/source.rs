//! [`KubeSource`]: lists and the opening of watches.

use super::{
    decode, error,
    io::{self, Io},
    request,
    stream::{Stream, poll_body},
};
use crate::{
    flow::Meta,
    source::{
        ListEnd, ListParams, ListerWatcher, RequestKind, Scope, SourceError, SourceErrorKind, Undecodable, WatchParams,
        WatchStream,
    },
    sync::{Clock, Deadline, Stop, Wake, Woken},
};
use ::kube::{Api, Client, Resource, client::Body};
use http::{Request, Response};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use std::{fmt, future::poll_fn, ops::ControlFlow, pin::pin, time::Duration};

/// A server gives up a list of its own after 60 s; its answer says more than our silence.
const LIST_TIMEOUT: Duration = Duration::from_secs(75);
/// A server that has just started may need seconds before it opens a watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// No more of an answer that is an error is read.
const ERROR_BODY: usize = 64 << 10;
/// No more of a list is read.
const LIST_BODY: usize = 2 << 30;
/// What a list may claim to need before any of it has come.
const FIRST_ROOM: u64 = 16 << 20;

/// The objects of one kind of a cluster, through kube's client.
///
/// The namespace and the selectors are the [`Scope`] that the informer is built with. May be asked by several informers
/// at once. Not to be used inside an async task, whose thread it would block: on threads of your own, or in
/// `spawn_blocking`.
pub struct KubeSource<K: Resource> {
    client: Client,
    kind: K::DynamicType,
    /// The namespace of the `Api` it was made of.
    namespace: Option<String>,
    clock: Clock,
    list_timeout: Duration,
    open_timeout: Duration,
    // Last: what is above may close connections of its thread.
    io: Io,
}

impl<K: Resource> KubeSource<K> {
    /// The objects of a type that is known when the program is compiled.
    pub fn new(io: &Io, client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self::with(io, client, K::DynamicType::default())
    }

    /// The objects of a kind that is known when the program runs: `DynamicObject`, or `PartialObjectMeta<DynamicObject>`,
    /// and its `ApiResource`.
    pub fn with(io: &Io, client: Client, kind: K::DynamicType) -> Self {
        Self {
            client,
            kind,
            namespace: None,
            clock: Clock::real(),
            list_timeout: LIST_TIMEOUT,
            open_timeout: OPEN_TIMEOUT,
            io: io.clone(),
        }
    }

    /// What an `Api` lists and watches. If it is for one namespace, so is the source, and the scope need not say it.
    pub fn of(io: &Io, api: Api<K>) -> Self
    where
        K::DynamicType: Default,
    {
        let namespace = api.namespace().map(str::to_owned);
        Self { namespace, ..Self::new(io, api.into_client()) }
    }

    /// How long one list request may take, from its sending to its last byte. 75 s by default: a kube-apiserver ends a
    /// request after 60 s, and waits 3 s for a version that it has not reached.
    #[must_use]
    pub fn list_timeout(mut self, timeout: Duration) -> Self {
        self.list_timeout = timeout;
        self
    }

    /// How long the server may take to open a watch. 30 s by default.
    #[must_use]
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout;
        self
    }

    /// The clock of those time-outs. The machine's by default; open watches go by the informer's.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    fn path(&self, scope: &Scope) -> Result<String, SourceError> {
        let namespace = match (&self.namespace, &scope.namespace) {
            (Some(ours), Some(asked)) if ours != asked => {
                let context = format!("the Api is for the namespace {ours:?} and the scope for {asked:?}; say it once");
                return Err(SourceError::new(SourceErrorKind::Other).with_context(context));
            }
            (ours, asked) => asked.as_ref().or(ours.as_ref()),
        };
        request::path::<K>(&self.kind, namespace.map(String::as_str))
    }

    /// Sends a request; what comes back is no error.
    fn ask(
        &self,
        wake: &Wake,
        until: Deadline,
        request: RequestKind,
        what: &str,
        http: Result<Request<Body>, http::Error>,
    ) -> Result<Response<Body>, SourceError> {
        let http = http.map_err(|e| SourceError::caused_by(SourceErrorKind::Other, e).with_context(what))?;
        let asked = async {
            let answer = self.client.send(http).await.map_err(|e| error::of_send(what, e))?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let (head, body) = answer.into_parts();
            // A class is known without the body.
            let body = read(body, ERROR_BODY).await.unwrap_or_else(|cut| cut.read);
            let error = error::of_answer(request, what, head.status.as_u16(), &head.headers, &body);
            Err(error.unwrap_or_else(|| SourceErrorKind::Other.into()))
        };
        let mut asked = pin!(asked);
        self.io.wait(&io::waker(wake), wake, until, |cx| asked.as_mut().poll(cx)).unwrap_or_else(|w| Err(interrupted(w, what)))
    }

    fn body(&self, wake: &Wake, until: Deadline, what: &str, body: Body) -> Result<Vec<u8>, SourceError> {
        let mut all = pin!(read(body, LIST_BODY));
        let read = self.io.wait(&io::waker(wake), wake, until, |cx| all.as_mut().poll(cx)).map_err(|w| interrupted(w, what))?;
        read.map_err(|cut| {
            let error = match cut.why {
                Some(e) => error::of_body(e),
                None => SourceError::new(SourceErrorKind::Other),
            };
            let hint = if cut.read.len() > LIST_BODY { ": the list is too long; ask for pages" } else { "" };
            error.with_context(format!("{what}{hint}"))
        })
    }
}

/// A body that did not come to its end.
struct Cut {
    read: Vec<u8>,
    /// None when it was longer than allowed.
    why: Option<::kube::Error>,
}

async fn read(mut body: Body, most: usize) -> Result<Vec<u8>, Cut> {
    let room = body.size_hint().lower().min(FIRST_ROOM);
    let mut read = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    while let Some(frame) = poll_fn(|cx| poll_body(&mut body, cx)).await {
        match frame {
            Ok(frame) => {
                if let Ok(chunk) = frame.into_data() {
                    read.extend_from_slice(&chunk);
                }
            }
            Err(e) => return Err(Cut { read, why: Some(e) }),
        }
        if read.len() > most {
            return Err(Cut { read, why: None });
        }
    }
    Ok(read)
}

fn interrupted(woken: Woken, what: &str) -> SourceError {
    let kind = match woken {
        Woken::Deadline => SourceErrorKind::Timeout,
        Woken::Stopped | Woken::Nudged => SourceErrorKind::Stopped,
    };
    SourceError::new(kind).with_context(what)
}

impl<K> ListerWatcher for KubeSource<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone,
{
    type Object = K;

    fn meta<'a>(&self, object: &'a K) -> Meta<'a> {
        let meta = object.meta();
        let text = |t: &'a Option<String>| t.as_deref().unwrap_or("");
        Meta {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            version: text(&meta.resource_version),
            uid: text(&meta.uid),
        }
    }

    fn labels(&self, object: &K, emit: &mut dyn FnMut(&str, &str)) {
        for (key, value) in object.meta().labels.iter().flatten() {
            emit(key, value);
        }
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<K, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let wake = Wake::new(stop, &self.clock);
        let until = Deadline::from(Deadline::from(self.list_timeout).on(&self.clock));
        let path = self.path(&params.scope)?;
        let what = format!("list {path}");
        let answer = self.ask(&wake, until, RequestKind::List, &what, request::list::<K>(&path, params))?;
        let body = self.body(&wake, until, &what, answer.into_body())?;
        decode::list(&what, &body, &self.kind, sink)
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<K>>, SourceError> {
        let wake = Wake::new(stop, &self.clock);
        let until = Deadline::from(self.open_timeout);
        let path = self.path(&params.scope)?;
        let what = format!("watch {path}");
        let asked = if params.initial_events { RequestKind::StreamedList } else { RequestKind::Watch };
        let answer = self.ask(&wake, until, asked, &what, request::watch::<K>(&path, params))?;
        Ok(Box::new(Stream::new(self.io.clone(), answer.into_body(), self.kind.clone(), asked, what)))
    }

    fn supports_watch_list(&self) -> bool {
        true
    }
}

impl<K: Resource> fmt::Debug for KubeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = (K::api_version(&self.kind), K::kind(&self.kind));
        f.debug_struct("KubeSource").field("kind", &kind).field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
