//! The bed of the river: the data that flows, and the ports that rooms share.
//!
//! Inside the crate everything is carried as `Object<Opaque>`, so that stages are compiled once for all types; the
//! typed shells at the doors turn it back, and each turn is checked against the type the object was made with.

mod delta;
mod event;
mod key;
mod object;
mod port;
mod text;

pub use delta::Delta;
pub use event::{Cause, Change, Deleted, Event};
pub(crate) use key::Sought;
pub use key::{AsKey, KeyError, KeyRef, ObjectKey};
pub(crate) use object::{Label, Opaque};
pub use object::{Meta, Object};
pub use port::{DeltaSink, KnownObjects, SinkError};
pub use text::Text;

#[cfg(all(test, informer_loom))]
mod model;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
