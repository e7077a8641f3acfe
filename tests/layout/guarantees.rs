//! docs/GUARANTEES.md: assembled from docs/guarantees/, complete, and nothing in it without a check that exists.
//!
//! * Every public operation of a concurrent type has a row; every public type with operations is either concurrent (has
//!   rows) or stands in its room's line of those without shared state.
//! * Every check that a row names is a test of the tree.
//! * Who claims progress, in a row, in the documentation of the code or in the README, names a freeze test there.

use super::{File, ROOMS, files, none, planted, read, root};
use crate::lexer::{Kind, Token, end_of_group};
use std::{collections::BTreeSet, env, fs};

/// Rooms whose operations have no rows yet. Becomes shorter only.
const WITHOUT_ROWS: &[&str] = &[];

/// What a row may say of an operation's progress; the head of docs/GUARANTEES.md explains the words. The first two are
/// claims.
const PROGRESS: [&str; 7] = ["wait-free", "lock-free", "loads", "short lock", "turn", "waits", "works here"];

/// Words that claim progress in prose, in lower case.
const CLAIMS: [&str; 8] =
    ["lock-free", "lockfree", "wait-free", "waitfree", "non-blocking", "never waits", "never blocks", "*blocks*: never"];

/// Traits of the crate whose methods are operations of whoever implements them.
const DOORS: [&str; 5] = ["Drop", "Synced", "DeltaSink", "KnownObjects", "ListerWatcher"];

/// An operation: a method that users can call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Operation {
    /// `Type::method`.
    name: String,
    public: bool,
    at: String,
}

/// A row of a room's table.
struct Row<'a> {
    operations: Vec<&'a str>,
    progress: &'a str,
    checks: Vec<&'a str>,
    line: &'a str,
}

/// What users of the crate do not see.
fn hidden(f: &File) -> bool {
    f.module.iter().any(|m| m == "prove") || ["src/sync/loom.rs", "src/sync/shuttle.rs"].contains(&f.name.as_str())
}

/// Types that the file declares `pub`.
fn public_types(f: &File) -> BTreeSet<String> {
    let declares = |w: &&[Token]| w[0].is("pub") && ["struct", "enum", "union"].iter().any(|k| w[1].is(k));
    f.code.windows(3).filter(declares).filter_map(|w| Some(w[2].word()?.to_owned())).collect()
}

/// The index behind generics that open at `i`, if they do.
fn end_of_generics(t: &[Token], i: usize) -> usize {
    let (mut open, mut j) = (0usize, i);
    while j < t.len() {
        match t[j].kind {
            Kind::Sign('<') => open += 1,
            // Not the arrow of a closure's bound.
            Kind::Sign('>') if !t[j - 1].sign('-') => open -= 1,
            _ => {}
        }
        if open == 0 {
            return if j == i { i } else { j + 1 };
        }
        j += 1;
    }
    j
}

/// The last word of the path that begins a type or a bound.
fn last_of_path(t: &[Token]) -> Option<&str> {
    let path = t.iter().skip_while(|t| t.sign('&'));
    let path = path.take_while(|t| (t.word().is_some() && !t.is("where")) || t.kind == Kind::Path);
    path.filter_map(Token::word).last()
}

/// Methods of the file's types: its own, and those of the traits that are doors.
fn operations(f: &File) -> Vec<Operation> {
    let (t, mut out, mut i) = (&f.code, Vec::new(), 0);
    while i < t.len() {
        // `impl` of a block, not of a type in an argument.
        let item = i == 0 || t[i - 1].sign('}') || t[i - 1].sign(';') || t[i - 1].sign(']') || t[i - 1].sign('{');
        if !t[i].is("impl") || !item {
            i += 1;
            continue;
        }
        let begin = end_of_generics(t, i + 1);
        let mut open = begin;
        while open < t.len() && !t[open].sign('{') {
            open = if t[open].sign('(') { end_of_group(t, open) } else { open + 1 };
        }
        let end = if open < t.len() { end_of_group(t, open) } else { t.len() };
        let head = &t[begin..open.min(t.len())];
        let split = (0..head.len()).find(|&j| head[j].is("for") && !head.get(j + 1).is_some_and(|t| t.sign('<')));
        let of = last_of_path(split.map_or(head, |j| &head[j + 1..]));
        let door = split.map(|j| last_of_path(&head[..j])).map(|name| name.is_some_and(|name| DOORS.contains(&name)));
        if let (Some(of), Some(true) | None) = (of, door) {
            methods(&t[open..end], |name, public, line| {
                let at = format!("{}:{line}", f.name);
                out.push(Operation { name: format!("{of}::{name}"), public: public || door.is_some(), at });
            });
        }
        i = end;
    }
    out
}

/// The functions of a block that are given something of its type (others make one), not those inside of functions.
fn methods(block: &[Token], mut found: impl FnMut(&str, bool, usize)) {
    let mut i = 1;
    while i < block.len() {
        if block[i].is("fn") {
            let mut before = i;
            while before > 0 && ["const", "unsafe", "async", "extern"].iter().any(|w| block[before - 1].is(w)) {
                before -= 1;
            }
            let name = block.get(i + 1).and_then(Token::word).unwrap_or_default();
            let open = end_of_generics(block, i + 2);
            let arguments = &block[open.min(block.len())..end_of_group(block, open)];
            if arguments.iter().any(|t| t.is("self") || t.is("Self")) {
                found(name, block[before - 1].is("pub"), block[i].line);
            }
        }
        i = if block[i].sign('{') || block[i].sign('(') { end_of_group(block, i) } else { i + 1 };
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of a document: lines of a table whose first cell names operations.
fn rows(document: &str) -> Vec<Row<'_>> {
    let row = |line: &'_ str| -> Option<(usize, Vec<usize>)> {
        let cells: Vec<usize> = line.match_indices('|').map(|(i, _)| i).collect();
        (cells.len() == 6 && line.starts_with("| `")).then_some((line.len(), cells))
    };
    let lines = document.lines().filter_map(|line| row(line).map(|(_, bars)| (line, bars)));
    lines
        .map(|(line, bars)| {
            let cell = |n: usize| line[bars[n] + 1..bars[n + 1]].trim();
            Row { operations: quoted(cell(0)), progress: cell(3), checks: quoted(cell(4)), line }
        })
        .filter(|row| row.operations.iter().all(|o| o.contains("::")))
        .collect()
}

/// Types of the document's line of those without shared state.
fn plain(document: &str) -> BTreeSet<&str> {
    let paragraphs = document.split("\n\n").filter(|p| p.starts_with("No shared state:"));
    paragraphs.flat_map(quoted).collect()
}

/// Names of tests, each `file::function`.
pub(super) fn tests(files: &[File]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for f in files {
        // A module of a file of tests is a check as well: all that is in it.
        if f.code.is_empty() {
            let module = |w: &&[Token]| w[0].is("mod") && w[2].sign('{');
            out.extend(f.all.windows(3).filter(module).filter_map(|w| Some(format!("{}::{}", f.name, w[1].word()?))));
        }
        for i in (0..f.all.len()).filter(|&i| f.all[i].is("fn")) {
            let marked = f.all[..i].iter().rev().take_while(|t| !t.sign('}') && !t.sign(';') && !t.sign('{'));
            let attribute = marked.clone().any(|t| t.is("test"));
            // Those of `with_each_engine!`, which makes two tests of each.
            let each = f.all.get(i + 3).is_some_and(|t| t.is("engine")) && f.all.get(i + 4).is_some_and(|t| t.sign(')'));
            if let (true, Some(name)) = (attribute || each, f.all.get(i + 1).and_then(Token::word)) {
                out.insert(format!("{}::{name}", f.name));
            }
        }
    }
    out
}

/// A room's document against its code.
fn complete(room: &str, document: &str, src: &[File], tests: &BTreeSet<String>) -> Vec<String> {
    let mut out = Vec::new();
    let mine = || src.iter().filter(|f| f.room() == Some(room) && !hidden(f));
    let (rows, plain) = (rows(document), plain(document));
    let types: BTreeSet<String> = mine().flat_map(public_types).collect();
    let all: Vec<Operation> = mine().flat_map(operations).collect();
    let known: BTreeSet<&str> = all.iter().map(|o| o.name.as_str()).collect();
    let named: BTreeSet<&str> = rows.iter().flat_map(|r| r.operations.iter().copied()).collect();
    let concurrent: BTreeSet<&str> = named.iter().filter_map(|o| Some(o.split_once("::")?.0)).collect();
    let place = format!("docs/guarantees/{room}.md");

    for operation in all.iter().filter(|o| o.public) {
        let of = operation.name.split("::").next().unwrap_or_default();
        let missing = concurrent.contains(of) && !named.contains(operation.name.as_str());
        if types.contains(of) && missing {
            out.push(format!("{}: `{}` has no row in {place}", operation.at, operation.name));
        }
        if types.contains(of) && !concurrent.contains(of) && !plain.contains(of) {
            out.push(format!(
                "{}: `{of}` has neither rows nor a place among those without shared state in {place}",
                operation.at
            ));
        }
    }
    out.extend(named.iter().filter(|o| !known.contains(**o)).map(|o| format!("{place}: there is no `{o}`")));
    out.extend(plain.iter().filter(|p| !types.contains(**p)).map(|p| format!("{place}: there is no public `{p}`")));
    out.extend(plain.intersection(&concurrent).map(|p| format!("{place}: `{p}` has rows, so it has shared state")));
    for row in &rows {
        if !PROGRESS.iter().any(|p| row.progress.starts_with(p)) {
            out.push(format!("{place}: `{}` is no progress that the head explains, in {}", row.progress, row.line));
        }
        if row.checks.is_empty() {
            out.push(format!("{place}: no check in {}", row.line));
        }
        let claims = row.progress.starts_with(PROGRESS[0]) || row.progress.starts_with(PROGRESS[1]);
        if claims && !row.checks.iter().any(|c| c.contains("/freeze.rs::")) {
            out.push(format!("{place}: a claim of progress without a freeze test, in {}", row.line));
        }
    }
    out.extend(named_tests(&place, document, tests));
    out
}

/// Tests that a document names and nobody wrote.
fn named_tests(place: &str, document: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let names = quoted(document).into_iter().filter(|q| q.contains(".rs::"));
    names.filter(|q| !tests.contains(*q)).map(|q| format!("{place}: there is no test `{q}`")).collect()
}

/// Claims of progress in the comments of a file without a freeze test in the same comment.
fn claims(f: &File) -> Vec<String> {
    let mut out = Vec::new();
    let mut comment: Vec<(usize, &str)> = Vec::new();
    let test_code = f.module.iter().skip(1).any(|m| ["tests", "model", "freeze", "lin", "prove"].contains(&m.as_str()));
    for (i, line) in f.text.lines().map(str::trim_start).chain([""]).enumerate() {
        if line.starts_with("//") && !test_code {
            comment.push((i + 1, line));
            continue;
        }
        let text =
            comment.iter().map(|(_, l)| l.trim_start_matches(['/', '!', ' '])).collect::<Vec<_>>().join(" ").to_lowercase();
        for claim in CLAIMS.iter().filter(|c| text.contains(**c)) {
            let denied = text.contains(&format!("not {claim}"));
            if !text.contains("freeze.rs") && !denied {
                out.push(f.finding(comment[0].0, &format!("\"{claim}\" is claimed, and no freeze test is named beside it")));
            }
        }
        comment.clear();
    }
    out
}

/// The same of a document: a claim and its test stand in one paragraph, or in one row.
fn claims_of_prose(name: &str, document: &str) -> Vec<String> {
    let mut out = Vec::new();
    for paragraph in document.split("\n\n") {
        let table = paragraph.starts_with('|');
        let pieces: Vec<&str> = if table { paragraph.lines().skip(2).collect() } else { vec![paragraph] };
        for piece in pieces {
            let text = piece.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            for claim in CLAIMS.iter().filter(|c| text.contains(**c)) {
                if !text.contains("freeze.rs") && !text.contains(".ci/freeze") {
                    out.push(format!("{name}: \"{claim}\" is claimed, and no freeze test is named beside it: {piece}"));
                }
            }
        }
    }
    out
}

/// docs/GUARANTEES.md as its parts make it.
fn assembled() -> String {
    let part = |name: &str| read(&format!("docs/guarantees/{name}.md")).trim_end().to_owned();
    let mut parts = vec![part("HEAD")];
    parts.extend(documented().map(part));
    parts.push(part("STAND-INS"));
    let note = "<!-- Made of docs/guarantees/ by tests/layout/guarantees.rs; `INFORMER_BLESS=1 cargo test --test layout` makes it anew. -->";
    format!("{note}\n\n{}\n", parts.join("\n\n"))
}

/// Rooms that have a document, in the order of the flow.
fn documented() -> impl Iterator<Item = &'static str> {
    let there = |room: &&str| root().join(format!("docs/guarantees/{room}.md")).exists();
    ROOMS.iter().map(|(room, _)| *room).filter(there)
}

fn everything() -> Vec<File> {
    ["src", "tests", "loom-tests/tests", "kube-tests/tests"].iter().flat_map(|dir| files(dir)).collect()
}

#[test]
fn the_guarantees_are_assembled_of_their_parts() {
    let (want, place) = (assembled(), root().join("docs/GUARANTEES.md"));
    if env::var_os("INFORMER_BLESS").is_some() {
        fs::write(&place, &want).unwrap();
    }
    let is = fs::read_to_string(&place).unwrap_or_default();
    assert!(is == want, "docs/GUARANTEES.md is not what docs/guarantees/ says; INFORMER_BLESS=1 makes it anew");
}

#[test]
fn every_operation_of_a_concurrent_type_has_its_guarantee_and_its_check() {
    let (src, all) = (files("src"), everything());
    let tests = tests(&all);
    let rooms: BTreeSet<&str> = src.iter().filter_map(File::room).collect();
    let mut out = Vec::new();
    for room in rooms {
        let name = format!("docs/guarantees/{room}.md");
        match (root().join(&name).exists(), WITHOUT_ROWS.contains(&room)) {
            (true, false) => out.extend(complete(room, &read(&name), &src, &tests)),
            (true, true) => out.push(format!("`{room}` has rows now: take it off the list in tests/layout/guarantees.rs")),
            (false, false) => out.push(format!("`{room}` has no {name}")),
            (false, true) => {}
        }
    }
    for part in ["HEAD", "STAND-INS"] {
        let name = format!("docs/guarantees/{part}.md");
        out.extend(named_tests(&name, &read(&name), &tests));
    }
    none(out);
}

#[test]
fn nobody_claims_progress_without_a_freeze_test() {
    none(files("src").iter().flat_map(claims));
    none(["README.md", "docs/ARCHITECTURE.md"].iter().flat_map(|name| claims_of_prose(name, &read(name))));
}

// ---- planted offences ------------------------------------------------------------------------------------------------

#[test]
fn planted_gaps_in_the_guarantees_are_found() {
    let code = "pub struct Queue<K: Fn() -> u8>(K); pub struct Text(u8); struct Own(u8);
        impl<K: Fn() -> u8> Queue<K> where K: Copy { pub fn add(&self, f: impl Fn() -> u8) { fn inner() {} } pub(crate) fn look(&self) {} fn own(&self) {} }
        impl<K> Drop for Queue<K> { fn drop(&mut self) {} }
        impl<K> fmt::Debug for Queue<K> { fn fmt(&self) {} }
        impl<K: for<'a> Fn(&'a u8)> crate::sync::Synced for Queue<K> { fn has_synced(&self) {} }
        impl Text { pub const fn len(&self) {} pub fn new(n: u8) -> Self {} } impl Own { pub fn f(&self) {} }";
    let src = [File::new("src/queue/mod.rs", code)];
    let proofs = [
        File::new("src/queue/tests.rs", "#[test] fn it_holds() {} fn helper() {}"),
        File::new("src/queue/freeze.rs", "#[test] #[allow(x)] fn nobody_waits() {}"),
        File::new("tests/p.rs", "with_each_engine! { fn p1_it_holds(engine) {} }"),
    ];
    let tests = tests(&proofs);
    assert_eq!(tests.len(), 3, "{tests:?}");
    let check = |document: &str| complete("queue", document, &src, &tests);
    let row = |o: &str, progress: &str, check: &str| format!("| {o} | nothing | its own | {progress} | {check} |\n");
    let good = row("`Queue::add`, `Queue::look`", "lock-free, given luck", "`src/queue/freeze.rs::nobody_waits`")
        + &row("`Queue::drop`, `Queue::has_synced`", "short lock", "`src/queue/tests.rs::it_holds`, `tests/p.rs::p1_it_holds`")
        + "\nNo shared state: `Text`.\n";
    assert_eq!(check(&good), Vec::<String>::new());
    let offences = [
        ("`Queue::add`, ", ""),
        ("`Queue::drop`, ", ""),
        (", `Queue::has_synced`", ""),
        ("`Queue::look`", "`Queue::looks`"),
        ("No shared state: `Text`.", ""),
        ("`Text`", "`Text`, `Own`"),
        ("`Text`", "`Text`, `Queue`"),
        ("short lock", "quick"),
        ("`src/queue/freeze.rs::nobody_waits`", "`src/queue/tests.rs::it_holds`"),
        ("`src/queue/freeze.rs::nobody_waits`", "`src/queue/freeze.rs::nobody_waits`, `src/queue/tests.rs::helper`"),
        ("`src/queue/tests.rs::it_holds`, `tests/p.rs::p1_it_holds`", "by eye"),
    ];
    for (good_part, bad_part) in offences {
        let found = check(&good.replace(good_part, bad_part));
        assert_eq!(found.len(), 1, "{good_part:?} as {bad_part:?}: {found:?}");
    }
}

#[test]
fn planted_claims_are_found() {
    let bad = [
        "/// Adds. *Blocks*: never.\nfn f() {}",
        "//! Reads are lock-free.\n",
        "/// Never\n/// waits for anybody.\nfn f() {}",
        "fn f() {\n    // wait-free\n}\n// freeze.rs is named elsewhere",
    ];
    let good = [
        "/// Adds. *Blocks*: never (`queue/freeze.rs::x`).\nfn f() {}",
        "/// It is not wait-free.\nfn f() {}",
        "/// *Blocks*: briefly.\nconst S: &str = \"lock-free\";",
    ];
    planted(claims, "src/queue/mod.rs", &bad, &good);
    planted(claims, "src/queue/freeze.rs", &[], &bad);
    let found = |text: &str| claims_of_prose("README.md", text).len();
    assert_eq!(found("Reads are lock-free.\n\nSee `a/freeze.rs::b`."), 1);
    assert_eq!(found("Reads are\nlock-free: `a/freeze.rs::b`."), 0);
    assert_eq!(found("| what | why |\n|---|---|\n| lock-free | |\n| lock-free | `a/freeze.rs::b` |"), 1);
}
