//! Pessimistic message logging: the baseline of the papers.
//!
//! Senders log messages as under the [plain rule](crate::sender_based), the core of this one, which handles lanes,
//! acknowledgements, incarnations and coverage. This rule adds the *receive order*: before a message is delivered, its
//! determinant (place in the order, source and SSN) is written to the rank's local log ([`Incoming::Deliver`] names the
//! entry). A replacement delivers in the recorded order and holds early messages; once all records are used up, the
//! order is free. Only the killed rank rolls back.
//!
//! The plain rule requires a program to name every call with a timing-dependent outcome, and forces these outcomes when
//! it repeats the execution. This rule assumes nothing about the program: a wildcard receive takes the same message
//! again because the messages before it are the same. It costs one record for *every* message, named or not. Outcomes
//! not determined by any order (a test or a probe that found nothing *yet*) remain the core's choices.
//!
//! Sources: Zhao 2005, section 2.3.1 (logged before it can be received, so no recovery line has to be computed;
//! messages in the sender's memory; the record may wait until the process sends), and Liu 2014, section 2.1 (the
//! determinant has the number of the reception, recreated in that order). In Liu 2014 the receiver gives the number to
//! the sender as a *ticket* before each message, and the sender keeps it; here the receiver keeps it, so no message
//! waits for a round trip, and the sender's death costs nothing. `docs/book/src/explanation/logging.md` says what
//! "written" has to mean in which tier, and why several failures at once are covered.
//!
//! ```
//! use counterfoil_ack_piggyback::AckPolicy;
//! use counterfoil_log_core::{Determinant, Envelope, Incarnation, Rank, Ssn};
//! use counterfoil_protocols::api::{ChoiceRecord, Incoming, Protocol};
//! use counterfoil_protocols::pessimistic::{Config, Pessimistic};
//!
//! let policy = AckPolicy::default();
//! let config = |rank, incarnation| Config { rank, ranks: 3, incarnation: Incarnation(incarnation), policy };
//! let envelope = |source| Envelope { source, destination: Rank(2), tag: 7, comm: 0, len: 5 };
//! let mut senders = [Pessimistic::new(config(Rank(0), 0))?, Pessimistic::new(config(Rank(1), 0))?];
//! let from_0 = senders[0].handle_send(&envelope(Rank(0)))?.header;
//! let from_1 = senders[1].handle_send(&envelope(Rank(1)))?.header;
//!
//! // Before it died, rank 2 had received the message of rank 1 first.
//! let mut replacement = Pessimistic::new(config(Rank(2), 1))?;
//! let record = ChoiceRecord::new(Determinant { sequence: 0, source: Rank(1), ssn: Ssn(1) });
//! replacement.handle_recovered_delivery(&record.bytes)?;
//! assert_eq!(replacement.handle_message(&from_0)?, Incoming::Hold);
//! assert_eq!(replacement.handle_message(&from_1)?, Incoming::Deliver { keep: None });
//! // All records are used up: from here on the order is free, and is recorded.
//! assert!(matches!(replacement.handle_message(&from_0)?, Incoming::Deliver { keep: Some(_) }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod deliveries;
mod events;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::Epoch;

use crate::api::{Effect, EntryKey, EntryKind, Incoming, Properties, ProtocolError, Repetition, Rule, RuleOptions};
pub use crate::sender_based::Config;
use crate::sender_based::SenderBased;
use deliveries::Deliveries;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "pessimistic",
    paper: "Zhao 2005, section 2.3.1; Liu 2014, section 2.1",
    summary: "As sender-based, and record the receive order of each rank before delivery instead of outcomes: the papers' baseline. Assumes nothing about the program",
    properties: Pessimistic::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| Ok(Box::new(Pessimistic::new(Config::of(rank, incarnation, settings))?)),
    make_coordinator: None,
};

/// State of one rank under the rule.
///
/// Memory: the core's and, in a replacement, some 50 bytes for each recorded delivery not yet repeated.
#[derive(Debug)]
pub struct Pessimistic {
    core: SenderBased,
    deliveries: Deliveries,
    /// Checkpoint in progress: its new epoch, and the number of covered deliveries.
    pending: Option<(Epoch, u64)>,
    /// Effects to carry out after the core's.
    effects: VecDeque<Effect>,
}

impl Pessimistic {
    /// Rule properties.
    pub const PROPERTIES: Properties =
        Properties { repeats: Repetition::SendsAndReceives, ..Properties::LOGGED_BY_SENDERS };

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// Rank outside the job, or a contradictory policy.
    pub fn new(config: Config) -> Result<Pessimistic, ProtocolError> {
        Ok(Pessimistic {
            core: SenderBased::new(config)?,
            deliveries: Deliveries::default(),
            pending: None,
            effects: VecDeque::new(),
        })
    }

    /// Returns the core, with the state for channels, incarnations and choices.
    pub fn core(&self) -> &SenderBased {
        &self.core
    }

    /// Returns the number of messages delivered since program start, by this incarnation and the execution it repeats.
    pub fn delivered(&self) -> u64 {
        self.deliveries.count()
    }

    /// Returns the number of recorded deliveries still to be repeated.
    pub fn pending_deliveries(&self) -> usize {
        self.deliveries.pending()
    }

    /// Returns `true` if a message deliverable for the core is next in the recorded order, or the order is free.
    fn may_deliver(&self, header: &WireHeader) -> Result<bool, ProtocolError> {
        let (peer, found) = (header.source(), header.ssn());
        let expected = self.core.received_upto(peer).next();
        if found != expected {
            return Err(ProtocolError::UnexpectedSsn { peer, expected, found });
        }
        let Some(recorded) = self.deliveries.expected()? else { return Ok(true) };
        if recorded.source != peer {
            return Ok(false);
        }
        // A channel delivers in order, so its next message is the recorded one.
        let expected = recorded.ssn;
        if found == expected { Ok(true) } else { Err(ProtocolError::UnexpectedSsn { peer, expected, found }) }
    }

    /// Delivers a message accepted by the core: repeats a recorded delivery, or records a new one.
    fn deliver(&mut self) -> Incoming {
        let sequence = self.deliveries.count();
        if self.deliveries.advance() {
            // Any held message may be the next.
            self.effects.push_back(Effect::Resume);
            return Incoming::Deliver { keep: None };
        }
        Incoming::Deliver { keep: Some(entry(sequence)) }
    }

    fn discard_deliveries(&mut self, before: u64) {
        self.effects.push_back(Effect::DiscardDeliveries { before });
    }
}

/// Returns the local-log key of a recorded delivery.
fn entry(number: u64) -> EntryKey {
    EntryKey { kind: EntryKind::Delivery, number }
}
