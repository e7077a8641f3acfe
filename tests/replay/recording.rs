//! A recording, as read from its file.

use super::{
    answer::{kind_of_answer, kind_of_frame},
    ledger::Told,
    text, version_of,
};
use informer::{
    flow::Cause,
    source::{RequestKind, Scope, SourceErrorKind},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

/// Why a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file itself.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// A line that is no JSON object of a recording.
    #[error("line {line} is not a line of a recording: {why}")]
    Line { line: usize, why: String },
    /// The lines do not make up a recording.
    #[error("not a whole recording: {0}")]
    Whole(String),
}

/// What the server answered, in order, what client-go made of it, and what was true in the end.
pub struct Recording {
    /// Names the scenario.
    pub scenario: String,
    /// What happens in it.
    pub about: String,
    /// Which objects were asked for.
    pub scope: Scope,
    /// The answers, in the order of the requests.
    pub places: Vec<Place>,
    /// The server's own story of the resource, where the file has it.
    pub history: Vec<Part>,
    /// Version of every object in the end.
    pub truth: BTreeMap<String, String>,
    /// What client-go's handler was told, by key, without the updates to the same version.
    pub client_story: BTreeMap<String, Vec<Told>>,
    /// Objects per page, when client-go asked for a consistent first list in pages; else it took what was at hand.
    pub pages_of: Option<u32>,
    /// Whether client-go asked for the first state as the beginning of a watch.
    pub streamed: bool,
    /// How often client-go asked for an initial state.
    pub client_lists: usize,
    /// From each 410 to the list with which client-go answered it.
    pub client_waits: Vec<Duration>,
    /// How long it took.
    pub length: Duration,
}

/// One recorded answer. A streamed initial state is two: the state, and the watch after its end mark.
#[derive(Debug)]
pub struct Place {
    /// The number of the request in the file.
    pub request: u64,
    /// The version that client-go asked with; empty when it gave none.
    pub version: String,
    /// What it was answered.
    pub answer: Answer,
}

/// See [`Place`].
#[derive(Debug)]
pub enum Answer {
    /// An initial state.
    State(State),
    /// An open watch.
    Watch(Watch),
    /// No: what for (a list, else a watch), after which time, how.
    Refused { list: bool, after: Duration, kind: SourceErrorKind },
    /// The file holds no whole answer here; it was damaged on purpose.
    Broken(String),
}

/// The requests that made up one initial state.
#[derive(Debug)]
pub struct State {
    /// In order; after an expired page comes one without a token again.
    pub pages: Vec<Page>,
}

/// One request of an initial state.
#[derive(Debug)]
pub struct Page {
    /// The continue token asked with.
    pub token: Option<String>,
    /// From the request to the end of the answer.
    pub after: Duration,
    /// The answer.
    pub answer: Result<Items, SourceErrorKind>,
}

/// A page as served.
#[derive(Debug)]
pub struct Items {
    /// The objects, in the order of the server.
    pub items: Vec<Value>,
    /// The version of the list.
    pub version: String,
    /// The token of the next page.
    pub next: Option<String>,
}

/// An open watch. All times are counted from its request, or from the end mark of the streamed state before it.
#[derive(Debug)]
pub struct Watch {
    /// When the server's 200 came.
    pub opened: Duration,
    /// What came.
    pub frames: Vec<(Duration, Frame)>,
    /// How it ended; `None` for the last one, which stays open.
    pub end: Option<(Duration, End)>,
}

/// One frame that is no error.
#[derive(Clone, Debug)]
pub enum Frame {
    Added(Value),
    Modified(Value),
    Deleted(Value),
    Bookmark(String),
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Clean,
    /// The connection broke.
    Cut,
    /// With an ERROR frame.
    Reported(SourceErrorKind),
}

/// A stretch of the server's own story without a gap.
#[derive(Debug)]
pub struct Part {
    /// A watch can start from here.
    pub from: String,
    /// Everything after it.
    pub events: Vec<Frame>,
}

impl Frame {
    fn new(kind: &str, object: &Value) -> Option<Self> {
        Some(match kind {
            "ADDED" => Self::Added(object.clone()),
            "MODIFIED" => Self::Modified(object.clone()),
            "DELETED" => Self::Deleted(object.clone()),
            "BOOKMARK" => Self::Bookmark(version_of(object).to_owned()),
            _ => return None,
        })
    }

    /// The version that the source has reached with it.
    pub fn version(&self) -> &str {
        match self {
            Self::Added(o) | Self::Modified(o) | Self::Deleted(o) => version_of(o),
            Self::Bookmark(version) => version,
        }
    }
}

impl State {
    fn last(&self) -> Option<&Items> {
        self.pages.last().and_then(|p| p.answer.as_ref().ok())
    }

    /// The version of the state.
    pub fn version(&self) -> &str {
        self.last().map_or("", |items| &items.version)
    }

    /// The objects of the state: of all pages, or of the one that was asked when a page had expired.
    pub fn items(&self) -> impl Iterator<Item = &Value> {
        let first = self.pages.iter().rposition(|p| p.token.is_none()).unwrap_or(0);
        self.pages[first..].iter().filter_map(|p| p.answer.as_ref().ok()).flat_map(|i| &i.items)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, version, answer } = self;
        match answer {
            Answer::State(_) => write!(f, "the answer to a list at version {version:?} (request {request})"),
            Answer::Watch(_) => write!(f, "the answer to a watch from {version:?} (request {request})"),
            Answer::Refused { list, kind, .. } => {
                let what = if *list { "list at version" } else { "watch from" };
                write!(f, "the refusal of a {what} {version:?} (request {request}: {kind})")
            }
            Answer::Broken(why) => write!(f, "no whole answer (request {request}: {why})"),
        }
    }
}

/// Everything the file says of one request.
struct Raw {
    n: u64,
    list: bool,
    ms: u64,
    query: Value,
    status: Option<(u64, u16, Value)>,
    body: Option<(u64, Value)>,
    text: Option<String>,
    failed: Option<(u64, String)>,
    frames: Vec<(u64, String, Value)>,
    end: Option<(u64, String)>,
}

impl Raw {
    fn asked(&self, field: &str) -> Option<String> {
        self.query[field].as_str().filter(|s| !s.is_empty()).map(str::to_owned)
    }

    fn kind(&self) -> RequestKind {
        match (self.list, self.query["sendInitialEvents"] == "true") {
            (true, _) => RequestKind::List,
            (false, false) => RequestKind::Watch,
            (false, true) => RequestKind::StreamedList,
        }
    }

    /// How long after the request.
    fn after(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.saturating_sub(self.ms))
    }
}

fn is_mark(object: &Value) -> bool {
    object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

/// Which lines hold a frame, by their place in the file; what [`Recording::parse`] can leave out.
pub fn frame_lines(file: &str) -> usize {
    file.lines().filter(|l| is_frame(l)).count()
}

fn is_frame(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|v| v.get("frame").is_some())
}

/// The frames without which a resumed watch must be asked from another version: for every end that a recorded watch
/// follows, the last frame before it that moved the version. By their number among the frame lines.
pub fn deciding_frames(file: &str) -> Vec<usize> {
    let (mut frames, mut position, mut mover, mut ended) = (0, String::new(), None, false);
    let mut found: Vec<usize> = Vec::new();
    for line in file.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        if let Some(frame) = line.get("frame") {
            let moved = version_of(&frame["object"]);
            if frame["type"] != "ERROR" && moved != position {
                // The objects of a streamed state come in any order; its end mark is what counts, and comes last.
                moved.clone_into(&mut position);
                mover = Some(frames);
            }
            frames += 1;
        } else if line.get("end").is_some() {
            ended = true;
        } else if line["request"] == "watch" && line["query"]["sendInitialEvents"].is_null() {
            found.extend(mover.filter(|_| ended));
            ended = false;
        } else if line.get("request").is_some() {
            // A list, or a streamed one: what came before does not matter any more.
            (mover, ended) = (None, false);
        }
    }
    found.dedup();
    found
}

impl Recording {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&std::fs::read_to_string(path)?, None)
    }

    /// Reads the text of a file, leaving out the frame line of this number (from 0).
    pub fn parse(file: &str, without: Option<usize>) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        let mut frames = 0;
        for (i, line) in file.lines().enumerate() {
            let wrong = |why: String| ReadError::Line { line: i + 1, why };
            let line: Value = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
            if line.get("frame").is_some() {
                frames += 1;
                if without == Some(frames - 1) {
                    continue;
                }
            }
            reader.line(&line).map_err(wrong)?;
        }
        reader.finish()
    }
}

#[derive(Default)]
struct Reader {
    about: Option<(String, String, Scope)>,
    requests: Vec<Raw>,
    history: Vec<Part>,
    truth: Option<BTreeMap<String, String>>,
    story: BTreeMap<String, Vec<Told>>,
    last_ms: u64,
}

impl Reader {
    /// Takes one line; the error says what is wrong with it.
    fn line(&mut self, line: &Value) -> Result<(), String> {
        let has = |field: &str| line.get(field);
        let string = |field: &str| line[field].as_str().map(str::to_owned).ok_or_else(|| format!("no text {field:?}"));
        let ms = line["ms"].as_u64().ok_or("no number \"ms\"")?;
        self.last_ms = self.last_ms.max(ms);
        if has("scenario").is_some() {
            let labels = line["selector"].as_str().filter(|s| !s.is_empty()).map(str::to_owned);
            self.about = Some((string("scenario")?, string("about")?, Scope { labels, ..Scope::default() }));
        } else if let Some(request) = has("request") {
            let list = match request.as_str() {
                Some("list") => true,
                Some("watch") => false,
                _ => return Err(format!("unknown request {request}")),
            };
            let n = line["n"].as_u64().ok_or("no number \"n\"")?;
            let query = line["query"].clone();
            self.requests.push(Raw {
                n,
                list,
                ms,
                query,
                status: None,
                body: None,
                text: None,
                failed: None,
                frames: Vec::new(),
                end: None,
            });
        } else if let Some(from) = has("history_from") {
            let from = from.as_str().ok_or("history_from is no text")?.to_owned();
            self.history.push(Part { from, events: Vec::new() });
        } else if let Some(event) = has("history") {
            let frame = event["type"].as_str().and_then(|kind| Frame::new(kind, &event["object"]));
            let frame = frame.ok_or_else(|| format!("unknown type {}", event["type"]))?;
            self.history.last_mut().ok_or("history before any history_from")?.events.push(frame);
        } else if let Some(truth) = has("truth") {
            let pair = |(k, v): (&String, &Value)| v.as_str().map(|v| (k.clone(), v.to_owned()));
            let all = truth.as_object().and_then(|t| t.iter().map(pair).collect());
            self.truth = Some(all.ok_or("truth is no map of texts")?);
        } else if let Some(told) = has("told") {
            let cause = if line["initial"] == true { Cause::Initial } else { Cause::Watch };
            let told = match told.as_str() {
                Some("add") => Told::Added { version: string("rv")?, cause },
                Some("update") => Told::Updated { from: string("old_rv")?, to: string("rv")?, cause },
                Some("delete") if line["final_state_unknown"] == true => Told::Deleted { version: None, cause },
                Some("delete") => Told::Deleted { version: Some(string("rv")?), cause },
                _ => return Err(format!("unknown callback {told}")),
            };
            if !told.is_repeat() {
                self.story.entry(string("key")?).or_default().push(told);
            }
        } else if let Some(n) = has("n") {
            let asked = self.requests.iter_mut().find(|r| r.n == n.as_u64().unwrap_or(0));
            let asked = asked.ok_or_else(|| format!("nobody asked request {n}"))?;
            if let Some(status) = has("status") {
                let code = status.as_u64().and_then(|s| u16::try_from(s).ok()).ok_or("status is no number")?;
                asked.status = Some((ms, code, line["headers"].clone()));
            } else if let Some(body) = has("body") {
                asked.body = Some((ms, body.clone()));
            } else if let Some(text) = has("text") {
                asked.body = Some((ms, Value::Null));
                asked.text = text.as_str().map(str::to_owned);
            } else if let Some(frame) = has("frame") {
                let kind = frame["type"].as_str().ok_or("a frame without a type")?;
                asked.frames.push((ms, kind.to_owned(), frame["object"].clone()));
            } else if has("end").is_some() {
                asked.end = Some((ms, string("end")?));
            } else if has("failed").is_some() {
                asked.failed = Some((ms, string("failed")?));
            } else if has("partial").is_none() {
                return Err("unknown kind of line".to_owned());
            }
        } else if has("did").or(has("fault")).or(has("synced")).is_none() {
            return Err("unknown kind of line".to_owned());
        }
        Ok(())
    }

    fn finish(self) -> Result<Recording, ReadError> {
        let missing = |what: &str| ReadError::Whole(format!("no line says {what}"));
        let (scenario, about, scope) = self.about.ok_or_else(|| missing("which scenario it is"))?;
        let truth = self.truth.ok_or_else(|| missing("what was true in the end"))?;
        let mut places: Vec<Place> = Vec::new();
        let (mut client_lists, mut client_waits, mut expired) = (0, Vec::new(), None);
        let last = self.requests.iter().map(|r| r.n).max();
        for raw in &self.requests {
            let before = places.len();
            add_places(&mut places, raw, last == Some(raw.n)).map_err(ReadError::Whole)?;
            let list =
                places.get(before).is_some_and(|p| !matches!(p.answer, Answer::Watch(_) | Answer::Refused { list: false, .. }));
            if list {
                client_lists += 1;
                client_waits.extend(expired.take().map(|ms| Duration::from_millis(raw.ms.saturating_sub(ms))));
            }
            let gone = |(ms, kind, object): &(u64, String, Value)| {
                (kind == "ERROR" && kind_of_frame(raw.kind(), object) == Some(SourceErrorKind::Expired)).then_some(*ms)
            };
            expired = raw.frames.iter().find_map(gone).or(expired);
        }
        if places.is_empty() {
            return Err(missing("what was asked"));
        }
        let consistent = |first: &&Raw| first.list && first.asked("resourceVersion").is_none();
        let streamed = self.requests.first().is_some_and(|r| r.kind() == RequestKind::StreamedList);
        let pages_of = self.requests.first().filter(consistent).and_then(|r| r.asked("limit")?.parse().ok());
        Ok(Recording {
            scenario,
            about,
            scope,
            places,
            history: self.history,
            truth,
            client_story: self.story,
            pages_of,
            streamed,
            client_lists,
            client_waits,
            length: Duration::from_millis(self.last_ms),
        })
    }
}

/// Appends what request `raw` was answered.
fn add_places(places: &mut Vec<Place>, raw: &Raw, last: bool) -> Result<(), String> {
    let place = |answer| Place { request: raw.n, version: raw.asked("resourceVersion").unwrap_or_default(), answer };
    let list = raw.kind() != RequestKind::Watch;
    if let Some((ms, how)) = &raw.failed {
        if how != "refused" {
            return Err(format!("request {} was given up by the client, not answered", raw.n));
        }
        places.push(place(Answer::Refused { list, after: raw.after(*ms), kind: SourceErrorKind::ConnectionRefused }));
        return Ok(());
    }
    let (opened, status, headers) = raw.status.as_ref().ok_or_else(|| format!("request {} has no answer", raw.n))?;
    let body = raw.body.as_ref().map(|(_, body)| body);
    let refused = kind_of_answer(raw.kind(), *status, headers, body, raw.text.as_deref());
    let after = raw.after(raw.body.as_ref().map_or(*opened, |(ms, _)| *ms));

    if raw.list {
        let answer = match (refused, body) {
            (Some(kind), _) => Err(kind),
            (None, Some(body)) => Ok(Items {
                items: body["items"].as_array().cloned().unwrap_or_default(),
                version: version_of(body).to_owned(),
                next: Some(text(body, "continue")).filter(|t| !t.is_empty()).map(str::to_owned),
            }),
            (None, None) => return Err(format!("request {} has no body", raw.n)),
        };
        let page = Page { token: raw.asked("continue"), after, answer };
        // Another page of the state before, or the one asked without a token because a page had expired?
        if let Some(Place { answer: Answer::State(state), .. }) = places.last_mut()
            && let Some(before) = state.pages.last()
            && (page.token.is_some() || (before.answer.is_err() && before.token.is_some()))
        {
            state.pages.push(page);
            return Ok(());
        }
        places.push(match page.answer {
            Err(kind) => place(Answer::Refused { list: true, after, kind }),
            Ok(_) => place(Answer::State(State { pages: vec![page] })),
        });
        return Ok(());
    }
    if let Some(kind) = refused {
        places.push(place(Answer::Refused { list, after, kind }));
        return Ok(());
    }

    let mut frames = &raw.frames[..];
    let mut start = raw.ms;
    let mut version = raw.asked("resourceVersion").unwrap_or_default();
    if list {
        let Some(mark) = frames.iter().position(|(_, kind, o)| kind == "BOOKMARK" && is_mark(o)) else {
            places.push(place(Answer::Broken("a streamed state without its end mark".to_owned())));
            return Ok(());
        };
        if frames[..mark].iter().any(|(_, kind, _)| kind != "ADDED") {
            return Err(format!("the streamed state of request {} has frames other than ADDED", raw.n));
        }
        version_of(&frames[mark].2).clone_into(&mut version);
        start = frames[mark].0;
        let items = frames[..mark].iter().map(|(_, _, o)| o.clone()).collect();
        let answer = Ok(Items { items, version: version.clone(), next: None });
        let page = Page { token: None, after: raw.after(start), answer };
        places.push(place(Answer::State(State { pages: vec![page] })));
        frames = &frames[mark + 1..];
    }
    let since = |ms: u64| Duration::from_millis(ms.saturating_sub(start));
    let mut watch = Watch { opened: since(*opened), frames: Vec::new(), end: None };
    for (ms, kind, object) in frames {
        match Frame::new(kind, object) {
            Some(frame) => watch.frames.push((since(*ms), frame)),
            None if kind == "ERROR" => {
                let kind =
                    kind_of_frame(raw.kind(), object).ok_or_else(|| format!("an ERROR without one in request {}", raw.n))?;
                watch.end = Some((since(*ms), End::Reported(kind)));
                break;
            }
            None => return Err(format!("unknown type {kind} in request {}", raw.n)),
        }
    }
    if watch.end.is_none() && !last {
        watch.end = match &raw.end {
            Some((ms, how)) if how == "eof" => Some((since(*ms), End::Clean)),
            Some((ms, how)) if how == "cut" => Some((since(*ms), End::Cut)),
            _ => {
                return Err(format!("watch {} did not end, but another request follows", raw.n));
            }
        };
    }
    places.push(Place { request: raw.n, version, answer: Answer::Watch(watch) });
    Ok(())
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({}, {} places)", self.scenario, self.places.len())
    }
}
