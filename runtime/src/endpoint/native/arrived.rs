//! Arrived hops that wait for their calls.

use std::collections::VecDeque;
use std::ops::RangeBounds;

use bytes::Bytes;

/// Hop key among those from one source: communicator, call number, and position among the source's hops; a word is
/// before the first.
pub(super) type HopKey = (u32, u64, u32);

/// Capacity kept by a source's empty queue.
const HOPS_KEPT: usize = 64;

/// Hops by source, in key order.
///
/// A source sends them in this order, except for other communicators and for calls begun anew, so hops are added at the
/// end and taken from the beginning.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    sources: Vec<VecDeque<(HopKey, Bytes)>>,
    bytes: usize,
}

impl Arrived {
    /// Returns their total length.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a hop, which replaces an equal one.
    pub(super) fn insert(&mut self, source: u32, key: HopKey, hop: Bytes) {
        let source = source as usize;
        if self.sources.len() <= source {
            self.sources.resize_with(source + 1, VecDeque::new);
        }
        let hops = &mut self.sources[source];
        self.bytes += hop.len();
        if hops.back().is_none_or(|(last, _)| *last < key) {
            hops.push_back((key, hop));
            return;
        }
        match hops.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.bytes -= std::mem::replace(&mut hops[at].1, hop).len(),
            Err(at) => hops.insert(at, (key, hop)),
        }
    }

    pub(super) fn get(&self, source: u32, key: HopKey) -> Option<&Bytes> {
        let hops = self.sources.get(source as usize)?;
        let at = hops.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(&hops[at].1)
    }

    /// Drops a source's hops.
    pub(super) fn lose(&mut self, source: u32) {
        if let Some(hops) = self.sources.get_mut(source as usize) {
            self.bytes -= drop_hops(hops, ..);
        }
    }

    /// Drops a call's hops.
    pub(super) fn end(&mut self, comm: u32, number: u64) {
        for hops in self.sources.iter_mut().filter(|hops| !hops.is_empty()) {
            let first = hops.partition_point(|(key, _)| *key < (comm, number, 0));
            let after = hops.partition_point(|(key, _)| *key < (comm, number + 1, 0));
            self.bytes -= drop_hops(hops, first..after);
        }
    }
}

/// Drops hops, and returns their total length.
///
/// An empty queue keeps memory for a few.
fn drop_hops(hops: &mut VecDeque<(HopKey, Bytes)>, which: impl RangeBounds<usize>) -> usize {
    let bytes = hops.drain(which).map(|(_, hop)| hop.len()).sum();
    if hops.is_empty() {
        hops.shrink_to(HOPS_KEPT);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    fn hops(arrived: &Arrived) -> Vec<Vec<HopKey>> {
        let total = arrived.sources.iter().flatten().map(|(_, hop)| hop.len()).sum::<usize>();
        assert_eq!(arrived.bytes(), total);
        arrived.sources.iter().map(|hops| hops.iter().map(|(key, _)| *key).collect()).collect()
    }

    #[test]
    fn hops_are_in_order_whatever_the_order_of_their_arrival_and_each_once() {
        let mut arrived = Arrived::default();
        for key in [(1, 5, 1), (1, 6, 1), (0, 9, 2), (1, 5, 2), (0, 9, 1)] {
            arrived.insert(2, key, hop(10));
        }
        // Its sender has begun the call anew.
        arrived.insert(2, (1, 5, 1), hop(10));
        assert_eq!(hops(&arrived), [vec![], vec![], vec![(0, 9, 1), (0, 9, 2), (1, 5, 1), (1, 5, 2), (1, 6, 1)]]);
        assert_eq!(arrived.get(2, (1, 5, 2)).map(Bytes::len), Some(10));
        assert_eq!(
            (arrived.get(2, (1, 5, 3)), arrived.get(1, (1, 5, 2)), arrived.get(9, (1, 5, 2))),
            (None, None, None)
        );
    }

    #[test]
    fn the_end_of_a_call_drops_its_hops_from_all_sources_and_no_others() {
        let mut arrived = Arrived::default();
        for (source, key) in
            [(0, (1, 4, 1)), (0, (1, 5, 0)), (0, (1, 5, 3)), (1, (1, 5, 1)), (1, (1, 6, 0)), (1, (2, 5, 1))]
        {
            arrived.insert(source, key, hop(8));
        }
        arrived.end(1, 5);
        assert_eq!(hops(&arrived), [vec![(1, 4, 1)], vec![(1, 6, 0), (2, 5, 1)]]);
    }

    #[test]
    fn a_lost_source_leaves_nothing() {
        let mut arrived = Arrived::default();
        arrived.insert(0, (1, 4, 1), hop(8));
        arrived.insert(1, (1, 4, 1), hop(9));
        arrived.lose(1);
        arrived.lose(5);
        assert_eq!(hops(&arrived), [vec![(1, 4, 1)], vec![]]);
    }
}
