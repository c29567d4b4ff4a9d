//! Matches messages with receives.
//!
//! MPI's rules (MPI 4.1, section 3.5): messages from one source and communicator that fit the same receive are taken in
//! send order; receives that fit the same message are served in post order. Messages arrive here in channel order
//! (ensured by the receive window), so for each source the order of sends is the order of arrivals.
//!
//! A receive with [`ANY_SOURCE`](crate::ANY_SOURCE) may take any rank's message, depending on timing. When a dead rank
//! is re-executed, such a receive is *forced* to the message taken by the dead incarnation, and takes no other.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sending rank.
    pub source: u32,
    /// Message tag.
    pub tag: i32,
    /// Context number.
    pub comm: u32,
    /// Message SSN.
    pub ssn: u64,
    /// Payload.
    pub payload: Bytes,
}

/// Source, tag and context of a receive.
///
/// `None` is a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Source.
    pub source: Option<u32>,
    /// Tag.
    pub tag: Option<i32>,
    /// Context number; has no wildcard.
    pub comm: u32,
}

impl Pattern {
    /// Returns `true` if a message from `source` could fit, or is the forced one.
    pub(crate) fn is_from(&self, forced: Option<Forced>, source: u32) -> bool {
        forced.map(|forced| forced.source).or(self.source).is_none_or(|from| from == source)
    }

    fn fits(&self, message: &Message) -> bool {
        self.comm == message.comm
            && self.source.is_none_or(|source| source == message.source)
            && self.tag.is_none_or(|tag| tag == message.tag)
    }
}

/// Message taken by a wildcard in an earlier incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forced {
    /// The message's source.
    pub source: u32,
    /// The message's SSN.
    pub ssn: u64,
}

impl Forced {
    /// No message: SSNs begin at 1.
    pub(crate) const NOTHING: Forced = Forced { source: 0, ssn: 0 };

    pub(crate) fn fits(&self, message: &Message) -> bool {
        self.source == message.source && self.ssn == message.ssn
    }
}

#[derive(Debug)]
struct Posted {
    id: u64,
    pattern: Pattern,
    forced: Option<Forced>,
}

impl Posted {
    fn fits(&self, message: &Message) -> bool {
        self.pattern.fits(message) && self.forced.is_none_or(|forced| forced.fits(message))
    }
}

/// Messages from one source not taken by a receive (MPI's unexpected messages).
#[derive(Debug, Default)]
struct Unexpected {
    /// Each with its arrival number among all sources.
    messages: VecDeque<(u64, Message)>,
    payload_bytes: usize,
}

/// Posted receives and unexpected messages for one rank.
#[derive(Debug)]
pub struct Matching {
    /// In post order.
    posted: VecDeque<Posted>,
    unexpected: Vec<Unexpected>,
    /// Sum over all sources.
    unexpected_bytes: usize,
    arrivals: u64,
}

impl Matching {
    /// Makes an empty matching for a job with `ranks` ranks.
    pub fn new(ranks: u32) -> Matching {
        let unexpected = (0..ranks).map(|_| Unexpected::default()).collect();
        Matching { posted: VecDeque::new(), unexpected, unexpected_bytes: 0, arrivals: 0 }
    }

    /// Handles an arrived message: returns it with the id of the receive that takes it, or keeps it as unexpected.
    ///
    /// The message's source must be a rank in the job.
    pub fn handle_message(&mut self, message: Message) -> Option<(u64, Message)> {
        if let Some(position) = self.posted.iter().position(|posted| posted.fits(&message)) {
            return self.posted.remove(position).map(|posted| (posted.id, message));
        }
        let of_source = &mut self.unexpected[message.source as usize];
        of_source.payload_bytes += message.payload.len();
        self.unexpected_bytes += message.payload.len();
        of_source.messages.push_back((self.arrivals, message));
        self.arrivals += 1;
        None
    }

    /// Posts a receive: returns the message that it takes, or keeps the receive under `id`.
    pub fn handle_receive(&mut self, id: u64, pattern: Pattern, forced: Option<Forced>) -> Option<Message> {
        let posted = Posted { id, pattern, forced };
        match self.find(&posted) {
            Some((source, position)) => Some(self.take(source, position)),
            None => {
                self.posted.push_back(posted);
                None
            }
        }
    }

    /// Removes a posted receive.
    pub fn cancel(&mut self, id: u64) {
        self.posted.retain(|posted| posted.id != id);
    }

    /// Returns the message that a receive posted now would take, without taking it.
    pub fn probe(&self, pattern: Pattern, forced: Option<Forced>) -> Option<&Message> {
        let (source, position) = self.find(&Posted { id: 0, pattern, forced })?;
        self.unexpected[source].messages.get(position).map(|(_, message)| message)
    }

    /// Returns the payload bytes of unexpected messages from `source`.
    pub fn unexpected_bytes(&self, source: u32) -> usize {
        self.unexpected[source as usize].payload_bytes
    }

    /// Returns the payload bytes of all unexpected messages.
    pub fn all_unexpected_bytes(&self) -> usize {
        self.unexpected_bytes
    }

    /// Returns `true` for an unexpected message.
    pub fn has_unexpected(&self, source: u32, ssn: u64) -> bool {
        self.unexpected[source as usize].messages.iter().any(|(_, message)| message.ssn == ssn)
    }

    /// Returns `true` if a posted receive could take a message from `source`.
    pub fn is_awaited(&self, source: u32) -> bool {
        self.posted.iter().any(|posted| posted.pattern.is_from(posted.forced, source))
    }

    /// Returns the number of posted receives without a message.
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Returns the unexpected messages in arrival order, for a checkpoint.
    pub fn unexpected(&self) -> Vec<&Message> {
        let mut messages: Vec<_> = self.unexpected.iter().flat_map(|of_source| &of_source.messages).collect();
        messages.sort_by_key(|(arrival, _)| *arrival);
        messages.into_iter().map(|(_, message)| message).collect()
    }

    /// Finds the first matching message in arrival order, which is also the first from its source.
    fn find(&self, posted: &Posted) -> Option<(usize, usize)> {
        let from = posted.forced.map(|forced| forced.source).or(posted.pattern.source);
        let sources = match from {
            Some(source) => source as usize..source as usize + 1,
            None => 0..self.unexpected.len(),
        };
        let first_of = |source: usize| {
            let messages = &self.unexpected.get(source)?.messages;
            let position = messages.iter().position(|(_, message)| posted.fits(message))?;
            Some((messages[position].0, source, position))
        };
        let (_, source, position) = sources.filter_map(first_of).min()?;
        Some((source, position))
    }

    fn take(&mut self, source: usize, position: usize) -> Message {
        let of_source = &mut self.unexpected[source];
        let (_, message) = of_source.messages.remove(position).expect("`find` gave the position of a message");
        of_source.payload_bytes -= message.payload.len();
        self.unexpected_bytes -= message.payload.len();
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(source: u32, ssn: u64, tag: i32) -> Message {
        Message { source, tag, comm: 0, ssn, payload: Bytes::from(vec![ssn as u8; 3]) }
    }

    fn from(source: u32) -> Pattern {
        Pattern { source: Some(source), tag: None, comm: 0 }
    }

    const ANY: Pattern = Pattern { source: None, tag: None, comm: 0 };

    fn tagged(tag: i32) -> Pattern {
        Pattern { tag: Some(tag), ..ANY }
    }

    fn numbers(message: Option<Message>) -> Option<(u32, u64)> {
        message.map(|message| (message.source, message.ssn))
    }

    #[test]
    fn messages_of_one_source_are_taken_in_the_order_sent() {
        let mut matching = Matching::new(2);
        (1..=3).for_each(|ssn| assert!(matching.handle_message(message(1, ssn, 0)).is_none()));
        for ssn in 1..=3 {
            assert_eq!(numbers(matching.handle_receive(ssn, from(1), None)), Some((1, ssn)));
        }
        assert_eq!((matching.unexpected_bytes(1), matching.all_unexpected_bytes()), (0, 0));
    }

    #[test]
    fn a_tag_may_overtake_another() {
        let mut matching = Matching::new(2);
        matching.handle_message(message(1, 1, 7));
        matching.handle_message(message(1, 2, 8));
        assert_eq!(numbers(matching.handle_receive(0, tagged(8), None)), Some((1, 2)));
        assert_eq!(numbers(matching.handle_receive(1, ANY, None)), Some((1, 1)));
    }

    #[test]
    fn receives_are_served_in_the_order_posted() {
        let mut matching = Matching::new(3);
        assert!(matching.handle_receive(10, ANY, None).is_none());
        assert!(matching.handle_receive(11, from(1), None).is_none());
        let taken = |matching: &mut Matching, message| matching.handle_message(message).map(|(id, _)| id);
        assert_eq!(taken(&mut matching, message(1, 1, 0)), Some(10));
        assert_eq!(taken(&mut matching, message(2, 1, 0)), None);
        assert_eq!(taken(&mut matching, message(1, 2, 0)), Some(11));
        assert_eq!(matching.posted(), 0);
    }

    #[test]
    fn a_wildcard_takes_the_first_arrival() {
        let mut matching = Matching::new(3);
        matching.handle_message(message(2, 1, 0));
        matching.handle_message(message(1, 1, 0));
        assert_eq!(numbers(matching.probe(ANY, None).cloned()), Some((2, 1)));
        assert_eq!(numbers(matching.handle_receive(0, ANY, None)), Some((2, 1)));
        assert_eq!(numbers(matching.handle_receive(1, ANY, None)), Some((1, 1)));
    }

    #[test]
    fn contexts_never_match_each_other() {
        let mut matching = Matching::new(2);
        matching.handle_message(Message { comm: 1, ..message(1, 1, -1) });
        assert_eq!(matching.handle_receive(0, ANY, None), None);
        assert_eq!(numbers(matching.handle_receive(1, Pattern { comm: 1, ..ANY }, None)), Some((1, 1)));
    }

    #[test]
    fn a_forced_receive_waits_for_its_message_and_others_overtake_it() {
        let mut matching = Matching::new(3);
        let forced = Some(Forced { source: 2, ssn: 5 });
        matching.handle_message(message(1, 1, 0));
        assert_eq!(matching.handle_receive(10, ANY, forced), None);
        assert!(matching.is_awaited(2) && !matching.is_awaited(1));
        // Posted later, served earlier, as in the dead incarnation.
        assert_eq!(numbers(matching.handle_receive(11, from(1), None)), Some((1, 1)));
        assert!(matching.handle_message(message(2, 4, 0)).is_none());
        let (id, taken) = matching.handle_message(message(2, 5, 0)).unwrap();
        assert_eq!((id, taken.ssn), (10, 5));
    }

    #[test]
    fn a_forced_receive_finds_its_message_among_the_unexpected() {
        let mut matching = Matching::new(3);
        (1..=3).for_each(|ssn| drop(matching.handle_message(message(1, ssn, 0))));
        matching.handle_message(message(2, 1, 0));
        assert_eq!(numbers(matching.handle_receive(0, ANY, Some(Forced { source: 2, ssn: 1 }))), Some((2, 1)));
        assert_eq!(numbers(matching.handle_receive(0, ANY, None)), Some((1, 1)));
    }

    #[test]
    fn unexpected_messages_are_listed_in_order_of_arrival() {
        let mut matching = Matching::new(3);
        for (source, ssn) in [(2, 1), (1, 1), (2, 2)] {
            matching.handle_message(message(source, ssn, 0));
        }
        let listed: Vec<_> = matching.unexpected().iter().map(|message| (message.source, message.ssn)).collect();
        assert_eq!(listed, [(2, 1), (1, 1), (2, 2)]);
        assert_eq!((matching.unexpected_bytes(2), matching.all_unexpected_bytes()), (6, 9));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Message { source: u32, tag: i32 },
        Receive { source: Option<u32>, tag: Option<i32> },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u32..3, 0i32..3).prop_map(|(source, tag)| Step::Message { source, tag }),
            (proptest::option::of(0u32..3), proptest::option::of(0i32..3))
                .prop_map(|(source, tag)| Step::Receive { source, tag }),
        ]
    }

    /// Runs the steps and returns each receive's message.
    ///
    /// `forced` has the wildcards' outcomes.
    fn run(steps: &[Step], forced: Option<&[Option<(u32, u64)>]>) -> Vec<Option<(u32, u64)>> {
        let mut matching = Matching::new(3);
        let mut ssn = [0u64; 3];
        let mut took = Vec::new();
        for step in steps {
            match *step {
                Step::Message { source, tag } => {
                    ssn[source as usize] += 1;
                    if let Some((id, taken)) = matching.handle_message(message(source, ssn[source as usize], tag)) {
                        took[id as usize] = Some((taken.source, taken.ssn));
                    }
                }
                Step::Receive { source, tag } => {
                    let id = took.len();
                    let choice = forced.and_then(|forced| forced[id]).filter(|_| source.is_none());
                    let forced = choice.map(|(source, ssn)| Forced { source, ssn });
                    let taken = matching.handle_receive(id as u64, Pattern { source, tag, comm: 0 }, forced);
                    took.push(numbers(taken));
                }
            }
        }
        took
    }

    proptest! {
        /// Piecewise determinism: when every wildcard is forced to its earlier outcome, every receive takes the same
        /// message, however the sources' messages and the receives interleave.
        #[test]
        fn forced_wildcards_reproduce_every_match(steps in prop::collection::vec(step(), 0..40), seed in any::<u64>()) {
            let before = run(&steps, None);
            let mut random = seed;
            let mut draw = |below: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as usize % below
            };
            // Another interleaving that keeps each source's order and the receives' order.
            let mut queues: [VecDeque<Step>; 4] = Default::default();
            for step in &steps {
                let queue = match step { Step::Message { source, .. } => *source as usize, Step::Receive { .. } => 3 };
                queues[queue].push_back(*step);
            }
            let mut other = Vec::new();
            while other.len() < steps.len() {
                if let Some(step) = queues[draw(4)].pop_front() {
                    other.push(step);
                }
            }
            // A receive without a message in the first run may take one now; the others take the same.
            let after = run(&other, Some(&before));
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(before.is_none() || before == after, "{before:?} {after:?}");
            }
        }
    }
}
