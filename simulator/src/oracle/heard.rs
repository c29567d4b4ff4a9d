//! Receipts known to their senders, according to frames on the wire: acknowledgements and Hellos.
//!
//! A restart or rollback of either rank ends a channel's known receipts; the receiver's next Hello begins them anew,
//! and frames from its earlier incarnations no longer count.

use counterfoil_log_core::{Incarnation, Ssn};

/// Receipts of one channel's messages, as heard by the sender.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// The receiver's incarnation in its Hello; `None` before.
    incarnation: Option<Incarnation>,
    /// Last message with a heard receipt.
    upto: Ssn,
    /// Last message with a receipt applied to the sender's log.
    applied: Ssn,
    /// Last message with a receipt known to the sender when it sent its table.
    reported: Ssn,
}

/// Heard receipts on all channels.
#[derive(Debug)]
pub(super) struct Heard {
    ranks: usize,
    /// By sender and receiver.
    channels: Vec<Channel>,
}

impl Heard {
    pub(super) fn new(ranks: usize) -> Heard {
        Heard { ranks, channels: vec![Channel::default(); ranks * ranks] }
    }

    fn channel(&mut self, rank: u32, peer: u32) -> &mut Channel {
        &mut self.channels[rank as usize * self.ranks + peer as usize]
    }

    fn get(&self, rank: u32, peer: u32) -> &Channel {
        &self.channels[rank as usize * self.ranks + peer as usize]
    }

    /// Handles a Hello accepted by a rank from a peer, which has received the messages up to `upto`.
    pub(super) fn handle_hello(&mut self, rank: u32, peer: u32, incarnation: Incarnation, upto: Ssn) {
        let channel = self.channel(rank, peer);
        (channel.incarnation, channel.upto) = (Some(incarnation), upto);
    }

    /// Handles an acknowledgement arriving at a rank from a peer.
    pub(super) fn handle_ack(&mut self, rank: u32, peer: u32, incarnation: Incarnation, upto: Ssn) {
        let channel = self.channel(rank, peer);
        if channel.incarnation.is_some_and(|known| incarnation >= known) {
            channel.upto = channel.upto.max(upto);
        }
    }

    /// Notes the effect of the receipts up to `upto`.
    pub(super) fn note_applied(&mut self, rank: u32, peer: u32, upto: Ssn) {
        let applied = &mut self.channel(rank, peer).applied;
        *applied = upto.max(*applied);
    }

    /// Notes that the receipts beyond `to` have no effect any more.
    pub(super) fn note_undone(&mut self, rank: u32, peer: u32, to: Ssn) {
        let applied = &mut self.channel(rank, peer).applied;
        *applied = to.min(*applied);
    }

    /// Forgets everything heard by a rank or from it: the execution was undone.
    pub(super) fn restore(&mut self, rank: u32) {
        for peer in 0..self.ranks as u32 {
            for (from, to) in [(rank, peer), (peer, rank)] {
                let channel = self.channel(from, to);
                *channel = Channel { reported: channel.reported, ..Channel::default() };
            }
        }
    }

    /// Sets how far a lane was transmitted, when its rank sends its table.
    ///
    /// A receipt counts once the message was transmitted on the current connection, because its record may be released
    /// then, and the peer may wait for it.
    pub(super) fn report(&mut self, rank: u32, peer: u32, transmitted: Ssn) {
        let channel = self.channel(rank, peer);
        channel.reported = channel.upto.min(transmitted);
    }

    /// Returns the last message with a receipt heard by the rank.
    pub(super) fn upto(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).upto
    }

    /// Returns the last message with a receipt heard when the rank sent its table.
    pub(super) fn reported(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).reported
    }

    /// Returns the last message with a receipt applied to the rank's log.
    pub(super) fn applied(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).applied
    }
}
