//! Planted mistakes, which tests must find.

/// Mistake of the paper, or omission of one of its rules.
///
/// A run with a canary must end wrong. For tests and simulators only; otherwise [`Config::canary`](super::Config::canary) is `None`.
/// `docs/event-logging.md` and `docs/message-tagging.md` say which schedule finds which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// The intra messages are max(n, m) of n sent and m received ones (section 3.3.3, case 2).
    IntraMaximum,
    /// The inductive step removes |(n - y) - (m - x)| messages from both logs (section 3.3.3, case 2).
    IntraDifference,
    /// A message takes two intervals at most (section 3.3.1): what isn't received in the next one is forgotten, or isn't copied.
    TwoIntervals,
    /// The number of messages in a request is that of the interval, not of the whole job (section 5.7).
    MarkerOfInterval,
    /// The average of the interval numbers, rounded down, decides whether a rank takes a checkpoint before a collective (section 4.5.1).
    IntervalAverage,
    /// A rank takes a further checkpoint between the comparison of interval numbers and the collective.
    CheckpointInCall,
    /// A discarded orphan stays in the orphan queue (section 4.4.2).
    OrphansStay,
    /// Messages in transit that arrive between a checkpoint and the peer's request aren't copied (section 4.3.3).
    NotCopied,
    /// A line is finished with the last request, although messages in transit have yet to arrive (section 4.3.1).
    FinishedEarly,
    /// A rank replaces its last checkpoint when its own part of a line is finished (section 4.3.1).
    CommittedAlone,
    /// All copies of messages are presented after a rollback, not only those that were in transit.
    AllCopiesPresented,
    /// Messages presented after a rollback aren't in the receive log, and count as in transit again.
    PresentedUnlogged,
    /// Outcomes of wildcard receives aren't repeated after a rollback, but for those in the checkpoint (section 4.5.3).
    OutcomesNotForced,
    /// Requests of an undone attempt are repeated in the next.
    UndoneRequests,
}

impl Canary {
    /// All planted mistakes.
    pub const ALL: [Canary; 14] = [
        Canary::IntraMaximum,
        Canary::IntraDifference,
        Canary::TwoIntervals,
        Canary::MarkerOfInterval,
        Canary::IntervalAverage,
        Canary::CheckpointInCall,
        Canary::OrphansStay,
        Canary::NotCopied,
        Canary::FinishedEarly,
        Canary::CommittedAlone,
        Canary::AllCopiesPresented,
        Canary::PresentedUnlogged,
        Canary::OutcomesNotForced,
        Canary::UndoneRequests,
    ];
}
