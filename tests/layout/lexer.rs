//! Rust source as tokens: enough to tell code from comments and literals, tests from the rest, and to read paths.

/// One token and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: Kind,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A word: identifier, keyword or number.
    Word(String),
    /// The content of a string literal, escapes left as they are written.
    Str(String),
    /// `::`.
    Path,
    /// Any other sign, one at a time.
    Sign(char),
}

impl Token {
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(w) => Some(w),
            _ => None,
        }
    }

    pub fn is(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub fn sign(&self, c: char) -> bool {
        self.kind == Kind::Sign(c)
    }
}

/// A path as written or as imported, groups taken apart: `use a::{b, c::d}` is `a::b` and `a::c::d`.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub segments: Vec<String>,
    pub line: usize,
    /// How many inline modules of its file it stands in.
    pub depth: usize,
}

/// The tokens of `text` without comments.
pub fn tokens(text: &str) -> Vec<Token> {
    let c: Vec<char> = text.chars().collect();
    let at = |i: usize| c.get(i).copied().unwrap_or('\0');
    let word = |ch: char| ch.is_alphanumeric() || ch == '_';
    let (mut out, mut i, mut line) = (Vec::new(), 0, 1);
    while i < c.len() {
        let (start, begun) = (i, line);
        let mut kind = None;
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < c.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut open = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (open, i) = (open + 1, i + 2),
                        ('*', '/') => (open, i) = (open - 1, i + 2),
                        _ => i += 1,
                    }
                    if open == 0 || i >= c.len() {
                        break;
                    }
                }
            }
            '"' => {
                i = end_of_string(&c, i);
                kind = Some(Kind::Str(c[start + 1..i - 1].iter().collect()));
            }
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => {
                // A character; anything else after a quote is a lifetime.
                i += if at(i + 1) == '\\' { 3 } else { 2 };
                while i < c.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            ':' if at(i + 1) == ':' => {
                i += 2;
                kind = Some(Kind::Path);
            }
            ch if word(ch) => {
                while word(at(i)) {
                    i += 1;
                }
                let w: String = c[start..i].iter().collect();
                let hashes = (i..).take_while(|&j| at(j) == '#').count();
                if ["r", "br", "cr"].contains(&w.as_str()) && at(i + hashes) == '"' {
                    let open = i + hashes + 1;
                    let close = |j: usize| at(j) == '"' && (1..=hashes).all(|k| at(j + k) == '#');
                    let end = (open..c.len()).find(|&j| close(j)).unwrap_or(c.len());
                    kind = Some(Kind::Str(c[open..end].iter().collect()));
                    i = (end + 1 + hashes).min(c.len());
                } else if ["b", "c"].contains(&w.as_str()) && at(i) == '"' {
                    let open = i + 1;
                    i = end_of_string(&c, i);
                    kind = Some(Kind::Str(c[open..i - 1].iter().collect()));
                } else if w == "r" && hashes == 1 {
                    // A raw identifier: the word itself follows.
                    i += 1;
                } else {
                    kind = Some(Kind::Word(w));
                }
            }
            ch => {
                i += 1;
                if !ch.is_whitespace() {
                    kind = Some(Kind::Sign(ch));
                }
            }
        }
        line += c[start..i.min(c.len())].iter().filter(|&&ch| ch == '\n').count();
        if let Some(kind) = kind {
            out.push(Token { kind, line: begun });
        }
    }
    out
}

/// The index behind the closing quote of the string that opens at `i`.
fn end_of_string(c: &[char], i: usize) -> usize {
    let mut i = i + 1;
    while i < c.len() && c[i] != '"' {
        i += if c[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(c.len())
}

/// The index behind the group that opens at `i`.
pub fn end_of_group(t: &[Token], i: usize) -> usize {
    let mut open = 0usize;
    for (j, token) in t.iter().enumerate().skip(i) {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => open += 1,
            Kind::Sign(')' | ']' | '}') => open = open.saturating_sub(1),
            _ => continue,
        }
        if open == 0 {
            return j + 1;
        }
    }
    t.len()
}

/// The tokens without what only test builds have: items, statements and fields under `#[cfg(test)]` or
/// `#[cfg(all(test, ..))]`, and everything under `#![cfg(test)]`.
pub fn without_tests(t: &[Token]) -> Vec<Token> {
    let (mut out, mut i) = (Vec::new(), 0);
    while i < t.len() {
        let inner = t[i].sign('#') && t.get(i + 1).is_some_and(|t| t.sign('!'));
        let group = i + 1 + usize::from(inner);
        let is_attribute = t[i].sign('#') && t.get(group).is_some_and(|t| t.sign('['));
        if !is_attribute {
            out.push(t[i].clone());
            i += 1;
            continue;
        }
        let end = end_of_group(t, group);
        let body = &t[group..end];
        let tests_only =
            body[1].is("cfg") && body.iter().any(|t| t.is("test")) && !body.iter().any(|t| t.is("not") || t.is("any"));
        if tests_only && inner {
            return Vec::new();
        }
        if tests_only {
            i = end_of_item(t, end);
        } else {
            out.extend_from_slice(&t[i..end]);
            i = end;
        }
    }
    out
}

/// The index behind the item, statement or field that begins at `i`, its further attributes included.
fn end_of_item(t: &[Token], mut i: usize) -> usize {
    while i + 1 < t.len() && t[i].sign('#') {
        i = end_of_group(t, i + 1);
    }
    let mut first = i;
    while t.get(first).is_some_and(|t| t.is("pub")) {
        first += 1;
        if t.get(first).is_some_and(|t| t.sign('(')) {
            first = end_of_group(t, first);
        }
    }
    let is = |words: &[&str]| t.get(first).and_then(Token::word).is_some_and(|w| words.contains(&w));
    let value = is(&["use", "static", "type", "let"]) || (is(&["const"]) && !t.get(first + 1).is_some_and(|t| t.is("fn")));
    let block = !value && is(&["mod", "fn", "struct", "enum", "impl", "trait", "const", "unsafe", "async", "macro_rules"]);
    while i < t.len() {
        match t[i].kind {
            Kind::Sign(';') => return i + 1,
            Kind::Sign(',') if !value && !block => return i + 1,
            // The end of what surrounds it.
            Kind::Sign(')' | ']' | '}') => return i,
            Kind::Sign('{') if block => return end_of_group(t, i),
            Kind::Sign('(' | '[' | '{') => i = end_of_group(t, i),
            _ => i += 1,
        }
    }
    i
}

/// Every path that begins with one of `roots`.
pub fn paths(t: &[Token], roots: &[&str]) -> Vec<Path> {
    let mut out = Vec::new();
    // For each open brace, whether it is that of an inline module.
    let mut braces: Vec<bool> = Vec::new();
    for (i, token) in t.iter().enumerate() {
        match &token.kind {
            Kind::Sign('{') => braces.push(i >= 2 && t[i - 2].is("mod")),
            Kind::Sign('}') => drop(braces.pop()),
            Kind::Word(w) if roots.contains(&w.as_str()) => {
                let within = i >= 1 && t[i - 1].kind == Kind::Path && i >= 2 && (t[i - 2].word().is_some() || t[i - 2].sign('>'));
                let field = i >= 1 && t[i - 1].sign('.');
                let path = t.get(i + 1).is_some_and(|t| t.kind == Kind::Path);
                let renamed = t.get(i + 1).is_some_and(|t| t.is("as"));
                if !within && !field && (path || renamed) {
                    let depth = braces.iter().filter(|&&module| module).count();
                    tree(t, i, &Path { segments: Vec::new(), line: token.line, depth }, &mut out);
                }
            }
            _ => {}
        }
    }
    out
}

/// Reads a path or a tree of imports; returns the index behind it.
fn tree(t: &[Token], i: usize, prefix: &Path, out: &mut Vec<Path>) -> usize {
    let mut here = prefix.clone();
    let Some(token) = t.get(i) else { return i };
    here.line = token.line;
    match &token.kind {
        Kind::Word(w) => {
            here.segments.push(w.clone());
            match t.get(i + 1) {
                Some(next) if next.kind == Kind::Path => tree(t, i + 2, &here, out),
                Some(next) if next.is("as") => {
                    out.push(here);
                    i + 3
                }
                _ => {
                    out.push(here);
                    i + 1
                }
            }
        }
        Kind::Sign('{') => {
            let end = end_of_group(t, i);
            let mut j = i + 1;
            while j + 1 < end {
                j = tree(t, j, &here, out).max(j + 1);
            }
            end
        }
        Kind::Sign('*') => {
            here.segments.push("*".to_owned());
            out.push(here);
            i + 1
        }
        // A comma between imports, or the generics of a path in an expression.
        _ => {
            if !token.sign(',') {
                out.push(here);
            }
            i + 1
        }
    }
}
