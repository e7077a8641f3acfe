//! Who is parked in the queue, and whom to wake.
//!
//! Everything here is read and written under the queue's lock; [`Waiters::balance`] is the last thing each critical
//! section does, and the threads it chose are unparked after the lock. Two rules hold whenever the lock is free:
//!
//! 1. *A key is ready and a worker is parked ⇒ as many workers are on their way as keys are ready.* On their way means
//!    taken off the lists by `balance` and not yet back at the lock, where they look before they do anything else. No
//!    user code runs on that way.
//! 2. *A timer is armed and a worker is parked ⇒ one of them is the leader*, parked until that timer's deadline at the
//!    latest or told to look again. So timers need no thread of their own, and one worker wakes for one deadline.
//!
//! The leader is woken for a ready key only when nobody else is parked. Whoever leaves while a timer is armed makes
//! somebody else the leader, by rule 2.

use crate::sync::{Instant, Unparker, keep, unparker};
use std::collections::VecDeque;

/// Where a thread is parked; it brings this back when it returns.
#[derive(Debug)]
pub(super) struct Ticket(u64);

struct Parked {
    ticket: u64,
    who: Unparker,
}

struct Leader {
    parked: Parked,
    /// When it will look by itself, or has been told to: `None` for never.
    until: Option<Instant>,
}

pub(super) struct Waiters {
    tickets: u64,
    idle: VecDeque<Parked>,
    leader: Option<Leader>,
    /// Workers taken off the lists that have not come back to the lock yet.
    coming: usize,
    drainers: Vec<Parked>,
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Self { tickets: 0, idle: VecDeque::new(), leader: None, coming: 0, drainers: Vec::new() }
    }

    fn parked(&mut self) -> Parked {
        self.tickets += 1;
        Parked { ticket: self.tickets, who: unparker() }
    }

    /// Puts the calling worker on the lists, which found nothing ready; returns until when it parks. `own` is its own
    /// deadline, `next` that of the first timer.
    pub(super) fn enlist(&mut self, own: Option<Instant>, next: Option<Instant>) -> (Ticket, Option<Instant>) {
        let parked = self.parked();
        let ticket = Ticket(parked.ticket);
        if self.leader.is_some() {
            self.idle.push_back(parked);
            return (ticket, own);
        }
        let until = own.into_iter().chain(next).min();
        self.leader = Some(Leader { parked, until });
        (ticket, until)
    }

    /// The calling worker is back at the lock.
    pub(super) fn back(&mut self, Ticket(ticket): Ticket) {
        if self.leader.as_ref().is_some_and(|l| l.parked.ticket == ticket) {
            self.leader = None;
        } else if let Some(i) = self.idle.iter().position(|p| p.ticket == ticket) {
            self.idle.remove(i);
        } else if keep("workqueue: who is back is on the way no more") {
            self.coming -= 1;
        }
    }

    /// Restores both rules. `ready` is the number of keys ready, `next` the deadline of the first timer.
    pub(super) fn balance(&mut self, ready: usize, next: Option<Instant>, wake: &mut Vec<Unparker>) {
        while self.coming < ready && keep("workqueue: a key that is ready wakes a worker") {
            let Some(parked) = self.idle.pop_front().or_else(|| self.leader.take().map(|l| l.parked)) else { break };
            self.coming += 1;
            wake.push(parked.who);
        }
        let Some(next) = next else { return };
        match &mut self.leader {
            Some(leader)
                if leader.until.is_none_or(|until| until > next) && keep("workqueue: an earlier timer wakes the leader") =>
            {
                leader.until = Some(next);
                wake.push(leader.parked.who.clone());
            }
            Some(_) => {}
            None => {
                if let Some(parked) = self.idle.pop_front() {
                    wake.push(parked.who.clone());
                    self.leader = Some(Leader { parked, until: Some(next) });
                }
            }
        }
    }

    /// Makes every parked worker look again.
    pub(super) fn release(&mut self, wake: &mut Vec<Unparker>) {
        let all = self.idle.drain(..).chain(self.leader.take().map(|l| l.parked));
        for parked in all {
            self.coming += 1;
            wake.push(parked.who);
        }
    }

    /// Puts the calling thread, which waits for the end of a drain, on its list.
    pub(super) fn enlist_drainer(&mut self) -> Ticket {
        let parked = self.parked();
        let ticket = Ticket(parked.ticket);
        self.drainers.push(parked);
        ticket
    }

    /// The calling drainer is back at the lock.
    pub(super) fn drainer_back(&mut self, Ticket(ticket): Ticket) {
        self.drainers.retain(|p| p.ticket != ticket);
    }

    /// Makes every drainer look again.
    pub(super) fn release_drainers(&mut self, wake: &mut Vec<Unparker>) {
        wake.extend(self.drainers.drain(..).map(|p| p.who));
    }
}
