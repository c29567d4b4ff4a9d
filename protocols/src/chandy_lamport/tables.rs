//! Checkpoint tables: one byte of version, then postcard of plain numbers.

use counterfoil_log_core::{Epoch, Rank, Ssn};
use serde::{Deserialize, Serialize};

use crate::api::RestoreError;
use crate::encoding;

/// State of the protocol in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tables {
    /// Rank that wrote the tables.
    pub(super) rank: u32,
    /// Interval that the checkpoint begins.
    pub(super) epoch: u32,
    /// Number of non-deterministic calls that it covers.
    pub(super) choices: u64,
    /// Number of the next copy of a message.
    pub(super) copies: u64,
    /// By rank: number of messages sent to it, and received from it.
    pub(super) channels: Vec<(u64, u64)>,
}

impl Tables {
    pub(super) fn encode(&self, version: u8) -> Vec<u8> {
        encoding::encode_versioned(version, self)
    }

    /// Decodes and checks the tables of `rank` in a job of `ranks`.
    pub(super) fn decode(version: u8, bytes: &[u8], rank: Rank, ranks: u32) -> Result<Tables, RestoreError> {
        let tables: Tables = encoding::decode_tables(version, bytes)?;
        encoding::check_owner((tables.rank, tables.channels.len() as u32), (rank, ranks))?;
        if !(Epoch::FIRST.0..=Epoch::MAX.0).contains(&tables.epoch) {
            return Err(RestoreError::Contradiction { what: "the epoch is out of range" });
        }
        if tables.channels.iter().any(|&(sent, received)| sent.max(received) > Ssn::MAX.0) {
            return Err(RestoreError::Contradiction { what: "a number of messages is out of range" });
        }
        Ok(tables)
    }
}
