//! [`Deadline`], [`WaitError`], [`Synced`]: what every waiting door takes and answers.

use super::{Clock, Instant};
use std::time::Duration;

/// When a waiting door gives up.
///
/// A `Duration` converts into "that long from the moment the door is entered", on the clock of the thing waited for.
/// Values too large to express mean never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Never,
    After(Duration),
    At(Instant),
}

impl Deadline {
    /// Wait as long as it takes.
    pub const fn never() -> Self {
        Self(Kind::Never)
    }

    /// Give up at `instant` of the clock of the thing waited for.
    pub const fn at(instant: Instant) -> Self {
        Self(Kind::At(instant))
    }

    /// The instant on `clock` at which to give up, `None` for never.
    pub fn on(self, clock: &Clock) -> Option<Instant> {
        match self.0 {
            Kind::Never => None,
            Kind::After(d) => clock.now().checked_add(d),
            Kind::At(i) => Some(i),
        }
    }
}

impl From<Duration> for Deadline {
    fn from(d: Duration) -> Self {
        Self(Kind::After(d))
    }
}

impl From<Option<Instant>> for Deadline {
    fn from(i: Option<Instant>) -> Self {
        i.map_or(Self::never(), Self::at)
    }
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed first.
    #[error("timed out waiting for {}{}", .missing.join(", "), .last_error.as_deref().map(|e| format!("; last error: {e}")).unwrap_or_default())]
    Timeout {
        /// What had not happened yet, by name.
        missing: Vec<String>,
        /// The last failure seen on the way, when there was one, or why it cannot have begun.
        last_error: Option<String>,
    },
    /// The thing waited for has stopped and can never get there.
    #[error("stopped before it happened")]
    Stopped,
    /// The registration waited for was removed.
    #[error("the registration was removed")]
    Removed,
    /// The source started a new era of versions; the version waited for belongs to the old one.
    #[error("the source started a new era of versions")]
    EraReset,
    /// Somebody cancelled the operation waited for.
    #[error("cancelled")]
    Cancelled,
    /// Waiting here could never end: this thread is inside a callback that the thing waited for must finish first.
    #[error("would deadlock: called from a callback that it would have to wait for")]
    WouldDeadlock,
}

/// Something that becomes synced once and stays so: registrations, informers, queues.
pub trait Synced: Send + Sync {
    /// Names the thing in the answer of a wait that timed out.
    fn name(&self) -> &str;

    /// True once the last item of the initial state has been *processed*; never false again. *Blocks*: briefly.
    fn has_synced(&self) -> bool;

    /// Waits until [`Synced::has_synced`].
    ///
    /// # Errors
    /// `Timeout` with the name of what is missing, `Stopped` or `Removed` when it cannot happen any more,
    /// `WouldDeadlock` from a callback that it would have to wait for.
    fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError>;
}

/// Waits until all are synced, one deadline for the whole; names everything that is missing when it passes.
///
/// # Errors
/// The first error that is no time-out, else one `Timeout` naming each that was not synced. An empty set is
/// `Err(Cancelled)`: nothing to wait for is a mistake of the caller, not success.
pub fn wait_all_synced(clock: &Clock, all: &[&dyn Synced], deadline: Deadline) -> Result<(), WaitError> {
    if all.is_empty() {
        return Err(WaitError::Cancelled);
    }
    let at = Deadline::from(deadline.on(clock));
    let (mut missing, mut last) = (Vec::new(), None);
    for one in all {
        match one.wait_synced(at) {
            Ok(()) => {}
            Err(WaitError::Timeout { missing: m, last_error }) => {
                missing.extend(m);
                last = last_error.or(last);
            }
            Err(other) => return Err(other),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(WaitError::Timeout { missing, last_error: last }) }
}
