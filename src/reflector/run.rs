//! The loop: a whole state, then watches from its version, and what to do when either fails.
//!
//! Everything a run remembers lives in [`Run`], on the calling thread. What others may ask for (the position, the
//! health) is copied to [`super::Shared`] when it changes.

use super::{
    Core, InitialState,
    backoff::Steps,
    failure::{self, Asked, Past, Pause, Place, Verdict},
    ingest::{Failed, Share},
    list::{self, NoState, State, chain},
    observe::{Action, During, Ending, FailureKind, LastError, ListReason, ReflectorEvent, answered},
    streamed::Open,
};
use crate::{
    flow::{Delta, ObjectKey, Opaque, SinkError},
    source::{SourceErrorKind, VersionMatch},
    sync::{
        Deadline, Instant, Stop, Wake, Woken,
        atomic::Ordering as Memory,
        call_out::{self, Site},
    },
};
use std::{cmp::Ordering, collections::HashSet, time::Duration};

/// Objects per page when nobody asked for another number. client-go: the pager's default.
const PAGE_SIZE: u32 = 500;
/// Failures that count, in a row, after which a watch gives way to a list.
const PATIENCE: u8 = 3;
/// A list made because of an expired version is not made again at once before this much time.
const EXPIRED_LATELY: Duration = Duration::from_secs(10);
/// For so long after a refused connection a server is taken for one that is still on its way back.
const RETURNING: Duration = Duration::from_secs(10);

/// The run is over.
pub(super) enum Over {
    Stopped,
    SinkClosed,
}

/// What the sink did with a batch.
pub(super) enum Taken {
    All,
    /// It refused; says whether it had taken something before.
    Refused {
        some: bool,
        why: String,
    },
}

/// What became of a whole state.
enum Accepted {
    Yes,
    /// Another has to be asked for.
    No(FailureKind, String),
}

pub(super) struct Run<'a> {
    pub(super) core: &'a Core,
    pub(super) stop: &'a Stop,
    pub(super) wake: Wake,
    pub(super) rng: fastrand::Rng,
    steps: Steps,
    /// The version of what the sink has taken; empty before the first state.
    pub(super) position: String,
    /// Why the next state is asked for.
    reason: ListReason,
    /// Ask for the most recent state, whatever else, until one came.
    most_recent: bool,
    /// Ask for the next state in one page, because a token expired.
    unpaged: bool,
    /// The server pages even what it could answer from its memory; so it is worth asking for pages always.
    paginated: bool,
    /// The server said that our version is too large, and no state came since. Without an order of versions that is
    /// what tells a new era.
    doubted: bool,
    too_large: bool,
    counted: u8,
    /// Streamed states in a row without an end mark.
    unmarked: u8,
    /// Ask for the next state by a list.
    as_list: bool,
    expired_list: Option<Instant>,
    /// When a connection was refused last.
    refused_at: Option<Instant>,
    /// The next watch is to be probed then, if it is silent: the last probe's answer was unclear.
    pub(super) probe_again: Option<Instant>,
    /// Objects whose newest state could not be had.
    pub(super) stale: HashSet<ObjectKey>,
    /// Objects of the last list of whom not even the name is known.
    nameless: usize,
    pub(super) batch: Vec<Delta<Opaque>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(core: &'a Core, stop: &'a Stop) -> Self {
        let rng = core.options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self {
            core,
            stop,
            wake: Wake::new(stop, &core.options.clock),
            rng,
            steps: Steps::new(core.options.backoff.clone()),
            position: core.shared.position.lock().clone(),
            reason: ListReason::First,
            most_recent: false,
            unpaged: false,
            paginated: false,
            doubted: false,
            too_large: false,
            counted: 0,
            unmarked: 0,
            as_list: false,
            expired_list: None,
            refused_at: None,
            probe_again: None,
            stale: HashSet::new(),
            nameless: 0,
            batch: Vec::new(),
        }
    }

    /// Never returns `Ok`: it is over when it is over.
    pub(super) fn go(mut self) -> Over {
        self.core.sink.listens(&self.wake);
        loop {
            if let Err(over) = self.initial_state().and_then(|open| self.watches(open)) {
                return over;
            }
        }
    }

    pub(super) fn alive(&self) -> Result<(), Over> {
        if self.stop.is_stopped() { Err(Over::Stopped) } else { Ok(()) }
    }

    pub(super) fn now(&self) -> Instant {
        self.core.options.clock.now()
    }

    pub(super) fn tell(&self, event: &ReflectorEvent) {
        super::observe::tell(self.core.options.hook.as_ref(), event);
    }

    /// Asks until the sink has taken a whole state. When that was the beginning of a watch, this is it.
    fn initial_state(&mut self) -> Result<Option<Open>, Over> {
        loop {
            self.alive()?;
            let began = self.now();
            if self.reason == ListReason::Expired {
                self.expired_list = Some(began);
            }
            let streamed = self.streams();
            let version = self.version_to_list(streamed);
            let limit = if streamed { None } else { self.page_size(&version) };
            self.tell(&ReflectorEvent::Listing { reason: self.reason, version: version.clone(), limit, streamed });
            // Equal versions prove nothing across eras, and a consistent list may turn out to begin one.
            let reuse = matches!(version, VersionMatch::NotOlderThan(_));
            let core = self.core;
            let share = Share { sink: &*core.sink, reuse, shard: core.options.scope.shard };
            let answer = if streamed {
                self.streamed(share, &version).map(|(state, open)| (state, Some(open)))
            } else {
                list::list(core, self.stop, share, &version, limit).map(|state| (state, None))
            };
            let (kind, message, later_page) = match answer {
                Err(NoState::Stopped) => return Err(Over::Stopped),
                Err(NoState::Failed { kind, message, later_page }) => (kind, message, later_page && !self.unpaged),
                Ok((state, open)) => {
                    self.contact(|_| {});
                    match self.accept(&version, state, began) {
                        Ok(Accepted::Yes) => {
                            if streamed {
                                self.unmarked = 0;
                            }
                            return Ok(open);
                        }
                        // Closed before any wait, and whatever follows.
                        Ok(Accepted::No(kind, message)) => {
                            let how = if let FailureKind::Source(kind) = &kind { Some(kind.clone()) } else { None };
                            self.close_unread(open, how.map_or(Ending::SinkRefused, Ending::Failed));
                            (kind, message, false)
                        }
                        Err(over) => {
                            let stopped = matches!(over, Over::Stopped);
                            self.close_unread(open, if stopped { Ending::Stopped } else { Ending::SinkRefused });
                            return Err(over);
                        }
                    }
                }
            };
            self.list_failed(&version, later_page, streamed, kind, message)?;
        }
    }

    /// Closes a watch whose state was of no use.
    fn close_unread(&self, open: Option<Open>, how: Ending) {
        let Some(Open { stream, opened, .. }) = open else { return };
        drop(stream);
        self.tell(&ReflectorEvent::Ended { how, frames: 0, lasted: self.now().since(opened) });
    }

    /// Whether the next state is asked for as the beginning of a watch.
    fn streams(&self) -> bool {
        let core = self.core;
        core.options.initial == InitialState::Streamed
            && !self.as_list
            && !core.shared.no_streams.load(Memory::Relaxed)
            && core.source.supports_watch_list()
    }

    fn version_to_list(&self, streamed: bool) -> VersionMatch {
        match (self.most_recent, self.position.is_empty(), self.core.options.initial) {
            (true, ..) | (false, true, InitialState::MostRecent) => VersionMatch::MostRecent,
            (false, true, InitialState::Streamed) if streamed => VersionMatch::MostRecent,
            (false, true, InitialState::Any | InitialState::Streamed) => VersionMatch::Any,
            (false, false, _) => VersionMatch::NotOlderThan(self.position.clone()),
        }
    }

    /// "Not older than" is answered from the server's memory when it is asked without a limit.
    fn page_size(&self, version: &VersionMatch) -> Option<u32> {
        match self.core.options.page_size {
            _ if self.unpaged => None,
            0 if self.paginated || !matches!(version, VersionMatch::NotOlderThan(_)) => Some(PAGE_SIZE),
            0 => None,
            n => Some(n),
        }
    }

    /// Judges the version of a state and hands it to the sink.
    fn accept(&mut self, asked: &VersionMatch, state: State, began: Instant) -> Result<Accepted, Over> {
        let consistent = *asked == VersionMatch::MostRecent;
        let mut new_era = false;
        if !self.position.is_empty() {
            match self.core.source.compare(&state.version, &self.position) {
                Some(Ordering::Less) if !consistent => {
                    let message = format!("a list not older than {} answered {}, which is older", self.position, state.version);
                    let kind = FailureKind::Source(SourceErrorKind::TooLargeVersion { retry_after: None });
                    return Ok(Accepted::No(kind, message));
                }
                Some(Ordering::Less) => new_era = true,
                Some(_) => {}
                None => new_era = consistent && self.doubted,
            }
        }
        for f in &state.failed {
            self.skipped(f);
        }
        let (paged, objects, failed) = (state.paged, state.objects.len(), state.failed.len());
        let (kept, complete) = (state.kept(), state.complete());
        let State { version, objects: all, .. } = state;
        self.batch.clear();
        self.batch.push(Delta::ReplacedAll { version: version.clone(), objects: all, kept: kept.clone(), complete, new_era });
        if let Taken::Refused { why, .. } = self.hand_over()? {
            self.refused(&why);
            return Ok(Accepted::No(FailureKind::SinkRefused, why));
        }
        if new_era {
            self.tell(&ReflectorEvent::Era { old: self.position.clone(), new: version.clone() });
        }
        self.paginated |= *asked == VersionMatch::Any && (paged || self.unpaged);
        (self.most_recent, self.unpaged, self.as_list) = (false, false, false);
        (self.doubted, self.counted) = (false, 0);
        self.moved_to(&version);
        self.nameless = failed - kept.len();
        self.stale = kept.into_iter().collect();
        self.core.shared.health.lock().stale_objects = self.stale_objects();
        self.tell(&ReflectorEvent::Listed { version, objects, took: self.now().since(began) });
        Ok(Accepted::Yes)
    }

    /// Asks the sink. What it did not take is dropped: another state follows.
    pub(super) fn hand_over(&mut self) -> Result<Taken, Over> {
        self.alive()?;
        let given = self.batch.len();
        let outcome = self.core.sink.apply(&mut self.batch);
        let some = self.batch.len() < given;
        self.batch.clear();
        match outcome {
            Ok(()) => Ok(Taken::All),
            Err(SinkError::Closed) => {
                self.refused(&SinkError::Closed.to_string());
                Err(Over::SinkClosed)
            }
            Err(error @ SinkError::Refused(_)) => {
                let why = call_out::call(Site::Sink, move || chain(&error)).unwrap_or_else(|p| p.to_string());
                Ok(Taken::Refused { some, why })
            }
        }
    }

    pub(super) fn moved_to(&mut self, version: &str) {
        self.position.clear();
        self.position.push_str(version);
        let mut shared = self.core.shared.position.lock();
        shared.clear();
        shared.push_str(version);
    }

    pub(super) fn skipped(&self, f: &Failed) {
        self.tell(&ReflectorEvent::Skipped { key: f.key.clone(), version: f.version.clone(), why: f.why.clone() });
    }

    pub(super) fn refused(&self, why: &str) {
        self.tell(&ReflectorEvent::Refused { key: None, why: why.to_owned() });
    }

    /// The server answered.
    pub(super) fn contact(&self, more: impl FnOnce(&mut super::Health)) {
        let now = self.now();
        let mut health = self.core.shared.health.lock();
        health.last_contact = Some(now);
        more(&mut health);
    }

    pub(super) fn stale_objects(&self) -> usize {
        self.stale.len() + self.nameless
    }

    /// A frame was applied: the failures before it are history.
    pub(super) fn accepted(&mut self) {
        (self.counted, self.too_large) = (0, false);
    }

    /// The sink has taken a part of a batch: only the most recent state is sure not to be older than that part.
    pub(super) fn partly_taken(&mut self) {
        self.most_recent = true;
    }

    fn list_failed(
        &mut self,
        version: &VersionMatch,
        later_page: bool,
        streamed: bool,
        kind: FailureKind,
        message: String,
    ) -> Result<(), Over> {
        let asked = match version {
            VersionMatch::Any => Asked::Anything,
            VersionMatch::MostRecent => Asked::MostRecent,
            VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => Asked::Version,
        };
        let unknown = kind == FailureKind::Source(SourceErrorKind::WatchListUnsupported);
        match self.failed(Place::List { asked, later_page, streamed }, kind, message)? {
            Action::Unpaged => self.unpaged = true,
            Action::MostRecent => (self.most_recent, self.unpaged) = (true, false),
            Action::AsList if unknown => self.core.shared.no_streams.store(true, Memory::Relaxed),
            Action::AsList => self.as_list = true,
            Action::SameRequest | Action::InitialState | Action::SameWatch => {}
        }
        Ok(())
    }

    /// A watch failed; says whether to watch again, after the wait. Else a list is due.
    pub(super) fn watch_failed(&mut self, place: Place, kind: FailureKind, message: String) -> Result<bool, Over> {
        let reason = match &kind {
            FailureKind::SinkRefused => ListReason::SinkRefused,
            FailureKind::Unreadable => ListReason::Unreadable,
            FailureKind::Source(SourceErrorKind::Expired) => ListReason::Expired,
            FailureKind::Source(SourceErrorKind::TooLargeVersion { .. }) => ListReason::TooLargeVersion,
            FailureKind::Source(SourceErrorKind::Server { code: 500, reason, .. }) if reason == "StoreReadError" => {
                ListReason::StoreReadError
            }
            FailureKind::CleanEnd | FailureKind::NoEndMark | FailureKind::Source(_) => ListReason::Repeated,
        };
        let action = self.failed(place, kind, message)?;
        self.most_recent |= action == Action::MostRecent;
        if action != Action::SameWatch {
            self.reason = reason;
        }
        Ok(action == Action::SameWatch)
    }

    /// Judges a failure, tells of it, and waits.
    fn failed(&mut self, place: Place, kind: FailureKind, message: String) -> Result<Action, Over> {
        let now = self.now();
        let expired_lately = self.expired_list.is_some_and(|began| now.since(began) < EXPIRED_LATELY);
        let returning = self.refused_at.is_some_and(|at| now.since(at) < RETURNING);
        let past = Past { too_large: self.too_large, expired_lately, returning };
        let Verdict { pause, mut action, counts } = failure::judge(place, &kind, past);
        if counts {
            self.counted += 1;
            if self.counted >= PATIENCE {
                (self.counted, action) = (0, Action::InitialState);
            }
        }
        if kind == FailureKind::NoEndMark {
            self.unmarked = self.unmarked.saturating_add(1);
            if self.unmarked >= PATIENCE {
                action = Action::AsList;
            }
        }
        let mut least = None;
        if let FailureKind::Source(kind) = &kind {
            least = kind.retry_after();
            if matches!(kind, SourceErrorKind::ConnectionRefused) {
                self.refused_at = Some(now);
            }
            if matches!(kind, SourceErrorKind::TooLargeVersion { .. }) {
                (self.too_large, self.doubted) = (true, true);
            }
        }
        let wait = match pause {
            Pause::None => Duration::ZERO,
            Pause::Spread => self.core.options.relist_spread.mul_f64(self.rng.f64()),
            Pause::Backoff => self.backoff_step(least),
            Pause::Refused => self.steps.refused_step(now, &mut self.rng),
        };
        let during = match place {
            Place::List { .. } => During::List,
            Place::Watch { .. } => During::Watch,
            Place::Stream { .. } => During::Stream,
        };
        {
            let mut health = self.core.shared.health.lock();
            if answered(&kind) {
                health.last_contact = Some(now);
            }
            health.last_error = Some(LastError { at: now, during, kind: kind.clone(), message: message.clone() });
        }
        self.tell(&ReflectorEvent::Failed { during, kind, action, wait, message });
        self.pause(now, wait)?;
        Ok(action)
    }

    /// One step of the ladder for failures in general.
    pub(super) fn backoff_step(&mut self, least: Option<Duration>) -> Duration {
        self.steps.step(self.now(), &mut self.rng, least)
    }

    /// Waits on the clock; stop ends it.
    fn pause(&self, now: Instant, wait: Duration) -> Result<(), Over> {
        self.alive()?;
        if wait.is_zero() {
            return Ok(());
        }
        let until = Deadline::from(now.checked_add(wait));
        loop {
            let (earlier, sinks) = self.or_due(until);
            match self.wake.wait(earlier) {
                Woken::Stopped => return Err(Over::Stopped),
                Woken::Nudged => self.core.sink.woken(),
                Woken::Deadline if sinks => self.core.sink.woken(),
                Woken::Deadline => return Ok(()),
            }
        }
    }

    /// Until when to wait for something before `until`, and whether that is when the sink is due.
    pub(super) fn or_due(&self, until: Deadline) -> (Deadline, bool) {
        let clock = &self.core.options.clock;
        match (self.core.sink.due().on(clock), until.on(clock)) {
            (Some(due), Some(until)) if due < until => (Deadline::at(due), true),
            (Some(due), None) => (Deadline::at(due), true),
            _ => (until, false),
        }
    }
}
