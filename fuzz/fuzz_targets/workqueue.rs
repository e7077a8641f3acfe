//! The work queue against its sequential model: the operations, the model and the real queue are those of the room's
//! own tests.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use informer::workqueue::{ItemExponential, TryGetError, Work, WorkQueue};
use libfuzzer_sys::fuzz_target;
use ops::{Model, Op, Real};

/// The room's file finds its imports where they are in the crate.
mod sync {
    pub(crate) use informer::sync::ManualClock;
}

#[path = "../../src/workqueue/ops.rs"]
#[allow(dead_code, reason = "the room's tests use more of it")]
mod ops;

/// Few keys and short times, so that they meet.
impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let key = |u: &mut Unstructured<'a>| u.arbitrary::<u8>().map(|k| k % 6);
        let ms = |u: &mut Unstructured<'a>| u.arbitrary::<u8>().map(|ms| u16::from(ms % 64));
        Ok(match u.arbitrary::<u8>()? % 24 {
            0..5 => Self::Add(key(u)?),
            5..8 => Self::AddAfter(key(u)?, ms(u)?),
            8 | 9 => Self::AddRateLimited(key(u)?),
            10 => Self::Forget(key(u)?),
            11 => Self::Requeues(key(u)?),
            12..16 => Self::Get,
            16 | 17 => Self::Done(key(u)?),
            18 => Self::Retry(key(u)?),
            19 => Self::RequeueAfter(key(u)?, ms(u)?),
            20 => Self::Len,
            21 | 22 => Self::Advance(ms(u)?),
            _ => Self::Shutdown,
        })
    }
}

fuzz_target!(|ops: Vec<Op>| {
    let (mut model, mut real) = (Model::default(), Real::new());
    for op in ops.iter().chain([&Op::Shutdown]) {
        assert_eq!(real.apply(op), model.apply(op), "{op:?} of {ops:?}");
    }
    real.work_off();
    assert!(real.queue.is_empty());
});
