//! Checkpoint tables and the sealed log, each a versioned message in plain numbers.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::state::ReceivedSetState;
use counterfoil_log_core::{Epoch, Rank, Ssn};
use serde::{Deserialize, Serialize};

use super::message;
use crate::api::{EntryKey, EntryKind, RestoreError};
use crate::encoding;

/// Collective call, by communicator and number.
pub(super) type CallId = (u32, u64);

/// Protocol state in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tables {
    /// Rank recorded in the tables.
    pub(super) rank: u32,
    /// Its job size.
    pub(super) ranks: u32,
    /// Epoch begun by the checkpoint.
    pub(super) epoch: u32,
    /// Counted non-deterministic calls.
    pub(super) choices: u64,
    /// By communicator: number of collective calls made.
    pub(super) calls: BTreeMap<u32, u64>,
    /// *re-exec log*: root and call.
    pub(super) repeated: Vec<(u32, CallId)>,
    /// *suppress log* for calls to this rank: sender and call.
    pub(super) suppressed: Vec<(u32, CallId)>,
    /// Ascending by peer.
    pub(super) channels: Vec<ChannelTable>,
}

/// Channels in both directions between the rank and a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelTable {
    pub(super) peer: u32,
    pub(super) sent: u64,
    /// Messages received, early ones among them: *earlyIDs*, as a set.
    pub(super) received: ReceivedSetState,
    /// Number of early ones.
    pub(super) early: u64,
}

impl Tables {
    /// Decodes tables, and checks everything possible without the channels.
    pub(super) fn decode(bytes: &[u8], rank: Rank, ranks: u32) -> Result<Tables, RestoreError> {
        let tables: Tables = encoding::decode_tables(message::VERSION, bytes)?;
        encoding::check_owner((tables.rank, tables.ranks), (rank, ranks))?;
        let what = if !(Epoch::FIRST.0..=Epoch::MAX.0).contains(&tables.epoch) {
            "the epoch is out of range"
        } else if !tables.channels.is_sorted_by(|a, b| a.peer < b.peer) {
            "the channels are not in order"
        } else if tables.channels.iter().any(|channel| channel.peer >= ranks || channel.sent > Ssn::MAX.0) {
            "a channel with a rank or a message that doesn't exist"
        } else {
            return Ok(tables);
        };
        Err(RestoreError::Contradiction { what })
    }
}

/// Log of a line without the messages and results, which are separate entries: *recovery log* and *suppress log*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Log {
    /// Number of late messages.
    pub(super) messages: u32,
    /// Outcomes: call number, source, SSN.
    pub(super) outcomes: Vec<(u64, u32, u64)>,
    /// Calls with a result, in entry order.
    pub(super) results: Vec<CallId>,
    /// Sender and call to this rank.
    pub(super) suppressed: Vec<(u32, CallId)>,
}

/// Returns the key for an entry in the log of the line beginning `epoch`.
pub(super) fn entry(kind: EntryKind, epoch: Epoch, place: u32) -> EntryKey {
    EntryKey { kind, number: u64::from(epoch.0) << 32 | u64::from(place) }
}

/// Returns the epoch and place of an entry.
pub(super) fn place_of(entry: EntryKey) -> (Epoch, u32) {
    (Epoch((entry.number >> 32) as u32), entry.number as u32)
}

/// Place of the note with the sealed [`Log`] of a line.
pub(super) const SEALED: u32 = 0;
/// Place of the note about the commit of a line.
pub(super) const COMMITTED: u32 = 1;

#[cfg(test)]
mod tests {
    use counterfoil_ack_piggyback::ReceivedSet;

    use super::*;

    #[test]
    fn tables_with_an_impossible_channel_are_refused() {
        let channel = |peer, sent| {
            let received = ReceivedSet::default().snapshot();
            ChannelTable { peer, sent, received, early: 0 }
        };
        let decode = |channels: Vec<ChannelTable>| {
            let (calls, repeated, suppressed) = (BTreeMap::new(), Vec::new(), Vec::new());
            let tables = Tables { rank: 0, ranks: 3, epoch: 1, choices: 0, calls, repeated, suppressed, channels };
            Tables::decode(&message::encode(&tables), Rank(0), 3).err()
        };
        let refused = |what| Some(RestoreError::Contradiction { what });
        assert_eq!(decode(vec![channel(1, 0), channel(2, Ssn::MAX.0)]), None);
        for order in [[1, 1], [2, 1]] {
            assert_eq!(decode(order.map(|peer| channel(peer, 0)).into()), refused("the channels are not in order"));
        }
        for (peer, sent) in [(3, 0), (1, Ssn::MAX.0 + 1)] {
            let what = "a channel with a rank or a message that doesn't exist";
            assert_eq!(decode(vec![channel(peer, sent)]), refused(what));
        }
    }
}
