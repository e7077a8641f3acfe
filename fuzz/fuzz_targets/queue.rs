//! The delta queue against its sequential model, and the report of what was dropped: the operations, the model and the
//! real queue are those of the room's own tests.
//!
//! With `INFORMER_PLANTED` in the environment the target has a defect, which it must then find: in a batch, whole states
//! overtake what came before them.
#![no_main]

use informer::{
    queue::{Closed, RealFifo, Taken},
    sync::Clock,
};
use libfuzzer_sys::fuzz_target;
use ops::{Model, Op, Real, Sort, program};
use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The room's file finds its imports where they are in the crate.
mod flow {
    pub(crate) use informer::flow::*;
}
mod sync {
    pub(crate) use informer::sync::*;
}

#[path = "../../src/queue/ops.rs"]
#[allow(dead_code, reason = "the room's tests use more of it")]
mod ops;

static PLANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("INFORMER_PLANTED").is_some());

fn planted(op: &Op) -> Op {
    match op {
        Op::Put(items) if *PLANTED => {
            let mut items = items.clone();
            items.sort_by_key(|(_, sort)| !matches!(sort, Sort::Whole | Sort::WholeButIncomplete));
            Op::Put(items)
        }
        op => op.clone(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let reported = Arc::new(AtomicU64::new(0));
    let reports = reported.clone();
    let queue = RealFifo::new("fuzz", &Clock::real()).on_uncommitted(move |_| {
        reports.fetch_add(1, Relaxed);
    });
    let (mut model, mut real) = (Model::default(), Real::new(&queue));
    let ops = program(bytes);
    for op in &ops {
        assert_eq!(Some(real.apply(&planted(op))), model.step(0, op), "{op:?} of {ops:?}");
        for look in [Op::Len, Op::IsClosed, Op::HasSynced, Op::AskSynced, Op::Uncommitted] {
            assert_eq!(Some(real.apply(&look)), model.step(0, &look), "{look:?} after {op:?} of {ops:?}");
        }
        assert_eq!(queue.uncommitted(), reported.load(Relaxed));
    }
    drop(real);
    assert_eq!(queue.uncommitted(), reported.load(Relaxed));
});
