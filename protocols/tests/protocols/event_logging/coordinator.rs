//! The coordinator: what comes again, and what belongs to an earlier attempt.

use counterfoil_log_core::{Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{Coordinator, Effect, Party, Protocol};
use counterfoil_protocols::chandy_lamport::{Config, LineCoordinator};
use counterfoil_protocols::event_logging::EventLogging;

use super::job::{Job, Node, RANKS};

/// Attempt and execution in the report from a rank stopped for the first attempt.
const STOPPED_FIRST: (u8, u8) = (1, 0);

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
    // Except from a new process, marked in the second byte: each begins an attempt.
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
    // It doesn't hear from rank 0 before rank 0 has finished a line, and dies before its commit order arrives there.
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
