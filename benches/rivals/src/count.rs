//! What the programs `bytes` do, here and in benches/compare: `bytes NAME INDICES all|structure|left` counts what one
//! structure asks of the allocator, and prints one figure: bytes for each object with everything but its value, the same
//! without object and key, or how many times more the structure costs for each object that is left when 90 % were deleted.

use crate::{
    Dash, OneLock, Ours, Papaya, Read, Shards,
    questions::{Bytes, Held, bytes},
};
use std::process::ExitCode;

/// `live` says how many bytes are allocated.
pub fn main(live: fn() -> usize) -> ExitCode {
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
        #[cfg(feature = "imbl")]
        n if n == <crate::Hamt<Held> as Read<Held>>::NAME => bytes::<crate::Hamt<Held>>(indices, live),
        n if n == <Ours<Held> as Read<Held>>::NAME => bytes::<Ours<Held>>(indices, live),
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
