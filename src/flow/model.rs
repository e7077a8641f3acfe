//! loom models of the counts of an object and of the text of its key: freed once, by the last handle, after everything that
//! the other handles did. Beside each stand the places that it must not survive the loss of.

use super::{Object, ObjectKey};
use crate::sync::{
    Arc, Clock, JoinHandle,
    prove::{self, Reached, Watched},
    spawn,
};

/// A value that tells loom when it is read and when it is dropped.
struct Value {
    touched: Watched,
    drops: Arc<Reached>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.touched.write();
        self.drops.count();
    }
}

fn object() -> (Object<Value>, Arc<Reached>) {
    let drops = Arc::new(Reached::new());
    let key = ObjectKey::new("", "a").unwrap();
    (Object::with_key(key, "1", "", Value { touched: Watched::default(), drops: drops.clone() }), drops)
}

/// Starts a thread that reads the value and gives its handle up.
fn reader(object: &Object<Value>) -> JoinHandle<()> {
    let mine = object.clone();
    spawn(&Clock::real(), "reader", move || mine.touched.read()).unwrap()
}

fn dropped() {
    let (object, drops) = object();
    let reader = reader(&object);
    object.touched.read();
    drop(object);
    reader.join().unwrap();
    assert_eq!(drops.get(), 1, "the value is dropped once");
}

#[test]
fn an_object_is_freed_once_and_after_everything_that_was_done_with_it() {
    prove::model("object: two handles dropped", None, dropped);
    for place in ["object: a handle is given up", "object: the last handle looks again"] {
        prove::rejects(place, "Causality violation", None, || dropped());
    }
}

static TAKEN: Reached = Reached::new();

fn taken_out() {
    let (object, drops) = object();
    let reader = reader(&object);
    match Object::try_unwrap(object) {
        Ok(value) => {
            TAKEN.count();
            value.touched.write();
            assert_eq!(drops.get(), 0, "a value that was taken out is its taker's");
        }
        Err(object) => object.touched.read(),
    }
    reader.join().unwrap();
    assert_eq!(drops.get(), 1, "the value is dropped once");
}

#[test]
fn a_value_is_taken_out_only_when_nobody_else_can_look_at_it() {
    prove::model("object: try_unwrap against drop", None, taken_out);
    if prove::intact() {
        assert!(TAKEN.get() > 0, "the value was never taken out");
    }
    for place in ["object: a handle is given up", "object: the only handle is taken"] {
        prove::rejects(place, "Causality violation", None, || taken_out());
    }
}

fn key() {
    let key = ObjectKey::new("a", "b").unwrap();
    let other = key.clone();
    let reader = spawn(&Clock::real(), "reader", move || assert_eq!(other.as_str(), "a/b")).unwrap();
    assert_eq!(key.as_str(), "a/b");
    drop(key);
    reader.join().unwrap();
}

#[test]
fn the_text_of_a_key_is_freed_after_everybody_has_read_it() {
    prove::model("key: two handles dropped", None, key);
    for place in ["key: a handle is given up", "key: the last handle looks again"] {
        prove::rejects(place, "Causality violation", None, || key());
    }
}
