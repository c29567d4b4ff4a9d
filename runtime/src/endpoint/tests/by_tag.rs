//! The plain rule, with other verdicts on messages with certain tags, and with effects when they are sent.
//!
//! Collectives run natively.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use counterfoil::{Envelope, Rank, Ssn};
use counterfoil_ack_piggyback::{Flags, Origin, Stamp, WireHeader};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Effect, EntryKey, EntryKind, Kept, Outgoing, Properties, Protocol,
    ProtocolError, Rule, RuleSettings, Snapshot, Transmission,
};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{self, SenderBased};

use crate::communicator::COLLECTIVE_CONTEXT;

/// Tag of a message held until one with the tag [`RELEASE`] is sent.
pub(super) const HOLD: i32 = 5;
/// Tag of a message that releases held ones.
pub(super) const RELEASE: i32 = 6;
/// Tag of a suppressed message.
pub(super) const SUPPRESS: i32 = 7;
/// Tag of a message whose length is the number of a note and of a copied message from rank 0, both kept with it.
pub(super) const KEEP: i32 = 8;
/// Tag of a message that discards the notes and copies up to its length.
pub(super) const DISCARD: i32 = 9;
/// Tag of a message whose sender takes part in [`CALL`] once more.
pub(super) const REPEAT: i32 = 10;
/// Tag of a message that makes the rule ask for a checkpoint.
pub(super) const ASK: i32 = 11;
/// Tag of copied messages.
pub(super) const COPIED: i32 = 12;
/// Tag of a message after which the sender's calls wait for a checkpoint, until it is taken or refused.
pub(super) const ASK_IN_CALL: i32 = 13;

const CALL: CollectiveCall =
    CollectiveCall { class: CollectiveClass::FromRoot(Rank(0)), comm: COLLECTIVE_CONTEXT, number: 0, uniform: true };

/// Parameters of the rule.
#[derive(Clone, Debug, Default)]
pub(super) struct ByTag {
    /// No record is kept, and acknowledgements have no effect.
    pub(super) keeps_nothing: bool,
    /// Entries given to replacements.
    pub(super) recovered: Arc<Mutex<Vec<EntryKey>>>,
    /// Number of checkpoints refused in a call.
    pub(super) refused: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Tagged {
    core: SenderBased,
    by_tag: ByTag,
    effects: VecDeque<Effect>,
    /// Calls wait for a checkpoint.
    waits: bool,
}

impl Tagged {
    fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.effects.push_back(Effect::Resume);
        }
    }
}

impl ByTag {
    /// Returns the rule.
    ///
    /// Its maker is never freed.
    pub(super) fn rule(self) -> Rule {
        let make = move |rank, incarnation, settings: &RuleSettings| -> Result<Box<dyn Protocol>, ProtocolError> {
            let RuleSettings { ranks, policy, .. } = *settings;
            let core = SenderBased::new(sender_based::Config { rank, ranks, incarnation, policy })?;
            Ok(Box::new(Tagged { core, by_tag: self.clone(), effects: VecDeque::new(), waits: false }))
        };
        Rule { name: "by tag", make_rank: Box::leak(Box::new(make)), ..sender_based::RULE }
    }
}

/// Returns the keys of a note and a message copy.
pub(super) fn entries(number: u64) -> [EntryKey; 2] {
    [EntryKind::Note, EntryKind::Message].map(|kind| EntryKey { kind, number })
}

/// Returns a message never sent by rank 0, in its wire form.
fn copied(number: u64) -> Vec<u8> {
    let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: COPIED, comm: 0, len: 8 };
    let stamp = Stamp { ssn: Ssn(1_000 + number), flags: Flags::NONE };
    let header = WireHeader::message(&envelope, stamp, Origin::default(), None);
    [header.as_bytes(), &number.to_le_bytes()].concat()
}

impl Protocol for Tagged {
    forward_protocol!(core:
        epoch, incarnation, handle_transmit, handle_message, handle_control, next_choice, handle_choice,
        handle_recovered_choice, wants_checkpoint, handle_checkpoint_durable, restore,
        handle_peer_lost, hello, handle_hello,
    );

    fn properties(&self) -> Properties {
        let keeps = if self.by_tag.keeps_nothing { Kept::Nothing } else { SenderBased::PROPERTIES.keeps };
        Properties { keeps, ..SenderBased::PROPERTIES }
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let mut outgoing = self.core.handle_send(envelope)?;
        outgoing.keep_record &= !self.by_tag.keeps_nothing;
        match envelope.tag {
            HOLD => outgoing.transmission = Transmission::Hold,
            RELEASE => self.effects.push_back(Effect::Resume),
            SUPPRESS => outgoing.transmission = Transmission::Suppress,
            KEEP => self.effects.extend(entries(envelope.len).map(|entry| {
                let bytes = if entry.kind == EntryKind::Message { copied(entry.number) } else { vec![1, 2, 3] };
                Effect::KeepEntry { entry, bytes }
            })),
            DISCARD => self.effects.extend(entries(0).map(|entry| Effect::DiscardEntries {
                kind: entry.kind,
                first: 1,
                last: envelope.len,
            })),
            REPEAT => self.effects.push_back(Effect::RunCollective { call: CALL }),
            ASK => self.effects.push_back(Effect::TakeCheckpoint),
            ASK_IN_CALL => self.waits = true,
            _ => {}
        }
        Ok(outgoing)
    }

    fn handle_collective(&mut self, _: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        if self.waits {
            self.effects.push_back(Effect::TakeCheckpoint);
            return Ok(CollectivePlan::Hold);
        }
        Ok(CollectivePlan::Native { keep: None })
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        self.end_wait();
        self.core.handle_checkpoint()
    }

    fn handle_checkpoint_refused(&mut self) -> Result<(), ProtocolError> {
        self.by_tag.refused.fetch_add(1, Ordering::Relaxed);
        self.end_wait();
        Ok(())
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        assert!(entry.kind == EntryKind::Message || bytes == [1, 2, 3], "{entry:?} {bytes:?}");
        self.by_tag.recovered.lock().unwrap().push(entry);
        Ok(true)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let is_ignored = |effect: &Effect| matches!(effect, Effect::Acknowledged { .. }) && self.by_tag.keeps_nothing;
        let of_core = std::iter::from_fn(|| self.core.poll_effect()).find(|effect| !is_ignored(effect));
        of_core.or_else(|| self.effects.pop_front())
    }
}
