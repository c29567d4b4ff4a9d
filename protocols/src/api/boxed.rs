//! Boxed protocols, for a rule that is chosen at run time.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank};

use super::{
    ChoiceError, ChoiceRecord, CollectiveCall, CollectivePlan, Effect, EntryKey, Hello, Incoming, NextChoice, Outgoing,
    Party, Properties, Protocol, ProtocolError, RestoreError, Snapshot,
};

impl<P: Protocol + ?Sized> Protocol for Box<P> {
    fn properties(&self) -> Properties {
        (**self).properties()
    }

    fn epoch(&self) -> Epoch {
        (**self).epoch()
    }

    fn incarnation(&self) -> Incarnation {
        (**self).incarnation()
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        (**self).handle_send(envelope)
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        (**self).handle_transmit(header)
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        (**self).handle_message(header)
    }

    fn handle_deferred(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        (**self).handle_deferred(header)
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        (**self).handle_control(from, header, body)
    }

    fn next_choice(&mut self) -> NextChoice {
        (**self).next_choice()
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        (**self).handle_choice(choice)
    }

    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        (**self).handle_recovered_choice(record)
    }

    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        (**self).handle_recovered_delivery(record)
    }

    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        (**self).handle_collective(call)
    }

    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        (**self).handle_collective_words(call, words)
    }

    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        (**self).handle_collective_completed(call)
    }

    fn handle_collective_failed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        (**self).handle_collective_failed(call)
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        (**self).handle_recovered_entry(entry, bytes)
    }

    fn handle_entry(&mut self, from: Rank, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        (**self).handle_entry(from, entry, bytes)
    }

    fn is_running(&self) -> bool {
        (**self).is_running()
    }

    fn is_recovering(&self) -> bool {
        (**self).is_recovering()
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        (**self).first_checkpoint()
    }

    fn wants_checkpoint(&mut self) -> bool {
        (**self).wants_checkpoint()
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        (**self).handle_checkpoint()
    }

    fn handle_checkpoint_refused(&mut self) -> Result<(), ProtocolError> {
        (**self).handle_checkpoint_refused()
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        (**self).handle_checkpoint_durable(epoch)
    }

    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        (**self).handle_log_sealed(epoch)
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        (**self).restore(tables, oldest)
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        (**self).handle_peer_lost(peer)
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        (**self).hello(peer)
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        (**self).handle_hello(peer, hello)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        (**self).poll_effect()
    }
}

#[cfg(test)]
mod tests;
