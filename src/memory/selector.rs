//! Selectors: which objects a request is about. Parsed from Kubernetes' text, refused as the real server refuses.

use super::Resource;
use crate::source::{Scope, Shard, SourceError, SourceErrorKind};

/// A parsed [`Scope`]: a namespace, and requirements that must all hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Selection {
    namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
    shard: Option<Shard>,
}

/// What one label or field must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    name: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    /// Holds where the label is missing, too.
    NotIn(Vec<String>),
    Exists,
    Missing,
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
        }
    }
}

impl Selection {
    /// Parses the selectors of `scope` for objects of type `R`. As the real server, it knows nothing of shards.
    ///
    /// # Errors
    /// `Server { code: 400, .. }` for a text that is no selector and for a field that `R` does not offer.
    pub(super) fn parse<R: Resource>(scope: &Scope) -> Result<Self, SourceError> {
        let labels = scope.labels.as_deref().map_or(Ok(Vec::new()), |text| parse(text, true))?;
        let fields = scope.fields.as_deref().map_or(Ok(Vec::new()), |text| parse(text, false))?;
        for field in &fields {
            let known = matches!(field.name.as_str(), "metadata.name" | "metadata.namespace");
            if !known && !R::FIELDS.contains(&field.name.as_str()) {
                return Err(refused(format!("{:?} is not a field that this resource can be selected by", field.name)));
            }
        }
        Ok(Self { namespace: scope.namespace.clone(), labels, fields, shard: None })
    }

    /// Only the objects of this shard.
    pub(super) fn sharded(self, shard: Option<Shard>) -> Self {
        Self { shard, ..self }
    }

    /// Whether a namespace is asked for, and not this one.
    pub(super) fn excludes_namespace(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_some_and(|n| n != namespace)
    }

    /// Whether `object` is selected. Calls user code.
    pub(super) fn matches<R: Resource>(&self, object: &R) -> bool {
        if self.namespace.is_none() && self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none() {
            return true;
        }
        let meta = object.meta();
        if self.excludes_namespace(meta.namespace) || self.shard.is_some_and(|s| !s.owns(meta.namespace, meta.name)) {
            return false;
        }
        let field_holds = |r: &Requirement| match r.name.as_str() {
            "metadata.name" => r.holds(Some(meta.name)),
            "metadata.namespace" => r.holds(Some(meta.namespace)),
            path => r.holds(Some(object.field(path).as_deref().unwrap_or_default())),
        };
        self.fields.iter().all(field_holds) && self.labels_hold(object)
    }

    fn labels_hold<R: Resource>(&self, object: &R) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let mut values: Vec<Option<String>> = vec![None; self.labels.len()];
        object.labels(&mut |name, value| {
            for (requirement, found) in self.labels.iter().zip(&mut values) {
                if requirement.name == name {
                    *found = Some(value.to_owned());
                }
            }
        });
        self.labels.iter().zip(&values).all(|(r, v)| r.holds(v.as_deref()))
    }
}

fn refused(why: String) -> SourceError {
    SourceError::new(SourceErrorKind::Server { code: 400, reason: "BadRequest".to_owned(), retry_after: None }).with_context(why)
}

/// Requirements separated by commas. Fields know only `=`, `==` and `!=`; labels also `in (..)`, `notin (..)`, `name`
/// and `!name`.
fn parse(text: &str, labels: bool) -> Result<Vec<Requirement>, SourceError> {
    split(text)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| requirement(part, labels).ok_or_else(|| refused(format!("no selector: {part:?} in {text:?}"))))
        .collect()
}

/// Splits at the commas outside of parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(part: &str, labels: bool) -> Option<Requirement> {
    let build = |name: &str, test: Test| {
        let name = name.trim();
        is_name(name).then(|| Requirement { name: name.to_owned(), test })
    };
    let value = |v: &str| {
        let v = v.trim();
        (v.is_empty() || !labels || is_name(v)).then(|| v.to_owned())
    };
    if let Some((name, v)) = part.split_once("!=") {
        return build(name, Test::NotIn(vec![value(v)?]));
    }
    if let Some((name, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
        if v.contains('=') {
            return None;
        }
        return build(name, Test::In(vec![value(v)?]));
    }
    if !labels {
        return None;
    }
    if let Some(name) = part.strip_prefix('!') {
        return build(name, Test::Missing);
    }
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let values = list.split(',').map(value).collect::<Option<Vec<_>>>()?;
        let (name, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => build(name, Test::In(values)),
            "notin" => build(name, Test::NotIn(values)),
            _ => None,
        };
    }
    build(part, Test::Exists)
}

/// The characters that names and values of labels are made of, and `/` of a name's prefix.
fn is_name(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pod;

    fn selects(labels: Option<&str>, fields: Option<&str>, pod: &Pod) -> bool {
        let scope = Scope { labels: labels.map(str::to_owned), fields: fields.map(str::to_owned), ..Scope::default() };
        Selection::parse::<Pod>(&scope).unwrap().matches(pod)
    }

    #[test]
    fn label_selectors_mean_what_kubernetes_says() {
        let pod = Pod::new("a", "x").with_label("app", "web").with_label("example.com/tier", "front");
        for (text, want) in [
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app", true),
            ("!app", false),
            ("other", false),
            ("!other", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("app notin (db, cache)", true),
            ("other notin (db)", true),
            ("app notin (web)", false),
            ("app=web,example.com/tier=front", true),
            ("app=web,example.com/tier=back", false),
            ("app in (web,db),!other , example.com/tier", true),
            ("app=", false),
            ("", true),
        ] {
            assert_eq!(selects(Some(text), None, &pod), want, "{text:?}");
        }
    }

    #[test]
    fn field_selectors_mean_what_kubernetes_says() {
        let pod = Pod::new("a", "x").on_node("n1");
        for (text, want) in [
            ("metadata.name=x", true),
            ("metadata.name!=x", false),
            ("metadata.namespace=a", true),
            ("metadata.namespace=b", false),
            ("spec.nodeName=n1", true),
            ("spec.nodeName=", false),
            ("spec.nodeName!=", true),
            ("status.phase==Pending,spec.nodeName=n1", true),
        ] {
            assert_eq!(selects(None, Some(text), &pod), want, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_selector_is_a_bad_request() {
        let bad = |labels: Option<&str>, fields: Option<&str>| {
            let scope = Scope { labels: labels.map(str::to_owned), fields: fields.map(str::to_owned), ..Scope::default() };
            let error = Selection::parse::<Pod>(&scope).expect_err("must be refused");
            assert!(matches!(error.kind(), SourceErrorKind::Server { code: 400, .. }), "{error:?}");
        };
        for text in ["a===b", "=b", "a in b", "a in (b", "a b", "a like (b)", "a=b=c", "!", "a=(b)"] {
            bad(Some(text), None);
        }
        for text in ["data.n=1", "metadata.name", "metadata.name in (x)", "metadata.uid=1"] {
            bad(None, Some(text));
        }
    }
}
