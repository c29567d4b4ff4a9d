//! Channels in both directions between this rank and one peer.

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Ack, AckPolicy, Acked, Arrival, Flags, Stamp, Verdict, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::notice::{Covered, ReceivedRun};
use super::received::Receipts;
use super::sent::{AcknowledgedRun, Sent};
use super::tables::ChannelTable;
use crate::api::{Hello, Misbehaviour, ProtocolError, RestoreError};
use crate::link::Link;

/// Receipt in `epoch` of all messages up to `last`; `logged` as in [`Sent::acknowledge`].
#[derive(Clone, Copy, Debug)]
struct PendingReceipt {
    last: Ssn,
    epoch: Epoch,
    logged: Option<bool>,
}

/// Channel state to and from `peer`.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) link: Link,
    pub(super) sent: Sent,
    pub(super) receipts: Receipts,
    /// Receipts reported and not yet applied, in SSN order.
    pending: VecDeque<PendingReceipt>,
    /// The peer's current incarnation has sent its Hello to this execution, or receipts reported without one still
    /// hold.
    hello_received: bool,
    /// This rank's table, with the receipts applied so far, is at the recovery process. No further receipt may release
    /// records before the recovery line is known: the peer may have to roll back.
    frozen: bool,
    /// Peer's incarnation in the recovery line. While it is above the known one, frames from the peer come from an
    /// execution being undone; unless the recovery process is lost before the peer hears of the line.
    line_incarnation: Incarnation,
    /// Last message sent before this execution's initial checkpoint. The peer may wait for all later ones, whether it
    /// has them or not; [`Ssn::MAX`] when no peer waits.
    sent_at_restart: Ssn,
    /// Last message transmitted, or in no need of transmission, since the peer's Hello.
    transmitted: Ssn,
    /// Last message the peer doesn't send by executing after the recovery line: up to here, messages wait for their
    /// phase.
    pub(super) base: Ssn,
    /// Last orphan received again in this recovery; `base` before the first.
    resent: Ssn,
    /// Last message that no recovery at this rank asks the peer for.
    pub(super) covered: Ssn,
    /// Messages that no recovery at the peer asks this rank for, as reported by the peer: perhaps more than this
    /// execution has sent.
    covered_by_peer: Covered,
    /// Last message promised to the peer not to be sent again.
    stable: Ssn,
    /// Last such message collected.
    collected: Ssn,
}

impl Channel {
    /// Creates an unused channel. `restored`: this execution repeats an earlier one, which may have used the channel.
    pub(super) fn new(peer: Rank, policy: AckPolicy, epoch: Epoch, restored: bool) -> Channel {
        Channel {
            link: Link::new(peer, policy, epoch),
            sent: Sent::default(),
            receipts: Receipts::default(),
            pending: VecDeque::new(),
            hello_received: !restored,
            frozen: false,
            line_incarnation: Incarnation(0),
            sent_at_restart: if restored { Ssn::ZERO } else { Ssn::MAX },
            transmitted: Ssn::ZERO,
            base: Ssn::ZERO,
            resent: Ssn::ZERO,
            covered: Ssn::ZERO,
            covered_by_peer: Covered { epoch: 0, upto: 0, stable: 0 },
            stable: Ssn::ZERO,
            collected: Ssn::ZERO,
        }
    }

    pub(super) fn peer(&self) -> Rank {
        self.link.peer
    }

    pub(super) fn last_sent(&self) -> Ssn {
        self.link.send.sent()
    }

    pub(super) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.link.begin_epoch(epoch)
    }

    /// Assigns an SSN, and requests an acknowledgement with the message if too much lacks one.
    pub(super) fn stamp(&mut self, len: u64, epoch: Epoch, phase: Phase) -> Result<Stamp, ProtocolError> {
        let stamp = self.link.stamp(len)?;
        self.sent.record(stamp.ssn, epoch, phase, stamp.flags.contains(Flags::LOGGED));
        Ok(stamp)
    }

    /// Returns the header for a transmission now.
    ///
    /// The replay of a logged message is marked `LOGGED`.
    pub(super) fn refresh(&mut self, header: &WireHeader, incarnation: Incarnation) -> WireHeader {
        let mut flags = header.flags().intersection(Flags::LOGGED | Flags::ACK_REQUESTED);
        if self.sent.is_logged(header.ssn()) {
            flags |= Flags::LOGGED;
        }
        self.transmitted = self.transmitted.max(header.ssn());
        self.link.refresh(header, incarnation, flags)
    }

    /// Returns `true` if a frame comes from the peer's living incarnation.
    pub(super) fn is_living(&self, incarnation: Incarnation) -> Result<bool, ProtocolError> {
        self.link.is_living(incarnation)
    }

    /// Judges a message from the living incarnation.
    pub(super) fn judge(&mut self, arrival: Arrival) -> Result<Verdict, ProtocolError> {
        self.link.judge(arrival)
    }

    /// Takes a duplicate; returns its phase if it is an orphan missing since the recovery line.
    pub(super) fn take_orphan(&mut self, ssn: Ssn) -> Option<Phase> {
        if ssn <= self.resent {
            return None;
        }
        self.resent = ssn;
        self.receipts.phase_of(ssn)
    }

    /// Stops applying receipts: this rank's table is on its way to the recovery process.
    pub(super) fn freeze_receipts(&mut self) {
        self.frozen = true;
    }

    /// Sets the peer's incarnation and base in the recovery line.
    ///
    /// `None`: a round begins, and the line of the last one is void.
    pub(super) fn set_line(&mut self, peer: Option<(Incarnation, Ssn)>) {
        (self.frozen, self.line_incarnation) = (false, Incarnation(0));
        if let Some((incarnation, base)) = peer {
            self.line_incarnation = incarnation;
            (self.base, self.resent) = (base, base);
        }
    }

    /// Refuses frames from incarnations of the peer before `living`.
    ///
    /// For a new channel.
    pub(super) fn refuse_earlier_than(&mut self, living: Incarnation) {
        // A new window has incarnation 0, so this isn't refused.
        let _ = self.link.recv.set_incarnation(living, Ssn::ZERO);
    }

    /// Treats the peer as rolled back, whether its Hello has come or not: all ranks have obeyed the line.
    ///
    /// Applied receipts remain so until the Hello comes: most still hold.
    pub(super) fn assume_rolled_back(&mut self) {
        if self.is_rolling_back() {
            // Above the known incarnation, so not refused.
            let _ = self.link.recv.set_incarnation(self.line_incarnation, self.base);
            self.pending.clear();
            self.hello_received = false;
        }
    }

    /// Returns `true` if the peer's Hello will report its receipts with their epochs.
    pub(super) fn awaits_receipts(&self) -> bool {
        !self.hello_received && self.sent.has_unlogged()
    }

    /// Returns `true` if the peer is about to roll back.
    pub(super) fn is_rolling_back(&self) -> bool {
        self.line_incarnation > self.link.recv.incarnation()
    }

    /// Takes an acknowledgement from the living incarnation.
    pub(super) fn acknowledge(&mut self, Ack { ssn, epoch }: Ack) -> Result<Vec<AcknowledgedRun>, ProtocolError> {
        let sent = self.link.send.sent();
        if ssn > sent {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed: ssn, sent };
            return Err(ProtocolError::PeerMisbehaved { peer: self.link.peer, how });
        }
        // A held message is presented again.
        if self.pending.back().is_none_or(|receipt| receipt.last < ssn) {
            self.pending.push_back(PendingReceipt { last: ssn, epoch, logged: None });
        }
        Ok(self.apply_pending())
    }

    /// Checks that the peer can have the messages up to `claimed`: they were sent, or this execution has yet to send
    /// some again.
    fn check_claimed(&self, claimed: Ssn) -> Result<(), ProtocolError> {
        let sent = self.link.send.sent();
        if claimed <= sent || self.sent_at_restart < Ssn::MAX {
            return Ok(());
        }
        let how = Misbehaviour::ReceivedMoreThanSent { claimed, sent };
        Err(ProtocolError::PeerMisbehaved { peer: self.link.peer, how })
    }

    /// Handles a Hello: its receipts replace all known ones.
    pub(super) fn handle_hello(&mut self, hello: &Hello, received_runs: Vec<ReceivedRun>) -> Result<(), ProtocolError> {
        let peer = self.link.peer;
        self.link.check_hello(hello)?;
        if hello.received.upto() < self.collected {
            let needs = hello.received.upto().next();
            return Err(ProtocolError::Unrecoverable { peer, needs, collected: self.collected });
        }
        self.check_claimed(hello.received.upto())?;
        // Not below the known incarnation, so not refused.
        let _ = self.link.recv.set_incarnation(hello.incarnation, hello.sent);
        self.link.recv.reack_after(self.link.recv.hsr().upto());
        self.hello_received = true;
        self.link.send.receiver_rolled_back(Ssn::ZERO);
        self.sent.invalidate_receipts();
        let receipt = |ReceivedRun { last, epoch, logged }| PendingReceipt {
            last: Ssn(last),
            epoch: Epoch(epoch),
            logged: Some(logged),
        };
        self.pending = received_runs.into_iter().map(receipt).collect();
        Ok(())
    }

    /// Applies pending receipts as far as the messages were transmitted since the peer's Hello: not earlier, because an
    /// acknowledged record may be released, and the peer would never see the awaited orphan.
    ///
    /// Applies none while the receipts may yet be undone.
    pub(super) fn apply_pending(&mut self) -> Vec<AcknowledgedRun> {
        let mut runs = Vec::new();
        if self.frozen || self.is_rolling_back() {
            return runs;
        }
        let (sent, now) = (self.link.send.sent().min(self.transmitted), self.link.send.epoch());
        while let Some(&PendingReceipt { last, epoch, logged }) = self.pending.front() {
            if let Ok(Acked::Run { first, last, epoch }) = self.link.send.handle_ack(Ack { ssn: last.min(sent), epoch })
            {
                runs.extend(self.sent.acknowledge((first, last), epoch, logged, now));
            }
            if last > sent {
                break;
            }
            self.pending.pop_front();
        }
        runs
    }

    /// Returns the SSN after which to transmit to a peer with receipts up to `received`: the messages missing there and
    /// those sent again by this execution, but nothing collectable.
    pub(super) fn replay_after(&mut self, received: Ssn) -> Ssn {
        let received = received.min(self.link.send.sent());
        self.transmitted = received.min(self.sent_at_restart).max(self.collected);
        // Records released because this execution has already sent their messages again need no transmission either.
        self.transmitted = self.transmitted.max(self.sent.released_after(self.transmitted).min(received));
        self.transmitted
    }

    /// Ends the recovery: no rank waits for an orphan any more.
    pub(super) fn end_recovery(&mut self) {
        self.sent_at_restart = Ssn::MAX;
    }

    /// Notes that the peer won't ask for messages up to `covered.upto`, nor send its own up to `covered.stable` again.
    pub(super) fn note_covered(&mut self, covered: Covered) -> Result<(), ProtocolError> {
        self.check_claimed(Ssn(covered.upto))?;
        let stable = covered.stable.max(self.covered_by_peer.stable);
        if covered.upto > self.covered_by_peer.upto {
            self.covered_by_peer = covered;
        }
        self.covered_by_peer.stable = stable;
        self.forget_receipts();
        Ok(())
    }

    /// Forgets receipts of messages neither asked for again by this rank nor sent again by the peer.
    fn forget_receipts(&mut self) {
        self.receipts.forget(self.covered.min(Ssn(self.covered_by_peer.stable)));
        if let Some(epoch) = self.receipts.oldest_epoch() {
            self.link.recv.forget_epochs_before(epoch);
        }
    }

    /// Forgets sent messages before `floor`, below which this rank won't roll back, if the peer won't ask for them.
    ///
    /// Returns the last message it won't send again, and `true` if this is news to the peer.
    pub(super) fn advance_stable(&mut self, floor: Epoch) -> (Ssn, bool) {
        self.sent.collect(self.collected, floor);
        let before = self.sent.first_since(floor).map_or(self.link.send.sent(), Ssn::prev);
        let is_new = before > self.stable;
        self.stable = self.stable.max(before);
        (self.stable, is_new)
    }

    /// Returns the messages that the peer won't ask for, as far as they can be collected now and have grown.
    pub(super) fn collect(&mut self, floor: Epoch) -> Option<(Epoch, Ssn)> {
        let covered = self.covered_by_peer;
        // A receiver awaits messages sent again by a restored sender as orphans, covered or not.
        let upto = Ssn(covered.upto).min(self.link.send.sent()).min(self.sent_at_restart);
        if upto <= self.collected {
            return None;
        }
        self.collected = upto;
        self.sent.collect(upto, floor);
        Some((Epoch(covered.epoch), upto))
    }

    /// Covers the messages received before `epoch`, below which this rank won't roll back; returns the last one if it
    /// has grown.
    pub(super) fn cover(&mut self, epoch: Epoch) -> Option<Ssn> {
        let upto = self.receipts.received_before(epoch);
        let is_new = upto > self.covered;
        self.covered = self.covered.max(upto);
        self.forget_receipts();
        is_new.then_some(upto)
    }

    /// Fills in this rank's side of the channel.
    pub(super) fn describe(&self, hello: &mut Hello) {
        hello.received = self.link.recv.hsr().clone();
        hello.covered.1 = self.covered;
        // Leave out messages waiting for retransmission: an acknowledgement would release them too early.
        hello.sent = self.link.send.sent().min(self.sent_at_restart);
        hello.acked = self.link.send.acked().min(hello.sent);
    }

    pub(super) fn snapshot(&self) -> ChannelTable {
        ChannelTable {
            peer: self.link.peer.0,
            send: self.link.send.snapshot(),
            sent: self.sent.clone(),
            recv: self.link.recv.snapshot(),
            receipts: self.receipts.clone(),
            covered: self.covered.0,
            collected: self.collected.0,
        }
    }

    pub(super) fn restore(table: &ChannelTable, policy: AckPolicy) -> Result<Channel, RestoreError> {
        let peer = Rank(table.peer);
        let link = Link::restore(peer, policy, (&table.send, &table.recv))?;
        let (send, recv) = (&link.send, &link.recv);
        let sound = table.sent.is_sound(table.send.epoch, send.sent())
            && table.receipts.is_sound(table.recv.epoch, recv.hsr().upto())
            && table.covered <= recv.hsr().upto().0
            && table.collected <= send.sent().0;
        if !sound {
            return Err(RestoreError::Contradiction { what: "the runs of a channel" });
        }
        Ok(Channel {
            sent_at_restart: send.sent(),
            link,
            sent: table.sent.clone(),
            receipts: table.receipts.clone(),
            covered: Ssn(table.covered),
            collected: Ssn(table.collected),
            ..Channel::new(peer, policy, Epoch::FIRST, true)
        })
    }
}

#[cfg(test)]
mod tests;
