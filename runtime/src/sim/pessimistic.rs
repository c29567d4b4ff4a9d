//! The pessimistic rule in the simulator.

use counterfoil::Rank;
use counterfoil::ack::AckPolicy;
use counterfoil_protocols::pessimistic::{Config, Pessimistic as Rule};

use super::local::{Local, LocalRule};
use super::protocol::{Refusal, Repetition, Seat};
use super::schedule::Canary;

/// One rank under the [pessimistic rule](counterfoil_protocols::pessimistic). Programs need not name what a receive takes: it
/// isn't asked.
pub type Pessimistic = Local<Rule>;

impl LocalRule for Rule {
    const REPETITION: Repetition = Repetition::SendsAndReceives;
    const CHOOSES: bool = false;

    /// What a receive takes follows from the recorded order: nothing is asked, and nothing of it recorded.
    fn heeds(canary: Canary) -> bool {
        match canary {
            Canary::Pessimistic(_) => true,
            Canary::ForgetChoices => false,
            other => !other.is_of_a_rule(),
        }
    }

    fn start(rank: Rank, seat: &Seat, policy: AckPolicy) -> Result<Rule, Refusal> {
        let Seat { ranks, incarnation, canary, .. } = *seat;
        let canary = match canary {
            Some(Canary::Pessimistic(canary)) => Some(canary),
            _ => None,
        };
        Ok(Rule::new(Config { canary, ..Config::new(rank, ranks, incarnation, policy) })?)
    }
}
