//! Channels in both directions between this rank and one peer (or itself).

use counterfoil_ack_piggyback::{Ack, AckError, AckPolicy, Acked, Arrival, Flags, Stamp, Verdict, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};

use super::tables::ChannelTable;
use crate::api::{DiscardReason, Hello, Incoming, Misbehaviour, ProtocolError, RestoreError};
use crate::link::Link;

/// Channel state to and from `peer`.
#[derive(Debug)]
pub(super) struct Channel {
    link: Link,
    /// Epoch of the peer's newest known durable checkpoint, and the last covered message to the peer.
    covered_by_peer: (Epoch, Ssn),
    /// Last covered message reported to the log: no more than this execution has sent.
    covered_reported: Ssn,
    /// Last message from the peer covered by the checkpoint in progress.
    checkpointed: Ssn,
    /// Last message from the peer covered by this rank's newest durable checkpoint.
    covered: Ssn,
    /// Last message in the log when the Hello came: transmitting up to it is a replay.
    replay_upto: Ssn,
    /// Acknowledgement of a message not yet sent again by this execution.
    early_ack: Option<Ack>,
}

impl Channel {
    pub(super) fn new(peer: Rank, policy: AckPolicy, epoch: Epoch) -> Channel {
        Channel {
            link: Link::new(peer, policy, epoch),
            covered_by_peer: (Epoch::FIRST, Ssn::ZERO),
            covered_reported: Ssn::ZERO,
            checkpointed: Ssn::ZERO,
            covered: Ssn::ZERO,
            replay_upto: Ssn::ZERO,
            early_ack: None,
        }
    }

    pub(super) fn sent(&self) -> Ssn {
        self.link.send.sent()
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.link.recv.incarnation()
    }

    /// Returns `true` if anything was sent, received or covered here.
    pub(super) fn is_used(&self) -> bool {
        self.link.send.sent() > Ssn::ZERO
            || self.link.recv.hsr().highest() > Ssn::ZERO
            || self.covered_by_peer.1 > Ssn::ZERO
    }

    pub(super) fn has_received(&self, ssn: Ssn) -> bool {
        self.link.recv.hsr().contains(ssn)
    }

    /// Returns the SSN up to which all messages were received.
    pub(super) fn received_upto(&self) -> Ssn {
        self.link.recv.hsr().upto()
    }

    /// Assigns an SSN, and requests an acknowledgement with the message if too much lacks one.
    pub(super) fn stamp(&mut self, len: u64) -> Result<Stamp, ProtocolError> {
        self.link.stamp(len)
    }

    /// Returns an early acknowledgement once its message has been sent again.
    pub(super) fn poll_early_ack(&mut self) -> Option<Ack> {
        self.early_ack.take_if(|ack| ack.ssn <= self.link.send.sent())
    }

    /// Returns the collectable part of the log, as epoch and last SSN, if it has grown.
    pub(super) fn poll_covered(&mut self) -> Option<(Epoch, Ssn)> {
        let (epoch, upto) = self.covered_by_peer;
        let upto = upto.min(self.link.send.sent());
        if upto <= self.covered_reported {
            return None;
        }
        self.covered_reported = upto;
        Some((epoch, upto))
    }

    /// Returns the header for a transmission now.
    pub(super) fn refresh(&mut self, header: &WireHeader, incarnation: Incarnation) -> WireHeader {
        let mut flags = header.flags().intersection(Flags::LOGGED | Flags::ACK_REQUESTED);
        // Beyond the last SSN of this execution are records from the previous execution, in a surviving log.
        if header.ssn() <= self.replay_upto || header.ssn() > self.link.send.sent() {
            flags |= Flags::REPLAYED;
        }
        self.link.refresh(header, incarnation, flags)
    }

    /// Returns `true` if a frame comes from the peer's living incarnation.
    pub(super) fn is_living(&self, incarnation: Incarnation) -> Result<bool, ProtocolError> {
        self.link.is_living(incarnation)
    }

    /// Judges a message from the living incarnation.
    pub(super) fn receive(&mut self, arrival: Arrival) -> Result<Incoming, ProtocolError> {
        Ok(match self.link.judge(arrival)? {
            Verdict::Fresh => Incoming::Deliver { keep: None },
            Verdict::Duplicate { receive_epoch } => Incoming::Discard(DiscardReason::Duplicate { receive_epoch }),
            Verdict::DeadIncarnation => Incoming::Discard(self.dead_incarnation(arrival.incarnation)),
        })
    }

    pub(super) fn dead_incarnation(&self, sent_by: Incarnation) -> DiscardReason {
        DiscardReason::DeadIncarnation { sent_by, now: self.link.recv.incarnation() }
    }

    /// Takes an acknowledgement from the living incarnation; returns the last newly acknowledged SSN, and its receive
    /// epoch.
    ///
    /// `reexecuting`: this execution may repeat an earlier one, so more may be acknowledged than it has sent.
    pub(super) fn acknowledge(&mut self, ack: Ack, reexecuting: bool) -> Result<Option<Ack>, ProtocolError> {
        match self.link.send.handle_ack(ack) {
            Ok(Acked::Run { last, epoch, .. }) => Ok(Some(Ack { ssn: last, epoch })),
            Ok(Acked::Stale) => Ok(None),
            Err(AckError::BeyondSent { .. }) if reexecuting => {
                // Only the newest is kept; this rule has no use for the epochs of earlier ones.
                if self.early_ack.is_none_or(|early| early.ssn < ack.ssn) {
                    self.early_ack = Some(ack);
                }
                Ok(None)
            }
            Err(AckError::BeyondSent { acked, sent }) => Err(ProtocolError::PeerMisbehaved {
                peer: self.link.peer,
                how: Misbehaviour::ReceivedMoreThanSent { claimed: acked, sent },
            }),
        }
    }

    pub(super) fn request_ack(&mut self, sent: Ssn) {
        self.link.recv.handle_ack_request(sent);
    }

    /// Returns the next acknowledgement to be sent in a separate frame.
    pub(super) fn poll_ack(&mut self) -> Option<Ack> {
        self.link.recv.poll_ack()
    }

    /// Returns the next acknowledgement, due or not.
    pub(super) fn piggyback_ack(&mut self) -> Option<Ack> {
        self.link.recv.piggyback()
    }

    /// Notes that the peer's durable checkpoint covers the messages to it up to `upto`.
    pub(super) fn note_covered(&mut self, epoch: Epoch, upto: Ssn) {
        if upto > self.covered_by_peer.1 {
            self.covered_by_peer = (epoch, upto);
        }
    }

    /// Returns the SSN after which to transmit to a peer that has received `received`: the messages missing there and
    /// those sent again by this execution (the peer drops duplicates), but nothing collectable.
    pub(super) fn replay_after(&self, received: Ssn) -> Ssn {
        received.min(self.link.send.sent()).max(self.covered_by_peer.1)
    }

    /// Begins `epoch` with a checkpoint.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let begun = self.link.begin_epoch(epoch);
        self.checkpointed = self.link.recv.hsr().upto();
        begun
    }

    /// Marks the checkpoint as durable; returns its last covered message, if it has grown.
    pub(super) fn checkpoint_durable(&mut self, epoch: Epoch) -> Option<Ssn> {
        self.link.recv.forget_epochs_before(epoch);
        let is_new = self.checkpointed > self.covered;
        self.covered = self.checkpointed;
        is_new.then_some(self.covered)
    }

    /// Checks a Hello against the channel's state, then applies it; returns the SSN beyond which earlier
    /// acknowledgements are void, if any are.
    pub(super) fn handle_hello(&mut self, hello: &Hello, reexecuting: bool) -> Result<Option<Ssn>, ProtocolError> {
        let (peer, sent) = (self.link.peer, self.link.send.sent());
        let (incarnation, known) = (hello.incarnation, self.link.recv.incarnation());
        let has_upto = hello.received.upto();
        self.link.check_hello(hello)?;
        let claimed = hello.received.highest();
        if claimed > sent && !reexecuting {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed, sent };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let collected = self.covered_by_peer.1;
        if has_upto < collected {
            return Err(ProtocolError::Unrecoverable { peer, needs: has_upto.next(), collected });
        }
        let met = self.link.recv.set_incarnation(incarnation, hello.sent);
        debug_assert!(met.is_ok(), "{incarnation} isn't below {known}");
        self.link.recv.reack_after(hello.acked);
        self.replay_upto = sent;
        if incarnation == known {
            return Ok(None);
        }
        let acked = self.link.send.acked();
        self.early_ack = None;
        self.link.send.receiver_rolled_back(has_upto);
        Ok((acked > has_upto).then_some(has_upto))
    }

    /// Sets the incarnation on this rank's channel to itself, with the messages sent before its checkpoint.
    pub(super) fn set_own_incarnation(&mut self, incarnation: Incarnation) {
        let met = self.link.recv.set_incarnation(incarnation, self.link.send.sent());
        debug_assert!(met.is_ok(), "incarnations only rise");
        self.replay_upto = self.link.send.sent();
    }

    /// Fills in this rank's side of the channel.
    pub(super) fn describe(&self, hello: &mut Hello) {
        hello.received = self.link.recv.hsr().clone();
        hello.covered.1 = self.covered;
        hello.sent = self.link.send.sent();
        hello.acked = self.link.send.acked();
    }

    pub(super) fn snapshot(&self) -> ChannelTable {
        ChannelTable {
            peer: self.link.peer.0,
            send: self.link.send.snapshot(),
            recv: self.link.recv.snapshot(),
            covered_by_peer: (self.covered_by_peer.0.0, self.covered_by_peer.1.0),
        }
    }

    /// Restores the channel from a durable checkpoint.
    pub(super) fn restore(table: &ChannelTable, policy: AckPolicy) -> Result<Channel, RestoreError> {
        let peer = Rank(table.peer);
        let link = Link::restore(peer, policy, (&table.send, &table.recv))?;
        let covered_by_peer = (Epoch(table.covered_by_peer.0), Ssn(table.covered_by_peer.1));
        let covered = link.recv.hsr().upto();
        Ok(Channel {
            covered_reported: covered_by_peer.1.min(link.send.sent()),
            link,
            covered_by_peer,
            checkpointed: covered,
            covered,
            replay_upto: Ssn::ZERO,
            early_ack: None,
        })
    }
}
