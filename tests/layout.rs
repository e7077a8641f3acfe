//! The house rules that a compiler does not check: who may import whom, who may touch threads and time, where `unsafe`
//! is allowed, what every room still lacks. Each rule is a function from text to findings; for each there is a planted
//! offence that it must report.

#[path = "layout/guarantees.rs"]
mod guarantees;
#[path = "layout/lexer.rs"]
mod lexer;
#[path = "layout/mutants.rs"]
mod mutants;

use lexer::{Kind, Path, Token, end_of_group, paths, tokens, without_tests};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path as FilePath,
};

/// The rooms with their ranks, in the order of the flow. A room imports rooms of lower rank only.
const ROOMS: &[(&str, u8)] = &[
    // The bed.
    ("flow", 1),
    ("metrics", 1),
    ("sync", 0),
    // The river.
    ("source", 2),
    ("reflector", 3),
    ("queue", 3),
    ("store", 3),
    ("ring", 3),
    ("processor", 4),
    ("workqueue", 3),
    ("controller", 6),
    // Where it meets, and what it is run against.
    ("informer", 5),
    ("memory", 4),
    ("kube", 7),
];

/// The only files that may say `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "src/flow/object.rs",
    "src/ring/segment.rs",
    "src/store/cell.rs",
    "src/store/node.rs",
    "src/store/typed.rs",
    "src/sync/loom.rs",
    "src/sync/shuttle.rs",
];

/// How many checks are waived in docs/WAIVERS.md. Goes down only.
const WAIVED: usize = 23;

/// Linux cuts longer names.
const THREAD_NAME: usize = 15;

fn rank(room: &str) -> Option<u8> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, rank)| *rank)
}

/// A source file of the crate.
struct File {
    name: String,
    /// The path of its module, the room first. Empty for `lib.rs`.
    module: Vec<String>,
    all: Vec<Token>,
    /// Without what only test builds have.
    code: Vec<Token>,
    text: String,
}

impl File {
    fn new(name: &str, text: &str) -> Self {
        let inner = name.strip_prefix("src/").and_then(|n| n.strip_suffix(".rs")).unwrap_or(name);
        let module: Vec<String> = inner.split('/').filter(|s| *s != "mod" && *s != "lib").map(str::to_owned).collect();
        let all = tokens(text);
        let tests_only = module.iter().skip(1).any(|m| ["tests", "model", "freeze", "lin"].contains(&m.as_str()));
        let code = if tests_only { Vec::new() } else { without_tests(&all) };
        Self { name: name.to_owned(), module, all, code, text: text.to_owned() }
    }

    fn room(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    fn finding(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.name)
    }
}

// ---- the rules -------------------------------------------------------------------------------------------------------

/// Imports go down.
fn imports(f: &File) -> Vec<String> {
    let Some(room) = f.room() else { return Vec::new() };
    let Some(own) = rank(room) else {
        return vec![f.finding(1, &format!("the room `{room}` has no rank in tests/layout.rs"))];
    };
    let mut out = Vec::new();
    for path in paths(&f.code, &["crate"]) {
        let target = path.segments.get(1).map_or("", String::as_str);
        let what = match rank(target) {
            _ if target == room => continue,
            Some(rank) if rank < own => continue,
            Some(rank) => format!("`{room}` has rank {own} and may not import `{target}` of rank {rank}"),
            None => format!("`{}` names no room", path.segments.join("::")),
        };
        out.push(f.finding(path.line, &what));
    }
    for path in paths(&f.code, &["super"]) {
        let up = path.segments.iter().take_while(|s| *s == "super").count();
        if up >= f.module.len() + path.depth {
            out.push(f.finding(path.line, &format!("`{}` leaves the room; write `crate::..`", path.segments.join("::"))));
        }
    }
    for pair in f.code.windows(2).filter(|w| w[0].is("extern") && w[1].is("crate")) {
        out.push(f.finding(pair[0].line, "`extern crate` hides where a path goes"));
    }
    out
}

/// Threads, locks and time come from the facade, tests of the rooms included.
fn facade(f: &File) -> Vec<String> {
    if f.room() == Some("sync") {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut report = |line, what: &str| out.push(f.finding(line, &format!("{what} outside of src/sync")));
    let hidden = |p: &Path| p.segments.get(1).is_some_and(|s| s == "sync" || s == "thread" || s == "thread_local" || s == "*");
    for path in paths(&f.all, &["std", "core", "alloc"]).iter().filter(|p| hidden(p)) {
        report(path.line, &format!("`{}`", path.segments.join("::")));
    }
    let own_cells = paths(&f.all, &["crate"]).iter().any(|p| p.segments[1..] == ["sync", "thread_local"]);
    for (i, t) in f.all.iter().enumerate() {
        let Some(word) = t.word() else { continue };
        let next = |n: usize| f.all.get(i + n);
        let calls = next(1).is_some_and(|t| t.sign('('));
        let defined = i > 0 && f.all[i - 1].is("fn");
        let through = |name: &str| next(1).is_some_and(|t| t.kind == Kind::Path) && next(2).is_some_and(|t| t.is(name));
        match word {
            "parking_lot" | "SystemTime" => report(t.line, &format!("`{word}`")),
            "Instant" if through("now") => report(t.line, "`Instant::now`"),
            "thread" if through("sleep") => report(t.line, "`thread::sleep`"),
            "sleep" | "sleep_ms" | "sleep_until" if calls && !defined => report(t.line, &format!("`{word}(`")),
            "thread_local" if next(1).is_some_and(|t| t.sign('!')) && !own_cells => {
                report(t.line, "std's `thread_local!` (use the facade's)");
            }
            _ => {}
        }
    }
    out
}

/// `unsafe` only where it is expected; applies to tests, benches and examples as well.
fn no_unsafe(f: &File) -> Vec<String> {
    if UNSAFE_FILES.contains(&f.name.as_str()) {
        return Vec::new();
    }
    let named = |t: &&Token| t.is("unsafe") || (t.is("unsafe_code") && f.module != [""; 0]);
    f.all.iter().filter(named).map(|t| f.finding(t.line, "`unsafe` outside of the rooms that may")).collect()
}

/// Names of threads, as far as they are written out, are not cut by the system.
fn thread_names(f: &File) -> Vec<String> {
    let mut out = Vec::new();
    for i in 1..f.code.len() {
        let opens = f.code.get(i + 1).is_some_and(|t| t.sign('('));
        if !f.code[i].is("spawn") || !opens || f.code[i - 1].is("fn") || f.code[i - 1].sign('.') {
            continue;
        }
        let call = &f.code[i + 2..end_of_group(&f.code, i + 1)];
        // The first text of the call is the name, or the pattern it is made from.
        let before_body = call.iter().take_while(|t| !t.sign('|') && !t.is("move"));
        for t in before_body {
            if let Kind::Str(name) = &t.kind {
                let fixed: String = name.split(['{', '}']).step_by(2).collect();
                if fixed.len() > THREAD_NAME || fixed.is_empty() {
                    out.push(f.finding(t.line, &format!("the thread name {name:?} must have 1 to {THREAD_NAME} bytes")));
                }
                break;
            }
        }
    }
    out
}

/// What is not meant to stay.
fn leftovers(f: &File) -> Vec<String> {
    let mut out = Vec::new();
    if !f.text.starts_with("//!") {
        out.push(f.finding(1, "a file begins with its argument (`//!`)"));
    }
    for (i, line) in f.text.lines().enumerate() {
        if ["TODO", "FIXME", "XXX"].iter().any(|mark| line.contains(mark)) {
            out.push(f.finding(i + 1, "unfinished business"));
        }
    }
    for pair in f.all.windows(2) {
        if ["todo", "unimplemented", "dbg"].iter().any(|w| pair[0].is(w)) && pair[1].sign('!') {
            out.push(f.finding(pair[0].line, "unfinished business"));
        }
        if pair[0].sign('[') && pair[1].is("ignore") {
            out.push(f.finding(pair[0].line, "a test that does not run"));
        }
    }
    out
}

/// `lib.rs` lists every room, in the order of the flow.
fn order_of_rooms(lib: &File, rooms: &BTreeSet<String>) -> Vec<String> {
    let mut out = Vec::new();
    let mut listed = BTreeSet::new();
    let mut last = 0;
    for w in lib.code.windows(3).filter(|w| w[0].is("mod") && w[2].sign(';')) {
        let name = w[1].word().unwrap_or_default();
        listed.insert(name.to_owned());
        match ROOMS.iter().position(|(room, _)| *room == name) {
            None => out.push(lib.finding(w[0].line, &format!("the room `{name}` is not in the table of tests/layout.rs"))),
            Some(at) if at < last => {
                out.push(lib.finding(w[0].line, &format!("`{name}` comes before `{}` in the flow", ROOMS[last].0)));
            }
            Some(at) => last = at,
        }
    }
    out.extend(rooms.symmetric_difference(&listed).map(|r| format!("src/lib.rs: `{r}` is a room or a `mod`, but not both")));
    out
}

/// The documents and the manifest tell the same oldest Rust.
fn oldest_rust(manifest: &str, document: &str) -> Vec<String> {
    let declared = manifest.lines().find_map(|l| l.strip_prefix("rust-version = ")).map(|v| v.trim_matches('"'));
    let Some(declared) = declared else { return vec!["Cargo.toml: no rust-version".to_owned()] };
    let told: Vec<String> = document
        .split("Rust ")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>())
        .map(|v| v.trim_end_matches('.').to_owned())
        .filter(|v| v.contains('.'))
        .collect();
    if told.is_empty() {
        return vec![format!("the document does not say `Rust {declared}`")];
    }
    let wrong = told.iter().filter(|v| *v != declared);
    wrong.map(|v| format!("the document says Rust {v}, Cargo.toml {declared}")).collect()
}

/// A room has a model, a bench and a fuzz target, or is waived, by name, with what it lacks; nothing that is there is
/// waived, and the list does not grow.
fn waivers(has: &BTreeMap<String, BTreeSet<&str>>, document: &str, most: usize) -> Vec<String> {
    const CHECKS: [&str; 3] = ["model", "bench", "fuzz"];
    let mut waived: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut out = Vec::new();
    for row in document.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let room = cells[1].trim_matches('`');
        let lacks: BTreeSet<&str> = cells.get(2).unwrap_or(&"").split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
        if let Some(odd) = lacks.iter().find(|l| !CHECKS.contains(l)) {
            out.push(format!("docs/WAIVERS.md: `{room}` cannot lack `{odd}`"));
        }
        if !has.contains_key(room) || waived.insert(room, lacks).is_some() {
            out.push(format!("docs/WAIVERS.md: `{room}` is no room, or stands there twice"));
        }
    }
    let count: usize = waived.values().map(BTreeSet::len).sum();
    if count != most {
        out.push(format!("docs/WAIVERS.md waives {count} checks, not {most}; the number in tests/layout.rs goes down only"));
    }
    for (room, has) in has {
        let waived = waived.get(room.as_str()).cloned().unwrap_or_default();
        for check in CHECKS {
            match (has.contains(check), waived.contains(check)) {
                (false, false) => out.push(format!("`{room}` lacks a {check} and is not waived in docs/WAIVERS.md")),
                (true, true) => out.push(format!("`{room}` has a {check} now: take it out of docs/WAIVERS.md")),
                _ => {}
            }
        }
    }
    out
}

/// Each test that the tables of the README name exists.
fn promises(document: &str, files: &[File]) -> Vec<String> {
    let tests = guarantees::tests(files);
    let named = document.lines().filter(|l| l.starts_with('|')).flat_map(|row| row.split('`').skip(1).step_by(2));
    let missing = named.filter(|code| code.contains(".rs::") && !tests.contains(*code));
    missing.map(|code| format!("README.md: there is no test `{code}`")).collect()
}

// ---- the crate -------------------------------------------------------------------------------------------------------

fn root() -> &'static FilePath {
    FilePath::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Every `.rs` file under `dir`, by its name from the root of the repository.
fn files(dir: &str) -> Vec<File> {
    let mut out = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(root().join(&dir)) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            let name = format!("{dir}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                dirs.push(name);
            } else if name.ends_with(".rs") {
                out.push(File::new(&name, &read(&name)));
            }
        }
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

fn rooms(src: &[File]) -> BTreeSet<String> {
    src.iter().filter_map(File::room).map(str::to_owned).collect()
}

#[track_caller]
fn none(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

#[test]
fn imports_go_to_lower_ranks_only() {
    none(files("src").iter().flat_map(imports));
}

#[test]
fn only_the_facade_touches_threads_locks_and_time() {
    none(files("src").iter().flat_map(facade));
}

#[test]
fn unsafe_stays_in_its_files() {
    let all = ["src", "tests", "examples", "benches"];
    none(all.iter().flat_map(|dir| files(dir)).flat_map(|f| no_unsafe(&f)));
    assert!(read("src/lib.rs").contains("#![deny(unsafe_code)]"));
}

#[test]
fn thread_names_fit() {
    none(files("src").iter().flat_map(thread_names));
}

#[test]
fn nothing_is_left_over() {
    none(files("src").iter().flat_map(leftovers));
}

#[test]
fn the_rooms_stand_in_the_order_of_the_flow() {
    let src = files("src");
    let lib = src.iter().find(|f| f.name == "src/lib.rs").unwrap();
    none(order_of_rooms(lib, &rooms(&src)));
}

#[test]
fn readme_and_manifest_agree_on_the_oldest_rust() {
    none(oldest_rust(&read("Cargo.toml"), &read("README.md")));
}

#[test]
fn what_a_room_lacks_is_waived_and_nothing_else() {
    let src = files("src");
    let (benches, fuzz) = (files("benches"), files("fuzz/fuzz_targets"));
    // `benches/store.rs` and `benches/store_replace.rs` are benches of `store`.
    let covers = |f: &File, room: &str| {
        let stem = f.name.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        stem.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let mut has = BTreeMap::new();
    for room in rooms(&src) {
        let mut checks = BTreeSet::new();
        if src.iter().any(|f| f.name == format!("src/{room}/model.rs")) {
            checks.insert("model");
        }
        if benches.iter().any(|f| covers(f, &room)) {
            checks.insert("bench");
        }
        if fuzz.iter().any(|f| covers(f, &room)) {
            checks.insert("fuzz");
        }
        has.insert(room, checks);
    }
    none(waivers(&has, &read("docs/WAIVERS.md"), WAIVED));
}

#[test]
fn every_promise_of_the_readme_names_tests_that_exist() {
    let all: Vec<File> = ["src", "tests", "examples"].iter().flat_map(|dir| files(dir)).collect();
    none(promises(&read("README.md"), &all));
}

// ---- planted offences ------------------------------------------------------------------------------------------------

/// `rule` finds each of `bad` in a file called `name`, once, and nothing in any of `good`.
#[track_caller]
fn planted(rule: impl Fn(&File) -> Vec<String>, name: &str, bad: &[&str], good: &[&str]) {
    for text in bad {
        let found = rule(&File::new(name, text));
        assert_eq!(found.len(), 1, "in {text:?}: {found:?}");
    }
    for text in good {
        let found = rule(&File::new(name, text));
        assert!(found.is_empty(), "in {text:?}: {found:?}");
    }
}

#[test]
fn planted_imports_are_found() {
    let bad = [
        "use crate::store::Snapshot;",
        "use crate::{flow::Object, informer};",
        "use crate::{flow::{Delta, Object}, sync::{Arc, Mutex}, ring::{ring}};",
        "fn f() { crate::memory::Server::new(); }",
        "fn f(x: &crate::controller::Action) {}",
        "macro_rules! m { () => { $crate::processor::f() } }",
        "use crate::*;",
        "use crate as c;",
        "use crate::nowhere::X;",
        "use super::super::store;",
        "mod inner { use super::super::super::X; }",
        "pub(in crate::kube) fn f() {}",
        "#[cfg(not(test))] use crate::store::X;",
        "#[cfg(any(test, unix))] use crate::store::X;",
        "#[cfg(test)] use crate::flow::X; use crate::store::Y;",
        "#[cfg(test)] mod tests { fn f() {} } use crate::store::Y;",
        "struct S { #[cfg(test)] a: u8, b: crate::store::X }",
        "extern crate informer as me;",
        "/* /* nested */ */ use crate::store::X; // comment",
        "const Q: char = '\"'; use crate::store::X; const R: &str = \"\";",
        "fn f<'a>(x: &'a str) -> crate::store::X { '\\'' }",
        "const R: &str = r##\" \"# \"##; use crate::store::X;",
    ];
    let good = [
        "use crate::{flow::{self, Object}, source::*, sync};",
        "use super::taken::Taken; use crate::queue::X;",
        "mod inner { use super::super::X; }",
        "// use crate::store::X;",
        "/* use crate::store::X; */ /// [`crate::store`]",
        "const T: &str = \"use crate::store::X;\"; const R: &str = r#\"crate::store::\"X\"\"#;",
        "pub(crate) fn f() {}",
        "#[cfg(test)] use crate::store::X;",
        "#[cfg(all(test, unix))] #[allow(dead_code)] mod tests { use crate::{informer, store}; }",
        "#[cfg(test)] pub(crate) fn helper() -> crate::store::X { x() }",
        "#[cfg(test)] const X: crate::store::X = crate::store::X { a: 1 };",
        "#![cfg(test)] use crate::informer::X;",
        "fn f() { x.crate_store(); store::y(); a::crate_::b(); }",
    ];
    planted(imports, "src/queue/real_fifo.rs", &bad, &good);
    planted(imports, "src/queue/mod.rs", &["use super::store;"], &["use self::taken::Taken;"]);
    planted(imports, "src/store/tests/big.rs", &[], &["use crate::informer::X;"]);
    planted(imports, "src/metrics.rs", &["use crate::flow::X;"], &["use crate::sync::Arc;"]);
    planted(imports, "src/utils/mod.rs", &["fn f() {}"], &[]);
}

#[test]
fn planted_threads_locks_and_clocks_are_found() {
    let bad = [
        "use std::sync::Arc;",
        "use std::{fmt, sync::{atomic::AtomicU8}};",
        "use core::sync::atomic::AtomicU8;",
        "fn f() { ::std::thread::yield_now(); }",
        "use std::{thread};",
        "use std::*;",
        "use parking_lot::Mutex;",
        "fn f() { Instant::now(); }",
        "fn f() { std::time::Instant::now(); }",
        "fn f() -> SystemTime { x }",
        "fn f() { thread::sleep_a_bit(); sleep(d); }",
        "fn f() { clock.sleep(d); }",
        "thread_local! { static X: u8 = 1; }",
        "#[cfg(test)] mod tests { use std::thread; }",
    ];
    let good = [
        "use crate::sync::{Arc, thread_local}; thread_local! { static X: u8 = 1; }",
        "use std::time::{Duration, Instant};",
        "// std::thread::sleep(d)",
        "const S: &str = \"std::sync, sleep(1)\";",
        "fn f() { clock.now(); thread.join(); }",
        "use crate::sync::Instant; fn sleep() {}",
    ];
    planted(facade, "src/store/tests.rs", &bad, &good);
    planted(facade, "src/sync/std.rs", &[], &bad);
}

#[test]
fn planted_unsafe_is_found() {
    let bad = ["fn f() { unsafe { g() } }", "#[allow(unsafe_code)] mod m {}", "unsafe impl Send for X {}"];
    planted(no_unsafe, "src/ring/mod.rs", &bad, &["// unsafe", "const S: &str = \"unsafe\";"]);
    planted(no_unsafe, "tests/river.rs", &bad, &[]);
    planted(no_unsafe, "src/flow/object.rs", &[], &bad);
    planted(no_unsafe, "src/lib.rs", &[], &["#![deny(unsafe_code)]"]);
}

#[test]
fn planted_thread_names_are_found() {
    let bad = [
        "fn f() { spawn(&clock, \"sixteen bytes...\", move || {}); }",
        "fn f() { spawn(&clock, \"\", f); }",
        "fn f() { sync::spawn(&clock, &format!(\"much-too-long-{n}-x\"), f); }",
    ];
    let good = [
        "fn f() { spawn(&clock, \"fifteen bytes..\", move || {}); }",
        "fn f() { spawn(&clock, &format!(\"worker-{n}\"), f); }",
        "fn f() { spawn(&clock, name, move || log(\"a text of the body, not a name\")); }",
        "fn f() { informer.spawn(\"not a thread of the facade\"); }",
    ];
    planted(thread_names, "src/informer/shared.rs", &bad, &good);
}

#[test]
fn planted_leftovers_are_found() {
    let bad = ["use x;", "//! A.\n// TODO: b", "//! A.\nfn f() { todo!() }", "//! A.\n#[test]\n#[ignore]\nfn f() {}"];
    planted(leftovers, "src/queue/mod.rs", &bad, &["//! A.\nfn todo() {}"]);
}

#[test]
fn planted_disorder_is_found() {
    let rooms: BTreeSet<String> = ["flow", "sync", "store", "processor"].map(str::to_owned).into();
    let rule = |f: &File| order_of_rooms(f, &rooms);
    let bad = [
        "pub mod flow; pub mod sync; pub mod processor; pub mod store;",
        "pub mod flow; pub mod sync; pub mod store;",
        "pub mod flow; pub mod sync; pub mod store; mod processor; pub mod kube;",
    ];
    planted(rule, "src/lib.rs", &bad, &["pub mod flow; pub mod sync; pub mod store; mod processor; #[cfg(test)] mod x;"]);
    let rooms: BTreeSet<String> = ["flow", "utils"].map(str::to_owned).into();
    planted(|f| order_of_rooms(f, &rooms), "src/lib.rs", &["mod flow; mod utils;"], &[]);
}

#[test]
fn planted_versions_are_found() {
    let manifest = "rust-version = \"1.89\"\n";
    assert_eq!(oldest_rust(manifest, "needs Rust 1.89."), Vec::<String>::new());
    assert_eq!(oldest_rust(manifest, "needs Rust 1.89 (not Rust 1.88).").len(), 1);
    assert_eq!(oldest_rust(manifest, "only needs Rust").len(), 1);
    assert_eq!(oldest_rust("", "needs Rust 1.89").len(), 1);
}

#[test]
fn planted_waivers_are_found() {
    let has = BTreeMap::from([("store".to_owned(), BTreeSet::from(["bench"])), ("sync".to_owned(), BTreeSet::new())]);
    let check = |most, document: &str| waivers(&has, document, most).len();
    assert_eq!(check(5, "| `store` | model, fuzz |\n| `sync` | model, bench, fuzz |"), 0);
    assert_eq!(check(4, "| `store` | model, fuzz |\n| `sync` | model, bench, fuzz |"), 1, "one more than before");
    assert_eq!(check(6, "| `store` | model, fuzz |\n| `sync` | model, bench, fuzz |"), 1, "the number was not lowered");
    assert_eq!(check(4, "| `store` | model |\n| `sync` | model, bench, fuzz |"), 1, "store lacks a fuzz target");
    assert_eq!(check(6, "| `store` | model, bench, fuzz |\n| `sync` | model, bench, fuzz |"), 1, "store has a bench");
    assert_eq!(check(2, "| `store` | model, fuzz |"), 3, "sync is not waived");
    assert_eq!(check(6, "| `store` | model, fuzz, docs |\n| `sync` | model, bench, fuzz |"), 1, "docs is no check");
    assert_eq!(
        check(5, "| `store` | model, fuzz |\n| `sync` | model, bench, fuzz |\n| `attic` | model |"),
        1,
        "attic is no room"
    );
}

#[test]
fn planted_promises_are_found() {
    let tests = [File::new("src/ring/tests.rs", "#[test] fn it_holds() {}")];
    assert_eq!(promises("| it holds | `src/ring/tests.rs::it_holds` |", &tests), Vec::<String>::new());
    assert_eq!(promises("| it holds | `src/ring/tests.rs::it_holds_not` |", &tests).len(), 1);
    assert_eq!(promises("| it holds | `src/store/tests.rs::it_holds` |", &tests).len(), 1);
}
