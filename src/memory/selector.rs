//! Which objects a request is about: namespace, labels, fields. Refused as the real server refuses.

use super::Resource;
use crate::source::{Scope, Selector, Shard, SourceError, SourceErrorKind};

/// A parsed [`Scope`]: a namespace, labels and fields that must all fit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Selection {
    namespace: Option<String>,
    labels: Selector,
    fields: Vec<Field>,
    shard: Option<Shard>,
}

/// What one field must be, or must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    /// Parses the selectors of `scope` for objects of type `R`. As the real server, it knows nothing of shards.
    ///
    /// # Errors
    /// `Server { code: 400, .. }` for a text that is no selector and for a field that `R` does not offer.
    pub(super) fn parse<R: Resource>(scope: &Scope) -> Result<Self, SourceError> {
        let labels = scope.labels.as_deref().unwrap_or_default().parse().map_err(refused)?;
        let fields = scope.fields.as_deref().map_or(Ok(Vec::new()), fields)?;
        for Field { path, .. } in &fields {
            let known = matches!(path.as_str(), "metadata.name" | "metadata.namespace");
            if !known && !R::FIELDS.contains(&path.as_str()) {
                return Err(refused(format!("{path:?} is not a field that this resource can be selected by")));
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
        let every = self.namespace.is_none() && self.labels.is_everything() && self.fields.is_empty();
        if every && self.shard.is_none() {
            return true;
        }
        let meta = object.meta();
        if self.excludes_namespace(meta.namespace) || self.shard.is_some_and(|s| !s.owns(meta.namespace, meta.name)) {
            return false;
        }
        let holds = |field: &Field| {
            let equal = match field.path.as_str() {
                "metadata.name" => meta.name == field.value,
                "metadata.namespace" => meta.namespace == field.value,
                path => object.field(path).as_deref().unwrap_or_default() == field.value,
            };
            equal == field.equal
        };
        self.fields.iter().all(holds) && self.labels.matches(|emit| object.labels(emit))
    }
}

fn refused(why: impl ToString) -> SourceError {
    let kind = SourceErrorKind::Server { code: 400, reason: "BadRequest".to_owned(), retry_after: None };
    SourceError::new(kind).with_context(why.to_string())
}

/// Requirements separated by commas, each with `=`, `==` or `!=`.
fn fields(text: &str) -> Result<Vec<Field>, SourceError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| field(part).ok_or_else(|| refused(format!("no field selector: {part:?} in {text:?}")))).collect()
}

fn field(part: &str) -> Option<Field> {
    let signs = [("!=", false), ("==", true), ("=", true)];
    let (sign, equal) = *signs.iter().find(|(sign, _)| part.contains(sign))?;
    let (path, value) = part.split_once(sign)?;
    let (path, value) = (path.trim(), value.trim());
    let sound = !path.is_empty() && !value.contains(['=', '!']) && !path.contains(['=', '!']);
    sound.then(|| Field { path: path.to_owned(), value: value.to_owned(), equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pod;

    fn selects(labels: Option<&str>, fields: Option<&str>, pod: &Pod) -> bool {
        let scope = Scope { labels: labels.map(str::to_owned), fields: fields.map(str::to_owned), ..Scope::default() };
        Selection::parse::<Pod>(&scope).unwrap().matches(pod)
    }

    /// The language itself is tested where it is parsed, in `source`.
    #[test]
    fn labels_fields_and_namespace_must_all_fit() {
        let pod = Pod::new("a", "x").with_label("app", "web").on_node("n1");
        assert!(selects(Some("app in (db, web),!other"), Some("spec.nodeName=n1"), &pod));
        assert!(!selects(Some("app=db"), Some("spec.nodeName=n1"), &pod));
        assert!(!selects(Some("app=web"), Some("spec.nodeName=n2"), &pod));
        let elsewhere = Scope { namespace: Some("b".into()), labels: Some("app=web".into()), ..Scope::default() };
        assert!(!Selection::parse::<Pod>(&elsewhere).unwrap().matches(&pod));
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
