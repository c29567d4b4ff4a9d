//! Channel counts (Figure 3), and the view of a restored peer.

use counterfoil_ack_piggyback::ReceivedSet;
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};

use super::tables::{CallId, ChannelTable};
use crate::api::{Hello, Misbehaviour, ProtocolError, RestoreError};

/// Channels in both directions between this rank and a peer.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Last message sent: *nextMessageID*, by channel.
    pub(super) sent: Ssn,
    /// Last message sent before the line with which this execution began.
    pub(super) base: Ssn,
    /// Messages sent in this epoch.
    pub(super) send_count: u64,
    /// The count told to the peer at the last checkpoint.
    pub(super) announced: u64,
    pub(super) received: ReceivedSet,
    pub(super) current_receive_count: u64,
    previous_receive_count: u64,
    /// *length(earlyIDs)*.
    early: u64,
    /// Messages sent by the peer before its checkpoint, and the epoch begun by it.
    pub(super) total_sent: Option<(Epoch, u64)>,
    /// Newest incarnation with a received Hello.
    pub(super) incarnation: Incarnation,
    /// Counts of the peer when it was restored.
    pub(super) restored: Option<Restored>,
    /// Records up to `base` were released.
    pub(super) released: bool,
}

/// State of a restored peer before any activity.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) epoch: Epoch,
    pub(super) received: ReceivedSet,
    /// Calls to the peer to be suppressed here.
    pub(super) suppressed: Vec<CallId>,
}

/// Message class (Definition 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Late,
    IntraEpoch,
    Early,
}

impl Class {
    /// Classifies by the epochs at both ends.
    ///
    /// As one line is open at most, their low bits, the colours, would do.
    pub(super) fn of(sender: Epoch, receiver: Epoch) -> Option<Class> {
        match sender.0.wrapping_sub(receiver.0) as i32 {
            -1 => Some(Class::Late),
            0 => Some(Class::IntraEpoch),
            1 => Some(Class::Early),
            _ => None,
        }
    }
}

impl Channel {
    /// Counts a message from the peer; returns `false` if it was received before.
    pub(super) fn receive(&mut self, peer: Rank, ssn: Ssn, class: Class) -> Result<bool, ProtocolError> {
        if !(Ssn::FIRST..=Ssn::MAX).contains(&ssn) {
            return Err(ProtocolError::PeerMisbehaved { peer, how: Misbehaviour::SsnOutOfRange { ssn } });
        }
        let inserted = self.received.insert(ssn, Hello::EXCEPTIONS_MAX);
        let is_new = inserted.map_err(|limit| ProtocolError::OutOfOrder { peer, limit })?;
        let count = match class {
            Class::Late => &mut self.previous_receive_count,
            Class::IntraEpoch => &mut self.current_receive_count,
            Class::Early => &mut self.early,
        };
        *count += u64::from(is_new);
        Ok(is_new)
    }

    /// Begins an epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.announced = std::mem::take(&mut self.send_count);
        self.previous_receive_count = self.current_receive_count;
        self.current_receive_count = std::mem::take(&mut self.early);
    }

    /// Notes the peer's send count.
    pub(super) fn set_total_sent(&mut self, epoch: Epoch, messages: u64) {
        if self.total_sent.is_none_or(|(before, _)| before <= epoch) {
            self.total_sent = Some((epoch, messages));
        }
    }

    /// Returns `true` if all messages sent by the peer before the checkpoint that began `epoch` are here.
    pub(super) fn has_all_late(&self, epoch: Epoch) -> bool {
        self.total_sent == Some((epoch, self.previous_receive_count))
    }

    /// Returns `true` if the restored peer has this message, sent after the line: an early one.
    pub(super) fn is_early_at_peer(&self, ssn: Ssn) -> bool {
        self.restored.as_ref().is_some_and(|peer| ssn > self.base && peer.received.contains(ssn))
    }

    /// Returns `true` if the restored peer has no message still to be sent again.
    pub(super) fn is_suppressed(&self) -> bool {
        self.restored.as_ref().is_none_or(|peer| peer.received.highest() <= self.sent)
    }

    pub(super) fn snapshot(&self, peer: Rank) -> ChannelTable {
        let (received, early) = (self.received.snapshot(), self.current_receive_count);
        ChannelTable { peer: peer.0, sent: self.sent.0, received, early }
    }

    pub(super) fn restore(table: &ChannelTable) -> Result<Channel, RestoreError> {
        let refused = |source| RestoreError::Window { peer: Rank(table.peer), source };
        let received = ReceivedSet::restore(&table.received).map_err(refused)?;
        let sent = Ssn(table.sent);
        Ok(Channel { sent, base: sent, received, current_receive_count: table.early, ..Channel::default() })
    }
}
