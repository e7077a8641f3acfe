//! The other side of the comparison: plain requests to the API server, whose answers are the truth. Nothing of the crate
//! is in it. Every call waits for its answer, and for ten seconds at most.

use crate::certs::User;
use http::{Method, Request};
use kube::{Client, Config, config::KubeConfigOptions};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, sync::OnceLock, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// Where the requests of this program itself are waited for.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio starts"))
}

/// How to reach the server as `user`.
pub fn config(dir: &Path, port: u16, user: &User) -> Config {
    config_as(dir, port, user.name)
}

/// The same, by the user's name.
pub fn config_as(dir: &Path, port: u16, user: &str) -> Config {
    let file = |name: String| dir.join(name).display().to_string();
    let kubeconfig = json!({
        "current-context": "e2e",
        "clusters": [{"name": "e2e", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": file("server-ca.crt".into())}}],
        "users": [{"name": "e2e", "user": {
            "client-certificate": file(format!("{user}.crt")), "client-key": file(format!("{user}.key"))}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
    });
    let kubeconfig = serde_json::from_value(kubeconfig).expect("it is a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config =
        runtime().block_on(Config::from_custom_kubeconfig(kubeconfig, &options)).expect("its files were just written");
    config.default_retry = false;
    config
}

/// What the server answered instead, or 0 and why there was no answer.
#[derive(Debug)]
pub struct Refused(pub u16, pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(0, why) => f.write_str(why),
            Self(code, message) => write!(f, "{code}: {message}"),
        }
    }
}

#[derive(Clone)]
pub struct Api(Client);

impl Api {
    pub fn new(dir: &Path, port: u16, user: &User) -> Self {
        let config = config(dir, port, user);
        let _inside = runtime().enter();
        Self(Client::try_from(config).expect("the configuration is good"))
    }

    fn ask(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<String, Refused> {
        let accept = if kind == METADATA { METADATA } else { "application/json" };
        let body = body.map_or_else(Vec::new, |b| b.to_string().into_bytes());
        let request = Request::builder().method(method).uri(path).header("content-type", kind).header("accept", accept);
        let request = request.body(body).expect("the path is well-formed");
        let asked = async { tokio::time::timeout(Duration::from_secs(10), self.0.request_text(request)).await };
        match runtime().block_on(asked) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) => Err(Refused(status.code, status.message.clone())),
            Ok(Err(e)) => Err(Refused(0, e.to_string())),
            Err(_) => Err(Refused(0, "no answer".into())),
        }
    }

    pub fn get(&self, path: &str) -> Result<String, Refused> {
        self.ask(Method::GET, path, "application/json", None)
    }

    pub fn create(&self, collection: &str, object: &Value) -> Result<Value, Refused> {
        parsed(self.ask(Method::POST, collection, "application/json", Some(object))?)
    }

    /// A merge patch.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value, Refused> {
        parsed(self.ask(Method::PATCH, path, "application/merge-patch+json", Some(patch))?)
    }

    pub fn delete(&self, path: &str) -> Result<(), Refused> {
        let now = json!({"gracePeriodSeconds": 0});
        self.ask(Method::DELETE, path, "application/json", Some(&now)).map(drop)
    }

    /// All objects of a collection as the server has them now, by key, and the version of the whole.
    pub fn list(&self, collection: &str) -> Result<(BTreeMap<String, Value>, u64), Refused> {
        self.listed(collection, "application/json")
    }

    /// As [`Api::list`], of metadata alone.
    pub fn list_metadata(&self, collection: &str) -> Result<(BTreeMap<String, Value>, u64), Refused> {
        self.listed(collection, METADATA)
    }

    fn listed(&self, collection: &str, kind: &str) -> Result<(BTreeMap<String, Value>, u64), Refused> {
        let mut list = parsed(self.ask(Method::GET, collection, kind, None)?)?;
        let version = number(&list["metadata"]["resourceVersion"]).ok_or(Refused(0, "a list without a version".into()))?;
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        Ok((items.into_iter().map(|o| (key(&o), o)).collect(), version))
    }
}

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn parsed(text: String) -> Result<Value, Refused> {
    serde_json::from_str(&text).map_err(|e| Refused(0, e.to_string()))
}

/// A version, which Kubernetes writes as text.
pub fn number(text: &Value) -> Option<u64> {
    text.as_str()?.parse().ok()
}

/// `namespace/name`, or the name alone.
pub fn key(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
