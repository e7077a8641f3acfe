//! T11: what an object costs in memory besides its value, of an informer's store. Bytes asked of the allocator, which
//! another program counts (`src/bin/bytes.rs`), since counting costs time.

use crate::{Beside, Row, Target};
use std::process::Command;

pub const ROWS: &[Row] = &[
    Row {
        id: "T11.0",
        what: "everything but the value, no index",
        unit: "B",
        target: Target::AtMost(1.3),
        before: 76.0,
        measure: || counted("ours", 0, "all"),
    },
    Row {
        id: "T11.1",
        what: "everything but the value, 1 index",
        unit: "B",
        target: Target::AtMost(0.85),
        before: 131.0,
        measure: || counted("ours", 1, "all"),
    },
    Row {
        id: "T11.3",
        what: "everything but the value, 3 indices",
        unit: "B",
        target: Target::AtMost(0.65),
        before: 200.0,
        measure: || counted("ours", 3, "all"),
    },
    alone("T11.structure0", "the same without object and key, no index", "B", 13.0, || counted("ours", 0, "structure")),
    alone("T11.structure1", "the same without object and key, 1 index", "B", 23.0, || counted("ours", 1, "structure")),
    alone("T11.structure3", "the same without object and key, 3 indices", "B", 46.0, || counted("ours", 3, "structure")),
    alone("T11.left", "for each that is left when 90 % were deleted, 1 index: times as much as before", "x", 2.0, || {
        counted("ours", 1, "left")
    }),
];

const fn alone(id: &'static str, what: &'static str, unit: &'static str, most: f64, measure: fn() -> f64) -> Row {
    Row { id, what, unit, target: Target::Alone(most), before: f64::NAN, measure }
}

pub const BESIDE: &[Beside] = &[
    Beside("T11.structure0", "one lock", || counted("one lock", 0, "structure")),
    Beside("T11.structure0", "papaya", || counted("papaya", 0, "structure")),
    Beside("T11.structure1", "one lock", || counted("one lock", 1, "structure")),
    Beside("T11.structure1", "papaya", || counted("papaya", 1, "structure")),
    Beside("T11.structure3", "one lock", || counted("one lock", 3, "structure")),
    Beside("T11.structure3", "papaya", || counted("papaya", 3, "structure")),
    Beside("T11.left", "one lock", || counted("one lock", 1, "left")),
];

fn counted(name: &str, indices: usize, what: &str) -> f64 {
    let program = std::env::current_exe().expect("this program").with_file_name("bytes");
    let output = Command::new(program).args([name, &indices.to_string(), what]).output().expect("it counts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a figure")
}
