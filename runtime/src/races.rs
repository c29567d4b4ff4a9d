//! Receives from any source that had a choice, from all ranks' histories.
//!
//! A wildcard that took a message could have taken another one instead if that one fits, comes from another rank, had
//! not been taken by a receive posted earlier, and was sent without knowledge of the match. A rank's knowledge follows
//! from its received messages (vector clocks; Netzer and Miller 1992 call such messages racing). A synchronous send
//! gives its sender no knowledge here, so in programs that order messages by those alone, some choices can't be taken.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use serde::Serialize;

use crate::history::{Event, Place};
use crate::matching::Pattern;

/// A wildcard that could have taken other messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The rank.
    pub rank: u32,
    /// The receive or probe.
    pub place: Place,
    /// Source of the message taken.
    pub taken: u32,
    /// Sources of the messages that it could have taken.
    pub others: Vec<u32>,
}

/// Counts for one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Receives and probes from any source that took or found a message.
    pub wildcards: u64,
    /// Wildcards with a choice.
    pub with_choice: u64,
    /// Tests and probes that found something: each could have found nothing.
    pub polls_found: u64,
    /// Runs of tests and probes that found nothing.
    pub polls_without: u64,
}

/// Result for all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Races {
    /// Counts by rank.
    pub counts: Vec<Counts>,
    /// Choices, by rank and in its order.
    pub choices: Vec<Choice>,
}

/// A message, at its sender.
#[derive(Debug)]
struct Sent {
    comm: u32,
    tag: i32,
    /// Destination events known to the sender.
    knew: u64,
    /// Number of sender events.
    events: u64,
    /// The sender's knowledge about the other ranks; taken by the delivery.
    clock: Option<Rc<[u64]>>,
    /// Position of the receive that took it among the destination's receives.
    taken_by: Option<usize>,
}

impl Sent {
    /// Returns `true` if a receive posted before this one took it.
    fn is_taken_before(&self, order: usize) -> bool {
        self.taken_by.is_some_and(|by| by < order)
    }
}

/// A wildcard that has taken or found a message.
struct Wildcard {
    pattern: Pattern,
    place: Place,
    /// Number of receives posted earlier.
    order: usize,
    source: u32,
    /// Number of the event with which the program knew the message.
    known_at: u64,
}

/// One rank on its way through its history.
#[derive(Default)]
struct Rank<'a> {
    events: &'a [Event],
    next: usize,
    /// Number of events by each rank known to this one.
    clock: Vec<u64>,
    /// The same at the last delivery, for the messages since then.
    shared: Option<Rc<[u64]>>,
    /// Receives posted.
    posted: usize,
    /// Receives without a message: position among all, and a wildcard's pattern and place.
    open: HashMap<u64, (usize, Option<(Pattern, Place)>)>,
    wildcards: Vec<Wildcard>,
}

/// Finds the wildcards with a choice.
///
/// A history may end anywhere.
pub fn find(histories: &[Vec<Event>]) -> Races {
    let ranks = histories.len();
    let mut states: Vec<Rank<'_>> =
        histories.iter().map(|events| Rank { events, clock: vec![0; ranks], ..Rank::default() }).collect();
    let mut sent: Vec<Vec<Vec<Sent>>> = (0..ranks).map(|_| (0..ranks).map(|_| Vec::new()).collect()).collect();
    let mut counts = vec![Counts::default(); ranks];
    // Each rank continues until it gets a message yet to be sent.
    let mut has_advanced = true;
    while has_advanced {
        has_advanced = false;
        for rank in 0..ranks {
            has_advanced |= advance(rank, &mut states[rank], &mut sent, &mut counts[rank]);
        }
    }
    let mut choices = Vec::new();
    for (rank, (state, counts)) in states.iter().zip(&mut counts).enumerate() {
        let mut queues = Queues::new(&sent, rank);
        let mut wildcards: Vec<&Wildcard> = state.wildcards.iter().collect();
        wildcards.sort_by_key(|wildcard| wildcard.order);
        for wildcard in wildcards {
            counts.wildcards += 1;
            let sources = (0..ranks).filter(|source| *source != wildcard.source as usize);
            // Later messages from a source were sent with the same knowledge, or more.
            let others: Vec<u32> = sources
                .filter(|source| {
                    queues.first(*source, wildcard).is_some_and(|message| message.knew < wildcard.known_at)
                })
                .map(|source| source as u32)
                .collect();
            if !others.is_empty() {
                counts.with_choice += 1;
                let (place, taken) = (wildcard.place.clone(), wildcard.source);
                choices.push(Choice { rank: rank as u32, place, taken, others });
            }
        }
    }
    choices.sort_by_key(|choice| (choice.rank, choice.place.call));
    Races { counts, choices }
}

/// Messages to a rank, by source, communicator and tag; `None` for all tags.
struct Queues<'a> {
    queues: HashMap<(usize, u32, Option<i32>), VecDeque<&'a Sent>>,
}

impl<'a> Queues<'a> {
    fn new(sent: &'a [Vec<Vec<Sent>>], rank: usize) -> Queues<'a> {
        let mut queues: HashMap<_, VecDeque<_>> = HashMap::new();
        for (source, messages) in sent.iter().enumerate() {
            for message in &messages[rank] {
                for tag in [None, Some(message.tag)] {
                    queues.entry((source, message.comm, tag)).or_default().push_back(message);
                }
            }
        }
        Queues { queues }
    }

    /// Returns the first message from a source that a wildcard could take.
    ///
    /// Called in wildcard order: a message taken before one wildcard was taken before the later ones, too.
    fn first(&mut self, source: usize, wildcard: &Wildcard) -> Option<&'a Sent> {
        let queue = self.queues.get_mut(&(source, wildcard.pattern.comm, wildcard.pattern.tag))?;
        while queue.front()?.is_taken_before(wildcard.order) {
            queue.pop_front();
        }
        queue.front().copied()
    }
}

/// Advances through a rank's events as far as possible.
///
/// Returns `true` if there were any.
fn advance(rank: usize, state: &mut Rank<'_>, sent: &mut [Vec<Vec<Sent>>], counts: &mut Counts) -> bool {
    let begun_at = state.next;
    while let Some(event) = state.events.get(state.next) {
        if let Event::Deliver { source, ssn, .. } = event
            && sent[*source as usize][rank].len() < *ssn as usize
        {
            break;
        }
        state.next += 1;
        state.clock[rank] += 1;
        let known_at = state.clock[rank];
        match event {
            Event::Send { to, comm, tag } => {
                let clock = Rc::clone(state.shared.get_or_insert_with(|| state.clock.as_slice().into()));
                sent[rank][*to as usize].push(Sent {
                    comm: *comm,
                    tag: *tag,
                    knew: state.clock[*to as usize],
                    events: known_at,
                    clock: Some(clock),
                    taken_by: None,
                });
            }
            Event::Receive { request, pattern, place } => {
                let wildcard = place.clone().map(|place| (*pattern, place));
                state.open.insert(*request, (state.posted, wildcard));
                state.posted += 1;
            }
            Event::Deliver { request, source, ssn } => {
                let message = &mut sent[*source as usize][rank][*ssn as usize - 1];
                let clock = message.clock.take();
                for (known, of_sender) in state.clock.iter_mut().zip(clock.as_deref().unwrap_or_default()) {
                    *known = (*known).max(*of_sender);
                }
                let of_source = &mut state.clock[*source as usize];
                *of_source = (*of_source).max(message.events);
                state.shared = None;
                let Some((order, wildcard)) = state.open.remove(request) else { continue };
                message.taken_by = Some(order);
                if let Some((pattern, place)) = wildcard {
                    state.wildcards.push(Wildcard { pattern, place, order, source: *source, known_at });
                }
            }
            Event::Probe { pattern, source, place, .. } => {
                let (pattern, place, source) = (*pattern, place.clone(), *source);
                state.wildcards.push(Wildcard { pattern, place, order: state.posted, source, known_at });
            }
            Event::Poll { found: true } => counts.polls_found += 1,
            Event::Poll { found: false } => counts.polls_without += 1,
        }
    }
    state.next > begun_at
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::{BTreeMap, BTreeSet, HashSet};

    use proptest::prelude::*;

    use super::*;

    const ANY: Pattern = Pattern { source: None, tag: None, comm: 0 };

    fn send(to: u32, tag: i32) -> Event {
        Event::Send { to, comm: 0, tag }
    }

    fn place(call: u64) -> Place {
        Place { call, name: Cow::Borrowed("MPI_Recv") }
    }

    fn any(request: u64, pattern: Pattern) -> Event {
        Event::Receive { request, pattern, place: Some(place(request)) }
    }

    fn named(request: u64, source: u32) -> Event {
        Event::Receive { request, pattern: Pattern { source: Some(source), ..ANY }, place: None }
    }

    fn deliver(request: u64, source: u32, ssn: u64) -> Event {
        Event::Deliver { request, source, ssn }
    }

    /// Returns calls with a choice, and the possible sources.
    fn found(histories: &[Vec<Event>]) -> Vec<(u64, Vec<u32>)> {
        find(histories).choices.into_iter().map(|choice| (choice.place.call, choice.others)).collect()
    }

    #[test]
    fn of_two_messages_that_race_the_first_had_a_choice_and_the_second_none() {
        let first = vec![any(1, ANY), deliver(1, 2, 1), any(2, ANY), deliver(2, 1, 1)];
        assert_eq!(found(&[first, vec![send(0, 7)], vec![send(0, 7)]]), [(1, vec![1])]);
    }

    #[test]
    fn a_message_that_was_sent_because_of_the_first_is_no_choice() {
        let first = vec![any(1, ANY), deliver(1, 1, 1), send(2, 0), any(2, ANY), deliver(2, 2, 1)];
        let third = vec![named(1, 0), deliver(1, 0, 1), send(0, 7)];
        assert_eq!(found(&[first, vec![send(0, 7)], third]), []);
    }

    #[test]
    fn knowledge_goes_through_other_ranks() {
        // 0 takes the message from 1 and tells 3, which tells 2, which sends.
        let first = vec![any(1, ANY), deliver(1, 1, 1), send(3, 0), any(2, ANY), deliver(2, 2, 1)];
        let third = vec![named(1, 3), deliver(1, 3, 1), send(0, 7)];
        let fourth = vec![named(1, 0), deliver(1, 0, 1), send(2, 0)];
        assert_eq!(found(&[first, vec![send(0, 7)], third, fourth]), []);
    }

    #[test]
    fn a_message_that_does_not_fit_or_was_taken_before_is_no_choice() {
        let tagged = Pattern { tag: Some(7), ..ANY };
        let other = Pattern { comm: 2, ..ANY };
        for (pattern, choices) in [(tagged, 0), (other, 0), (ANY, 1)] {
            let first = vec![any(1, pattern), deliver(1, 1, 1), named(2, 2), deliver(2, 2, 1)];
            assert_eq!(found(&[first, vec![send(0, 7)], vec![send(0, 8)]]).len(), choices, "{pattern:?}");
        }
        // A receive posted before takes it, although it is waited for later.
        let first = vec![named(1, 2), any(2, ANY), deliver(2, 1, 1), deliver(1, 2, 1)];
        assert_eq!(found(&[first, vec![send(0, 7)], vec![send(0, 7)]]), []);
    }

    #[test]
    fn a_message_that_nobody_took_is_a_choice_and_probes_have_choices() {
        let probe = Event::Probe { pattern: ANY, source: 1, ssn: 1, place: place(5) };
        let first = vec![probe, any(6, ANY), deliver(6, 1, 1), Event::Poll { found: true }];
        let races = find(&[first, vec![send(0, 7)], vec![send(0, 7)]]);
        assert_eq!(races.choices.iter().map(|choice| choice.place.call).collect::<Vec<_>>(), [5, 6]);
        let counts = Counts { wildcards: 2, with_choice: 2, polls_found: 1, polls_without: 0 };
        assert_eq!(races.counts[0], counts);
    }

    /// An operation by a rank with blocking receives.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Send { to: usize, tag: i32 },
        Receive { source: Option<usize>, tag: Option<i32> },
    }

    /// Ranks on their way through their operations.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        next: Vec<usize>,
        /// For each source and destination: tags of the sent messages, and whether they were taken.
        channels: Vec<Vec<Vec<(i32, bool)>>>,
    }

    impl World {
        fn new(ranks: usize) -> World {
            World { next: vec![0; ranks], channels: vec![vec![Vec::new(); ranks]; ranks] }
        }

        /// Returns source and position of the messages available to a rank's next operation.
        fn messages(&self, rank: usize, source: Option<usize>, tag: Option<i32>) -> Vec<(usize, usize)> {
            let fits = |(of, taken): &(i32, bool)| !taken && tag.is_none_or(|tag| tag == *of);
            let sources = (0..self.next.len()).filter(|of| source.is_none_or(|source| source == *of));
            sources.filter_map(|of| Some((of, self.channels[of][rank].iter().position(fits)?))).collect()
        }

        fn send(&self, rank: usize, to: usize, tag: i32) -> World {
            let mut world = self.clone();
            world.next[rank] += 1;
            world.channels[rank][to].push((tag, false));
            world
        }

        fn take(&self, rank: usize, (source, place): (usize, usize)) -> World {
            let mut world = self.clone();
            world.next[rank] += 1;
            world.channels[source][rank][place].1 = true;
            world
        }
    }

    /// Runs a program in some order.
    ///
    /// Returns the histories; a request's number is its operation's.
    fn run(program: &[Vec<Op>], order: &[usize]) -> Vec<Vec<Event>> {
        let (mut world, mut histories) = (World::new(program.len()), vec![Vec::new(); program.len()]);
        for draw in order {
            let rank = draw % program.len();
            let at = world.next[rank];
            match program[rank].get(at) {
                None => {}
                Some(&Op::Send { to, tag }) => {
                    world = world.send(rank, to, tag);
                    histories[rank].push(send(to as u32, tag));
                }
                Some(&Op::Receive { source, tag }) => {
                    let messages = world.messages(rank, source, tag);
                    let Some(message) = messages.get(draw / program.len() % messages.len().max(1)) else { continue };
                    world = world.take(rank, *message);
                    let pattern = Pattern { source: source.map(|source| source as u32), tag, comm: 0 };
                    let place = source.is_none().then(|| place(at as u64));
                    histories[rank].push(Event::Receive { request: at as u64, pattern, place });
                    histories[rank].push(deliver(at as u64, message.0 as u32, message.1 as u64 + 1));
                }
            }
        }
        histories
    }

    /// Finds alternative messages by trying all orders in which each wildcard has the same match: by rank and
    /// operation.
    fn try_all(program: &[Vec<Op>], histories: &[Vec<Event>]) -> BTreeMap<(usize, usize), BTreeSet<usize>> {
        let took = |rank: usize, at: usize| {
            histories[rank].iter().find_map(|event| match event {
                Event::Deliver { request, source, .. } if *request == at as u64 => Some(*source as usize),
                _ => None,
            })
        };
        let (mut found, mut seen) = (BTreeMap::new(), HashSet::new());
        let mut open = vec![World::new(program.len())];
        while let Some(world) = open.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            for (rank, operations) in program.iter().enumerate() {
                let at = world.next[rank];
                match operations.get(at) {
                    None => {}
                    Some(&Op::Send { to, tag }) => open.push(world.send(rank, to, tag)),
                    Some(&Op::Receive { source, tag }) => {
                        let Some(took) = took(rank, at) else { continue };
                        for message in world.messages(rank, source, tag) {
                            if message.0 == took {
                                open.push(world.take(rank, message));
                            } else {
                                found.entry((rank, at)).or_insert_with(BTreeSet::new).insert(message.0);
                            }
                        }
                    }
                }
            }
        }
        found
    }

    const RANKS: usize = 3;

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..RANKS, 0i32..2).prop_map(|(to, tag)| Op::Send { to, tag }),
            (proptest::option::weighted(0.4, 0..RANKS), proptest::option::weighted(0.5, 0i32..2))
                .prop_map(|(source, tag)| Op::Receive { source, tag }),
        ]
    }

    proptest! {
        /// Checks that the choices are those given by some order of the operations.
        #[test]
        fn choices_are_those_of_all_orders(
            program in prop::collection::vec(prop::collection::vec(op(), 0..6), RANKS),
            order in prop::collection::vec(0usize..1000, 60),
        ) {
            let histories = run(&program, &order);
            let found: BTreeMap<(usize, usize), BTreeSet<usize>> = find(&histories)
                .choices
                .into_iter()
                .map(|choice| {
                    let others = choice.others.into_iter().map(|other| other as usize).collect();
                    ((choice.rank as usize, choice.place.call as usize), others)
                })
                .collect();
            prop_assert_eq!(found, try_all(&program, &histories));
        }
    }

    #[test]
    fn a_history_that_ends_early_is_used_as_far_as_it_goes() {
        let first = vec![any(1, ANY), deliver(1, 1, 1), any(2, ANY), deliver(2, 1, 2), any(3, ANY)];
        assert_eq!(found(&[first, vec![send(0, 7)], vec![send(0, 7)]]), [(1, vec![2])]);
    }
}
