//! Statements about the coordinated rule, each shown on two state machines and their initiator, without a network.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::{Flags, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Coordinator, DiscardReason, Effect, EntryKey, EntryKind, Floor,
    Incoming, Misbehaviour, Party, Protocol, ProtocolError, RestoreError, Transmission, command_header,
};
use counterfoil_protocols::coordinated::{Bits, Config, Coordinated, Initiator, Moment};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

fn config(rank: Rank, incarnation: u32) -> Config {
    let (moment, bits) = (Moment::Offered, Bits::Piggybacked);
    Config { rank, ranks: 2, incarnation: Incarnation(incarnation), moment, bits, canary: None }
}

/// Two ranks and their initiator, with what they have on stable storage.
struct Job {
    ranks: Vec<Coordinated>,
    initiator: Initiator,
    entries: Vec<BTreeMap<EntryKey, Vec<u8>>>,
    checkpoints: Vec<BTreeMap<Epoch, Vec<u8>>>,
    /// Orders and counts that haven't arrived, by rank.
    waiting: Vec<Vec<(Party, WireHeader, Vec<u8>)>>,
    /// Rank that gets nothing for now.
    deaf: Option<Rank>,
    /// All orders and statuses so far, each with its rank.
    orders: Vec<(Rank, Vec<u8>)>,
    statuses: Vec<(Rank, Vec<u8>)>,
}

impl Job {
    /// Starts a job, whose ranks execute.
    fn new() -> Job {
        let ranks: Vec<Coordinated> = [A, B].map(|rank| Coordinated::new(config(rank, 0)).unwrap()).into();
        let first = |rank: &Coordinated| {
            let first = rank.first_checkpoint().unwrap();
            BTreeMap::from([(first.epoch, first.tables)])
        };
        let checkpoints = ranks.iter().map(first).collect();
        let (entries, waiting) = (vec![BTreeMap::new(); 2], vec![Vec::new(); 2]);
        let initiator = Initiator::new(2, 0, None);
        let (orders, statuses) = (Vec::new(), Vec::new());
        let mut job = Job { ranks, initiator, entries, checkpoints, waiting, deaf: None, orders, statuses };
        job.connect();
        job.settle();
        assert!(job.ranks.iter().all(Protocol::is_running));
        job
    }

    fn rank(&mut self, rank: Rank) -> &mut Coordinated {
        &mut self.ranks[rank.index()]
    }

    fn connect(&mut self) {
        for (from, to) in [(A, B), (B, A)] {
            let hello = self.rank(from).hello(to).unwrap();
            self.rank(to).handle_hello(from, &hello).unwrap();
        }
    }

    /// Carries out all effects, until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for rank in [A, B] {
                while let Some(effect) = self.rank(rank).poll_effect() {
                    moved = true;
                    self.carry_out(rank, effect);
                }
            }
            while let Some((rank, body)) = self.initiator.poll_message() {
                self.orders.push((rank, body.clone()));
                self.waiting[rank.index()].push((Party::Coordinator, command_header(rank, &body), body));
            }
            let deaf = self.deaf;
            for rank in [A, B].into_iter().filter(|&rank| deaf != Some(rank)) {
                for (from, header, body) in std::mem::take(&mut self.waiting[rank.index()]) {
                    moved = true;
                    self.rank(rank).handle_control(from, &header, &body).unwrap();
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn carry_out(&mut self, rank: Rank, effect: Effect) {
        let at = rank.index();
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => {
                self.initiator.handle_control(rank, &body).unwrap();
                self.statuses.push((rank, body));
            }
            Effect::Transmit { to: Party::Rank(to), header, body } => {
                self.waiting[to.index()].push((Party::Rank(rank), header, body));
            }
            Effect::KeepEntry { entry, bytes } => drop(self.entries[at].insert(entry, bytes)),
            Effect::DiscardEntries { kind, first, last } => {
                self.entries[at].retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
            }
            Effect::KeepCheckpoints { first, last } => {
                self.checkpoints[at].retain(|epoch, _| (first..=last).contains(epoch));
            }
            Effect::SealLog { epoch } => self.rank(rank).handle_log_sealed(epoch).unwrap(),
            Effect::RollBack { epoch } => self.restore(rank, epoch),
            _ => {}
        }
    }

    /// Restores a rank, and connects it with the other.
    fn restore(&mut self, rank: Rank, epoch: Epoch) {
        let at = rank.index();
        let (tables, entries) = (self.checkpoints[at][&epoch].clone(), self.entries[at].clone());
        let oldest = *self.checkpoints[at].keys().next().unwrap();
        self.rank(rank).restore(&tables, oldest).unwrap();
        for (key, bytes) in &entries {
            self.rank(rank).handle_recovered_entry(*key, bytes).unwrap();
        }
        self.connect();
    }

    /// Replaces the process of a rank.
    fn kill(&mut self, rank: Rank) {
        self.ranks[rank.index()] = Coordinated::new(config(rank, 1)).unwrap();
        self.waiting[rank.index()].clear();
        let newest = *self.checkpoints[rank.index()].keys().last().unwrap();
        self.restore(rank, newest);
    }

    fn send(&mut self, from: Rank, to: Rank) -> (WireHeader, Transmission) {
        let envelope = Envelope { source: from, destination: to, tag: 0, comm: 0, len: 8 };
        let outgoing = self.rank(from).handle_send(&envelope).unwrap();
        (outgoing.header, outgoing.transmission)
    }

    /// Delivers a message, and keeps a copy if it is to be kept.
    fn deliver(&mut self, header: &WireHeader) -> Incoming {
        let to = header.destination();
        let incoming = self.rank(to).handle_message(header).unwrap();
        if let Incoming::Deliver { keep: Some(entry) } = incoming {
            self.entries[to.index()].insert(entry, header.as_bytes().to_vec());
        }
        incoming
    }

    fn begin_line(&mut self) {
        assert!(self.initiator.begin_collection(Floor::ByLine));
        self.settle();
    }

    fn checkpoint(&mut self, rank: Rank) {
        assert!(self.rank(rank).wants_checkpoint());
        let snapshot = self.rank(rank).handle_checkpoint().unwrap();
        self.checkpoints[rank.index()].insert(snapshot.epoch, snapshot.tables);
        self.rank(rank).handle_checkpoint_durable(snapshot.epoch).unwrap();
        self.settle();
    }

    /// Commits a line, without messages that cross it.
    fn commit_line(&mut self) {
        self.begin_line();
        self.checkpoint(A);
        self.checkpoint(B);
    }

    /// Presents all orders again: those of earlier executions, as from an initiator that was replaced, and those of this one for lines.
    /// Returns what the ranks do, but for their statuses.
    fn repeat_orders(&mut self, to: Rank) -> Vec<String> {
        let attempt = self.orders.last().unwrap().1[2];
        let mut effects = Vec::new();
        for (rank, body) in self.orders.clone().into_iter().filter(|(rank, _)| *rank == to) {
            if (body[1], body[2]) != (ORDER_LINE, attempt) {
                self.rank(rank).handle_control(Party::Coordinator, &command_header(rank, &body), &body).unwrap();
                effects.extend(std::iter::from_fn(|| self.rank(rank).poll_effect()));
            }
        }
        effects.retain(|effect| !matches!(effect, Effect::Transmit { to: Party::Coordinator, .. }));
        effects.iter().map(|effect| format!("{effect:?}")).collect()
    }

    /// Returns epoch, committed line and phase of each rank, and whether it executes.
    fn states(&self) -> Vec<(Epoch, Epoch, u32, bool)> {
        let state = |rank: &Coordinated| (rank.epoch(), rank.committed(), rank.phase_of_line(), rank.is_running());
        self.ranks.iter().map(state).collect()
    }
}

/// Number of the order to go back to a line; the attempt follows it.
const ORDER_LINE: u8 = 2;

const PLAIN: Incoming = Incoming::Deliver { keep: None };

#[test]
fn a_late_message_is_logged_and_comes_back_and_an_early_one_is_not_sent_again() {
    let mut job = Job::new();
    job.begin_line();
    let (late, _) = job.send(A, B);
    job.checkpoint(B);
    let (early, _) = job.send(B, A);
    assert_eq!(job.deliver(&early), PLAIN);
    job.checkpoint(A);
    assert_eq!(job.initiator.open_line(), Some((Epoch(2), vec![A, B])));
    let entry = EntryKey { kind: EntryKind::Message, number: 2 << 32 };
    assert_eq!(job.deliver(&late), Incoming::Deliver { keep: Some(entry) });
    job.settle();
    assert_eq!((job.initiator.open_line(), job.ranks[0].committed()), (None, Epoch(2)));

    job.kill(A);
    job.settle();
    assert!(job.ranks.iter().all(Protocol::is_running));
    assert_eq!(job.ranks[1].hello(A).unwrap().received.upto(), late.ssn(), "the log has it");
    let (again, transmission) = job.send(B, A);
    assert_eq!((again.ssn(), transmission), (early.ssn(), Transmission::Suppress));
    assert_eq!(job.send(B, A).1, Transmission::Now);
}

#[test]
fn logging_ends_with_the_first_message_of_a_rank_that_has_ended_it() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(A);
    // B has A's counts, and is ready: only the order to stop doesn't come.
    job.deaf = Some(B);
    job.checkpoint(B);
    let phases = |job: &Job| [job.ranks[0].phase_of_line(), job.ranks[1].phase_of_line()];
    assert_eq!(phases(&job), [4, 3], "A has stopped, B logs");
    let before = job.rank(B).next_choice().sequence;
    let (message, _) = job.send(A, B);
    assert!(!message.flags().contains(Flags::AM_LOGGING));
    assert_eq!(job.deliver(&message), PLAIN);
    assert_eq!(phases(&job), [4, 4]);
    // Nothing that depends on the message is in the log; the order, when it comes, changes nothing.
    job.rank(B).handle_choice(Determinant { sequence: before, source: A, ssn: message.ssn() }).unwrap();
    job.deaf = None;
    job.settle();
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    job.kill(B);
    job.settle();
    assert_eq!(job.rank(B).next_choice().forced, None);
}

#[test]
fn outcomes_are_forced_as_far_as_they_were_logged() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    let choices = [0, 1].map(|_| job.rank(B).next_choice().sequence);
    let outcome = |sequence, ssn| Determinant { sequence, source: A, ssn: Ssn(ssn) };
    assert_eq!(job.rank(B).handle_choice(outcome(choices[0], 7)), Ok(None));
    job.checkpoint(A);
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    assert_eq!(job.rank(B).handle_choice(outcome(choices[1], 8)), Ok(None));
    job.begin_line();
    job.kill(A);
    job.settle();
    // No checkpoint is taken with a part of the log still to be repeated.
    job.begin_line();
    assert!(job.ranks[0].wants_checkpoint() && !job.ranks[1].wants_checkpoint());
    let forced = [0, 1].map(|_| job.rank(B).next_choice().forced);
    assert_eq!(forced, [Some(outcome(choices[0], 7)), None]);
    assert!(job.ranks[1].wants_checkpoint());
}

#[test]
fn messages_of_an_undone_execution_are_dropped_and_early_ones_of_the_next_held() {
    let mut job = Job::new();
    let (undone, _) = job.send(A, B);
    job.kill(A);
    assert_eq!(job.rank(B).handle_message(&undone), Ok(PLAIN), "it isn't known yet");
    job.settle();
    let dropped = job.rank(B).handle_message(&undone);
    assert!(matches!(dropped, Ok(Incoming::Discard(DiscardReason::DeadIncarnation { .. }))), "{dropped:?}");
    let (message, _) = job.send(A, B);
    assert_eq!(job.deliver(&message), PLAIN);
    let again = job.rank(B).handle_message(&message);
    assert!(matches!(again, Ok(Incoming::Discard(DiscardReason::Duplicate { .. }))), "{again:?}");
    // A replacement that hasn't heard of the line holds what comes.
    let mut fresh = Coordinated::new(config(B, 2)).unwrap();
    assert_eq!(fresh.handle_message(&message), Ok(Incoming::Hold));
}

#[test]
fn a_message_that_no_open_line_allows_is_refused() {
    let mut job = Job::new();
    let (before, _) = job.send(A, B);
    job.begin_line();
    job.checkpoint(B);
    job.checkpoint(A);
    assert!(matches!(job.deliver(&before), Incoming::Deliver { keep: Some(_) }));
    job.settle();
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    let (sent_in, received_in) = (Epoch(1), Epoch(2));
    let how = Misbehaviour::OutOfLine { sent_in, received_in };
    assert_eq!(job.rank(B).handle_message(&before), Err(ProtocolError::PeerMisbehaved { peer: A, how }));
}

#[test]
fn a_new_initiator_goes_on_with_an_open_line_and_with_half_a_commit() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    job.initiator = Initiator::new(2, 1, None);
    job.settle();
    assert_eq!(job.initiator.open_line(), Some((Epoch(2), vec![A, B])));
    job.deaf = Some(A);
    job.checkpoint(A);
    // Only B has heard of the stop: the order to A is lost with the initiator.
    job.waiting[0].clear();
    job.initiator = Initiator::new(2, 2, None);
    job.deaf = None;
    job.settle();
    assert_eq!([job.ranks[0].committed(), job.ranks[1].committed()], [Epoch(2); 2]);
    assert!(job.ranks.iter().all(Protocol::is_running), "nobody has rolled back");
}

/// A replaced initiator's orders may arrive after those of its successor.
#[test]
fn orders_that_come_again_change_nothing() {
    let mut job = Job::new();
    job.commit_line();
    job.kill(A);
    job.settle();
    job.commit_line();
    job.begin_line();
    job.checkpoint(A);
    let before = job.states();
    assert_eq!(before, [(Epoch(4), Epoch(3), 2, true), (Epoch(3), Epoch(3), 1, true)]);
    for rank in [A, B] {
        assert_eq!(job.repeat_orders(rank), [""; 0]);
    }
    assert_eq!(job.states(), before);
    // Nor do they move a rank that has stopped because it has lost a peer.
    job.rank(B).handle_peer_lost(A).unwrap();
    job.rank(B).handle_peer_lost(A).unwrap();
    let stopped = (Epoch(3), Epoch(3), 1, false);
    assert_eq!((job.states()[1], job.repeat_orders(B)), (stopped, vec![]));
    assert_eq!(job.states()[1], stopped);
}

#[test]
fn a_rank_that_has_stopped_does_nothing_for_the_line_that_was_open() {
    let mut job = Job::new();
    job.deaf = Some(B);
    job.begin_line();
    job.rank(B).handle_peer_lost(A).unwrap();
    job.deaf = None;
    let (from, header, body) = job.waiting[1].pop().unwrap();
    job.rank(B).handle_control(from, &header, &body).unwrap();
    assert!(!job.rank(B).wants_checkpoint());
}

#[test]
fn a_loss_that_was_reported_in_an_earlier_execution_is_not_another_one() {
    let mut job = Job::new();
    assert_eq!(job.initiator.line(), Some((1, &[Some(1), Some(1)][..])));
    job.commit_line();
    job.rank(B).handle_peer_lost(A).unwrap();
    job.kill(A);
    job.settle();
    assert_eq!(job.initiator.line(), Some((2, &[Some(2), Some(2)][..])));
    // The second byte says that the rank has lost a peer, the third is the attempt.
    let lost = job.statuses.iter().filter(|(_, body)| body[1] == 1 && body[2] != 0).cloned().collect::<Vec<_>>();
    assert!(!lost.is_empty());
    for (rank, body) in lost {
        job.initiator.handle_control(rank, &body).unwrap();
    }
    assert!(job.initiator.poll_message().is_none() && !job.initiator.is_recovering());
}

#[test]
fn the_initiator_tells_what_it_is_about() {
    let mut job = Job::new();
    assert!(job.initiator.makes_checkpoints());
    let says = |job: &Job| (job.initiator.is_collecting(), job.initiator.is_recovering());
    assert_eq!(says(&job), (false, false));
    job.begin_line();
    assert_eq!((says(&job), job.initiator.begin_collection(Floor::ByLine)), ((true, false), false));
    job.checkpoint(A);
    job.deaf = Some(B);
    job.checkpoint(B);
    assert_eq!(job.initiator.open_line(), Some((Epoch(2), vec![B])), "A has stopped logging");
    job.rank(B).handle_peer_lost(A).unwrap();
    let Some(Effect::Transmit { body, .. }) = job.rank(B).poll_effect() else { panic!("no status") };
    job.initiator.handle_control(B, &body).unwrap();
    assert_eq!(says(&job), (false, true));
    let fresh = Initiator::new(2, 0, None);
    assert_eq!((fresh.is_recovering(), fresh.line()), (true, None));
}

#[test]
fn a_checkpoint_is_durable_once_and_its_log_sealed_once() {
    let mut job = Job::new();
    let refused = |epoch| Err(ProtocolError::NotCheckpointing { epoch: Epoch(epoch) });
    assert_eq!(job.rank(A).handle_checkpoint_durable(Epoch(1)), refused(1));
    job.begin_line();
    let snapshot = job.rank(A).handle_checkpoint().unwrap();
    assert_eq!(job.rank(A).handle_checkpoint_durable(Epoch(1)), refused(1));
    assert_eq!(job.rank(A).handle_checkpoint_durable(snapshot.epoch), Ok(()));
    assert_eq!(job.rank(A).handle_checkpoint_durable(snapshot.epoch), refused(2));
    job.checkpoints[0].insert(snapshot.epoch, snapshot.tables);
    job.checkpoint(B);
    assert_eq!(job.states(), [(Epoch(2), Epoch(2), 0, true); 2]);
    for epoch in [1, 2, 3] {
        job.rank(A).handle_log_sealed(Epoch(epoch)).unwrap();
        assert!(job.rank(A).poll_effect().is_none(), "the log of {epoch} isn't being sealed");
    }
}

/// The process died after it noted the commit, and before it dropped the older checkpoint.
#[test]
fn a_note_tells_the_committed_line_and_the_incarnation_grows_with_each_rollback() {
    let mut job = Job::new();
    let start = job.checkpoints[0][&Epoch(1)].clone();
    job.commit_line();
    job.checkpoints[0].insert(Epoch(1), start);
    let survivor = job.ranks[1].incarnation();
    job.kill(A);
    assert_eq!(job.ranks[0].committed(), Epoch(2));
    job.settle();
    let after = job.ranks[1].incarnation();
    assert!(after > survivor, "{survivor:?} {after:?}");
    job.kill(A);
    job.settle();
    assert!(job.ranks[1].incarnation() > after);
}

#[test]
fn records_from_before_the_line_are_released_once_after_a_restart() {
    let mut job = Job::new();
    let released = |job: &mut Job| {
        let effects: Vec<_> = std::iter::from_fn(|| job.rank(B).poll_effect()).collect();
        effects.iter().filter(|effect| matches!(effect, Effect::Acknowledged { .. })).count()
    };
    let hello = job.rank(A).hello(B).unwrap();
    job.rank(B).handle_hello(A, &hello).unwrap();
    assert_eq!(released(&mut job), 0, "no message precedes the start");
    let (message, _) = job.send(B, A);
    assert_eq!(job.deliver(&message), PLAIN);
    job.commit_line();
    let tables = job.checkpoints[1][&Epoch(2)].clone();
    job.rank(B).restore(&tables, Epoch(2)).unwrap();
    for expected in [1, 0] {
        let hello = job.rank(A).hello(B).unwrap();
        job.rank(B).handle_hello(A, &hello).unwrap();
        assert_eq!(released(&mut job), expected);
    }
}

#[test]
fn a_record_of_another_rank_is_not_transmitted() {
    let mut job = Job::new();
    let (mut header, _) = job.send(A, B);
    let (sent, epoch) = (header, job.ranks[0].epoch());
    job.rank(A).handle_transmit(&mut header).unwrap();
    assert_eq!((header.as_bytes(), epoch), (sent.as_bytes(), Epoch(1)), "unchanged");
    assert!(job.rank(B).handle_transmit(&mut header).is_err());
    let refused = job.rank(A).handle_recovered_choice(&[1, 2]);
    assert!(refused.is_err(), "outcomes are in the log: {refused:?}");
}

/// Makes a call at both ranks.
fn make_call(job: &mut Job, call: &CollectiveCall, of: [(u32, bool); 2]) {
    for rank in [A, B] {
        let entry = job.rank(rank).handle_collective_words(call, &words(of)).unwrap();
        if let Some(entry) = entry {
            job.entries[rank.index()].insert(entry, Vec::new());
        }
        job.rank(rank).handle_collective_completed(call).unwrap();
    }
    job.settle();
}

#[test]
fn calls_before_the_line_count_after_a_restart() {
    let mut job = Job::new();
    let call = |number| CollectiveCall { class: CollectiveClass::AllToAll, comm: 5, number, uniform: true };
    (0..3).for_each(|number| make_call(&mut job, &call(number), [(1, false); 2]));
    job.commit_line();
    job.kill(A);
    job.settle();
    job.commit_line();
    assert_eq!(job.states(), [(Epoch(3), Epoch(3), 0, true); 2]);
}

#[test]
fn no_checkpoint_is_taken_before_the_logged_results_are_used_the_calls_skipped_and_the_early_messages_made() {
    // B keeps the result of the first: data came from behind its line. Of the second, A has B's data.
    for class in [Some(CollectiveClass::AllToAll), Some(CollectiveClass::ToRoot(A)), None] {
        let mut job = Job::new();
        let call = class.map(|class| CollectiveCall { class, comm: 0, number: 0, uniform: true });
        job.begin_line();
        job.checkpoint(B);
        match &call {
            Some(call) => make_call(&mut job, call, [(1, false), (2, true)]),
            None => {
                let (early, _) = job.send(B, A);
                assert_eq!(job.deliver(&early), PLAIN);
            }
        }
        job.checkpoint(A);
        assert_eq!(job.ranks[1].committed(), Epoch(2));
        job.kill(A);
        job.settle();
        job.begin_line();
        assert!(job.rank(A).wants_checkpoint() && !job.rank(B).wants_checkpoint(), "{class:?}");
        match call {
            Some(call) => {
                let plan = match call.class {
                    CollectiveClass::AllToAll => {
                        CollectivePlan::Recorded(EntryKey { kind: EntryKind::Collective, number: 2 << 32 })
                    }
                    _ => CollectivePlan::Skip,
                };
                assert_eq!(job.rank(B).handle_collective(&call), Ok(plan));
                job.rank(B).handle_collective_completed(&call).unwrap();
            }
            None => assert_eq!(job.send(B, A).1, Transmission::Suppress),
        }
        assert!(job.rank(B).wants_checkpoint(), "{class:?}");
    }
}

#[test]
fn a_new_initiator_repeats_a_commit_that_a_rank_has_not_heard_of_and_begins_nothing() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(A);
    job.checkpoint(B);
    job.begin_line();
    job.checkpoint(A);
    job.deaf = Some(A);
    job.checkpoint(B);
    // A has B's counts and the order to stop, and not that to commit.
    while job.ranks[1].committed() < Epoch(3) {
        let (from, header, body) = job.waiting[0].remove(0);
        job.rank(A).handle_control(from, &header, &body).unwrap();
        job.settle();
    }
    assert_eq!([job.ranks[0].committed(), job.ranks[1].committed()], [Epoch(2), Epoch(3)]);
    job.waiting[0].clear();
    job.deaf = None;
    for replaced in [1, 2] {
        let before = job.orders.len();
        job.initiator = Initiator::new(2, replaced, None);
        job.settle();
        assert_eq!(job.states(), [(Epoch(3), Epoch(3), 0, true); 2]);
        assert!(!job.initiator.is_collecting());
        // It asks both, and tells both of the commit once.
        assert_eq!(job.orders.len() - before, if replaced == 1 { 4 } else { 2 });
    }
}

#[test]
fn a_connection_in_a_job_without_an_open_line_tells_no_counts_and_releases_nothing() {
    let mut job = Job::new();
    let mut fresh = Coordinated::new(config(A, 0)).unwrap();
    let hello = job.rank(B).hello(A).unwrap();
    for rank in [&mut fresh, job.rank(A)] {
        rank.handle_hello(B, &hello).unwrap();
        let effects: Vec<_> = std::iter::from_fn(|| rank.poll_effect()).collect();
        assert!(effects.iter().all(|effect| matches!(effect, Effect::Replay { .. })), "{effects:?}");
    }
}

#[test]
fn what_the_words_of_a_failed_call_said_is_forgotten() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    let call = CollectiveCall { class: CollectiveClass::AllToAll, comm: 0, number: 0, uniform: true };
    assert!(job.rank(B).handle_collective_words(&call, &words([(1, false), (2, true)])).unwrap().is_some());
    job.rank(B).handle_collective_failed(&call).unwrap();
    job.rank(B).handle_collective_completed(&call).unwrap();
    job.rank(A).handle_collective_completed(&call).unwrap();
    job.checkpoint(A);
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    job.kill(A);
    job.settle();
    let plan = job.rank(B).handle_collective(&call).unwrap();
    assert!(!matches!(plan, CollectivePlan::Recorded(_)), "{plan:?}");
}

#[test]
fn a_result_that_no_open_line_allows_is_refused() {
    let mut job = Job::new();
    job.commit_line();
    let call = CollectiveCall { class: CollectiveClass::AllToAll, comm: 0, number: 0, uniform: true };
    let how = Misbehaviour::OutOfLine { sent_in: Epoch(1), received_in: Epoch(2) };
    let refused = job.rank(B).handle_collective_words(&call, &words([(1, false), (2, false)]));
    assert_eq!(refused, Err(ProtocolError::PeerMisbehaved { peer: A, how }));
}

/// Returns the words of a call, by rank: epoch and amLogging.
fn words(of: [(u32, bool); 2]) -> Vec<(Rank, u64)> {
    [A, B]
        .into_iter()
        .zip(of)
        .map(|(rank, (epoch, logging))| (rank, u64::from(epoch) << 1 | u64::from(logging)))
        .collect()
}

#[test]
fn a_call_is_logged_where_its_data_crosses_the_line() {
    let all = |class| CollectiveCall { class, comm: 0, number: 0, uniform: true };
    // Rank B is beyond the line, and logs.
    let kept = |class| {
        let mut job = Job::new();
        job.begin_line();
        job.checkpoint(B);
        let call = all(class);
        assert!(matches!(job.rank(B).handle_collective(&call), Ok(CollectivePlan::Piggyback { .. })));
        let words = words([(1, false), (2, true)]);
        let come = words.into_iter().filter(|(from, _)| *from == B || class.flows(*from, B));
        job.rank(B).handle_collective_words(&call, &come.collect::<Vec<_>>()).unwrap()
    };
    let entry = Some(EntryKey { kind: EntryKind::Collective, number: 2 << 32 });
    for class in
        [CollectiveClass::AllToAll, CollectiveClass::Barrier, CollectiveClass::FromRoot(A), CollectiveClass::ToRoot(B)]
    {
        assert_eq!(kept(class), entry, "{class:?}");
    }
    assert_eq!(kept(CollectiveClass::FromRoot(B)), None);
    assert_eq!(kept(CollectiveClass::ToRoot(A)), None);
}

#[test]
fn a_rank_is_ready_only_when_it_has_made_the_calls_that_others_made_before_the_line() {
    let call = CollectiveCall { class: CollectiveClass::FromRoot(A), comm: 3, number: 0, uniform: false };
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    // The root has made the call before its checkpoint, and waits for nobody.
    job.rank(A).handle_collective_words(&call, &[(A, 1 << 1)]).unwrap();
    job.rank(A).handle_collective_completed(&call).unwrap();
    job.checkpoint(A);
    assert_eq!(job.ranks[1].phase_of_line(), 2);
    let entry = job.rank(B).handle_collective_words(&call, &words([(1, false), (2, true)])).unwrap();
    job.entries[1].insert(entry.unwrap(), Vec::new());
    job.rank(B).handle_collective_completed(&call).unwrap();
    job.settle();
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    job.kill(A);
    job.settle();
    assert_eq!(job.rank(B).handle_collective(&call), Ok(CollectivePlan::Recorded(entry.unwrap())));
}

#[test]
fn tables_of_another_version_rank_or_job_are_refused() {
    let tables = Coordinated::new(config(A, 0)).unwrap().first_checkpoint().unwrap().tables;
    let restore = |rank: Rank, ranks: u32, tables: &[u8]| {
        Coordinated::new(Config { ranks, ..config(rank, 1) }).unwrap().restore(tables, Epoch::FIRST)
    };
    assert_eq!(restore(A, 2, &tables), Ok(()));
    assert_eq!(restore(B, 2, &tables), Err(RestoreError::OtherRank { found: A, expected: B }));
    assert_eq!(restore(A, 3, &tables), Err(RestoreError::OtherJob { found: 2, expected: 3 }));
    let len = tables.len();
    let other = [&[9][..], &tables[1..]].concat();
    assert_eq!(restore(A, 2, &other), Err(RestoreError::Malformed { len }));
    assert_eq!(restore(A, 2, &tables[..len - 1]), Err(RestoreError::Malformed { len: len - 1 }));
}
