//! From bytes to objects. Each object is decoded by itself, so that one that cannot be costs itself and nothing else.
//!
//! A list or a frame is taken apart first, without looking into its objects; that is one more pass over the bytes, at the
//! speed of memory more than of decoding. Errors say where and of which sort, never what stood there: it may be a secret.

use crate::{
    flow::ObjectKey,
    source::{ListEnd, SourceError, SourceErrorKind, Undecodable, WatchEvent},
};
use ::kube::{
    Resource,
    core::{DynamicObject, TypeMeta},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{error::Category, value::RawValue};
use std::{any::Any, borrow::Cow, collections::BTreeMap, ops::ControlFlow};

/// A bookmark that ends the initial events of a streamed list has it.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    what: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// As much of an object as names it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct HeadMeta {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

/// A `Status`, as far as it matters.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Status {
    pub(super) kind: Option<String>,
    pub(super) code: Option<u16>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) details: Option<StatusDetails>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusDetails {
    pub(super) retry_after_seconds: Option<u64>,
    pub(super) causes: Option<Vec<StatusCause>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StatusCause {
    pub(super) reason: Option<String>,
}

/// What a line of a watch is.
pub(super) enum Line<K> {
    Event(WatchEvent<K>),
    Error(Box<Status>),
}

/// Hands each item of a list to `sink`.
pub(super) fn list<K>(
    what: &str,
    body: &[u8],
    kind: &K::DynamicType,
    sink: &mut dyn FnMut(Result<K, Undecodable>) -> ControlFlow<()>,
) -> Result<ListEnd, SourceError>
where
    K: Resource + DeserializeOwned + 'static,
{
    let page: Page<'_> = serde_json::from_slice(body).map_err(|e| unreadable(what, &format!("no list: {}", place(&e))))?;
    for item in page.items.unwrap_or_default() {
        if sink(object(item, kind)).is_break() {
            return Err(SourceError::new(SourceErrorKind::Stopped).with_context("the caller wants no more items"));
        }
    }
    Ok(ListEnd {
        version: page.metadata.resource_version.unwrap_or_default(),
        continue_token: page.metadata.continue_token.filter(|t| !t.is_empty()),
    })
}

/// One line of a watch.
pub(super) fn line<K>(what: &str, line: &[u8], kind: &K::DynamicType) -> Result<Line<K>, SourceError>
where
    K: Resource + DeserializeOwned + 'static,
{
    let frame: Frame<'_> = serde_json::from_slice(line).map_err(|e| unreadable(what, &format!("no event: {}", place(&e))))?;
    let event: fn(K) -> WatchEvent<K> = match &*frame.what {
        "ADDED" => WatchEvent::Added,
        "MODIFIED" => WatchEvent::Modified,
        "DELETED" => WatchEvent::Deleted,
        "BOOKMARK" => {
            let head = serde_json::from_str::<Head>(frame.object.get())
                .map_err(|e| unreadable(what, &format!("no bookmark: {}", place(&e))))?
                .metadata;
            let initial_events_end = head.annotations.is_some_and(|a| a.get(INITIAL_EVENTS_END).is_some_and(|v| v == "true"));
            let version = head.resource_version.unwrap_or_default();
            return Ok(Line::Event(WatchEvent::Bookmark { version, initial_events_end }));
        }
        "ERROR" => {
            // Whatever it is, it is an error.
            return Ok(Line::Error(serde_json::from_str(frame.object.get()).unwrap_or_default()));
        }
        _ => return Err(unreadable(what, "an event of an unknown type")),
    };
    Ok(Line::Event(match object(frame.object, kind) {
        Ok(object) => event(object),
        Err(object) => WatchEvent::Undecodable { object, deleted: frame.what == "DELETED" },
    }))
}

fn unreadable(what: &str, why: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Decode).with_context(format!("{what}: {why}"))
}

fn object<K>(json: &RawValue, kind: &K::DynamicType) -> Result<K, Undecodable>
where
    K: Resource + DeserializeOwned + 'static,
{
    match serde_json::from_str::<K>(json.get()) {
        Ok(mut object) => {
            named_kind(&mut object, kind);
            Ok(object)
        }
        Err(e) => {
            let head = serde_json::from_str::<Head>(json.get()).unwrap_or_default().metadata;
            let name = head.name.unwrap_or_default();
            Err(Undecodable {
                key: ObjectKey::new(&head.namespace.unwrap_or_default(), &name).ok(),
                version: head.resource_version.filter(|v| !v.is_empty()),
                why: format!("no {}: {}", K::kind(kind), place(&e)),
            })
        }
    }
}

/// Servers leave out the kind of each item of a list of their own kinds; who holds a `DynamicObject` has nowhere else to
/// look it up.
fn named_kind<K: Resource + 'static>(object: &mut K, kind: &K::DynamicType) {
    if let Some(dynamic) = (object as &mut dyn Any).downcast_mut::<DynamicObject>()
        && dynamic.types.is_none()
    {
        dynamic.types = Some(TypeMeta { api_version: K::api_version(kind).into_owned(), kind: K::kind(kind).into_owned() });
    }
}

/// Where and of which sort an error of the decoder is. Its own text may repeat a value.
pub(super) fn place(e: &serde_json::Error) -> String {
    let what = match e.classify() {
        Category::Syntax => "it is no JSON",
        Category::Eof => "it ends too early",
        Category::Data => "a field is missing or of another type",
        Category::Io => "it could not be read",
    };
    format!("{what} (line {}, column {})", e.line(), e.column())
}
