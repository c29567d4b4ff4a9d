//! Protocols available for simulation. A new one takes a variant, its name, and a line in [`Protocol::engine`].

use std::ops::Range;

use clap::ValueEnum;
use counterfoil_simulator::{
    self as simulator, Canary, Config, Coordinated, EventLog, Outcome, Pattern, Pessimistic, Plain, Recorded, Schedule,
    SendDet, Shrunk, SimRule, Summary, Tagging, UserLevel,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Sender-based logging that records the outcomes of wildcard receives
    Plain,
    /// Sender-based logging that records the receive order of each rank instead of outcomes
    Pessimistic,
    /// Guermouche 2011: logs only messages from the past to the future; has a recovery process, which may fail too
    SendDeterministic,
    /// Liu 2014 (ULML): as plain, but keeps the results of collectives whole instead of logging their messages. Only killed ranks go back. For
    /// programs that communicate mostly by bcast, allreduce, allgather and barrier
    UserLevel,
    /// Bronevetsky et al. (C3): logs only what crosses a checkpoint of the whole job, which all ranks go back to when one fails; for jobs
    /// whose memory is scarce, whose failures are rare, and whose checkpoints are cheap
    Coordinated,
    /// The same, with a collective's two bits on its data
    CoordinatedPiggybacked,
    /// The same, with checkpoints only where the program offers them, and the bits on the data
    CoordinatedOffered,
    /// Zhao 2005 (libELC): keeps envelopes only, and the messages that cross a checkpoint; all ranks go back to the last common one.
    /// For many ranks that fail seldom, and programs whose messages are too many to keep. Has a coordinator, which may fail too
    EventLogging,
    /// Zhao 2005 (libELC), the other method: as event-logging, but each message carries the number of its sender's last checkpoint, and no
    /// envelopes are kept. For many small messages of different tags
    MessageTagging,
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
            Protocol::UserLevel => "user-level",
            Protocol::Coordinated => "coordinated",
            Protocol::CoordinatedPiggybacked => "coordinated-piggybacked",
            Protocol::CoordinatedOffered => "coordinated-offered",
            Protocol::EventLogging => "event-logging",
            Protocol::MessageTagging => "message-tagging",
        }
    }

    /// Returns `true` if programs of this pattern can run under the protocol.
    pub(super) fn runs(self, pattern: Pattern) -> bool {
        !Pattern::OF_CALLS.contains(&pattern) || (self.engine().patterns)().contains(&pattern)
    }

    /// Explains that a pattern of [`Pattern::OF_CALLS`] can't run.
    pub(super) fn refusal(self, pattern: Pattern) -> String {
        let others = Protocol::value_variants().iter().filter(|other| other.runs(pattern));
        let others: Vec<&str> = others.map(|other| other.name()).collect();
        let calls = if self.runs(Pattern::Calls) { "calls to a root" } else { "collective calls" };
        format!("{} doesn't run {calls} as a whole; use one of --protocol {}", self.name(), others.join(", "))
    }

    pub(super) fn engine(self) -> Engine {
        match self {
            Protocol::Plain => Engine::of::<Plain>(true),
            Protocol::Pessimistic => Engine::of::<Pessimistic>(true),
            Protocol::SendDeterministic => Engine::of::<SendDet>(false),
            Protocol::UserLevel => Engine::of::<UserLevel>(true),
            Protocol::Coordinated => Engine::of::<Coordinated<true, false>>(true),
            Protocol::CoordinatedPiggybacked => Engine::of::<Coordinated<true, true>>(true),
            Protocol::CoordinatedOffered => Engine::of::<Coordinated<false, true>>(true),
            Protocol::EventLogging => Engine::of::<EventLog>(true),
            Protocol::MessageTagging => Engine::of::<Tagging>(true),
        }
    }
}

/// Simulator instantiated for a protocol.
#[derive(Clone, Copy)]
pub(super) struct Engine {
    /// The protocol has a coordinator, a node apart from the ranks that can fail.
    pub(super) coordinator: bool,
    /// The coordinator acts when it is asked to: it collects, or begins a line of checkpoints.
    pub(super) collects: bool,
    /// Frames of an older connection may arrive after a newer one is made.
    pub(super) late: bool,
    /// Programs may depend on the order of receives.
    pub(super) ordered: bool,
    /// Messages may be presented out of order.
    pub(super) overtaking: bool,
    /// Checkpoints may be due by the clock of each rank.
    pub(super) clocks: bool,
    /// Returns the patterns of a campaign.
    pub(super) patterns: fn() -> Vec<Pattern>,
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
            collects: P::COLLECTS,
            late: P::LATE,
            ordered,
            overtaking: P::OVERTAKING,
            clocks: P::CLOCKS,
            patterns: P::patterns,
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
