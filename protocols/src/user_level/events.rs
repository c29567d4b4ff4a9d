//! Events: the core's, with collectives and reports about them.

use counterfoil_ack_piggyback::{Kind, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Rank};

use super::tables::Tables;
use super::{CALLS, UserLevel};
use crate::api::{
    CollectiveCall, CollectivePlan, Effect, EntryKey, EntryKind, Hello, Party, Properties, Protocol, ProtocolError,
    RestoreError, Snapshot,
};
use crate::forward_protocol;

impl Protocol for UserLevel {
    fn properties(&self) -> Properties {
        UserLevel::PROPERTIES
    }

    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, handle_message, next_choice, handle_choice,
        handle_recovered_choice, wants_checkpoint, handle_peer_lost,
    );

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let Party::Rank(peer) = from else { return Err(ProtocolError::NoCoordinator) };
        if header.kind() != Kind::Control || header.tag() != CALLS {
            return self.core.handle_control(from, header, body);
        }
        ProtocolError::check_arrival_from(peer, header, self.rank(), self.core.config().ranks)?;
        if !ProtocolError::check_incarnation(peer, header.incarnation(), self.core.incarnation_of(peer))? {
            return Ok(());
        }
        let report = self.decode(peer, body)?;
        self.calls.note(peer, &report);
        self.collect();
        self.request_new_plan();
        Ok(())
    }

    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        let CollectiveCall { comm, number, uniform, .. } = *call;
        let next = self.calls.next(comm);
        if number < next {
            return Err(ProtocolError::CollectiveCompleted { comm, number, next });
        }
        if !uniform {
            return Ok(CollectivePlan::AsMessages);
        }
        let plan = self.plan(call);
        self.open = Some((*call, plan));
        Ok(plan)
    }

    /// Counts the call. A rank without a part in it forwards the result to ranks that may be waiting there for this
    /// one.
    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        let plan = self.open.take().map(|(_, plan)| plan);
        let is_kept = matches!(plan, Some(CollectivePlan::Recorded(_) | CollectivePlan::Native { keep: Some(_) }));
        self.calls.complete(call, is_kept);
        if matches!(plan, Some(CollectivePlan::Recorded(_) | CollectivePlan::Skip)) {
            self.calls.lagging(call).into_iter().for_each(|peer| self.serve(peer));
        }
        Ok(())
    }

    fn handle_entry(&mut self, from: Rank, entry: EntryKey, _: &[u8]) -> Result<bool, ProtocolError> {
        check(entry)?;
        let is_new = self.calls.insert(Some(from), entry);
        self.request_new_plan();
        Ok(is_new)
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, _: &[u8]) -> Result<bool, ProtocolError> {
        check(entry)?;
        self.calls.insert(None, entry);
        Ok(false)
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let Snapshot { epoch, tables } = self.core.handle_checkpoint()?;
        let beyond = self.calls.durable_now();
        self.pending = Some((epoch, beyond));
        let tables = Tables { completed: self.calls.completed().clone(), core: tables };
        Ok(Snapshot { epoch, tables: tables.encode() })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.core.handle_checkpoint_durable(epoch)?;
        if let Some((_, beyond)) = self.pending.take_if(|(pending, _)| *pending == epoch) {
            self.apply_durable(&beyond);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let Tables { completed, core } = Tables::decode(tables)?;
        self.core.restore(&core, oldest)?;
        self.calls.restore(completed);
        Ok(())
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        let hello = self.core.hello(peer)?;
        Ok(Hello { opaque: self.calls.report_to(peer).encode(), ..hello })
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        let mut report = self.decode(peer, &hello.opaque)?;
        self.core.handle_hello(peer, hello)?;
        let has_met = report.has_met || self.calls.has_met(peer);
        let is_repair = has_met || hello.incarnation.max(self.incarnation()) > Incarnation(0);
        if !is_repair {
            // Two first processes meeting for the first time take part in every call: neither waits for the other's
            // result. Both have to say so: a connection may have broken when only one had the other's Hello.
            report.completed.clear();
        }
        self.calls.meet(peer, &report);
        self.collect();
        if is_repair {
            self.serve(peer);
        }
        self.request_new_plan();
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}

/// Checks that an entry is the result of a collective: nothing else is kept.
fn check(entry: EntryKey) -> Result<(), ProtocolError> {
    if entry.kind == EntryKind::Collective { Ok(()) } else { Err(ProtocolError::UnexpectedEntry { entry }) }
}
