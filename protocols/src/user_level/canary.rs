//! Planted mistakes, which tests must find.

/// Violation of one promise of the rule.
///
/// A run with a canary must end wrong: ranks wait for ever, or end with other results. For tests and simulators only; otherwise
/// [`Config::canary`](super::Config::canary) is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// A message with a smaller SSN than another one of its sender counts as handled, as section 3.1 has it.
    SmallerSsnHandled,
    /// A replacement runs no collective: it waits until another rank serves it, as section 3 has it.
    NoneRunInRecovery,
    /// Results aren't kept.
    NoResultKept,
    /// Results are dropped once the durable checkpoint of their own rank is beyond them, whatever other ranks need.
    ResultDroppedAlone,
    /// Results are dropped when a checkpoint begins, instead of when it is durable.
    ResultDroppedEarly,
    /// Results that a peer lacks aren't sent at its Hello.
    ResultNotServed,
    /// A result that came from another rank isn't forwarded to ranks that wait for this one in the same call.
    ResultNotForwarded,
    /// A barrier that another rank has completed runs again.
    BarrierRepeated,
    /// A call counts as completed when it begins.
    CountedEarly,
}

impl Canary {
    /// All planted mistakes.
    pub const ALL: [Canary; 9] = [
        Canary::SmallerSsnHandled,
        Canary::NoneRunInRecovery,
        Canary::NoResultKept,
        Canary::ResultDroppedAlone,
        Canary::ResultDroppedEarly,
        Canary::ResultNotServed,
        Canary::ResultNotForwarded,
        Canary::BarrierRepeated,
        Canary::CountedEarly,
    ];
}
