//! Determinism of a rank: with the same call outcomes, from the start or from any of its checkpoints, it makes the same
//! calls and has the same result.

use bytes::Bytes;
use counterfoil_workloads::{Class, Error, NAMES, Outcome, Workload, by_name};

use crate::record::{Call, Event, Recorder, Replayer, SourceCommunicator};
use crate::threads::run_ranks;

const RANKS: u32 = 4;

struct Record {
    events: Vec<Event>,
    outcome: Outcome,
}

fn record(workload: &dyn Workload, checkpoint_every: Option<u64>) -> Vec<Record> {
    run_ranks(RANKS, |comm| {
        let mut recorder = Recorder::new(comm);
        let outcome = workload.run(&mut recorder, checkpoint_every).unwrap();
        Record { events: recorder.0.events, outcome }
    })
}

/// Re-executes `rank` with `events` from `state`, and checks that it makes exactly these calls.
fn replay(
    workload: &dyn Workload,
    rank: u32,
    state: Option<Bytes>,
    events: &[Event],
    checkpoint_every: Option<u64>,
) -> Outcome {
    let mut replayer = SourceCommunicator(Replayer { rank, size: RANKS, state, events: events.iter() });
    let outcome = workload.run(&mut replayer, checkpoint_every).unwrap();
    assert_eq!(replayer.0.events.len(), 0, "rank {rank} ended early");
    outcome
}

/// Iterates over the states saved by a rank, each with its later events.
fn checkpoints(events: &[Event]) -> impl Iterator<Item = (Bytes, &[Event])> {
    events.iter().enumerate().filter_map(|(at, (call, _))| match call {
        Call::Checkpoint(state) => Some((state.clone(), &events[at + 1..])),
        _ => None,
    })
}

#[test]
fn a_replacement_repeats_its_predecessor_from_the_start() {
    for workload in NAMES.map(|name| by_name(name, Class::S).unwrap()) {
        for (rank, record) in (0..).zip(record(&*workload, None)) {
            let outcome = replay(&*workload, rank, None, &record.events, None);
            assert_eq!(outcome, record.outcome, "{} rank {rank}", workload.name());
            assert_eq!(outcome.verified, Some(true));
        }
    }
}

#[test]
fn a_replacement_resumes_from_every_checkpoint_like_its_predecessor() {
    for workload in NAMES.map(|name| by_name(name, Class::S).unwrap()) {
        let every = Some((workload.iterations(1, RANKS).at_least / 3).min(4));
        for (rank, record) in (0..).zip(record(&*workload, every)) {
            let mut taken = 0;
            for (state, rest) in checkpoints(&record.events) {
                let outcome = replay(&*workload, rank, Some(state), rest, every);
                assert_eq!(outcome, record.outcome, "{} rank {rank}, checkpoint {taken}", workload.name());
                taken += 1;
            }
            assert!(taken >= 3, "{} rank {rank} took {taken} checkpoints", workload.name());
        }
    }
}

#[test]
fn deterministic_workloads_make_the_same_calls_in_every_run() {
    for workload in NAMES.map(|name| by_name(name, Class::S).unwrap()) {
        if workload.deterministic() {
            let (first, second) = (record(&*workload, Some(5)), record(&*workload, Some(5)));
            for (first, second) in first.iter().zip(&second) {
                assert!(first.events == second.events, "{}", workload.name());
            }
        }
    }
}

#[test]
fn iterations_are_counted_from_one_within_their_bounds() {
    for workload in NAMES.map(|name| by_name(name, Class::S).unwrap()) {
        for (rank, record) in (0..).zip(record(&*workload, None)) {
            let reached = record.events.iter().filter_map(|(call, _)| match call {
                Call::Iteration(n) => Some(*n),
                _ => None,
            });
            let reached: Vec<u64> = reached.collect();
            assert_eq!(reached, (1..=reached.len() as u64).collect::<Vec<_>>());
            let bounds = workload.iterations(rank, RANKS);
            assert!((bounds.at_least..=bounds.at_most).contains(&(reached.len() as u64)), "{bounds:?} rank {rank}");
        }
    }
}

#[test]
fn the_largest_message_is_as_long_as_declared() {
    for (name, class, ranks) in [
        ("cg", Class::S, &[1, 2, 4, 8, 16, 32, 64][..]),
        ("cg", Class::W, &[2, 4]),
        ("ring", Class::S, &[1, 2, 3, 5]),
        ("master-worker", Class::S, &[2, 3, 4, 9]),
        ("master-worker", Class::W, &[2, 4]),
        ("ft", Class::S, &[2, 4, 16, 64]),
        ("laplace", Class::S, &[2, 3, 5]),
        ("gauss", Class::S, &[2, 3, 5]),
        ("neurons", Class::S, &[2, 3, 5]),
        ("matmul", Class::S, &[2, 3, 5]),
        ("disks", Class::S, &[2, 3]),
    ] {
        let workload = by_name(name, class).unwrap();
        for &ranks in ranks {
            let sent = run_ranks(ranks, |comm| {
                let mut recorder = Recorder::new(comm);
                workload.run(&mut recorder, None).unwrap();
                let sent = recorder.0.events.iter().filter_map(|(call, _)| match call {
                    Call::Send { payload, .. } | Call::SendInternal { payload, .. } => Some(payload.len()),
                    _ => None,
                });
                sent.max().unwrap_or(0)
            });
            let largest = sent.into_iter().max().unwrap();
            assert_eq!(workload.message_bytes_max(ranks), largest, "{name} of class {class} on {ranks} ranks");
        }
    }
}

#[test]
fn a_truncated_or_foreign_state_is_refused_before_any_message() {
    for workload in NAMES.map(|name| by_name(name, Class::S).unwrap()) {
        let records = record(&*workload, Some(7));
        let (state, _) = checkpoints(&records[1].events).next().unwrap();
        let run = |rank, state: Bytes| {
            let mut replayer =
                SourceCommunicator(Replayer { rank, size: RANKS, state: Some(state), events: [].iter() });
            workload.run(&mut replayer, None)
        };
        for len in (0..state.len()).step_by(1 + state.len() / 200) {
            let refused = run(1, state.slice(..len));
            assert!(
                matches!(refused, Err(Error::State(_))),
                "{} truncated to {len} bytes: {refused:?}",
                workload.name()
            );
        }
        assert!(matches!(run(2, state), Err(Error::State(_))), "{}", workload.name());
    }
}
