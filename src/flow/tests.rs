//! Keys, texts and objects.

use super::{AsKey, KeyError, KeyRef, Meta, Object, ObjectKey, Opaque, Sought, object::HEADER_BYTES};
use crate::sync::{
    Arc, Clock,
    atomic::{AtomicUsize, Ordering},
    call_out::assert_contained,
};
use proptest::prelude::*;

fn meta<'a>(version: &'a str, uid: &'a str) -> Meta<'a> {
    Meta { namespace: "ns", name: "a", version, uid }
}

proptest! {
    #[test]
    fn a_key_survives_its_text(ns in "[^/]{0,8}", name in "[^/]{1,8}") {
        let key = ObjectKey::new(&ns, &name).unwrap();
        prop_assert_eq!(key.namespace(), &ns);
        prop_assert_eq!(key.name(), &name);
        prop_assert_eq!(&key.to_string().parse::<ObjectKey>().unwrap(), &key);
        prop_assert_eq!(key.key_hash(), KeyRef { namespace: &ns, name: &name }.key_hash());
    }

    #[test]
    fn a_key_that_is_sought_is_the_one_of_its_text_also_among_those_of_one_hash(
        a in "[a-b/]{0,3}", b in "[a-b/]{0,3}", ns in "[a-b]{0,2}", name in "[a-b]{1,3}",
    ) {
        let parts = KeyRef { namespace: &a, name: &b };
        let stored = ObjectKey::with_hash(&ns, &name, parts.key_hash());
        prop_assert_eq!(Sought::by(&parts).is(&stored), parts == stored.as_key());
        let whole = ObjectKey::with_hash(&ns, &name, stored.key_hash());
        prop_assert!(Sought::by(&whole).is(&stored));
        prop_assert!(!Sought::by(&whole).is(&ObjectKey::with_hash(&ns, &name, !stored.key_hash())));
    }

    #[test]
    fn any_text_is_a_canonical_key_or_an_error(s in "[a/]{0,6}") {
        if let Ok(key) = s.parse::<ObjectKey>() {
            prop_assert_eq!(key.to_string(), s);
        }
    }

    #[test]
    fn keys_order_by_namespace_then_name(a in "[a-c.]{0,2}", b in "[a-c.]{1,2}", c in "[a-c.]{0,2}", d in "[a-c.]{1,2}") {
        let (x, y) = (ObjectKey::new(&a, &b).unwrap(), ObjectKey::new(&c, &d).unwrap());
        prop_assert_eq!(x.cmp(&y), (a, b).cmp(&(c, d)));
    }

    #[test]
    fn version_and_uid_survive_their_binary_form(version in "0|[0-9]{1,21}|[a-z0-9]{0,4}", uid in "[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|.{0,40}") {
        let o = Object::new(meta(&version, &uid), ()).unwrap();
        prop_assert_eq!(Object::version(&o), version.as_str());
        prop_assert_eq!(Object::uid(&o), uid.as_str());
    }
}

#[test]
fn a_slash_is_found_at_every_place_of_a_name_and_nothing_else_is_taken_for_one() {
    for length in 1..40 {
        let name = |at: usize, c: char| (0..length).map(|i| if i == at { c } else { 'a' }).collect::<String>();
        for at in 0..length {
            let other = ['.', '0', '\u{af}', '\0', '\u{7f}', '\u{10ffff}'];
            assert!(other.iter().all(|c| ObjectKey::new("ns", &name(at, *c)).is_ok()));
            assert!(matches!(ObjectKey::new("ns", &name(at, '/')), Err(KeyError::Slash(_))));
            assert!(matches!(ObjectKey::new(&name(at, '/'), "a"), Err(KeyError::Slash(_))));
        }
    }
}

#[test]
fn a_key_that_has_no_canonical_text_is_refused() {
    assert!(matches!(ObjectKey::new("ns", ""), Err(KeyError::EmptyName(_))));
    assert!(matches!(ObjectKey::new("n/s", "a"), Err(KeyError::Slash(_))));
    assert!(matches!("/a".parse::<ObjectKey>(), Err(KeyError::EmptyNamespace(_))));
    assert!(matches!("a/b/c".parse::<ObjectKey>(), Err(KeyError::Slash(_))));
    assert!(matches!(ObjectKey::new("", &"a".repeat(70_000)), Err(KeyError::TooLong(_))));
}

#[test]
fn a_key_may_be_as_long_as_it_says_and_no_longer() {
    for (namespace, name) in [("", 65_535), ("n", 65_533), ("n".repeat(65_533).as_str(), 1)] {
        let key = ObjectKey::new(namespace, &"a".repeat(name)).unwrap();
        assert_eq!((key.as_str().len(), key.namespace(), key.name().len()), (65_535, namespace, name));
        assert_eq!(ObjectKey::new(namespace, &"a".repeat(name + 1)).unwrap_err(), KeyError::TooLong(65_536));
    }
}

#[test]
fn the_header_stays_within_its_budget() {
    const { assert!(HEADER_BYTES <= 48) };
}

#[test]
fn the_last_handle_drops_the_value_once_whatever_its_type_looks_like() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let typed = Object::new(meta("1", ""), Counted(drops.clone())).unwrap();
    let erased = typed.clone().erase();
    drop(typed);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    let back = erased.clone().typed::<Counted>();
    drop(erased);
    let value = Object::try_unwrap(back).ok().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(value);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn try_unwrap_gives_a_shared_handle_back() {
    let a = Object::new(meta("1", ""), 7).unwrap();
    let b = a.clone();
    let a = Object::try_unwrap(a).unwrap_err();
    drop(b);
    assert_eq!(Object::try_unwrap(a).unwrap(), 7);
}

#[test]
#[should_panic(expected = "another type")]
fn an_object_of_another_type_is_refused() {
    let o: Object<Opaque> = Object::new(meta("1", ""), 7u32).unwrap().erase();
    let _ = o.typed::<u64>();
}

#[test]
fn an_overaligned_value_is_found_behind_the_header() {
    #[derive(Debug, PartialEq)]
    #[repr(align(64))]
    struct Wide(u8);
    let o = Object::new(meta("1", ""), Wide(9)).unwrap().erase();
    assert_eq!(**o.typed_ref::<Wide>(), Wide(9));
}

#[test]
fn a_value_that_panics_while_dropped_harms_nobody() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("bad drop");
        }
    }
    drop(Object::new(meta("1", ""), Bad).unwrap());
    assert_contained(&Clock::real(), &["bad drop"]);
}

#[test]
fn only_equal_non_empty_versions_are_the_same() {
    let o = |v| Object::new(meta(v, ""), ()).unwrap();
    assert!(Object::same_version(&o("12"), &o("12")));
    // However the uid beside it is kept.
    let beside = |uid| Object::new(meta("12", uid), ()).unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    assert!(Object::same_version(&beside("x"), &beside(uuid)) && Object::same_version(&beside(""), &beside("x")));
    assert!(!Object::same_version(&o("13"), &beside("x")) && !Object::same_version(&o(""), &beside("x")));
    assert!(Object::same_version(&o("x"), &o("x")));
    assert!(!Object::same_version(&o(""), &o("")));
    assert!(!Object::same_version(&o("12"), &o("012")));
}
