//! State-machine jobs against computed results.

use counterfoil_log_core::Rank;
use counterfoil_protocols::cluster::{Share, Traffic};
use counterfoil_protocols::send_deterministic::recovery_line;

use super::*;

/// Two messages to each of the four neighbours on a torus of `side` x `side` ranks, one after the other.
fn torus(side: u32) -> Vec<Hop> {
    let to = |rank: u32, x: u32, y: u32| (rank % side + x) % side + (rank / side + y) % side * side;
    let neighbours = [(1, 0), (side - 1, 0), (0, 1), (0, side - 1)];
    let of_rank = |rank| {
        let twice = (0..2).flat_map(move |step| neighbours.map(|(x, y)| (step, to(rank, x, y))));
        twice.map(move |(step, destination)| Hop { step, source: rank, destination, bytes: 2_000 })
    };
    (0..side * side).flat_map(of_rank).collect()
}

fn share(hops: &[Hop], clusters: &Clusters) -> Share {
    let pairs = hops.iter().map(|hop| (Rank(hop.source), Rank(hop.destination), 1));
    Share::of(&Traffic::new(clusters.ranks() as u32, pairs).unwrap(), clusters).unwrap()
}

#[test]
fn exactly_what_goes_up_is_logged_whatever_the_plan() {
    let hops = torus(6);
    let iteration = Iteration::new(36, hops.clone()).unwrap();
    for (block, plan) in
        [(12, Plan::default()), (6, Plan { rounds: 3, iterations: 2 }), (18, Plan { rounds: 1, iterations: 1 })]
    {
        let clusters = Clusters::blocks(36, block).unwrap();
        let Logged { messages, logged, covered_first, .. } =
            measure(&iteration, &clusters, plan, |_| {}).unwrap().logged;
        let (share, iterations) = (share(&hops, &clusters), u64::from(plan.rounds * plan.iterations));
        let expected = (share.total * iterations, share.logged * iterations, 0);
        assert_eq!((messages, logged, covered_first), expected, "{block}, {plan:?}");
    }
}

#[test]
fn the_outline_rolls_back_and_logs_what_the_state_machines_do() {
    let hops = torus(6);
    let iteration = Iteration::new(36, hops.clone()).unwrap();
    let plan = Plan { rounds: 3, iterations: 5 };
    // Stripes, in another order than the ranks, and squares.
    let stripes = Clusters::from_assignment((0..36).map(|rank| [2, 0, 3, 1][rank / 9]).collect()).unwrap();
    let squares = Clusters::from_assignment((0..36).map(|rank| rank % 6 / 3 + rank / 18 * 2).collect()).unwrap();
    for clusters in [stripes, squares] {
        let mut job = Job::new(&iteration, &clusters).unwrap();
        for iterations in 1..=plan.rounds * plan.iterations {
            job.iterate().unwrap();
            let sends = |rank| {
                let mut peers: Vec<u32> =
                    hops.iter().filter(|hop| hop.source == rank).map(|hop| hop.destination).collect();
                peers.sort_unstable();
                peers.chunk_by(|one, next| one == next).map(|same| (same[0], same.len() as u64)).collect()
            };
            let outline = Outline::new(&clusters, plan, iterations, sends).unwrap();
            let tables = job.tables();
            for rank in 0..36 {
                let mut failed = vec![None; 36];
                failed[rank] = Some(tables[rank].epoch);
                let [real, outlined] = [&tables, &outline.tables].map(|tables| recovery_line(tables, &failed));
                assert_eq!(real, outlined, "rank {rank} after {iterations} iterations");
            }
            let share = share(&hops, &clusters);
            let expected = (share.total * u64::from(iterations), share.logged * u64::from(iterations));
            assert_eq!((outline.logged.messages, outline.logged.logged), expected);
            job.checkpoint_clusters(plan, (iterations - 1) % plan.iterations).unwrap();
            if iterations % plan.iterations == 0 {
                job.collect().unwrap();
            }
        }
    }
}

/// A failure in a chain of clusters rolls back its own cluster and all higher ones (section V.E.3).
#[test]
fn a_failure_takes_back_the_clusters_above_and_none_below() {
    let iteration = Iteration::new(36, torus(6)).unwrap();
    let clusters = Clusters::blocks(36, 12).unwrap();
    let mut job = Job::new(&iteration, &clusters).unwrap();
    job.iterate().unwrap();
    let tables = job.tables();
    for (rank, expected) in [(0, 36), (20, 24), (35, 12)] {
        let mut rolled_back = RolledBack::default();
        rolled_back.add(&tables, [rank]);
        assert_eq!((rolled_back.rolled_back, rolled_back.ranks, rolled_back.failures), (expected, 36, 1), "{rank}");
    }
}

/// Right after its checkpoint nothing depends on a rank's later sends: it rolls back alone.
#[test]
fn right_after_its_checkpoint_a_rank_goes_back_alone() {
    let iteration = Iteration::new(36, torus(6)).unwrap();
    let mut job = Job::new(&iteration, &Clusters::blocks(36, 12).unwrap()).unwrap();
    job.iterate().unwrap();
    // The highest cluster: no cluster above it could be waiting for an acknowledgement.
    job.checkpoint(2).unwrap();
    let mut rolled_back = RolledBack::default();
    rolled_back.add(&job.tables(), 24..36);
    assert_eq!((rolled_back.rolled_back, rolled_back.failures), (12, 12));
}

#[test]
fn a_cluster_that_would_meet_the_one_above_is_refused_until_a_collection() {
    let iteration = Iteration::new(36, torus(6)).unwrap();
    let mut job = Job::new(&iteration, &Clusters::blocks(36, 12).unwrap()).unwrap();
    job.checkpoint(0).unwrap();
    assert!(matches!(job.checkpoint(0), Err(MeasureError::Refused { .. })));
    job.checkpoint(1).unwrap();
    job.checkpoint(2).unwrap();
    job.collect().unwrap();
    job.checkpoint(0).unwrap();
    assert!(matches!(job.checkpoint(0), Err(MeasureError::Refused { .. })));
}

#[test]
fn messages_and_clusters_of_another_job_are_refused() {
    let stranger = Hop { step: 0, source: 0, destination: 4, bytes: 1 };
    assert!(matches!(Iteration::new(4, [stranger]), Err(MeasureError::Hop { from: 0, to: 4, ranks: 4 })));
    assert!(matches!(Iteration::new(4, [Hop { destination: 0, ..stranger }]), Err(MeasureError::Hop { .. })));
    let iteration = Iteration::new(5, [stranger]).unwrap();
    let clusters = Clusters::blocks(4, 2).unwrap();
    assert!(matches!(Job::new(&iteration, &clusters), Err(MeasureError::Clusters { clusters: 4, ranks: 5 })));
    let outline = Outline::new(&clusters, Plan::default(), 1, |_| vec![(4, 1)]);
    assert!(matches!(outline, Err(MeasureError::Hop { to: 4, .. })));
}
