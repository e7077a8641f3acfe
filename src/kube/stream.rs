//! An open watch: bytes, lines, events.
//!
//! A body that ends after a newline ended in order. One that breaks, or ends within a line, was cut; what came of that
//! line is dropped, and the watch that follows will bring it whole.

use super::{
    decode::{self, Line},
    error,
    io::{self, Io},
};
use crate::{
    source::{Next, RequestKind, SourceError, SourceErrorKind, WatchStream},
    sync::{Deadline, Wake, Woken},
};
use ::kube::{Resource, client::Body};
use bytes::Bytes;
use http_body::{Body as _, Frame};
use serde::de::DeserializeOwned;
use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A line longer than this is no event: the storage of a cluster takes objects of about one megabyte.
const LONGEST_LINE: usize = 64 << 20;

pub(super) struct Stream<K: Resource> {
    /// None when it is over. Before `io`, so that the connection goes before the thread.
    body: Option<Body>,
    lines: Lines,
    waker: Option<Waker>,
    kind: K::DynamicType,
    asked: RequestKind,
    /// For messages.
    what: String,
    io: Io,
}

/// What came and was not read yet.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// What came last, without the lines read.
    chunk: Bytes,
}

impl Lines {
    /// Takes what came. Everything before has been read.
    fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// The next whole line, without its end.
    fn next(&mut self) -> Option<Bytes> {
        let Some(end) = self.chunk.iter().position(|b| *b == b'\n') else {
            self.begun.extend_from_slice(&self.chunk);
            self.chunk.clear();
            return None;
        };
        let line = self.chunk.split_to(end + 1).slice(..end);
        if self.begun.is_empty() {
            return Some(line);
        }
        self.begun.extend_from_slice(&line);
        Some(std::mem::take(&mut self.begun).into())
    }
}

impl<K: Resource> Stream<K> {
    pub(super) fn new(io: Io, body: Body, kind: K::DynamicType, asked: RequestKind, what: String) -> Self {
        Self { body: Some(body), lines: Lines::default(), waker: None, kind, asked, what, io }
    }

    fn failed(&mut self, error: SourceError) -> Next<K> {
        self.body = None;
        self.lines = Lines::default();
        Next::Failed(error)
    }

    fn cut(&mut self, error: SourceError) -> Next<K> {
        let error = error.with_context(self.what.clone());
        self.failed(error)
    }

    /// Takes what the body answered; `Some` when the stream is over.
    fn received(&mut self, frame: Option<Result<Frame<Bytes>, ::kube::Error>>) -> Option<Next<K>> {
        match frame {
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    self.lines.push(chunk);
                }
                None
            }
            Some(Err(e)) => {
                let error = error::of_body(e);
                Some(self.cut(error))
            }
            None if self.lines.begun.is_empty() => {
                self.body = None;
                Some(Next::End)
            }
            None => Some(self.cut(SourceError::caused_by(SourceErrorKind::Transport, "it ended in the middle of an event"))),
        }
    }
}

impl<K: Resource + DeserializeOwned + 'static> Stream<K> {
    /// The next event of what came.
    fn read(&mut self) -> Option<Next<K>> {
        loop {
            let Some(line) = self.lines.next() else {
                return (self.lines.begun.len() > LONGEST_LINE).then(|| {
                    let context = format!("{}: an event of more than {LONGEST_LINE} bytes", self.what);
                    self.failed(SourceError::new(SourceErrorKind::Decode).with_context(context))
                });
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some(match decode::line(&self.what, &line, &self.kind) {
                Ok(Line::Event(event)) => Next::Event(event),
                Ok(Line::Error(status)) => {
                    let error = error::of_frame(self.asked, &self.what, &status);
                    self.failed(error)
                }
                Err(e) => self.failed(e),
            });
        }
    }
}

impl<K> WatchStream<K> for Stream<K>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<K> {
        // One instant for all looks.
        let deadline = Deadline::from(deadline.on(wake.clock()));
        loop {
            if wake.is_stopped() {
                return Next::Stopped;
            }
            if let Some(next) = self.read() {
                return next;
            }
            let Some(body) = &mut self.body else { return Next::End };
            // Made anew for each wait, which costs nothing beside it, so that it is this wake's.
            let waker = self.waker.insert(io::waker(wake));
            match self.io.wait(waker, wake, deadline, |cx| poll_body(body, cx)) {
                Ok(frame) => {
                    if let Some(over) = self.received(frame) {
                        return over;
                    }
                }
                Err(Woken::Stopped) => return Next::Stopped,
                Err(Woken::Nudged) => return Next::Woken,
                Err(Woken::Deadline) => return Next::Deadline,
            }
        }
    }

    fn ready(&mut self) -> Option<Next<K>> {
        loop {
            if let Some(next) = self.read() {
                return Some(next);
            }
            let (Some(body), Some(waker)) = (&mut self.body, &self.waker) else { return None };
            let frame = self.io.poll(waker, &mut |cx: &mut Context<'_>| poll_body(body, cx))?;
            if let Some(over) = self.received(frame) {
                return Some(over);
            }
        }
    }
}

pub(super) fn poll_body(body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ::kube::Error>>> {
    Pin::new(body).poll_frame(cx)
}
