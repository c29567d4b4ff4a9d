//! Planted mistakes, which tests must find.

/// Violation of one promise of the rule. Each leads to a wrong end, or to a line that is never committed.
///
/// For tests and simulators only; otherwise [`Config::canary`](super::Config::canary) is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// Late messages are delivered without a copy in the recovery log (section 2.3).
    LateNotLogged,
    /// Early messages are sent again, and delivered again (section 2.3).
    EarlyNotSuppressed,
    /// Outcomes aren't recorded while logging (section 3.1, phase 2).
    OutcomesNotLogged,
    /// A rank is ready to stop logging before it has all late messages (section 3.4).
    ReadyEarly,
    /// The send counts are never reset, as in Figure 3.
    CountsNotReset,
    /// A rank is ready before it has made the calls that others made before their checkpoints: the paper counts messages only.
    CallsNotCounted,
    /// Colours are combined by exclusive or, as in Figure 6.
    ColoursByParity,
    /// Logs of calls are matched by their communicators alone, as in Figures 6 to 8.
    MatchedByCommunicator,
    /// A call that ends logging clears amLogging and doesn't finalize the log, as in Figures 6 to 8.
    LogNotFinalized,
    /// Barriers that straddle the line are like others: section 5 has no rule for them.
    BarrierNotLogged,
    /// Results of calls that straddle the line aren't kept (section 5.1).
    ResultNotKept,
    /// Calls to a root that the root doesn't repeat aren't suppressed (section 5.2).
    CallNotSuppressed,
    /// Calls whose root was beyond the line aren't repeated with dummy arguments (section 5.3).
    CallNotRepeated,
    /// The initiator begins a line while another is open.
    TwoLines,
    /// The initiator commits a line when all ranks are ready, before their logs are on stable storage.
    CommittedEarly,
    /// A replaced initiator takes the start for the last committed line.
    InitiatorForgets,
    /// All roll back to their newest checkpoints.
    NewestRestored,
    /// Log entries of an undone line stay.
    StaleLogKept,
}

impl Canary {
    /// All planted mistakes.
    pub const ALL: [Canary; 18] = [
        Canary::LateNotLogged,
        Canary::EarlyNotSuppressed,
        Canary::OutcomesNotLogged,
        Canary::ReadyEarly,
        Canary::CountsNotReset,
        Canary::CallsNotCounted,
        Canary::ColoursByParity,
        Canary::MatchedByCommunicator,
        Canary::LogNotFinalized,
        Canary::BarrierNotLogged,
        Canary::ResultNotKept,
        Canary::CallNotSuppressed,
        Canary::CallNotRepeated,
        Canary::TwoLines,
        Canary::CommittedEarly,
        Canary::InitiatorForgets,
        Canary::NewestRestored,
        Canary::StaleLogKept,
    ];
}
