//! Versions within an era, and how a new one begins.

use super::{script::*, *};
use crate::source::SourceErrorKind as Kind;

fn too_large() -> Kind {
    Kind::TooLargeVersion { retry_after: None }
}

fn eras(w: &World) -> Vec<ReflectorEvent> {
    w.told(|e| matches!(e, ReflectorEvent::Era { .. }))
}

fn era(old: &str, new: &str) -> Vec<ReflectorEvent> {
    vec![ReflectorEvent::Era { old: old.to_owned(), new: new.to_owned() }]
}

#[test]
fn a_consistent_list_below_the_position_begins_a_new_era() {
    let script = Script::new().list("500: a@400").watch_fails(too_large()).list("100: a@90").watch("~a@101");
    let mut w = World::start(script);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 500", "0 list newest limit 500", "0 watch 100"]);
    assert_eq!(w.given(), ["all@500 a@400", "all@100 a@90 era", "~a@101"]);
    assert_eq!(eras(&w), era("500", "100"));
    assert_eq!(w.reflector.last_version(), "101");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn with_an_order_of_versions_a_lagging_replica_is_no_era() {
    let script = Script::new().list("500: a@400").watch_fails(too_large()).list("500: a@400");
    let mut w = World::start(script);
    assert_eq!(w.given(), ["all@500 a@400", "all@500 a@400"]);
    assert_eq!(eras(&w), []);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn without_an_order_of_versions_a_consistent_list_after_too_large_begins_a_new_era() {
    let script = Script::new().orderless().list("500: a@400").watch_fails(too_large()).list("600: a@550");
    let mut w = World::start(script.watch_breaks("/20", Kind::Expired).list("550: a@540"));
    w.advance(30.0);
    assert_eq!(w.given(), ["all@500 a@400", "all@600 a@550 era", "all@550 a@540"], "an ordinary list proves nothing");
    assert_eq!(eras(&w), era("500", "600"));
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn without_an_order_of_versions_one_too_large_begins_one_era_only() {
    let script = Script::new().orderless().list("5:").watch_fails(too_large()).list("6:").watch_fails(Kind::Expired);
    let mut w = World::start(script.list_fails(Kind::Expired).list("7:"));
    assert_eq!(w.given(), ["all@5", "all@6 era", "all@7"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn without_an_order_of_versions_the_most_recent_state_for_another_reason_is_no_era() {
    let script = Script::new().orderless().list("500:").watch_fails(Kind::Expired).list_fails(Kind::Expired).list("7:");
    let mut w = World::start(script);
    assert_eq!(w.given(), ["all@500", "all@7"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn b28_a_list_that_is_not_consistent_and_answers_below_the_position_is_not_taken() {
    let script = Script::new().list("50: a@50").watch_breaks("", Kind::Expired).list("40: a@30 z@35").list("51: a@50");
    let mut w = World::start(script);
    let story = ["0 ! List TooLargeVersion: MostRecent after 0", "0 because Expired", "0 list newest limit 500", "0 watch 51"];
    assert_eq!(w.story()[5..], story);
    assert_eq!(w.given(), ["all@50 a@50", "all@51 a@50"], "never back from 50 to 40");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_frame_below_the_position_is_applied_and_told_and_never_lowers_the_position() {
    let script = Script::new().list("50: a@1").watch_breaks("~a@51 ~b@40 -c@41 b@30 ~a@52 ~d@45", Kind::Transport);
    let mut w = World::start(script);
    w.advance(1.0);
    // Whoever takes a delta's version for the position is set right at once.
    let given = ["all@50 a@1", "~a@51", "~b@40", "b@51", "-c@41", "b@51", "~a@52", "~d@45", "b@52"];
    assert_eq!(w.given(), given);
    assert_eq!(w.reflector.last_version(), "52");
    assert_eq!(w.asked()[1..], ["0 watch 50", "0 watch 52"]);
    let told = w.told(|e| matches!(e, ReflectorEvent::Backwards { .. }));
    let backwards = |key: Option<&str>, version: &str, position: &str| ReflectorEvent::Backwards {
        key: key.map(|k| k.parse().unwrap()),
        version: version.to_owned(),
        position: position.to_owned(),
    };
    let expected = [
        backwards(Some("b"), "40", "51"),
        backwards(Some("c"), "41", "51"),
        backwards(None, "30", "51"),
        backwards(Some("d"), "45", "52"),
    ];
    assert_eq!(told, expected);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_frame_without_a_version_is_applied_and_moves_nothing() {
    let mut w = World::start(Script::new().list("50: a@1").watch("~a@ b"));
    assert_eq!(w.given(), ["all@50 a@1", "~a@", "b@50"]);
    assert_eq!(w.reflector.last_version(), "50");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn without_an_order_of_versions_the_position_is_that_of_the_last_frame() {
    let mut w = World::start(Script::new().orderless().list("x: a@p").watch("~a@q ~a@p b@z"));
    assert_eq!(w.reflector.last_version(), "z");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn unchanged_objects_are_shared_within_an_era_and_never_across() {
    let object = |name: &str, version: &str| {
        crate::flow::Object::new(
            crate::flow::Meta { name, version, ..Default::default() },
            Item { name: name.into(), version: version.into() },
        )
        .unwrap()
    };
    let (a, b) = (object("a", "1"), object("b", "2"));
    let sink = Recorder::default();
    *sink.known.lock() = vec![a.clone(), b.clone()];
    let script = Script::new().list("10: a@1").watch_breaks("", Kind::Expired).list("20: a@1 b@3").watch_fails(too_large());
    let mut w = World::start_with(script.list("5: a@1 b@2"), sink, |builder| builder);
    let objects = std::mem::take(&mut *w.sink.objects.lock());
    let same = |i: usize, o: &crate::flow::Object<Item>| crate::flow::Object::ptr_eq(&objects[i], o);
    assert_eq!(objects.len(), 5);
    assert!(!same(0, &a), "before the first state nothing is known of the era");
    assert!(same(1, &a), "the same version, in the same era");
    assert!(!same(2, &b), "another version");
    assert!(!same(3, &a) && !same(4, &b), "a new era: equal versions prove nothing");
    assert_eq!(w.stop(), Ok(()));
}
