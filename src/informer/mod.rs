//! Where the stages meet: source → reflector → (delta queue) → store → processor → handlers.
//!
//! [`SharedInformer`] is the assembled river; read `shared.rs` to see it put together. [`Registration`] is one handler's
//! place on it.

mod builder;
mod engine;
#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, informer_loom))]
mod model;
mod registration;
mod shared;
#[cfg(all(test, any(informer_loom, informer_shuttle)))]
#[allow(dead_code, reason = "models and tests of progress use a part of it each")]
mod small;

pub use crate::processor::{AddHandlerError, Batch, Handler, HandlerOptions, PanicPolicy, Removed};
pub use builder::{BuildError, InformerBuilder};
pub use engine::InformerEvent;
pub use registration::Registration;
pub use shared::{Engine, InformerHandle, InformerState, RunError, SharedInformer};
