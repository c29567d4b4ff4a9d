//! No logging: messages are numbered, sent and forgotten.
//!
//! The measurement baseline: a driver does the same as under another rule, but nothing is kept, acknowledged or
//! recorded. A job under this rule doesn't survive the death of a rank: the replacement is refused
//! ([`ProtocolError::NothingKept`]).
//!
//! ```
//! use counterfoil_log_core::{Envelope, Incarnation, Rank};
//! use counterfoil_protocols::api::{Protocol, ProtocolError};
//! use counterfoil_protocols::unlogged::Unlogged;
//!
//! let mut rank = Unlogged::new(Rank(0), 2, Incarnation(0))?;
//! let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 7, comm: 0, len: 5 };
//! assert!(!rank.handle_send(&envelope)?.keep_record);
//! let replacement = Unlogged::new(Rank(1), 2, Incarnation(1));
//! assert_eq!(replacement.err(), Some(ProtocolError::NothingKept { rank: Rank(1) }));
//! # Ok::<(), ProtocolError>(())
//! ```

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Determinant, Envelope, Incarnation, Rank};

use crate::api::{
    ChoiceError, ChoiceRecord, Effect, Kept, Outgoing, Properties, Protocol, ProtocolError, Repetition, Rule,
    RuleOptions,
};
use crate::forward_protocol;
use crate::sender_based::{Config, SenderBased};

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "unlogged",
    paper: "no paper",
    summary: "Keep nothing: what the others are measured against. A killed rank can't be replaced",
    properties: Unlogged::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| Ok(Box::new(Unlogged::new(rank, settings.ranks, incarnation)?)),
    make_coordinator: None,
};

/// State of one rank.
#[derive(Debug)]
pub struct Unlogged {
    core: SenderBased,
}

impl Unlogged {
    /// Rule properties.
    pub const PROPERTIES: Properties =
        Properties { repeats: Repetition::Nothing, keeps: Kept::Nothing, ..Properties::LOGGED_BY_SENDERS };

    /// Creates a rank in its initial state.
    ///
    /// `incarnation`: number of process replacements.
    ///
    /// # Errors
    /// Rank outside the job, or a replacement.
    pub fn new(rank: Rank, ranks: u32, incarnation: Incarnation) -> Result<Unlogged, ProtocolError> {
        if incarnation > Incarnation(0) {
            return Err(ProtocolError::NothingKept { rank });
        }
        Unlogged::of_incarnation(rank, ranks, incarnation)
    }

    /// Creates a rank that has done nothing in this incarnation, nor have others in theirs.
    ///
    /// # Errors
    /// Rank outside the job.
    pub(crate) fn of_incarnation(rank: Rank, ranks: u32, incarnation: Incarnation) -> Result<Unlogged, ProtocolError> {
        // No acknowledgement is ever due.
        let policy = AckPolicy {
            small_message_limit: usize::MAX,
            unacked_records_max: u64::MAX,
            unacked_bytes_max: u64::MAX,
            ..AckPolicy::default()
        };
        let core = SenderBased::new(Config { rank, ranks, incarnation, policy })?;
        Ok(Unlogged { core })
    }
}

impl Protocol for Unlogged {
    forward_protocol!(core:
        epoch, incarnation, handle_transmit, handle_message, handle_control, next_choice, handle_recovered_choice, handle_checkpoint,
        handle_checkpoint_durable, restore, handle_peer_lost, hello, handle_hello,
    );

    fn properties(&self) -> Properties {
        Unlogged::PROPERTIES
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        Ok(Outgoing { keep_record: false, ..self.core.handle_send(envelope)? })
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        self.core.handle_choice(choice).map(|_| None)
    }

    /// Returns `false`: nobody would start from a checkpoint.
    fn wants_checkpoint(&mut self) -> bool {
        false
    }

    /// Records are gone, so acknowledgements (in a Hello) have no effect.
    fn poll_effect(&mut self) -> Option<Effect> {
        std::iter::from_fn(|| self.core.poll_effect()).find(|effect| !matches!(effect, Effect::Acknowledged { .. }))
    }
}
