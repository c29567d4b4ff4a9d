//! The coordinated rule under the simulator.

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::{Coordinator, Properties};
use counterfoil_protocols::coordinated::{self, Bits, Initiator, Moment};

use super::{ProcessSettings, Refusal, SimRule};
use crate::canary;
use crate::program::Pattern;
use crate::schedule::Canary;

/// The [coordinated rule](coordinated), with its initiator as the coordinator, for each moment of checkpoints and both ways of a call's bits.
/// With `ANY_TIME`, every line that is begun has to be committed, or undone.
#[derive(Debug)]
pub struct Coordinated<const ANY_TIME: bool, const PIGGYBACKED: bool>;

impl<const ANY_TIME: bool, const PIGGYBACKED: bool> SimRule for Coordinated<ANY_TIME, PIGGYBACKED> {
    type Rank = coordinated::Coordinated;
    type Coordinator = Initiator;

    const PROPERTIES: Properties = coordinated::Coordinated::PROPERTIES;

    fn patterns() -> Vec<Pattern> {
        Pattern::ALL.into_iter().chain(Pattern::OF_CALLS).collect()
    }

    /// Returns `false` for mistakes about records of senders, which aren't kept, about outcomes, which the rule keeps in a log of its own, and
    /// about duplicates and messages of dead processes: a rank executes only after the Hellos of all peers, and nothing is sent twice.
    fn is_affected_by(canary: Canary) -> bool {
        matches!(canary, Canary::Coordinated(_) | Canary::ForgetPending | Canary::DurableEarly)
    }

    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
        let ProcessSettings { ranks, incarnation, canary, .. } = *settings;
        let moment = if ANY_TIME { Moment::AnyTime } else { Moment::Offered };
        let bits = if PIGGYBACKED { Bits::Piggybacked } else { Bits::Exchanged };
        let canary = canary::coordinated::planted(canary);
        Ok(coordinated::Coordinated::new(coordinated::Config { rank, ranks, incarnation, moment, bits, canary })?)
    }

    fn coordinator(settings: &ProcessSettings) -> Result<Initiator, Refusal> {
        Ok(Initiator::new(settings.ranks, settings.incarnation.0, canary::coordinated::planted(settings.canary)))
    }

    fn phase_of_line(rank: &Self::Rank) -> u32 {
        rank.phase_of_line()
    }

    fn waits_for(initiator: &Initiator) -> Option<String> {
        let (epoch, ranks) = initiator.open_line().filter(|_| ANY_TIME && !initiator.is_recovering())?;
        Some(format!("the line that begins {epoch}, for {ranks:?}"))
    }
}
