//! The event logging rule, event by event: two ranks, their coordinator, and what they ask for.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Coordinator, DiscardReason, Effect, EntryKey, EntryKind, Incoming,
    Party, Protocol, ProtocolError, Snapshot, command_header,
};
use counterfoil_protocols::chandy_lamport::{Config, LineCoordinator};
use counterfoil_protocols::event_logging::EventLogging;

const RANKS: u32 = 2;
/// Attempt and execution in the report of a rank that has stopped for the first attempt.
const STOPPED_FIRST: (u8, u8) = (1, 0);
/// Most lines that are open before a rank offers no further one.
const LINES_MAX: u32 = 8;

/// Rank, with its checkpoints and its local log.
struct Node {
    rank: EventLogging,
    checkpoints: BTreeMap<Epoch, Vec<u8>>,
    entries: BTreeMap<EntryKey, Vec<u8>>,
    wants_checkpoint: bool,
    resumed: bool,
    /// Calls with an outcome that its log has forgotten, as last told.
    choices_discarded: Option<u64>,
}

/// Job whose control messages arrive at once, unless they are withheld.
struct Job {
    nodes: Vec<Node>,
    coordinator: LineCoordinator,
    /// Requests that have yet to arrive: destination, header, body.
    requests: Vec<(Rank, WireHeader, Vec<u8>)>,
    /// All orders and reports so far, each with its rank.
    orders: Vec<(Rank, Vec<u8>)>,
    reports: Vec<(Rank, Vec<u8>)>,
    /// Rank to which the coordinator's orders are lost.
    deaf: Option<Rank>,
}

impl Job {
    fn new() -> Job {
        let node = |rank| {
            let rank = EventLogging::new(Config::new(Rank(rank), RANKS, Incarnation(0))).unwrap();
            let first = rank.first_checkpoint().unwrap();
            let checkpoints = BTreeMap::from([(first.epoch, first.tables)]);
            Node {
                rank,
                checkpoints,
                entries: BTreeMap::new(),
                wants_checkpoint: false,
                resumed: false,
                choices_discarded: None,
            }
        };
        let mut job = Job {
            nodes: (0..RANKS).map(node).collect(),
            coordinator: LineCoordinator::new(RANKS, 0),
            requests: Vec::new(),
            orders: Vec::new(),
            reports: Vec::new(),
            deaf: None,
        };
        for (a, b) in [(0, 1), (1, 0)] {
            let hello = job.nodes[a].rank.hello(Rank(b as u32)).unwrap();
            job.nodes[b].rank.handle_hello(Rank(a as u32), &hello).unwrap();
        }
        job.settle();
        assert!(job.nodes.iter().all(|node| node.rank.is_running()));
        job
    }

    /// Carries out effects, and delivers control messages between ranks and coordinator, until there are none.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some((to, body)) = self.coordinator.poll_message() {
                moved = true;
                if self.deaf != Some(to) {
                    self.order(to, &body);
                    self.orders.push((to, body));
                }
            }
            for place in 0..self.nodes.len() {
                while let Some(effect) = self.nodes[place].rank.poll_effect() {
                    self.carry_out(place, effect);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn order(&mut self, to: Rank, body: &[u8]) {
        let header = command_header(to, body);
        self.nodes[to.index()].rank.handle_control(Party::Coordinator, &header, body).unwrap();
    }

    fn carry_out(&mut self, place: usize, effect: Effect) {
        let node = &mut self.nodes[place];
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => {
                self.coordinator.handle_control(Rank(place as u32), &body).unwrap();
                self.reports.push((Rank(place as u32), body));
            }
            Effect::Transmit { to: Party::Rank(to), header, body } => self.requests.push((to, header, body)),
            Effect::KeepEntry { entry, bytes } => drop(node.entries.insert(entry, bytes)),
            Effect::DiscardEntries { kind, first, last } => {
                node.entries.retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
            }
            Effect::KeepCheckpoints { first, last } => {
                node.checkpoints.retain(|epoch, _| (first..=last).contains(epoch));
            }
            Effect::RollBack { epoch } => {
                let tables = node.checkpoints[&epoch].clone();
                node.rank.restore(&tables, *node.checkpoints.keys().next().unwrap()).unwrap();
                node.recover();
            }
            Effect::SealLog { epoch } => node.rank.handle_log_sealed(epoch).unwrap(),
            Effect::TakeCheckpoint => node.wants_checkpoint = true,
            Effect::Resume => node.resumed = true,
            Effect::DiscardChoices { before } => node.choices_discarded = Some(before),
            Effect::Replay { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, from: u32, tag: i32) -> WireHeader {
        let envelope = Envelope { source: Rank(from), destination: Rank(1 - from), tag, comm: 0, len: 0 };
        let mut header = self.nodes[from as usize].rank.handle_send(&envelope).unwrap().header;
        self.nodes[from as usize].rank.handle_transmit(&mut header).unwrap();
        header
    }

    fn arrive(&mut self, header: WireHeader) -> Incoming {
        let node = &mut self.nodes[header.destination().index()];
        let verdict = node.rank.handle_message(&header).unwrap();
        if let Incoming::Deliver { keep: Some(entry) } = verdict {
            node.entries.insert(entry, header.as_bytes().to_vec());
        }
        self.settle();
        verdict
    }

    /// Takes a checkpoint, which is durable at once.
    fn checkpoint(&mut self, rank: usize) {
        let node = &mut self.nodes[rank];
        let Snapshot { epoch, tables } = node.rank.handle_checkpoint().unwrap();
        node.checkpoints.insert(epoch, tables);
        node.wants_checkpoint = false;
        node.rank.handle_checkpoint_durable(epoch).unwrap();
        self.settle();
    }

    /// Lets all requests arrive.
    fn deliver_requests(&mut self) {
        for (to, header, body) in std::mem::take(&mut self.requests) {
            let from = Party::Rank(header.source());
            self.nodes[to.index()].rank.handle_control(from, &header, &body).unwrap();
        }
        self.settle();
    }

    /// Replaces a rank: all go back.
    fn replace(&mut self, place: usize, incarnation: u32) {
        let config = Config::new(Rank(place as u32), RANKS, Incarnation(incarnation));
        let node = &mut self.nodes[place];
        node.rank = EventLogging::new(config).unwrap();
        let (newest, oldest) = (node.checkpoints.last_key_value().unwrap(), node.checkpoints.keys().next().unwrap());
        node.rank.restore(newest.1, *oldest).unwrap();
        node.recover();
        self.settle();
        self.requests.clear();
    }

    /// Commits a line that no message crosses.
    fn commit_line(&mut self) {
        self.checkpoint(0);
        self.checkpoint(1);
        self.deliver_requests();
    }

    /// Returns what a rank asks for, formatted, but for its reports to the coordinator.
    fn effects(&mut self, place: usize) -> Vec<String> {
        let rank = &mut self.nodes[place].rank;
        let effects = std::iter::from_fn(|| rank.poll_effect());
        let is_other = |effect: &Effect| !matches!(effect, Effect::Transmit { to: Party::Coordinator, .. });
        effects.filter(is_other).map(|effect| format!("{effect:?}")).collect()
    }

    fn committed(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.rank.committed().0).collect()
    }
}

impl Node {
    /// Presents the local log; messages that are presented to the program are in the result.
    fn recover(&mut self) -> Vec<WireHeader> {
        let entries = self.entries.clone().into_iter();
        let (notes, others): (Vec<_>, Vec<_>) = entries.partition(|(key, _)| key.kind == EntryKind::Note);
        let mut presented = Vec::new();
        for (key, bytes) in notes.into_iter().chain(others) {
            if self.rank.handle_recovered_entry(key, &bytes).unwrap() {
                presented.push(*WireHeader::parse(&bytes).unwrap());
            }
        }
        presented
    }

    fn copies(&self) -> usize {
        self.entries.keys().filter(|key| key.kind == EntryKind::Message).count()
    }
}

#[test]
fn a_line_is_committed_once_the_message_in_transit_over_it_is_copied() {
    let mut job = Job::new();
    let late = job.send(0, 7);
    job.checkpoint(0);
    job.deliver_requests();
    assert!(job.nodes[1].wants_checkpoint);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [1, 1]);
    let copied = EntryKey { kind: EntryKind::Message, number: 0 };
    assert_eq!(job.arrive(late), Incoming::Deliver { keep: Some(copied) });
    assert_eq!(job.committed(), [2, 2]);

    job.replace(0, 1);
    assert_eq!(job.nodes[1].rank.epoch(), Epoch(2));
    assert_eq!(job.nodes[1].copies(), 1);
    // It counts as received: the next line is not crossed by it.
    job.checkpoint(0);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[1].copies()), (vec![3, 3], 0));
}

/// libELC identifies messages in transit when the request arrives, after some were consumed.
#[test]
fn messages_between_a_checkpoint_and_the_request_are_copied_until_it_says_that_they_are_not_in_transit() {
    let mut job = Job::new();
    let late = job.send(0, 7);
    job.checkpoint(1);
    assert!(matches!(job.arrive(late), Incoming::Deliver { keep: Some(_) }));
    // Rank 0's checkpoint precedes this message, and its request comes later.
    job.checkpoint(0);
    let intra = job.send(0, 7);
    assert!(matches!(job.arrive(intra), Incoming::Deliver { keep: Some(_) }));
    assert_eq!(job.nodes[1].copies(), 2);
    job.deliver_requests();
    assert_eq!((job.nodes[1].copies(), job.committed()), (1, vec![2, 2]));
}

#[test]
fn an_orphan_is_discarded_once_when_it_is_sent_again() {
    let mut job = Job::new();
    job.checkpoint(0);
    let orphan = job.send(0, 7);
    assert_eq!(job.arrive(orphan), Incoming::Deliver { keep: None });
    job.deliver_requests();
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [2, 2]);

    job.replace(0, 1);
    let again = job.send(0, 7);
    assert_eq!(job.arrive(again), Incoming::Discard(DiscardReason::Orphan { ssn: orphan.ssn() }));
    let next = job.send(0, 7);
    assert_eq!(job.arrive(next), Incoming::Deliver { keep: None });
}

#[test]
fn a_message_of_an_undone_attempt_is_discarded() {
    let mut job = Job::new();
    let undone = job.send(0, 7);
    job.replace(1, 1);
    assert!(matches!(job.arrive(undone), Incoming::Discard(DiscardReason::DeadIncarnation { .. })));
}

/// Begins a collective at rank 1, which is an interval behind.
fn begin_behind(job: &mut Job) -> CollectiveCall {
    let call = CollectiveCall { class: CollectiveClass::Barrier, comm: 0, number: 0, uniform: true };
    job.checkpoint(0);
    let rank = &mut job.nodes[1].rank;
    assert!(matches!(rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 1, .. }));
    rank.handle_collective_words(&call, &[(Rank(0), 2), (Rank(1), 1)]).unwrap();
    job.settle();
    assert!(job.nodes[1].wants_checkpoint && std::mem::take(&mut job.nodes[1].resumed));
    assert_eq!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Hold);
    call
}

/// The average, rounded down, would be 1 (libELC, section 4.5.1).
#[test]
fn the_highest_interval_number_forces_a_checkpoint_before_a_collective() {
    let mut job = Job::new();
    let call = begin_behind(&mut job);
    job.checkpoint(1);
    assert!(job.nodes[1].resumed);
    assert!(matches!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 2, .. }));
    job.deliver_requests();
    assert_eq!(job.committed(), [2, 2]);
}

#[test]
fn a_line_that_a_collective_bisects_because_the_program_cannot_be_checkpointed_is_never_committed() {
    let mut job = Job::new();
    let call = begin_behind(&mut job);
    job.nodes[1].rank.handle_checkpoint_refused().unwrap();
    job.settle();
    assert!(job.nodes[1].resumed);
    assert_eq!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Native { keep: None });
    job.nodes[1].rank.handle_collective_completed(&call).unwrap();
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [1, 1]);
    job.checkpoint(1);
    job.deliver_requests();
    job.checkpoint(0);
    job.deliver_requests();
    assert_eq!(job.committed(), [3, 3]);
}

/// A replaced coordinator's orders may arrive after those of its successor.
#[test]
fn orders_and_reports_that_come_again_change_nothing() {
    let mut job = Job::new();
    job.commit_line();
    job.replace(0, 1);
    job.commit_line();
    job.checkpoint(0);
    assert_eq!(job.committed(), [3, 3]);
    let state = |job: &Job| {
        let state = |node: &Node| (node.rank.epoch(), node.rank.committed(), node.rank.is_running());
        job.nodes.iter().map(state).collect::<Vec<_>>()
    };
    let before = state(&job);
    for (to, body) in job.orders.clone() {
        job.order(to, &body);
        assert_eq!((job.effects(to.index()), state(&job)), (vec![], before.clone()), "{body:?}");
    }
    // But for those of a new process, whose second byte says so: each begins an attempt.
    for (from, body) in job.reports.clone().into_iter().filter(|(_, body)| body[1] == 0) {
        job.coordinator.handle_control(from, &body).unwrap();
        assert_eq!((job.coordinator.poll_message(), job.coordinator.is_recovering()), (None, false), "{body:?}");
    }
}

#[test]
fn a_restored_process_begins_an_attempt_also_the_first_one() {
    let mut job = Job::new();
    let mut rank = EventLogging::new(Config::new(Rank(0), RANKS, Incarnation(0))).unwrap();
    rank.restore(&job.nodes[0].checkpoints[&Epoch(1)], Epoch(1)).unwrap();
    let Some(Effect::Transmit { to: Party::Coordinator, body, .. }) = rank.poll_effect() else { panic!() };
    job.coordinator.handle_control(Rank(0), &body).unwrap();
    assert!(job.coordinator.is_recovering() && job.coordinator.poll_message().is_some());
}

#[test]
fn a_new_coordinator_commits_what_was_finished_under_the_last_one_and_nobody_goes_back() {
    let mut job = Job::new();
    job.commit_line();
    let incarnations = |job: &Job| job.nodes.iter().map(|node| node.rank.incarnation()).collect::<Vec<_>>();
    let before = incarnations(&job);
    // It doesn't hear from rank 0 before that has finished a line, and dies before its order to commit it arrives there.
    job.coordinator = LineCoordinator::new(RANKS, 1);
    job.deaf = Some(Rank(0));
    job.commit_line();
    assert_eq!((job.committed(), job.coordinator.is_recovering()), (vec![2, 3], false));
    job.deaf = None;
    job.coordinator = LineCoordinator::new(RANKS, 2);
    job.settle();
    assert_eq!(job.committed(), [3, 3]);
    assert_eq!((incarnations(&job), job.coordinator.line()), (before, None));
}

#[test]
fn a_rank_may_finish_a_line_before_another_has_finished_the_one_before() {
    let mut job = Job::new();
    (0..2).for_each(|_| [0, 1].into_iter().for_each(|rank| job.checkpoint(rank)));
    let (to_first, to_second): (Vec<_>, Vec<_>) =
        std::mem::take(&mut job.requests).into_iter().partition(|(to, ..)| *to == Rank(0));
    job.requests = to_first;
    job.deliver_requests();
    assert_eq!(job.committed(), [1, 1]);
    job.requests = to_second[..1].to_vec();
    job.deliver_requests();
    assert_eq!(job.committed(), [2, 2]);
    job.requests = to_second[1..].to_vec();
    job.deliver_requests();
    assert_eq!(job.committed(), [3, 3]);
}

#[test]
fn requests_wait_for_the_checkpoints_of_their_receiver() {
    let mut job = Job::new();
    (0..3).for_each(|_| job.checkpoint(0));
    // The last one comes twice, and asks once.
    job.requests.push(job.requests.last().unwrap().clone());
    for (_, header, body) in std::mem::take(&mut job.requests) {
        job.nodes[1].rank.handle_control(Party::Rank(Rank(0)), &header, &body).unwrap();
    }
    assert_eq!(job.effects(1), ["TakeCheckpoint"; 3]);
    (0..3).for_each(|_| job.checkpoint(1));
    job.deliver_requests();
    assert_eq!(job.committed(), [4, 4]);
}

#[test]
fn a_request_tells_of_a_commit_and_is_repeated_until_its_line_is_committed() {
    let mut job = Job::new();
    job.deaf = Some(Rank(1));
    job.commit_line();
    assert_eq!(job.committed(), [2, 1]);
    let requests = |job: &mut Job, at: usize| {
        let from = Rank(1 - at as u32);
        let hello = job.nodes[from.index()].rank.hello(Rank(at as u32)).unwrap();
        job.nodes[at].rank.handle_hello(from, &hello).unwrap();
        job.effects(at).iter().filter(|effect| effect.starts_with("Transmit")).count()
    };
    assert_eq!([requests(&mut job, 0), requests(&mut job, 1)], [0, 1]);
    job.checkpoint(0);
    assert_eq!(requests(&mut job, 0), 1);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [3, 2], "its own line is open still");
    assert_eq!([requests(&mut job, 0), requests(&mut job, 1)], [0, 1]);
    (0..2).for_each(|_| job.checkpoint(0));
    job.deliver_requests();
    assert_eq!(job.committed(), [3, 3]);
    assert_eq!([requests(&mut job, 0), requests(&mut job, 1)], [2, 0]);
}

#[test]
fn choices_are_forgotten_with_the_commit_of_the_newest_line_alone() {
    let mut job = Job::new();
    let rank = &mut job.nodes[0].rank;
    let sequence = rank.next_choice().sequence;
    rank.handle_choice(Determinant { sequence, source: Rank(1), ssn: Ssn(1) }).unwrap();
    job.checkpoint(0);
    job.checkpoint(0);
    assert_eq!(job.effects(0), [""; 0]);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[0].choices_discarded), (vec![2, 2], None));
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[0].choices_discarded), (vec![3, 3], Some(1)));
}

#[test]
fn no_more_checkpoints_are_taken_while_many_lines_are_open() {
    let mut job = Job::new();
    let mut open = 0;
    while job.nodes[0].rank.wants_checkpoint() {
        job.checkpoint(0);
        open += 1;
    }
    assert_eq!(open, LINES_MAX);
    (0..open).for_each(|_| job.checkpoint(1));
    job.deliver_requests();
    assert!(job.nodes[0].rank.wants_checkpoint());
}

#[test]
fn a_checkpoint_that_was_requested_in_a_call_is_taken_after_it() {
    for fails in [false, true] {
        let mut job = Job::new();
        job.nodes[1].resumed = false;
        let call = CollectiveCall { class: CollectiveClass::Barrier, comm: 0, number: 0, uniform: true };
        let rank = &mut job.nodes[1].rank;
        assert!(matches!(rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 1, .. }));
        rank.handle_collective_words(&call, &[(Rank(0), 1), (Rank(1), 1)]).unwrap();
        // Nothing has to precede the call, so a refusal is of no matter.
        rank.handle_checkpoint_refused().unwrap();
        assert_eq!(job.effects(1), [""; 0]);
        job.checkpoint(0);
        job.deliver_requests();
        assert!(!job.nodes[1].wants_checkpoint);
        let rank = &mut job.nodes[1].rank;
        let ended = if fails { rank.handle_collective_failed(&call) } else { rank.handle_collective_completed(&call) };
        ended.unwrap();
        job.settle();
        assert!(job.nodes[1].wants_checkpoint, "fails: {fails}");
        job.checkpoint(1);
        assert!(!job.nodes[1].resumed, "no call waits");
    }
}

#[test]
fn a_log_is_sealed_that_was_to_be_sealed() {
    let mut job = Job::new();
    job.checkpoint(0);
    for epoch in [1, 2, 3] {
        let refused = job.nodes[0].rank.handle_log_sealed(Epoch(epoch));
        assert_eq!(refused, Err(ProtocolError::NotSealing { epoch: Epoch(epoch) }));
    }
    job.checkpoint(1);
    job.deliver_requests();
    job.checkpoint(0);
    let refused = job.nodes[0].rank.handle_log_sealed(Epoch(3));
    assert_eq!(refused, Err(ProtocolError::NotSealing { epoch: Epoch(3) }));
}

#[test]
fn copies_are_numbered_above_those_of_the_dead_process() {
    let mut job = Job::new();
    let late = job.send(0, 7);
    job.commit_line();
    assert!(matches!(job.arrive(late), Incoming::Deliver { keep: Some(_) }));
    assert_eq!(job.committed(), [2, 2]);
    job.replace(1, 1);
    let late = job.send(0, 8);
    job.checkpoint(1);
    let Incoming::Deliver { keep: Some(entry) } = job.arrive(late) else { panic!("not copied") };
    assert_eq!(entry.number, 1);
}

#[test]
fn a_transmission_has_the_number_of_the_process_and_of_its_rollbacks() {
    let mut job = Job::new();
    let mut early = job.send(1, 7);
    for rollbacks in 1..3 {
        job.replace(0, rollbacks);
        let number = [rollbacks << 16, rollbacks].map(Incarnation);
        assert_eq!([0, 1].map(|rank: usize| job.nodes[rank].rank.incarnation()), number);
    }
    job.nodes[1].rank.handle_transmit(&mut early).unwrap();
    assert_eq!(early.incarnation(), Incarnation(2));
    assert!(job.nodes[0].rank.handle_transmit(&mut early).is_err(), "it is another rank's");
}

#[test]
fn ranks_outside_of_the_job_are_refused() {
    let mut job = Job::new();
    let hello = job.nodes[1].rank.hello(Rank(0)).unwrap();
    let rank = &mut job.nodes[0].rank;
    for other in [Rank(0), Rank(RANKS)] {
        assert!(rank.handle_peer_lost(other).is_err() && rank.hello(other).is_err());
        assert!(rank.handle_hello(other, &hello).is_err());
    }
    assert!(rank.handle_peer_lost(Rank(1)).is_ok());
}

#[test]
fn what_a_rank_finished_in_an_undone_attempt_commits_nothing() {
    let mut job = Job::new();
    job.commit_line();
    let requests_to = |job: &mut Job, rank| {
        job.requests.retain(|(to, ..)| *to == Rank(rank));
        job.deliver_requests();
    };
    let attempt = |job: &mut Job, rank| {
        job.checkpoint(0);
        job.checkpoint(1);
        requests_to(job, rank);
    };
    attempt(&mut job, 1);
    let (from, finished) = job.reports.last().unwrap().clone();
    assert_eq!(from, Rank(1));
    job.replace(0, 1);
    attempt(&mut job, 0);
    assert_eq!(job.committed(), [2, 2]);
    job.coordinator.handle_control(from, &finished).unwrap();
    assert_eq!(job.coordinator.poll_message(), None);
}

#[test]
fn that_a_rank_stopped_in_an_earlier_attempt_does_not_count() {
    let mut job = Job::new();
    let stopped: Vec<_> = job.reports.iter().filter(|(_, body)| (body[2], body[5]) == STOPPED_FIRST).cloned().collect();
    assert_eq!(stopped.len(), 2);
    let mut rank = EventLogging::new(Config::new(Rank(0), RANKS, Incarnation(1))).unwrap();
    rank.restore(&job.nodes[0].checkpoints[&Epoch(1)], Epoch(1)).unwrap();
    let Some(Effect::Transmit { to: Party::Coordinator, body, .. }) = rank.poll_effect() else { panic!() };
    job.coordinator.handle_control(Rank(0), &body).unwrap();
    while job.coordinator.poll_message().is_some() {}
    for (from, body) in stopped {
        job.coordinator.handle_control(from, &body).unwrap();
        assert_eq!(job.coordinator.poll_message(), None);
    }
}

#[test]
fn a_copy_that_is_not_in_transit_over_the_line_is_dropped_at_a_restart() {
    let mut job = Job::new();
    let copies = [7, 8].map(|tag| job.send(0, tag));
    job.checkpoint(1);
    copies.into_iter().for_each(|copy| assert!(matches!(job.arrive(copy), Incoming::Deliver { keep: Some(_) })));
    job.checkpoint(0);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[1].copies()), (vec![2, 2], 2));
    // One that the dead process had yet to drop.
    let message = job.send(0, 9);
    let number = EntryKey { kind: EntryKind::Message, number: 2 };
    job.nodes[1].entries.insert(number, message.as_bytes().to_vec());
    job.replace(1, 1);
    assert_eq!(job.nodes[1].copies(), 2);
    assert!(!job.nodes[1].entries.contains_key(&number));
}
