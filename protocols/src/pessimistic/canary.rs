//! Planted mistakes, which tests must find.

/// Violation of one promise of the rule.
///
/// A run with a canary must end wrong: a replacement delivers in another order than its predecessor, or can't go on.
/// For tests and simulators only; otherwise [`Config::canary`](super::Config::canary) is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// A determinant is written when the next message is delivered, instead of before its own.
    RecordedLate,
    /// A replacement delivers in arrival order.
    OrderNotForced,
    /// Recorded deliveries are dropped when a checkpoint begins, instead of when it is durable.
    DroppedEarly,
}

impl Canary {
    /// All planted mistakes.
    pub const ALL: [Canary; 3] = [Canary::RecordedLate, Canary::OrderNotForced, Canary::DroppedEarly];
}
