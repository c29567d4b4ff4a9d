//! Event handlers.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::{Kind, ReceivedSet, Verdict, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

use super::channel::Channel;
use super::notice::{self, Covered, ReceivedRun, Report};
use super::tables::Tables;
use super::{Config, SendDeterministic};
use crate::api::{
    COMMAND, ChoiceError, ChoiceRecord, DiscardReason, Effect, Hello, Incoming, Inspect, Misbehaviour, NextChoice,
    Outgoing, Party, Properties, Protocol, ProtocolError, RestoreError, Snapshot, Transmission,
};

impl Protocol for SendDeterministic {
    fn properties(&self) -> Properties {
        SendDeterministic::PROPERTIES
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the number of replacements and rollbacks of this rank: 65,536 for each replacement, and one for each
    /// rollback since.
    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Implements Figure 3, lines 13 to 17.
    ///
    /// A message to the rank itself is in its image; the driver keeps it.
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let Config { rank, .. } = self.config;
        let peer = envelope.destination;
        ProtocolError::check_sender(envelope.source, peer, rank)?;
        self.apply_pending(peer)?;
        let (origin, epoch, phase) = (self.origin(), self.epoch, self.phase);
        let stamp = self.channel(peer)?.stamp(envelope.len, epoch, phase)?;
        let header = WireHeader::message(envelope, stamp, origin, None);
        let transmission = if self.is_running() { Transmission::Now } else { Transmission::Hold };
        Ok(Outgoing { header, keep_record: true, transmission })
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        let Config { rank, .. } = self.config;
        ProtocolError::check_transmitted(header, rank)?;
        let destination = header.destination();
        let incarnation = self.incarnation;
        // Applied first: this record must not be released on its way to the wire.
        self.apply_pending(destination)?;
        *header = self.channel(destination)?.refresh(header, incarnation);
        Ok(())
    }

    /// Implements Figure 3, lines 19 to 32.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival(header, rank, ranks)?;
        ProtocolError::check_message(header)?;
        let peer = header.source();
        let channel = self.channel(peer)?;
        let now = channel.link.recv.incarnation();
        if !channel.is_living(header.incarnation())? {
            return Ok(Incoming::Discard(DiscardReason::DeadIncarnation { sent_by: header.incarnation(), now }));
        }
        let ssn = header.ssn();
        self.handle_ack(header)?;
        let channel = self.channel(peer)?;
        if channel.is_rolling_back() {
            return Ok(Incoming::Hold);
        }
        let (known, executed) = (ssn <= channel.receipts.upto(), ssn > channel.base);
        if self.round.must_hold(known, header.phase(), executed) {
            return Ok(Incoming::Hold);
        }
        self.apply_pending(peer)?;
        let mut arrival = header.arrival();
        arrival.incarnation = now;
        let verdict = match self.channel(peer)?.judge(arrival)? {
            Verdict::Fresh => {
                self.record_receipt(header)?;
                Incoming::Deliver { keep: None }
            }
            Verdict::Duplicate { receive_epoch } => {
                self.count_orphan(peer, ssn, header.phase())?;
                Incoming::Discard(DiscardReason::Duplicate { receive_epoch })
            }
            Verdict::DeadIncarnation => {
                Incoming::Discard(DiscardReason::DeadIncarnation { sent_by: header.incarnation(), now })
            }
        };
        self.send_due_acks(peer)?;
        Ok(verdict)
    }

    fn handle_deferred(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival(header, rank, ranks)?;
        if self.channel(header.source())?.is_living(header.incarnation())? {
            self.handle_ack(header)?;
        }
        Ok(())
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let Party::Rank(peer) = from else { return self.handle_command(header, body) };
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival_from(peer, header, rank, ranks)?;
        if !self.channel(peer)?.is_living(header.incarnation())? {
            return Ok(());
        }
        self.apply_pending(peer)?;
        if let Some(ack) = header.ack() {
            let runs = self.channel(peer)?.acknowledge(ack)?;
            self.report_acknowledged(peer, runs);
        }
        match header.kind() {
            Kind::Message => return Err(ProtocolError::UnexpectedKind { peer, kind: Kind::Message }),
            Kind::Ack => {}
            Kind::AckRequest => self.channel(peer)?.link.recv.handle_ack_request(header.ssn()),
            Kind::Control => {
                let covered = (header.tag() == notice::COVERED).then(|| notice::decode(body)).flatten();
                let covered = covered.filter(Covered::is_sound);
                let covered = covered.ok_or_else(|| SendDeterministic::malformed(peer, header, body))?;
                self.handle_covered(peer, covered)?;
            }
        }
        self.send_due_acks(peer)
    }

    /// Counts the call and forces nothing: unrelated receives may be reordered (section II.C).
    fn next_choice(&mut self) -> NextChoice {
        let sequence = self.choices;
        self.choices += 1;
        NextChoice { sequence, forced: None }
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        if choice.sequence >= self.choices {
            return Err(ChoiceError::NotOpen { sequence: choice.sequence });
        }
        Ok(None)
    }

    /// Checks and ignores a recorded choice: this rule records none, so it is another protocol's.
    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        ChoiceRecord::decode(record).map(|_| ())
    }

    fn is_running(&self) -> bool {
        self.round.is_running()
    }

    fn is_recovering(&self) -> bool {
        !self.round.is_finished()
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(self.start())
    }

    /// Returns `false` in a recovery, because a checkpoint would contain a state with open orphans, and where the next
    /// epoch would reach the cluster above.
    fn wants_checkpoint(&mut self) -> bool {
        self.round.is_finished()
            && self.epoch.next().is_some_and(|next| next < self.ceiling || self.ceiling == Epoch::MAX)
    }

    /// Implements Figure 3, lines 41 to 45, in another order: first the epoch and the phase rise, then the tables are
    /// saved.
    ///
    /// Fails with [`ProtocolError::NotCheckpointing`] where [`Protocol::wants_checkpoint`] returns `false`.
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let next = self.epoch.next().ok_or(ProtocolError::EpochsExhausted)?;
        if !self.wants_checkpoint() {
            return Err(ProtocolError::NotCheckpointing { epoch: next });
        }
        self.abandoned.extend(self.pending.take().map(|pending| pending.epoch));
        // The first checkpoint after a recovery must contain the receipts reported in it.
        self.apply_all_pending()?;
        for channel in self.channels() {
            channel.begin_epoch(next)?;
        }
        self.epoch = next;
        self.phase = Phase(self.phase.0.saturating_add(1));
        let snapshot = Snapshot { epoch: next, tables: self.tables().encode() };
        self.pending = Some(self.table_at(snapshot.epoch));
        Ok(snapshot)
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let pending = self.pending.take_if(|pending| pending.epoch == epoch.0);
        self.checkpointed = pending.ok_or(ProtocolError::NotCheckpointing { epoch })?;
        self.durable = epoch;
        Ok(())
    }

    /// Implements Figure 3, lines 47 to 52 and 60.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let Config { rank, ranks, policy, .. } = self.config;
        let tables = Tables::decode(tables, rank, ranks)?;
        let epoch = Epoch(tables.epoch);
        let back = self.round.pending_rollback(epoch, self.incarnation);
        let fresh = self.channels.is_empty() && self.epoch == self.config.first_epoch;
        if back.is_none() && !fresh {
            return Err(RestoreError::NotFresh);
        }
        if tables.incarnation > self.incarnation.0 {
            return Err(RestoreError::Contradiction { what: "a checkpoint of a later incarnation" });
        }
        let mut channels = BTreeMap::new();
        for table in &tables.channels {
            channels.insert(Rank(table.peer), Box::new(Channel::restore(table, policy)?));
        }
        self.channels = channels;
        (self.epoch, self.durable, self.pending) = (epoch, epoch, None);
        self.phase = Phase(tables.phase);
        self.phases = tables.phases.newest(std::mem::take(&mut self.phases));
        self.choices = tables.choices;
        self.abandoned = tables.abandoned;
        // The tables may be older than the floor.
        self.floor = self.floor.max(Epoch(tables.floor)).max(oldest.min(epoch));
        self.checkpointed = self.table();
        match back {
            Some(incarnation) => {
                self.incarnation = incarnation;
                self.round.rolled_back(epoch);
                let stood = self.register_orphans();
                stood.map_err(|_| RestoreError::Contradiction { what: "the recovery line names no rank" })
            }
            None => {
                self.round.restarted(epoch);
                self.report(&Report::Rollback { incarnation: self.incarnation.0 });
                Ok(())
            }
        }
    }

    /// Creates the channel at most: the lane waits for the replacement's Hello, the job for the recovery process.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.channel(peer).map(|_| ())
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        if peer.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: peer, ranks });
        }
        let mut hello = Hello {
            rank,
            incarnation: self.incarnation,
            epoch: self.epoch,
            received: ReceivedSet::new(),
            covered: (self.floor, Ssn::ZERO),
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            opaque: Vec::new(),
        };
        if let Some(channel) = self.channels.get(&peer) {
            channel.describe(&mut hello);
            hello.opaque = notice::encode(&channel.receipts.received_runs());
        }
        Ok(hello)
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        if hello.rank != peer {
            let how = Misbehaviour::WrongRank { name: hello.rank };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let received_runs: Option<Vec<ReceivedRun>> =
            if hello.opaque.is_empty() { Some(Vec::new()) } else { notice::decode(&hello.opaque) };
        let received_runs = received_runs.filter(|runs| ReceivedRun::are_sound(runs, hello));
        let received_runs = received_runs.ok_or(ProtocolError::PeerMisbehaved {
            peer,
            how: Misbehaviour::MalformedNotice { tag: COMMAND, len: hello.opaque.len() },
        })?;
        let received = hello.received.upto();
        let channel = self.channel(peer)?;
        channel.handle_hello(hello, received_runs)?;
        let after = channel.replay_after(received);
        self.effects.push_back(Effect::ReceiverRolledBack { peer, to: Ssn::ZERO });
        self.apply_pending(peer)?;
        self.handle_covered(peer, Covered { epoch: hello.covered.0.0, upto: hello.covered.1.0, stable: 0 })?;
        self.effects.push_back(Effect::Replay { peer, incarnation: hello.incarnation, after, upto: Ssn::MAX });
        self.send_table();
        // The floor may have risen since the Hello answered by this one, or answering this one, was written.
        let floor = self.floor;
        let channel = self.channel(peer)?;
        let (upto, (stable, _)) = (channel.covered, channel.advance_stable(floor));
        if upto.max(stable) > Ssn::ZERO {
            self.send_covered(peer, upto, stable);
        }
        self.send_due_acks(peer)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }
}

impl SendDeterministic {
    /// Implements Figure 3, lines 21 to 26: the phase rises to the message's, or above it where the causal path is
    /// broken.
    fn record_receipt(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let (epoch, peer) = (self.epoch, header.source());
        let marked = header.flags().contains(counterfoil_ack_piggyback::Flags::LOGGED);
        let logged = marked || header.epoch() < epoch;
        let step = u32::from(logged);
        let phase = self.phase.max(Phase(header.phase().0.saturating_add(step)));
        self.phase = phase;
        self.channel(peer)?.receipts.record(epoch, phase, logged);
        Ok(())
    }

    /// Applies the acknowledgement on a message, held or not: acknowledgements must be processed in message order.
    fn handle_ack(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let peer = header.source();
        let channel = self.channel(peer)?;
        let now = channel.link.recv.incarnation();
        if let Some(ack) = header.ack().filter(|_| header.incarnation() == now) {
            let runs = channel.acknowledge(ack)?;
            self.report_acknowledged(peer, runs);
        }
        Ok(())
    }

    fn handle_covered(&mut self, peer: Rank, covered: Covered) -> Result<(), ProtocolError> {
        self.channel(peer)?.note_covered(covered)?;
        self.collect(peer)
    }
}

#[cfg(test)]
mod tests;
