//! Mistakes that tests plant, to see that they would be found.

/// One promise of the rule broken.
///
/// A run with a canary is expected to end wrong: a replacement delivers in another order than its predecessor, or can't go on. Meant for
/// tests and simulators; [`Config::canary`](super::Config::canary) is `None` otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Canary {
    /// A determinant is written when the next message is delivered, and not before its own is.
    RecordedLate,
    /// A replacement delivers in whatever order messages come.
    OrderNotForced,
    /// The record is dropped when a checkpoint is begun, and not when it is durable.
    DroppedEarly,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 3] = [Canary::RecordedLate, Canary::OrderNotForced, Canary::DroppedEarly];
}
