//! Both directions between this rank and one peer (or itself).

use counterfoil_ack_piggyback::{
    Ack, AckError, AckPolicy, Acked, Arrival, Flags, RecvWindow, SendWindow, Stamp, Verdict, WireHeader,
};
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};

use super::tables::ChannelTable;
use crate::frame::{DiscardReason, Hello, Incoming, Misbehaviour, ProtocolError, RestoreError};

/// What this rank knows about the channels to and from `peer`.
#[derive(Debug)]
pub(super) struct Channel {
    peer: Rank,
    send: SendWindow,
    /// Also knows the peer's incarnation.
    recv: RecvWindow,
    /// The epoch of the peer's newest durable checkpoint that is known, and what it covers of what was sent to it.
    covered_by_peer: (Epoch, Ssn),
    /// What of it the log was told: no more than this execution has sent.
    covered_told: Ssn,
    /// What the checkpoint that is being taken covers of what was received from the peer.
    checkpointed: Ssn,
    /// What this rank's newest durable checkpoint covers of it.
    covered: Ssn,
    /// All up to here was in the log when the peer was met: sending it now is a replay.
    replay_upto: Ssn,
    /// An acknowledgement of what this execution has not sent again yet.
    ahead: Option<Ack>,
}

impl Channel {
    pub(super) fn new(peer: Rank, policy: AckPolicy, epoch: Epoch) -> Channel {
        let (mut send, mut recv) = (SendWindow::new(policy), RecvWindow::new(policy));
        // Windows are born in the first epoch, so a later one is never refused.
        let begun = send.begin_epoch(epoch).and_then(|()| recv.begin_epoch(epoch));
        debug_assert!(begun.is_ok(), "{epoch} refused by a new window");
        Channel {
            peer,
            send,
            recv,
            covered_by_peer: (Epoch::FIRST, Ssn::ZERO),
            covered_told: Ssn::ZERO,
            checkpointed: Ssn::ZERO,
            covered: Ssn::ZERO,
            replay_upto: Ssn::ZERO,
            ahead: None,
        }
    }

    pub(super) fn sent(&self) -> Ssn {
        self.send.sent()
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.recv.incarnation()
    }

    /// Whether anything was sent, received or said here.
    pub(super) fn is_used(&self) -> bool {
        self.send.sent() > Ssn::ZERO || self.recv.hsr().highest() > Ssn::ZERO || self.covered_by_peer.1 > Ssn::ZERO
    }

    /// Whether a message was received.
    pub(super) fn has_received(&self, ssn: Ssn) -> bool {
        self.recv.hsr().contains(ssn)
    }

    /// What was received without a gap.
    pub(super) fn received_upto(&self) -> Ssn {
        self.recv.hsr().upto()
    }

    /// Numbers a message, and asks for an acknowledgement with it if too much lacks one.
    pub(super) fn stamp(&mut self, len: u64) -> Result<Stamp, ProtocolError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut stamp = self.send.stamp(len).map_err(|_| ProtocolError::SsnsExhausted { peer: self.peer })?;
        if self.send.poll_ack_request() {
            stamp.flags |= Flags::ACK_REQUESTED;
        }
        Ok(stamp)
    }

    /// An acknowledgement that came early, if what it acknowledges has been sent again now.
    pub(super) fn poll_ahead(&mut self) -> Option<Ack> {
        self.ahead.take_if(|ack| ack.ssn <= self.send.sent())
    }

    /// What the log may collect: epoch and last number, if there is news.
    pub(super) fn poll_covered(&mut self) -> Option<(Epoch, Ssn)> {
        let (epoch, upto) = self.covered_by_peer;
        let upto = upto.min(self.send.sent());
        if upto <= self.covered_told {
            return None;
        }
        self.covered_told = upto;
        Some((epoch, upto))
    }

    /// The header of a record that goes on the wire now.
    pub(super) fn refresh(&mut self, header: &WireHeader, incarnation: Incarnation) -> WireHeader {
        let mut flags = header.flags().intersection(Flags::LOGGED | Flags::ACK_REQUESTED);
        // Beyond what was sent by this execution lies what a log that survived has from the one before.
        if header.ssn() <= self.replay_upto || header.ssn() > self.send.sent() {
            flags |= Flags::REPLAYED;
        }
        header.refreshed(incarnation, self.recv.piggyback(), flags)
    }

    /// Whether a frame comes from the living incarnation of the peer.
    pub(super) fn is_living(&self, incarnation: Incarnation) -> Result<bool, ProtocolError> {
        ProtocolError::check_living(self.peer, incarnation, self.recv.incarnation())
    }

    /// Judges a message of the living incarnation.
    pub(super) fn receive(&mut self, arrival: Arrival) -> Result<Incoming, ProtocolError> {
        match self.recv.handle_message(arrival) {
            Ok(Verdict::Fresh) => Ok(Incoming::Deliver { keep: None }),
            Ok(Verdict::Duplicate { receive_epoch }) => {
                Ok(Incoming::Discard(DiscardReason::Duplicate { receive_epoch }))
            }
            Ok(Verdict::DeadIncarnation) => Ok(Incoming::Discard(self.dead(arrival.incarnation))),
            Err(error) => Err(ProtocolError::of_message(self.peer, error)),
        }
    }

    pub(super) fn dead(&self, sent_by: Incarnation) -> DiscardReason {
        DiscardReason::DeadIncarnation { sent_by, now: self.recv.incarnation() }
    }

    /// An acknowledgement of the living incarnation; returns what it newly acknowledges, up to which number and in
    /// which receive epoch.
    ///
    /// `repeating`: this execution may repeat an earlier one, so more may be acknowledged than it has sent.
    pub(super) fn acknowledge(&mut self, ack: Ack, repeating: bool) -> Result<Option<Ack>, ProtocolError> {
        match self.send.handle_ack(ack) {
            Ok(Acked::Run { last, epoch, .. }) => Ok(Some(Ack { ssn: last, epoch })),
            Ok(Acked::Stale) => Ok(None),
            Err(AckError::BeyondSent { .. }) if repeating => {
                // Only the newest is kept; the epochs of those before it are of no use to this rule.
                if self.ahead.is_none_or(|ahead| ahead.ssn < ack.ssn) {
                    self.ahead = Some(ack);
                }
                Ok(None)
            }
            Err(AckError::BeyondSent { acked, sent }) => Err(ProtocolError::PeerMisbehaved {
                peer: self.peer,
                how: Misbehaviour::ReceivedMoreThanSent { claimed: acked, sent },
            }),
        }
    }

    pub(super) fn request_ack(&mut self, sent: Ssn) {
        self.recv.handle_ack_request(sent);
    }

    /// The next acknowledgement that must travel by itself.
    pub(super) fn poll_ack(&mut self) -> Option<Ack> {
        self.recv.poll_ack()
    }

    /// The next acknowledgement that there is, whether or not it must travel.
    pub(super) fn take_ack(&mut self) -> Option<Ack> {
        self.recv.piggyback()
    }

    /// The peer's durable checkpoint covers what was sent to it up to `upto`.
    pub(super) fn note_covered(&mut self, epoch: Epoch, upto: Ssn) {
        if upto > self.covered_by_peer.1 {
            self.covered_by_peer = (epoch, upto);
        }
    }

    /// After which number to transmit to a peer that has received `received`: what it lacks, and what this execution sends
    /// again (the peer drops what it has), but nothing that may be collected.
    pub(super) fn replay_after(&self, received: Ssn) -> Ssn {
        received.min(self.send.sent()).max(self.covered_by_peer.1)
    }

    /// A checkpoint is being taken that begins `epoch`.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let begun = self.send.begin_epoch(epoch).and_then(|()| self.recv.begin_epoch(epoch));
        self.checkpointed = self.recv.hsr().upto();
        begun.map_err(|_| ProtocolError::EpochsExhausted)
    }

    /// That checkpoint is durable; returns what it covers, if that is more than before.
    pub(super) fn checkpoint_durable(&mut self, epoch: Epoch) -> Option<Ssn> {
        self.recv.forget_epochs_before(epoch);
        let news = self.checkpointed > self.covered;
        self.covered = self.checkpointed;
        news.then_some(self.covered)
    }

    /// Checks a Hello against what is known, and then takes it into account; returns down to which number the
    /// acknowledgements so far have lost their meaning, if they have.
    pub(super) fn meet(&mut self, hello: &Hello, repeating: bool) -> Result<Option<Ssn>, ProtocolError> {
        let (peer, sent) = (self.peer, self.send.sent());
        let (incarnation, known) = (hello.incarnation, self.recv.incarnation());
        let has_upto = hello.received.upto();
        if incarnation < known {
            return Err(ProtocolError::DeadHello { peer, incarnation, now: known });
        }
        let claimed = hello.received.highest();
        if claimed > sent && !repeating {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed, sent };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let (covered, received) = (hello.covered.1, has_upto);
        if covered > received {
            let how = Misbehaviour::CoversMoreThanReceived { covered, received };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let collected = self.covered_by_peer.1;
        if has_upto < collected {
            return Err(ProtocolError::Unrecoverable { peer, needs: has_upto.next(), collected });
        }
        let met = self.recv.set_incarnation(incarnation, hello.sent);
        debug_assert!(met.is_ok(), "{incarnation} isn't below {known}");
        self.recv.reack_after(hello.acked);
        self.replay_upto = sent;
        if incarnation == known {
            return Ok(None);
        }
        let acked = self.send.acked();
        self.ahead = None;
        self.send.receiver_rolled_back(has_upto);
        Ok((acked > has_upto).then_some(has_upto))
    }

    /// This rank presents itself to itself: as a new incarnation, having sent what its checkpoint says.
    pub(super) fn meet_self(&mut self, incarnation: Incarnation) {
        let met = self.recv.set_incarnation(incarnation, self.send.sent());
        debug_assert!(met.is_ok(), "incarnations only rise");
        self.replay_upto = self.send.sent();
    }

    /// Puts this rank's side of the channel into a Hello.
    pub(super) fn describe(&self, hello: &mut Hello) {
        hello.received = self.recv.hsr().clone();
        hello.covered.1 = self.covered;
        hello.sent = self.send.sent();
        hello.acked = self.send.acked();
    }

    pub(super) fn snapshot(&self) -> ChannelTable {
        ChannelTable {
            peer: self.peer.0,
            send: self.send.snapshot(),
            recv: self.recv.snapshot(),
            covered_by_peer: (self.covered_by_peer.0.0, self.covered_by_peer.1.0),
        }
    }

    /// The channel of a checkpoint that is durable: it is being restored from.
    pub(super) fn restore(table: &ChannelTable, policy: AckPolicy) -> Result<Channel, RestoreError> {
        let peer = Rank(table.peer);
        let window = |source| RestoreError::Window { peer, source };
        let send = SendWindow::restore(policy, &table.send).map_err(window)?;
        let recv = RecvWindow::restore(policy, &table.recv).map_err(window)?;
        let covered_by_peer = (Epoch(table.covered_by_peer.0), Ssn(table.covered_by_peer.1));
        let covered = recv.hsr().upto();
        Ok(Channel {
            peer,
            covered_told: covered_by_peer.1.min(send.sent()),
            send,
            recv,
            covered_by_peer,
            checkpointed: covered,
            covered,
            replay_upto: Ssn::ZERO,
            ahead: None,
        })
    }
}
