//! Prints one table: each structure of `rivals` beside the others, or one figure of it.
//!
//! `rivals [--rounds N] [--only NAME,..] [--ask COLUMN,..]`. Each figure is taken in a process of its own, the structures
//! in turn, and is the median of the rounds. `rivals measure NAME COLUMN` is one such process.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

use rivals::{
    Dash, Hamt, OneLock, Ours, Papaya, Read, Shards, Standalone, Store,
    questions::{self as ask, Held},
    world::Pod,
};
use std::process::{Command, ExitCode};

/// A column: its name, its unit, and what it says in words.
struct Column(&'static str, &'static str, &'static str);

const COLUMNS: &[Column] = &[
    Column("cold", "ns", "get among 100,000, 1 thread, the key carries its hash"),
    Column("hot", "ns", "get among 1,000"),
    Column("hashing", "ns", "get among 100,000, borrowed key, hashed inside"),
    Column("two", "M/s", "get among 100,000, 2 threads together"),
    Column("beside", "M/s", "get by 1 thread beside a writer at full speed"),
    Column("update1", "ns", "update, 1 index, one at a time; key and object made inside"),
    Column("update64", "ns", "update, 1 index, 64 at a time; for each"),
    Column("listed", "us", "update beside a looping list: p99"),
    Column("listed999", "us", "the same: p99.9"),
    Column("replace0", "ms", "replace of 100,000, no index"),
    Column("replace1", "ms", "replace of 100,000, 1 index"),
    Column("replace3", "ms", "replace of 100,000, 3 indices"),
    Column("replaced", "us", "get while all are replaced, 1 index: p99.99"),
    Column("visit", "us", "all 100,000 by reference"),
    Column("list", "us", "all 100,000 as a list of objects"),
    Column("by_index", "us", "the 1,000 of one value"),
    Column("writers1", "k/s", "updates by 1 thread, no index"),
    Column("writers2", "k/s", "updates by 2 threads together, no index"),
    Column("writers4", "k/s", "updates by 4 threads together, no index"),
    Column("writers16", "k/s", "updates by 16 threads together, no index"),
    Column("indexed1", "k/s", "updates by 1 thread, 1 index"),
    Column("indexed2", "k/s", "updates by 2 threads together, 1 index"),
    Column("indexed4", "k/s", "updates by 4 threads together, 1 index"),
    Column("indexed16", "k/s", "updates by 16 threads together, 1 index"),
    Column("bytes0", "B", "structure for each object, no index"),
    Column("bytes1", "B", "structure for each object, 1 index"),
    Column("bytes3", "B", "structure for each object, 3 indices"),
];

/// What readers ask; `None` when it is another question.
fn read<S: Read<Pod>>(column: &str) -> Option<f64> {
    Some(match column {
        "cold" => ask::get::<S>(100_000),
        "hot" => ask::get::<S>(1000),
        "hashing" => ask::get_hashing::<S>(),
        "two" => ask::get_by_two::<S>() / 1e6,
        "visit" => ask::iterate::<S>(),
        "list" => ask::collect::<S>(),
        "by_index" => ask::by_index::<S>(),
        _ => return None,
    })
}

fn write<S: Store<Held>>(column: &str) -> Option<f64> {
    Some(match column {
        "beside" => ask::get_beside_writer::<S>() / 1e6,
        "update1" => ask::update::<S>(1, 1),
        "update64" => ask::update::<S>(1, 64),
        "listed" => ask::update_beside_list::<S>(0.99) / 1e3,
        "listed999" => ask::update_beside_list::<S>(0.999) / 1e3,
        "replace0" => ask::replace::<S>(0),
        "replace1" => ask::replace::<S>(1),
        "replace3" => ask::replace::<S>(3),
        "replaced" => ask::get_beside_replace::<S>() / 1e3,
        "writers1" => ask::updates_of_many::<S>(1, 0) / 1e3,
        "writers2" => ask::updates_of_many::<S>(2, 0) / 1e3,
        "writers4" => ask::updates_of_many::<S>(4, 0) / 1e3,
        "writers16" => ask::updates_of_many::<S>(16, 0) / 1e3,
        "indexed1" => ask::updates_of_many::<S>(1, 1) / 1e3,
        "indexed2" => ask::updates_of_many::<S>(2, 1) / 1e3,
        "indexed4" => ask::updates_of_many::<S>(4, 1) / 1e3,
        "indexed16" => ask::updates_of_many::<S>(16, 1) / 1e3,
        _ => return None,
    })
}

/// A structure: its name, and how it answers.
type Rival = (&'static str, fn(&str) -> Option<f64>);

fn rival<S: Read<Pod>, W: Store<Held>>() -> Rival {
    (S::NAME, |column| read::<S>(column).or_else(|| write::<W>(column)))
}

fn rivals() -> Vec<Rival> {
    vec![
        rival::<OneLock<Pod>, OneLock<Held>>(),
        rival::<Shards<Pod>, Shards<Held>>(),
        rival::<Papaya<Pod>, Papaya<Held>>(),
        rival::<Dash<Pod>, Dash<Held>>(),
        rival::<Hamt<Pod>, Hamt<Held>>(),
        rival::<Ours<Pod>, Standalone<Held>>(),
    ]
}

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rivals: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    if let [word, name, column] = args
        && word == "measure"
    {
        let (_, answer) = rivals().into_iter().find(|(n, _)| n == name).ok_or(format!("there is no {name}"))?;
        let figure = answer(column).ok_or(format!("{name} is not asked {column}"))?;
        println!("{figure}");
        return Ok(());
    }
    let (mut rounds, mut only, mut columns) = (5, Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        match &**arg {
            "--rounds" => rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
            "--only" => only = words(value()?),
            "--ask" => columns = words(value()?),
            other => return Err(format!("{other} is no option")),
        }
    }
    let names: Vec<_> =
        rivals().iter().map(|(name, _)| *name).filter(|n| only.is_empty() || only.iter().any(|o| o == n)).collect();
    println!("| question | unit | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    for Column(column, unit, says) in COLUMNS.iter().filter(|c| columns.is_empty() || columns.iter().any(|o| o == c.0)) {
        let mut figures = vec![Vec::new(); names.len()];
        for _ in 0..rounds {
            for (figures, name) in figures.iter_mut().zip(&names) {
                figures.extend(figure(name, column)?);
            }
        }
        let cells = figures.into_iter().map(|f| if f.is_empty() { "-".to_owned() } else { shown(ask::median(f)) });
        println!("| {column}: {says} | {unit} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// `None` when the structure is not asked this.
fn figure(name: &str, column: &str) -> Result<Option<f64>, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = match column.strip_prefix("bytes") {
        // Counting costs time, so another program does it.
        Some(indices) => {
            let mut command = Command::new(me.with_file_name("bytes"));
            command.args([name, indices, "structure"]);
            command
        }
        None => {
            let mut command = Command::new(me);
            command.args(["measure", name, column]);
            command
        }
    };
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).trim().parse().map(Some).map_err(|e| format!("{command:?}: {e}")),
        false if said.contains("is not asked") => Ok(None),
        false => Err(format!("{command:?}: {}\n{said}", output.status)),
    }
}

fn shown(figure: f64) -> String {
    match figure {
        f if f >= 100.0 => format!("{f:.0}"),
        f if f >= 10.0 => format!("{f:.1}"),
        f => format!("{f:.2}"),
    }
}
