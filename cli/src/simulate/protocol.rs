//! The protocols that can be simulated: a new one is a variant, its name, and a line in [`Protocol::engine`].

use std::ops::Range;

use clap::ValueEnum;
use counterfoil_runtime::sim::{
    self, Canary, Config, Outcome, Pessimistic, Plain, Recorded, Schedule, SendDet, Shrunk, SimProtocol, Summary,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Plain sender-based logging, with the outcomes of wildcard receives recorded
    Plain,
    /// The same, with the order in which each rank receives recorded, and no outcome of a receive
    Pessimistic,
    /// Guermouche 2011: only messages from the past to the future are logged; a recovery process, which may be lost, too
    SendDeterministic,
}

impl Protocol {
    /// The mistakes that can be planted in it.
    pub(super) fn canaries(self) -> impl Iterator<Item = Canary> {
        let heeds = self.engine().heeds;
        Canary::every().filter(move |&canary| heeds(canary))
    }

    /// As it is written on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Plain => "plain",
            Protocol::Pessimistic => "pessimistic",
            Protocol::SendDeterministic => "send-deterministic",
        }
    }

    pub(super) fn engine(self) -> Engine {
        match self {
            Protocol::Plain => Engine::of::<Plain>(true),
            Protocol::Pessimistic => Engine::of::<Pessimistic>(true),
            Protocol::SendDeterministic => Engine::of::<SendDet>(false),
        }
    }
}

/// The simulator with one protocol in it.
#[derive(Clone, Copy)]
pub(super) struct Engine {
    /// One more node than the ranks can die.
    pub(super) coordinator: bool,
    /// Programs may depend on the order in which they take messages.
    pub(super) ordered: bool,
    /// Whether a mistake can change anything.
    pub(super) heeds: fn(Canary) -> bool,
    pub(super) campaign: fn(Range<u64>, &Config) -> Summary,
    pub(super) run: fn(&Schedule) -> Outcome,
    pub(super) tell: fn(&Schedule) -> (Outcome, Vec<String>),
    pub(super) record: fn(&Schedule) -> (Outcome, Vec<Recorded>),
    pub(super) shrink: fn(&Schedule, u32) -> Option<Shrunk>,
}

impl Engine {
    fn of<P: SimProtocol>(ordered: bool) -> Engine {
        Engine {
            coordinator: P::COORDINATOR,
            ordered,
            heeds: P::heeds,
            campaign: |seeds, config| sim::campaign::<P>(seeds, config, |_| {}),
            run: sim::run::<P>,
            tell: sim::tell::<P>,
            record: sim::record::<P>,
            shrink: sim::shrink::<P>,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_command_line_has() {
        for protocol in Protocol::value_variants() {
            assert_eq!(Protocol::from_str(protocol.name(), false), Ok(*protocol));
        }
    }
}
