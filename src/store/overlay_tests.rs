//! What was written, laid over a store that lags behind.

use super::{IndexSpec, ReadYourWrites, StoreReader, Waits, Writer};
use crate::{
    flow::{Deleted, Delta, Object, ObjectKey, Opaque},
    source::compare_decimal,
    sync::{Arc, ManualClock},
};
use proptest::{collection::vec, prelude::*};
use std::{collections::VecDeque, time::Duration};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name).unwrap()
}

fn object(name: &str, version: &str, uid: &str, value: u32) -> Object<u32> {
    Object::with_key(key(name), version, uid, value)
}

struct World {
    writer: Writer,
    waits: Arc<Waits>,
    over: ReadYourWrites<u32>,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        Self::with(ReadYourWrites::new)
    }

    fn with(over: impl FnOnce(StoreReader<u32>) -> ReadYourWrites<u32>) -> Self {
        let clock = ManualClock::new();
        let parity = IndexSpec::new("odd", |value: &u32, emit: &mut dyn FnMut(u32)| emit(value % 2));
        let writer = Writer::new(vec![parity]).unwrap();
        let waits = Arc::new(Waits::new("pods", &clock, Box::new(compare_decimal)));
        let over = over(writer.reader().typed().waiting(&waits));
        Self { writer, waits, over, clock }
    }

    fn apply(&mut self, delta: Delta<Opaque>) {
        if let Delta::ReplacedAll { new_era: true, .. } = &delta {
            self.waits.era_begins(self.over.store().snapshot().seq() + 1);
        }
        let mut deltas = VecDeque::from([delta]);
        self.waits.publish(|| self.writer.apply(&mut deltas)).unwrap();
    }

    fn put(&mut self, object: Object<u32>) {
        self.apply(Delta::Added(object.erase()));
    }

    fn gone(&mut self, object: Object<u32>) {
        self.apply(Delta::Deleted(Deleted::Observed(object.erase())));
    }

    fn reach(&mut self, version: &str) {
        self.apply(Delta::Bookmark { version: version.into() });
    }

    /// The object's version and value; `None` for none. Asked twice: looking takes nothing away.
    fn read(&self, name: &str) -> Option<(String, u32)> {
        let read = || self.over.get(&key(name)).map(|o| (Object::version(&o).to_string(), *o));
        let first = read();
        assert_eq!(read(), first, "a look changes nothing");
        let all: Vec<_> = self.over.all().into_iter().filter(|o| *Object::key(o) == key(name)).collect();
        assert_eq!(all.iter().map(|o| (Object::version(o).to_string(), **o)).next(), first);
        assert!(all.len() < 2);
        first
    }

    fn odd(&self, odd: u32) -> Vec<String> {
        let index = self.over.store().index::<u32>("odd").unwrap();
        let found = self.over.by_index(&index, &odd, |value| value % 2 == odd).unwrap();
        let mut found: Vec<_> = found.iter().map(|o| format!("{}={}", Object::key(o).name(), **o)).collect();
        found.sort();
        found
    }
}

fn seen(version: &str, value: u32) -> Option<(String, u32)> {
    Some((version.to_owned(), value))
}

#[test]
fn what_was_written_is_read_until_the_store_has_caught_up() {
    let mut w = World::new();
    w.put(object("a", "10", "u1", 1));
    w.put(object("c", "10", "u3", 3));
    assert!(w.over.wrote(object("a", "11", "u1", 2)) && w.over.wrote(object("b", "12", "u2", 5)));
    assert_eq!((w.read("a"), w.read("b"), w.read("c")), (seen("11", 2), seen("12", 5), seen("10", 3)));
    // An object that moved to another value is found there, and only there.
    assert_eq!((w.odd(0), w.odd(1)), (vec!["a=2".to_owned()], vec!["b=5".to_owned(), "c=3".to_owned()]));
    assert_eq!((w.over.pending(), w.over.store().len()), (2, 2));
    w.put(object("a", "11", "u1", 2));
    assert_eq!((w.read("a"), w.read("b"), w.over.pending()), (seen("11", 2), seen("12", 5), 1));
    // At 14 the store knows what became of `b`, which it does not have.
    w.reach("14");
    assert_eq!((w.read("b"), w.over.pending()), (None, 0));
}

#[test]
fn b_26_an_answer_that_comes_late_takes_nothing_back_and_brings_nothing_to_life() {
    let mut w = World::new();
    w.put(object("a", "11", "u1", 1));
    w.put(object("a", "12", "u1", 2));
    assert!(!w.over.wrote(object("a", "11", "u1", 1)));
    assert_eq!(w.read("a"), seen("12", 2));
    // The variant: deleted meanwhile.
    w.gone(object("a", "13", "u1", 2));
    assert!(!w.over.wrote(object("a", "12", "u1", 2)));
    assert_eq!(w.read("a"), None);
    // The deletion is known from its answer only.
    w.put(object("b", "20", "u2", 1));
    assert!(w.over.deleted(object("b", "22", "u2", 1)));
    assert!(!w.over.wrote(object("b", "21", "u2", 7)) && !w.over.wrote(object("b", "23", "u2", 8)));
    assert_eq!((w.read("b"), w.over.all().len()), (None, 0));
    // A newer answer came before: B-66 says 9 is older than 10.
    assert!(w.over.wrote(object("c", "100", "u3", 100)) && !w.over.wrote(object("c", "99", "u3", 99)));
    assert_eq!(w.read("c"), seen("100", 100));
    // The source has the last word.
    w.gone(object("b", "22", "u2", 1));
    w.put(object("b", "30", "u9", 9));
    assert_eq!(w.read("b"), seen("30", 9));
}

#[test]
fn a_deletion_hides_its_object_and_no_other() {
    let mut w = World::new();
    for (name, value) in [("a", 1), ("b", 3)] {
        w.put(object(name, "10", name, value));
    }
    // Its last known state, before the deletion has a version.
    assert!(w.over.deleted(object("a", "10", "a", 1)));
    assert_eq!((w.read("a"), w.odd(1)), (None, vec!["b=3".to_owned()]));
    w.reach("50");
    assert_eq!(w.read("a"), None, "the event of the deletion has not come yet");
    // Something else keeps it: it changed instead of going.
    w.put(object("a", "51", "a", 5));
    assert_eq!((w.read("a"), w.over.pending()), (seen("51", 5), 0));
    // Gone, and made anew under the same name.
    assert!(w.over.deleted(object("b", "10", "b", 3)));
    w.put(object("b", "52", "b again", 7));
    assert_eq!(w.read("b"), seen("52", 7));
    // The store lags so far behind that it comes to an earlier object of the name.
    assert!(w.over.deleted(object("d", "59", "d again", 1)));
    w.put(object("d", "53", "d", 1));
    assert_eq!(w.read("d"), None);
    w.gone(object("d", "59", "d again", 1));
    // A deletion that knows less than a write of the same object.
    assert!(w.over.wrote(object("e", "62", "e", 2)) && w.over.deleted(object("e", "61", "e", 1)));
    w.put(object("e", "62", "e", 2));
    assert_eq!(w.read("e"), None);
    w.gone(object("e", "63", "e", 2));
    // Made and deleted before the store knew it at all.
    assert!(w.over.wrote(object("c", "70", "c", 1)) && w.over.deleted(object("c", "70", "c", 1)));
    assert_eq!(w.read("c"), None);
    w.put(object("c", "70", "c", 1));
    assert_eq!(w.read("c"), None);
    w.gone(object("c", "71", "c", 1));
    assert_eq!((w.read("c"), w.over.pending()), (None, 0));
}

#[test]
fn a_note_ends_with_its_time_its_era_and_when_there_are_too_many() {
    let mut w = World::with(|store| ReadYourWrites::with_limits(store, 2, Duration::from_secs(10)));
    assert!(w.over.wrote(object("a", "5", "", 1)));
    w.clock.advance(Duration::from_secs(10));
    assert_eq!(w.read("a"), seen("5", 1), "the last moment belongs to it");
    w.clock.advance(Duration::from_nanos(1));
    assert_eq!((w.read("a"), w.over.pending()), (None, 0));
    for (name, version) in [("a", "6"), ("b", "7"), ("a", "8"), ("c", "9")] {
        assert!(w.over.wrote(object(name, version, "", 1)));
    }
    // `b` was the oldest: the second note on `a` made that one young again.
    assert_eq!((w.read("a"), w.read("b"), w.read("c")), (seen("8", 1), None, seen("9", 1)));
    let (version, objects) = ("3".to_owned(), vec![object("a", "2", "", 7).erase()]);
    w.apply(Delta::ReplacedAll { version, objects, kept: vec![], complete: true, new_era: true });
    assert_eq!((w.read("a"), w.read("c"), w.over.pending()), (seen("2", 7), None, 0));
}

#[test]
fn where_versions_have_no_order_a_note_counts_until_the_store_changes() {
    let mut w = World::new();
    w.put(object("a", "x", "u", 1));
    assert!(w.over.wrote(object("a", "y", "u", 2)) && w.over.wrote(object("n", "", "", 3)));
    w.put(object("other", "z", "", 0));
    assert_eq!((w.read("a"), w.read("n")), (seen("y", 2), seen("", 3)));
    w.put(object("a", "y", "u", 2));
    w.put(object("n", "", "", 4));
    assert_eq!((w.read("a"), w.read("n"), w.over.pending()), (seen("y", 2), seen("", 4), 0));
    assert!(w.over.deleted(object("a", "y", "u", 2)));
    assert_eq!(w.read("a"), None);
    w.gone(object("a", "q", "u", 2));
    assert_eq!((w.read("a"), w.over.pending()), (None, 0));
}

/// One thing that happens to the one key.
#[derive(Clone, Debug)]
enum Step {
    /// The source writes, or deletes what is there.
    Source { delete: bool },
    /// The store applies the next event.
    Store,
    /// An answer arrives: the last one, or an earlier one.
    Answer { back: usize },
}

proptest! {
    /// Whatever is late: what is read is the newest of what the store has applied and of what the source has answered.
    #[test]
    fn a_read_is_never_older_than_the_store_and_never_older_than_an_answer(
        steps in vec(
            prop_oneof![
                any::<bool>().prop_map(|delete| Step::Source { delete }),
                Just(Step::Store),
                (0..4usize).prop_map(|back| Step::Answer { back }),
            ],
            1..40,
        )
    ) {
        let mut w = World::new();
        // The state after each version: version, uid, and the value unless it is deleted.
        let mut history: Vec<(usize, usize, Option<u32>)> = vec![(0, 0, None)];
        let (mut applied, mut answered) = (0, 0);
        for step in steps {
            match step {
                Step::Source { delete } => {
                    let (version, uid, value) = history[history.len() - 1];
                    let next = match value {
                        Some(_) if delete => (version + 1, uid, None),
                        Some(_) => (version + 1, uid, Some(version as u32 + 1)),
                        None => (version + 1, uid + 1, Some(version as u32 + 1)),
                    };
                    history.push(next);
                }
                Step::Store => {
                    if let Some((version, uid, value)) = history.get(applied + 1) {
                        applied += 1;
                        let o = object("a", &version.to_string(), &uid.to_string(), value.unwrap_or(0));
                        if value.is_some() { w.put(o) } else { w.gone(o) }
                    }
                }
                Step::Answer { back } => {
                    let at = history.len().saturating_sub(1 + back);
                    let (version, uid, value) = history[at];
                    if at > 0 {
                        let o = object("a", &version.to_string(), &uid.to_string(), value.unwrap_or(0));
                        if value.is_some() { w.over.wrote(o) } else { w.over.deleted(o) };
                        answered = answered.max(at);
                    }
                }
            }
            let (version, _, value) = history[applied.max(answered)];
            prop_assert_eq!(w.read("a"), value.and_then(|value| seen(&version.to_string(), value)));
        }
    }
}
