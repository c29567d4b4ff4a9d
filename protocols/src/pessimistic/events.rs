//! What the rule does with each event: what the core does and, around a delivery and a checkpoint, something of its own.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Rank};

use super::{Canary, Deliveries, Pessimistic, tables};
use crate::frame::{
    ChoiceError, ChoiceRecord, Effect, Hello, Incoming, NextChoice, Outgoing, Party, Protocol, ProtocolError,
    RestoreError, Snapshot,
};

impl Protocol for Pessimistic {
    fn epoch(&self) -> Epoch {
        self.core.epoch()
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        self.core.handle_send(envelope)
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        self.core.handle_transmit(header)
    }

    /// A message of the living incarnation that wasn't received before is delivered in the recorded order, or held. Messages of one
    /// channel have to be presented in the order of their numbers.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        if self.core.would_deliver(header) && !self.may_deliver(header)? {
            return Ok(Incoming::Hold);
        }
        match self.core.handle_message(header)? {
            Incoming::Deliver { .. } => Ok(self.deliver(header)),
            other => Ok(other),
        }
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        self.core.handle_control(from, header, body)
    }

    fn next_choice(&mut self) -> NextChoice {
        self.core.next_choice()
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        self.core.handle_choice(choice)
    }

    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        self.core.handle_recovered_choice(record)
    }

    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        let delivery = ChoiceRecord::decode(record)?;
        let (rank, ranks) = (delivery.source, self.core.config().ranks);
        if rank >= Rank(ranks) {
            return Err(ChoiceError::UnknownRank { rank, ranks });
        }
        self.deliveries.recover(delivery)
    }

    /// Not while recorded deliveries are to be repeated: the program may be where its predecessor was before them, and what
    /// it did after them is known to others.
    fn wants_checkpoint(&self) -> bool {
        self.deliveries.rest() == 0
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let rest = self.deliveries.rest();
        if rest > 0 {
            return Err(ProtocolError::Repeating { rest });
        }
        let Snapshot { epoch, tables } = self.core.handle_checkpoint()?;
        let deliveries = self.deliveries.counted();
        self.pending = Some((epoch, deliveries));
        if self.canary == Some(Canary::DroppedEarly) {
            self.discard_deliveries(deliveries);
        }
        Ok(Snapshot { epoch, tables: tables::encode(deliveries, &tables) })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.core.handle_checkpoint_durable(epoch)?;
        if let Some((_, deliveries)) = self.pending.take_if(|(pending, _)| *pending == epoch) {
            self.discard_deliveries(deliveries);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8]) -> Result<(), RestoreError> {
        if !self.deliveries.is_fresh() {
            return Err(RestoreError::NotFresh);
        }
        let (deliveries, core) = tables::decode(tables)?;
        self.core.restore(core)?;
        self.deliveries = Deliveries::resume(deliveries);
        Ok(())
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.core.handle_peer_lost(peer)
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        self.core.hello(peer)
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.core.handle_hello(peer, hello)?;
        if self.deliveries.rest() > 0 {
            // What a dead incarnation had sent may be held in front of what its successor sends: it is dropped now.
            self.effects.push_back(Effect::Resume);
        }
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}
