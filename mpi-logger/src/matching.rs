//! Numbers of received messages.
//!
//! MPI matches a stream's messages to receives in posting order, in whatever order the program waits for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::FxHashMap;

/// Number of streams, or classes, from which on those without receives are dropped.
///
/// Below it they stay, so that no message allocates one.
const RETAINED_MIN: usize = 256;

/// Message source and tag.
type Stream = (i32, i32);

/// A received message, as described by its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The source's rank in the receive's communicator.
    pub source: i32,
    /// MPI tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: usize,
}

/// A posted receive.
///
/// `None` is a wildcard. A communicator's receives are ordered as they were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PostedReceive {
    /// Position in the communicator's posting order.
    ticket: u64,
    /// Place in its queue, removed ones counted.
    place: u64,
    source: Option<i32>,
    tag: Option<i32>,
}

/// A receive's state, in one word: a queue of a million receives is bound by its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State(u64);

impl State {
    const PENDING: State = State(u64::MAX);
    /// Receive without a message.
    const CANCELLED: State = State(u64::MAX - 1);

    /// Returns the state of a receive that took a message of this length in bytes.
    fn received(bytes: usize) -> State {
        State(bytes as u64)
    }

    /// Returns the length of the received message.
    fn bytes(self) -> Option<usize> {
        (self < State::CANCELLED).then_some(self.0 as usize)
    }
}

/// Receives in posting order, each with its ticket.
#[derive(Debug)]
struct PostedQueue<T> {
    /// Place of the first receive.
    first: u64,
    receives: VecDeque<(u64, T)>,
}

impl<T> Default for PostedQueue<T> {
    fn default() -> PostedQueue<T> {
        PostedQueue { first: 0, receives: VecDeque::new() }
    }
}

impl<T> PostedQueue<T> {
    /// Adds a receive; returns its place.
    fn push(&mut self, ticket: u64, receive: T) -> u64 {
        self.receives.push_back((ticket, receive));
        self.first + self.receives.len() as u64 - 1
    }

    /// Returns the receive with this ticket at this place.
    ///
    /// A recreated queue counts places anew.
    fn get_mut(&mut self, place: u64, ticket: u64) -> Option<&mut T> {
        let at = usize::try_from(place.checked_sub(self.first)?).ok()?;
        self.receives.get_mut(at).filter(|(found, _)| *found == ticket).map(|(_, receive)| receive)
    }

    fn front(&self) -> Option<&(u64, T)> {
        self.receives.front()
    }

    fn pop_front(&mut self) {
        self.first += u64::from(self.receives.pop_front().is_some());
    }

    /// Removes receives from the front while `is_done`.
    fn drop_while(&mut self, is_done: impl Fn(&T) -> bool) {
        while self.front().is_some_and(|(_, receive)| is_done(receive)) {
            self.pop_front();
        }
    }

    fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }
}

/// Messages taken by wildcard receives, as (ticket, bytes).
#[derive(Debug, Default)]
struct Taken {
    /// Messages added in ticket order, so that the most frequent orders take O(1).
    in_order: VecDeque<(u64, usize)>,
    /// The other messages, with the first posted receive's on top.
    others: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Taken {
    fn push(&mut self, ticket: u64, bytes: usize) {
        if self.in_order.back().is_none_or(|(last, _)| *last < ticket) {
            self.in_order.push_back((ticket, bytes));
        } else {
            self.others.push(Reverse((ticket, bytes)));
        }
    }

    /// Returns the message of the first posted receive.
    fn first(&self) -> Option<(u64, usize)> {
        let others = self.others.peek().map(|Reverse(message)| *message);
        self.in_order.front().copied().into_iter().chain(others).min()
    }

    /// Removes that message.
    fn pop(&mut self) {
        if self.first() == self.in_order.front().copied() {
            self.in_order.pop_front();
        } else {
            self.others.pop();
        }
    }

    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.others.is_empty()
    }
}

/// Receives of one stream.
#[derive(Debug, Default)]
struct StreamQueue {
    /// Receives without a wildcard.
    ///
    /// The first isn't cancelled.
    posted: PostedQueue<State>,
    /// Messages taken by wildcard receives.
    taken: Taken,
    /// Ticket of the first message while it is blocked by a class; 0 otherwise.
    blocked: u64,
}

impl StreamQueue {
    fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.taken.is_empty()
    }

    /// Ends a receive without a wildcard; returns `false` if there is none with this ticket.
    fn end(&mut self, place: u64, ticket: u64, state: State) -> bool {
        let Some(posted) = self.posted.get_mut(place, ticket) else { return false };
        *posted = state;
        self.drop_cancelled();
        true
    }

    fn drop_cancelled(&mut self) {
        self.posted.drop_while(|state| *state == State::CANCELLED);
    }

    /// Returns the first receive's ticket and bytes, unless it is pending.
    fn first(&self) -> Option<(u64, usize)> {
        let posted = self.posted.front();
        match self.taken.first() {
            Some(taken) if posted.is_none_or(|(ticket, _)| taken.0 < *ticket) => Some(taken),
            _ => posted.and_then(|(ticket, state)| Some((*ticket, state.bytes()?))),
        }
    }

    /// Removes the first receive, which has this ticket.
    fn pop(&mut self, ticket: u64) {
        match self.taken.first() {
            Some(taken) if taken.0 == ticket => self.taken.pop(),
            _ => {
                self.posted.pop_front();
                self.drop_cancelled();
            }
        }
    }
}

/// Wildcard receives with the same source and tag.
#[derive(Debug, Default)]
struct Class {
    /// True for each ended receive.
    ///
    /// The first one is pending.
    receives: PostedQueue<bool>,
    /// Streams with a first message waiting for earlier posted receives in this class to end, and the message's ticket.
    ///
    /// The first message may be another one by now.
    blocked: BinaryHeap<Reverse<(u64, Stream)>>,
}

impl Class {
    /// Returns the ticket of the first pending receive.
    fn first(&self) -> Option<u64> {
        self.receives.front().map(|(ticket, _)| *ticket)
    }

    /// Ends a receive; returns `false` if it isn't pending.
    fn end(&mut self, place: u64, ticket: u64) -> bool {
        let Some(has_ended) = self.receives.get_mut(place, ticket) else { return false };
        if std::mem::replace(has_ended, true) {
            return false;
        }
        self.receives.drop_while(|has_ended| *has_ended);
        true
    }

    /// Takes a stream no longer blocked by this class, and its message's ticket.
    fn pop_unblocked(&mut self) -> Option<(u64, Stream)> {
        let Reverse((ticket, stream)) = *self.blocked.peek()?;
        if self.first().is_some_and(|first| first < ticket) {
            return None;
        }
        self.blocked.pop();
        Some((ticket, stream))
    }
}

/// A communicator's pending receives, and received messages not numbered yet.
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
    streams: FxHashMap<Stream, StreamQueue>,
    /// Wildcard receives by source and tag.
    ///
    /// The stream they will take from isn't known.
    classes: FxHashMap<(Option<i32>, Option<i32>), Class>,
    /// Number of streams from which on empty ones are dropped.
    streams_max: usize,
    /// Number of classes from which on empty ones are dropped.
    classes_max: usize,
}

impl Default for Matching {
    fn default() -> Matching {
        Matching {
            tickets: 0,
            unsettled: 0,
            streams: FxHashMap::default(),
            classes: FxHashMap::default(),
            streams_max: RETAINED_MIN,
            classes_max: RETAINED_MIN,
        }
    }
}

impl Matching {
    /// Returns `true` if no receive is pending and every message has its number: the next message received has the next
    /// number of its stream.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.unsettled == 0
    }

    /// Posts a receive.
    ///
    /// `None` is a wildcard. Takes O(1), amortised.
    pub fn post(&mut self, source: Option<i32>, tag: Option<i32>) -> PostedReceive {
        self.tickets += 1;
        self.unsettled += 1;
        let ticket = self.tickets;
        let place = match (source, tag) {
            (Some(source), Some(tag)) => self.stream((source, tag)).posted.push(ticket, State::PENDING),
            _ => self.class(source, tag).receives.push(ticket, false),
        };
        PostedReceive { ticket, place, source, tag }
    }

    fn stream(&mut self, stream: Stream) -> &mut StreamQueue {
        if self.streams.len() >= self.streams_max {
            self.streams.retain(|_, queue| !queue.is_empty());
            self.streams_max = RETAINED_MIN.max(2 * self.streams.len());
        }
        self.streams.entry(stream).or_default()
    }

    fn class(&mut self, source: Option<i32>, tag: Option<i32>) -> &mut Class {
        if self.classes.len() >= self.classes_max {
            self.classes.retain(|_, class| !class.receives.is_empty());
            self.classes_max = RETAINED_MIN.max(2 * self.classes.len());
        }
        self.classes.entry((source, tag)).or_default()
    }

    /// Ends a receive with a message, or with none if it was cancelled or failed.
    ///
    /// Appends each newly numbered message to `numbered`, stream by stream in number order. Takes O(log n), amortised,
    /// with n pending receives and messages without a number.
    pub fn end(&mut self, posted: PostedReceive, arrival: Option<Arrival>, numbered: &mut Vec<Arrival>) {
        let PostedReceive { ticket, place, source, tag } = posted;
        if let (Some(source), Some(tag)) = (source, tag) {
            let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
            let state = arrival.map_or(State::CANCELLED, |arrival| State::received(arrival.bytes));
            if queue.end(place, ticket, state) {
                self.unsettled -= usize::from(state == State::CANCELLED);
                self.advance((source, tag), numbered);
            }
            return;
        }
        let Some(class) = self.classes.get_mut(&(source, tag)) else { return };
        if !class.end(place, ticket) {
            return;
        }
        match arrival {
            Some(Arrival { source, tag, bytes }) => {
                self.stream((source, tag)).taken.push(ticket, bytes);
                self.advance((source, tag), numbered);
            }
            None => self.unsettled -= 1,
        }
        while let Some((ticket, stream)) = self.classes.get_mut(&(source, tag)).and_then(Class::pop_unblocked) {
            if let Some(queue) = self.streams.get_mut(&stream)
                && queue.blocked == ticket
            {
                queue.blocked = 0;
            }
            self.advance(stream, numbered);
        }
    }

    /// Numbers the received messages at the front of a stream's queue, until an earlier wildcard receive may precede
    /// one.
    fn advance(&mut self, (source, tag): Stream, numbered: &mut Vec<Arrival>) {
        let Some(queue) = self.streams.get_mut(&(source, tag)) else { return };
        while let Some((ticket, bytes)) = queue.first()
            && queue.blocked != ticket
        {
            for class in [(None, None), (Some(source), None), (None, Some(tag))] {
                // An earlier posted wildcard receive may have taken an earlier message of this stream.
                if let Some(class) = self.classes.get_mut(&class)
                    && class.first().is_some_and(|first| first < ticket)
                {
                    class.blocked.push(Reverse((ticket, (source, tag))));
                    queue.blocked = ticket;
                    return;
                }
            }
            queue.pop(ticket);
            self.unsettled -= 1;
            numbered.push(Arrival { source, tag, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends a receive with a message from source 1 with tag 1; returns the lengths of messages numbered by it.
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
        // A later posted receive blocks nothing.
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
            assert!(matching.streams.len() <= RETAINED_MIN && !matching.is_idle());
        }
        assert_eq!(end(&mut matching, stays, 4), [4]);
        assert!(matching.is_idle());
    }

    #[test]
    fn a_receive_that_has_ended_ends_no_other_in_a_queue_that_was_made_anew() {
        for (source, tag) in [(Some(1), Some(1)), (Some(1), None)] {
            let mut matching = Matching::default();
            let old = matching.post(source, tag);
            assert_eq!(end(&mut matching, old, 1), [1]);
            for other in 2..2 + RETAINED_MIN as i32 {
                let posted = matching.post(Some(other), tag);
                end(&mut matching, posted, 2);
            }
            match tag {
                Some(_) => assert!(!matching.streams.contains_key(&(1, 1))),
                None => assert!(!matching.classes.contains_key(&(source, tag))),
            }
            let new = matching.post(source, tag);
            assert!(end(&mut matching, old, 3).is_empty() && !matching.is_idle());
            assert_eq!(end(&mut matching, new, 4), [4]);
            assert!(matching.is_idle());
        }
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

    /// The same rule without any index: each message looks at all earlier posted receives.
    #[derive(Default)]
    struct Model(Vec<(PostedReceive, Option<Option<Arrival>>, bool)>);

    impl Model {
        fn end(&mut self, posted: PostedReceive, arrival: Option<Arrival>) -> Vec<Arrival> {
            self.0.iter_mut().find(|receive| receive.0 == posted).unwrap().1 = Some(arrival);
            let mut numbered = Vec::new();
            for at in 0..self.0.len() {
                let (_, Some(Some(own)), false) = self.0[at] else { continue };
                let is_settled = self.0[..at].iter().all(|(earlier, ended, is_numbered)| {
                    let may_take = |posted: &PostedReceive| {
                        posted.source.is_none_or(|source| source == own.source)
                            && posted.tag.is_none_or(|tag| tag == own.tag)
                    };
                    match ended {
                        None => !may_take(earlier),
                        Some(None) => true,
                        Some(Some(other)) => *is_numbered || (other.source, other.tag) != (own.source, own.tag),
                    }
                });
                if is_settled {
                    self.0[at].2 = true;
                    numbered.push(own);
                }
            }
            numbered
        }
    }

    proptest::proptest! {
        #[test]
        fn messages_are_numbered_as_by_the_model(steps in proptest::collection::vec((0..4_u8, 0..3_i32, 0..3_i32, 0..100_usize), 1..200)) {
            let (mut matching, mut model, mut pending, mut len) = (Matching::default(), Model::default(), Vec::new(), 0);
            for (kind, source, tag, choice) in steps {
                if kind < 2 || pending.is_empty() {
                    // A pattern of two thirds is a wildcard of some kind.
                    let posted = matching.post((choice % 3 != 0).then_some(source), (choice % 2 != 0).then_some(tag));
                    model.0.push((posted, None, false));
                    pending.push(posted);
                    continue;
                }
                let posted: PostedReceive = pending.swap_remove(choice % pending.len());
                len += 1;
                let (source, tag) = (posted.source.unwrap_or(source), posted.tag.unwrap_or(tag));
                let arrival = (choice % 5 != 0).then_some(Arrival { source, tag, bytes: len });
                let mut numbered = Vec::new();
                matching.end(posted, arrival, &mut numbered);
                let mut expected = model.end(posted, arrival);
                // By stream; the order within one stays.
                numbered.sort_by_key(|arrival| (arrival.source, arrival.tag));
                expected.sort_by_key(|arrival| (arrival.source, arrival.tag));
                proptest::prop_assert_eq!(numbered, expected);
                let unsettled = model.0.iter().filter(|(_, ended, is_numbered)| *ended != Some(None) && !is_numbered).count();
                proptest::prop_assert_eq!((matching.unsettled, matching.is_idle()), (unsettled, unsettled == 0));
            }
            for posted in pending {
                let mut numbered = Vec::new();
                matching.end(posted, None, &mut numbered);
            }
            proptest::prop_assert!(matching.is_idle());
            proptest::prop_assert!(matching.classes.values().all(|class| class.receives.is_empty() && class.blocked.is_empty()));
        }
    }
}
