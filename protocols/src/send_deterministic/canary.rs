//! Planted mistakes, which tests must find.

/// Mistake of the paper, or omission of one of its rules.
///
/// A run with a canary must end wrong: with a deadlock, a message lost, doubled or changed, an order that no
/// failure-free run has, or more kept or less known than necessary. For tests and simulators only; otherwise
/// [`Config::canary`](super::Config::canary) is `None`. `docs/send-deterministic.md` says which test finds which.
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
    /// Duplicates are not acknowledged (Figure 3, lines 29 to 32), and SPE covers acknowledged messages only: a sender
    /// that was rolled back never learns again which messages were received.
    DuplicateUnacknowledged,
    /// Messages are delivered while the rank is blocked (Figure 3, line 14 stops sends only), whatever their phase.
    DeliverWhileBlocked,
    /// A replayed logged message isn't marked as logged (Figure 3, lines 21 and 72).
    ReplayUnmarked,
    /// Logged messages are replayed by the receive epoch that was acknowledged (Figure 3, line 65), although the
    /// receiver may have received them again in another one.
    ReplayByEpoch,
    /// Messages of a dead incarnation are accepted.
    IncarnationsIgnored,
    /// Checkpoints beyond the recovery line are kept.
    BeyondLineKept,
    /// A logged message raises the phase to its own, not above it (`+ 1` in Figure 3, line 22).
    PhaseNotRaised,
    /// The first logged message of an epoch and channel gets no explicit acknowledgement (section V.A). No message is
    /// lost: the sender only assumes that the receiver's failure would roll it back for messages that it sent to the
    /// future.
    FirstLoggedAckMissing,
    /// There are no phases: the first release lets all held messages and ranks go on (Figure 4, lines 38 to 41).
    PhasesIgnored,
}

impl Canary {
    /// All planted mistakes.
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
