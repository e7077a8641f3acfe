//! Writers that do not stop: objects come, change and go, under few names, so that each name does so often.
//!
//! What a write came to does not matter here, since the truth is read from etcd; a server that is away is asked again.

use crate::{
    api::{Api, Refused},
    watcher::{CONFIG_MAPS, Collection, change, object, path},
};
use fastrand::Rng;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub struct Churn {
    end: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Churn {
    /// Two writers. `pause` is what they rest between writes.
    pub fn start(api: &Api, collections: &[Collection], seed: u64, pause: Duration) -> Self {
        let (end, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..2u64).map(|writer| {
            let (api, collections) = (api.clone(), collections.to_vec());
            let (end, written) = (end.clone(), written.clone());
            let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(writer));
            let write = move || {
                while !end.load(Ordering::Relaxed) {
                    let collection = collections[rng.usize(..collections.len())];
                    let name = format!("churn-{writer}-{}", rng.u8(..40));
                    match step(&api, collection, &name, &mut rng) {
                        Ok(()) => drop(written.fetch_add(1, Ordering::Relaxed)),
                        // Nobody there, or there and not ready.
                        Err(Refused(0 | 429 | 500.., _)) => thread::sleep(Duration::from_millis(50)),
                        // It exists already, or does not.
                        Err(_) => {}
                    }
                    thread::sleep(pause);
                }
            };
            thread::Builder::new().name("churn".into()).spawn(write).expect("a thread can be started")
        });
        let threads = threads.collect();
        Self { end, written, threads }
    }

    /// Four writers that only change objects which [`fill`] made with the prefix `many`, as fast as they can, for a while.
    pub fn changes(api: &Api, seed: u64) -> Self {
        let (end, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..4u64).map(|writer| {
            let (api, end, written) = (api.clone(), end.clone(), written.clone());
            let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(writer));
            let write = move || {
                while !end.load(Ordering::Relaxed) {
                    let to = path(CONFIG_MAPS, &format!("many-{:05}", rng.u64(..500)));
                    if api.patch(&to, &change(CONFIG_MAPS, rng.u64(..))).is_ok() {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            thread::Builder::new().name("churn".into()).spawn(write).expect("a thread can be started")
        });
        let threads = threads.collect();
        Self { end, written, threads }
    }

    /// Ends, and tells how much was written.
    pub fn end(mut self) -> u64 {
        self.join();
        self.written.load(Ordering::Relaxed)
    }

    fn join(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a writer does not panic");
        }
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.join();
    }
}

fn step(api: &Api, collection: Collection, name: &str, rng: &mut Rng) -> Result<(), Refused> {
    let n = rng.u64(..);
    match rng.u8(..10) {
        0..3 => api.create(collection.ours, &object(collection, name, n)).map(drop),
        3..8 => api.patch(&path(collection, name), &change(collection, n)).map(drop),
        _ => api.delete(&path(collection, name)),
    }
}

/// Makes many objects, from four threads.
pub fn fill(api: &Api, collection: Collection, prefix: &str, count: usize) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count as u64 {
                        return;
                    }
                    let made = api.create(collection.ours, &object(collection, &format!("{prefix}-{n:05}"), n));
                    assert!(made.is_ok() || matches!(made, Err(Refused(409, _))), "an object could not be made: {made:?}");
                }
            });
        }
    });
}
