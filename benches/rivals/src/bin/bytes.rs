//! `bytes NAME INDICES all|structure|left` counts what one structure asks of the allocator, and prints one figure: bytes
//! for each object with everything but its value, the same without object and key, or how many times more the structure
//! costs for each object that is left when 90 % were deleted.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures")]

use rivals::{
    Dash, Hamt, OneLock, Papaya, Read, Shards,
    questions::{Bytes, Held, bytes},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{alloc::System, process::ExitCode};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, indices, what] = &args[..] else {
        eprintln!("usage: bytes NAME INDICES all|structure|left");
        return ExitCode::from(2);
    };
    let Ok(indices) = indices.parse() else { return ExitCode::from(2) };
    let counted: Bytes = match &**name {
        n if n == <OneLock<Held> as Read<Held>>::NAME => bytes::<OneLock<Held>>(indices, live),
        n if n == <Shards<Held> as Read<Held>>::NAME => bytes::<Shards<Held>>(indices, live),
        n if n == <Papaya<Held> as Read<Held>>::NAME => bytes::<Papaya<Held>>(indices, live),
        n if n == <Dash<Held> as Read<Held>>::NAME => bytes::<Dash<Held>>(indices, live),
        n if n == <Hamt<Held> as Read<Held>>::NAME => bytes::<Hamt<Held>>(indices, live),
        other => {
            eprintln!("{other} is not asked for its bytes");
            return ExitCode::from(2);
        }
    };
    let figure = match &**what {
        "all" => counted.all,
        "structure" => counted.structure,
        "left" => counted.left / counted.structure,
        other => {
            eprintln!("{other} is not asked for its bytes");
            return ExitCode::from(2);
        }
    };
    println!("{figure}");
    ExitCode::SUCCESS
}
