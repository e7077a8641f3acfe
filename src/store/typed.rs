//! The type of a store's objects, asked once and not of each object. An `unsafe` file.
//!
//! Objects go through the rooms without their type, and whoever wants it back asks the object itself, which costs a look
//! at it. Whoever only walks all objects of a version need not look at any: all objects of a store are of one type, which
//! the writer sees to. [`OneType::admit`] is called with each object before it is put into a version (`table.rs`, the only
//! place that does, through [`Item::admit`](super::reclaim::Item::admit)), and panics for one of another type than the
//! first. So the type of the first, asked once, is that of all that any version of the store shows.
#![allow(unsafe_code)]

use super::AnySnapshot;
use crate::{
    flow::{Object, Opaque},
    sync::Once,
};
use std::any::TypeId;

/// The type of all objects of a store, once there is one.
#[derive(Default)]
pub(super) struct OneType(Once<TypeId>);

impl OneType {
    /// # Panics
    /// When it is of another type than those before it.
    pub(super) fn admit(&self, object: &Object<Opaque>) {
        let this = Object::type_of(object);
        if self.0.get().is_none() {
            self.0.set(this).ok();
        }
        let all = self.0.get().copied().unwrap_or(this);
        assert!(this == all, "an object of another type came to this store");
    }

    /// # Panics
    /// When there are objects and they are of another type.
    fn check<T: 'static>(&self) {
        let other = self.0.get().is_some_and(|all| *all != TypeId::of::<T>());
        assert!(!other, "the objects of this store are of another type");
    }
}

/// All objects of a version, in no order; none is looked at.
pub(super) fn objects<T: 'static>(any: &AnySnapshot) -> impl Iterator<Item = &Object<T>> {
    any.one_type().check::<T>();
    // SAFETY: the object is in a version of this store, so it was admitted before, and the type of all that were is `T`.
    any.objects().map(|object| unsafe { object.typed_ref_unchecked() })
}

/// Handles to all objects of a version, in the same order.
pub(super) fn to_vec<T: 'static>(any: &AnySnapshot) -> Vec<Object<T>> {
    any.one_type().check::<T>();
    let mut all = Vec::with_capacity(any.len());
    // SAFETY: as in `objects`.
    all.extend(any.version_of().all().map(|object| unsafe { object.typed_ref_unchecked::<T>() }.clone()));
    all
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests {
    use super::OneType;
    use crate::flow::{Meta, Object};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_store_lets_in_and_hands_out_objects_of_one_type_only() {
        let meta = Meta { namespace: "", name: "a", version: "1", uid: "" };
        let (one, other) = (Object::new(meta, 1u32).unwrap().erase(), Object::new(meta, 1u64).unwrap().erase());
        let all = OneType::default();
        all.check::<u64>();
        all.admit(&one);
        all.admit(&one);
        all.check::<u32>();
        assert!(catch_unwind(AssertUnwindSafe(|| all.admit(&other))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| all.check::<u64>())).is_err());
    }
}
