//! Protocols available for simulation. A new one takes a variant, its name, and a line in [`Protocol::engine`].

use std::ops::Range;

use clap::ValueEnum;
use counterfoil_simulator::{
    self as simulator, Canary, Config, Coordinated, Outcome, Pattern, Pessimistic, Plain, Recorded, Schedule, SendDet,
    Shrunk, SimRule, Summary,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Sender-based logging that records the outcomes of wildcard receives
    Plain,
    /// Sender-based logging that records the receive order of each rank instead of outcomes
    Pessimistic,
    /// Guermouche 2011: logs only messages from the past to the future; has a recovery process, which may fail too
    SendDeterministic,
    /// Bronevetsky et al. (C3): logs only what crosses a checkpoint of the whole job, which all ranks go back to when one fails; for jobs
    /// whose memory is scarce, whose failures are rare, and whose checkpoints are cheap
    Coordinated,
    /// The same, with checkpoints only where the program offers them, and a collective's two bits on its data
    CoordinatedOffered,
}

impl Protocol {
    /// Returns the canaries that have an effect under this protocol.
    pub(super) fn canaries(self) -> impl Iterator<Item = Canary> {
        let applies = self.engine().applies;
        Canary::every().filter(move |&canary| applies(canary))
    }

    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Plain => "plain",
            Protocol::Pessimistic => "pessimistic",
            Protocol::SendDeterministic => "send-deterministic",
            Protocol::Coordinated => "coordinated",
            Protocol::CoordinatedOffered => "coordinated-offered",
        }
    }

    /// Returns the patterns of a campaign that names none: those with collective calls only for protocols that run these natively.
    pub(super) fn patterns(self) -> Vec<Pattern> {
        let calls: &[Pattern] = if self.runs_calls() { &[Pattern::Calls, Pattern::CallsToRoot] } else { &[] };
        Pattern::ALL.iter().chain(calls).copied().collect()
    }

    /// Returns `true` if the protocol can run programs of this pattern.
    pub(super) fn can_run(self, pattern: Pattern) -> bool {
        self.runs_calls() || !matches!(pattern, Pattern::Calls | Pattern::CallsToRoot)
    }

    /// Returns `true` if the protocol runs collective calls natively.
    fn runs_calls(self) -> bool {
        matches!(self, Protocol::Coordinated | Protocol::CoordinatedOffered)
    }

    pub(super) fn engine(self) -> Engine {
        match self {
            Protocol::Plain => Engine::of::<Plain>(true),
            Protocol::Pessimistic => Engine::of::<Pessimistic>(true),
            Protocol::SendDeterministic => Engine::of::<SendDet>(false),
            Protocol::Coordinated => Engine::of::<Coordinated<true, false>>(true),
            Protocol::CoordinatedOffered => Engine::of::<Coordinated<false, true>>(true),
        }
    }
}

/// Simulator instantiated for a protocol.
#[derive(Clone, Copy)]
pub(super) struct Engine {
    /// The protocol has a coordinator, a node besides the ranks that can fail.
    pub(super) coordinator: bool,
    /// Programs may depend on the order of receives.
    pub(super) ordered: bool,
    /// Returns `true` if a canary has an effect.
    pub(super) applies: fn(Canary) -> bool,
    pub(super) campaign: fn(Range<u64>, &Config) -> Summary,
    pub(super) run: fn(&Schedule) -> Outcome,
    pub(super) tell: fn(&Schedule) -> (Outcome, Vec<String>),
    pub(super) record: fn(&Schedule) -> (Outcome, Vec<Recorded>),
    pub(super) shrink: fn(&Schedule, u32) -> Option<Shrunk>,
}

impl Engine {
    fn of<P: SimRule>(ordered: bool) -> Engine {
        Engine {
            coordinator: P::PROPERTIES.has_coordinator,
            ordered,
            applies: P::is_affected_by,
            campaign: |seeds, config| simulator::campaign::<P>(seeds, config, |_| {}),
            run: simulator::run::<P>,
            tell: simulator::transcript::<P>,
            record: simulator::record::<P>,
            shrink: simulator::shrink::<P>,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for protocol in Protocol::value_variants() {
            assert_eq!(Protocol::from_str(protocol.name(), false), Ok(*protocol));
        }
    }
}
