//! The processor alone: a writer by hand, listeners on a manual clock. What the whole pipeline promises is in `tests/`.

use super::{
    AddHandlerError, AnyHandler, Batch, Handler, HandlerOptions, Listener, PanicPolicy, Processor, Removed, Report, erase,
};
use crate::{
    flow::{Cause, Change, Deleted, Delta, Event, Meta, Object, Opaque},
    store::Writer,
    sync::{Arc, Deadline, Gate, ManualClock, Mutex, WaitError, call_out::assert_contained},
};
use std::{collections::VecDeque, time::Duration};

type Told = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Reports(Mutex<Vec<String>>);

impl Report for Reports {
    fn handler_panicked(&self, handler: &str, message: &str) {
        self.0.lock().push(format!("{handler}: {message}"));
    }

    fn abort(&self, handler: &str, message: &str) {
        self.0.lock().push(format!("abort {handler}: {message}"));
    }
}

struct World {
    // Dropped first: its threads end before the clock looks at what they left.
    processor: Processor,
    writer: Writer,
    reports: Arc<Reports>,
    clock: ManualClock,
}

fn object(name: &str, version: u64) -> Object<Opaque> {
    Object::new(Meta { namespace: "", name, version: &version.to_string(), uid: "" }, version).unwrap().erase()
}

fn set(name: &str, version: u64) -> Delta<Opaque> {
    Delta::Updated(object(name, version))
}

fn gone(name: &str, version: u64) -> Delta<Opaque> {
    Delta::Deleted(Deleted::Observed(object(name, version)))
}

fn all(objects: &[(&str, u64)]) -> Delta<Opaque> {
    let objects = objects.iter().map(|(name, version)| object(name, *version)).collect();
    Delta::ReplacedAll { version: "0".into(), objects, kept: vec![], complete: true, new_era: false }
}

fn show(e: &Event<u64>) -> String {
    let cause = match e.cause {
        Cause::Initial => "i",
        Cause::Watch => "w",
        Cause::Relist => "r",
    };
    match &e.change {
        Change::Added(o) => format!("{cause}+{o:?}"),
        Change::Updated { old, new } => format!("{cause}~{old:?}>{}", **new),
        Change::Deleted(Deleted::Observed(o)) => format!("{cause}-{o:?}"),
        Change::Deleted(Deleted::Missed { key, last_known }) => format!("{cause}?{key}<{last_known:?}"),
    }
}

fn tell(told: &Told) -> Box<dyn AnyHandler> {
    let told = told.clone();
    erase(move |e: &Event<u64>| told.lock().push(show(e)))
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let writer = Writer::new(vec![]).unwrap();
        let reports = Arc::new(Reports::default());
        let processor = Processor::new(&clock, writer.reader(), reports.clone());
        Self { processor, writer, reports, clock }
    }

    fn publish(&mut self, deltas: impl Into<VecDeque<Delta<Opaque>>>) {
        let mut deltas = deltas.into();
        while let Some(p) = self.writer.apply(&mut deltas) {
            self.processor.distribute(p);
        }
    }

    fn add(&self, handler: Box<dyn AnyHandler>) -> Arc<Listener> {
        self.processor.add(handler, &HandlerOptions::default()).unwrap()
    }

    fn add_with(&self, handler: Box<dyn AnyHandler>, panic: PanicPolicy) -> Arc<Listener> {
        self.processor.add(handler, &HandlerOptions { name: Some("h".into()), panic }).unwrap()
    }

    /// What a first state or a relist told stands in the order of keys, since the order in which it is told is anybody's.
    fn told(&self, told: &Told) -> Vec<String> {
        self.clock.settle();
        let mut told = std::mem::take(&mut *told.lock());
        let of_one_state = |a: &String, b: &String| !a.starts_with('w') && a[..1] == b[..1];
        told.chunk_by_mut(of_one_state).for_each(|state| state.sort_by(|a, b| a[2..].cmp(&b[2..])));
        told
    }
}

#[test]
fn a_listener_is_told_of_the_first_state_changes_and_relists_in_order() {
    let mut w = World::new();
    let told = Told::default();
    let l = w.add(tell(&told));
    w.publish([all(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)])]);
    assert_eq!(w.told(&told), ["i+a@1", "i+b@2", "i+c@3", "i+d@4"]);
    assert!(l.has_synced() && w.processor.is_idle(&l));
    w.publish([set("a", 5), set("a", 6), gone("b", 7), set("e", 8)]);
    assert_eq!(w.told(&told), ["w~a@1>5", "w~a@5>6", "w-b@7", "w+e@8"]);
    w.publish([all(&[("a", 6), ("c", 9), ("f", 10)])]);
    assert_eq!(w.told(&told), ["r~c@3>9", "r?d<Some(d@4)", "r?e<Some(e@8)", "r+f@10"]);
}

#[test]
fn a_late_listener_gets_each_object_once_as_initial_and_then_what_follows() {
    let mut w = World::new();
    w.publish([all(&[("a", 1)])]);
    w.publish([set("b", 2)]);
    let told = Told::default();
    let l = w.add(tell(&told));
    w.publish([set("a", 3), gone("b", 4)]);
    assert_eq!(w.told(&told), ["i+a@1", "i+b@2", "w~a@1>3", "w-b@4"]);
    assert!(l.has_synced());
}

#[test]
fn a_publication_that_the_first_snapshot_contains_is_not_told_again() {
    // The engine has published but not yet read the list when the newcomer joins: it gets both.
    let mut w = World::new();
    w.publish([all(&[("a", 1)])]);
    let p = w.writer.apply(&mut VecDeque::from([set("a", 2)])).unwrap();
    let told = Told::default();
    w.add(tell(&told));
    w.processor.distribute(p);
    w.publish([set("a", 3)]);
    assert_eq!(w.told(&told), ["i+a@2", "w~a@2>3"]);
}

#[test]
fn a_listener_that_joins_before_the_first_state_is_synced_only_behind_it() {
    let mut w = World::new();
    let gate = Gate::new();
    let told = Told::default();
    let (g, t) = (gate.clone(), told.clone());
    let l = w.add(erase(move |e: &Event<u64>| {
        g.wait();
        t.lock().push(show(e));
    }));
    w.clock.settle();
    assert!(!l.has_synced(), "there is no first state yet");
    w.publish([all(&[("a", 1), ("b", 2)])]);
    w.clock.settle();
    assert!(!l.has_synced(), "the handler has not returned");
    gate.open();
    w.clock.settle();
    assert!(l.has_synced());
    let empty = w.add(tell(&told));
    assert_eq!(empty.wait_synced(Deadline::never()), Ok(()));
}

#[test]
fn an_empty_first_state_syncs() {
    let mut w = World::new();
    let l = w.add(tell(&Told::default()));
    w.publish([all(&[])]);
    w.clock.settle();
    assert!(l.has_synced());
}

#[test]
fn after_a_panic_the_next_event_follows_at_once_and_the_others_are_not_harmed() {
    let mut w = World::new();
    let (bad, good) = (Told::default(), Told::default());
    let t = bad.clone();
    let l = w.add_with(
        erase(move |e: &Event<u64>| {
            assert!(!matches!(e.key().name(), "b" | "d"), "no {}", e.key());
            t.lock().push(show(e));
        }),
        PanicPolicy::Isolate,
    );
    w.add(tell(&good));
    w.publish([all(&[("a", 1), ("b", 2), ("c", 3)])]);
    w.publish([set("d", 4), set("e", 5)]);
    assert_eq!(w.told(&bad), ["i+a@1", "i+c@3", "w+e@5"]);
    assert_eq!(w.told(&good), ["i+a@1", "i+b@2", "i+c@3", "w+d@4", "w+e@5"]);
    assert!(l.has_synced() && l.panics() == 2 && l.delivered() == 5);
    assert_eq!(*w.reports.0.lock(), ["h: no b", "h: no d"]);
    assert_contained(&w.clock, &["no b", "no d"]);
}

#[test]
fn a_handler_that_panics_before_it_takes_an_event_is_not_called_for_ever() {
    struct Stubborn;
    impl Handler<u64> for Stubborn {
        fn on_event(&mut self, _: &Event<u64>) {}
        fn on_batch(&mut self, _: &mut Batch<'_, u64>) {
            panic!("no batch");
        }
    }
    let mut w = World::new();
    let l = w.add_with(erase(Stubborn), PanicPolicy::Isolate);
    w.publish([all(&[])]);
    w.publish([set("a", 1), set("b", 2)]);
    w.clock.settle();
    assert!(w.processor.is_idle(&l) && l.panics() == 2);
    assert_contained(&w.clock, &["no batch", "no batch"]);
}

#[test]
fn what_a_batch_handler_leaves_is_skipped() {
    struct First(Told);
    impl Handler<u64> for First {
        fn on_event(&mut self, _: &Event<u64>) {}
        fn on_batch(&mut self, batch: &mut Batch<'_, u64>) {
            let n = batch.remaining();
            let e = batch.next().unwrap();
            self.0.lock().push(format!("{} of {n}", show(e)));
        }
    }
    let mut w = World::new();
    let told = Told::default();
    w.add(erase(First(told.clone())));
    w.publish([all(&[])]);
    w.publish([set("a", 1), set("b", 2)]);
    w.publish([set("c", 3)]);
    assert_eq!(w.told(&told), ["w+a@1 of 2", "w+c@3 of 1"]);
}

#[test]
fn the_policy_remove_ends_the_registration_and_abort_asks_for_the_end() {
    for (policy, want) in [(PanicPolicy::Remove, "h: no"), (PanicPolicy::Abort, "abort h: no")] {
        let mut w = World::new();
        let l = w.add_with(erase(|_: &Event<u64>| panic!("no")), policy);
        w.publish([all(&[("a", 1)])]);
        w.clock.settle();
        assert_eq!(w.reports.0.lock().last().unwrap(), want);
        let end = l.wait_synced(Duration::ZERO.into());
        let why = if policy == PanicPolicy::Remove { WaitError::Removed } else { WaitError::Stopped };
        assert_eq!(end, Err(why));
        assert_contained(&w.clock, &["no"]);
    }
}

#[test]
fn a_removal_is_quiet_between_batches_and_running_inside_one_and_nothing_starts_after_it() {
    let mut w = World::new();
    let (gate, told) = (Gate::new(), Told::default());
    let (g, t) = (gate.clone(), told.clone());
    let l = w.add(erase(move |e: &Event<u64>| {
        t.lock().push(show(e));
        g.wait();
    }));
    w.publish([all(&[("a", 1), ("b", 2)])]);
    assert_eq!(w.told(&told).len(), 1, "the first of two");
    assert_eq!(w.processor.remove(&l), Removed::Running);
    w.publish([set("c", 3)]);
    gate.open();
    assert_eq!(w.told(&told), Vec::<String>::new());
    assert_eq!(l.wait_ended(Deadline::never()), Ok(()));
    assert_eq!(w.processor.remove(&l), Removed::Quiet);
    assert_eq!(w.processor.len(), 0);

    let l = w.add(tell(&told));
    w.clock.settle();
    assert_eq!(w.processor.remove(&l), Removed::Quiet);
}

#[test]
fn close_joins_every_thread_drops_what_is_left_and_refuses_newcomers() {
    let mut w = World::new();
    let (gate, told) = (Gate::new(), Told::default());
    let (g, t) = (gate.clone(), told.clone());
    let l = w.add(erase(move |e: &Event<u64>| {
        t.lock().push(show(e));
        g.wait();
    }));
    w.add(tell(&Told::default()));
    w.publish([all(&[("a", 1), ("b", 2)])]);
    w.publish([set("c", 3)]);
    w.clock.settle();
    assert_eq!(w.clock.threads().len(), 2);
    w.processor.stop();
    gate.open();
    w.processor.close();
    assert_eq!(told.lock().len(), 1, "the first of two");
    assert!(w.clock.threads().is_empty());
    assert!(matches!(w.processor.add(tell(&told), &HandlerOptions::default()), Err(AddHandlerError::Stopped)));
    assert_eq!(l.wait_synced(Deadline::never()), Err(WaitError::Stopped));
}

#[test]
fn long_names_are_cut_to_what_the_system_keeps_and_not_inside_a_letter() {
    let w = World::new();
    let name = "länger-als-fünfzehn";
    w.processor.add(tell(&Told::default()), &HandlerOptions { name: Some(name.into()), ..HandlerOptions::default() }).unwrap();
    let threads = w.clock.threads();
    assert!(threads[0].len() <= 15 && name.starts_with(&threads[0]), "{threads:?}");
    w.processor.close();
}

#[test]
fn a_listener_is_idle_when_it_was_told_of_all_that_is_stored_or_is_gone() {
    let mut w = World::new();
    let told = Told::default();
    let l = w.add(tell(&told));
    w.clock.settle();
    assert!(w.processor.is_idle(&l), "nothing is stored");
    let mut deltas = VecDeque::from([all(&[("a", 1)])]);
    let stored = w.writer.apply(&mut deltas).unwrap();
    w.clock.settle();
    assert!(!w.processor.is_idle(&l), "it is stored, and not on its way yet");
    w.processor.distribute(stored);
    assert_eq!(w.told(&told), ["i+a@1"]);
    assert!(w.processor.is_idle(&l));
    w.processor.remove(&l);
    w.publish([set("a", 2)]);
    assert_eq!(w.told(&told), [""; 0]);
    assert!(w.processor.is_idle(&l), "it will be told of nothing more");
}
