//! The pessimistic rule in the simulator.

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::Rank;
use counterfoil_protocols::pessimistic::{Config, Pessimistic as Rule};

use super::local::{Local, LocalRule};
use super::protocol::{ProcessSettings, Refusal, Repetition};
use super::schedule::Canary;

/// One rank under the [pessimistic rule](counterfoil_protocols::pessimistic). It isn't asked which message a receive
/// takes, so programs need not name that.
pub type Pessimistic = Local<Rule>;

impl LocalRule for Rule {
    const REPETITION: Repetition = Repetition::SendsAndReceives;
    const CHOOSES: bool = false;

    /// Returns `false` for mistakes about outcomes: the recorded order determines what a receive takes, so none is
    /// asked for or recorded.
    fn is_affected_by(canary: Canary) -> bool {
        match canary {
            Canary::Pessimistic(_) => true,
            Canary::ForgetChoices => false,
            other => !other.is_of_a_rule(),
        }
    }

    fn start(rank: Rank, settings: &ProcessSettings, policy: AckPolicy) -> Result<Rule, Refusal> {
        let ProcessSettings { ranks, incarnation, canary, .. } = *settings;
        let canary = match canary {
            Some(Canary::Pessimistic(canary)) => Some(canary),
            _ => None,
        };
        Ok(Rule::new(Config { canary, ..Config::new(rank, ranks, incarnation, policy) })?)
    }
}
