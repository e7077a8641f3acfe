//! The scripted source.

use crate::{
    flow::Meta,
    source::{
        ListEnd, ListParams, ListerWatcher, Next, Scope, SourceError, SourceErrorKind, Undecodable, VersionMatch, WatchEvent,
        WatchParams, WatchStream, compare_decimal,
    },
    sync::{Arc, Clock, Deadline, Instant, ManualClock, Mutex, Stop, Wake, Woken},
};
use std::{cmp::Ordering, collections::VecDeque, ops::ControlFlow, time::Duration};

/// An object: `name@version`. Names of some objects make trouble, see the methods.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) version: String,
}

impl Item {
    fn parse(text: &str) -> Self {
        let (name, version) = text.split_once('@').unwrap();
        Self { name: name.to_owned(), version: version.to_owned() }
    }

    /// The transform of all tests: `bad…` fails, `panic…` panics.
    pub(super) fn transform(self) -> Result<Self, String> {
        if self.name.starts_with("panic") {
            panic!("transform of {}", self.name);
        }
        if self.name.starts_with("bad") { Err(format!("{} is bad", self.name)) } else { Ok(self) }
    }
}

/// One answer to a list.
pub(super) enum Page {
    Items {
        items: Vec<Result<Item, Undecodable>>,
        version: String,
        next: Option<String>,
    },
    Fail(SourceError),
    Panic(&'static str),
    /// No answer until stop.
    Hang,
    /// Hands this item over again and again, as long as somebody wants it.
    Endless(Item),
}

/// What a watch brings, and when after its opening.
pub(super) enum Frame {
    /// As soon as what came before it, and together with it.
    Event(WatchEvent<Item>),
    After(Duration),
    End,
    Fail(SourceError),
    Panic(&'static str),
    Odd(fn() -> Next<Item>),
}

pub(super) enum Watch {
    Open(Vec<Frame>),
    Fail(SourceError),
    Panic(&'static str),
    /// No answer until stop.
    Hang,
}

#[derive(Default)]
pub(super) struct Script {
    clock: Option<Clock>,
    lists: Mutex<VecDeque<Page>>,
    watches: Mutex<VecDeque<Watch>>,
    pub(super) log: Mutex<Vec<String>>,
    open: Arc<Mutex<usize>>,
    /// Versions have no order.
    orderless: bool,
    /// A watch may begin with the state.
    streaming: bool,
    panics: Panics,
    /// What every request has to carry.
    scope: Scope,
}

/// Which of the source's small methods panic.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Panics {
    #[default]
    Nothing,
    Meta,
    Compare,
    DropOfStream,
}

/// A server's error of this class.
pub(super) fn error(kind: SourceErrorKind) -> SourceError {
    SourceError::new(kind)
}

impl Script {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn on(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clock());
        self
    }

    pub(super) fn orderless(mut self) -> Self {
        self.orderless = true;
        self
    }

    /// A watch may begin with the state. Such watches are answered from the same row as others.
    pub(super) fn streaming(mut self) -> Self {
        self.streaming = true;
        self
    }

    pub(super) fn scoped(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub(super) fn panicking(mut self, what: Panics) -> Self {
        self.panics = what;
        self
    }

    /// A list: `"10: a@1 b@2"`, with `" > token"` behind when more follows. `?a@1` is undecodable, `?` unreadable.
    pub(super) fn list(self, text: &str) -> Self {
        let (version, rest) = text.split_once(':').unwrap();
        let (items, next) = rest.split_once('>').map_or((rest, None), |(items, next)| (items, Some(next.trim().to_owned())));
        let items = items.split_whitespace().map(item).collect();
        self.page(Page::Items { items, version: version.to_owned(), next })
    }

    pub(super) fn list_fails(self, kind: SourceErrorKind) -> Self {
        self.page(Page::Fail(error(kind)))
    }

    pub(super) fn page(self, page: Page) -> Self {
        self.lists.lock().push_back(page);
        self
    }

    /// A watch: `"+a@1 ~a@2 -a@3 b@9"`. `B@9` is the end of the state that it begins with, `/2.5` the time in seconds
    /// since its opening, `.` an orderly end; without one it stays open.
    /// `~?a@1` is undecodable, `~?` unreadable.
    pub(super) fn watch(self, text: &str) -> Self {
        let frames = text.split_whitespace().map(frame).collect();
        self.frames(frames)
    }

    /// As [`Script::watch`], and then the stream fails.
    pub(super) fn watch_breaks(self, text: &str, kind: SourceErrorKind) -> Self {
        let mut frames: Vec<_> = text.split_whitespace().map(frame).collect();
        frames.push(Frame::Fail(error(kind)));
        self.frames(frames)
    }

    pub(super) fn frames(self, frames: Vec<Frame>) -> Self {
        self.watches.lock().push_back(Watch::Open(frames));
        self
    }

    pub(super) fn watch_fails(self, kind: SourceErrorKind) -> Self {
        self.watch_answers(Watch::Fail(error(kind)))
    }

    pub(super) fn watch_answers(self, watch: Watch) -> Self {
        self.watches.lock().push_back(watch);
        self
    }

    /// Streams that are open.
    pub(super) fn open(&self) -> usize {
        *self.open.lock()
    }

    fn now(&self) -> Instant {
        self.clock.as_ref().unwrap().now()
    }

    pub(super) fn log(&self, what: &str) {
        let at = (self.now().since_start().as_secs_f64() * 1000.0).round() / 1000.0;
        self.log.lock().push(format!("{at} {what}"));
    }
}

fn item(text: &str) -> Result<Item, Undecodable> {
    match text.strip_prefix('?') {
        None => Ok(Item::parse(text)),
        Some(rest) => {
            let (key, version) = rest.split_once('@').map_or((None, None), |(k, v)| (k.parse().ok(), Some(v.to_owned())));
            Err(Undecodable { key, version, why: "cannot be read".to_owned() })
        }
    }
}

pub(super) fn frame(text: &str) -> Frame {
    let (sign, rest) = text.split_at(1);
    let event = |make: fn(Item) -> WatchEvent<Item>| match item(rest) {
        Ok(item) => Frame::Event(make(item)),
        Err(object) => Frame::Event(WatchEvent::Undecodable { object, deleted: sign == "-" }),
    };
    match sign {
        "+" => event(WatchEvent::Added),
        "~" => event(WatchEvent::Modified),
        "-" => event(WatchEvent::Deleted),
        "b" | "B" => {
            let version = rest.trim_start_matches('@').to_owned();
            Frame::Event(WatchEvent::Bookmark { version, initial_events_end: sign == "B" })
        }
        "/" => Frame::After(Duration::from_secs_f64(rest.parse().unwrap())),
        "." => Frame::End,
        _ => panic!("no such frame: {text}"),
    }
}

impl ListerWatcher for Script {
    type Object = Item;

    fn meta<'a>(&self, item: &'a Item) -> Meta<'a> {
        assert!(!(self.panics == Panics::Meta && item.name.starts_with("meta")), "meta of {}", item.name);
        Meta { namespace: "", name: &item.name, version: &item.version, uid: "" }
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Item, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        assert_eq!(params.scope, self.scope);
        let version = match &params.version {
            VersionMatch::MostRecent => "newest".to_owned(),
            VersionMatch::Any => "any".to_owned(),
            VersionMatch::NotOlderThan(v) => format!(">={v}"),
            VersionMatch::Exact(v) => format!("={v}"),
        };
        let limit = params.limit.map_or(String::new(), |n| format!(" limit {n}"));
        let token = params.continue_token.as_ref().map_or(String::new(), |t| format!(" token {t}"));
        self.log(&format!("list {version}{limit}{token}"));
        let page = self.lists.lock().pop_front().unwrap_or(Page::Hang);
        match page {
            Page::Items { items, version, next } => {
                for item in items {
                    if sink(item).is_break() {
                        return Err(error(SourceErrorKind::Stopped));
                    }
                }
                Ok(ListEnd { version, continue_token: next })
            }
            Page::Fail(e) => Err(e),
            Page::Panic(why) => panic!("{why}"),
            Page::Endless(item) => {
                for _ in 0..10_000 {
                    if sink(Ok(item.clone())).is_break() {
                        return Err(error(SourceErrorKind::Stopped));
                    }
                }
                panic!("wanted ten thousand objects after stop");
            }
            Page::Hang => {
                stop.wait(Deadline::never());
                Err(error(SourceErrorKind::Stopped))
            }
        }
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Item>>, SourceError> {
        assert_eq!(params.scope, self.scope);
        assert!(params.bookmarks && (params.initial_events || !params.from.is_empty()));
        self.log(&match (params.initial_events, params.from.as_str()) {
            (false, from) => format!("watch {from}"),
            (true, "") => "stream newest".to_owned(),
            (true, from) => format!("stream >={from}"),
        });
        let watch = self.watches.lock().pop_front();
        let frames = match watch {
            Some(Watch::Open(frames)) => frames.into(),
            Some(Watch::Fail(e)) => return Err(e),
            Some(Watch::Panic(why)) => panic!("{why}"),
            Some(Watch::Hang) => {
                stop.wait(Deadline::never());
                return Err(error(SourceErrorKind::Stopped));
            }
            None => {
                // A request beyond the script: the stream stays open and silent.
                VecDeque::new()
            }
        };
        assert!(!stop.is_stopped(), "asked for a watch after stop");
        *self.open.lock() += 1;
        let (open, at) = (self.open.clone(), self.now());
        Ok(Box::new(Stream { frames, open, at, panics: self.panics == Panics::DropOfStream }))
    }

    fn compare(&self, a: &str, b: &str) -> Option<Ordering> {
        assert!(self.panics != Panics::Compare, "compare {a} {b}");
        if self.orderless { None } else { compare_decimal(a, b) }
    }

    fn supports_watch_list(&self) -> bool {
        self.streaming
    }
}

struct Stream {
    frames: VecDeque<Frame>,
    open: Arc<Mutex<usize>>,
    at: Instant,
    panics: bool,
}

impl Stream {
    /// The next frame, when it may be had now.
    fn pop(&mut self) -> Option<Next<Item>> {
        Some(match self.frames.pop_front()? {
            Frame::Event(e) => Next::Event(e),
            Frame::End => Next::End,
            Frame::Fail(e) => Next::Failed(e),
            Frame::Panic(why) => panic!("{why}"),
            Frame::Odd(f) => f(),
            wait @ Frame::After(_) => {
                self.frames.push_front(wait);
                return None;
            }
        })
    }
}

impl WatchStream<Item> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Item> {
        loop {
            let due = match self.frames.front() {
                Some(Frame::After(d)) => self.at.checked_add(*d),
                Some(_) => match self.pop() {
                    Some(next) => return next,
                    None => continue,
                },
                None => None,
            };
            let limit = deadline.on(wake.clock());
            let first = [due, limit].into_iter().flatten().min();
            match wake.wait(first.map_or(Deadline::never(), Deadline::at)) {
                Woken::Stopped => return Next::Stopped,
                Woken::Nudged => return Next::Woken,
                Woken::Deadline if due.is_some() && first == due => {
                    self.frames.pop_front();
                }
                Woken::Deadline => return Next::Deadline,
            }
        }
    }

    fn ready(&mut self) -> Option<Next<Item>> {
        self.pop()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.open.lock() -= 1;
        assert!(!self.panics, "drop of a stream");
    }
}
