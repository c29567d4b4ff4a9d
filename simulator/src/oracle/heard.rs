//! Receipts that have reached their senders, as the frames on the wire say: in acknowledgements and in Hellos.
//!
//! A restart or rollback of either rank ends what was heard on a channel; the next Hello of the receiver begins it
//! anew, and frames of its earlier incarnations no longer count.

use counterfoil_log_core::{Incarnation, Ssn};

/// Receipts of one channel's messages, as heard by the sender.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// Incarnation of the receiver in its Hello; `None` before.
    incarnation: Option<Incarnation>,
    /// Last message whose receipt was heard.
    upto: Ssn,
    /// Last message whose receipt has had an effect on the sender's log.
    applied: Ssn,
    /// Last message whose receipt the sender knew when it sent its table.
    reported: Ssn,
}

/// The same for all channels.
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

    /// Handles a Hello that a rank accepts from a peer, which has received the messages up to `upto`.
    pub(super) fn handle_hello(&mut self, rank: u32, peer: u32, incarnation: Incarnation, upto: Ssn) {
        let channel = self.channel(rank, peer);
        (channel.incarnation, channel.upto) = (Some(incarnation), upto);
    }

    /// Handles an acknowledgement that arrives at a rank from a peer.
    pub(super) fn handle_ack(&mut self, rank: u32, peer: u32, incarnation: Incarnation, upto: Ssn) {
        let channel = self.channel(rank, peer);
        if channel.incarnation.is_some_and(|known| incarnation >= known) {
            channel.upto = channel.upto.max(upto);
        }
    }

    /// Notes that the receipts up to `upto` have had their effect.
    pub(super) fn note_applied(&mut self, rank: u32, peer: u32, upto: Ssn) {
        let applied = &mut self.channel(rank, peer).applied;
        *applied = upto.max(*applied);
    }

    /// Notes that the receipts beyond `to` have no effect any more.
    pub(super) fn note_undone(&mut self, rank: u32, peer: u32, to: Ssn) {
        let applied = &mut self.channel(rank, peer).applied;
        *applied = to.min(*applied);
    }

    /// Forgets what was heard by a rank, and of it: the execution was undone.
    pub(super) fn restore(&mut self, rank: u32) {
        for peer in 0..self.ranks as u32 {
            for (from, to) in [(rank, peer), (peer, rank)] {
                let channel = self.channel(from, to);
                *channel = Channel { reported: channel.reported, ..Channel::default() };
            }
        }
    }

    /// Sets how far a lane was transmitted, when its rank sends its table: a receipt counts once the message was
    /// transmitted on the present connection, because its record may be released then, and the peer may wait for it.
    pub(super) fn report(&mut self, rank: u32, peer: u32, transmitted: Ssn) {
        let channel = self.channel(rank, peer);
        channel.reported = channel.upto.min(transmitted);
    }

    /// Returns the last message whose receipt the rank has heard.
    pub(super) fn upto(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).upto
    }

    /// Returns the same, as of the moment in which the rank sent its table.
    pub(super) fn reported(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).reported
    }

    /// Returns the last message whose receipt has had an effect on the rank's log.
    pub(super) fn applied(&self, rank: u32, peer: u32) -> Ssn {
        self.get(rank, peer).applied
    }
}
