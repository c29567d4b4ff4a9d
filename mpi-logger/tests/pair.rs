//! Loggers in one loop: random programs on two or three ranks, with late control messages, a small log, and a failing
//! rank.
//!
//! The oracle is the list of sent and received messages; it takes nothing from the loggers.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use counterfoil::{Keep, Log, Options, Rank};
use counterfoil_campaign::scaled;
use counterfoil_mpi_logger::{
    Arrival, CommId, ControlMessage, DEADLOCK_AFTER, Logger, LoggerOptions, Members, PostedReceive, SpacePoll, Stream,
    WORLD,
};
use counterfoil_profile::RecordTag;
use proptest::prelude::*;

/// A step of the program.
///
/// Ranks are taken modulo the number of ranks.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send {
        from: u32,
        to: u32,
        tag: i32,
        bytes: usize,
    },
    Post {
        rank: u32,
        source: Option<u32>,
        tag: Option<i32>,
    },
    /// Ends the `nth` of a rank's pending receives with a message.
    Receive {
        rank: u32,
        nth: usize,
    },
    /// A collective operation on all ranks.
    Collective {
        root: u32,
        bytes: usize,
        synchronises: bool,
    },
    /// Delivers a control message.
    Deliver {
        to: u32,
    },
    Progress {
        rank: u32,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rank = 0..3_u32;
    let tag = 0..2_i32;
    let step = prop_oneof![
        4 => (rank.clone(), rank.clone(), tag.clone(), 0..300_usize)
            .prop_map(|(from, to, tag, bytes)| Step::Send { from, to, tag, bytes }),
        3 => (rank.clone(), prop::option::of(rank.clone()), prop::option::of(tag))
            .prop_map(|(rank, source, tag)| Step::Post { rank, source, tag }),
        4 => (rank.clone(), 0..8_usize).prop_map(|(rank, nth)| Step::Receive { rank, nth }),
        1 => (rank.clone(), 0..300_usize, any::<bool>())
            .prop_map(|(root, bytes, synchronises)| Step::Collective { root, bytes, synchronises }),
        3 => rank.clone().prop_map(|to| Step::Deliver { to }),
        2 => rank.prop_map(|rank| Step::Progress { rank }),
    ];
    prop::collection::vec(step, 1..400)
}

/// A pending receive of a rank.
struct Pending {
    posted: PostedReceive,
    source: Option<u32>,
    tag: Option<i32>,
    /// The message matched by MPI at the post or at the send: (source, tag, bytes).
    matched: Option<(u32, i32, usize)>,
}

struct Node {
    logger: Logger,
    world: CommId,
    pending: Vec<Pending>,
    /// Messages sent to this rank and not matched yet, in order of arrival.
    unexpected: VecDeque<(u32, i32, usize)>,
    inbox: VecDeque<(u32, ControlMessage)>,
}

struct Job {
    nodes: Vec<Node>,
    now: Instant,
    /// Messages sent on each stream, by (source, destination, tag).
    sent: HashMap<(u32, u32, i32), u64>,
    /// Messages received by the program on each stream.
    received: HashMap<(u32, u32, i32), u64>,
}

impl Job {
    fn new(ranks: u32) -> Job {
        let nodes = (0..ranks).map(|rank| {
            let mut options = Options::new(Rank(rank), ranks);
            options.keep = Keep::Acked;
            let mut logger = Logger::new(Log::create(options).unwrap(), &LoggerOptions::default());
            let members = Members { world: (0..ranks).collect(), rank: rank as i32, is_inter: false };
            let world = logger.comms.add(WORLD, members).unwrap();
            Node { logger, world, pending: Vec::new(), unexpected: VecDeque::new(), inbox: VecDeque::new() }
        });
        Job { nodes: nodes.collect(), now: Instant::now(), sent: HashMap::new(), received: HashMap::new() }
    }

    fn rank(&self, rank: u32) -> u32 {
        rank % self.nodes.len() as u32
    }

    /// Puts a rank's control messages in flight.
    fn flush(&mut self, from: u32) {
        while let Some(message) = self.nodes[from as usize].logger.poll_control() {
            self.nodes[message.to as usize].inbox.push_back((from, message));
        }
    }

    fn deliver(&mut self, to: u32) -> bool {
        self.now += Duration::from_millis(1);
        let node = &mut self.nodes[to as usize];
        let Some((from, message)) = node.inbox.pop_front() else { return false };
        node.logger.handle_control(from, message.kind, &message.bytes, self.now).unwrap();
        node.logger.answer_queries().unwrap();
        self.flush(to);
        true
    }

    fn progress(&mut self, rank: u32) {
        let logger = &mut self.nodes[rank as usize].logger;
        logger.check_counts().unwrap();
        logger.query_early().unwrap();
        logger.answer_queries().unwrap();
        logger.release_some(3, |_, _| ()).unwrap();
        self.flush(rank);
    }

    fn append(&mut self, rank: u32, stream: Stream, number: u64, bytes: usize) {
        let log = self.nodes[rank as usize].logger.log_mut().unwrap();
        let mut claim = log.try_claim(Rank(stream.peer), RecordTag::LEN, bytes).unwrap();
        let tag = stream.record_tag(number);
        claim.prefix_mut().copy_from_slice(&tag.encode());
        claim.commit();
    }

    fn send(&mut self, from: u32, to: u32, tag: i32, bytes: usize) {
        *self.sent.entry((from, to, tag)).or_default() += 1;
        let stream = Stream::new(to, WORLD, tag);
        let number = self.nodes[from as usize].logger.sent().next(stream);
        assert_eq!(number, self.sent[&(from, to, tag)]);
        self.append(from, stream, number, bytes);
        let node = &mut self.nodes[to as usize];
        let takes = |pending: &&mut Pending| {
            pending.matched.is_none()
                && pending.source.is_none_or(|source| source == from)
                && pending.tag.is_none_or(|own| own == tag)
        };
        match node.pending.iter_mut().find(takes) {
            Some(pending) => pending.matched = Some((from, tag, bytes)),
            None => node.unexpected.push_back((from, tag, bytes)),
        }
    }

    fn post(&mut self, rank: u32, source: Option<u32>, tag: Option<i32>) {
        let node = &mut self.nodes[rank as usize];
        let posted = node.logger.comms.post(node.world, source.map(|rank| rank as i32), tag).unwrap();
        let takes = |message: &&(u32, i32, usize)| {
            source.is_none_or(|own| own == message.0) && tag.is_none_or(|own| own == message.1)
        };
        let found = node.unexpected.iter().position(|message| takes(&message));
        let matched = found.and_then(|at| node.unexpected.remove(at));
        node.pending.push(Pending { posted, source, tag, matched });
    }

    /// Ends the `nth` of the receives with a message.
    fn receive(&mut self, rank: u32, nth: usize) -> bool {
        let node = &mut self.nodes[rank as usize];
        let ready: Vec<usize> = (0..node.pending.len()).filter(|&at| node.pending[at].matched.is_some()).collect();
        let Some(&at) = ready.get(nth % ready.len().max(1)) else { return false };
        let Pending { posted, matched, .. } = node.pending.remove(at);
        let (source, tag, bytes) = matched.unwrap();
        *self.received.entry((source, rank, tag)).or_default() += 1;
        let arrival = Arrival { source: source as i32, tag, bytes };
        node.logger.handle_receive_ended(node.world, posted, Some(arrival)).unwrap();
        self.flush(rank);
        true
    }

    fn collective(&mut self, root: u32, bytes: usize, synchronises: bool) {
        for rank in 0..self.nodes.len() as u32 {
            let world = self.nodes[rank as usize].world;
            let number = self.nodes[rank as usize].logger.handle_collective_begun(world).unwrap();
            if synchronises || rank == root {
                let stream = self.nodes[rank as usize].logger.contributions(world);
                self.append(rank, stream, number, bytes);
                self.nodes[rank as usize].logger.handle_contribution(world, number, bytes);
            }
        }
        for rank in 0..self.nodes.len() as u32 {
            let node = &mut self.nodes[rank as usize];
            node.logger.handle_collective_ended(node.world, synchronises).unwrap();
            self.flush(rank);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { from, to, tag, bytes } => self.send(self.rank(from), self.rank(to), tag, bytes),
            Step::Post { rank, source, tag } => {
                self.post(self.rank(rank), source.map(|source| self.rank(source)), tag);
            }
            Step::Receive { rank, nth } => {
                self.receive(self.rank(rank), nth);
            }
            Step::Collective { root, bytes, synchronises } => self.collective(self.rank(root), bytes, synchronises),
            Step::Deliver { to } => {
                self.deliver(self.rank(to));
            }
            Step::Progress { rank } => self.progress(self.rank(rank)),
        }
    }

    /// Checks that on no stream more records are released than the program has received messages.
    fn check_releases(&self) {
        for (from, node) in (0..).zip(&self.nodes) {
            let log = node.logger.log().unwrap();
            for to in 0..self.nodes.len() as u32 {
                let received: u64 = (0..2).map(|tag| self.received.get(&(from, to, tag)).copied().unwrap_or(0)).sum();
                if from != to {
                    assert!(log.acked(Rank(to)).0 <= received, "rank {from} has released unreceived messages to {to}");
                }
            }
        }
    }

    /// Receives everything, delivers everything and acknowledges everything, as at the end of a job.
    fn finish(&mut self) {
        let ranks = self.nodes.len() as u32;
        for rank in 0..ranks {
            while !self.nodes[rank as usize].unexpected.is_empty() {
                self.post(rank, None, None);
            }
            while self.receive(rank, 0) {}
            // Receives without a message to come are cancelled.
            let node = &mut self.nodes[rank as usize];
            for Pending { posted, .. } in std::mem::take(&mut node.pending) {
                node.logger.handle_receive_ended(node.world, posted, None).unwrap();
            }
            node.logger.acknowledge_all().unwrap();
            node.logger.complete_all_collectives().unwrap();
            self.flush(rank);
        }
        for rank in 0..ranks {
            while self.deliver(rank) {}
        }
        for node in &mut self.nodes {
            node.logger.check_counts().unwrap();
            node.logger.release_all(|_, _| ()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: scaled(1_000) as u32, ..ProptestConfig::default() })]

    #[test]
    fn no_record_is_released_before_its_message_is_received_and_all_are_at_the_end(
        ranks in 2..4_u32,
        steps in steps(),
    ) {
        let mut job = Job::new(ranks);
        for step in steps {
            job.step(step);
            job.check_releases();
        }
        job.finish();
        for (rank, node) in job.nodes.iter().enumerate() {
            prop_assert_eq!(node.logger.unacknowledged(), 0, "rank {}", rank);
            prop_assert!(!node.logger.has_pending_queries());
        }
        prop_assert_eq!(job.sent, job.received);
    }

    #[test]
    fn nothing_is_waited_for_from_a_failed_rank(steps in steps(), failing in 0..3_u32, at in 0..300_usize) {
        let mut job = Job::new(3);
        let mut is_failed = false;
        for (number, step) in steps.into_iter().enumerate() {
            if number == at {
                is_failed = true;
                for rank in (0..3).filter(|rank| *rank != failing) {
                    let node = &mut job.nodes[rank as usize];
                    node.inbox.retain(|(from, _)| *from != failing);
                    node.logger.handle_peer_failed(failing, job.now).unwrap();
                    job.flush(rank);
                }
            }
            let involves_failed = match step {
                Step::Send { from, to, .. } => from % 3 == failing || to % 3 == failing,
                Step::Post { rank, .. } | Step::Receive { rank, .. } | Step::Progress { rank } => rank % 3 == failing,
                Step::Collective { .. } => true,
                Step::Deliver { to } => to % 3 == failing,
            };
            if !is_failed || !involves_failed {
                job.step(step);
                job.check_releases();
            }
        }
        if !is_failed {
            return Ok(());
        }
        // Survivors waiting for space find records held by the failed rank only.
        for rank in (0..3_u32).filter(|rank| *rank != failing) {
            job.nodes[rank as usize].logger.query_for_space().unwrap();
            job.flush(rank);
        }
        for node in &mut job.nodes {
            prop_assert!(node.logger.poll_control().is_none_or(|message| message.to != failing));
        }
        for (rank, node) in job.nodes.iter_mut().enumerate().filter(|(rank, _)| *rank as u32 != failing) {
            node.logger.discard_for_failed().unwrap();
            let log = node.logger.log().unwrap();
            let lane = Rank(failing);
            prop_assert_eq!(log.acked(lane).next(), log.next_ssn(lane), "rank {}", rank);
        }
    }
}

/// Two ranks with full logs: each finds space as soon as the other has acknowledged.
#[test]
fn a_rank_that_waits_for_space_gets_it_from_a_peer_that_is_slow_to_acknowledge() {
    let mut job = Job::new(2);
    let bytes = 60_000;
    let mut sent = 0;
    while job.nodes[0].logger.check_space(1, bytes).is_ok() {
        job.send(0, 1, 0, bytes);
        job.post(1, Some(0), Some(0));
        sent += 1;
        assert!(sent < 10_000, "the log is never full");
    }
    // The peer has received everything, and its batches are in flight.
    while job.receive(1, 0) {}
    let refused = job.nodes[0].logger.check_space(1, bytes).unwrap_err();
    assert_eq!(job.nodes[0].logger.wait_for(&refused), counterfoil_mpi_logger::SpaceRefusal::Peers);
    job.nodes[0].logger.begin_wait(job.now);
    job.nodes[0].logger.query_for_space().unwrap();
    job.flush(0);
    assert!(matches!(job.nodes[0].logger.poll_space(1, bytes, job.now), Ok(SpacePoll::Pending { is_long: false, .. })));
    // The peer answers, its acknowledgements come first.
    while job.deliver(1) || job.deliver(0) {}
    job.nodes[0].logger.release_all(|_, _| ()).unwrap();
    assert!(matches!(job.nodes[0].logger.poll_space(1, bytes, job.now), Ok(SpacePoll::Ready)));
    assert!(job.nodes[0].logger.end_wait(job.now) < Duration::from_secs(1));
}

/// A rank with a full log whose peer does nothing gives up after the limit, and not before.
#[test]
fn a_wait_for_a_peer_that_replies_and_never_moves_is_given_up() {
    let mut job = Job::new(2);
    let bytes = 60_000;
    while job.nodes[0].logger.check_space(1, bytes).is_ok() {
        job.send(0, 1, 0, bytes);
    }
    let begun = job.now;
    job.nodes[0].logger.begin_wait(begun);
    for second in 0..60 {
        job.now = begun + Duration::from_secs(second);
        let polled = job.nodes[0].logger.poll_space(1, bytes, job.now).unwrap();
        job.flush(0);
        if let SpacePoll::Never(error) = polled {
            assert!(second >= DEADLOCK_AFTER.as_secs(), "{error} after {second} s");
            return;
        }
        while job.deliver(1) || job.deliver(0) {}
    }
    panic!("the wait is never given up");
}

/// Two pairs of partitioned requests on one stream, started in different orders by the ranks, and a plain message on
/// it: each message is acknowledged as its own pair's.
#[test]
fn partitioned_messages_are_counted_by_the_pair_of_their_init() {
    let mut job = Job::new(2);
    let (to, from) = (Stream::new(1, WORLD, 4), Stream::new(0, WORLD, 4));
    let sends = [(); 2].map(|()| job.nodes[0].logger.open_send_channel(to));
    let receives = [(); 2].map(|()| job.nodes[1].logger.open_receive_channel(from));
    for stream in [sends[1], sends[0], to, sends[1]] {
        let number = job.nodes[0].logger.sent().next(stream);
        job.append(0, stream, number, 10);
    }
    for (received, released) in [(receives[0], 0), (from, 0), (receives[1], 3), (receives[1], 4)] {
        let id = job.nodes[1].logger.received_id(received);
        job.nodes[1].logger.handle_received(id, 10);
        job.nodes[1].logger.acknowledge(0).unwrap();
        job.flush(1);
        while job.deliver(0) {}
        job.nodes[0].logger.check_counts().unwrap();
        job.nodes[0].logger.release_all(|_, _| ()).unwrap();
        assert_eq!(job.nodes[0].logger.log().unwrap().acked(Rank(1)).0, released, "{received:?}");
    }
}

/// Acknowledgements above the sent counts are noticed: messages not seen by the sender's library.
#[test]
fn a_count_above_the_messages_sent_is_an_error() {
    let mut job = Job::new(2);
    job.send(0, 1, 0, 10);
    job.post(1, Some(0), Some(0));
    job.receive(1, 0);
    let unseen = RecordTag { comm: WORLD, tag: 0, number: 2 }.encode();
    let logger = &mut job.nodes[0].logger;
    logger.handle_control(1, counterfoil_mpi_logger::ControlKind::Acks, &unseen, job.now).unwrap();
    let error = logger.check_counts().unwrap_err();
    assert!(error.to_string().contains("has received 2 messages") && error.to_string().contains("only 1"), "{error}");
    // A count that was only early, since its message was being sent, is no error.
    let mut job = Job::new(2);
    let logger = &mut job.nodes[0].logger;
    let early = RecordTag { comm: WORLD, tag: 0, number: 1 }.encode();
    logger.handle_control(1, counterfoil_mpi_logger::ControlKind::Acks, &early, job.now).unwrap();
    logger.sent().next(Stream::new(1, WORLD, 0));
    logger.check_counts().unwrap();
}
