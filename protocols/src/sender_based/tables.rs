//! Checkpoint tables: one byte of version, then postcard of plain numbers.

use counterfoil_ack_piggyback::{RecvWindowState, SendWindowState};
use counterfoil_log_core::{Epoch, Rank, Ssn};
use serde::{Deserialize, Serialize};

use crate::api::RestoreError;

/// Version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// State of the protocol in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tables {
    /// Rank that wrote the tables.
    pub(super) rank: u32,
    /// Size of its job.
    pub(super) ranks: u32,
    /// Epoch that the checkpoint begins.
    pub(super) epoch: u32,
    /// Number of non-deterministic calls counted.
    pub(super) choices: u64,
    /// Channels that were used, ascending by peer.
    pub(super) channels: Vec<ChannelTable>,
}

/// Channels in both directions between the rank and a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelTable {
    pub(super) peer: u32,
    pub(super) send: SendWindowState,
    pub(super) recv: RecvWindowState,
    /// Peer's newest durable checkpoint: the epoch that it began, and the last message that it covers.
    pub(super) covered_by_peer: (u32, u64),
}

impl Tables {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION])
            .expect("numbers and vectors of known length always encode into a growing vector")
    }

    /// Decodes tables and checks everything that can be judged without the windows.
    pub(super) fn decode(bytes: &[u8], rank: Rank, ranks: u32) -> Result<Tables, RestoreError> {
        let malformed = RestoreError::Malformed { len: bytes.len() };
        let Some((&found, rest)) = bytes.split_first() else { return Err(malformed) };
        if found != VERSION {
            return Err(RestoreError::Version { found, expected: VERSION });
        }
        let Ok((tables, [])) = postcard::take_from_bytes::<Tables>(rest) else { return Err(malformed) };
        if tables.rank != rank.0 {
            return Err(RestoreError::OtherRank { found: Rank(tables.rank), expected: rank });
        }
        if tables.ranks != ranks {
            return Err(RestoreError::OtherJob { found: tables.ranks, expected: ranks });
        }
        tables.check().map_err(|what| RestoreError::Contradiction { what })?;
        Ok(tables)
    }

    fn check(&self) -> Result<(), &'static str> {
        // A checkpoint begins an epoch, and never the first.
        let epochs = Epoch::FIRST.0 + 1..=Epoch::MAX.0;
        if !epochs.contains(&self.epoch) {
            return Err("the epoch is out of range");
        }
        if !self.channels.is_sorted_by(|a, b| a.peer < b.peer) {
            return Err("the channels are not in order");
        }
        if self.channels.last().is_some_and(|last| last.peer >= self.ranks) {
            return Err("a channel with a rank that doesn't exist");
        }
        for channel in &self.channels {
            if channel.send.epoch != self.epoch || channel.recv.epoch != self.epoch {
                return Err("a channel of another epoch");
            }
            let (epoch, upto) = channel.covered_by_peer;
            if !(Epoch::FIRST.0..=Epoch::MAX.0).contains(&epoch) || upto > Ssn::MAX.0 {
                return Err("what a peer covers is out of range");
            }
        }
        Ok(())
    }
}
