//! What the models share: the harness, which is the crate's own (`sync::prove`; bounds, counts and mutants are told
//! there), and threads of the checker.
#![cfg(any(informer_loom, informer_shuttle))]

pub use informer::sync::prove;
