//! The queue against a plain model, and its promises one by one.

use super::{
    RealFifo, Taken, Uncommitted,
    ops::{Model, Op, Real, program},
};
use crate::{
    flow::{Change, Deleted, Delta, DeltaSink, Object, ObjectKey, Opaque, SinkError},
    store::{Changes, Writer},
    sync::{
        Arc, Clock, Deadline, Gate, ManualClock, Mutex, Once, Synced, WaitError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        call_out::{self, Site, assert_contained},
        spawn,
    },
};
use proptest::{collection::vec, prelude::*};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

fn object(name: &str, version: &str) -> Object<u32> {
    Object::with_key(ObjectKey::new("", name).unwrap(), version, "", 0)
}

fn add(name: &str) -> Delta<u32> {
    Delta::Added(object(name, "1"))
}

fn whole(objects: Vec<Object<u32>>) -> Delta<u32> {
    Delta::ReplacedAll { version: "5".into(), objects, kept: vec![], complete: true, new_era: false }
}

fn bookmark(n: usize) -> Delta<u32> {
    Delta::Bookmark { version: n.to_string() }
}

fn show(delta: &Delta<u32>) -> String {
    match delta {
        Delta::Added(o) => format!("A {o:?}"),
        Delta::Updated(o) => format!("U {o:?}"),
        Delta::Deleted(d) => format!("D {}", d.key()),
        Delta::ReplacedAll { objects, .. } => format!("RA {objects:?}"),
        Delta::Bookmark { version } => format!("B {version}"),
    }
}

fn shown(taken: &Taken<'_, u32>) -> Vec<String> {
    taken.deltas().map(show).collect()
}

fn put(queue: &RealFifo<u32>, deltas: impl IntoIterator<Item = Delta<u32>>) {
    let mut batch: Vec<_> = deltas.into_iter().collect();
    queue.apply(&mut batch).unwrap();
    assert!(batch.is_empty());
}

fn queue(clock: &Clock) -> Arc<RealFifo<u32>> {
    Arc::new(RealFifo::new("the queue", clock))
}

proptest! {
    #[test]
    fn the_queue_behaves_as_its_plain_model(bytes in vec(any::<u8>(), 0..200)) {
        let ops = program(&bytes);
        let queue = RealFifo::new("the queue", &Clock::real());
        let (mut model, mut real) = (Model::default(), Real::new(&queue));
        for op in &ops {
            let want = model.step(0, op).expect("what is drawn does not wait");
            prop_assert_eq!(real.apply(op), want, "{:?} of {:?}", op, ops);
            for look in [Op::Len, Op::IsClosed, Op::HasSynced, Op::AskSynced, Op::Uncommitted] {
                prop_assert_eq!(Some(real.apply(&look)), model.step(0, &look), "{:?} after {:?} of {:?}", look, op, ops);
            }
        }
    }
}

#[test]
fn b_01_a_relist_does_not_lose_an_object_that_exists_only_in_the_queue() {
    let queue = RealFifo::<Opaque>::new("q", &Clock::real());
    queue.apply(&mut vec![Delta::Added(object("a", "1").erase())]).unwrap();
    let whole = Delta::ReplacedAll { version: "5".into(), objects: vec![], kept: vec![], complete: true, new_era: false };
    queue.apply(&mut vec![whole]).unwrap();

    let mut writer = Writer::new(vec![]).unwrap();
    let mut told = Vec::new();
    for _ in 0..2 {
        let mut taken = queue.take(1).unwrap();
        let publication = writer.apply(taken.queue_mut()).unwrap();
        told.extend(match publication.changes {
            Changes::Each(events) => events.into_iter().map(|e| e.change).collect::<Vec<_>>(),
            Changes::All { old, new } => old.diff(&new).collect(),
        });
        taken.commit();
    }
    assert!(matches!(&told[0], Change::Added(o) if format!("{o:?}") == "a@1"));
    let Change::Deleted(Deleted::Missed { key, last_known: Some(last) }) = &told[1] else { panic!("{told:?}") };
    assert_eq!((key.to_string(), format!("{last:?}")), ("a".into(), "a@1".into()));
    assert_eq!(told.len(), 2);
    assert_eq!((writer.reader().snapshot().len(), writer.reader().snapshot().version()), (0, "5"));
    assert!(queue.has_synced());
}

#[test]
fn everything_is_handed_out_in_the_order_it_came_in() {
    // As recorded of client-go's queue in its atomic form: one item a whole state, nothing merged, nothing dropped.
    let queue = queue(&Clock::real());
    put(&queue, [whole(vec![])]);
    put(&queue, [bookmark(6), add("a"), add("b"), add("a")]);
    put(&queue, [Delta::Deleted(Deleted::Observed(object("x", "8"))), Delta::Updated(object("a", "9"))]);
    put(&queue, [whole(vec![object("a", "9"), object("a", "9")])]);
    assert_eq!(queue.len(), 8);
    let first = queue.take(3).unwrap();
    assert_eq!(shown(&first), ["RA []", "B 6", "A a@1"]);
    first.commit();
    let mut rest = queue.take(100).unwrap();
    assert_eq!(shown(&rest), ["A b@1", "A a@1", "D x", "U a@9", "RA [a@9, a@9]"]);
    assert_eq!(rest.drain().len(), 5);
    rest.commit();
    assert!(queue.is_empty());
}

#[test]
fn a_first_whole_state_that_is_empty_is_synced_when_processed_and_not_before() {
    let queue = queue(&Clock::real());
    put(&queue, [bookmark(1), add("a")]);
    let taken = queue.take(9).unwrap();
    // What comes while something older is out does not profit from its commit.
    put(&queue, [whole(vec![])]);
    taken.commit();
    assert!(!queue.has_synced());
    let taken = queue.take(9).unwrap();
    assert!(taken.is_initial() && !queue.has_synced());
    taken.commit();
    assert!(queue.has_synced());
    put(&queue, [add("a")]);
    assert!(!queue.take(1).unwrap().is_initial());
}

#[test]
fn a_dropped_batch_is_reported_and_the_next_whole_state_heals_it() {
    let reports: Arc<Mutex<Vec<Uncommitted>>> = Arc::default();
    let (seen, clock) = (reports.clone(), Clock::real());
    let queue = RealFifo::new("the queue", &clock).on_uncommitted(move |report| {
        seen.lock().push(report.clone());
        panic!("hook");
    });
    put(&queue, [add("a"), whole(vec![]), add("b")]);
    let processing = catch_unwind(AssertUnwindSafe(|| {
        let mut taken = queue.take(2).unwrap();
        taken.queue_mut().pop_front();
        panic!("processing");
    }));
    assert!(processing.is_err());
    assert_eq!(*reports.lock(), [Uncommitted { queue: "the queue".into(), deltas: 2, left: 1 }]);
    assert_eq!((queue.uncommitted(), queue.has_synced()), (1, false));
    assert_contained(&clock, &["hook"]);

    let taken = queue.take(9).unwrap();
    assert_eq!((shown(&taken), taken.is_initial()), (vec!["A b@1".to_owned()], true));
    taken.commit();
    assert!(!queue.has_synced(), "the whole state was lost");
    put(&queue, [whole(vec![])]);
    queue.take(9).unwrap().commit();
    assert!(queue.has_synced());
}

#[test]
fn a_producer_does_not_wait_for_processing() {
    let clock = ManualClock::new();
    let (queue, gate, processed) = (queue(&clock), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (q, g, p) = (queue.clone(), gate.clone(), processed.clone());
    let consumer = spawn(&clock, "consumer", move || {
        while let Ok(taken) = q.take(100) {
            g.wait();
            p.fetch_add(taken.deltas().len(), Relaxed);
            taken.commit();
        }
    })
    .unwrap();
    clock.settle();
    put(&queue, [add("a")]);
    clock.settle();
    // The consumer has `a` and is stuck with it.
    for _ in 0..10 {
        put(&queue, [add("b"), add("c")]);
    }
    assert_eq!((queue.len(), processed.load(Relaxed)), (20, 0));
    gate.open();
    clock.settle();
    assert_eq!((queue.len(), processed.load(Relaxed)), (0, 21));
    queue.close();
    consumer.join().unwrap();
}

#[test]
fn takers_wait_for_deltas_and_for_each_other() {
    let clock = ManualClock::new();
    let (queue, order) = (queue(&clock), Arc::new(Mutex::new(Vec::new())));
    let takers: Vec<_> = (0..2)
        .map(|_| {
            let (q, order) = (queue.clone(), order.clone());
            let take = move || {
                let taken = q.take(1).unwrap();
                order.lock().append(&mut shown(&taken));
                taken.commit();
            };
            spawn(&clock, "taker", take).unwrap()
        })
        .collect();
    clock.settle();
    put(&queue, [add("a"), add("b"), add("c")]);
    takers.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*order.lock(), ["A a@1", "A b@1"]);

    let held = queue.take(1).unwrap();
    put(&queue, [add("d")]);
    assert!(queue.try_take(1).unwrap().is_none());
    let q = queue.clone();
    let second = spawn(&clock, "second", move || shown(&q.take(1).unwrap())).unwrap();
    clock.settle();
    assert!(!second.is_finished());
    held.commit();
    assert_eq!(second.join().unwrap(), ["A d@1"]);
}

#[test]
fn a_take_with_a_deadline_gives_up_at_it() {
    let clock = ManualClock::new();
    let queue = queue(&clock);
    let q = queue.clone();
    let taker = spawn(&clock, "taker", move || q.take_deadline(1, 5 * SECOND).unwrap().is_some()).unwrap();
    clock.advance(4 * SECOND);
    assert!(!taker.is_finished());
    clock.advance(SECOND);
    assert!(!taker.join().unwrap());
    put(&queue, [add("a")]);
    assert!(queue.take_deadline(1, Duration::ZERO).unwrap().is_some());
}

#[test]
fn close_wakes_everybody_and_drops_what_is_left() {
    let clock = ManualClock::new();
    let queue = queue(&clock);
    let (a, b) = (queue.clone(), queue.clone());
    let taker = spawn(&clock, "taker", move || a.take(1).is_err()).unwrap();
    let waiter = spawn(&clock, "waiter", move || b.wait_synced(Deadline::never())).unwrap();
    clock.settle();
    assert_eq!(queue.close(), 0);
    assert!(taker.join().unwrap());
    assert_eq!(waiter.join().unwrap(), Err(WaitError::Stopped));
    assert!(matches!(queue.apply(&mut vec![add("a")]), Err(SinkError::Closed)));
    assert_eq!(queue.wait_synced(Deadline::never()), Err(WaitError::Stopped));

    let queue = super::tests::queue(&clock);
    put(&queue, [whole(vec![]), add("a"), add("b")]);
    let taken = queue.take(1).unwrap();
    assert_eq!((queue.close(), queue.close()), (2, 0));
    assert!(queue.take(1).is_err() && queue.try_take(1).is_err() && queue.take_deadline(1, SECOND).is_err());
    // What is out may still be committed, and whoever waits for it waits on.
    let q = queue.clone();
    let waiter = spawn(&clock, "waiter", move || q.wait_synced(Deadline::never())).unwrap();
    clock.settle();
    assert!(!waiter.is_finished());
    taken.commit();
    assert_eq!(waiter.join().unwrap(), Ok(()));
}

#[test]
fn a_wait_for_sync_says_what_is_missing_and_refuses_where_it_could_never_end() {
    let clock = ManualClock::new();
    let queue = queue(&clock);
    let q = queue.clone();
    let waiter = spawn(&clock, "waiter", move || q.wait_synced(SECOND.into())).unwrap();
    clock.advance(SECOND);
    let missing = vec!["the queue".to_owned()];
    assert_eq!(waiter.join().unwrap(), Err(WaitError::Timeout { missing, last_error: None }));
    let from_a_hook = call_out::call(Site::Hook, || queue.wait_synced(Deadline::never())).unwrap();
    assert_eq!(from_a_hook, Err(WaitError::WouldDeadlock));

    let q = queue.clone();
    let waiter = spawn(&clock, "waiter", move || q.wait_synced(Deadline::never())).unwrap();
    clock.settle();
    put(&queue, [whole(vec![])]);
    queue.take(1).unwrap().commit();
    assert_eq!(waiter.join().unwrap(), Ok(()));
    assert_eq!(call_out::call(Site::Hook, || queue.wait_synced(Deadline::never())).unwrap(), Ok(()));
}

#[test]
fn the_memory_of_a_burst_goes_when_the_burst_is_taken() {
    let queue = queue(&Clock::real());
    let burst = || (0..100_000).map(bookmark);
    put(&queue, burst());
    queue.take(usize::MAX).unwrap().commit();
    assert!(queue.capacity() <= 2048, "{}", queue.capacity());
    // Piece by piece as well.
    put(&queue, burst());
    while let Some(taken) = queue.try_take(256).unwrap() {
        taken.commit();
    }
    assert!(queue.capacity() <= 2048, "{}", queue.capacity());
    // A usual batch allocates nothing anew.
    for _ in 0..2 {
        put(&queue, (0..100).map(bookmark));
        queue.take(256).unwrap().commit();
    }
    let capacity = queue.capacity();
    for _ in 0..10 {
        put(&queue, (0..100).map(bookmark));
        queue.take(256).unwrap().commit();
    }
    assert_eq!(queue.capacity(), capacity);
}

#[test]
fn a_value_dropped_by_the_queue_may_use_the_queue() {
    type Shared = Arc<Once<Arc<RealFifo<Uses>>>>;
    struct Uses(Shared, Arc<AtomicUsize>);
    impl Drop for Uses {
        fn drop(&mut self) {
            self.0.get().unwrap().len();
            self.1.fetch_add(1, Relaxed);
        }
    }
    let (queue, drops): (Shared, Arc<AtomicUsize>) = Default::default();
    queue.set(Arc::new(RealFifo::new("q", &Clock::real()))).ok().unwrap();
    let q = queue.get().unwrap();
    let delta = || {
        let key = ObjectKey::new("", "a").unwrap();
        Delta::Added(Object::with_key(key, "1", "", Uses(queue.clone(), drops.clone())))
    };
    q.apply(&mut vec![delta(), delta(), delta()]).unwrap();
    q.take(1).unwrap().commit();
    drop(q.take(1).unwrap());
    q.close();
    assert_eq!(drops.load(Relaxed), 3);
    // `Drop` of a value is contained, so a lock held there would be on record.
    assert_contained(&Clock::real(), &[]);
}
