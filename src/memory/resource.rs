//! What the embedded server stores: any type that is a [`Resource`], and [`Pod`], a small one that is ready to use.

use crate::flow::Meta;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// An object that a [`super::Server`] can store.
///
/// For a type of another crate, implement it for a wrapper, and take the wrapper off again where the informer is built:
/// `SharedInformer::builder_with(server.source::<Wrapper>(), |w| Ok::<_, Infallible>(w.0))`.
///
/// The methods are called without a lock that a reader needs, and must not call the server. A panic in one is
/// contained: it fails the write, the list or the stream that needed the answer.
pub trait Resource: Clone + Send + Sync + 'static {
    /// Field paths that a field selector may name, besides `metadata.name` and `metadata.namespace`. The server refuses
    /// others, as the real one does.
    const FIELDS: &'static [&'static str] = &[];

    /// Name, namespace, version and uid. A new object has an empty version and uid.
    fn meta(&self) -> Meta<'_>;

    /// Writes the version that the server gave the object.
    fn set_version(&mut self, version: &str);

    /// Writes the uid that the server gave the object.
    fn set_uid(&mut self, uid: &str);

    /// Calls `emit` with each label.
    fn labels(&self, emit: &mut dyn FnMut(&str, &str)) {
        let _ = emit;
    }

    /// The value at one of [`Resource::FIELDS`]; `None` where there is none, which a selector reads as the empty text.
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        let _ = path;
        None
    }

    /// Whether an update from `before`, which has the same version and uid, would change nothing. The server then
    /// writes nothing and gives no new version, as the real one does. By default every update is a change.
    fn unchanged(&self, before: &Self) -> bool {
        let _ = before;
        false
    }
}

/// Where a [`Pod`] is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// Accepted, not running yet.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl Phase {
    /// The text that field selectors compare with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A pod, as far as examples and tests need one.
///
/// Field selectors may name `spec.nodeName` and `status.phase`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Pod {
    /// Empty for none, though the pods of a cluster have one.
    pub namespace: String,
    /// Unique in its namespace.
    pub name: String,
    /// Given by the server.
    pub uid: String,
    /// Given by the server.
    pub version: String,
    /// What selectors see.
    pub labels: BTreeMap<String, String>,
    /// Where it runs; empty before it is placed.
    pub node: String,
    /// How far it is.
    pub phase: Phase,
    /// Counts what its owner wants of it; free for the caller.
    pub generation: u64,
}

impl Pod {
    /// A pending pod that no node has taken.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), ..Self::default() }
    }

    /// With this label, replacing one of the same name.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// On this node.
    #[must_use]
    pub fn on_node(mut self, node: impl Into<String>) -> Self {
        self.node = node.into();
        self
    }

    /// In this phase.
    #[must_use]
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// With this generation.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

impl Resource for Pod {
    const FIELDS: &'static [&'static str] = &["spec.nodeName", "status.phase"];

    fn meta(&self) -> Meta<'_> {
        Meta { namespace: &self.namespace, name: &self.name, version: &self.version, uid: &self.uid }
    }

    fn set_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }

    fn set_uid(&mut self, uid: &str) {
        uid.clone_into(&mut self.uid);
    }

    fn labels(&self, emit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in &self.labels {
            emit(name, value);
        }
    }

    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "spec.nodeName" => Some(Cow::Borrowed(&self.node)),
            "status.phase" => Some(Cow::Borrowed(self.phase.as_str())),
            _ => None,
        }
    }

    fn unchanged(&self, before: &Self) -> bool {
        self == before
    }
}
