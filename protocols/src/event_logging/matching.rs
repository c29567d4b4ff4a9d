//! Message identification (section 4.3.2): which messages of a channel a line crosses.

use serde::{Deserialize, Serialize};

use super::Canary;
use super::log::{Counts, EventLog};

/// Messages from one rank to another that cross a line, by envelope.
///
/// Also the messages of earlier intervals that have no counterpart yet, however long ago they were sent or received (section 3.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Crossing {
    /// Sent before the line, received after it.
    pub(super) in_transit: Counts,
    /// Received before the line, sent after it.
    pub(super) orphans: Counts,
}

impl Crossing {
    pub(super) fn is_empty(&self) -> bool {
        self.in_transit.is_empty() && self.orphans.is_empty()
    }

    /// Advances from one line to the next: matches the logs of the interval between them. In time `O(n log n)` in the number of rows, where
    /// the paper's loops are quadratic.
    pub(super) fn match_interval(&mut self, sent: &EventLog, received: &EventLog, canary: Option<Canary>) {
        let (mut sent, mut received) = (sent.counts(), received.counts());
        // 1: messages in transit that have arrived. 2: orphans that have been sent.
        self.in_transit.cancel(&mut received);
        self.orphans.cancel(&mut sent);
        if canary == Some(Canary::TwoIntervals) {
            self.in_transit.clear();
            self.orphans.clear();
        }
        // 3: intra messages.
        match canary {
            Some(Canary::IntraMaximum) => sent.remove_pairs(&mut received, u64::max),
            Some(Canary::IntraDifference) => sent.remove_pairs(&mut received, u64::abs_diff),
            _ => sent.cancel(&mut received),
        }
        self.in_transit.add_all(sent);
        self.orphans.add_all(received);
    }
}
