//! The freeze checker: does anybody wait for a thread that has stopped for ever?
//!
//! One worker, the victim, is taken off the schedule at its `k`-th shared operation and never runs again. The others must
//! finish without it. That is tried for every `k`, under random schedules and under all schedules with few preemptions.
//!
//! # What an answer is worth
//! [`Verdict::Blocked`] and [`Verdict::Spins`] are counterexamples. [`Verdict::Passes`] is evidence for the small world
//! that was run: every operation that goes through the facade is a point, std's `Arc` and the allocator are not, and
//! orderings play no part. The subjects with known answers in `sync/freeze.rs` keep the checker honest.
//!
//! # Fairness
//! A spinning worker must hand over ([`pause`]) and is then not asked again before the others had their turn; without
//! that the search would blame the frozen thread for a live one that was never scheduled.

use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

/// Steps that the others may take after the freeze; far more than any of them needs alone.
const ENOUGH: usize = 2_000;
/// Random schedules for each point.
const RANDOM: usize = 200;
/// Preemptions of the exhaustive search.
const PREEMPTIONS: usize = 2;
/// Executions of the exhaustive search for each point; a search that is cut there is said to be.
const MOST: usize = 5_000;

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

/// What came of it.
#[derive(Debug)]
pub enum Verdict {
    /// The others finished, wherever the victim stood.
    Passes {
        /// Points at which the victim was frozen.
        points: usize,
        /// Most steps that all others together needed after that.
        most_steps: usize,
    },
    /// With the victim frozen after this many operations nobody could go on.
    Blocked(usize),
    /// With the victim frozen after this many operations the others went in circles.
    Spins(usize),
}

#[derive(Default)]
struct Seen {
    finished: AtomicUsize,
    executions: AtomicUsize,
    frozen: AtomicUsize,
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
}

struct Freezer<S> {
    inner: S,
    victim: TaskId,
    point: usize,
    others: usize,
    operations: usize,
    steps: usize,
    frozen: bool,
    thawed: bool,
    seen: Arc<Seen>,
}

impl<S: Scheduler> Scheduler for Freezer<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.seen.failed() {
            return None;
        }
        let schedule = self.inner.new_execution()?;
        (self.operations, self.steps, self.frozen, self.thawed) = (0, 0, false, false);
        self.seen.finished.store(0, Ordering::Relaxed);
        self.seen.executions.fetch_add(1, Ordering::Relaxed);
        Some(schedule)
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        if self.thawed {
            // In turn, so that the rest ends.
            self.steps += 1;
            return Some(runnable[self.steps % runnable.len()].id());
        }
        if !self.frozen {
            if current == Some(self.victim) {
                self.operations += 1;
                self.frozen = self.operations > self.point;
            }
            if !self.frozen {
                return self.inner.next_task(runnable, current, yields);
            }
            self.seen.frozen.fetch_add(1, Ordering::Relaxed);
        }
        if self.seen.finished.load(Ordering::Relaxed) == self.others {
            self.seen.most_steps.fetch_max(self.steps, Ordering::Relaxed);
            (self.thawed, self.steps) = (true, 0);
            return Some(runnable[0].id());
        }
        let live: Vec<&Task> = runnable.iter().copied().filter(|t| t.id() != self.victim).collect();
        if live.is_empty() {
            return self.seen.fail(Verdict::Blocked(self.point));
        }
        self.steps += 1;
        if self.steps > ENOUGH {
            return self.seen.fail(Verdict::Spins(self.point));
        }
        self.inner.next_task(&live, current, yields)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

/// Every schedule with at most [`PREEMPTIONS`] preemptions, depth first. A choice is free where the current task ends,
/// blocks or is frozen; a task that yields hands over to the next in turn, which is no choice at all.
#[derive(Default)]
struct Exhaustive {
    /// The choice taken at each step of the execution, and how many there were.
    path: Vec<(usize, usize)>,
    depth: usize,
    preemptions: usize,
    executions: usize,
    cut: Arc<AtomicUsize>,
}

impl Scheduler for Exhaustive {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.executions > 0 {
            // To the last step that has a choice left.
            while self.path.pop_if(|(taken, of)| *taken + 1 == *of).is_some() {}
            self.path.last_mut()?.0 += 1;
        }
        if self.executions == MOST {
            self.cut.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.executions += 1;
        (self.depth, self.preemptions) = (0, 0);
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let here = current.and_then(|c| runnable.iter().position(|t| t.id() == c));
        // The order in which tasks are tried begins with the current one.
        let first = here.map_or(0, |i| if yields { i + 1 } else { i });
        let choices = match here {
            Some(_) if yields => 1,
            Some(_) if self.preemptions == PREEMPTIONS => 1,
            _ => runnable.len(),
        };
        if self.depth == self.path.len() {
            self.path.push((0, choices));
        }
        let (taken, _) = self.path[self.depth];
        self.depth += 1;
        if here.is_some() && !yields && taken > 0 {
            self.preemptions += 1;
        }
        Some(runnable[(first + taken) % runnable.len()].id())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Freezes worker `victim` of the world that `make` builds at each of its points in turn. Prints what was covered.
///
/// # Panics
/// When an execution fails otherwise: a worker's assertion, a deadlock without a frozen thread.
pub fn freeze<const W: usize>(name: &str, victim: usize, make: fn() -> [Worker; W]) -> Verdict {
    let begun = Instant::now();
    let cut = Arc::new(AtomicUsize::new(0));
    let (mut executions, mut most_steps) = (0, 0);
    let mut verdict = None;
    let mut point = 0;
    while verdict.is_none() {
        let random = RandomScheduler::new_from_seed(point as u64, RANDOM);
        let exhaustive = Exhaustive { cut: cut.clone(), ..Exhaustive::default() };
        let seen = [run(random, victim, point, make), run(exhaustive, victim, point, make)];
        let mut reached = false;
        for seen in seen {
            executions += seen.executions.load(Ordering::Relaxed);
            most_steps = most_steps.max(seen.most_steps.load(Ordering::Relaxed));
            reached |= seen.frozen.load(Ordering::Relaxed) > 0;
            verdict = verdict.or(seen.failure.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        if !reached {
            // The victim ends before it has done this many operations: all points are covered.
            verdict = verdict.or(Some(Verdict::Passes { points: point, most_steps }));
        }
        point += 1;
    }
    let verdict = verdict.expect("the loop ends with one");
    let cut = match cut.load(Ordering::Relaxed) {
        0 => String::new(),
        n => format!(", the search of {n} points cut after {MOST}"),
    };
    println!("freeze {name}: {verdict:?}, {executions} executions{cut}, {:.2} s", begun.elapsed().as_secs_f64());
    verdict
}

fn run<S: Scheduler + 'static, const W: usize>(inner: S, victim: usize, point: usize, make: fn() -> [Worker; W]) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    // Task 0 is the one that starts the workers.
    let freezer = Freezer {
        inner,
        victim: TaskId::from(victim + 1),
        point,
        others: W - 1,
        operations: 0,
        steps: 0,
        frozen: false,
        thawed: false,
        seen: seen.clone(),
    };
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(20 * ENOUGH);
    let inner = seen.clone();
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        shuttle::Runner::new(freezer, config).run(move || {
            super::begin();
            let threads: Vec<_> = make()
                .into_iter()
                .enumerate()
                .map(|(i, work)| {
                    let seen = inner.clone();
                    shuttle::thread::spawn(move || {
                        work();
                        if i != victim {
                            seen.finished.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("a worker that panics ends the execution");
            }
        })
    }));
    match outcome {
        Err(panic) if !seen.failed() => resume_unwind(panic),
        _ => seen,
    }
}
