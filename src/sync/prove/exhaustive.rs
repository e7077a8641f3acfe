//! Every schedule with few preemptions, one after another, for worlds on shuttle.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Preemptions of a schedule.
const PREEMPTIONS: usize = 2;

/// Every schedule with at most [`PREEMPTIONS`] preemptions, depth first. A choice is free where the current task ends,
/// blocks or is frozen; a task that yields hands over to the next in turn, which is no choice at all.
pub(super) struct Exhaustive {
    /// The choice taken at each step of the execution, and how many there were.
    path: Vec<(usize, usize)>,
    depth: usize,
    preemptions: usize,
    executions: usize,
    most: usize,
    /// Searches that ended here although there was more.
    cut: Arc<AtomicUsize>,
}

impl Exhaustive {
    /// The search, ended after `most` executions; `cut` counts when that happens.
    pub(super) fn new(most: usize, cut: &Arc<AtomicUsize>) -> Self {
        Self { path: Vec::new(), depth: 0, preemptions: 0, executions: 0, most, cut: cut.clone() }
    }
}

impl Scheduler for Exhaustive {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.executions > 0 {
            // To the last step that has a choice left.
            while self.path.pop_if(|(taken, of)| *taken + 1 == *of).is_some() {}
            self.path.last_mut()?.0 += 1;
        }
        if self.executions == self.most {
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
