//! Where the stages meet: source → reflector → (delta queue) → store → processor → handlers.
//!
//! [`SharedInformer`] is the assembled river; read `shared.rs` to see it put together. [`Registration`] is one handler's
//! place on it.

mod builder;
mod engine;
mod registration;
mod shared;

pub use crate::processor::{AddHandlerError, Batch, Handler, HandlerOptions, PanicPolicy, Removed};
pub use builder::{BuildError, InformerBuilder};
pub use engine::InformerEvent;
pub use registration::Registration;
pub use shared::{Engine, InformerHandle, InformerState, RunError, SharedInformer};
