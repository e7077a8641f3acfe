//! [`ObjectKey`] and the forms it is looked up by.

use super::object::KeyText;
use crate::sync::{Seed, lazy};
use std::{
    cmp::Ordering,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    str::FromStr,
};

lazy! {
    /// Seeded once per process, so hashes must not leave it.
    static SEED: Seed = Seed::default();
}

/// The name of an object: `namespace/name`, or `name` for objects without a namespace.
///
/// One shared allocation: the text, where it splits, and a 64-bit hash that is computed once. Cloning is one count.
/// Ordered by namespace, then name. client-go: `ObjectName`, `MetaNamespaceKeyFunc`.
#[derive(Clone)]
pub struct ObjectKey(KeyText);

/// Why a key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name is empty.
    #[error("the name of an object must not be empty (key {0:?})")]
    EmptyName(String),
    /// The key begins with a slash.
    #[error("a key without namespace is written without a slash (key {0:?})")]
    EmptyNamespace(String),
    /// The namespace or the name contains a slash.
    #[error("neither namespace nor name may contain a slash (key {0:?})")]
    Slash(String),
    /// The key is longer than 65,535 bytes.
    #[error("the key has {0} bytes, more than 65,535")]
    TooLong(usize),
}

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace means none.
    ///
    /// # Errors
    /// [`KeyError`] when the pair has no canonical text.
    pub fn new(namespace: &str, name: &str) -> Result<Self, KeyError> {
        let key = KeyRef { namespace, name };
        let len = namespace.len() + usize::from(!namespace.is_empty()) + name.len();
        if len > usize::from(u16::MAX) {
            return Err(KeyError::TooLong(len));
        }
        if name.is_empty() {
            return Err(KeyError::EmptyName(key.to_string()));
        }
        if has_slash(namespace) || has_slash(name) {
            return Err(KeyError::Slash(key.to_string()));
        }
        Ok(Self(KeyText::new(namespace, name, key.hash64())))
    }

    /// A key with a hash of the caller's choice. Borrowed forms of it hash as ever.
    #[cfg(test)]
    pub(crate) fn with_hash(namespace: &str, name: &str, hash: u64) -> Self {
        Self(KeyText::new(namespace, name, hash))
    }

    /// The namespace, empty when there is none.
    pub fn namespace(&self) -> &str {
        &self.as_str()[..self.0.split()]
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self.0.split() {
            0 => self.as_str(),
            n => &self.as_str()[n + 1..],
        }
    }

    /// `namespace/name`, or `name`.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The hash, equal to [`KeyRef::hash64`] of the same key. Differs from process to process.
    pub(crate) fn hash64(&self) -> u64 {
        self.0.hash()
    }
}

/// Eight bytes at once: names are too short for a search that has to be set up.
fn has_slash(text: &str) -> bool {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = LOW << 7;
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    let (eights, rest) = text.as_bytes().as_chunks();
    let in_eight = |bytes: &[u8; 8]| {
        // A byte becomes zero where there is a slash; the lowest zero byte, and no byte before it, borrows from its high bit.
        let differs = u64::from_le_bytes(*bytes) ^ SLASHES;
        differs.wrapping_sub(LOW) & !differs & HIGH != 0
    };
    eights.iter().any(in_eight) || rest.contains(&b'/')
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        // Neither part contains a slash, so equal texts split at the same place.
        self.0.ptr_eq(&other.0) || (self.hash64() == other.hash64() && self.as_str() == other.as_str())
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash64());
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_key().cmp(&other.as_key())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl FromStr for ObjectKey {
    type Err = KeyError;
    fn from_str(s: &str) -> Result<Self, KeyError> {
        match s.split_once('/') {
            None => Self::new("", s),
            Some(("", _)) => Err(KeyError::EmptyNamespace(s.to_owned())),
            Some((namespace, name)) => Self::new(namespace, name),
        }
    }
}

/// A borrowed key: looking something up by it allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRef<'a> {
    /// Empty when there is none.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl KeyRef<'_> {
    pub(crate) fn hash64(self) -> u64 {
        let mut h = SEED.build_hasher();
        h.write(self.namespace.as_bytes());
        h.write_u8(b'/');
        h.write(self.name.as_bytes());
        h.finish()
    }

    /// Whether the key's text is made of these two.
    fn is_text_of(self, key: &ObjectKey) -> bool {
        let (text, namespace, name) = (key.as_str().as_bytes(), self.namespace.as_bytes(), self.name.as_bytes());
        let between = usize::from(!namespace.is_empty());
        key.0.split() == namespace.len()
            && text.len() == namespace.len() + between + name.len()
            && text.starts_with(namespace)
            && text.ends_with(name)
    }
}

impl fmt::Display for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Whatever names an object: [`ObjectKey`], [`KeyRef`], `(namespace, name)`.
pub trait AsKey {
    /// The key, borrowed.
    fn as_key(&self) -> KeyRef<'_>;

    /// The hash of the key; types that carry it need not compute it.
    #[doc(hidden)]
    fn key_hash(&self) -> u64 {
        self.as_key().hash64()
    }

    /// The key, when it is a whole one.
    #[doc(hidden)]
    fn as_object_key(&self) -> Option<&ObjectKey> {
        None
    }
}

/// A key that is looked for. `AsKey` is open to everybody, so it is asked here, once, before any version is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'k> {
    hash: u64,
    text: SoughtText<'k>,
}

#[derive(Clone, Copy)]
enum SoughtText<'k> {
    Whole(&'k ObjectKey),
    Parts(KeyRef<'k>),
}

impl<'k> Sought<'k> {
    #[inline]
    pub(crate) fn by(key: &'k (impl AsKey + ?Sized)) -> Self {
        match key.as_object_key() {
            Some(key) => Self { hash: key.hash64(), text: SoughtText::Whole(key) },
            None => {
                let parts = key.as_key();
                Self { hash: parts.hash64(), text: SoughtText::Parts(parts) }
            }
        }
    }

    pub(crate) fn hash(self) -> u64 {
        self.hash
    }

    #[inline]
    pub(crate) fn is(self, key: &ObjectKey) -> bool {
        key.hash64() == self.hash
            && match self.text {
                SoughtText::Whole(this) => this == key,
                SoughtText::Parts(this) => this.is_text_of(key),
            }
    }
}

impl AsKey for ObjectKey {
    fn as_key(&self) -> KeyRef<'_> {
        KeyRef { namespace: self.namespace(), name: self.name() }
    }

    fn key_hash(&self) -> u64 {
        self.0.hash()
    }

    fn as_object_key(&self) -> Option<&ObjectKey> {
        Some(self)
    }
}

impl AsKey for KeyRef<'_> {
    fn as_key(&self) -> KeyRef<'_> {
        *self
    }
}

impl AsKey for (&str, &str) {
    fn as_key(&self) -> KeyRef<'_> {
        KeyRef { namespace: self.0, name: self.1 }
    }
}

impl<K: AsKey + ?Sized> AsKey for &K {
    fn as_key(&self) -> KeyRef<'_> {
        (**self).as_key()
    }

    fn key_hash(&self) -> u64 {
        (**self).key_hash()
    }

    fn as_object_key(&self) -> Option<&ObjectKey> {
        (**self).as_object_key()
    }
}
