//! The store against a plain model: deltas and whole states in any order, several to a step, with indices; every version
//! that is kept along the way shows for ever what it showed, and the difference of any two leads from one to the other.
//! The bytes are read as operations inside the crate, since a store is written from inside only.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| informer::store::fuzz(bytes));
