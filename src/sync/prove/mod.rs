//! How models are run: the world once per schedule, bounds, limits of time, what was covered, and mutants.
//!
//! Only builds for a model checker have this module; no promise is made about it to anybody else.
//!
//! # Mutants
//! A model that cannot fail proves nothing. Code under a model passes its orderings through [`order`] and guards the
//! steps that a protocol rests on with [`keep`]; both do nothing unless the environment variable `INFORMER_MUTANT`
//! names that very place. `rejects` (and [`lin`] for its histories) runs its own test again, in a process of its own with
//! the variable set, and demands that the model fails there and says why. (A process, because a model that fails half-way
//! leaves threads that cannot be unwound.)

use super::atomic::Ordering;
#[cfg(informer_loom)]
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    env, fmt,
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering as Real},
    },
    thread,
    time::Instant,
};

#[cfg(informer_shuttle)]
mod exhaustive;
#[cfg(informer_shuttle)]
mod freezer;
pub mod lin;

#[cfg(informer_loom)]
pub use super::loom::Watched;
#[cfg(informer_shuttle)]
pub use freezer::{Verdict, Worker, World, arrives, freeze, freeze_two, pause, stand_still, stuck, worker};

/// Names the place that is broken on purpose.
const MUTANT: &str = "INFORMER_MUTANT";

/// `models` or `mutants`: runs the one without the other.
const ONLY: &str = "INFORMER_ONLY";

/// How many times as many schedules.
#[cfg(informer_shuttle)]
const EFFORT: &str = "INFORMER_EFFORT";

/// Changes every model's bound on preemptions: a number, `+` and a number for so many more, or `none`.
#[cfg(informer_loom)]
const PREEMPTIONS: &str = "INFORMER_PREEMPTIONS";

/// Seconds. A model that takes longer is too large to be one, and fails.
#[cfg(informer_loom)]
const LIMIT: &str = "INFORMER_MODEL_SECONDS";

// All threads of a model share one thread of the machine, so the machine's thread-locals are the model's globals.
std::thread_local! {
    static DECLARED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static ITERATION: Cell<u64> = const { Cell::new(0) };
}

/// Declares texts of panics that this execution may contain. Every other contained panic goes on and ends the model.
pub fn declare(texts: &[&str]) {
    DECLARED.with(|d| d.borrow_mut().extend(texts.iter().map(|t| (*t).to_owned())));
}

/// Whether a panic of this text was declared.
pub(crate) fn is_declared(text: &str) -> bool {
    DECLARED.with(|d| d.borrow().iter().any(|t| text.contains(t)))
}

/// The place that this process has broken.
fn mutant() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    NAME.get_or_init(|| env::var(MUTANT).ok()).as_deref()
}

/// `ordering`, unless this place is the mutant: then none at all.
pub(crate) fn order(place: &str, ordering: Ordering) -> Ordering {
    if mutant() == Some(place) { Ordering::Relaxed } else { ordering }
}

/// True, unless this place is the mutant: then the step is left out.
pub fn keep(place: &str) -> bool {
    mutant() != Some(place)
}

/// True, unless this process leaves the models out: then what they are to have reached has not been reached.
pub fn intact() -> bool {
    mutant().is_none() && !only("mutants")
}

fn only(what: &str) -> bool {
    env::var(ONLY).is_ok_and(|only| only == what)
}

/// How many times as much as usual is tried where a number of schedules is the measure.
#[cfg(informer_shuttle)]
fn effort() -> usize {
    env::var(EFFORT).map_or(1, |n| number(EFFORT, &n))
}

/// The number that a variable of the environment holds.
fn number(variable: &str, text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{variable} holds no number: {text:?}"))
}

/// Counts over all executions, to show that a model reached what it is about.
#[derive(Debug, Default)]
pub struct Reached(AtomicU64);

impl Reached {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Real::Relaxed);
    }

    /// How often so far.
    pub fn get(&self) -> u64 {
        self.0.load(Real::Relaxed)
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Begins an execution.
fn begin() -> u64 {
    DECLARED.with(|d| d.borrow_mut().clear());
    ITERATION.with(|i| {
        i.set(i.get() + 1);
        i.get()
    })
}

/// How worlds run on shuttle: nothing is written to disk, and one that does not end fails.
#[cfg(informer_shuttle)]
fn quiet() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    config
}

/// Says in which execution a panic happened. Panics that were declared pass in silence.
fn announce_failures() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str().unwrap_or_default();
            if is_declared(text) {
                return;
            }
            let iteration = ITERATION.with(Cell::get);
            if iteration > 0 {
                eprintln!("in execution {iteration}: {text}");
            }
            before(info);
        }));
    });
}

/// Runs `world` in every schedule that has at most `preemptions` preemptions (`None`: in every schedule).
///
/// Prints how many executions that were. Does nothing in a process that [`rejects`] started, nor with `INFORMER_ONLY=mutants`.
///
/// # Panics
/// When an execution fails, or when the time is up: one minute, or what `INFORMER_MODEL_SECONDS` says.
#[cfg(informer_loom)]
pub fn model(name: &str, preemptions: Option<usize>, world: impl Fn() + Send + Sync + 'static) {
    if intact() {
        check(name, preemptions, world);
    }
}

#[cfg(informer_loom)]
fn check(name: &str, preemptions: Option<usize>, world: impl Fn() + Send + Sync + 'static) {
    announce_failures();
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = match env::var(PREEMPTIONS) {
        Ok(n) if n == "none" => None,
        Ok(n) if n.starts_with('+') => preemptions.map(|own| own + number(PREEMPTIONS, &n[1..])),
        Ok(n) => Some(number(PREEMPTIONS, &n)),
        Err(_) => preemptions,
    };
    builder.max_branches = env::var("LOOM_MAX_BRANCHES").map_or(10_000, |n| number("LOOM_MAX_BRANCHES", &n));
    let limit = Duration::from_secs(env::var(LIMIT).map_or(60, |n| number(LIMIT, &n) as u64));
    builder.max_duration = Some(limit);
    // The limit is looked at this often.
    builder.checkpoint_interval = 500;
    let bound = builder.preemption_bound.map_or_else(|| "no bound".to_owned(), |n| format!("at most {n} preemptions"));
    let begun = Instant::now();
    ITERATION.with(|i| i.set(0));
    builder.check(move || {
        begin();
        world();
    });
    let (executions, took) = (ITERATION.with(Cell::get), begun.elapsed());
    ITERATION.with(|i| i.set(0));
    println!("model {name}: {executions} executions, {bound}, {:.2} s", took.as_secs_f64());
    assert!(took < limit, "the model {name} was cut after {limit:?}: what was not run is not proved");
}

/// Runs `world` with the place `mutant` broken, in a process of its own, and demands that it fails with a message that
/// contains `because` (or one of several texts, between bars). A mutant that frees too early may touch what was freed
/// before loom can say so; then the message is "killed by a signal". To be called directly from a `#[test]` with a closure
/// written there. Does nothing with `INFORMER_ONLY=models`.
///
/// # Panics
/// When the mutant survives, or fails for another reason.
#[cfg(informer_loom)]
pub fn rejects<W: Fn() + Send + Sync + 'static>(mutant: &str, because: &str, preemptions: Option<usize>, world: W) {
    in_child::<W>(mutant, because, || check(mutant, preemptions, world));
}

/// Runs the test that `W` was written in again, in a process with `place` broken in which that test comes to `run`, and
/// demands that it fails there because of that.
fn in_child<W>(place: &str, because: &str, run: impl FnOnce()) {
    if let Some(own) = mutant() {
        if own == place {
            run();
            println!("SURVIVED");
            std::process::exit(0);
        }
        return;
    }
    if only("models") {
        return;
    }
    let test = std::any::type_name::<W>();
    let test = test.split_once("::").map_or(test, |(_, path)| path);
    let test = test.split("::{{closure}}").next().unwrap_or(test);
    let begun = Instant::now();
    let exe = env::current_exe().expect("the test program knows where it is");
    let mut child = Command::new(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MUTANT, place)
        .env_remove(ONLY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test program starts again");
    let readers = [
        thread::spawn({
            let mut pipe = child.stdout.take().expect("piped");
            move || read(&mut pipe)
        }),
        thread::spawn({
            let mut pipe = child.stderr.take().expect("piped");
            move || read(&mut pipe)
        }),
    ];
    let status = child.wait().expect("the child ends");
    let mut said = readers.map(|r| r.join().expect("the reader ends")).concat();
    if status.code().is_none() {
        said.push_str("killed by a signal");
    }
    assert!(said.contains("running 1 test"), "no test is called {test}:\n{said}");
    assert!(!said.contains("SURVIVED") && !status.success(), "the mutant {place:?} survived:\n{said}");
    assert!(because.split('|').any(|why| said.contains(why)), "the mutant {place:?} failed, but not with {because:?}:\n{said}");
    let execution = said.split("in execution ").nth(1).and_then(|s| s.split(':').next()).unwrap_or("? (killed)");
    println!("mutant {place}: rejected in execution {execution}, {:.2} s", begun.elapsed().as_secs_f64());
}

fn read(pipe: &mut impl std::io::Read) -> String {
    let mut said = Vec::new();
    pipe.read_to_end(&mut said).expect("the child's output can be read");
    String::from_utf8_lossy(&said).into_owned()
}
