//! Collective calls straddling a line.

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, EntryKey, EntryKind, Inspect as _, Misbehaviour, Protocol,
    ProtocolError, Transmission,
};

use super::job::{A, B, Job, PLAIN};

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
    // B keeps the result of the first: its data came from before the line. For the second, A has B's data.
    for class in [Some(CollectiveClass::AllToAll), Some(CollectiveClass::ToRoot(A)), None] {
        let mut job = Job::new();
        let before = CollectiveCall { class: CollectiveClass::AllToAll, comm: 0, number: 0, uniform: true };
        make_call(&mut job, &before, [(1, false); 2]);
        let call = class.map(|class| CollectiveCall { class, comm: 0, number: 1, uniform: true });
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
