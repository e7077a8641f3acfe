//! What the reflector asks, hands over and tells, against a scripted source on a manual clock.
//!
//! A [`Script`] answers the n-th list and the n-th watch with what the test wrote down; every request is put on record
//! with its time. A request beyond the script stays unanswered until stop. [`World`] runs one reflector over it, with
//! no jitter, no spread and no checks of silent watches unless the test wants them, and with a sink that writes down what
//! it is given.
//!
//! Names of tests begin with `s` and the number of a scenario that client-go was asked, with `b` and the number of a public
//! fault, or with what differs from client-go on purpose: `v7` waits and when they begin anew, `v8` eras, `v9` a stop
//! before the run, `v10` objects that cannot be had, `v11` a 410 is no failure, `v13` silent watches are checked, `v15`
//! refused connections have waits of their own.

mod cells;
mod embedded;
mod eras;
mod harm;
mod ingestion;
mod policy;
mod recorder;
mod script;
mod silence;
mod stopping;
mod story;
mod streamed;

use super::{
    Backoff, FailureKind, InitialState, ListReason, OnUndecodable, Reflector, ReflectorBuilder, ReflectorEvent, RunError,
};
use crate::{
    source::SourceErrorKind,
    sync::{Arc, Gate, JoinHandle, ManualClock, Mutex, Stop, call_out::assert_contained, spawn},
};
use recorder::{Mood, Recorder};
use script::{Item, Script};
use std::time::Duration;

/// Seconds as a duration.
fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// What a story says of an event.
fn line(event: &ReflectorEvent) -> Option<String> {
    match event {
        ReflectorEvent::Listing { reason, .. } if *reason != ListReason::First => Some(format!("because {reason:?}")),
        ReflectorEvent::Failed { during, kind, action, wait, .. } => {
            let kind = match kind {
                FailureKind::Source(SourceErrorKind::Server { code, .. }) => code.to_string(),
                FailureKind::Source(kind) => format!("{kind:?}").split(' ').next().unwrap_or_default().to_owned(),
                kind => format!("{kind:?}"),
            };
            Some(format!("! {during:?} {kind}: {action:?} after {}", wait.as_secs_f64()))
        }
        _ => None,
    }
}

/// One reflector at work.
struct World {
    clock: ManualClock,
    script: Arc<Script>,
    sink: Arc<Recorder>,
    told: Arc<Mutex<Vec<ReflectorEvent>>>,
    stop: Stop,
    reflector: Arc<Reflector<Item>>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl World {
    /// Runs a reflector over `script` until everything rests.
    fn start(script: Script) -> Self {
        Self::start_with(script, Recorder::default(), |b| b)
    }

    fn start_with(
        script: Script,
        sink: Recorder,
        options: impl FnOnce(ReflectorBuilder<Item>) -> ReflectorBuilder<Item>,
    ) -> Self {
        let world = Self::build(script, sink, options);
        world.go()
    }

    fn build(script: Script, sink: Recorder, options: impl FnOnce(ReflectorBuilder<Item>) -> ReflectorBuilder<Item>) -> Self {
        let clock = ManualClock::new();
        let (script, sink, told) = (Arc::new(script.on(&clock)), Arc::new(sink), Arc::new(Mutex::new(Vec::new())));
        let (log, tell) = (script.clone(), told.clone());
        let builder = Reflector::builder_with(script.clone(), Item::transform, sink.clone())
            .clock(&clock)
            .seed(7)
            .backoff(Backoff { jitter: 0.0, ..Backoff::default() })
            .relist_spread(Duration::ZERO)
            .silence(Duration::MAX)
            .observe(move |e| {
                if let Some(line) = line(e) {
                    log.log(&line);
                }
                tell.lock().push(e.clone());
            });
        let (reflector, stop) = (Arc::new(options(builder).build()), Stop::with_clock(&clock));
        Self { clock, script, sink, told, stop, reflector, thread: None }
    }

    fn go(mut self) -> Self {
        let (reflector, stop) = (self.reflector.clone(), self.stop.clone());
        self.thread = Some(spawn(&self.clock, "reflector", move || reflector.run(&stop)).unwrap());
        self.clock.settle();
        self
    }

    fn advance(&self, seconds: f64) {
        self.clock.advance(secs(seconds));
    }

    /// What was asked and what failed, one line each, with the time in seconds.
    fn story(&self) -> Vec<String> {
        self.script.log.lock().clone()
    }

    /// The requests of the story.
    fn asked(&self) -> Vec<String> {
        self.story().into_iter().filter(|line| !line.contains('!') && !line.contains("because")).collect()
    }

    /// What the sink was given since the last look.
    fn given(&self) -> Vec<String> {
        std::mem::take(&mut self.sink.given.lock())
    }

    /// What was told since the last look, and is worth telling here.
    fn told(&self, worth: impl Fn(&ReflectorEvent) -> bool) -> Vec<ReflectorEvent> {
        std::mem::take(&mut *self.told.lock()).into_iter().filter(worth).collect()
    }

    /// Stops, and checks that nothing is left open.
    fn stop(&mut self) -> Result<(), RunError> {
        self.stop.stop();
        self.join()
    }

    fn join(&mut self) -> Result<(), RunError> {
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert_eq!(self.script.open(), 0, "a stream was left open");
        outcome
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
