//! Events: the core's, with the receive order added around deliveries and checkpoints.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Rank};

use super::{Deliveries, Pessimistic, tables};
use crate::api::{
    ChoiceError, ChoiceRecord, Effect, Hello, Incoming, Properties, Protocol, ProtocolError, RestoreError, Snapshot,
};
use crate::forward_protocol;
use crate::sender_based::check_choice;

impl Protocol for Pessimistic {
    fn properties(&self) -> Properties {
        Pessimistic::PROPERTIES
    }

    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, handle_control, next_choice, handle_choice, handle_recovered_choice,
        handle_peer_lost, hello,
    );

    /// Delivers a new message from the living incarnation in the recorded order, or holds it.
    ///
    /// A channel's messages have to be presented in SSN order.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        if self.core.would_deliver(header) && !self.may_deliver(header)? {
            return Ok(Incoming::Hold);
        }
        match self.core.handle_message(header)? {
            Incoming::Deliver { .. } => Ok(self.deliver()),
            other => Ok(other),
        }
    }

    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        let delivery = ChoiceRecord::decode(record)?;
        check_choice(delivery, self.core.config().ranks)?;
        self.deliveries.recover(delivery)
    }

    /// Returns `false` while recorded deliveries are to be repeated: the program may be where its predecessor was
    /// before them, and other ranks know what it did after them.
    fn wants_checkpoint(&mut self) -> bool {
        self.deliveries.pending() == 0 && self.core.wants_checkpoint()
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let pending = self.deliveries.pending();
        if pending > 0 {
            return Err(ProtocolError::DeliveriesPending { pending });
        }
        let Snapshot { epoch, tables } = self.core.handle_checkpoint()?;
        let deliveries = self.deliveries.count();
        self.pending = Some((epoch, deliveries));
        Ok(Snapshot { epoch, tables: tables::encode(deliveries, &tables) })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.core.handle_checkpoint_durable(epoch)?;
        if let Some((_, deliveries)) = self.pending.take_if(|(pending, _)| *pending == epoch) {
            self.discard_deliveries(deliveries);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        if !self.deliveries.is_fresh() {
            return Err(RestoreError::NotFresh);
        }
        let (deliveries, core) = tables::decode(tables)?;
        self.core.restore(core, oldest)?;
        self.deliveries = Deliveries::resume(deliveries);
        Ok(())
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.core.handle_hello(peer, hello)?;
        if self.deliveries.pending() > 0 {
            // A message from a dead incarnation may be held in front of its successor's: drop it now.
            self.effects.push_back(Effect::Resume);
        }
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}
