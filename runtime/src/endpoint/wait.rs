//! Waits for events.

use std::time::Duration;

/// Longest wait for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Return at once.
    Not,
    /// Without limit.
    Forever,
    /// Up to this time.
    AtMost(Duration),
}
