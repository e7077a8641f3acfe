//! The delta queue against a plain list: order, whole batches, one taker at a time, synced after the commit and not
//! before, what a drop without commit and a close leave behind.
//!
//! With `INFORMER_PLANTED` in the environment the target has a defect, which it must then find: in a batch, whole states
//! overtake what came before them.
#![no_main]

use arbitrary::Arbitrary;
use informer::{
    flow::{Deleted, Delta, DeltaSink, Object, ObjectKey, SinkError},
    queue::{Closed, RealFifo},
    sync::{Clock, Synced},
};
use libfuzzer_sys::fuzz_target;
use std::{
    collections::VecDeque,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

static PLANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("INFORMER_PLANTED").is_some());

#[derive(Arbitrary, Debug)]
enum Op {
    /// A batch of deltas of these sorts.
    Put(Vec<Sort>),
    /// Takes, uses up the first few, and commits or not. While it is out, more may come, or the end.
    Take {
        max: u8,
        drain: u8,
        commit: bool,
        meanwhile: Meanwhile,
    },
    Close,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Sort {
    Added,
    Updated,
    Deleted,
    Missed,
    Bookmark,
    Whole,
    WholeButIncomplete,
}

#[derive(Arbitrary, Debug)]
enum Meanwhile {
    Nothing,
    Put(Vec<Sort>),
    Close,
}

/// What the model keeps of a delta.
type Item = (u64, Sort);

fn delta((n, sort): Item) -> Delta<u64> {
    let key = || ObjectKey::new("ns", &n.to_string()).unwrap();
    let object = || Object::with_key(key(), &n.to_string(), "", n);
    match sort {
        Sort::Added => Delta::Added(object()),
        Sort::Updated => Delta::Updated(object()),
        Sort::Deleted => Delta::Deleted(Deleted::Observed(object())),
        Sort::Missed => Delta::Deleted(Deleted::Missed { key: key(), last_known: None }),
        Sort::Bookmark => Delta::Bookmark { version: n.to_string() },
        Sort::Whole | Sort::WholeButIncomplete => Delta::ReplacedAll {
            version: n.to_string(),
            objects: vec![object()],
            kept: vec![],
            complete: sort == Sort::Whole,
            new_era: false,
        },
    }
}

fn item(delta: &Delta<u64>) -> Item {
    let number = |text: &str| text.parse().unwrap();
    match delta {
        Delta::Added(o) => (**o, Sort::Added),
        Delta::Updated(o) => (**o, Sort::Updated),
        Delta::Deleted(Deleted::Observed(o)) => (**o, Sort::Deleted),
        Delta::Deleted(Deleted::Missed { key, .. }) => (number(key.name()), Sort::Missed),
        Delta::Bookmark { version } => (number(version), Sort::Bookmark),
        Delta::ReplacedAll { version, complete, .. } => {
            (number(version), if *complete { Sort::Whole } else { Sort::WholeButIncomplete })
        }
    }
}

struct World {
    queue: RealFifo<u64>,
    model: VecDeque<Item>,
    next: u64,
    closed: bool,
    synced: bool,
}

impl World {
    fn put(&mut self, sorts: Vec<Sort>) {
        let items: Vec<Item> = sorts.into_iter().map(|sort| (self.numbered(), sort)).collect();
        let mut batch: Vec<_> = items.iter().copied().map(delta).collect();
        if *PLANTED {
            batch.sort_by_key(|delta| !matches!(delta, Delta::ReplacedAll { .. }));
        }
        let answer = self.queue.apply(&mut batch);
        if self.closed && !items.is_empty() {
            assert!(matches!(answer, Err(SinkError::Closed)));
            assert_eq!(batch.iter().map(item).collect::<Vec<_>>(), items, "a refused batch is left whole");
        } else {
            assert!(answer.is_ok() && batch.is_empty());
            self.model.extend(items);
        }
    }

    fn numbered(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn close(&mut self) {
        assert_eq!(self.queue.close(), self.model.len());
        self.model.clear();
        self.closed = true;
    }

    fn agrees(&self, uncommitted: u64, reported: &AtomicU64) {
        assert_eq!((self.queue.len(), self.queue.is_empty()), (self.model.len(), self.model.is_empty()));
        assert_eq!((self.queue.is_closed(), self.queue.has_synced()), (self.closed, self.synced));
        assert_eq!((self.queue.uncommitted(), reported.load(Relaxed)), (uncommitted, uncommitted));
    }
}

fuzz_target!(|ops: Vec<Op>| {
    let reported = Arc::new(AtomicU64::new(0));
    let reports = reported.clone();
    let queue = RealFifo::new("fuzz", &Clock::real()).on_uncommitted(move |_| {
        reports.fetch_add(1, Relaxed);
    });
    let mut w = World { queue, model: VecDeque::new(), next: 0, closed: false, synced: false };
    let mut uncommitted = 0;
    for op in ops {
        match op {
            Op::Put(sorts) => w.put(sorts),
            Op::Close => w.close(),
            Op::Take { max, drain, commit, meanwhile } => {
                // Out of the world while a `Taken` borrows it.
                let World { queue, model, next, closed, synced } = w;
                let mut rest = VecDeque::new();
                let mut after = (next, closed, synced);
                match queue.try_take(max.into()) {
                    Err(Closed) => assert!(closed),
                    Ok(None) => assert!(!closed && model.is_empty()),
                    Ok(Some(mut taken)) => {
                        assert!(!closed, "a closed queue hands out nothing");
                        rest = model.clone();
                        let expected: Vec<Item> = rest.drain(..model.len().min(usize::from(max).max(1))).collect();
                        assert_eq!(taken.deltas().map(item).collect::<Vec<_>>(), expected);
                        assert_eq!(taken.is_initial(), !synced);
                        match meanwhile {
                            Meanwhile::Nothing => assert!(matches!(queue.try_take(1), Ok(None)), "one at a time"),
                            Meanwhile::Put(sorts) => {
                                for sort in sorts {
                                    after.0 += 1;
                                    queue.apply(&mut vec![delta((after.0, sort))]).unwrap();
                                    rest.push_back((after.0, sort));
                                }
                            }
                            Meanwhile::Close => {
                                assert_eq!(queue.close(), rest.len());
                                rest.clear();
                                after.1 = true;
                                assert!(matches!(queue.try_take(1), Err(Closed)));
                            }
                        }
                        let first: Vec<Item> = taken.drain().take(drain.into()).map(|d| item(&d)).collect();
                        assert_eq!(first, expected[..first.len()]);
                        assert_eq!(queue.has_synced(), synced, "not before the commit");
                        if commit {
                            taken.commit();
                            after.2 |= expected.iter().any(|(_, s)| matches!(s, Sort::Whole | Sort::WholeButIncomplete));
                        } else {
                            drop(taken);
                            uncommitted += 1;
                        }
                    }
                }
                w = World { queue, model: rest, next: after.0, closed: after.1, synced: after.2 };
            }
        }
        w.agrees(uncommitted, &reported);
    }
});
