//! The ring against a plain queue, by one thread that has both ends, with segments of one, two and three slots. The ring
//! is not public, so the target has the room, and what that stands on, as files of its own.
//!
//! An `unsafe` room: worth most under AddressSanitizer, with its leak check.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ring::ops::{check, program};

#[path = "../../src/ring/mod.rs"]
#[allow(unused, reason = "the operations use part of it")]
mod ring;
#[path = "../../src/sync/mod.rs"]
#[allow(unused, reason = "the ring uses part of it")]
mod sync;

fuzz_target!(|bytes: &[u8]| {
    let ops = program(bytes);
    check::<1>(&ops);
    check::<2>(&ops);
    check::<3>(&ops);
});
