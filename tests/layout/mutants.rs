//! Every model stands beside at least one mutant: a model that was never seen to fail proves nothing. That each place of
//! the tree is such a mutant, and is rejected, is the stage `.ci/mutants`.

use super::{File, files, none, planted};
use crate::lexer::{Token, end_of_group};

/// Tests that run a model (or histories) and nothing that it must reject.
fn unaccompanied(f: &File) -> Vec<String> {
    let mut out = Vec::new();
    let calls = |t: &[Token], names: &[&str]| t.windows(2).any(|w| names.iter().any(|n| w[0].is(n)) && w[1].sign('('));
    for i in 0..f.all.len() {
        let is_test = f.all[i].is("fn") && f.all[..i].iter().rev().take_while(|t| !t.sign('}')).any(|t| t.is("test"));
        let Some(open) = (i..f.all.len()).find(|&j| f.all[j].sign('{')).filter(|_| is_test) else { continue };
        let body = &f.all[open..end_of_group(&f.all, open)];
        if calls(body, &["model", "histories"]) && !calls(body, &["rejects", "refutes"]) {
            let name = f.all.get(i + 1).and_then(Token::word).unwrap_or_default();
            out.push(f.finding(f.all[i].line, &format!("`{name}` runs a model, and no mutant that it must reject")));
        }
    }
    out
}

#[test]
fn every_model_stands_beside_a_mutant() {
    let all: Vec<File> = ["src", "loom-tests/tests"].iter().flat_map(|dir| files(dir)).collect();
    none(all.iter().filter(|f| !f.name.starts_with("src/sync/prove/")).flat_map(unaccompanied));
}

#[test]
fn planted_models_without_a_mutant_are_found() {
    let bad =
        ["#[test] fn it_holds() { prove::model(\"a\", None, world); } fn f() { prove::rejects(\"b\", \"c\", None, || ()); }"];
    let good = [
        "#[test] fn it_holds() { prove::model(\"a\", None, world); prove::rejects(\"b\", \"c\", None, || world()); }",
        "#[test] fn it_holds() { prove::model(\"a\", None, world); for p in [\"b\"] { rejects(p, \"c\", None, || world()); } }",
        "fn world() { prove::model(\"a\", None, world); }",
    ];
    planted(unaccompanied, "src/ring/model.rs", &bad, &good);
}
