//! [`Reflector`]: keeps a sink equal to a source. A list, then watches from its version; a list again when it must be.
//!
//! # How it runs
//! [`Reflector::run`] does everything on the thread that calls it: it asks, reads, transforms, hands over and waits
//! there. The sink is called by that thread only, so what it is given has one order, that of the source. What a watch
//! brought is handed over before anything that follows the watch's end is asked for; so nothing of a watch can arrive
//! after the list that came later. The position ([`Reflector::last_version`]) moves when the sink has taken what leads
//! to it, never before, so whatever breaks, the next request begins where the sink is.
//!
//! Every wait hears of stop and is timed by one clock. A stream is closed on every way out, also by a panic.
//!
//! # Whole states
//! The first list takes whatever the server has at hand ([`InitialState::Any`]), or the most recent state if asked for.
//! Later ones are not older than the position, so that a lagging server cannot take the sink back in time. A list
//! reaches the sink as one delta when its last page has come. Where a watch may begin with the state
//! ([`InitialState::Streamed`]), that is asked for instead; it is gathered, and reaches the sink as one delta when the
//! server has said where it ends, and the watch goes on. Pages of 500 are asked for, except of a list that a server
//! answers from memory when asked for it whole; if it turns out to page anyway, that is remembered.
//!
//! Of a scope with a shard, the objects of others are dropped as soon as their names are known. Their versions move the
//! position like any.
//!
//! # What a failure does
//! *Backoff* is a step of [`Backoff`], and at least what the server asked for. *Anew* is a list not older than the
//! position. *Counts*: the third such failure in a row, with no frame of a watch accepted in between, is followed by a
//! list anew after its backoff. A stream that *lived* had moved the position or stayed open for a second. The first
//! line that fits holds.
//!
//! "While listing" is also a watch before the end of the state that it begins with, and "a frame" is one after it.
//!
//! | what | while listing | asking for a watch | in a watch |
//! |---|---|---|---|
//! | server could not read its store (500 `StoreReadError`) | backoff, same list | backoff, anew | backoff, anew |
//! | version expired | on a later page: the same list unpaged, at once; else the most recent state, at once, and if that fails too, backoff | anew within `relist_spread`; if the last list for this reason began less than 10 s ago, after backoff | as for asking |
//! | version too large | most recent state, at once; a second time with no frame accepted since: after backoff | as for listing | as for listing |
//! | too many requests, or an error with advice when to come back | backoff, same list | backoff, same watch | backoff, same watch |
//! | connection refused | refused backoff, same list | refused backoff, same watch | refused backoff, same watch |
//! | not reached, broken, timed out | backoff, same list | at once if a stream broke just before, else backoff; same watch | at once if it lived, else backoff; same watch |
//! | a state cannot be streamed (`WatchListUnsupported`) | a list, at once, and from now on | | |
//! | a stream ends in order before the end of its state, or does not say where that is for 30 s | backoff, same stream; at the third in a row, and each until a streamed state came: after backoff, by a list | | |
//! | unauthorized, forbidden, not found | backoff, same list | backoff, same watch | backoff, same watch |
//! | the same, within 10 s of a refused connection: a server that comes back says no before it has read what it will allow | as refused connections: at most 2 s, same list | at most 2 s, same watch | at most 2 s, same watch |
//! | 400, 422 | of a list with a version: most recent state, at once; else backoff, same list | backoff, same watch, counts | backoff, same watch, counts |
//! | anything else, panics of the source, whole answers that cannot be read | backoff, same list | backoff, same watch, counts | backoff, same watch, counts |
//! | one object cannot be read or transformed | known which: what the sink has for it stays; else nothing is deleted because of this list | | known which: what the sink has stays (a deletion is told as missed); else backoff, anew |
//! | one object cannot be read, with [`OnUndecodable::Fail`] | backoff, same list | | a deletion, known which: told as missed; else backoff, anew |
//! | orderly end | | | lived: same watch at once; else backoff, same watch, counts |
//! | the sink refuses or panics | backoff, same list | | backoff, anew |
//!
//! A list that is not consistent and answers a version below the position counts as "version too large". A consistent
//! one that does begins a new era: it is accepted and told, and versions of before mean nothing any more. Where the
//! source has no order of versions, a consistent list after "version too large" does. A frame of a watch below the
//! position is applied and told, and moves nothing.
//!
//! # Silent watches
//! A connection can die without a word; and a watch from a version that the server has not reached, because its cluster
//! was restored from a backup, is opened and stays silent. So a watch that brought nothing for `silence` (150 s), or
//! nothing at all until its orderly end after a second or more, is checked, once: a list of one object is asked for, not
//! older than the position.
//!
//! | answer | what follows |
//! |---|---|
//! | any list | the watch is good |
//! | version too large, or a list of an older version | most recent state, as in the table above; it shows whether a new era has begun |
//! | refused, not reached, broken, timed out | the stream is taken for half open: closed, same watch at once |
//! | anything else | the server is there; the watch goes on, and is checked again after a backoff |
//!
//! A source whose lists never time out keeps the check waiting on a dead connection: give it a time-out. A server that
//! was restored and has passed our position since cannot be told from one that was not; no client can see that.
//!
//! # Where it differs from client-go's
//! * A watch that fails keeps its position wherever the table says "same watch". client-go lists everything again after a
//!   403 or a 404.
//! * An expired version is no failure: the list that follows waits for nothing but its spread, and adds nothing to the
//!   backoff. client-go waits for a step of a backoff that it shares with refused connections.
//! * Failures in a stream are told like others. client-go tells its error handler of failed requests only.
//! * A backoff begins anew after two minutes without a failure. client-go's begins anew every two minutes.
//! * An object that cannot be had costs itself. In client-go it costs its list, or is lost until the next one.
//! * The objects of a streamed state are transformed once, and handed over in the order in which they came. A stream that
//!   ends before the end of its state is asked for again after a backoff, and only a server that does not know such
//!   streams, or forgets their end three times, is asked for a list. client-go asks again at once for the first, and
//!   falls back to a list after any failure that it has no rule for.
//! * A silent watch is checked. client-go waits for its end.
//! * The time-out of a watch is taken as asked. client-go ignores one under five minutes.

mod backoff;
mod failure;
mod ingest;
mod list;
mod observe;
mod probe;
mod run;
mod sink;
mod streamed;
mod watch;

pub use backoff::Backoff;
pub(crate) use ingest::{RawSource, ingest};
pub(crate) use observe::Hook;
pub use observe::{Action, During, Ending, FailureKind, Health, LastError, ListReason, ReflectorEvent};

use crate::{
    flow::{DeltaSink, Opaque},
    source::{ListerWatcher, Scope},
    sync::{
        Arc, Clock, Door, Mutex, Stop,
        atomic::{AtomicBool, Ordering},
        call_out::Foreign,
    },
};
use run::{Over, Run};
use sink::TypedSink;
use std::{convert::Infallible, fmt, marker::PhantomData, ops::RangeInclusive, time::Duration};

/// What the first list asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialState {
    /// Whatever the server has at hand: cheap, and possibly a little old. client-go: resource version "0".
    #[default]
    Any,
    /// The most recent state.
    MostRecent,
    /// The most recent state, as the beginning of the watch: neither side has to hold it as one answer. Later states are
    /// asked for in the same way. Where the source or its server knows no such watches, as [`InitialState::Any`].
    /// client-go: `WatchListClient`.
    Streamed,
}

/// What an object that the source could not decode does. One that is known to be deleted is deleted in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUndecodable {
    /// What the sink has for it stays; it is told, and counted in [`Health::stale_objects`]. When nobody knows which
    /// object it is, a list deletes nothing, and a watch is followed by a list.
    #[default]
    Skip,
    /// The answer it came in is worth nothing: a list is asked for again after backoff, and so is one after a watch.
    Fail,
}

impl OnUndecodable {
    /// Whether this object makes the whole answer fail.
    fn fails(self, object: Option<&ingest::Failed>) -> bool {
        self == Self::Fail && object.is_some_and(|f| f.undecodable)
    }
}

/// Why [`Reflector::run`] ended although nobody stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another thread is running it.
    #[error("the reflector is running already; one thread at a time may run it")]
    AlreadyRunning,
    /// The sink was closed.
    #[error("the sink was closed while the reflector was running; stop the reflector before closing its sink")]
    SinkClosed,
}

/// Keeps a sink equal to a source, for objects of type `T`.
///
/// May be used alone, with a sink of one's own. client-go: `Reflector`.
pub struct Reflector<T> {
    core: Core,
    of: PhantomData<fn() -> T>,
}

/// What does not depend on the type.
struct Core {
    source: Arc<dyn RawSource>,
    sink: Arc<dyn DeltaSink<Opaque>>,
    options: Options,
    shared: Shared,
}

/// Every choice there is, with its default; the builder's methods explain them.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) initial: InitialState,
    pub(crate) page_size: u32,
    pub(crate) backoff: Backoff,
    pub(crate) relist_spread: Duration,
    pub(crate) watch_timeout: (Duration, Duration),
    pub(crate) silence: Duration,
    pub(crate) on_undecodable: OnUndecodable,
    pub(crate) seed: Option<u64>,
    pub(crate) clock: Clock,
    pub(crate) hook: Option<Hook>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: String::from("reflector"),
            scope: Scope::default(),
            initial: InitialState::default(),
            page_size: 0,
            backoff: Backoff::default(),
            relist_spread: Duration::from_secs(1),
            watch_timeout: (Duration::from_secs(300), Duration::from_secs(600)),
            silence: Duration::from_secs(150),
            on_undecodable: OnUndecodable::default(),
            seed: None,
            clock: Clock::real(),
            hook: None,
        }
    }
}

/// What others may ask a running reflector for.
#[derive(Default)]
struct Shared {
    running: AtomicBool,
    /// The server does not know streamed states.
    no_streams: AtomicBool,
    position: Mutex<String>,
    health: Mutex<Health>,
}

/// Options of a [`Reflector`]; see its `builder`.
#[must_use = "call build()"]
pub struct ReflectorBuilder<T> {
    source: Arc<dyn RawSource>,
    sink: Arc<dyn DeltaSink<Opaque>>,
    options: Options,
    of: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Reflector<T> {
    /// A reflector of the source's own objects.
    pub fn builder<L>(source: L, sink: impl DeltaSink<T> + 'static) -> ReflectorBuilder<T>
    where
        L: ListerWatcher<Object = T>,
    {
        Self::builder_with(source, Ok::<T, Infallible>, sink)
    }

    /// A reflector that turns each object, once, into what the sink keeps. Metadata is read before.
    ///
    /// An object whose transform fails is skipped: what the sink has for it stays. The transform's panics count as
    /// failures. client-go: `SetTransform`.
    pub fn builder_with<L, E>(
        source: L,
        transform: impl Fn(L::Object) -> Result<T, E> + Send + Sync + 'static,
        sink: impl DeltaSink<T> + 'static,
    ) -> ReflectorBuilder<T>
    where
        L: ListerWatcher,
        E: fmt::Display + 'static,
    {
        ReflectorBuilder::new(ingest(source, transform), Arc::new(TypedSink::new(sink)))
    }
}

impl Reflector<Opaque> {
    /// For rooms that have erased their types themselves. The sink's panics are not contained.
    pub(crate) fn erased(source: Arc<dyn RawSource>, sink: Arc<dyn DeltaSink<Opaque>>, options: Options) -> Self {
        Self::of(source, sink, options)
    }
}

impl<T> ReflectorBuilder<T> {
    fn new(source: Arc<dyn RawSource>, sink: Arc<dyn DeltaSink<Opaque>>) -> Self {
        Self { source, sink, options: Options::default(), of: PhantomData }
    }

    /// A name for messages.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Which objects; every request carries it. Everything by default.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.options.scope = scope;
        self
    }

    /// What the first list asks for. [`InitialState::Any`] by default.
    pub fn initial(mut self, initial: InitialState) -> Self {
        self.options.initial = initial;
        self
    }

    /// Objects per page of every list; zero, the default, for the rule in the room's documentation. client-go:
    /// `WatchListPageSize`.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.options.page_size = objects;
        self
    }

    /// The waits between requests that fail.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// The list that follows an expired watch comes after a random part of this, so that the reflectors of a whole
    /// cluster do not ask a returning server in one moment. One second by default; zero for at once.
    pub fn relist_spread(mut self, spread: Duration) -> Self {
        self.options.relist_spread = spread;
        self
    }

    /// How long the server is asked to keep a watch open: drawn from this range for each. Five to ten minutes by
    /// default. A watch that is still open ten seconds later is taken for dead and closed. client-go ignores values
    /// under five minutes.
    pub fn watch_timeout(mut self, range: RangeInclusive<Duration>) -> Self {
        self.options.watch_timeout = range.into_inner();
        self
    }

    /// A watch that brings nothing for so long is checked: the server is asked for a list of one object, not older than
    /// the version watched from. 150 s by default, at least one second; [`Duration::MAX`] for never. The room's
    /// documentation says what follows from the answer. While it is awaited, frames of the watch wait too.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.options.silence = silence;
        self
    }

    /// What an object that the source could not decode does. [`OnUndecodable::Skip`] by default.
    pub fn on_undecodable(mut self, what: OnUndecodable) -> Self {
        self.options.on_undecodable = what;
        self
    }

    /// Makes everything that is drawn by chance repeat.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// The clock of all waits. The machine's by default.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.options.clock = clock.clone();
        self
    }

    /// Is told of everything, on the reflector's thread, as it happens; so it should be quick. A panic in it is
    /// contained. The last one given is the one that is used.
    pub fn observe(mut self, hook: impl Fn(&ReflectorEvent) + Send + Sync + 'static) -> Self {
        let hook = Foreign::new(hook);
        self.options.hook = Some(Arc::new(move |e| hook(e)));
        self
    }

    /// The reflector. It asks for nothing before it runs.
    pub fn build(self) -> Reflector<T> {
        Reflector::of(self.source, self.sink, self.options)
    }
}

impl<T> Reflector<T> {
    fn of(source: Arc<dyn RawSource>, sink: Arc<dyn DeltaSink<Opaque>>, options: Options) -> Self {
        Self { core: Core { source, sink, options, shared: Shared::default() }, of: PhantomData }
    }

    /// Keeps the sink equal to the source until `stop`. *Blocks*: all the time, on this thread.
    ///
    /// When it returns, nothing of it is open any more, and it calls neither source nor sink nor hook. May be called
    /// again after that; it then goes on with a list not older than what the sink was given. When `stop` was given
    /// before, it asks for nothing. client-go: `Reflector.Run`, which asks once more.
    ///
    /// # Errors
    /// [`RunError::SinkClosed`] when the sink ended it, [`RunError::AlreadyRunning`].
    ///
    /// # Panics
    /// Never by what source, transform, sink or hook do.
    pub fn run(&self, stop: &Stop) -> Result<(), RunError> {
        let running = &self.core.shared.running;
        if running.swap(true, Ordering::Acquire) {
            return Err(RunError::AlreadyRunning);
        }
        let _done = Done(running);
        let _door = Door::enter(&self.core.options.clock);
        match Run::new(&self.core, stop).go() {
            Over::SinkClosed if !stop.is_stopped() => Err(RunError::SinkClosed),
            Over::SinkClosed | Over::Stopped => Ok(()),
        }
    }

    /// The version of the source that the sink has been brought to; empty before the first state. *Blocks*: briefly.
    pub fn last_version(&self) -> String {
        self.core.shared.position.lock().clone()
    }

    /// How it is doing. *Blocks*: briefly.
    pub fn health(&self) -> Health {
        self.core.shared.health.lock().clone()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.options.name
    }
}

/// Lets the next run begin, also after a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version) = (self.name(), self.last_version());
        f.debug_struct("Reflector").field("name", &name).field("last_version", &version).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ReflectorBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorBuilder").field("name", &self.options.name).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
