//! Mistakes that tests plant, to see that they would be found.

/// One mistake of the paper, or one rule of it left out.
///
/// A run with a canary is expected to end wrong: with a deadlock, a message lost, doubled or changed, an order that no
/// failure-free run has, or more kept or less known than there has to be. Meant for tests and simulators; [`Config::canary`](super::Config::canary) is `None` otherwise. `docs/send-deterministic.md`
/// says which test finds which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// A duplicate is looked up in the present phase only (Figure 3, line 20), so in a new phase it counts as fresh.
    DuplicateByPhase,
    /// A rank whose present epoch is in the recovery line doesn't restore it (`<` in Figure 3, line 59).
    RestoreOnlyBelow,
    /// The checkpoint is saved before the epoch rises (Figure 3, lines 42 to 45).
    SaveBeforeIncrement,
    /// Messages without an acknowledgement are not replayed, because `Logs` doesn't have them (Figure 3, lines 42 and 65).
    UnacknowledgedLost,
    /// Duplicates are not acknowledged (Figure 3, lines 29 to 32), and SPE knows of acknowledged messages only: a sender that was
    /// rolled back never learns again what was received.
    DuplicateUnacknowledged,
    /// Messages are delivered while the rank stands still (Figure 3, line 14 stops sends only), whatever their phase.
    DeliverWhileBlocked,
    /// A replayed logged message doesn't say that it is one (Figure 3, lines 21 and 72).
    ReplayUnmarked,
    /// Logged messages are replayed by the receive epoch that was acknowledged (Figure 3, line 65), although the receiver may have
    /// received them again in another one.
    ReplayByEpoch,
    /// Messages of a dead incarnation count.
    IncarnationsIgnored,
    /// Checkpoints beyond the recovery line stay where they are.
    BeyondLineKept,
    /// A logged message raises the phase to its own, not above it (`+ 1` in Figure 3, line 22).
    PhaseNotRaised,
    /// The first logged message of an epoch and channel gets no explicit acknowledgement (section V.A). No message is lost by it:
    /// the sender counts what it has sent to the future as if the receiver's failure would take it back.
    FirstLoggedAckMissing,
    /// There are no phases: all that waits is let go with the first one (Figure 4, lines 38 to 41).
    PhasesIgnored,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 13] = [
        Canary::DuplicateByPhase,
        Canary::RestoreOnlyBelow,
        Canary::SaveBeforeIncrement,
        Canary::UnacknowledgedLost,
        Canary::DuplicateUnacknowledged,
        Canary::DeliverWhileBlocked,
        Canary::ReplayUnmarked,
        Canary::ReplayByEpoch,
        Canary::IncarnationsIgnored,
        Canary::BeyondLineKept,
        Canary::PhaseNotRaised,
        Canary::FirstLoggedAckMissing,
        Canary::PhasesIgnored,
    ];
}
