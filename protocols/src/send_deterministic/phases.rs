//! The phase order: numeric until a recovery has sent messages again.

use serde::{Deserialize, Serialize};

/// Total phase order.
///
/// Guermouche 2011 (section III.A.3) compares phases as numbers. But a message sent again by a recovery gets a new
/// phase, which depends on its sender's earlier receipts and their timing, while the receivers of orphans keep the
/// original phase. With numbers, a message needed by an orphan may then seem to come after the orphan, and wait for it
/// forever in the next recovery.
///
/// Here each recovery assigns new numbers, above all earlier ones, and any event while p is the first phase with
/// missing orphans comes *before* p: a still missing orphan can't have led to it, and may need it. So the order is a
/// list of number ranges, with later ranges inserted between earlier ones.
///
/// It changes when a recovery is finished: an interrupted one leaves nothing behind that an earlier orphan needs,
/// because all restored ranks are restored again. Its numbers come after all others.
///
/// Memory: 8 bytes a range; a recovery adds at most two for each phase with orphans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PhaseOrder {
    /// Round ending with this order.
    round: u64,
    /// Ascending by `first`; each ends where the next begins.
    ranges: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Range {
    first: u32,
    /// Place in the order.
    place: u32,
}

/// Numbers assigned between the releases of two successive phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// First number of the window. It ends where the next one begins.
    pub(super) first: u32,
    /// First phase in the order with missing orphans.
    pub(super) before: u32,
}

impl Default for PhaseOrder {
    /// Returns the numeric order.
    fn default() -> Self {
        PhaseOrder { round: 0, ranges: vec![Range { first: 0, place: 0 }] }
    }
}

impl PhaseOrder {
    /// Returns the sort key of a phase.
    pub(super) fn key(&self, phase: u32) -> (u32, u32) {
        let after = self.ranges.partition_point(|range| range.first <= phase);
        (self.ranges[..after].last().map_or(0, |range| range.place), phase)
    }

    pub(super) fn precedes(&self, phase: u32, other: u32) -> bool {
        self.key(phase) < self.key(other)
    }

    /// Returns the order of the later round.
    pub(super) fn newest(self, other: PhaseOrder) -> PhaseOrder {
        if other.round > self.round { other } else { self }
    }

    /// Returns the round ending with this order; 0 for the numeric order.
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Returns the first number above those assigned by finished recoveries.
    pub(super) fn unused_from(&self) -> u32 {
        self.ranges.last().map_or(0, |range| range.first)
    }

    /// Returns the order after `round`'s recovery: its windows are inserted one after the other, and the numbers from
    /// `end` on come last.
    pub(super) fn with_windows(&self, round: u64, windows: &[Window], end: u32) -> PhaseOrder {
        let base = windows.first().map_or(end, |window| window.first);
        let mut spans = self.spans(base);
        let ends = windows.iter().skip(1).map(|next| next.first).chain([end]);
        for (window, end) in windows.iter().zip(ends).filter(|(window, end)| window.first < *end) {
            let before = window.before;
            let at = spans.iter().position(|&(first, last)| (first..=last).contains(&before)).unwrap_or(spans.len());
            let last = end - 1;
            match spans.get_mut(at) {
                Some(span) if span.0 < before => {
                    let rest = (before, span.1);
                    span.1 = before - 1;
                    spans.splice(at + 1..=at, [(window.first, last), rest]);
                }
                _ => spans.insert(at, (window.first, last)),
            }
        }
        spans.push((end, u32::MAX));
        PhaseOrder::of_spans(round, spans)
    }

    /// Returns the ranges in their order, as (first, last) number, as far as they are below `base`.
    fn spans(&self, base: u32) -> Vec<(u32, u32)> {
        let ends = self.ranges.iter().skip(1).map(|next| next.first).chain([base]);
        let spans = self.ranges.iter().zip(ends).filter(|(range, end)| range.first < *end);
        let mut spans: Vec<(u32, (u32, u32))> =
            spans.map(|(range, end)| (range.place, (range.first, end - 1))).collect();
        spans.sort_unstable();
        spans.into_iter().map(|(_, span)| span).collect()
    }

    fn of_spans(round: u64, mut spans: Vec<(u32, u32)>) -> PhaseOrder {
        spans.dedup_by(|next, span| {
            let adjoin = span.1.checked_add(1) == Some(next.0);
            if adjoin {
                span.1 = next.1;
            }
            adjoin
        });
        let mut ranges: Vec<Range> = (0..).zip(spans).map(|(place, (first, _))| Range { first, place }).collect();
        ranges.sort_unstable_by_key(|range| range.first);
        PhaseOrder { round, ranges }
    }

    /// Returns `true` if the ranges form a valid order.
    pub(super) fn is_sound(&self) -> bool {
        self.ranges.first().is_some_and(|range| range.first == 0)
            && self.ranges.is_sorted_by(|a, b| a.first < b.first)
            && self.ranges.iter().all(|range| (range.place as usize) < self.ranges.len())
            && self.ranges.iter().map(|range| range.place).max() == self.ranges.last().map(|range| range.place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(order: &PhaseOrder, numbers: &[u32]) -> Vec<u32> {
        let mut numbers = numbers.to_vec();
        numbers.sort_by_key(|&number| order.key(number));
        numbers
    }

    #[test]
    fn messages_sent_again_come_before_the_orphans_that_were_missing() {
        let windows = [Window { first: 10, before: 3 }, Window { first: 12, before: 7 }];
        let order = PhaseOrder::default().with_windows(1, &windows, 15);
        assert!(order.is_sound());
        let expected = [2, 10, 11, 3, 6, 12, 14, 7, 9, 15, 20];
        assert_eq!(sorted(&order, &[2, 3, 6, 7, 9, 10, 11, 12, 14, 15, 20]), expected);
        assert_eq!(order.unused_from(), 15);
        // The first window of the second recovery comes between those of the first.
        let order = order.with_windows(2, &[Window { first: 20, before: 11 }, Window { first: 21, before: 12 }], 21);
        assert!(order.is_sound());
        let expected = [10, 20, 11, 3, 6, 12, 7, 9, 15, 19, 21];
        assert_eq!(sorted(&order, &[3, 6, 7, 9, 10, 11, 12, 15, 19, 20, 21]), expected);
    }

    #[test]
    fn a_recovery_without_orphans_changes_nothing_but_the_round() {
        let order = PhaseOrder::default().with_windows(4, &[], 9);
        assert_eq!(order, PhaseOrder { round: 4, ..PhaseOrder::default() });
        assert_eq!(PhaseOrder::default().newest(order.clone()), order);
        assert_eq!(order.clone().newest(PhaseOrder::default()), order);
    }

    #[test]
    fn windows_before_the_same_phase_are_one_range() {
        let two = [Window { first: 10, before: 3 }, Window { first: 12, before: 3 }];
        let order = PhaseOrder::default();
        assert_eq!(order.with_windows(1, &two, 15), order.with_windows(1, &two[..1], 15));
    }

    #[test]
    fn a_recovery_may_begin_before_the_last_one_has_left_an_unused_number() {
        let order = PhaseOrder::default().with_windows(1, &[Window { first: 10, before: 3 }], 12);
        let order = order.with_windows(2, &[Window { first: 12, before: 3 }], 14);
        assert!(order.is_sound());
        assert_eq!(sorted(&order, &[2, 3, 9, 10, 11, 12, 13, 14]), [2, 10, 11, 12, 13, 3, 9, 14]);
    }

    #[test]
    fn ranges_that_are_no_order_are_refused() {
        let is_sound = |ranges: &[(u32, u32)]| {
            let ranges = ranges.iter().map(|&(first, place)| Range { first, place }).collect();
            PhaseOrder { round: 0, ranges }.is_sound()
        };
        assert!(is_sound(&[(0, 0)]) && is_sound(&[(0, 1), (3, 0), (5, 2)]));
        assert!(!is_sound(&[]) && !is_sound(&[(1, 0)]), "without a range for phase 0");
        assert!(!is_sound(&[(0, 0), (0, 1)]), "two ranges from one phase");
        assert!(!is_sound(&[(0, 0), (5, 2)]), "no such place");
        assert!(!is_sound(&[(0, 1), (5, 0)]), "the last range isn't in the last place");
    }

    proptest! {
        /// Earlier numbers keep their order; each window is in its place; the end comes last.
        #[test]
        fn an_order_is_only_added_to(recoveries in proptest::collection::vec(
            proptest::collection::vec((0u32..40, 0u32..4), 0..5), 0..5,
        )) {
            let (mut order, mut base) = (PhaseOrder::default(), 40);
            for (round, orphans) in (1..).zip(recoveries) {
                let mut orphans: Vec<(u32, u32)> = orphans.into_iter().map(|(phase, len)| (phase * base / 40, len)).collect();
                orphans.sort_by_key(|&(phase, _)| order.key(phase));
                let mut end = base;
                let mut windows = Vec::new();
                for (before, len) in orphans {
                    windows.push(Window { first: end, before });
                    end += len;
                }
                let next = order.with_windows(round, &windows, end);
                prop_assert!(next.is_sound());
                for a in 0..base {
                    for b in 0..base {
                        prop_assert_eq!(order.precedes(a, b), next.precedes(a, b));
                    }
                    prop_assert!(next.precedes(a, end));
                }
                let ends = windows.iter().skip(1).map(|next| next.first).chain([end]);
                for (window, end) in windows.iter().zip(ends) {
                    for number in window.first..end {
                        for old in 0..base {
                            prop_assert_eq!(next.precedes(old, number), order.precedes(old, window.before));
                        }
                    }
                }
                (order, base) = (next, end + 3);
            }
        }
    }
}
