//! [`Server`]: an API server on plain threads and 127.0.0.1, over TCP or TLS, HTTP/1.1, one thread a connection.
//!
//! It answers as a kube-apiserver v1.37.2 was seen to answer, as far as an informer can notice: versions, pages that come
//! from the past, lists that a version 0 never pages, `Exact`, "too large", streamed initial lists with their end mark
//! only where bookmarks are allowed, 410 in the stream with status 200, silence for a version that is not reached,
//! selectors (`key=value`), metadata alone, no `kind` on items of built-in lists. Bookmarks come when a test says so.
//! Writes are enough for a controller: create, merge-patch, delete with finalizers.
//!
//! Nothing sleeps: threads wait for the state to change. A watch looks now and then whether its client is still there.

use crate::tls::Authority;
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

/// How often a watch looks for its client.
const LOOK: Duration = Duration::from_millis(10);
/// What the tests' waits end by, when what they wait for does not come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which requests a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The first page of a list.
    List,
    /// A later page.
    Page,
    /// A watch.
    Watch,
    /// A watch that begins with the initial state.
    StreamedList,
}

/// What happens to one request instead of its answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This is the answer.
    Answer { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// A stream of these lines, which then ends in order.
    Lines(Vec<String>),
    /// Nothing, until the connection goes away.
    Silent,
    /// The connection is closed.
    Cut,
    /// The head and half the body, then the connection is closed.
    HalfBody,
    /// The head and half the body, then nothing.
    StalledBody,
    /// The answer, with this done to each object.
    Change(fn(&mut Value)),
}

impl Fault {
    /// An answer that is a `Status`.
    pub fn status(code: u16, reason: &str, message: &str, details: Value) -> Self {
        Self::json(code, &status(code, reason, message, details))
    }

    /// An answer in JSON.
    pub fn json(code: u16, body: &Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self::Answer { status: code, headers, body: body.to_string().into_bytes() }
    }

    /// An answer in plain text.
    pub fn text(code: u16, headers: &[(&str, &str)], text: &str) -> Self {
        let mut all = vec![("Content-Type".to_owned(), "text/plain; charset=utf-8".to_owned())];
        all.extend(headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Self::Answer { status: code, headers: all, body: text.as_bytes().to_vec() }
    }
}

/// What is done to watches that are open.
#[derive(Clone, Debug)]
pub enum Inject {
    /// A line of its own.
    Line(String),
    /// Only the first half of a line; the rest never comes.
    HalfLine(String),
    /// These bytes.
    Bytes(Vec<u8>),
    /// An end in order.
    End,
    /// The connection is closed.
    Cut,
    /// A bookmark of the newest version.
    Bookmark,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn is(&self, key: &str, value: &str) -> bool {
        self.query.get(key).is_some_and(|v| v == value)
    }

    fn on(&self) -> On {
        match (self.is("watch", "true"), self.is("sendInitialEvents", "true"), self.query.contains_key("continue")) {
            (true, true, _) => On::StreamedList,
            (true, false, _) => On::Watch,
            (false, _, true) => On::Page,
            (false, _, false) => On::List,
        }
    }

    /// What was asked, in few words: `list any`, `list newest`, `list >=7`, `list =7`, `page`, `watch 7`, `streamed`.
    pub fn short(&self) -> String {
        let version = self.query.get("resourceVersion").map_or("", String::as_str);
        match self.on() {
            On::Page => "page".to_owned(),
            On::Watch => format!("watch {version}"),
            On::StreamedList if version.is_empty() => "streamed".to_owned(),
            On::StreamedList => format!("streamed >={version}"),
            On::List => match (version, self.query.get("resourceVersionMatch").map(String::as_str)) {
                ("", None) => "list newest".to_owned(),
                ("0", Some("NotOlderThan")) => "list any".to_owned(),
                (v, Some("NotOlderThan")) => format!("list >={v}"),
                (v, Some("Exact")) => format!("list ={v}"),
                other => format!("list {other:?}"),
            },
        }
    }
}

struct Change {
    version: u64,
    before: Option<Value>,
    /// None when deleted.
    after: Option<Value>,
    /// As it is told: for a deletion the last state with the deletion's version.
    object: Value,
}

struct Collection {
    api_version: &'static str,
    kind: &'static str,
    objects: BTreeMap<(String, String), Value>,
    log: Vec<Change>,
    /// A watch may begin at this version or later.
    floor: u64,
    /// States that pages are still cut from.
    past: BTreeMap<u64, BTreeMap<(String, String), Value>>,
}

struct State {
    version: u64,
    collections: BTreeMap<&'static str, Collection>,
    faults: VecDeque<(On, Fault)>,
    log: Vec<Request>,
    /// Open watches and what is to be done to them.
    watches: BTreeMap<u64, VecDeque<Inject>>,
    sockets: BTreeMap<u64, TcpStream>,
    connections: u64,
    next: u64,
    up: bool,
    streamed_lists: bool,
    cached: bool,
    uids: u64,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// A handle; dropping the last one ends the server.
pub struct Server {
    inner: Arc<Inner>,
    address: SocketAddr,
    root: Option<Vec<u8>>,
    accepting: Option<thread::JoinHandle<()>>,
}

/// A `Status`.
pub fn status(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code,
    });
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

fn expired() -> Value {
    status(410, "Expired", "The resourceVersion for the provided list is too old.", Value::Null)
}

fn too_large(asked: u64, current: u64, cached: bool) -> Value {
    let mut details = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
    if cached {
        details["retryAfterSeconds"] = json!(1);
    }
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    status(504, "Timeout", &message, details)
}

/// The line of an event.
pub fn line(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

impl Server {
    /// Over plain TCP.
    pub fn plain() -> Self {
        Self::start(None)
    }

    /// Over TLS, with a certificate of `authority`.
    pub fn tls(authority: &Authority) -> Self {
        Self::start(Some(authority))
    }

    fn start(authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let kinds = [("pods", "v1", "Pod"), ("configmaps", "v1", "ConfigMap"), ("widgets", "example.dev/v1", "Widget")];
        let collections = kinds.map(|(plural, api_version, kind)| {
            let (objects, log, past) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
            (plural, Collection { api_version, kind, objects, log, floor: 0, past })
        });
        let state = State {
            version: 100,
            collections: collections.into_iter().collect(),
            faults: VecDeque::new(),
            log: Vec::new(),
            watches: BTreeMap::new(),
            sockets: BTreeMap::new(),
            connections: 0,
            next: 0,
            up: true,
            streamed_lists: true,
            cached: true,
            uids: 0,
        };
        let tls = authority.map(|a| a.server.clone());
        let inner = Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new(), tls });
        let accepting = Some(accept(&inner, listener));
        Self { inner, address, root: authority.map(|a| a.root.clone()), accepting }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A configuration that reaches it.
    pub fn config(&self) -> kube::Config {
        let scheme = if self.root.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", self.address).parse().expect("an address");
        let mut config = kube::Config::new(url);
        config.root_cert = self.root.clone().map(|root| vec![root]);
        config
    }

    /// Creates or replaces an object; says its version.
    pub fn put(&self, plural: &str, object: Value) -> u64 {
        let mut state = self.inner.lock();
        let version = state.put(plural, object);
        drop(state);
        self.inner.changed.notify_all();
        version
    }

    /// Creates or replaces an object that has nothing but a name and labels.
    pub fn put_named(&self, plural: &str, namespace: &str, name: &str, labels: Value) -> u64 {
        let mut object = json!({"metadata": {"namespace": namespace, "name": name, "labels": labels}});
        if plural == "pods" {
            object["spec"] = json!({"containers": [{"name": "c", "image": "x"}], "nodeName": "n1"});
        }
        self.put(plural, object)
    }

    /// Deletes an object; says the deletion's version.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> u64 {
        let version = self.inner.lock().remove(plural, &(namespace.to_owned(), name.to_owned())).expect("it exists");
        self.inner.changed.notify_all();
        version
    }

    /// Every object of a kind: its key and its version.
    pub fn truth(&self, plural: &str) -> BTreeMap<String, String> {
        let state = self.inner.lock();
        let objects = &state.collections[plural].objects;
        objects.iter().map(|((ns, name), o)| (key(ns, name), text(&o["metadata"]["resourceVersion"]).to_owned())).collect()
    }

    /// Forgets history: watches from before now, pages and exact lists are 410.
    pub fn forget(&self) {
        let mut state = self.inner.lock();
        let version = state.version;
        for collection in state.collections.values_mut() {
            collection.floor = version;
            collection.past.clear();
        }
    }

    /// Goes back to a backup: versions continue from `version`, objects that are newer are gone, open watches are cut.
    pub fn restore(&self, version: u64) {
        let mut state = self.inner.lock();
        state.version = version;
        for collection in state.collections.values_mut() {
            collection.objects.retain(|_, o| number(&o["metadata"]["resourceVersion"]) <= version);
            (collection.log, collection.past, collection.floor) = (Vec::new(), BTreeMap::new(), version);
        }
        state.inject(&Inject::Cut);
        drop(state);
        self.inner.changed.notify_all();
    }

    /// The next request of this sort is answered so.
    pub fn fault(&self, on: On, fault: Fault) {
        self.inner.lock().faults.push_back((on, fault));
    }

    /// How many faults have not struck yet.
    pub fn faults(&self) -> usize {
        self.inner.lock().faults.len()
    }

    /// Does something to each open watch; says to how many.
    pub fn inject(&self, what: Inject) -> usize {
        let hit = self.inner.lock().inject(&what);
        self.inner.changed.notify_all();
        hit
    }

    /// Whether streamed initial lists are known. True at first.
    pub fn streamed_lists(&self, known: bool) {
        self.inner.lock().streamed_lists = known;
    }

    /// Whether it has a watch cache. True at first.
    pub fn cached(&self, cached: bool) {
        self.inner.lock().cached = cached;
    }

    /// Closes every connection.
    pub fn cut_connections(&self) {
        for socket in self.inner.lock().sockets.values() {
            let _gone = socket.shutdown(Shutdown::Both);
        }
        self.inner.changed.notify_all();
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.inner.lock().log.clone()
    }

    /// Every request so far, in few words.
    pub fn asked(&self) -> Vec<String> {
        self.inner.lock().log.iter().map(Request::short).collect()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.inner.lock().connections
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.inner.lock().sockets.len()
    }

    /// Watches that are open.
    pub fn open_watches(&self) -> usize {
        self.inner.lock().watches.len()
    }

    /// Waits until `done`, which is asked after every change and now and then.
    ///
    /// # Panics
    /// When it does not come to that within [`PATIENCE`].
    #[track_caller]
    pub fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}; asked: {:?}", self.asked());
            let state = self.inner.lock();
            drop(self.inner.changed.wait_timeout(state, LOOK));
        }
    }

    /// Listens again where it listened before, with all that it knew.
    pub fn come_back(&mut self) {
        let listener = TcpListener::bind(self.address).expect("its port");
        self.inner.lock().up = true;
        self.accepting = Some(accept(&self.inner, listener));
    }

    /// Stops listening and closes every connection. Whoever asks now is refused.
    pub fn shut_down(&mut self) {
        self.inner.lock().up = false;
        self.inner.changed.notify_all();
        if let Some(accepting) = self.accepting.take() {
            // So that it looks.
            drop(TcpStream::connect(self.address));
            let _ended = accepting.join();
        }
        self.cut_connections();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn accept(inner: &Arc<Inner>, listener: TcpListener) -> thread::JoinHandle<()> {
    let mine = inner.clone();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut state = mine.lock();
            if !state.up {
                return;
            }
            state.connections += 1;
            state.next += 1;
            let id = state.next;
            if let Ok(socket) = socket.try_clone() {
                state.sockets.insert(id, socket);
            }
            drop(state);
            let inner = mine.clone();
            thread::spawn(move || {
                // A client that goes away is no failure of the server's.
                let _ended = inner.serve(socket);
                inner.lock().sockets.remove(&id);
                inner.changed.notify_all();
            });
        }
    })
}

fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn number(value: &Value) -> u64 {
    text(value).parse().unwrap_or(0)
}

impl State {
    fn put(&mut self, plural: &str, mut object: Value) -> u64 {
        self.version += 1;
        let version = self.version;
        let collection = self.collections.get_mut(plural).expect("a kind");
        let key = (text(&object["metadata"]["namespace"]).to_owned(), text(&object["metadata"]["name"]).to_owned());
        let before = collection.objects.get(&key).cloned();
        let uid = match &before {
            Some(before) => before["metadata"]["uid"].clone(),
            None => {
                self.uids += 1;
                json!(format!("00000000-0000-4000-8000-{:012}", self.uids))
            }
        };
        object["apiVersion"] = json!(collection.api_version);
        object["kind"] = json!(collection.kind);
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        collection.log.push(Change { version, before, after: Some(object.clone()), object: object.clone() });
        collection.objects.insert(key, object);
        version
    }

    fn remove(&mut self, plural: &str, key: &(String, String)) -> Option<u64> {
        let collection = self.collections.get_mut(plural)?;
        let before = collection.objects.remove(key)?;
        self.version += 1;
        let mut object = before.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        collection.log.push(Change { version: self.version, before: Some(before), after: None, object });
        Some(self.version)
    }

    fn inject(&mut self, what: &Inject) -> usize {
        self.watches.values_mut().for_each(|w| w.push_back(what.clone()));
        self.watches.len()
    }

    fn strike(&mut self, on: On) -> Option<Fault> {
        let at = self.faults.iter().position(|(o, _)| *o == on)?;
        self.faults.remove(at).map(|(_, fault)| fault)
    }
}

/// Which objects a request selects.
struct Selection {
    namespace: Option<String>,
    labels: Vec<(String, String)>,
}

impl Selection {
    fn of(namespace: Option<&str>, request: &Request) -> Self {
        let labels = request.query.get("labelSelector").map_or("", String::as_str);
        let labels = labels.split(',').filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
        Self { namespace: namespace.map(str::to_owned), labels: labels.collect() }
    }

    fn has(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        self.namespace.as_ref().is_none_or(|n| text(&meta["namespace"]) == n)
            && self.labels.iter().all(|(k, v)| text(&meta["labels"][k]) == v)
    }
}

/// How objects are shown.
#[derive(Clone, Copy)]
struct Shown {
    metadata_only: bool,
    change: Option<fn(&mut Value)>,
}

impl Shown {
    fn item(self, mut object: Value, built_in: bool) -> Value {
        if self.metadata_only {
            object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
        } else if built_in && let Some(fields) = object.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        if let Some(change) = self.change {
            change(&mut object);
        }
        object
    }
}

/// A connection.
enum Line {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Line {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.get_ref(),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
        self.write(&out)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.chunk(format!("{line}\n").as_bytes())
    }

    fn answer(&mut self, status: u16, headers: &[(String, String)], body: &[u8]) -> io::Result<()> {
        self.head(status, headers, body.len())?;
        self.write(body)
    }

    fn head(&mut self, status: u16, headers: &[(String, String)], length: usize) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.write(head.as_bytes())
    }

    fn json(&mut self, code: u16, body: &Value) -> io::Result<()> {
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        if let Some(seconds) = body["details"]["retryAfterSeconds"].as_u64() {
            headers.push(("Retry-After".to_owned(), seconds.to_string()));
        }
        self.answer(code, &headers, body.to_string().as_bytes())
    }

    /// Whether the client has said anything, or has gone. In a watch both are its end.
    fn stirred(&self) -> bool {
        let socket = self.socket();
        let looked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let _back = socket.set_nonblocking(false);
        !matches!(looked, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => {
                let hex: String = bytes.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&hex, 16).unwrap_or(b'?')
            }
            b => b,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn read_request(line: &mut Line, rest: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(at) = rest.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        match line.read(&mut buffer)? {
            0 => return Ok(None),
            n => rest.extend_from_slice(&buffer[..n]),
        }
    };
    let head = String::from_utf8_lossy(&rest[..end]).into_owned();
    rest.drain(..end + 4);
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or("").split(' ');
    let (method, target) = (first.next().unwrap_or(""), first.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: BTreeMap<String, String> =
        lines.filter_map(|l| l.split_once(':')).map(|(k, v)| (k.trim().to_ascii_lowercase(), v.trim().to_owned())).collect();
    let length: usize = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    while rest.len() < length {
        match line.read(&mut buffer)? {
            0 => return Ok(None),
            n => rest.extend_from_slice(&buffer[..n]),
        }
    }
    let query = query.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (decoded(k), decoded(v))).collect();
    let body = rest.drain(..length).collect();
    Ok(Some(Request { method: method.to_owned(), path: decoded(path), query, headers, body }))
}

/// Which objects a path names: plural, namespace, name.
fn parse_path(path: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let rest = path.strip_prefix("/api/v1/").or_else(|| path.strip_prefix("/apis/example.dev/v1/"))?;
    let parts: Vec<&str> = rest.split('/').collect();
    match parts[..] {
        [plural] => Some((plural, None, None)),
        ["namespaces", ns, plural] => Some((plural, Some(ns), None)),
        ["namespaces", ns, plural, name] => Some((plural, Some(ns), Some(name))),
        _ => None,
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn serve(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut line = match &self.tls {
            None => Line::Plain(socket),
            Some(config) => {
                let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
                Line::Tls(Box::new(StreamOwned::new(tls, socket)))
            }
        };
        let mut first = [0];
        let hello = matches!(line, Line::Plain(_)) && line.socket().peek(&mut first)? == 1 && first == [0x16];
        if hello {
            // The beginning of TLS: told in HTTP that this is none of it.
            return line.write(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
        let mut rest = Vec::new();
        while let Some(request) = read_request(&mut line, &mut rest)? {
            let on = request.on();
            let fault = {
                let mut state = self.lock();
                let reads = request.method == "GET";
                if reads {
                    state.log.push(request.clone());
                }
                if reads { state.strike(on) } else { None }
            };
            self.changed.notify_all();
            if !self.one(&mut line, &request, fault)? {
                break;
            }
        }
        let _gone = line.socket().shutdown(Shutdown::Both);
        Ok(())
    }

    /// Answers one request; false when the connection is to be closed.
    fn one(&self, line: &mut Line, request: &Request, fault: Option<Fault>) -> io::Result<bool> {
        match &fault {
            Some(Fault::Answer { status, headers, body }) => return line.answer(*status, headers, body).map(|()| true),
            Some(Fault::Lines(lines)) => {
                line.write(STREAM.as_bytes())?;
                for l in lines {
                    line.line(l)?;
                }
                return line.write(b"0\r\n\r\n").map(|()| true);
            }
            Some(Fault::Silent) => {
                self.until_gone(line);
                return Ok(false);
            }
            Some(Fault::Cut) => return Ok(false),
            Some(Fault::HalfBody | Fault::StalledBody | Fault::Change(_)) | None => {}
        }
        let known = parse_path(&request.path).filter(|(plural, ..)| self.lock().collections.contains_key(*plural));
        let Some((plural, namespace, name)) = known else {
            let headers = [("Content-Type".to_owned(), "text/plain; charset=utf-8".to_owned())];
            return line.answer(404, &headers, b"404 page not found\n").map(|()| true);
        };
        if let (Some(namespace), Some(name)) = (namespace, name) {
            return self.single(line, request, plural, (namespace.to_owned(), name.to_owned())).map(|()| true);
        }
        if request.method == "POST" {
            return self.create(line, request, plural).map(|()| true);
        }
        let selection = Selection::of(namespace, request);
        let accept = request.headers.get("accept").map_or("", String::as_str);
        let change = if let Some(Fault::Change(change)) = &fault { Some(*change) } else { None };
        let shown = Shown { metadata_only: accept.contains("as=PartialObjectMetadata"), change };
        if request.is("watch", "true") {
            return self.watch(line, request, plural, &selection, shown);
        }
        let (code, body) = self.list(request, plural, &selection, shown);
        match fault {
            Some(Fault::HalfBody | Fault::StalledBody) => {
                let body = body.to_string();
                line.head(code, &[], body.len())?;
                line.write(&body.as_bytes()[..body.len() / 2])?;
                if matches!(fault, Some(Fault::StalledBody)) {
                    self.until_gone(line);
                }
                Ok(false)
            }
            _ => line.json(code, &body).map(|()| true),
        }
    }

    /// Waits until the client has gone.
    fn until_gone(&self, line: &Line) {
        let mut state = self.lock();
        while state.up && !line.stirred() {
            state = self.changed.wait_timeout(state, LOOK).map_or_else(|e| e.into_inner().0, |(s, _)| s);
        }
    }

    fn list(&self, request: &Request, plural: &str, selection: &Selection, shown: Shown) -> (u16, Value) {
        let mut state = self.lock();
        let (newest, cached) = (state.version, state.cached);
        let collection = state.collections.get_mut(plural).expect("known");
        let query = |k: &str| request.query.get(k).map(String::as_str).filter(|v| !v.is_empty());
        let mut limit = match query("limit").map(str::parse::<usize>) {
            None => None,
            Some(Ok(n)) => Some(n).filter(|n| *n > 0),
            Some(Err(_)) => return (400, status(400, "BadRequest", "strconv.ParseInt: parsing: invalid syntax", Value::Null)),
        };
        let how = query("resourceVersionMatch");
        if how.is_some() && query("resourceVersion").is_none() {
            let message = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return (422, status(422, "Invalid", message, Value::Null));
        }
        let (version, after) = if let Some(token) = query("continue") {
            if query("resourceVersion").is_some() {
                let message = "specifying resource version is not allowed when using continue";
                return (400, status(400, "BadRequest", message, Value::Null));
            }
            let parts: Vec<&str> = token.splitn(3, ' ').collect();
            let [version, ns, name] = parts[..] else {
                return (400, status(400, "BadRequest", "invalid continue token", Value::Null));
            };
            let version = version.parse::<u64>().unwrap_or(0);
            if version != newest && !collection.past.contains_key(&version) {
                let message = "The provided continue parameter is too old to display a consistent list result.";
                let mut body = status(410, "Expired", message, Value::Null);
                body["metadata"]["continue"] = json!(format!("{newest} {ns} {name}"));
                return (410, body);
            }
            (version, Some((ns.to_owned(), name.to_owned())))
        } else {
            let asked = query("resourceVersion").map(|v| v.parse::<u64>());
            let asked = match asked {
                Some(Err(_)) => {
                    return (400, status(400, "BadRequest", "invalid resource version", Value::Null));
                }
                Some(Ok(v)) => Some(v),
                None => None,
            };
            if asked.is_some_and(|v| v > newest) {
                return (504, too_large(asked.unwrap_or(0), newest, cached));
            }
            if asked == Some(0) && cached {
                limit = None;
            }
            let exact = how == Some("Exact") || (how.is_none() && limit.is_some() && asked.is_some_and(|v| v > 0));
            match asked {
                Some(v) if exact && v != newest => {
                    if !collection.past.contains_key(&v) {
                        return (410, expired());
                    }
                    (v, None)
                }
                _ => (newest, None),
            }
        };
        let all = if version == newest { collection.objects.clone() } else { collection.past[&version].clone() };
        let left: Vec<(&(String, String), &Value)> = all.iter().filter(|(k, _)| after.as_ref().is_none_or(|a| *k > a)).collect();
        let (mut items, mut last, mut more) = (Vec::new(), None, 0);
        for (i, (key, object)) in left.iter().enumerate() {
            if limit.is_some_and(|n| items.len() >= n) {
                more = left.len() - i;
                break;
            }
            if selection.has(object) {
                items.push(shown.item((*object).clone(), collection.api_version == "v1"));
                last = Some(*key);
            }
        }
        let mut meta = json!({"resourceVersion": version.to_string()});
        if let Some((ns, name)) = last.filter(|_| more > 0) {
            meta["continue"] = json!(format!("{version} {ns} {name}"));
            if selection.labels.is_empty() {
                meta["remainingItemCount"] = json!(more);
            }
            collection.past.insert(version, all.clone());
        }
        let (kind, api_version) = if shown.metadata_only {
            ("PartialObjectMetadata", "meta.k8s.io/v1")
        } else {
            (collection.kind, collection.api_version)
        };
        (200, json!({"kind": format!("{kind}List"), "apiVersion": api_version, "metadata": meta, "items": items}))
    }

    fn watch(&self, line: &mut Line, request: &Request, plural: &str, selection: &Selection, shown: Shown) -> io::Result<bool> {
        let query = |k: &str| request.query.get(k).map(String::as_str).filter(|v| !v.is_empty());
        let seconds = query("timeoutSeconds").and_then(|s| s.parse().ok()).unwrap_or(3600);
        let until = Instant::now() + Duration::from_secs(seconds);
        let bookmarks = request.is("allowWatchBookmarks", "true");
        let initial = request.is("sendInitialEvents", "true");
        let Ok(from) = query("resourceVersion").unwrap_or("0").parse::<u64>() else {
            return line.json(500, &status(500, "", "strconv.ParseUint: parsing: invalid syntax", Value::Null)).map(|()| true);
        };
        let mut state = self.lock();
        if initial && (!state.streamed_lists || query("resourceVersionMatch") != Some("NotOlderThan")) {
            drop(state);
            let message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature \
                           gate is enabled";
            let details = json!({"causes": [{"reason": "FieldValueForbidden", "message": message}]});
            return line.json(422, &status(422, "Invalid", message, details)).map(|()| true);
        }
        let mut first = Vec::new();
        let mut next = if from == 0 { state.version } else { from };
        if initial && from > state.version {
            first.push(line_of_error(&too_large(from, state.version, state.cached)));
            next = u64::MAX;
        } else if initial || from == 0 {
            let collection = &state.collections[plural];
            let all = collection.objects.values().filter(|o| selection.has(o));
            first.extend(all.map(|o| self::line("ADDED", &shown.item(o.clone(), false))));
            next = state.version;
            if initial && bookmarks {
                first.push(bookmark(collection, shown, next, true));
            }
        } else if from < state.collections[plural].floor {
            let message = format!("too old resource version: {from} ({})", state.collections[plural].floor);
            first.push(line_of_error(&status(410, "Expired", &message, Value::Null)));
            next = u64::MAX;
        }
        state.next += 1;
        let id = state.next;
        state.watches.insert(id, VecDeque::new());
        drop(state);
        self.changed.notify_all();
        let ended = self.stream(line, id, plural, selection, shown, first, next, until, bookmarks);
        self.lock().watches.remove(&id);
        self.changed.notify_all();
        ended
    }

    /// Sends what comes until the end; false when the connection is to be closed.
    #[allow(clippy::too_many_arguments, reason = "one caller, and no two of them belong together")]
    fn stream(
        &self,
        line: &mut Line,
        id: u64,
        plural: &str,
        selection: &Selection,
        shown: Shown,
        first: Vec<String>,
        mut next: u64,
        until: Instant,
        bookmarks: bool,
    ) -> io::Result<bool> {
        line.write(STREAM.as_bytes())?;
        for l in first {
            line.line(&l)?;
        }
        if next == u64::MAX {
            return line.write(b"0\r\n\r\n").map(|()| true);
        }
        loop {
            let mut lines = Vec::new();
            let mut what = None;
            {
                let mut state = self.lock();
                let collection = &state.collections[plural];
                for change in collection.log.iter().filter(|c| c.version > next) {
                    let was = change.before.as_ref().is_some_and(|o| selection.has(o));
                    let is = change.after.as_ref().is_some_and(|o| selection.has(o));
                    // Who leaves the selection is told in its previous state, with the new version.
                    let (kind, object) = match (was, is) {
                        (false, false) => continue,
                        (false, true) => ("ADDED", change.object.clone()),
                        (true, true) => ("MODIFIED", change.object.clone()),
                        (true, false) => {
                            let mut object = change.before.clone().unwrap_or_default();
                            object["metadata"]["resourceVersion"] = json!(change.version.to_string());
                            ("DELETED", object)
                        }
                    };
                    lines.push(self::line(kind, &shown.item(object, false)));
                }
                next = next.max(collection.log.last().map_or(0, |c| c.version));
                if lines.is_empty() {
                    what = state.watches.get_mut(&id).and_then(VecDeque::pop_front);
                    if let Some(Inject::Bookmark) = what {
                        next = next.max(state.version);
                        what = Some(Inject::Line(bookmark(&state.collections[plural], shown, next, false)));
                        if !bookmarks {
                            continue;
                        }
                    }
                    if what.is_none() {
                        if !state.up || line.stirred() {
                            return Ok(false);
                        }
                        if Instant::now() >= until {
                            what = Some(Inject::End);
                        } else {
                            drop(self.changed.wait_timeout(state, LOOK));
                            continue;
                        }
                    }
                }
            }
            for l in lines {
                line.line(&l)?;
            }
            match what {
                None => {}
                Some(Inject::Line(l)) => line.line(&l)?,
                Some(Inject::HalfLine(l)) => line.chunk(&l.as_bytes()[..l.len() / 2])?,
                Some(Inject::Bytes(bytes)) => line.chunk(&bytes)?,
                Some(Inject::End) => return line.write(b"0\r\n\r\n").map(|()| true),
                Some(Inject::Cut) => return Ok(false),
                Some(Inject::Bookmark) => {}
            }
        }
    }

    fn create(&self, line: &mut Line, request: &Request, plural: &str) -> io::Result<()> {
        let Ok(object) = serde_json::from_slice::<Value>(&request.body) else {
            return line.json(400, &status(400, "BadRequest", "no object", Value::Null));
        };
        let key = (text(&object["metadata"]["namespace"]).to_owned(), text(&object["metadata"]["name"]).to_owned());
        let mut state = self.lock();
        let (code, body) = if state.collections[plural].objects.contains_key(&key) {
            (409, status(409, "AlreadyExists", "it exists", Value::Null))
        } else {
            state.put(plural, object);
            (201, state.collections[plural].objects[&key].clone())
        };
        drop(state);
        self.changed.notify_all();
        line.json(code, &body)
    }

    /// Get, merge-patch or delete of one object.
    fn single(&self, line: &mut Line, request: &Request, plural: &str, key: (String, String)) -> io::Result<()> {
        let mut state = self.lock();
        let Some(mut object) = state.collections[plural].objects.get(&key).cloned() else {
            drop(state);
            return line.json(404, &status(404, "NotFound", "no such object", Value::Null));
        };
        let held = |o: &Value| o["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        let marked = |o: &Value| o["metadata"]["deletionTimestamp"].is_string();
        let body = match request.method.as_str() {
            "GET" => object,
            "DELETE" if !held(&object) => {
                state.remove(plural, &key);
                object
            }
            "DELETE" => {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                state.put(plural, object);
                state.collections[plural].objects[&key].clone()
            }
            "PATCH" => {
                merge(&mut object, &serde_json::from_slice(&request.body).unwrap_or_default());
                if marked(&object) && !held(&object) {
                    state.remove(plural, &key);
                    object
                } else {
                    state.put(plural, object);
                    state.collections[plural].objects[&key].clone()
                }
            }
            _ => status(405, "MethodNotAllowed", "the server does not allow this method", Value::Null),
        };
        drop(state);
        self.changed.notify_all();
        line.json(200, &body)
    }
}

/// The head of a stream.
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

fn line_of_error(status: &Value) -> String {
    line("ERROR", status)
}

fn bookmark(collection: &Collection, shown: Shown, version: u64, end: bool) -> String {
    let (kind, api_version) =
        if shown.metadata_only { ("PartialObjectMetadata", "meta.k8s.io/v1") } else { (collection.kind, collection.api_version) };
    let mut meta = json!({"resourceVersion": version.to_string()});
    if end {
        meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &json!({"kind": kind, "apiVersion": api_version, "metadata": meta}))
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().map(|t| t.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}
