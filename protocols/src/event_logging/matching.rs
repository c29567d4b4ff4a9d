//! Message identification (section 4.3.2): which messages on a channel cross a line.

use serde::{Deserialize, Serialize};

use super::log::{Counts, EventLog};

/// Messages from one rank to another crossing a line, by envelope.
///
/// Also messages from earlier intervals without a counterpart yet, however long ago they were sent or received (section
/// 3.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossing {
    /// Sent before the line, received after it.
    pub(super) in_transit: Counts,
    /// Received before the line, sent after it.
    pub(super) orphans: Counts,
}

impl Crossing {
    pub(super) fn is_empty(&self) -> bool {
        self.in_transit.is_empty() && self.orphans.is_empty()
    }

    /// Advances from one line to the next: matches the logs for the interval between them.
    ///
    /// In time `O(n log n)` in the row count, where the paper's loops are quadratic.
    pub(super) fn match_interval(&mut self, sent: &EventLog, received: &EventLog) {
        let (mut sent, mut received) = (sent.counts(), received.counts());
        // 1: arrived messages in transit. 2: orphans already sent.
        self.in_transit.cancel(&mut received);
        self.orphans.cancel(&mut sent);
        // 3: intra messages.
        sent.cancel(&mut received);
        self.in_transit.add_all(sent);
        self.orphans.add_all(received);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::chandy_lamport::Key;

    fn log(tags: &[i32]) -> EventLog {
        let mut log = EventLog::default();
        tags.iter().for_each(|&tag| log.push(Key::tagged(tag)));
        log
    }

    fn crossing(in_transit: &[i32], orphans: &[i32]) -> Crossing {
        Crossing { in_transit: log(in_transit).counts(), orphans: log(orphans).counts() }
    }

    fn advance(crossing: &mut Crossing, sent: &[i32], received: &[i32]) {
        crossing.match_interval(&log(sent), &log(received));
    }

    /// libELC, section 3.3.3, case 2 says max(n, m).
    #[test]
    fn the_intra_messages_are_as_many_as_the_fewer_of_sent_and_received_ones() {
        let mut first = Crossing::default();
        advance(&mut first, &[7; 5], &[7; 3]);
        assert_eq!(first, crossing(&[7, 7], &[]));
        let mut first = Crossing::default();
        advance(&mut first, &[7; 3], &[7; 5]);
        assert_eq!(first, crossing(&[], &[7, 7]));
    }

    #[test]
    fn the_inductive_step_matches_what_earlier_lines_left() {
        let mut line = crossing(&[7, 7], &[]);
        advance(&mut line, &[7; 4], &[7; 3]);
        assert_eq!(line, crossing(&[7; 3], &[]));
        let mut line = crossing(&[], &[7, 7]);
        advance(&mut line, &[7; 4], &[7; 3]);
        assert_eq!(line, crossing(&[], &[7]));
    }

    #[test]
    fn a_message_may_be_received_any_number_of_intervals_later_or_earlier() {
        let mut line = Crossing::default();
        advance(&mut line, &[1, 2], &[3]);
        for _ in 0..5 {
            advance(&mut line, &[4], &[4]);
            assert_eq!(line, crossing(&[1, 2], &[3]));
        }
        advance(&mut line, &[3], &[2, 1]);
        assert!(line.is_empty());
    }

    #[test]
    fn messages_of_other_envelopes_may_overtake() {
        let mut line = Crossing::default();
        advance(&mut line, &[1, 2, 1, 2], &[2, 2]);
        assert_eq!(line, crossing(&[1, 1], &[]));
    }

    proptest! {
        /// Against a model that pairs the nth receipt of an envelope with its nth sending, and so knows both intervals.
        #[test]
        fn lines_are_crossed_by_the_messages_whose_ends_are_on_both_sides(
            intervals in prop::collection::vec((prop::collection::vec(0..3_i32, 0..6), prop::collection::vec(0..3_i32, 0..6)), 1..8),
        ) {
            let mut ends = BTreeMap::<i32, (VecDeque<usize>, VecDeque<usize>)>::new();
            for (interval, (sent, received)) in intervals.iter().enumerate() {
                sent.iter().for_each(|tag| ends.entry(*tag).or_default().0.push_back(interval));
                received.iter().for_each(|tag| ends.entry(*tag).or_default().1.push_back(interval));
            }
            let mut line = Crossing::default();
            for (interval, (sent, received)) in intervals.iter().enumerate() {
                advance(&mut line, sent, received);
                let mut expected = crossing(&[], &[]);
                for (tag, (sent, received)) in &ends {
                    for place in 0..sent.len().max(received.len()) {
                        let is_before = |ends: &VecDeque<usize>| ends.get(place).is_some_and(|end| *end <= interval);
                        match (is_before(sent), is_before(received)) {
                            (true, false) => expected.in_transit.add(Key::tagged(*tag), 1),
                            (false, true) => expected.orphans.add(Key::tagged(*tag), 1),
                            _ => {}
                        }
                    }
                }
                prop_assert_eq!(&line, &expected);
            }
        }
    }
}
