//! Checkpoint tables: one version byte, then plain numbers in postcard.

use counterfoil_ack_piggyback::{RecvWindowState, SendWindowState};
use counterfoil_log_core::{Epoch, Rank, Ssn};
use serde::{Deserialize, Serialize};

use crate::api::RestoreError;
use crate::encoding;

/// Version written, and the only one read.
const VERSION: u8 = 1;

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
    /// Used channels, ascending by peer.
    pub(super) channels: Vec<ChannelTable>,
}

/// Channels in both directions between the rank and a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelTable {
    pub(super) peer: u32,
    pub(super) send: SendWindowState,
    pub(super) recv: RecvWindowState,
    /// Peer's newest durable checkpoint: its epoch, and the last covered message.
    pub(super) covered_by_peer: (u32, u64),
}

impl Tables {
    pub(super) fn encode(&self) -> Vec<u8> {
        encoding::encode_versioned(VERSION, self)
    }

    /// Decodes tables and checks everything possible without the windows.
    pub(super) fn decode(bytes: &[u8], rank: Rank, ranks: u32) -> Result<Tables, RestoreError> {
        let tables: Tables = encoding::decode_tables(VERSION, bytes)?;
        encoding::check_owner((tables.rank, tables.ranks), (rank, ranks))?;
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

#[cfg(test)]
mod tests {
    use counterfoil_ack_piggyback::ReceivedSetState;

    use super::*;

    fn channel(peer: u32, epoch: u32) -> ChannelTable {
        let (received, epochs) = (ReceivedSetState::default(), Vec::new());
        ChannelTable {
            peer,
            send: SendWindowState { sent: 0, acked: 0, unacked_bytes: 0, epoch },
            recv: RecvWindowState { received, epochs, epoch, incarnation: 0, source_sent: 0 },
            covered_by_peer: (1, 0),
        }
    }

    /// Returns tables for rank 1 out of 3 in `epoch`.
    fn tables(epoch: u32) -> Tables {
        Tables { rank: 1, ranks: 3, epoch, choices: 0, channels: vec![channel(0, epoch), channel(2, epoch)] }
    }

    /// Returns the contradiction found after `change`.
    fn refused(change: impl Fn(&mut Tables)) -> Option<&'static str> {
        let mut tables = tables(4);
        change(&mut tables);
        tables.check().err()
    }

    #[test]
    fn a_checkpoint_is_in_any_epoch_but_the_first() {
        assert_eq!((tables(2).check(), tables(Epoch::MAX.0).check()), (Ok(()), Ok(())));
        let out_of_range = Err("the epoch is out of range");
        assert_eq!((tables(1).check(), tables(Epoch::MAX.0 + 1).check()), (out_of_range, out_of_range));
    }

    #[test]
    fn every_channel_is_with_another_rank_of_the_job_and_in_the_epoch() {
        let in_order = Some("the channels are not in order");
        assert_eq!(refused(|tables| tables.channels[1].peer = 0), in_order);
        assert_eq!(refused(|tables| tables.channels.swap(0, 1)), in_order);
        let stranger = Some("a channel with a rank that doesn't exist");
        assert_eq!(refused(|tables| tables.channels[1].peer = 3), stranger);
        let other_epoch = Some("a channel of another epoch");
        assert_eq!(refused(|tables| tables.channels[0].send.epoch = 3), other_epoch);
        assert_eq!(refused(|tables| tables.channels[1].recv.epoch = 5), other_epoch);
    }

    #[test]
    fn a_peer_covers_numbers_that_are_in_range() {
        let covered = |epoch, upto| refused(|tables| tables.channels[0].covered_by_peer = (epoch, upto));
        assert_eq!(covered(Epoch::MAX.0, Ssn::MAX.0), None);
        let out_of_range = Some("what a peer covers is out of range");
        assert_eq!((covered(0, 0), covered(1, Ssn::MAX.0 + 1)), (out_of_range, out_of_range));
    }
}
