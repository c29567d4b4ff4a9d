//! Both directions between this rank and one peer.

use counterfoil_ack_piggyback::{
    Ack, AckError, AckPolicy, Acked, Arrival, Flags, RecvWindow, SendWindow, Stamp, Verdict, WireHeader,
};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::notice::{Covered, Fact, Sender};
use super::received::Receipts;
use super::sent::{Sent, Settled};
use super::tables::ChannelTable;
use crate::frame::{Hello, Misbehaviour, ProtocolError, RestoreError};

/// What this rank knows about the channels to and from `peer`.
#[derive(Debug)]
pub(super) struct Channel {
    peer: Rank,
    send: SendWindow,
    pub(super) sent: Sent,
    /// Also knows the peer's incarnation.
    pub(super) recv: RecvWindow,
    pub(super) receipts: Receipts,
    /// What the peer has received beyond what this execution has sent again.
    ahead: Vec<Fact>,
    /// The last message that was sent before the checkpoint that this execution began with. The peer may wait for all after it,
    /// whether it has them or not; [`Ssn::MAX`] where nobody waits.
    began: Ssn,
    /// The last message that was transmitted, or needs no transmission, since the peer was met.
    transmitted: Ssn,
    /// Messages of the peer up to here are not of its execution since the recovery line: they wait for their phase.
    pub(super) base: Ssn,
    /// The last orphan that was received again in this recovery.
    resent: Ssn,
    /// What no recovery of this rank asks the peer for.
    pub(super) covered: Ssn,
    /// What no recovery of the peer asks this rank for.
    collected: Ssn,
}

impl Channel {
    /// A channel on which nothing happened. `restored`: this execution repeats an earlier one, which may have used the channel.
    pub(super) fn new(peer: Rank, policy: AckPolicy, epoch: Epoch, restored: bool) -> Channel {
        let (mut send, mut recv) = (SendWindow::new(policy), RecvWindow::new(policy));
        // Windows are born in the first epoch, so a later one is never refused.
        let begun = send.begin_epoch(epoch).and_then(|()| recv.begin_epoch(epoch));
        debug_assert!(begun.is_ok(), "{epoch} refused by a new window");
        Channel {
            peer,
            send,
            sent: Sent::default(),
            recv,
            receipts: Receipts::default(),
            ahead: Vec::new(),
            began: if restored { Ssn::ZERO } else { Ssn::MAX },
            transmitted: Ssn::ZERO,
            base: Ssn::ZERO,
            resent: Ssn::ZERO,
            covered: Ssn::ZERO,
            collected: Ssn::ZERO,
        }
    }

    pub(super) fn peer(&self) -> Rank {
        self.peer
    }

    pub(super) fn last_sent(&self) -> Ssn {
        self.send.sent()
    }

    pub(super) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let begun = self.send.begin_epoch(epoch).and_then(|()| self.recv.begin_epoch(epoch));
        begun.map_err(|_| ProtocolError::EpochsExhausted)
    }

    /// Numbers a message, and asks for an acknowledgement with it if too much lacks one.
    pub(super) fn stamp(&mut self, len: u64, epoch: Epoch, phase: Phase) -> Result<Stamp, ProtocolError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut stamp = self.send.stamp(len).map_err(|_| ProtocolError::SsnsExhausted { peer: self.peer })?;
        self.sent.record(stamp.ssn, epoch, phase, stamp.flags.contains(Flags::LOGGED));
        if self.send.poll_ack_request() {
            stamp.flags |= Flags::ACK_REQUESTED;
        }
        Ok(stamp)
    }

    /// The header of a record that goes on the wire now. `mark`: a replay of a logged message says that it is one.
    pub(super) fn refresh(&mut self, header: &WireHeader, incarnation: Incarnation, mark: bool) -> WireHeader {
        let mut flags = header.flags().intersection(Flags::LOGGED | Flags::ACK_REQUESTED);
        if mark && self.sent.is_logged(header.ssn()) {
            flags |= Flags::LOGGED;
        } else if !mark {
            flags = flags.intersection(Flags::ACK_REQUESTED);
        }
        self.transmitted = self.transmitted.max(header.ssn());
        header.refreshed(incarnation, self.recv.piggyback(), flags)
    }

    /// Whether a frame comes from the living incarnation of the peer.
    pub(super) fn is_living(&self, incarnation: Incarnation) -> Result<bool, ProtocolError> {
        ProtocolError::check_living(self.peer, incarnation, self.recv.incarnation())
    }

    /// Judges a message of the living incarnation.
    pub(super) fn judge(&mut self, arrival: Arrival) -> Result<Verdict, ProtocolError> {
        let peer = self.peer;
        self.recv.handle_message(arrival).map_err(|error| ProtocolError::of_message(peer, error))
    }

    /// A duplicate has arrived; returns its phase if it is an orphan that was missing since the recovery line.
    pub(super) fn take_orphan(&mut self, ssn: Ssn) -> Option<Phase> {
        if ssn <= self.base || ssn <= self.resent {
            return None;
        }
        self.resent = ssn;
        self.receipts.phase_of(ssn)
    }

    /// The peer's place in the recovery line.
    pub(super) fn set_line(&mut self, sender: Sender) {
        self.base = Ssn(sender.base);
        self.resent = self.base;
        // Refused if the peer was replaced once more meanwhile; then another round follows.
        let _ = self.recv.set_incarnation(Incarnation(sender.incarnation), self.base);
    }

    /// An acknowledgement of the living incarnation.
    pub(super) fn acknowledge(&mut self, ack: Ack) -> Result<Vec<Settled>, ProtocolError> {
        match self.send.handle_ack(ack) {
            Ok(Acked::Run { first, last, epoch }) => Ok(self.sent.acknowledge(first, last, epoch, None)),
            Ok(Acked::Stale) => Ok(Vec::new()),
            Err(AckError::BeyondSent { acked, sent }) => Err(ProtocolError::PeerMisbehaved {
                peer: self.peer,
                how: Misbehaviour::ReceivedMoreThanSent { claimed: acked, sent },
            }),
        }
    }

    /// The peer presents itself: what it has received now is all that counts as received.
    pub(super) fn meet(&mut self, hello: &Hello, facts: Vec<Fact>) -> Result<(), ProtocolError> {
        let peer = self.peer;
        let now = self.recv.incarnation();
        if hello.incarnation < now {
            return Err(ProtocolError::DeadHello { peer, incarnation: hello.incarnation, now });
        }
        if hello.received.upto() < self.collected {
            let needs = hello.received.upto().next();
            return Err(ProtocolError::Unrecoverable { peer, needs, collected: self.collected });
        }
        // Not below what is known, so not refused.
        let _ = self.recv.set_incarnation(hello.incarnation, hello.sent);
        self.recv.reack_after(self.recv.hsr().upto());
        self.send.receiver_rolled_back(Ssn::ZERO);
        self.sent.forget_receipts();
        self.ahead = facts;
        Ok(())
    }

    /// Counts as acknowledged what the peer had received before and was transmitted again since. Not before: an acknowledged
    /// record may be released, and the peer would never see the orphan that it waits for.
    pub(super) fn catch_up(&mut self) -> Vec<Settled> {
        let sent = self.send.sent().min(self.transmitted);
        let mut settled = Vec::new();
        for Fact { last, epoch, logged } in &self.ahead {
            let (last, epoch) = (Ssn(*last).min(sent), Epoch(*epoch));
            if let Ok(Acked::Run { first, last, epoch }) = self.send.handle_ack(Ack { ssn: last, epoch }) {
                settled.extend(self.sent.acknowledge(first, last, epoch, Some(*logged)));
            }
        }
        self.ahead.retain(|fact| fact.last > sent.0);
        settled
    }

    /// After which number to transmit to a peer that has received up to `received`: what it lacks, and what this execution sends
    /// again, but nothing that may be collected.
    pub(super) fn replay_after(&mut self, received: Ssn) -> Ssn {
        self.transmitted = received.min(self.send.sent()).min(self.began).max(self.collected);
        self.transmitted
    }

    /// The recovery is over: nobody waits for an orphan any more.
    pub(super) fn end_recovery(&mut self) {
        self.began = Ssn::MAX;
    }

    /// The peer won't ask for messages up to `covered.upto`; returns up to where that is news.
    pub(super) fn collect(&mut self, covered: Covered, floor: Epoch) -> Option<Ssn> {
        // What a restored sender sends again is awaited as an orphan, covered or not.
        let upto = Ssn(covered.upto).min(self.send.sent()).min(self.began);
        if upto <= self.collected {
            return None;
        }
        self.collected = upto;
        self.sent.collect(upto, floor);
        Some(upto)
    }

    /// This rank won't go back before `epoch`; returns what it has received before, if that is news.
    pub(super) fn cover(&mut self, epoch: Epoch) -> Option<Ssn> {
        let upto = self.receipts.before(epoch);
        let news = upto > self.covered;
        self.covered = self.covered.max(upto);
        news.then_some(upto)
    }

    /// Fills in what this rank tells the peer.
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
            sent: self.sent.clone(),
            recv: self.recv.snapshot(),
            receipts: self.receipts.clone(),
            covered: self.covered.0,
            collected: self.collected.0,
        }
    }

    pub(super) fn restore(table: &ChannelTable, policy: AckPolicy) -> Result<Channel, RestoreError> {
        let peer = Rank(table.peer);
        let refused = |source| RestoreError::Window { peer, source };
        let send = SendWindow::restore(policy, &table.send).map_err(refused)?;
        let recv = RecvWindow::restore(policy, &table.recv).map_err(refused)?;
        let sound = table.sent.is_sound(table.send.epoch, send.sent())
            && table.receipts.is_sound(table.recv.epoch, recv.hsr().upto())
            && table.covered <= recv.hsr().upto().0
            && table.collected <= send.sent().0;
        if !sound {
            return Err(RestoreError::Contradiction { what: "the runs of a channel" });
        }
        Ok(Channel {
            began: send.sent(),
            send,
            recv,
            sent: table.sent.clone(),
            receipts: table.receipts.clone(),
            covered: Ssn(table.covered),
            collected: Ssn(table.collected),
            ..Channel::new(peer, policy, Epoch::FIRST, true)
        })
    }
}
