//! The freeze checker: does anybody wait for a thread that has stopped for ever?
//!
//! * [`freeze`]: one worker, the victim, is taken off the schedule at its `k`-th shared operation and never runs again.
//!   The others must finish without it. That is tried for every `k`. [`freeze_two`] does it with two victims at once, for
//!   every pair of points.
//! * [`stuck`]: a callback of the world's says itself that it does not return ([`stand_still`]). Those who must finish do;
//!   those who have to wait for the callback do not.
//! * [`arrives`]: nobody is frozen; one worker is held back until another has done its `k`-th operation, and then runs
//!   before everybody else. So what it brings, a stop for one, arrives at every step there is, and everybody must finish.
//!
//! Each under random schedules and under the schedules with few preemptions.
//!
//! # What an answer is worth
//! [`Verdict::Blocked`], [`Verdict::Spins`] and [`Verdict::Returns`] are counterexamples. [`Verdict::Passes`] is evidence
//! for the small world that was run: every operation that goes through the facade is a point, std's `Arc` and the
//! allocator are not, and orderings play no part. The subjects with known answers in `sync/freeze.rs` keep the checker
//! honest.
//!
//! # Fairness
//! A spinning worker must hand over ([`pause`]) and is then not asked again before the others had their turn; without
//! that the search would blame the frozen thread for a live one that was never scheduled.

use super::exhaustive::Exhaustive;
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

/// How much is tried.
#[derive(Clone, Copy)]
struct Effort {
    /// Random schedules of a point.
    random: usize,
    /// Executions of the exhaustive search of a point; a search that is cut there is said to be.
    exhaustive: usize,
    /// Steps that the others may take after the freeze; far more than any of them needs alone.
    enough: usize,
}

impl Effort {
    /// So many times as much, in a campaign.
    fn asked(self) -> Self {
        let times = super::effort();
        Self { random: times * self.random, exhaustive: times * self.exhaustive, enough: self.enough }
    }
}

/// For small worlds, at each point.
const POINT: Effort = Effort { random: 200, exhaustive: 5_000, enough: 2_000 };
/// The same, at each pair of points.
const PAIR: Effort = Effort { random: 50, exhaustive: 500, enough: 2_000 };
/// For larger worlds with a callback that does not return: once.
const WORLD: Effort = Effort { random: 1_000, exhaustive: 1_000, enough: 20_000 };
/// For larger worlds, at each step at which something arrives.
const STEP: Effort = Effort { random: 20, exhaustive: 40, enough: 20_000 };

// All threads of a world share one thread of the machine, so the machine's thread-locals are the world's globals.
std::thread_local! {
    static STANDS: Cell<bool> = const { Cell::new(false) };
}

/// What one thread of the world does.
pub type Worker = Box<dyn FnOnce() + Send>;

/// Boxes a worker.
pub fn worker(work: impl FnOnce() + Send + 'static) -> Worker {
    Box::new(work)
}

/// What a worker calls in a loop that waits for another.
pub fn pause() {
    shuttle::hint::spin_loop();
}

/// What a callback calls that does not return: its thread is frozen here and now. (It goes on when the world is judged, so
/// that the execution can end.)
pub fn stand_still() {
    STANDS.set(true);
    shuttle::thread::yield_now();
}

/// A world with a callback that does not return.
#[derive(Default)]
pub struct World {
    must: Vec<Worker>,
    stays: Vec<Worker>,
    after: Option<Worker>,
}

impl World {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody who must finish while the callback does not return.
    pub fn finishes(mut self, work: impl FnOnce() + Send + 'static) -> Self {
        self.must.push(worker(work));
        self
    }

    /// Somebody who has to wait for the callback, and must not finish before.
    pub fn waits(mut self, work: impl FnOnce() + Send + 'static) -> Self {
        self.stays.push(worker(work));
        self
    }

    /// What is looked at in the end, when the callback has returned and everybody has finished.
    pub fn after(mut self, look: impl FnOnce() + Send + 'static) -> Self {
        self.after = Some(worker(look));
        self
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Verdict {
    /// The others finished, wherever the victim stood.
    Passes {
        /// Points (or pairs of points, or executions) at which somebody was frozen, or something arrived.
        points: usize,
        /// Most steps that all others together needed after that.
        most_steps: usize,
    },
    /// With the victims frozen after so many operations nobody could go on.
    Blocked(Vec<usize>),
    /// With the victims frozen after so many operations the others went in circles.
    Spins(Vec<usize>),
    /// Who had to wait for the frozen callback did not.
    Returns,
}

#[derive(Default)]
struct Seen {
    /// Which task each worker is, once it has begun.
    tasks: Mutex<Vec<Option<TaskId>>>,
    /// How many must finish, and how many must not.
    must: AtomicUsize,
    stays: AtomicUsize,
    finished: AtomicUsize,
    /// Of those who are not to finish.
    returned: AtomicUsize,
    executions: AtomicUsize,
    /// Executions in which all victims were frozen, or the step was reached.
    reached: AtomicUsize,
    most_steps: AtomicUsize,
    failure: Mutex<Option<Verdict>>,
}

impl Seen {
    fn failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn fail(&self, verdict: Verdict) -> Option<TaskId> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        // Ends the execution where it is.
        None
    }

    fn task(&self, worker: usize) -> Option<TaskId> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(worker).copied().flatten()
    }
}

/// A worker that is watched, and how far it is to come.
#[derive(Clone)]
struct Watched {
    worker: usize,
    point: usize,
    operations: usize,
    passed: bool,
}

impl Watched {
    fn new(worker: usize, point: usize) -> Self {
        Self { worker, point, operations: 0, passed: false }
    }

    /// Counts the step that `current` has come to; true when that is the point.
    fn comes(&mut self, current: Option<TaskId>, seen: &Seen) -> bool {
        if self.passed || current.is_none() || current != seen.task(self.worker) {
            return false;
        }
        self.operations += 1;
        self.passed = self.operations > self.point;
        self.passed
    }
}

/// Takes tasks off the schedule of `inner`, and puts them back when everybody who must has finished.
struct Freezer<S> {
    inner: S,
    victims: Vec<Watched>,
    frozen: Vec<TaskId>,
    /// Whether a callback stood still.
    stands: bool,
    enough: usize,
    steps: usize,
    thawed: bool,
    seen: Arc<Seen>,
}

impl<S> Freezer<S> {
    fn at(&self) -> Vec<usize> {
        self.victims.iter().map(|v| v.point).collect()
    }

    /// Freezes whom it is time to freeze.
    fn freeze(&mut self, current: Option<TaskId>) {
        let before = self.frozen.len();
        let mut stops = STANDS.take();
        self.stands |= stops;
        for victim in &mut self.victims {
            stops |= victim.comes(current, &self.seen);
        }
        self.frozen.extend(current.filter(|_| stops));
        let all = self.victims.iter().all(|v| v.passed) && (self.stands || !self.victims.is_empty());
        if self.frozen.len() > before {
            self.steps = 0;
            if all && (before == 0 || !self.victims.is_empty()) {
                self.seen.reached.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// From here on everybody runs, in turn, so that the rest ends.
    fn thaw(&mut self, runnable: &[&Task]) -> Option<TaskId> {
        self.seen.most_steps.fetch_max(self.steps, Ordering::Relaxed);
        (self.thawed, self.steps) = (true, 0);
        Some(runnable[0].id())
    }
}

impl<S: Scheduler> Scheduler for Freezer<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.seen.failed() {
            return None;
        }
        let schedule = self.inner.new_execution()?;
        self.victims.iter_mut().for_each(|v| *v = Watched::new(v.worker, v.point));
        self.frozen.clear();
        STANDS.set(false);
        (self.steps, self.stands, self.thawed) = (0, false, false);
        self.seen.finished.store(0, Ordering::Relaxed);
        self.seen.returned.store(0, Ordering::Relaxed);
        self.seen.executions.fetch_add(1, Ordering::Relaxed);
        Some(schedule)
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        if self.thawed {
            STANDS.set(false);
            self.steps += 1;
            return Some(runnable[self.steps % runnable.len()].id());
        }
        self.freeze(current);
        if self.frozen.is_empty() {
            return self.inner.next_task(runnable, current, yields);
        }
        let live: Vec<&Task> = runnable.iter().copied().filter(|t| !self.frozen.contains(&t.id())).collect();
        if self.seen.finished.load(Ordering::Relaxed) == self.seen.must.load(Ordering::Relaxed) {
            if self.seen.stays.load(Ordering::Relaxed) == 0 {
                return self.thaw(runnable);
            }
            if live.is_empty() {
                if self.seen.returned.load(Ordering::Relaxed) > 0 {
                    return self.seen.fail(Verdict::Returns);
                }
                return self.thaw(runnable);
            }
        } else if live.is_empty() {
            return self.seen.fail(Verdict::Blocked(self.at()));
        }
        self.steps += 1;
        if self.steps > self.enough {
            return self.seen.fail(Verdict::Spins(self.at()));
        }
        self.inner.next_task(&live, current, yields)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

/// Holds one worker back until another has come to a point, and then runs it before all others.
struct Bringer<S> {
    inner: S,
    bringer: usize,
    watched: Watched,
    arrived: bool,
    seen: Arc<Seen>,
}

impl<S: Scheduler> Scheduler for Bringer<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.inner.new_execution()?;
        self.watched = Watched::new(self.watched.worker, self.watched.point);
        self.arrived = false;
        self.seen.executions.fetch_add(1, Ordering::Relaxed);
        Some(schedule)
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let bringer = self.seen.task(self.bringer);
        if !self.arrived {
            let others: Vec<&Task> = runnable.iter().copied().filter(|t| Some(t.id()) != bringer).collect();
            let here = self.watched.comes(current, &self.seen);
            // When all others wait, it arrives as well, but at no step.
            self.arrived = here || others.is_empty();
            if here {
                self.seen.reached.fetch_add(1, Ordering::Relaxed);
            }
            if !self.arrived {
                return self.inner.next_task(&others, current, yields);
            }
        }
        match runnable.iter().find(|t| Some(t.id()) == bringer) {
            Some(task) => Some(task.id()),
            None => self.inner.next_task(runnable, current, yields),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

/// What the executions of a check came to.
#[derive(Default)]
struct Sum {
    executions: usize,
    most_steps: usize,
    cut: Arc<AtomicUsize>,
    failure: Option<Verdict>,
}

impl Sum {
    /// Adds what was seen; how many executions came to where they should.
    fn add(&mut self, seen: &Seen) -> usize {
        self.executions += seen.executions.load(Ordering::Relaxed);
        self.most_steps = self.most_steps.max(seen.most_steps.load(Ordering::Relaxed));
        let failure = seen.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.failure = self.failure.take().or(failure);
        seen.reached.load(Ordering::Relaxed)
    }

    fn verdict(self, name: &str, points: usize, begun: Instant, effort: Effort) -> Verdict {
        let verdict = self.failure.unwrap_or(Verdict::Passes { points, most_steps: self.most_steps });
        let cut = match self.cut.load(Ordering::Relaxed) {
            0 => String::new(),
            n => format!(", {n} searches cut after {}", effort.exhaustive),
        };
        println!("freeze {name}: {verdict:?}, {} executions{cut}, {:.2} s", self.executions, begun.elapsed().as_secs_f64());
        verdict
    }
}

/// Freezes worker `victim` of the world that `make` builds at each of its points in turn. Prints what was covered.
///
/// # Panics
/// When an execution fails otherwise: a worker's assertion, a deadlock without a frozen thread.
pub fn freeze<const W: usize>(name: &str, victim: usize, make: fn() -> [Worker; W]) -> Verdict {
    let (begun, effort) = (Instant::now(), POINT.asked());
    let mut sum = Sum::default();
    let mut point = 0;
    // Until the victim ends before it has done so many operations: all points are covered.
    while frozen_at(&[(victim, point)], make, effort, &mut sum) && sum.failure.is_none() {
        point += 1;
    }
    sum.verdict(name, point, begun, effort)
}

/// [`freeze`] with two victims, each frozen at one of its points: every pair.
///
/// # Panics
/// As [`freeze`].
pub fn freeze_two<const W: usize>(name: &str, victims: [usize; 2], make: fn() -> [Worker; W]) -> Verdict {
    let (begun, effort) = (Instant::now(), PAIR.asked());
    let mut sum = Sum::default();
    let mut pairs = 0;
    for first in 0.. {
        let before = pairs;
        for second in 0.. {
            if !frozen_at(&[(victims[0], first), (victims[1], second)], make, effort, &mut sum) || sum.failure.is_some() {
                break;
            }
            pairs += 1;
        }
        if pairs == before || sum.failure.is_some() {
            break;
        }
    }
    sum.verdict(name, pairs, begun, effort)
}

/// Whether all `victims` came to their points in some execution.
fn frozen_at<const W: usize>(victims: &[(usize, usize)], make: fn() -> [Worker; W], effort: Effort, sum: &mut Sum) -> bool {
    let seen = Arc::new(Seen::default());
    let world = {
        let (seen, victims) = (seen.clone(), victims.to_vec());
        move || {
            let is_victim = |i| victims.iter().any(|v| v.0 == i);
            let threads = make().into_iter().enumerate();
            let threads = threads.map(|(i, work)| begin(&seen, i, work, (!is_victim(i)).then_some(Counts::Finished)));
            threads.collect::<Vec<_>>().into_iter().for_each(end);
        }
    };
    seen.must.store(W - victims.len(), Ordering::Relaxed);
    let watched = victims.iter().map(|&(worker, point)| Watched::new(worker, point)).collect();
    run_both(watched, effort, sum, &seen, world) > 0
}

/// Runs a world in which a callback calls [`stand_still`]. Prints what was covered.
///
/// # Panics
/// As [`freeze`], and when no callback stood still in any execution.
pub fn stuck(name: &str, make: fn() -> World) -> Verdict {
    let (begun, effort) = (Instant::now(), WORLD.asked());
    let mut sum = Sum::default();
    let seen = Arc::new(Seen::default());
    let world = {
        let seen = seen.clone();
        move || run_world(make(), &seen)
    };
    let reached = run_both(Vec::new(), effort, &mut sum, &seen, world);
    assert!(reached > 0 || sum.failure.is_some(), "{name}: no callback stood still in {} executions", sum.executions);
    sum.verdict(name, reached, begun, effort)
}

fn run_world(world: World, seen: &Arc<Seen>) {
    let World { must, stays, after } = world;
    seen.must.store(must.len(), Ordering::Relaxed);
    seen.stays.store(stays.len(), Ordering::Relaxed);
    let must = must.into_iter().map(|w| (w, Counts::Finished));
    let all = must.chain(stays.into_iter().map(|w| (w, Counts::Returned)));
    let threads: Vec<_> = all.enumerate().map(|(i, (work, counts))| begin(seen, i, work, Some(counts))).collect();
    threads.into_iter().for_each(end);
    if let Some(look) = after {
        look();
    }
}

/// Lets worker 0 arrive at each step of worker `watched` in turn, for every `stride`-th step. Everybody must finish.
/// Prints what was covered.
///
/// # Panics
/// As [`freeze`]; a deadlock after the arrival is one without a frozen thread.
pub fn arrives<const W: usize>(name: &str, watched: usize, stride: usize, make: fn() -> [Worker; W]) {
    let (begun, effort) = (Instant::now(), STEP.asked());
    let mut sum = Sum::default();
    let (mut point, mut steps) = (0, 0);
    loop {
        let seen = Arc::new(Seen::default());
        let world = {
            let seen = seen.clone();
            move || {
                let threads = make().into_iter().enumerate();
                let threads = threads.map(|(i, work)| begin(&seen, i, work, Some(Counts::Finished)));
                threads.collect::<Vec<_>>().into_iter().for_each(end);
            }
        };
        let bring =
            |inner| Bringer { inner, bringer: 0, watched: Watched::new(watched, point), arrived: false, seen: seen.clone() };
        let random = RandomScheduler::new_from_seed(point as u64, effort.random);
        execute(bring(Box::new(random) as Box<dyn Scheduler + Send>), &seen, world.clone());
        let exhaustive = Exhaustive::new(effort.exhaustive, &sum.cut);
        execute(bring(Box::new(exhaustive)), &seen, world);
        if sum.add(&seen) == 0 {
            break;
        }
        steps += 1;
        point += stride;
    }
    sum.verdict(name, steps, begun, effort);
}

/// What the end of a worker counts as.
#[derive(Clone, Copy)]
enum Counts {
    Finished,
    Returned,
}

fn begin(seen: &Arc<Seen>, i: usize, work: Worker, counts: Option<Counts>) -> shuttle::thread::JoinHandle<()> {
    let seen = seen.clone();
    {
        let mut tasks = seen.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let room = tasks.len().max(i + 1);
        tasks.resize(room, None);
        // What stands there is of the execution before.
        tasks[i] = None;
    }
    shuttle::thread::spawn(move || {
        seen.tasks.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(shuttle::current::me());
        work();
        match counts {
            Some(Counts::Finished) => _ = seen.finished.fetch_add(1, Ordering::Relaxed),
            Some(Counts::Returned) => _ = seen.returned.fetch_add(1, Ordering::Relaxed),
            None => {}
        }
    })
}

fn end(thread: shuttle::thread::JoinHandle<()>) {
    thread.join().expect("a worker that panics ends the execution");
}

/// Runs the world under random schedules and under those with few preemptions; in how many executions all victims were
/// frozen.
fn run_both(
    victims: Vec<Watched>,
    effort: Effort,
    sum: &mut Sum,
    seen: &Arc<Seen>,
    world: impl Fn() + Send + Sync + Clone + 'static,
) -> usize {
    let freezer = |inner| Freezer {
        inner,
        victims: victims.clone(),
        frozen: Vec::new(),
        stands: false,
        enough: effort.enough,
        steps: 0,
        thawed: false,
        seen: seen.clone(),
    };
    let seed = victims.iter().map(|v| v.point as u64).sum();
    let random = RandomScheduler::new_from_seed(seed, effort.random);
    execute(freezer(Box::new(random) as Box<dyn Scheduler + Send>), seen, world.clone());
    if !seen.failed() {
        execute(freezer(Box::new(Exhaustive::new(effort.exhaustive, &sum.cut))), seen, world);
    }
    sum.add(seen)
}

fn execute<S: Scheduler + 'static>(scheduler: S, seen: &Arc<Seen>, world: impl Fn() + Send + Sync + 'static) {
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        shuttle::Runner::new(scheduler, super::quiet()).run(move || {
            super::begin();
            world();
        })
    }));
    match outcome {
        Err(panic) if !seen.failed() => resume_unwind(panic),
        _ => {}
    }
}
