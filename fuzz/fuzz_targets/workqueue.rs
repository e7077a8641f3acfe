//! The work queue against its sequential model: the operations, the model and the real queue are those of the room's
//! own tests.
#![no_main]

use informer::workqueue::{ItemExponential, TryGetError, Work, WorkQueue};
use libfuzzer_sys::fuzz_target;
use ops::{Model, Op, Real, program};

/// The room's file finds its imports where they are in the crate.
mod sync {
    pub(crate) use informer::sync::ManualClock;
}

#[path = "../../src/workqueue/ops.rs"]
#[allow(dead_code, reason = "the room's tests use more of it")]
mod ops;

fuzz_target!(|bytes: &[u8]| {
    let ops = program(bytes);
    let (mut model, mut real) = (Model::default(), Real::new());
    for op in ops.iter().chain([&Op::Shutdown]) {
        assert_eq!(real.apply(op), model.apply(op), "{op:?} of {ops:?}");
    }
    real.work_off();
    assert!(real.queue.is_empty());
});
