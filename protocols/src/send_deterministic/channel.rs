//! Both directions between this rank and one peer.

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{
    Ack, AckPolicy, Acked, Arrival, Flags, RecvWindow, SendWindow, Stamp, Verdict, WireHeader,
};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::notice::{Covered, Fact, Sender};
use super::received::Receipts;
use super::sent::{Sent, Settled};
use super::tables::ChannelTable;
use crate::frame::{Hello, Misbehaviour, ProtocolError, RestoreError};

/// All up to `last` was received in `epoch`; `logged` as in [`Sent::acknowledge`].
#[derive(Clone, Copy, Debug)]
struct News {
    last: Ssn,
    epoch: Epoch,
    logged: Option<bool>,
}

/// What this rank knows about the channels to and from `peer`.
#[derive(Debug)]
pub(super) struct Channel {
    peer: Rank,
    send: SendWindow,
    pub(super) sent: Sent,
    /// Also knows the peer's incarnation.
    pub(super) recv: RecvWindow,
    pub(super) receipts: Receipts,
    /// What is known of receipts and doesn't count yet, in SSN order.
    ahead: VecDeque<News>,
    /// The peer has presented itself to this execution.
    is_met: bool,
    /// The recovery process was told of the receipts that count, and nothing must be released because of others before its
    /// answer is there: the answer can be that the peer goes back.
    tabled: bool,
    /// The incarnation that the peer has in the recovery line. Where that is above the one that was met, what it still says is of an
    /// execution that is being undone; unless the recovery process is lost before the peer hears of it.
    promised: Incarnation,
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
    /// What no recovery of the peer asks this rank for, as the peer says: perhaps more than this execution has sent.
    covered_by_peer: Covered,
    /// What the peer was told that this rank won't send again.
    settled: Ssn,
    /// What of that was let go.
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
            ahead: VecDeque::new(),
            is_met: !restored,
            tabled: false,
            promised: Incarnation(0),
            began: if restored { Ssn::ZERO } else { Ssn::MAX },
            transmitted: Ssn::ZERO,
            base: Ssn::ZERO,
            resent: Ssn::ZERO,
            covered: Ssn::ZERO,
            covered_by_peer: Covered { epoch: 0, upto: 0, settled: 0 },
            settled: Ssn::ZERO,
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

    /// This rank's table is on its way to the recovery process.
    pub(super) fn await_line(&mut self) {
        self.tabled = true;
    }

    /// The peer's place in the recovery line. `None`: a round begins, and what the last one promised doesn't hold.
    pub(super) fn set_line(&mut self, sender: Option<Sender>) {
        (self.tabled, self.promised) = (false, Incarnation(0));
        if let Some(Sender { incarnation, base, .. }) = sender {
            self.promised = Incarnation(incarnation);
            (self.base, self.resent) = (Ssn(base), Ssn(base));
        }
    }

    /// All ranks have obeyed the line: a peer that was to go back is back, whether its Hello has come or not. What counted as
    /// received goes on to count until it comes: most of it still is.
    pub(super) fn trust_line(&mut self) {
        if self.is_leaving() {
            // Above what is known, so not refused.
            let _ = self.recv.set_incarnation(self.promised, self.base);
            self.ahead.clear();
        }
    }

    /// Whether the peer's Hello will say of some message whether it was received.
    pub(super) fn has_to_learn(&self) -> bool {
        !self.is_met && self.sent.has_unknown()
    }

    /// Whether the peer is about to go back.
    pub(super) fn is_leaving(&self) -> bool {
        self.promised > self.recv.incarnation()
    }

    /// An acknowledgement of the living incarnation.
    pub(super) fn acknowledge(&mut self, Ack { ssn, epoch }: Ack) -> Result<Vec<Settled>, ProtocolError> {
        let sent = self.send.sent();
        if ssn > sent {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed: ssn, sent };
            return Err(ProtocolError::PeerMisbehaved { peer: self.peer, how });
        }
        // A message that is held is presented again.
        if self.ahead.back().is_none_or(|news| news.last < ssn) {
            self.ahead.push_back(News { last: ssn, epoch, logged: None });
        }
        Ok(self.catch_up())
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
        self.is_met = true;
        self.send.receiver_rolled_back(Ssn::ZERO);
        self.sent.forget_receipts();
        let news = |Fact { last, epoch, logged }| News { last: Ssn(last), epoch: Epoch(epoch), logged: Some(logged) };
        self.ahead = facts.into_iter().map(news).collect();
        Ok(())
    }

    /// Counts as acknowledged what is known to be received, as far as that was transmitted since the peer was met: not before, because
    /// an acknowledged record may be released, and the peer would never see the orphan that it waits for. Nothing while
    /// it isn't known whether the receipts are undone.
    pub(super) fn catch_up(&mut self) -> Vec<Settled> {
        let mut settled = Vec::new();
        if self.tabled || self.is_leaving() {
            return settled;
        }
        let (sent, now) = (self.send.sent().min(self.transmitted), self.send.epoch());
        while let Some(&News { last, epoch, logged }) = self.ahead.front() {
            if let Ok(Acked::Run { first, last, epoch }) = self.send.handle_ack(Ack { ssn: last.min(sent), epoch }) {
                settled.extend(self.sent.acknowledge((first, last), epoch, logged, now));
            }
            if last > sent {
                break;
            }
            self.ahead.pop_front();
        }
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

    /// The peer won't ask for messages up to `covered.upto`, nor send its own up to `covered.settled` again.
    pub(super) fn note_covered(&mut self, covered: Covered) {
        let settled = covered.settled.max(self.covered_by_peer.settled);
        if covered.upto > self.covered_by_peer.upto {
            self.covered_by_peer = covered;
        }
        self.covered_by_peer.settled = settled;
        self.forget_receipts();
    }

    /// Forgets how that was received which neither this rank asks for again nor the peer sends again.
    fn forget_receipts(&mut self) {
        self.receipts.forget(self.covered.min(Ssn(self.covered_by_peer.settled)));
        if let Some(epoch) = self.receipts.oldest_epoch() {
            self.recv.forget_epochs_before(epoch);
        }
    }

    /// This rank won't go back before `floor`: lets go what it knows of earlier messages that the peer won't ask for. Returns the
    /// last message that it won't send again, and whether that is news to the peer.
    pub(super) fn settle(&mut self, floor: Epoch) -> (Ssn, bool) {
        self.sent.collect(self.collected, floor, self.send.epoch());
        let before = self.sent.first_since(floor).map_or(self.send.sent(), Ssn::prev);
        let news = before > self.settled;
        self.settled = self.settled.max(before);
        (self.settled, news)
    }

    /// What the peer won't ask for, as far as that can be let go now and is news.
    pub(super) fn collect(&mut self, floor: Epoch) -> Option<(Epoch, Ssn)> {
        let covered = self.covered_by_peer;
        // What a restored sender sends again is awaited as an orphan, covered or not.
        let upto = Ssn(covered.upto).min(self.send.sent()).min(self.began);
        if upto <= self.collected {
            return None;
        }
        self.collected = upto;
        self.sent.collect(upto, floor, self.send.epoch());
        Some((Epoch(covered.epoch), upto))
    }

    /// This rank won't go back before `epoch`; returns what it has received before, if that is news.
    pub(super) fn cover(&mut self, epoch: Epoch) -> Option<Ssn> {
        let upto = self.receipts.before(epoch);
        let news = upto > self.covered;
        self.covered = self.covered.max(upto);
        self.forget_receipts();
        news.then_some(upto)
    }

    /// Fills in what this rank tells the peer.
    pub(super) fn describe(&self, hello: &mut Hello) {
        hello.received = self.recv.hsr().clone();
        hello.covered.1 = self.covered;
        // Not what waits to be transmitted again: an acknowledgement of that would release it before.
        hello.sent = self.send.sent().min(self.began);
        hello.acked = self.send.acked().min(hello.sent);
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
