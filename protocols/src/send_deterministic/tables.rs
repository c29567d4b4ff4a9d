//! Checkpoint tables: one version byte, then plain numbers in postcard.

use counterfoil_ack_piggyback::{RecvWindowState, SendWindowState};
use counterfoil_log_core::{Epoch, Rank};
use serde::{Deserialize, Serialize};

use super::phases::PhaseOrder;
use super::received::Receipts;
use super::sent::Sent;
use crate::api::RestoreError;
use crate::encoding;

/// Version written, and the only one read.
const VERSION: u8 = 3;

/// State at the start of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tables {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) incarnation: u32,
    pub(super) epoch: u32,
    pub(super) phase: u32,
    pub(super) phases: PhaseOrder,
    /// Counted non-deterministic calls.
    pub(super) choices: u64,
    /// Epoch below which this rank never rolls back.
    pub(super) floor: u32,
    /// Epochs without a checkpoint, ascending.
    pub(super) abandoned: Vec<u32>,
    /// Ascending by peer.
    pub(super) channels: Vec<ChannelTable>,
}

/// Channels in both directions between the rank and a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelTable {
    pub(super) peer: u32,
    pub(super) send: SendWindowState,
    pub(super) sent: Sent,
    pub(super) recv: RecvWindowState,
    pub(super) receipts: Receipts,
    pub(super) covered: u64,
    pub(super) collected: u64,
}

impl Tables {
    pub(super) fn encode(&self) -> Vec<u8> {
        encoding::encode_versioned(VERSION, self)
    }

    /// Decodes tables and checks everything possible without the windows.
    pub(super) fn decode(bytes: &[u8], rank: Rank, ranks: u32) -> Result<Tables, RestoreError> {
        let tables: Tables = encoding::decode_tables(VERSION, bytes)?;
        encoding::check_owner((tables.rank, tables.ranks), (rank, ranks))?;
        let what = |what| Err(RestoreError::Contradiction { what });
        if !(Epoch::FIRST.0..=Epoch::MAX.0).contains(&tables.epoch) || tables.floor > tables.epoch {
            return what("the epoch is out of range");
        }
        let (first, last) = (tables.abandoned.first(), tables.abandoned.last());
        let within = first.is_none_or(|&first| first > Epoch::FIRST.0) && last.is_none_or(|&last| last < tables.epoch);
        if !within || !tables.abandoned.is_sorted_by(|a, b| a < b) {
            return what("the epochs without a checkpoint");
        }
        if !tables.phases.is_sound() {
            return what("the order of phases");
        }
        if !tables.channels.is_sorted_by(|a, b| a.peer < b.peer) {
            return what("the channels are not in order");
        }
        if tables.channels.iter().any(|channel| channel.peer >= ranks || channel.peer == rank.0) {
            return what("a channel with a rank that doesn't exist");
        }
        if tables
            .channels
            .iter()
            .any(|channel| channel.send.epoch != tables.epoch || channel.recv.epoch != tables.epoch)
        {
            return what("a channel of another epoch");
        }
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_ack_piggyback::ReceivedSetState;

    use super::*;

    fn channel(peer: u32) -> ChannelTable {
        let recv = RecvWindowState {
            received: ReceivedSetState::default(),
            epochs: Vec::new(),
            epoch: 4,
            incarnation: 0,
            source_sent: 0,
        };
        ChannelTable {
            peer,
            send: SendWindowState { sent: 0, acked: 0, unacked_bytes: 0, epoch: 4 },
            sent: Sent::default(),
            recv,
            receipts: Receipts::default(),
            covered: 0,
            collected: 0,
        }
    }

    /// Returns tables for rank 1 out of 3 in epoch 4.
    fn tables() -> Tables {
        Tables {
            rank: 1,
            ranks: 3,
            incarnation: 0,
            epoch: 4,
            phase: 1,
            phases: PhaseOrder::default(),
            choices: 0,
            floor: 4,
            abandoned: vec![2, 3],
            channels: vec![channel(0), channel(2)],
        }
    }

    /// Returns the contradiction found after `change`.
    fn refused(change: impl Fn(&mut Tables)) -> Option<&'static str> {
        let mut tables = tables();
        change(&mut tables);
        match Tables::decode(&tables.encode(), Rank(1), 3) {
            Err(RestoreError::Contradiction { what }) => Some(what),
            other => {
                assert_eq!(other, Ok(tables));
                None
            }
        }
    }

    #[test]
    fn tables_without_a_contradiction_are_decoded() {
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|tables| tables.abandoned.clear()), None);
        assert_eq!(refused(|tables| tables.channels.clear()), None);
    }

    #[test]
    fn an_epoch_beyond_its_bounds_is_refused() {
        let what = Some("the epoch is out of range");
        assert_eq!(refused(|tables| (tables.epoch, tables.floor) = (0, 0)), what);
        assert_eq!(refused(|tables| tables.floor = 5), what);
    }

    #[test]
    fn epochs_without_a_checkpoint_lie_between_the_first_and_the_current_one_in_order() {
        let what = Some("the epochs without a checkpoint");
        for abandoned in [vec![1], vec![1, 2], vec![4], vec![3, 4], vec![2, 2], vec![3, 2]] {
            assert_eq!(refused(|tables| tables.abandoned = abandoned.clone()), what, "{abandoned:?}");
        }
    }

    #[test]
    fn every_channel_is_with_another_rank_of_the_job_and_in_the_epoch() {
        let in_order = Some("the channels are not in order");
        assert_eq!(refused(|tables| tables.channels = vec![channel(0), channel(0)]), in_order);
        assert_eq!(refused(|tables| tables.channels = vec![channel(2), channel(0)]), in_order);
        let strangers = Some("a channel with a rank that doesn't exist");
        assert_eq!(refused(|tables| tables.channels = vec![channel(1)]), strangers);
        assert_eq!(refused(|tables| tables.channels = vec![channel(3)]), strangers);
        let other_epoch = Some("a channel of another epoch");
        assert_eq!(refused(|tables| tables.channels[0].send.epoch = 3), other_epoch);
        assert_eq!(refused(|tables| tables.channels[1].recv.epoch = 5), other_epoch);
    }
}
