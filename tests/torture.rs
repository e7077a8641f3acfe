//! Torture: real threads on the real clock, many rounds, every door at once. No assertion is about time; a guard of a
//! minute turns a deadlock into a failure. `TORTURE=n` multiplies the rounds.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

use informer::{
    informer::SharedInformer,
    memory::{Pod, Server},
    sync::{Clock, Deadline, Stop, Synced, WaitError},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const DEADLOCK: Duration = Duration::from_secs(60);

fn rounds(n: usize) -> usize {
    n * std::env::var("TORTURE").map_or(1, |f| f.parse().expect("TORTURE is a number"))
}

/// Counts what a body got done, so that a slow machine is told from a deadlock.
#[derive(Clone, Default)]
struct Pulse(Arc<AtomicUsize>);

impl Pulse {
    fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` on a thread of its own; fails when it neither comes back nor gets anything done for a while.
#[track_caller]
fn guarded(body: impl FnOnce(&Pulse) + Send + 'static) {
    let pulse = Pulse::default();
    let (send, receive) = mpsc::channel::<()>();
    let beats = pulse.clone();
    let thread = thread::spawn(move || {
        let _send = send;
        body(&beats);
    });
    let mut seen = 0;
    while let Err(mpsc::RecvTimeoutError::Timeout) = receive.recv_timeout(DEADLOCK) {
        let now = pulse.0.load(Ordering::Relaxed);
        assert_ne!(now, seen, "deadlock: nothing was done after step {seen}");
        seen = now;
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Threads that begin each round together.
#[derive(Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn meet(&self, round: usize, of: usize) {
        self.0.fetch_add(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) < (round + 1) * of {
            thread::yield_now();
        }
    }
}

fn spin(n: usize) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}

#[test]
fn p7_a_wait_for_the_first_state_hears_of_every_end() {
    guarded(|pulse| {
        let clock = Clock::real();
        let server = Server::new(&clock);
        let rounds = rounds(30_000);
        let meeting = Arc::new(Meeting::default());
        let (send, receive) = mpsc::channel::<SharedInformer<Pod>>();
        let m = meeting.clone();
        let waiter = thread::spawn(move || {
            for (round, informer) in receive.into_iter().enumerate() {
                m.meet(round, 2);
                spin(round * 7 % 64);
                assert_eq!(informer.wait_synced(Deadline::never()), Err(WaitError::Stopped));
            }
        });
        let stop = Stop::new();
        stop.stop();
        for round in 0..rounds {
            let informer = SharedInformer::builder(server.source::<Pod>()).clock(&clock).build().unwrap();
            send.send(informer.clone()).unwrap();
            meeting.meet(round, 2);
            informer.run(&stop).unwrap();
            pulse.beat();
        }
        drop(send);
        waiter.join().unwrap();
    });
}
