//! Label selectors: Kubernetes' language for choosing objects by their labels.
//!
//! One implementation for everybody who chooses: the listers of a store, and the embedded server. The language is that of
//! `k8s.io/apimachinery`: what it refuses is refused here, and the same objects match.
//!
//! | text | matches objects |
//! |---|---|
//! | `a=b`, `a==b` | whose label `a` is `b` |
//! | `a!=b` | whose label `a` is something else, and those without `a` |
//! | `a in (b,c)` | whose label `a` is one of these |
//! | `a notin (b,c)` | whose label `a` is none of these, and those without `a` |
//! | `a`, `!a` | with a label `a`; without one |
//! | `a>1`, `a<1` | whose label `a` is a whole number above, below this one |
//! | `x,y` | that match both `x` and `y` |
//! | (nothing) | all |
//!
//! A value may be empty (`a=`, `a in (,b)`). White space between words means nothing.

use std::{fmt, str::FromStr};

/// Chooses objects by their labels. Parsed from text: `"app=web,tier in (front,back),!legacy".parse()`.
///
/// Equal selectors have the same requirements, whatever text they were written in; `Display` writes the canonical one,
/// ordered by label. client-go: `labels.Selector`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// Ordered by name. All must hold.
    requirements: Vec<Requirement>,
}

/// What one label must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    name: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Test {
    /// Never empty; sorted, each once.
    In(Vec<String>),
    /// As `In`.
    NotIn(Vec<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::Above(n) => number().is_some_and(|v| v > *n),
            Self::Below(n) => number().is_some_and(|v| v < *n),
        }
    }
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// Something stands where something else must.
    #[error("{text:?} is no label selector: at byte {at} stands {found}, but {expected} must stand there")]
    Syntax {
        /// The whole text.
        text: String,
        /// Where, in bytes.
        at: usize,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// No label can have this name.
    #[error("no label is named {name:?}: {rule}")]
    Name {
        /// The name.
        name: String,
        /// What names are like.
        rule: &'static str,
    },
    /// No label can have this value.
    #[error("no label has the value {value:?} (asked for of label {name:?}): {rule}")]
    Value {
        /// The label.
        name: String,
        /// The value.
        value: String,
        /// What values are like.
        rule: &'static str,
    },
    /// `>` and `<` compare with whole numbers only.
    #[error("label {name:?} can be compared only with a whole number below 2^63, not with {value:?}")]
    NotANumber {
        /// The label.
        name: String,
        /// What it was to be compared with.
        value: String,
    },
}

impl Selector {
    /// Matches every object.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    /// Whether it has no requirement, and so matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object matches whose labels `labels` emits, as [`super::ListerWatcher::labels`] does. Of a label that
    /// is emitted more than once, the last value counts.
    pub fn matches(&self, labels: impl FnOnce(&mut dyn FnMut(&str, &str))) -> bool {
        self.matcher().matches(labels)
    }

    /// For many objects, one after the other.
    pub(crate) fn matcher(&self) -> Matcher<'_> {
        Matcher { requirements: &self.requirements, holds: Vec::with_capacity(self.requirements.len()) }
    }

    /// The labels that must have one of some values, with those values, each once.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.requirements.iter().filter_map(|r| match &r.test {
            Test::In(values) => Some((r.name.as_str(), values.as_slice())),
            _ => None,
        })
    }
}

/// A selector at work; keeps its notes from one object to the next.
pub(crate) struct Matcher<'s> {
    requirements: &'s [Requirement],
    /// Per requirement, whether it holds with the labels emitted so far.
    holds: Vec<bool>,
}

impl Matcher<'_> {
    /// [`Selector::matches`].
    pub(crate) fn matches(&mut self, labels: impl FnOnce(&mut dyn FnMut(&str, &str))) -> bool {
        if self.requirements.is_empty() {
            return true;
        }
        self.holds.clear();
        self.holds.extend(self.requirements.iter().map(|r| r.test.holds(None)));
        labels(&mut |name, value| {
            for (requirement, holds) in self.requirements.iter().zip(&mut self.holds) {
                if requirement.name == name {
                    *holds = requirement.test.holds(Some(value));
                }
            }
        });
        self.holds.iter().all(|holds| *holds)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { name, test }) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match test {
                Test::In(values) if values.len() == 1 => write!(f, "{name}={}", values[0])?,
                Test::NotIn(values) if values.len() == 1 => write!(f, "{name}!={}", values[0])?,
                Test::In(values) => write!(f, "{name} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(f, "{name} notin ({})", values.join(","))?,
                Test::Exists => f.write_str(name)?,
                Test::Missing => write!(f, "!{name}")?,
                Test::Above(n) => write!(f, "{name}>{n}")?,
                Test::Below(n) => write!(f, "{name}<{n}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut words = Words { text, at: 0 };
        let mut requirements = Vec::new();
        if words.peek().1 != Word::End {
            loop {
                requirements.push(words.requirement()?);
                match words.next() {
                    (_, Word::End) => break,
                    (_, Word::Sign(",")) => {}
                    other => return Err(words.unexpected(other, "a comma or the end")),
                }
            }
        }
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word<'t> {
    /// A name, a value, `in` or `notin`.
    Text(&'t str),
    Sign(&'static str),
    End,
}

/// Longer ones before their beginnings.
const SIGNS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];

/// The text, word by word.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// The next word and where it begins.
    fn next(&mut self) -> (usize, Word<'t>) {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        let at = self.text.len() - rest.len();
        let word = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Word::Sign(sign),
            None if rest.is_empty() => Word::End,
            None => {
                let end = rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(rest.len());
                Word::Text(&rest[..end])
            }
        };
        self.at = at
            + match word {
                Word::Text(t) => t.len(),
                Word::Sign(s) => s.len(),
                Word::End => 0,
            };
        (at, word)
    }

    fn peek(&self) -> (usize, Word<'t>) {
        Words { ..*self }.next()
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let missing = self.peek().1 == Word::Sign("!");
        if missing {
            self.next();
        }
        let name = match self.next() {
            (_, Word::Text(name)) => name,
            other => return Err(self.unexpected(other, if missing { "a label's name" } else { "a label's name or `!`" })),
        };
        check_name(name)?;
        if missing {
            return Ok(Requirement { name: name.to_owned(), test: Test::Missing });
        }
        if matches!(self.peek().1, Word::End | Word::Sign(",")) {
            return Ok(Requirement { name: name.to_owned(), test: Test::Exists });
        }
        let test = match self.next() {
            (_, Word::Sign("=" | "==")) => Test::In(vec![self.value(name)?]),
            (_, Word::Sign("!=")) => Test::NotIn(vec![self.value(name)?]),
            (_, Word::Sign(">")) => Test::Above(self.number(name)?),
            (_, Word::Sign("<")) => Test::Below(self.number(name)?),
            (_, Word::Text("in")) => Test::In(self.set(name)?),
            (_, Word::Text("notin")) => Test::NotIn(self.set(name)?),
            other => return Err(self.unexpected(other, "one of `=`, `==`, `!=`, `in`, `notin`, `>`, `<`")),
        };
        Ok(Requirement { name: name.to_owned(), test })
    }

    /// What stands behind a sign; nothing is the empty value.
    fn value(&mut self, name: &str) -> Result<String, SelectorError> {
        if matches!(self.peek().1, Word::End | Word::Sign(",")) {
            return Ok(String::new());
        }
        match self.next() {
            (_, Word::Text(value)) => checked_value(name, value),
            other => Err(self.unexpected(other, "a value")),
        }
    }

    fn number(&mut self, name: &str) -> Result<i64, SelectorError> {
        let value = self.value(name)?;
        value.parse().map_err(|_| SelectorError::NotANumber { name: name.to_owned(), value })
    }

    /// Values in parentheses, with commas between them; nothing between two of those signs is the empty value.
    fn set(&mut self, name: &str) -> Result<Vec<String>, SelectorError> {
        match self.next() {
            (_, Word::Sign("(")) => {}
            other => return Err(self.unexpected(other, "`(`")),
        }
        let mut values = Vec::new();
        loop {
            match self.peek().1 {
                Word::Text(_) => values.push(self.value(name)?),
                _ => values.push(String::new()),
            }
            match self.next() {
                (_, Word::Sign(",")) => {}
                (_, Word::Sign(")")) => break,
                other => return Err(self.unexpected(other, "a value, a comma or `)`")),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }

    fn unexpected(&self, (at, found): (usize, Word<'t>), expected: &'static str) -> SelectorError {
        let found = match found {
            Word::Text(text) => format!("{text:?}"),
            Word::Sign(sign) => format!("`{sign}`"),
            Word::End => "the end".to_owned(),
        };
        SelectorError::Syntax { text: self.text.to_owned(), at, found, expected }
    }
}

/// The longest name, without its prefix, and the longest value.
const LONGEST: usize = 63;
const LONGEST_PREFIX: usize = 253;

fn check_name(name: &str) -> Result<(), SelectorError> {
    let refused = |rule| Err(SelectorError::Name { name: name.to_owned(), rule });
    let (prefix, own) = match name.split_once('/') {
        Some((prefix, own)) => (Some(prefix), own),
        None => (None, name),
    };
    if prefix.is_some_and(|p| p.len() > LONGEST_PREFIX || !p.split('.').all(is_dns_label)) {
        return refused(
            "what stands before the slash is a DNS name: at most 253 lower-case letters, digits, `-` and `.`, each part \
             between dots beginning and ending with a letter or digit",
        );
    }
    if own.is_empty() || !is_word(own) {
        return refused(
            "a name, behind its prefix and slash if it has them, is 1 to 63 letters, digits, `-`, `_` and `.`, and begins and \
             ends with a letter or digit",
        );
    }
    Ok(())
}

fn checked_value(name: &str, value: &str) -> Result<String, SelectorError> {
    if value.is_empty() || is_word(value) {
        return Ok(value.to_owned());
    }
    Err(SelectorError::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        rule: "a value is empty, or at most 63 letters, digits, `-`, `_` and `.`, and begins and ends with a letter or digit",
    })
}

fn is_word(s: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    s.len() <= LONGEST && s.bytes().all(inner) && ends(s, |b| b.is_ascii_alphanumeric())
}

fn is_dns_label(s: &str) -> bool {
    let outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    s.bytes().all(|b| outer(b) || b == b'-') && ends(s, outer)
}

/// Whether both ends are such bytes; not when there is none.
fn ends(s: &str, is: impl Fn(u8) -> bool) -> bool {
    matches!((s.as_bytes().first(), s.as_bytes().last()), (Some(a), Some(b)) if is(*a) && is(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn selector(text: &str) -> Selector {
        text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
    }

    fn matches(text: &str, labels: &[(&str, &str)]) -> bool {
        selector(text).matches(|emit| labels.iter().for_each(|(name, value)| emit(name, value)))
    }

    #[test]
    fn selectors_mean_what_kubernetes_says() {
        let labels = [("app", "web"), ("example.com/tier", "front"), ("rank", "7"), ("empty", "")];
        for (text, want) in [
            ("", true),
            (" \t\n", true),
            ("app=web", true),
            ("app==web", true),
            (" app = web ", true),
            ("app=db", false),
            ("app!=db", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app", true),
            ("!app", false),
            ("! app", false),
            ("other", false),
            ("!other", true),
            ("app in (db, web)", true),
            ("app in(db)", false),
            ("app notin (db, cache)", true),
            ("app notin (web)", false),
            ("other notin (db)", true),
            ("other in (db)", false),
            ("app=web,example.com/tier=front", true),
            ("app=web,example.com/tier=back", false),
            ("app in (web,db),!other , example.com/tier", true),
            ("app=", false),
            ("empty=", true),
            ("empty!=", false),
            ("app!=", true),
            ("other=", false),
            ("other!=", true),
            ("empty in ()", true),
            ("app in ()", false),
            ("empty in (,x)", true),
            ("empty in (x,)", true),
            ("empty in (x,,y)", true),
            ("empty notin (,x)", false),
            ("rank>6", true),
            ("rank>7", false),
            ("rank<8", true),
            ("rank < 7", false),
            ("app>0", false),
            ("other>0", false),
            ("other<0", false),
            ("rank>006", true),
            ("app=web,app=db", false),
            ("app=web,app!=db", true),
        ] {
            assert_eq!(matches(text, &labels), want, "{text:?}");
        }
        // Words of the language are names and values as well.
        assert!(matches("in in (in,notin)", &[("in", "notin")]) && matches("notin", &[("notin", "")]));
        assert!(!matches("in notin (notin)", &[("in", "notin")]));
        assert!(matches("a=b", &[("a", "c"), ("a", "b")]) && !matches("a=b", &[("a", "b"), ("a", "c")]));
    }

    #[test]
    fn what_is_no_selector_is_refused_and_the_error_says_where_and_what_to_write() {
        let error = |text: &str| text.parse::<Selector>().expect_err(text);
        for (text, at, found) in [
            ("a===b", 3, "`=`"),
            ("=b", 0, "`=`"),
            ("a in b", 5, "\"b\""),
            ("a in (b", 7, "the end"),
            ("a in (b c)", 8, "\"c\""),
            ("a in (b=c)", 7, "`=`"),
            ("a b", 2, "\"b\""),
            ("a like (b)", 2, "\"like\""),
            ("a=b=c", 3, "`=`"),
            ("!", 1, "the end"),
            ("!!a", 1, "`!`"),
            ("!a=b", 2, "`=`"),
            ("a=(b)", 2, "`(`"),
            ("a,", 2, "the end"),
            (",a", 0, "`,`"),
            ("a,,b", 2, "`,`"),
            ("a)", 1, "`)`"),
            ("a=b c", 4, "\"c\""),
            ("a>=1", 2, "`=`"),
        ] {
            let e = error(text);
            let SelectorError::Syntax { at: a, found: f, expected, .. } = &e else { panic!("{text:?}: {e}") };
            assert_eq!((*a, f.as_str()), (at, found), "{text:?}: {e}");
            assert!(!expected.is_empty() && e.to_string().contains(expected));
        }
        let long = "x".repeat(64);
        for name in ["-a", "a-", "é", "a/b/c", "/a", "a/", "A/a", "a..b/c", "-a/b", "a_b/c", &long, "a*b"] {
            let e = error(name);
            assert!(matches!(&e, SelectorError::Name { name: n, .. } if n == name), "{name:?}: {e}");
        }
        for value in ["-a", "a-", "é", "a/b", &long] {
            for text in [format!("a={value}"), format!("a in (x,{value})"), format!("a notin ({value})")] {
                assert!(matches!(error(&text), SelectorError::Value { value: v, .. } if v == value), "{text:?}");
            }
        }
        for text in ["a>b", "a<", "a>1.5", "a<9223372036854775808"] {
            assert!(matches!(error(text), SelectorError::NotANumber { .. }), "{text:?}");
        }
        // The longest are taken.
        let (name, prefix) = ("x".repeat(63), vec!["y".repeat(63); 4].join(".")[..253].to_owned());
        selector(&format!("{prefix}/{name}={name},A.b_c-D=E.f_g-1"));
    }

    #[test]
    fn equal_selectors_have_one_text() {
        for (text, canonical) in [
            ("", ""),
            ("b , a==c", "a=c,b"),
            ("a in (y)", "a=y"),
            ("a in (y,x,y)", "a in (x,y)"),
            ("a notin (y)", "a!=y"),
            ("a notin (y,)", "a notin (,y)"),
            ("a in ()", "a="),
            ("!a,a>05", "!a,a>5"),
            ("a,a", "a"),
        ] {
            assert_eq!(selector(text).to_string(), canonical, "{text:?}");
            assert_eq!(selector(text), selector(canonical));
        }
        assert!(selector("").is_everything() && Selector::everything() == selector(" "));
        assert!(!selector("a").is_everything());
    }

    #[test]
    fn only_requirements_with_values_can_be_looked_up() {
        let s = selector("a=1,b in (2,3),c,!d,e!=4,f>5");
        assert_eq!(s.values().map(|(n, v)| format!("{n}:{}", v.join("+"))).collect::<Vec<_>>(), ["a:1", "b:2+3"]);
    }

    /// What a requirement means, said once more in the plainest way, over labels `a` and `b` with values `x`, `y`, ``.
    fn plain(text: &str, a: Option<&str>, b: Option<&str>) -> bool {
        let of = |name: &str| if name == "a" { a } else { b };
        if let Some((name, values)) = text.split_once(" in ") {
            return of(name).is_some_and(|v| values.trim_matches(['(', ')']).split(',').any(|w| w == v));
        }
        if let Some((name, values)) = text.split_once(" notin ") {
            return !of(name).is_some_and(|v| values.trim_matches(['(', ')']).split(',').any(|w| w == v));
        }
        if let Some((name, value)) = text.split_once("!=") {
            return of(name) != Some(value);
        }
        if let Some((name, value)) = text.split_once('=') {
            return of(name) == Some(value);
        }
        text.strip_prefix('!').map_or_else(|| of(text).is_some(), |name| of(name).is_none())
    }

    proptest! {
        #[test]
        fn a_selector_holds_when_each_of_its_requirements_does(
            texts in vec("(!?[ab]|[ab](=|!=)[xy]?|[ab] (in|notin) \\([xy]?(,[xy]?){0,2}\\))", 0..5),
            a in proptest::option::of("[xy]?"),
            b in proptest::option::of("[xy]?"),
        ) {
            let (a, b) = (a.as_deref(), b.as_deref());
            let whole = selector(&texts.join(","));
            let emit = |emit: &mut dyn FnMut(&str, &str)| {
                if let Some(v) = a { emit("a", v) }
                if let Some(v) = b { emit("b", v) }
            };
            let want = texts.iter().all(|t| plain(t, a, b));
            prop_assert_eq!(whole.matches(emit), want);
            // So does its canonical text.
            prop_assert_eq!(&selector(&whole.to_string()), &whole);
        }

        #[test]
        fn no_text_whatever_is_too_much_for_the_parser(text in "[ab=!(),<> é.-]{0,12}|\\PC{0,12}") {
            if let Ok(s) = text.parse::<Selector>() {
                prop_assert_eq!(selector(&s.to_string()), s);
            }
        }
    }
}
