//! How a queue is made.

use super::{Limiter, WorkQueue, default_controller};
use crate::sync::Clock;
use std::{fmt, hash::Hash};

/// Makes a [`WorkQueue`]; see [`WorkQueue::builder`].
pub struct WorkQueueBuilder<K> {
    name: String,
    clock: Clock,
    limiter: Option<Box<dyn Limiter<K>>>,
}

impl<K: Hash + Eq + Clone + Send + 'static> WorkQueue<K> {
    /// Begins a queue. Without further words it is called "workqueue", lives by the machine's clock and is limited by
    /// [`default_controller`].
    pub fn builder() -> WorkQueueBuilder<K> {
        WorkQueueBuilder { name: "workqueue".to_owned(), clock: Clock::real(), limiter: None }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> WorkQueueBuilder<K> {
    /// What reports call the queue.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The clock of delays, deadlines and the default limiter.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Who decides how long failed keys wait.
    pub fn limiter(mut self, limiter: impl Limiter<K> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// The queue, open.
    pub fn build(self) -> WorkQueue<K> {
        let limiter = self.limiter.unwrap_or_else(|| Box::new(default_controller(&self.clock)));
        WorkQueue::with_parts(self.name, self.clock, limiter)
    }
}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
