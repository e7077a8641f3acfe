//! The check of a silent watch.
//!
//! A watch from a version that the server has not reached (its cluster was restored from a backup) is opened and stays
//! silent, and so does one whose connection died without a word. Silence alone proves neither: nothing may have
//! happened. So a list of one object is asked for, not older than the position. Whoever can answer that has reached the
//! position, and the watch is good.

use super::{
    ingest::RawSource,
    list::explain,
    observe::{During, FailureKind, LastError, ReflectorEvent, answered},
    run::{Over, Run},
};
use crate::source::{ListParams, SourceError, SourceErrorKind, VersionMatch};
use std::{cmp::Ordering, time::Duration};

/// What came of it.
pub(super) enum Probed {
    /// The server is there and has reached the position.
    Good,
    /// The server is there; ask again after this.
    Unclear(Duration),
    /// The server has not reached the position.
    NotReached(FailureKind, String),
    /// Nobody answers: the connection is half open.
    Dead(String),
}

impl Run<'_> {
    /// Asks whether the server has reached the position. Of what it answers only that matters.
    pub(super) fn probe(&mut self) -> Result<Probed, Over> {
        let core = self.core;
        let version = VersionMatch::NotOlderThan(self.position.clone());
        let params = ListParams { version, limit: Some(1), continue_token: None, scope: core.options.scope.clone() };
        let began = self.now();
        let answer = core.source.probe(self.stop, &params).and_then(|end| not_older(&*core.source, &end.version, &self.position));
        self.alive()?;
        let took = self.now().since(began);
        let (probed, failure) = match answer.map_err(explain) {
            Ok(()) => (Probed::Good, None),
            Err((kind, message)) => {
                let failure = match &kind {
                    FailureKind::Source(kind) => kind.clone(),
                    _ => SourceErrorKind::Other,
                };
                use SourceErrorKind as K;
                let probed = match failure {
                    K::TooLargeVersion { .. } => Probed::NotReached(kind.clone(), message.clone()),
                    K::ConnectionRefused | K::Connect | K::Transport | K::Timeout => Probed::Dead(message.clone()),
                    _ => Probed::Unclear(self.backoff_step(failure.retry_after())),
                };
                if matches!(probed, Probed::Unclear(_)) {
                    let last = LastError { at: self.now(), during: During::Probe, kind, message };
                    core.shared.health.lock().last_error = Some(last);
                }
                (probed, Some(failure))
            }
        };
        if failure.as_ref().is_none_or(|kind| answered(&FailureKind::Source(kind.clone()))) {
            self.contact(|_| {});
        }
        let again = match probed {
            Probed::Unclear(wait) => Some(wait),
            _ => None,
        };
        self.tell(&ReflectorEvent::Probed { from: self.position.clone(), failure, again, took });
        Ok(probed)
    }
}

/// A server that lags behind may take the version for advice, and answer an older state.
fn not_older(source: &dyn RawSource, answered: &str, position: &str) -> Result<(), SourceError> {
    if source.compare(answered, position) == Some(Ordering::Less) {
        let why = format!("a list not older than {position} answered {answered}, which is older");
        return Err(SourceError::new(SourceErrorKind::TooLargeVersion { retry_after: None }).with_context(why));
    }
    Ok(())
}
