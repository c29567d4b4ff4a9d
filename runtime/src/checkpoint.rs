//! The runtime's part of a checkpoint.
//!
//! The log's checkpoint holds the program's bytes and named tables, opaque to the log. These are the runtime's tables:
//!
//! | table | contents |
//! |---|---|
//! | `protocol` | the protocol's own tables, opaque to the runtime as well |
//! | `counters` | counters from which a re-execution continues |
//! | `unexpected` | messages received, but not yet matched to a receive |

use bytes::Bytes;
use counterfoil::{Contents, Epoch};
use serde::{Deserialize, Serialize};

use crate::matching::Message;
use crate::trace::TraceCounters;

const PROTOCOL: &str = "protocol";
const COUNTERS: &str = "counters";
const UNEXPECTED: &str = "unexpected";

/// A table missing from a checkpoint or undecodable: the checkpoint is from another program or version.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint of epoch {epoch} has no usable table {table:?}: it was written by another program or version")]
pub struct TableError {
    /// Epoch that the checkpoint begins.
    pub epoch: u32,
    /// Table name.
    pub table: &'static str,
}

/// Runtime counters from which a re-execution continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Trace counters.
    pub trace: TraceCounters,
    /// Collective calls so far.
    pub collectives: u64,
    /// The program's current iteration; 0 before the first.
    pub iteration: u64,
    /// Messages logged so far, and their payload bytes.
    pub logged: (u64, u64),
    /// Messages from the rank to itself, if the rule leaves them to the runtime.
    pub to_self: u64,
    /// Requests so far.
    pub requests: u64,
    /// Timing-dependent calls so far.
    pub choices: u64,
}

/// Encoded form of an unexpected message.
#[derive(Serialize, Deserialize)]
struct Unexpected<'a> {
    source: u32,
    tag: i32,
    comm: u32,
    ssn: u64,
    #[serde(borrow)]
    payload: &'a [u8],
}

/// State of program, protocol and runtime in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The program's own bytes.
    pub application: Bytes,
    /// The protocol's tables, encoded.
    pub protocol: Bytes,
    /// The runtime's counters.
    pub counters: Counters,
    /// Messages received, but not yet matched, in arrival order.
    pub unexpected: Vec<Message>,
}

impl Snapshot {
    /// Encodes the snapshot for the log's checkpoint.
    ///
    /// # Errors
    /// [`postcard::Error`] from the encoder. All these types can be encoded.
    pub fn into_contents(self) -> Result<Contents, postcard::Error> {
        let unexpected: Vec<Unexpected<'_>> = self.unexpected.iter().map(Unexpected::of).collect();
        let tables = vec![
            (PROTOCOL.to_owned(), self.protocol.into()),
            (COUNTERS.to_owned(), postcard::to_stdvec(&self.counters)?),
            (UNEXPECTED.to_owned(), postcard::to_stdvec(&unexpected)?),
        ];
        Ok(Contents { application: self.application.into(), tables })
    }

    /// Decodes the contents of a checkpoint found by a recovery, which began `epoch`.
    ///
    /// # Errors
    /// [`TableError`] names the first table missing or undecodable.
    pub fn from_contents(epoch: Epoch, contents: Contents) -> Result<Snapshot, TableError> {
        let epoch = epoch.0;
        let table = |table: &'static str| contents.table(table).ok_or(TableError { epoch, table });
        let counters = postcard::from_bytes(table(COUNTERS)?).map_err(|_| TableError { epoch, table: COUNTERS })?;
        let unexpected: Vec<Unexpected<'_>> =
            postcard::from_bytes(table(UNEXPECTED)?).map_err(|_| TableError { epoch, table: UNEXPECTED })?;
        Ok(Snapshot {
            protocol: Bytes::copy_from_slice(table(PROTOCOL)?),
            counters,
            unexpected: unexpected.iter().map(Unexpected::message).collect(),
            application: contents.application.into(),
        })
    }
}

impl<'a> Unexpected<'a> {
    fn of(message: &'a Message) -> Unexpected<'a> {
        let Message { source, tag, comm, ssn, ref payload } = *message;
        Unexpected { source, tag, comm, ssn, payload }
    }

    fn message(&self) -> Message {
        let Unexpected { source, tag, comm, ssn, payload } = *self;
        Message { source, tag, comm, ssn, payload: Bytes::copy_from_slice(payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let message = |ssn, payload: &'static [u8]| Message {
            source: 3,
            tag: -1,
            comm: 9,
            ssn,
            payload: Bytes::from_static(payload),
        };
        Snapshot {
            application: Bytes::from_static(b"state"),
            protocol: Bytes::from_static(b"windows"),
            counters: Counters { collectives: 7, iteration: 3, logged: (4, 5), ..Counters::default() },
            unexpected: vec![message(1, b""), message(2, b"late")],
        }
    }

    const EPOCH: Epoch = Epoch(2);

    #[test]
    fn a_snapshot_round_trips() {
        let contents = snapshot().into_contents().unwrap();
        assert_eq!(Snapshot::from_contents(EPOCH, contents).unwrap(), snapshot());
    }

    #[test]
    fn a_table_that_is_missing_or_cut_short_is_named() {
        let contents = snapshot().into_contents().unwrap();
        for (index, (name, _)) in contents.tables.iter().enumerate() {
            let mut missing = contents.clone();
            missing.tables.remove(index);
            assert_eq!(Snapshot::from_contents(EPOCH, missing).unwrap_err().table, name);
            let mut cut = contents.clone();
            cut.tables[index].1.pop();
            let outcome = Snapshot::from_contents(EPOCH, cut);
            // The protocol decodes its own table.
            assert!(name == PROTOCOL || outcome.unwrap_err().table == name);
        }
    }
}
