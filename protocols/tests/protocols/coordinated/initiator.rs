//! The initiator: lines continued by a replacement, repeated orders and statuses.

use counterfoil_log_core::Epoch;
use counterfoil_protocols::api::{Coordinator, Effect, Floor, Protocol};
use counterfoil_protocols::coordinated::Initiator;

use super::job::{A, B, Job};

#[test]
fn a_new_initiator_goes_on_with_an_open_line_and_with_half_a_commit() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    job.initiator = Initiator::new(2, 1);
    job.settle();
    assert_eq!(job.initiator.open_line(), Some((Epoch(2), vec![A, B])));
    job.deaf = Some(A);
    job.checkpoint(A);
    // Only B has received the stop: the order to A is lost with the initiator.
    job.waiting[0].clear();
    job.initiator = Initiator::new(2, 2);
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
    // Nor do they move a rank stopped by the loss of a peer.
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
    let fresh = Initiator::new(2, 0);
    assert_eq!((fresh.is_recovering(), fresh.line()), (true, None));
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
    // A has B's counts and the order to stop, and not the one to commit.
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
        job.initiator = Initiator::new(2, replaced);
        job.settle();
        assert_eq!(job.states(), [(Epoch(3), Epoch(3), 0, true); 2]);
        assert!(!job.initiator.is_collecting());
        // It asks both, and tells both of the commit once.
        assert_eq!(job.orders.len() - before, if replaced == 1 { 4 } else { 2 });
    }
}
