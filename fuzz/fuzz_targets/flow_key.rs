//! Keys from text and from their parts: what is accepted comes back unchanged and equals itself on every way there,
//! what is refused is refused for a reason that is true.
#![no_main]

use informer::flow::{AsKey, KeyError, KeyRef, ObjectKey};
use libfuzzer_sys::fuzz_target;
use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hash},
};

fn check(namespace: &str, name: &str, states: &RandomState) -> Option<ObjectKey> {
    let written = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let fits = written.len() <= usize::from(u16::MAX);
    let sound = !name.is_empty() && !name.contains('/') && !namespace.contains('/');
    let key = match ObjectKey::new(namespace, name) {
        Ok(key) => key,
        Err(error) => {
            let true_reason = match error {
                KeyError::TooLong(n) => !fits && n == written.len(),
                KeyError::EmptyName(_) => name.is_empty(),
                KeyError::Slash(_) => namespace.contains('/') || name.contains('/'),
                _ => false,
            };
            assert!(true_reason, "{namespace:?} and {name:?} were refused: {error}");
            return None;
        }
    };
    assert!(fits && sound, "{namespace:?} and {name:?} were accepted");
    assert_eq!((key.namespace(), key.name(), key.as_str()), (namespace, name, &*written));
    assert_eq!((key.to_string(), key.as_key()), (written.clone(), KeyRef { namespace, name }));

    // The same key on every other way, and so the same hash.
    let copy = key.clone();
    let parsed: ObjectKey = written.parse().unwrap();
    for other in [&copy, &parsed] {
        assert_eq!((other, other.cmp(&key)), (&key, std::cmp::Ordering::Equal));
        assert_eq!(states.hash_one(other), states.hash_one(&key));
        assert_eq!(other.key_hash(), KeyRef { namespace, name }.key_hash());
    }
    drop(key);
    assert_eq!(copy.as_str(), written, "a handle outlives the others");
    Some(copy)
}

/// Whatever text is accepted is its own canonical form.
fn check_text(text: &str) {
    match text.parse::<ObjectKey>() {
        Ok(key) => assert_eq!(key.as_str(), text),
        Err(error) => {
            let slashes = text.matches('/').count();
            let true_reason = match error {
                KeyError::EmptyName(_) => text.is_empty() || text.ends_with('/'),
                KeyError::EmptyNamespace(_) => text.starts_with('/'),
                KeyError::Slash(_) => slashes > 1,
                KeyError::TooLong(n) => n == text.len() && n > usize::from(u16::MAX),
                _ => false,
            };
            assert!(true_reason, "{text:?} was refused: {error}");
        }
    }
}

fn hashed(key: &ObjectKey, states: &RandomState) -> u64 {
    let mut hasher = states.build_hasher();
    key.hash(&mut hasher);
    std::hash::Hasher::finish(&hasher)
}

fuzz_target!(|input: (&str, &str, &str, u8)| {
    let (text, namespace, name, stretch) = input;
    let states = RandomState::new();
    check_text(text);
    let a = check(namespace, name, &states);
    // Near the limit of length now and then.
    if stretch > 250 {
        let longer = format!("{name}{}", "x".repeat(65_520 + usize::from(stretch - 250)));
        check(namespace, &longer, &states);
    }
    if let (Some(a), Ok(b)) = (a, text.parse::<ObjectKey>()) {
        let (x, y) = ((a.namespace(), a.name()), (b.namespace(), b.name()));
        assert_eq!((a == b, a.cmp(&b)), (x == y, x.cmp(&y)));
        assert!(a != b || hashed(&a, &states) == hashed(&b, &states));
    }
});
