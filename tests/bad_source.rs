//! Sources at their worst, on the whole pipeline: whatever they answer, handlers are told a story that makes sense, the
//! informer goes on, it asks at a decent pace, and it is right as soon as the source is.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

mod common;

use informer::{
    flow::{Change, Deleted, Event, Meta, Object, ObjectKey},
    informer::{Engine, SharedInformer},
    reflector::InitialState,
    source::{
        ListEnd, ListParams, ListerWatcher, Next, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams, WatchStream,
    },
    sync::{Deadline, ManualClock, Stop, Wake, Woken, call_out::assert_contained},
};
use std::{
    cmp::Ordering as Order,
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// As little chance as repeats. Clones draw from one row.
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    fn below(&self, n: usize) -> usize {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) as usize % n
    }

    fn of<T: Clone>(&self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Item {
    namespace: String,
    name: String,
    version: String,
    value: usize,
}

/// Metadata of this object panics.
const CURSED: &str = "cursed";

/// The state when the source has come to its senses.
fn truth() -> Vec<Item> {
    let item = |i: usize| Item { namespace: "ns".into(), name: format!("o{i}"), version: format!("t{i}"), value: 1000 + i };
    (0..8).map(item).collect()
}

const TRUTH: &str = "1000000";

fn kinds(after: Option<Duration>) -> Vec<SourceErrorKind> {
    use SourceErrorKind as K;
    let server = |code, reason: &str| K::Server { code, reason: reason.into(), retry_after: after };
    vec![
        K::Expired,
        K::TooLargeVersion { retry_after: after },
        K::TooManyRequests { retry_after: after },
        K::Unauthorized,
        K::NotFound,
        server(500, "StoreReadError"),
        server(400, ""),
        server(503, "x"),
        K::ConnectionRefused,
        K::Connect,
        K::Transport,
        K::Timeout,
        K::Decode,
        K::Stopped,
        K::Other,
    ]
}

fn any_kind(dice: &Dice) -> SourceErrorKind {
    dice.of(&kinds(dice.of(&[None, Some(Duration::ZERO), Some(Duration::from_secs(3))])))
}

/// Any answer at all, for a number of requests; the truth after that.
#[derive(Clone)]
struct Mad {
    dice: Dice,
    left: Arc<Mutex<usize>>,
}

impl Mad {
    fn sane(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        let sane = *left == 0;
        *left = left.saturating_sub(1);
        sane
    }

    fn version(&self) -> String {
        let n = self.dice.below(30);
        match self.dice.below(12) {
            0 => String::new(),
            1 => "not a number".into(),
            2 => "99999999999999999999999999".into(),
            3 => format!("0{n}"),
            _ => n.to_string(),
        }
    }

    fn item(&self) -> Item {
        let odd = ["", "a/b", "/", "日本語", "\0", " ", "..", CURSED, "-"];
        let name = if self.dice.below(6) == 0 { self.dice.of(&odd).to_owned() } else { format!("o{}", self.dice.below(12)) };
        let namespace = self.dice.of(&["ns", "ns", "ns", "", "n/s", "é"]).to_owned();
        let name = if self.dice.below(60) == 0 { name.repeat(70_000) } else { name };
        Item { namespace, name, version: self.version(), value: self.dice.below(1000) }
    }

    fn undecodable(&self) -> Undecodable {
        let key = ObjectKey::new("ns", &format!("o{}", self.dice.below(12))).ok();
        let version = Some(self.version());
        Undecodable {
            key: key.filter(|_| self.dice.below(2) == 0),
            version: version.filter(|_| self.dice.below(2) == 0),
            why: "?".into(),
        }
    }
}

impl ListerWatcher for Mad {
    type Object = Item;

    fn meta<'a>(&self, o: &'a Item) -> Meta<'a> {
        assert!(o.name != CURSED, "cursed");
        Meta { namespace: &o.namespace, name: &o.name, version: &o.version, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Item, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        // A page of a list that began before belongs to it, however mad that was.
        if self.sane() && params.continue_token.is_none() {
            truth().into_iter().for_each(|item| _ = sink(Ok(item)));
            return Ok(ListEnd { version: TRUTH.into(), continue_token: None });
        }
        for _ in 0..self.dice.below(8) {
            match self.dice.below(12) {
                0 => _ = sink(Err(self.undecodable())),
                1 if self.dice.below(4) == 0 => panic!("list"),
                _ => _ = sink(Ok(self.item())),
            }
        }
        if self.dice.below(3) == 0 {
            return Err(SourceError::new(any_kind(&self.dice)));
        }
        let token = Some(self.dice.of(&["", "next", "次"]).to_owned());
        Ok(ListEnd { version: self.version(), continue_token: token.filter(|_| self.dice.below(3) == 0) })
    }

    fn watch(&self, _: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Item>>, SourceError> {
        if self.sane() {
            if params.initial_events {
                return Ok(Box::new(State { objects: truth(), marked: false }));
            }
            if params.from == TRUTH {
                return Ok(Box::new(Silence));
            }
            return Err(SourceErrorKind::Expired.into());
        }
        match self.dice.below(5) {
            0 => Err(SourceError::new(any_kind(&self.dice))),
            1 if self.dice.below(4) == 0 => panic!("watch"),
            _ => Ok(Box::new(MadStream { source: self.clone(), frames: self.dice.below(20) })),
        }
    }

    fn compare(&self, a: &str, b: &str) -> Option<Order> {
        assert!(self.dice.below(50) > 0, "compare");
        informer::source::compare_decimal(a, b)
    }

    fn supports_watch_list(&self) -> bool {
        assert!(self.dice.below(20) > 0, "supports");
        self.dice.below(4) > 0
    }
}

/// The truth as the beginning of a watch, and then silence.
struct State {
    objects: Vec<Item>,
    marked: bool,
}

impl WatchStream<Item> for State {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Item> {
        match self.objects.pop() {
            Some(object) => Next::Event(WatchEvent::Added(object)),
            None if !std::mem::replace(&mut self.marked, true) => {
                Next::Event(WatchEvent::Bookmark { version: TRUTH.into(), initial_events_end: true })
            }
            None => Silence.next(wake, deadline),
        }
    }
}

struct Silence;

impl WatchStream<Item> for Silence {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Item> {
        match wake.wait(deadline) {
            Woken::Stopped => Next::Stopped,
            Woken::Nudged => Next::Woken,
            Woken::Deadline => Next::Deadline,
        }
    }
}

struct MadStream {
    source: Mad,
    frames: usize,
}

impl WatchStream<Item> for MadStream {
    fn next(&mut self, wake: &Wake, _: Deadline) -> Next<Item> {
        let dice = &self.source.dice;
        if dice.below(6) == 0 {
            wake.wait(Duration::from_millis(dice.below(5000) as u64));
        }
        if self.frames == 0 {
            return match dice.below(6) {
                0 => Next::End,
                1 => Next::Stopped,
                2 => Next::Deadline,
                3 => panic!("next"),
                _ => Next::Failed(SourceError::new(any_kind(dice))),
            };
        }
        self.frames -= 1;
        let item = || self.source.item();
        Next::Event(match dice.below(10) {
            0..3 => WatchEvent::Added(item()),
            3..6 => WatchEvent::Modified(item()),
            6 | 7 => WatchEvent::Deleted(item()),
            8 => WatchEvent::Bookmark { version: self.source.version(), initial_events_end: dice.below(4) == 0 },
            _ if dice.below(2) == 0 => return Next::Woken,
            _ => WatchEvent::Undecodable { object: self.source.undecodable(), deleted: dice.below(3) == 0 },
        })
    }

    fn ready(&mut self) -> Option<Next<Item>> {
        let dice = self.source.dice.clone();
        assert!(dice.below(40) > 0, "ready");
        if dice.below(3) == 0 || self.frames == 0 {
            return None;
        }
        self.frames -= 1;
        Some(Next::Event(WatchEvent::Modified(self.source.item())))
    }
}

impl Drop for MadStream {
    fn drop(&mut self) {
        assert!(self.source.dice.below(5) > 0, "stream dropped");
    }
}

/// What a handler was given last, by key; and what made no sense.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Told>>);

/// What it has of each object, and what was wrong.
type Told = (HashMap<ObjectKey, Object<Item>>, Vec<String>);

impl Story {
    fn hear(&self, e: &Event<Item>) {
        let (last, wrong) = &mut *self.0.lock().unwrap();
        let is_last = |last: Option<&Object<Item>>, old| last.is_some_and(|l| Object::ptr_eq(l, old));
        let key = e.key().clone();
        let fine = match &e.change {
            Change::Added(new) => last.insert(key, new.clone()).is_none(),
            Change::Updated { old, new } => is_last(last.insert(key, new.clone()).as_ref(), old),
            Change::Deleted(Deleted::Observed(_)) => last.remove(&key).is_some(),
            Change::Deleted(Deleted::Missed { last_known, .. }) => {
                let before = last.remove(&key);
                last_known.as_ref().is_some_and(|known| is_last(before.as_ref(), known))
            }
        };
        if !fine {
            wrong.push(format!("{e:?}"));
        }
    }
}

/// Panics that were contained, declared or not.
fn forget_contained(clock: &ManualClock) {
    _ = std::panic::catch_unwind(AssertUnwindSafe(|| assert_contained(clock, &[])));
}

/// Panics of this file are planned; the others are to be seen.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        let planned = ["cursed", "list", "watch", "compare", "supports", "next", "ready", "stream dropped"];
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<&str>();
            if !text.is_some_and(|text| planned.contains(text)) && !info.to_string().contains("contained panics differ") {
                before(info);
            }
        }));
    });
}

/// Always answers the same.
#[derive(Clone, Debug)]
struct Stubborn {
    list: List,
    watch: Watch,
    asked: Arc<AtomicUsize>,
    ordered: bool,
    streams: bool,
}

#[derive(Clone, Debug)]
enum List {
    Fine,
    Fails(SourceErrorKind),
    FailsLater(SourceErrorKind),
    OlderThanBefore,
    Nameless,
    NoVersion,
    /// The next page is always the same.
    NoLastPage,
    Panics,
}

#[derive(Clone, Debug)]
enum Watch {
    Fails(SourceErrorKind),
    Panics,
    /// What each stream brings, at once.
    Brings(Brings),
}

#[derive(Clone, Debug)]
enum Brings {
    End,
    Failure(SourceErrorKind),
    OldBookmark,
    /// The end of a state, whether or not one was asked for.
    Mark,
    Nameless,
    NoTime,
    Stopped,
    Panic,
}

impl Stubborn {
    /// Far more than any backoff allows: waits, or the test would never end.
    fn count(&self, stop: &Stop) -> usize {
        let n = self.asked.fetch_add(1, Ordering::Relaxed);
        if n > 1000 {
            stop.wait(Deadline::never());
        }
        n
    }
}

impl ListerWatcher for Stubborn {
    type Object = Item;

    fn meta<'a>(&self, o: &'a Item) -> Meta<'a> {
        Meta { namespace: &o.namespace, name: &o.name, version: &o.version, uid: "" }
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Item, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let n = self.count(stop);
        let end =
            |version: &str, token: Option<&str>| Ok(ListEnd { version: version.into(), continue_token: token.map(Into::into) });
        match &self.list {
            List::Fine => end("100", None),
            List::Fails(kind) => Err(kind.clone().into()),
            List::FailsLater(kind) if params.continue_token.is_some() => Err(kind.clone().into()),
            List::FailsLater(_) => end("100", params.limit.map(|_| "more")),
            List::OlderThanBefore => end(&1_000_000_usize.saturating_sub(n).to_string(), None),
            List::Nameless => {
                _ = sink(Err(Undecodable { key: None, version: None, why: "?".into() }));
                end("100", None)
            }
            List::NoVersion => end("", None),
            List::NoLastPage => end("100", Some("more")),
            List::Panics => panic!("list"),
        }
    }

    fn watch(&self, stop: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Item>>, SourceError> {
        self.count(stop);
        match &self.watch {
            Watch::Fails(kind) => Err(kind.clone().into()),
            Watch::Panics => panic!("watch"),
            Watch::Brings(what) => Ok(Box::new(Once(Some(what.clone())))),
        }
    }

    fn compare(&self, a: &str, b: &str) -> Option<Order> {
        if self.ordered { informer::source::compare_decimal(a, b) } else { None }
    }

    fn supports_watch_list(&self) -> bool {
        self.streams
    }
}

struct Once(Option<Brings>);

impl WatchStream<Item> for Once {
    fn next(&mut self, _: &Wake, _: Deadline) -> Next<Item> {
        match self.0.take() {
            None | Some(Brings::End) => Next::End,
            Some(Brings::Failure(kind)) => Next::Failed(kind.into()),
            Some(Brings::OldBookmark) => Next::Event(WatchEvent::Bookmark { version: String::new(), initial_events_end: false }),
            Some(Brings::Mark) => Next::Event(WatchEvent::Bookmark { version: "100".into(), initial_events_end: true }),
            Some(Brings::Nameless) => {
                let object = Undecodable { key: None, version: None, why: "?".into() };
                Next::Event(WatchEvent::Undecodable { object, deleted: false })
            }
            Some(Brings::NoTime) => Next::Deadline,
            Some(Brings::Stopped) => Next::Stopped,
            Some(Brings::Panic) => panic!("next"),
        }
    }
}

/// No answer, however often it comes, makes the informer ask in a loop.
#[test]
fn v7_whatever_a_source_always_answers_it_is_asked_at_a_decent_pace() {
    quiet();
    let after = [None, Some(Duration::ZERO)];
    let kinds: Vec<_> = after.into_iter().flat_map(kinds).collect();
    let lists = [List::Fine, List::OlderThanBefore, List::Nameless, List::NoVersion, List::NoLastPage, List::Panics].into_iter();
    let lists: Vec<_> = lists.chain(kinds.iter().cloned().flat_map(|k| [List::Fails(k.clone()), List::FailsLater(k)])).collect();
    let brings =
        [Brings::End, Brings::OldBookmark, Brings::Mark, Brings::Nameless, Brings::NoTime, Brings::Stopped, Brings::Panic];
    let brings = brings.into_iter();
    let brings = brings.chain(kinds.iter().cloned().map(Brings::Failure)).map(Watch::Brings);
    let watches: Vec<_> = brings.chain([Watch::Panics]).chain(kinds.iter().cloned().map(Watch::Fails)).collect();
    let mut pushy = Vec::new();
    let both = lists.iter().flat_map(|l| watches.iter().flat_map(move |w| [(l, w, false), (l, w, true)]));
    for (n, (list, watch, streams)) in both.enumerate() {
        // All that matters of a list that never succeeds is the list.
        if !matches!(list, List::Fine | List::OlderThanBefore | List::Nameless) && n % 7 > 0 {
            continue;
        }
        let clock = ManualClock::new();
        let (list, watch, ordered) = (list.clone(), watch.clone(), n % 3 > 0);
        let source = Stubborn { list, watch, asked: Arc::default(), ordered, streams };
        let initial = if streams { InitialState::Streamed } else { InitialState::Any };
        let informer = SharedInformer::builder(source.clone()).initial(initial).clock(&clock).seed(1).build().unwrap();
        let handle = informer.spawn(&Stop::new()).unwrap();
        clock.advance(Duration::from_secs(600));
        let asked = source.asked.load(Ordering::Relaxed);
        // Backoff alone makes about 26, two or three requests each; where nobody listens, one every one or two seconds .
        let refused = format!("{source:?}").contains("ConnectionRefused");
        if asked > if refused { 900 } else { 90 } {
            pushy.push(format!("{asked} requests: {source:?}"));
        }
        drop(handle);
        forget_contained(&clock);
    }
    assert!(pushy.is_empty(), "{pushy:#?}");
}

with_each_engine! {
    fn p2_p8_p9_a_mad_source_harms_nobody_and_is_believed_once_it_is_sane(engine) {
        quiet();
        for seed in 0..60 {
            let clock = ManualClock::new();
            let source = Mad { dice: Dice::new(seed), left: Arc::new(Mutex::new(40)) };
            let initial = if seed % 2 > 0 { InitialState::Streamed } else { InitialState::Any };
            let builder = SharedInformer::builder(source.clone()).engine(engine).clock(&clock).seed(seed);
            let informer = builder.initial(initial).build().unwrap();
            let stories = [Story::default(), Story::default()];
            let hear = |story: &Story| {
                let story = story.clone();
                informer.on(move |e: &Event<Item>| story.hear(e)).unwrap()
            };
            let first = hear(&stories[0]);
            let stop = Stop::with_clock(&clock);
            let handle = informer.spawn(&stop).unwrap();
            clock.advance(Duration::from_secs(5));
            let late = hear(&stories[1]);
            for _ in 0..200 {
                if informer.store().version() == TRUTH {
                    break;
                }
                clock.advance(Duration::from_secs(30));
            }
            let snapshot = informer.store().snapshot();
            let stored: BTreeMap<_, _> = snapshot.objects().map(|o| (Object::key(o).to_string(), (**o).clone())).collect();
            let wanted: BTreeMap<_, _> = truth().into_iter().map(|i| (format!("ns/{}", i.name), i)).collect();
            assert_eq!(stored, wanted, "seed {seed}");
            for story in &stories {
                let (last, wrong) = &*story.0.lock().unwrap();
                assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
                assert!(last.len() == 8 && snapshot.objects().all(|o| Object::ptr_eq(&last[Object::key(o)], o)), "seed {seed}");
            }
            assert!(first.is_idle() && late.is_idle());
            stop.stop();
            handle.join().unwrap();
            assert!(clock.threads().is_empty());
            forget_contained(&clock);
        }
    }
}
