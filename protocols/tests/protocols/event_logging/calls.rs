//! Collective calls, and checkpoints required before them.

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::{CollectiveCall, CollectiveClass, CollectivePlan, Protocol};

use super::job::Job;

/// Begins a collective at rank 1, which is one interval late.
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

#[test]
fn a_checkpoint_that_was_requested_in_a_call_is_taken_after_it() {
    for fails in [false, true] {
        let mut job = Job::new();
        job.nodes[1].resumed = false;
        let call = CollectiveCall { class: CollectiveClass::Barrier, comm: 0, number: 0, uniform: true };
        let rank = &mut job.nodes[1].rank;
        assert!(matches!(rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 1, .. }));
        rank.handle_collective_words(&call, &[(Rank(0), 1), (Rank(1), 1)]).unwrap();
        // Nothing has to precede the call, so a refusal doesn't matter.
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

/// Makes a collective on both ranks.
///
/// Returns their words.
fn call(job: &mut Job, number: u64) -> Vec<u64> {
    let call = CollectiveCall { class: CollectiveClass::Barrier, comm: 0, number, uniform: true };
    let word = |rank: u32| match job.nodes[rank as usize].rank.handle_collective(&call).unwrap() {
        CollectivePlan::Exchange { word, .. } => (Rank(rank), word),
        plan => panic!("{plan:?}"),
    };
    let words: Vec<(Rank, u64)> = [0, 1].map(word).to_vec();
    for node in &mut job.nodes {
        node.rank.handle_collective_words(&call, &words).unwrap();
        node.rank.handle_collective_completed(&call).unwrap();
    }
    job.settle();
    words.into_iter().map(|(_, word)| word).collect()
}

/// By the clock of one rank, a checkpoint is due: taken there at once, it would precede a collective made by the other
/// before its own checkpoint.
#[test]
fn a_checkpoint_that_is_due_by_one_clock_is_taken_by_all_after_the_next_collective() {
    let mut job = Job::new();
    call(&mut job, 0);
    assert!(!job.nodes[0].rank.wants_due_checkpoint());
    assert!(job.nodes.iter().all(|node| !node.wants_checkpoint));
    assert_eq!(call(&mut job, 1), [1 << 32 | 1, 1]);
    assert!(job.nodes.iter().all(|node| node.wants_checkpoint));
    job.commit_line();
    assert_eq!(job.committed(), [2, 2]);
    // It is announced once.
    assert_eq!(call(&mut job, 2), [2, 2]);
    assert!(job.nodes.iter().all(|node| !node.wants_checkpoint));
}

#[test]
fn without_collectives_a_checkpoint_that_is_due_is_taken_at_once() {
    let mut job = Job::new();
    assert!(job.nodes[0].rank.wants_due_checkpoint());
    call(&mut job, 0);
    assert!(!job.nodes[0].rank.wants_due_checkpoint());
    // The program has made none since it was due the last time.
    assert!(job.nodes[0].rank.wants_due_checkpoint());
    job.commit_line();
    assert_eq!(call(&mut job, 1), [2, 2], "nothing is left to announce");
}
