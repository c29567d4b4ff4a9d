//! A rank's actions in a replay: its sends, receives and polls, in order.
//!
//! From all ranks' histories follows where a wildcard had a choice ([`crate::races`]).

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::matching::Pattern;

/// A program call, in its own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Call number.
    pub call: u64,
    /// Function name.
    pub name: Cow<'static, str>,
}

/// Event on a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A message was sent: the next one to `to`.
    Send {
        /// Destination.
        to: u32,
        /// Context number.
        comm: u32,
        /// Tag.
        tag: i32,
    },
    /// A receive was posted.
    Receive {
        /// Request number.
        request: u64,
        /// Pattern to take.
        pattern: Pattern,
        /// Call, if it takes a message from any rank.
        place: Option<Place>,
    },
    /// The program got a receive's message.
    Deliver {
        /// Request number.
        request: u64,
        /// The message's source.
        source: u32,
        /// The message's SSN: its number among the source's, from 1.
        ssn: u64,
    },
    /// A probe for a message from any rank has found one.
    Probe {
        /// Pattern of the probe.
        pattern: Pattern,
        /// The message's source.
        source: u32,
        /// The message's SSN.
        ssn: u64,
        /// Call.
        place: Place,
    },
    /// A test, or a probe that doesn't wait.
    Poll {
        /// The poll has found something.
        found: bool,
    },
}

/// Failure to write or read events.
#[derive(Debug, thiserror::Error)]
#[error("the history of the replay, {}: {source}", path.display())]
pub struct HistoryError {
    /// The file.
    pub path: PathBuf,
    /// Operating system or decoder error.
    pub source: io::Error,
}

/// Writes a rank's events to a file, each at once: a replay ends anywhere.
#[derive(Debug)]
pub(crate) struct History {
    file: File,
    path: PathBuf,
    pub(crate) place: Place,
    /// Polls have found nothing since the last event; one is written.
    has_polled: bool,
}

impl History {
    /// Creates the file, which must not exist.
    pub(crate) fn create(path: &Path) -> Result<History, HistoryError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|source| HistoryError { path: path.to_owned(), source })?;
        Ok(History { file, path: path.to_owned(), place: Place::default(), has_polled: false })
    }

    pub(crate) fn write(&mut self, event: &Event) -> Result<(), HistoryError> {
        let is_empty_poll = matches!(event, Event::Poll { found: false });
        if std::mem::replace(&mut self.has_polled, is_empty_poll) && is_empty_poll {
            return Ok(());
        }
        let failed = |source| HistoryError { path: self.path.clone(), source };
        let bytes = postcard::to_allocvec(event).map_err(|error| failed(io::Error::other(error)))?;
        self.file.write_all(&bytes).map_err(failed)
    }
}

/// Reads a rank's events.
///
/// # Errors
/// [`HistoryError`].
pub fn read(path: &Path) -> Result<Vec<Event>, HistoryError> {
    let failed = |source| HistoryError { path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(failed)?;
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (event, after) = postcard::take_from_bytes(rest).map_err(|error| failed(io::Error::other(error)))?;
        events.push(event);
        rest = after;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written_and_runs_of_empty_polls_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut history = History::create(&path).unwrap();
        let pattern = Pattern { source: None, tag: Some(-7), comm: 4 };
        let place = Place { call: 12, name: Cow::Borrowed("MPI_Recv") };
        let nothing = Event::Poll { found: false };
        let events = [
            Event::Send { to: 3, comm: 1, tag: 9 },
            nothing.clone(),
            Event::Receive { request: 8, pattern, place: Some(place.clone()) },
            Event::Probe { pattern, source: 2, ssn: 1 << 40, place },
            nothing.clone(),
            Event::Poll { found: true },
            Event::Deliver { request: 8, source: 2, ssn: 1 << 40 },
        ];
        for event in &events {
            history.write(event).unwrap();
            if *event == nothing {
                history.write(event).unwrap();
            }
        }
        assert_eq!(read(&path).unwrap(), events);
        assert!(History::create(&path).is_err());
        std::fs::write(&path, [200]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("history"));
    }
}
