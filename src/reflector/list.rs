//! One list, page by page.

use super::{
    Core,
    ingest::{Failed, Share},
    observe::FailureKind,
};
use crate::{
    flow::{Object, ObjectKey, Opaque},
    source::{ListParams, SourceError, SourceErrorKind, VersionMatch},
    sync::{
        Stop,
        call_out::{self, Site},
    },
};
use std::ops::ControlFlow;

/// A whole state, as the source told it.
#[derive(Default)]
pub(super) struct State {
    pub(super) version: String,
    /// In the order of arrival.
    pub(super) objects: Vec<Object<Opaque>>,
    pub(super) failed: Vec<Failed>,
    /// More than one page was asked for.
    pub(super) paged: bool,
}

impl State {
    /// Keys of objects that exist but could not be had.
    pub(super) fn kept(&self) -> Vec<ObjectKey> {
        self.failed.iter().filter_map(|f| f.key.clone()).collect()
    }

    /// Whether every object that exists is named.
    pub(super) fn complete(&self) -> bool {
        self.failed.iter().all(|f| f.key.is_some())
    }
}

/// Why there is no state.
pub(super) enum NoState {
    /// The reflector stops.
    Stopped,
    /// The source failed.
    Failed {
        kind: FailureKind,
        message: String,
        /// On a page after the first.
        later_page: bool,
    },
}

impl NoState {
    pub(super) fn failed(error: SourceError, later_page: bool) -> Self {
        let (kind, message) = explain(error);
        Self::Failed { kind, message, later_page }
    }
}

/// Asks for all pages. The version is the first page's; a page after the first carries nothing but its token.
pub(super) fn list(
    core: &Core,
    stop: &Stop,
    share: Share<'_>,
    version: &VersionMatch,
    limit: Option<u32>,
) -> Result<State, NoState> {
    let mut state = State::default();
    let mut params = ListParams { version: version.clone(), limit, continue_token: None, scope: core.options.scope.clone() };
    loop {
        if stop.is_stopped() {
            return Err(NoState::Stopped);
        }
        let page = core.source.list(stop, &params, share, &mut |item| {
            match item {
                Ok(object) => state.objects.push(object),
                Err(failed) => state.failed.push(failed),
            }
            let enough = stop.is_stopped() || core.options.on_undecodable.fails(state.failed.last());
            if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if stop.is_stopped() {
            return Err(NoState::Stopped);
        }
        if core.options.on_undecodable.fails(state.failed.last()) {
            let message = state.failed.pop().map_or(String::new(), |f| f.describe());
            return Err(NoState::Failed { kind: FailureKind::Unreadable, message, later_page: state.paged });
        }
        let end = page.map_err(|e| NoState::failed(e, state.paged))?;
        if !state.paged {
            if end.version.is_empty() {
                return Err(NoState::failed(without_version(), false));
            }
            state.version = end.version;
        }
        match end.continue_token.filter(|token| !token.is_empty()) {
            None => return Ok(state),
            Some(token) if params.continue_token.as_ref() == Some(&token) => {
                let error = SourceError::new(SourceErrorKind::Other)
                    .with_context("a page names itself as the one after it, so the list would never end");
                return Err(NoState::failed(error, true));
            }
            Some(token) => {
                state.paged = true;
                params.version = VersionMatch::MostRecent;
                params.continue_token = Some(token);
            }
        }
    }
}

pub(super) fn without_version() -> SourceError {
    SourceError::new(SourceErrorKind::Other)
        .with_context("the list has no version, so no watch can go on from it; the source must give one")
}

/// The class of an error, and its text with all that lies beneath it. Texts and drops of what a source or a sink put
/// into it are their code.
pub(super) fn explain(error: SourceError) -> (FailureKind, String) {
    let kind = error.kind().clone();
    let text = call_out::call(Site::Source, move || chain(&error)).unwrap_or_else(|_| kind.to_string());
    (FailureKind::Source(kind), text)
}

/// The text of an error and of all that lies beneath it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut beneath = error.source();
    while let Some(e) = beneath {
        text.push_str(": ");
        text.push_str(&e.to_string());
        beneath = e.source();
    }
    text
}
