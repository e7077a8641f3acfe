//! The store against plain models, and its promises one by one.

use super::{Changes, IndexSpec, Writer};
use crate::flow::{Delta, Meta, Object, Opaque};
use std::collections::VecDeque;

fn object(name: &str, version: &str, value: u32) -> Object<Opaque> {
    Object::new(Meta { namespace: "ns", name, version, uid: "" }, value).unwrap().erase()
}

#[test]
fn an_added_object_is_stored_and_indexed() {
    let parity = IndexSpec::new("parity", |v: &u32, emit: &mut dyn FnMut(String)| emit((v % 2).to_string()));
    let mut writer = Writer::new(vec![parity]).unwrap();
    let publication = writer.apply(&mut VecDeque::from([Delta::Added(object("a", "1", 7))])).unwrap();
    assert_eq!(publication.seq, 1);
    assert!(matches!(publication.changes, Changes::Each(events) if events.len() == 1));
    let snapshot = writer.reader().typed::<u32>().snapshot();
    assert_eq!(snapshot.get(&("ns", "a")), Some(&7));
    assert_eq!(snapshot.by_index("parity", "1").unwrap().count(), 1);
    assert_eq!(snapshot.index_values("parity").unwrap(), [&"1"]);
    assert_eq!(snapshot.version(), "1");
}
