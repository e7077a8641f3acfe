//! What is stored: 100,000 objects of about 1.4 kB under usual keys, as in benches/compare/peer/store.go.

use informer::flow::{KeyRef, Object, ObjectKey};
use std::sync::Arc;

pub const OBJECTS: usize = 100_000;

/// Indices, in the order in which a store has them: 100 namespaces, 5,000 nodes, 500 apps.
pub const INDICES: [(&str, fn(&Pod) -> &str); 3] =
    [("namespace", |pod| &pod.namespace), ("node", |pod| &pod.node), ("app", |pod| &pod.app)];

pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub version: String,
    pub uid: String,
    pub node: String,
    pub app: String,
    pub payload: [u8; 1024],
}

/// An object's value: a pod, or one that is held elsewhere as well.
pub trait Value: Send + Sync + Sized + 'static {
    fn pod(&self) -> &Pod;

    /// Made here.
    fn key(&self) -> ObjectKey {
        self.pod().key()
    }

    /// As it is stored, with a key made here.
    fn object(self) -> Object<Self>;
}

impl Value for Pod {
    fn pod(&self) -> &Pod {
        self
    }

    fn object(self) -> Object<Self> {
        let (key, version, uid) = (Value::key(&self), self.version.clone(), self.uid.clone());
        Object::with_key(key, &version, &uid, self)
    }
}

impl Value for Arc<Pod> {
    fn pod(&self) -> &Pod {
        self
    }

    fn object(self) -> Object<Self> {
        // What is written again and again: making a key is part of it, reading a version and a uid is not.
        Object::with_key(Value::key(&self), "", "", self)
    }
}

impl Pod {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name).expect("a key")
    }
}

/// All objects, made anew. Those of two generations differ in their versions only.
pub fn generation(of: usize) -> impl ExactSizeIterator<Item = Pod> {
    (0..OBJECTS).map(move |i| Pod {
        namespace: format!("namespace-{:02}", i % 100),
        name: format!("pod-{i:06}"),
        version: (of * OBJECTS + i + 1).to_string(),
        uid: format!("{i:08x}-0000-4000-8000-{i:012x}"),
        node: format!("node-{:05}.example", i * 7919 % 5000),
        app: format!("app-{}", i % 500),
        payload: [i as u8; 1024],
    })
}

/// The same, to be held outside and stored any number of times.
pub fn held(of: usize) -> Vec<Arc<Pod>> {
    generation(of).map(Arc::new).collect()
}

pub fn keys() -> Vec<ObjectKey> {
    generation(0).map(|pod| pod.key()).collect()
}

/// Keys as texts of their own.
pub fn names() -> Vec<(String, String)> {
    generation(0).map(|pod| (pod.namespace, pod.name)).collect()
}

pub fn borrowed((namespace, name): &(String, String)) -> KeyRef<'_> {
    KeyRef { namespace, name }
}

/// Numbers below `below`, the same for the same seed.
pub fn drawn(n: usize, below: usize, seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (((state >> 32) * below as u64) >> 32) as usize
    };
    (0..n).map(|_| next()).collect()
}
