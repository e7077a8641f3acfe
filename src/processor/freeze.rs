//! Progress of the processor: nobody waits for a handler that does not return, but who asked for its end.

use super::{
    Listener, Removed,
    small::{Small, add, try_add},
};
use crate::{
    flow::KeyRef,
    sync::{
        Arc, Clock, Deadline, Gate,
        prove::{Verdict, World, arrives, stand_still, stuck, worker},
    },
};

const KEY: KeyRef<'static> = KeyRef { namespace: "", name: "a" };

/// A handler that does not return from its first event; the gate opens when it is inside.
fn add_stuck(small: &Small) -> (Arc<Listener>, Gate) {
    let inside = Gate::new();
    let enters = inside.clone();
    let listener = add(&small.processor, move |n| {
        if n == 1 {
            enters.open();
            stand_still();
        }
    });
    (listener, inside)
}

/// One handler stands still. The engine publishes on, another handler is told of all of it, and readers read.
fn handed_out() -> World {
    let mut small = Small::new(&Clock::real());
    let (_stuck, inside) = add_stuck(&small);
    let told_last = Gate::new();
    let opens = told_last.clone();
    let _other = add(&small.processor, move |n| {
        if n == 3 {
            opens.open();
        }
    });
    let (reader, e) = (small.reader(), inside.clone());
    let reads = move || {
        e.wait();
        assert!(reader.snapshot().get(&KEY).is_some() && reader.get(&KEY).is_some());
    };
    let (processor, told) = (small.processor.clone(), told_last.clone());
    let closes = move || {
        told.wait();
        processor.close();
    };
    let publishes = move || {
        small.publish();
        inside.wait();
        small.publish();
        small.publish();
    };
    World::new().finishes(publishes).finishes(move || told_last.wait()).finishes(reads).waits(closes)
}

#[test]
fn fan_out_other_handlers_and_readers_do_not_wait_for_a_handler_that_does_not_return() {
    let verdict = stuck("processor: fan-out and readers, a handler frozen", handed_out);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// One handler stands still. Another is added and told of the state; the first is removed.
fn comes_and_goes() -> World {
    let mut small = Small::new(&Clock::real());
    let (stuck, inside) = add_stuck(&small);
    small.publish();
    let (processor, e, told) = (small.processor.clone(), inside.clone(), Gate::new());
    let adds = move || {
        e.wait();
        let opens = told.clone();
        let newcomer = add(&processor, move |n| {
            assert_eq!(n, 1);
            opens.open();
        });
        told.wait();
        processor.remove(&newcomer);
        assert_eq!(newcomer.wait_ended(Deadline::never()), Ok(()));
    };
    let (processor, removed) = (small.processor.clone(), stuck.clone());
    let removes = move || {
        inside.wait();
        assert_eq!(processor.remove(&removed), Removed::Running);
        assert!(!processor.is_idle(&removed) && !removed.has_synced());
    };
    let ends = move || assert_eq!(stuck.wait_ended(Deadline::never()), Ok(()));
    World::new().finishes(adds).finishes(removes).waits(ends).after(move || small.processor.close())
}

#[test]
fn adding_and_removing_handlers_does_not_wait_for_one_that_does_not_return() {
    let verdict = stuck("processor: add and remove, a handler frozen", comes_and_goes);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// One handler stands still when the processor is stopped: another one ends, newcomers are refused.
fn stopped() -> World {
    let mut small = Small::new(&Clock::real());
    let (_stuck, inside) = add_stuck(&small);
    let other = add(&small.processor, |_| ());
    let (processor, e) = (small.processor.clone(), inside.clone());
    let stops = move || {
        e.wait();
        processor.stop();
        assert!(try_add(&processor, |_| ()).is_none());
    };
    let processor = small.processor.clone();
    let closes = move || {
        inside.wait();
        processor.close();
    };
    let ends = move || assert_eq!(other.wait_ended(Deadline::never()), Ok(()));
    World::new().finishes(stops).finishes(ends).finishes(move || small.publish()).waits(closes)
}

#[test]
fn stopping_and_the_end_of_other_handlers_do_not_wait_for_a_handler_that_does_not_return() {
    let verdict = stuck("processor: stop, a handler frozen", stopped);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// The stop arrives at each step of the engine, while a handler is added.
#[test]
fn a_stop_that_arrives_at_any_step_of_the_engine_ends_everybody() {
    arrives("processor: stop arrives at the engine", 1, 1, || {
        let mut small = Small::new(&Clock::real());
        let _first = add(&small.processor, |_| ());
        let (stops, adds) = (small.processor.clone(), small.processor.clone());
        let publishes = move || {
            small.publish_whole();
            small.publish();
        };
        let adds = move || {
            drop(try_add(&adds, |_| ()));
            adds.close();
        };
        [worker(move || stops.stop()), worker(publishes), worker(adds)]
    });
}
