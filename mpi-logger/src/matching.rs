//! Numbers of received messages. MPI matches the messages of a stream to receives in the order in which these were posted, in
//! whatever order the program waits for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Number of streams at which empty queues are looked for and dropped. Below it they stay, so that no message allocates one.
const STREAMS_MIN: usize = 256;

/// A message that a receive took, as its status describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Rank of the source in the receive's communicator.
    pub source: i32,
    /// MPI tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: usize,
}

/// A posted receive. `None` is a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedReceive {
    /// Position in the posting order of the communicator.
    ticket: u64,
    source: Option<i32>,
    tag: Option<i32>,
}

impl PostedReceive {
    fn may_take(&self, source: i32, tag: i32) -> bool {
        self.source.is_none_or(|own| own == source) && self.tag.is_none_or(|own| own == tag)
    }
}

/// A receive in the queue of its stream.
#[derive(Clone, Copy, Debug)]
struct Queued {
    ticket: u64,
    /// Bytes received; `None` while the receive is pending.
    bytes: Option<usize>,
}

/// Pending receives of a communicator, and received messages whose number isn't known yet.
///
/// ```
/// use counterfoil_mpi_logger::{Arrival, Matching};
///
/// let (mut matching, mut numbered) = (Matching::default(), Vec::new());
/// let (first, second) = (matching.post(Some(3), Some(7)), matching.post(Some(3), Some(7)));
/// let message = |bytes| Some(Arrival { source: 3, tag: 7, bytes });
/// // The program waits for the second one first: its message has no number yet.
/// matching.end(second, message(20), &mut numbered);
/// assert!(numbered.is_empty());
/// matching.end(first, message(10), &mut numbered);
/// assert_eq!(numbered.iter().map(|arrival| arrival.bytes).collect::<Vec<_>>(), [10, 20]);
/// ```
#[derive(Debug)]
pub struct Matching {
    tickets: u64,
    /// Pending receives, and messages without a number.
    unsettled: usize,
    /// Receives by source and tag, in posting order.
    streams: FxHashMap<(i32, i32), VecDeque<Queued>>,
    /// Pending wildcard receives, oldest first. Their stream isn't known.
    wildcards: VecDeque<PostedReceive>,
    /// Streams with a message that waits for a wildcard receive to end.
    blocked: Vec<(i32, i32)>,
    /// Number of streams at which empty queues are dropped.
    streams_max: usize,
}

impl Default for Matching {
    fn default() -> Matching {
        Matching {
            tickets: 0,
            unsettled: 0,
            streams: FxHashMap::default(),
            wildcards: VecDeque::new(),
            blocked: Vec::new(),
            streams_max: STREAMS_MIN,
        }
    }
}

impl Matching {
    /// Returns `true` if no receive is pending and every message has its number: the next message received has the next number of
    /// its stream.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.unsettled == 0
    }

    /// Posts a receive. `None` is a wildcard.
    pub fn post(&mut self, source: Option<i32>, tag: Option<i32>) -> PostedReceive {
        self.tickets += 1;
        self.unsettled += 1;
        let posted = PostedReceive { ticket: self.tickets, source, tag };
        match (source, tag) {
            (Some(source), Some(tag)) => {
                self.queue(source, tag).push_back(Queued { ticket: posted.ticket, bytes: None });
            }
            _ => self.wildcards.push_back(posted),
        }
        posted
    }

    fn queue(&mut self, source: i32, tag: i32) -> &mut VecDeque<Queued> {
        if self.streams.len() >= self.streams_max {
            self.streams.retain(|_, queue| !queue.is_empty());
            self.streams_max = STREAMS_MIN.max(2 * self.streams.len());
        }
        self.streams.entry((source, tag)).or_default()
    }

    /// Ends a receive with a message, or with none if it was cancelled or failed. Appends to `numbered` each message whose number is
    /// known from now on, stream by stream in the order of numbers.
    pub fn end(&mut self, posted: PostedReceive, arrival: Option<Arrival>, numbered: &mut Vec<Arrival>) {
        let ticket = posted.ticket;
        match (posted.source, posted.tag) {
            (Some(source), Some(tag)) => {
                let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
                let Ok(at) = queue.binary_search_by_key(&ticket, |queued| queued.ticket) else { return };
                match arrival {
                    Some(arrival) => queue[at].bytes = Some(arrival.bytes),
                    None => {
                        queue.remove(at);
                        self.unsettled -= 1;
                    }
                }
                self.advance(source, tag, numbered);
            }
            _ => {
                let Ok(at) = self.wildcards.binary_search_by_key(&ticket, |posted| posted.ticket) else { return };
                self.wildcards.remove(at);
                if arrival.is_none() {
                    self.unsettled -= 1;
                }
                if let Some(Arrival { source, tag, bytes }) = arrival {
                    let queue = self.queue(source, tag);
                    let at = queue.partition_point(|queued| queued.ticket < ticket);
                    queue.insert(at, Queued { ticket, bytes: Some(bytes) });
                    self.advance(source, tag, numbered);
                }
                for (source, tag) in std::mem::take(&mut self.blocked) {
                    self.advance(source, tag, numbered);
                }
            }
        }
    }

    /// Numbers the received messages at the front of a stream's queue, up to one that an earlier wildcard receive may precede.
    fn advance(&mut self, source: i32, tag: i32, numbered: &mut Vec<Arrival>) {
        let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
        while let Some(&Queued { ticket, bytes: Some(bytes) }) = queue.front() {
            // A wildcard receive that was posted before may have taken an earlier message of this stream.
            let before = |posted: &&PostedReceive| posted.ticket < ticket;
            if self.wildcards.iter().take_while(before).any(|posted| posted.may_take(source, tag)) {
                if !self.blocked.contains(&(source, tag)) {
                    self.blocked.push((source, tag));
                }
                return;
            }
            queue.pop_front();
            self.unsettled -= 1;
            numbered.push(Arrival { source, tag, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends a receive with a message of source 1 and tag 1; returns the lengths of the messages numbered by it.
    fn end(matching: &mut Matching, posted: PostedReceive, bytes: usize) -> Vec<usize> {
        let mut numbered = Vec::new();
        matching.end(posted, Some(Arrival { source: 1, tag: 1, bytes }), &mut numbered);
        numbered.iter().map(|arrival| arrival.bytes).collect()
    }

    #[test]
    fn messages_are_numbered_in_posting_order() {
        let mut matching = Matching::default();
        let [one, two, three] = [0; 3].map(|_| matching.post(Some(1), Some(1)));
        assert!(!matching.is_idle());
        assert!(end(&mut matching, three, 3).is_empty());
        assert_eq!(end(&mut matching, one, 1), [1]);
        assert_eq!(end(&mut matching, two, 2), [2, 3]);
        assert!(matching.is_idle());
    }

    #[test]
    fn streams_do_not_wait_for_each_other() {
        let mut matching = Matching::default();
        let other = matching.post(Some(2), Some(1));
        let another = matching.post(Some(1), Some(2));
        let one = matching.post(Some(1), Some(1));
        assert_eq!(end(&mut matching, one, 7), [7]);
        let mut numbered = Vec::new();
        for posted in [other, another] {
            matching.end(posted, None, &mut numbered);
        }
        assert!(numbered.is_empty() && matching.is_idle());
    }

    #[test]
    fn a_wildcard_receive_precedes_what_it_could_have_taken() {
        let mut matching = Matching::default();
        let anything = matching.post(None, None);
        let of_tag_two = matching.post(None, Some(2));
        let one = matching.post(Some(1), Some(1));
        let two = matching.post(Some(1), Some(1));
        assert!(end(&mut matching, two, 4).is_empty());
        assert!(end(&mut matching, one, 3).is_empty());
        // It took the first message of the same stream.
        assert_eq!(end(&mut matching, anything, 1), [1, 3, 4]);
        // A receive that was posted later blocks nothing.
        let later = matching.post(Some(1), Some(2));
        let mut numbered = Vec::new();
        matching.end(later, Some(Arrival { source: 1, tag: 2, bytes: 9 }), &mut numbered);
        assert!(numbered.is_empty());
        matching.end(of_tag_two, Some(Arrival { source: 3, tag: 2, bytes: 8 }), &mut numbered);
        assert_eq!(
            numbered.iter().map(|arrival| (arrival.source, arrival.bytes)).collect::<Vec<_>>(),
            [(3, 8), (1, 9)]
        );
        assert!(matching.is_idle());
    }

    #[test]
    fn streams_without_pending_receives_are_forgotten() {
        let mut matching = Matching::default();
        let stays = matching.post(Some(1), Some(1));
        for tag in 2..10_000 {
            let posted = matching.post(Some(1), Some(tag));
            let mut numbered = Vec::new();
            matching.end(posted, Some(Arrival { source: 1, tag, bytes: 5 }), &mut numbered);
            assert_eq!(numbered.len(), 1);
            assert!(matching.streams.len() <= STREAMS_MIN && !matching.is_idle());
        }
        assert_eq!(end(&mut matching, stays, 4), [4]);
        assert!(matching.is_idle());
    }

    #[test]
    fn a_cancelled_receive_leaves_no_gap() {
        let mut matching = Matching::default();
        let [one, two, three] = [0; 3].map(|_| matching.post(Some(1), Some(1)));
        let wildcard = matching.post(Some(1), None);
        let four = matching.post(Some(1), Some(1));
        assert!(end(&mut matching, three, 3).is_empty() && end(&mut matching, four, 4).is_empty());
        let mut numbered = Vec::new();
        matching.end(two, None, &mut numbered);
        assert!(numbered.is_empty());
        assert_eq!(end(&mut matching, one, 1), [1, 3]);
        matching.end(wildcard, None, &mut numbered);
        assert_eq!(numbered, [Arrival { source: 1, tag: 1, bytes: 4 }]);
        assert!(matching.is_idle());
    }
}
