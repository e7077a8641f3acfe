//! What is asked: the path and query of each request, and the headers that matter.
//!
//! The queries are written here and not by kube, which leaves `resourceVersion=0` out when there is a limit and so makes
//! a consistent read of what was to be a cheap one. A version of a list is always sent with its match. A page after the
//! first carries its token and the limit, and no version: the server refuses both.

use crate::source::{ListParams, Scope, SourceError, SourceErrorKind, VersionMatch, WatchParams};
use ::kube::{Resource, client::Body};
use form_urlencoded::Serializer;
use http::{Request, header};

const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The path of a kind's objects, in the namespace of the scope.
pub(super) fn path<K: Resource>(kind: &K::DynamicType, namespace: Option<&str>) -> Result<String, SourceError> {
    // It becomes a part of the path.
    let fits = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    match namespace {
        Some(namespace) if !fits(namespace) || namespace.starts_with('.') => {
            Err(SourceError::new(SourceErrorKind::Other).with_context(format!("{namespace:?} is no name of a namespace")))
        }
        _ => Ok(K::url_path(kind, namespace)),
    }
}

pub(super) fn list<K: Resource>(path: &str, p: &ListParams) -> Result<Request<Body>, http::Error> {
    let mut query = query(path, &p.scope);
    if let Some(limit) = p.limit {
        query.append_pair("limit", &limit.to_string());
    }
    if let Some(token) = &p.continue_token {
        query.append_pair("continue", token);
    } else {
        let version = match &p.version {
            VersionMatch::MostRecent => None,
            VersionMatch::Any => Some(("0", "NotOlderThan")),
            VersionMatch::NotOlderThan(version) => Some((version.as_str(), "NotOlderThan")),
            VersionMatch::Exact(version) => Some((version.as_str(), "Exact")),
        };
        if let Some((version, how)) = version {
            query.append_pair("resourceVersion", version).append_pair("resourceVersionMatch", how);
        }
    }
    let accept = if K::metadata_api() { METADATA_LIST } else { JSON };
    Request::get(query.finish()).header(header::ACCEPT, accept).body(Body::empty())
}

pub(super) fn watch<K: Resource>(path: &str, p: &WatchParams) -> Result<Request<Body>, http::Error> {
    let mut query = query(path, &p.scope);
    query.append_pair("watch", "true");
    query.append_pair("timeoutSeconds", &p.timeout.as_secs().max(1).to_string());
    // Where they are not allowed, the end of the initial events is never told.
    if p.bookmarks || p.initial_events {
        query.append_pair("allowWatchBookmarks", "true");
    }
    if p.initial_events {
        query.append_pair("sendInitialEvents", "true").append_pair("resourceVersionMatch", "NotOlderThan");
    }
    query.append_pair("resourceVersion", &p.from);
    let accept = if K::metadata_api() { METADATA } else { JSON };
    Request::get(query.finish())
        .header(header::ACCEPT, accept)
        // Servers compress each event by itself, which no decompressing client layer reads past the first.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
}

fn query<'a>(path: &str, scope: &Scope) -> Serializer<'a, String> {
    let mut query = Serializer::new(format!("{path}?"));
    if let Some(labels) = &scope.labels {
        query.append_pair("labelSelector", labels);
    }
    if let Some(fields) = &scope.fields {
        query.append_pair("fieldSelector", fields);
    }
    query
}
