// ANCHOR: rule
//! Keep everything: the plain rule, of which no record is ever collected.

use crate::api::{Effect, Kept, Properties, Protocol, ProtocolError, Rule, RuleOptions};
use crate::forward_protocol;
use crate::sender_based::{Config, SenderBased};

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "keep-all",
    paper: "no paper",
    summary: "As sender-based, and keep every message for ever: for replays after the run",
    properties: KeepAll::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| Ok(Box::new(KeepAll::new(Config::of(rank, incarnation, settings))?)),
    make_coordinator: None,
};

/// State of one rank.
#[derive(Debug)]
pub struct KeepAll {
    core: SenderBased,
}

impl KeepAll {
    /// Properties of the rule.
    pub const PROPERTIES: Properties = Properties { keeps: Kept::All, ..Properties::LOGGED_BY_SENDERS };

    /// Creates a rank that has done nothing yet.
    ///
    /// # Errors
    /// Rank outside the job, or a policy that contradicts itself.
    pub fn new(config: Config) -> Result<KeepAll, ProtocolError> {
        Ok(KeepAll { core: SenderBased::new(config)? })
    }
}

impl Protocol for KeepAll {
    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, handle_message, handle_control, next_choice, handle_choice,
        handle_recovered_choice, wants_checkpoint, handle_checkpoint, handle_checkpoint_durable, restore,
        handle_peer_lost, hello, handle_hello,
    );

    fn properties(&self) -> Properties {
        KeepAll::PROPERTIES
    }

    /// Drops what permits collection.
    fn poll_effect(&mut self) -> Option<Effect> {
        std::iter::from_fn(|| self.core.poll_effect()).find(|effect| !matches!(effect, Effect::Covered { .. }))
    }
}
// ANCHOR_END: rule

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{Envelope, Rank};

    use super::*;
    use crate::api::{Incoming, Party};
    use crate::sender_based;

    /// Returns `true` if rank 0 collects its message to rank 1, whose checkpoint has it.
    fn collects(rule: &Rule) -> bool {
        let mut ranks = [0, 1].map(|rank| rule.protocol(rank, 2, 0).unwrap());
        let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 7, comm: 0, len: 5 };
        let mut header = ranks[0].handle_send(&envelope).unwrap().header;
        ranks[0].handle_transmit(&mut header).unwrap();
        assert!(matches!(ranks[1].handle_message(&header), Ok(Incoming::Deliver { .. })));
        let snapshot = ranks[1].handle_checkpoint().unwrap();
        ranks[1].handle_checkpoint_durable(snapshot.epoch).unwrap();
        while let Some(effect) = ranks[1].poll_effect() {
            if let Effect::Transmit { to: Party::Rank(Rank(0)), header, body } = effect {
                ranks[0].handle_control(Party::Rank(Rank(1)), &header, &body).unwrap();
            }
        }
        std::iter::from_fn(|| ranks[0].poll_effect()).any(|effect| matches!(effect, Effect::Covered { .. }))
    }

    #[test]
    fn nothing_is_collected() {
        assert_eq!((collects(&sender_based::RULE), collects(&RULE)), (true, false));
    }
}
