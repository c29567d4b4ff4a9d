//! Checkpoint tables: one version byte, then plain numbers in postcard.

use counterfoil_log_core::{Epoch, Rank, Ssn};
use serde::{Deserialize, Serialize};

use crate::api::RestoreError;
use crate::encoding;

/// Protocol state in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tables {
    /// Rank recorded in the tables.
    pub(super) rank: u32,
    /// Interval that the checkpoint begins.
    pub(super) epoch: u32,
    /// Covered non-deterministic calls.
    pub(super) choices: u64,
    /// Number of the next message copy.
    pub(super) copies: u64,
    /// By rank: number of messages sent to and received from it.
    pub(super) channels: Vec<(u64, u64)>,
}

impl Tables {
    pub(super) fn encode(&self, version: u8) -> Vec<u8> {
        encoding::encode_versioned(version, self)
    }

    /// Decodes and checks `rank`'s tables in a job of `ranks`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_an_impossible_number_are_refused() {
        let decode = |epoch, sent, received| {
            let channels = vec![(0, 0), (sent, received)];
            let tables = Tables { rank: 0, epoch, choices: 0, copies: 0, channels };
            Tables::decode(7, &tables.encode(7), Rank(0), 2).err()
        };
        let most = Ssn::MAX.0;
        assert_eq!(decode(Epoch::MAX.0, most, most), None);
        for (sent, received) in [(most + 1, 0), (0, most + 1)] {
            let what = "a number of messages is out of range";
            assert_eq!(decode(1, sent, received), Some(RestoreError::Contradiction { what }));
        }
        for epoch in [0, Epoch::MAX.0 + 1] {
            let what = "the epoch is out of range";
            assert_eq!(decode(epoch, 0, 0), Some(RestoreError::Contradiction { what }));
        }
    }
}
