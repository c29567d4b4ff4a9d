//! Adapter for rules under which only the killed rank rolls back.

use counterfoil_ack_piggyback::{AckPolicy, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceRecord, Effect, EntryKey, EntryKind, Hello, Incoming, NextChoice, Outgoing, Party, Protocol, ProtocolError,
    Snapshot,
};

use super::protocol::{
    Action, Actions, HelloOutcome, ProcessSettings, Refusal, Repetition, Retention, SimProtocol, StableStorage,
};
use super::schedule::Canary;

/// Asks for acknowledgements often, so that small programs reach them.
const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 1024, unacked_records_max: 4, unacked_bytes_max: 4 << 20, exceptions_max: 64 };

/// Protocol whose senders keep messages until a durable checkpoint of the receiver covers them, and under which only
/// the killed rank rolls back.
pub trait LocalRule: Protocol + Sized {
    /// Part of its predecessor's execution that a replacement repeats.
    const REPETITION: Repetition;

    /// `true` if it has to know what a receive takes that can take one of several messages.
    const CHOOSES: bool;

    /// Returns `true` if this mistake can change anything in a run of this rule.
    fn is_affected_by(canary: Canary) -> bool {
        !canary.is_of_a_rule()
    }

    /// Creates the state machine of a rank that has done nothing yet.
    ///
    /// # Errors
    /// [`Refusal`] of the rule.
    fn start(rank: Rank, settings: &ProcessSettings, policy: AckPolicy) -> Result<Self, Refusal>;
}

/// One rank under such a rule.
#[derive(Debug)]
pub struct Local<R> {
    rank: Rank,
    rule: R,
}

impl<R: LocalRule> Local<R> {
    /// Translates the rule's effects into actions.
    fn poll(&mut self, actions: &mut Actions) -> Result<(), Refusal> {
        let own = self.rank;
        while let Some(effect) = self.rule.poll_effect() {
            actions.push(match effect {
                Effect::Transmit { to, header, body } => {
                    Action::Control { to, bytes: [header.as_bytes(), &body].concat() }
                }
                Effect::Acknowledged { peer, ack, .. } => Action::Acknowledged { peer, upto: ack.ssn },
                Effect::ReceiverRolledBack { peer, to } => Action::ReceiverRolledBack { peer, to },
                Effect::Covered { peer, upto, .. } => Action::Free { peer, first: Ssn::FIRST, last: upto },
                // The programs send nothing to themselves.
                Effect::Replay { peer, .. } if peer == own => continue,
                Effect::Replay { peer, incarnation, after, upto } => Action::Replay { peer, incarnation, after, upto },
                Effect::Resume => Action::Resume,
                Effect::DiscardChoices { before } => Action::DiscardChoices { before },
                Effect::DiscardDeliveries { before } => Action::DiscardDeliveries { before },
                Effect::KeepEntry { entry: EntryKey { kind: EntryKind::Delivery, .. }, bytes } => {
                    Action::KeepDelivery { record: ChoiceRecord::new(ChoiceRecord::decode(&bytes)?) }
                }
                other => return Err(Refusal(format!("an effect that this rule has no use for: {other:?}"))),
            });
        }
        Ok(())
    }
}

fn rank(party: Party) -> Result<Rank, Refusal> {
    match party {
        Party::Rank(rank) => Ok(rank),
        Party::Coordinator => Err(Refusal("this rule has no coordinator".into())),
    }
}

impl<R: LocalRule> SimProtocol for Local<R> {
    /// A message that a peer covers ahead of a re-execution is freed by the event on its channel after its send,
    /// because the log has to have it first. So the last record that was sent again may stay; and if a checkpoint is
    /// taken before that event, it stays in whatever is restored from the checkpoint, until more is covered.
    const RETENTION: Retention = Retention::UntilCovered { slack: 1 };

    const REPETITION: Repetition = R::REPETITION;

    fn is_affected_by(canary: Canary) -> bool {
        R::is_affected_by(canary)
    }

    fn start(settings: ProcessSettings) -> Result<Self, Refusal> {
        let rank = rank(settings.party)?;
        Ok(Local { rank, rule: R::start(rank, &settings, POLICY)? })
    }

    fn is_running(&self) -> bool {
        self.rule.is_running()
    }

    fn wants_checkpoint(&self) -> bool {
        self.rule.wants_checkpoint()
    }

    fn on_restart(&mut self, storage: StableStorage<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        if let Some(tables) = storage.tables {
            self.rule.restore(tables, storage.oldest)?;
            // Another checkpoint is left if the process died between its successor becoming durable and the notice of
            // it.
            let epoch = self.rule.epoch();
            actions.push(Action::KeepCheckpoints { first: epoch, last: epoch });
        }
        for record in storage.choices {
            self.rule.handle_recovered_choice(&record.bytes)?;
        }
        for record in storage.deliveries {
            self.rule.handle_recovered_delivery(&record.bytes)?;
        }
        self.poll(actions)
    }

    fn on_connect(&mut self, peer: Party) -> Result<Vec<u8>, Refusal> {
        Ok(self.rule.hello(rank(peer)?)?.encode()?)
    }

    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal> {
        match self.rule.handle_hello(rank(peer)?, &Hello::decode(hello)?) {
            Err(ProtocolError::DeadHello { .. }) => return Ok(HelloOutcome::Dead),
            other => other?,
        }
        self.poll(actions)?;
        Ok(HelloOutcome::Accepted)
    }

    fn on_send(&mut self, envelope: &Envelope, actions: &mut Actions) -> Result<Outgoing, Refusal> {
        let outgoing = self.rule.handle_send(envelope)?;
        self.poll(actions)?;
        Ok(outgoing)
    }

    fn on_transmit(&mut self, header: &mut WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        self.rule.handle_transmit(header)?;
        self.poll(actions)
    }

    fn on_arrival(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<Incoming, Refusal> {
        let verdict = self.rule.handle_message(header)?;
        self.poll(actions)?;
        Ok(verdict)
    }

    fn on_control(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        let (header, body) = WireHeader::split(bytes)?;
        self.rule.handle_control(from, header, body)?;
        self.poll(actions)
    }

    fn on_choice(&mut self) -> Option<NextChoice> {
        R::CHOOSES.then(|| self.rule.next_choice())
    }

    fn on_chosen(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, Refusal> {
        Ok(self.rule.handle_choice(choice)?)
    }

    fn on_checkpoint(&mut self, actions: &mut Actions) -> Result<Snapshot, Refusal> {
        let snapshot = self.rule.handle_checkpoint()?;
        self.poll(actions)?;
        Ok(snapshot)
    }

    fn on_durable(&mut self, epoch: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        // This rule restores the last durable checkpoint only.
        actions.push(Action::KeepCheckpoints { first: epoch, last: epoch });
        self.rule.handle_checkpoint_durable(epoch)?;
        self.poll(actions)
    }

    fn on_failure(&mut self, peer: Party, actions: &mut Actions) -> Result<(), Refusal> {
        self.rule.handle_peer_lost(rank(peer)?)?;
        self.poll(actions)
    }
}
