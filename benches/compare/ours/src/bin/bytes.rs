//! Counts memory: see `count.rs of benches/rivals`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures")]

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{alloc::System, process::ExitCode};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    rivals::count::main(|| {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated - stats.bytes_deallocated
    })
}
