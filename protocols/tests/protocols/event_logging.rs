//! Statements about the event logging rule, each shown on two state machines and their coordinator, without a network.

mod calls;
mod coordinator;
mod job;

use counterfoil_log_core::{Determinant, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{DiscardReason, EntryKey, EntryKind, Incoming, Party, Protocol, ProtocolError};

use job::{Job, RANKS};

/// Maximum of open lines before a rank offers no further one.
const LINES_MAX: u32 = 8;

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
fn choices_are_forgotten_with_the_commit_of_each_line() {
    let mut job = Job::new();
    let choose = |job: &mut Job| {
        let rank = &mut job.nodes[0].rank;
        let sequence = rank.next_choice().sequence;
        rank.handle_choice(Determinant { sequence, source: Rank(1), ssn: Ssn(1 + sequence) }).unwrap();
    };
    choose(&mut job);
    job.checkpoint(0);
    (0..2).for_each(|_| choose(&mut job));
    job.checkpoint(0);
    assert_eq!(job.effects(0), [""; 0]);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[0].choices_discarded), (vec![2, 2], Some((1, Epoch(2)))), "of three");
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[0].choices_discarded), (vec![3, 3], Some((3, Epoch(3)))));
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
fn a_copy_that_is_not_in_transit_over_the_line_is_dropped_at_a_restart() {
    let mut job = Job::new();
    let copies = [7, 8].map(|tag| job.send(0, tag));
    job.checkpoint(1);
    copies.into_iter().for_each(|copy| assert!(matches!(job.arrive(copy), Incoming::Deliver { keep: Some(_) })));
    job.checkpoint(0);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[1].copies()), (vec![2, 2], 2));
    // One not yet dropped by the dead process.
    let message = job.send(0, 9);
    let number = EntryKey { kind: EntryKind::Message, number: 2 };
    job.nodes[1].entries.insert(number, message.as_bytes().to_vec());
    job.replace(1, 1);
    assert_eq!(job.nodes[1].copies(), 2);
    assert!(!job.nodes[1].entries.contains_key(&number));
}
