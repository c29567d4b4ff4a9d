//! Which number a message has that was received: messages of a stream are matched in the order in which receives are posted, in
//! whatever order the program waits for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// How many streams are kept with empty queues before these are looked for: none is made anew for each message.
const STREAMS_MIN: usize = 256;

/// A message that a receive took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The rank that it came from, in its communicator.
    pub source: i32,
    /// Its tag.
    pub tag: i32,
    /// Its length in bytes.
    pub bytes: usize,
}

/// A receive that was posted, and whom it may take a message from; `None` is a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Rises with each receive of the communicator.
    ticket: u64,
    source: Option<i32>,
    tag: Option<i32>,
}

impl Posted {
    fn may_take(&self, source: i32, tag: i32) -> bool {
        self.source.is_none_or(|own| own == source) && self.tag.is_none_or(|own| own == tag)
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: u64,
    /// How many bytes came; `None` while the receive is under way.
    bytes: Option<usize>,
}

/// The receives of a communicator that are under way, and messages behind them whose number isn't known yet.
///
/// ```
/// use counterfoil_mpi::matching::{Matching, Taken};
///
/// let (mut matching, mut numbered) = (Matching::default(), Vec::new());
/// let (first, second) = (matching.post(Some(3), Some(7)), matching.post(Some(3), Some(7)));
/// let message = |bytes| Some(Taken { source: 3, tag: 7, bytes });
/// // The program waits for the second one first: its message has no number yet.
/// matching.end(second, message(20), &mut numbered);
/// assert!(numbered.is_empty());
/// matching.end(first, message(10), &mut numbered);
/// assert_eq!(numbered.iter().map(|taken| taken.bytes).collect::<Vec<_>>(), [10, 20]);
/// ```
#[derive(Debug)]
pub struct Matching {
    tickets: u64,
    /// Receives that are under way, and messages without a number.
    unsettled: usize,
    /// Of each source and tag that is named or was met: in the order in which receives were posted.
    streams: FxHashMap<(i32, i32), VecDeque<Place>>,
    /// Receives with a wildcard that are under way, oldest first: what stream they belong to isn't known.
    open: VecDeque<Posted>,
    /// Streams of which a message waits for one of these.
    waiting: Vec<(i32, i32)>,
    /// Empty queues go when there are so many streams.
    streams_max: usize,
}

impl Default for Matching {
    fn default() -> Matching {
        Matching {
            tickets: 0,
            unsettled: 0,
            streams: FxHashMap::default(),
            open: VecDeque::new(),
            waiting: Vec::new(),
            streams_max: STREAMS_MIN,
        }
    }
}

impl Matching {
    /// Whether nothing is under way: who receives now has the next number.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.unsettled == 0
    }

    /// A receive is posted.
    pub fn post(&mut self, source: Option<i32>, tag: Option<i32>) -> Posted {
        self.tickets += 1;
        self.unsettled += 1;
        let posted = Posted { ticket: self.tickets, source, tag };
        match (source, tag) {
            (Some(source), Some(tag)) => {
                self.queue(source, tag).push_back(Place { ticket: posted.ticket, bytes: None });
            }
            _ => self.open.push_back(posted),
        }
        posted
    }

    fn queue(&mut self, source: i32, tag: i32) -> &mut VecDeque<Place> {
        if self.streams.len() >= self.streams_max {
            self.streams.retain(|_, queue| !queue.is_empty());
            self.streams_max = STREAMS_MIN.max(2 * self.streams.len());
        }
        self.streams.entry((source, tag)).or_default()
    }

    /// A receive has ended, with this message or with none (it was called off). `numbered` is given each message whose number follows
    /// now, stream by stream in the order of numbers.
    pub fn end(&mut self, posted: Posted, taken: Option<Taken>, numbered: &mut Vec<Taken>) {
        let ticket = posted.ticket;
        match (posted.source, posted.tag) {
            (Some(source), Some(tag)) => {
                let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
                let Ok(at) = queue.binary_search_by_key(&ticket, |place| place.ticket) else { return };
                match taken {
                    Some(taken) => queue[at].bytes = Some(taken.bytes),
                    None => {
                        queue.remove(at);
                        self.unsettled -= 1;
                    }
                }
                self.advance(source, tag, numbered);
            }
            _ => {
                let Ok(at) = self.open.binary_search_by_key(&ticket, |posted| posted.ticket) else { return };
                self.open.remove(at);
                if taken.is_none() {
                    self.unsettled -= 1;
                }
                if let Some(Taken { source, tag, bytes }) = taken {
                    let queue = self.queue(source, tag);
                    let at = queue.partition_point(|place| place.ticket < ticket);
                    queue.insert(at, Place { ticket, bytes: Some(bytes) });
                    self.advance(source, tag, numbered);
                }
                for (source, tag) in std::mem::take(&mut self.waiting) {
                    self.advance(source, tag, numbered);
                }
            }
        }
    }

    /// Numbers the messages of a stream that no receive is in front of.
    fn advance(&mut self, source: i32, tag: i32, numbered: &mut Vec<Taken>) {
        let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
        while let Some(&Place { ticket, bytes: Some(bytes) }) = queue.front() {
            // One that was posted before may have taken an earlier message of this stream.
            let before = |posted: &&Posted| posted.ticket < ticket;
            if self.open.iter().take_while(before).any(|posted| posted.may_take(source, tag)) {
                if !self.waiting.contains(&(source, tag)) {
                    self.waiting.push((source, tag));
                }
                return;
            }
            queue.pop_front();
            self.unsettled -= 1;
            numbered.push(Taken { source, tag, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of what is numbered when a receive ends with a message of source 1 and tag 1.
    fn end(matching: &mut Matching, posted: Posted, bytes: usize) -> Vec<usize> {
        let mut numbered = Vec::new();
        matching.end(posted, Some(Taken { source: 1, tag: 1, bytes }), &mut numbered);
        numbered.iter().map(|taken| taken.bytes).collect()
    }

    #[test]
    fn messages_are_numbered_in_the_order_in_which_receives_were_posted() {
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
    fn a_wildcard_is_in_front_of_what_it_could_have_taken() {
        let mut matching = Matching::default();
        let anything = matching.post(None, None);
        let of_tag_two = matching.post(None, Some(2));
        let one = matching.post(Some(1), Some(1));
        let two = matching.post(Some(1), Some(1));
        assert!(end(&mut matching, two, 4).is_empty());
        assert!(end(&mut matching, one, 3).is_empty());
        // It took the first message of the same stream.
        assert_eq!(end(&mut matching, anything, 1), [1, 3, 4]);
        // One that was posted behind is in nobody's way.
        let later = matching.post(Some(1), Some(2));
        let mut numbered = Vec::new();
        matching.end(later, Some(Taken { source: 1, tag: 2, bytes: 9 }), &mut numbered);
        assert!(numbered.is_empty());
        matching.end(of_tag_two, Some(Taken { source: 3, tag: 2, bytes: 8 }), &mut numbered);
        assert_eq!(numbered.iter().map(|taken| (taken.source, taken.bytes)).collect::<Vec<_>>(), [(3, 8), (1, 9)]);
        assert!(matching.is_idle());
    }

    #[test]
    fn streams_that_have_nothing_under_way_are_forgotten() {
        let mut matching = Matching::default();
        let stays = matching.post(Some(1), Some(1));
        for tag in 2..10_000 {
            let posted = matching.post(Some(1), Some(tag));
            let mut numbered = Vec::new();
            matching.end(posted, Some(Taken { source: 1, tag, bytes: 5 }), &mut numbered);
            assert_eq!(numbered.len(), 1);
            assert!(matching.streams.len() <= STREAMS_MIN && !matching.is_idle());
        }
        assert_eq!(end(&mut matching, stays, 4), [4]);
        assert!(matching.is_idle());
    }

    #[test]
    fn a_receive_that_is_called_off_leaves_no_gap() {
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
        assert_eq!(numbered, [Taken { source: 1, tag: 1, bytes: 4 }]);
        assert!(matching.is_idle());
    }
}
