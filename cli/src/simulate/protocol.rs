//! Protocols available for simulation. A new one takes a variant, its name, and an [`Engine`], named in [`Protocol::engine`].

use clap::ValueEnum;
use counterfoil_simulator::engine::{self, Engine};
use counterfoil_simulator::{Canary, Pattern};

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

    pub(super) fn engine(self) -> &'static Engine {
        match self {
            Protocol::Plain => &engine::PLAIN,
            Protocol::Pessimistic => &engine::PESSIMISTIC,
            Protocol::SendDeterministic => &engine::SEND_DETERMINISTIC,
            Protocol::UserLevel => &engine::USER_LEVEL,
            Protocol::Coordinated => &engine::COORDINATED,
            Protocol::CoordinatedPiggybacked => &engine::COORDINATED_PIGGYBACKED,
            Protocol::CoordinatedOffered => &engine::COORDINATED_OFFERED,
            Protocol::EventLogging => &engine::EVENT_LOGGING,
            Protocol::MessageTagging => &engine::MESSAGE_TAGGING,
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
