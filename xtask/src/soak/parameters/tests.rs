//! Tests for the drawn parameters.

use super::cell::PATTERNS;
use super::*;
use crate::soak::listed::Listed;

fn cells(listed: &Listed) -> Vec<Cell<'_>> {
    Cell::of(listed, None).unwrap()
}

fn drawn(listed: &Listed, count: u64) -> Vec<Parameters<'_>> {
    let mut random = SplitMix64::new(11);
    let cells = cells(listed);
    let draw = |run: u64| Parameters::draw(cells[run as usize % cells.len()], &mut SplitMix64::new(random.next_u64()));
    (0..count).map(draw).collect()
}

#[test]
fn the_cells_are_in_a_mixed_order_and_all_there() {
    let listed = Listed::sample();
    let cells = cells(&listed);
    // Three protocols and four programs: one isn't send-deterministic, one makes no collectives, and one neither sends
    // nor receives.
    assert_eq!(cells.len(), 10 * 11 - 3 - 6);
    assert!(cells.iter().enumerate().all(|(at, cell)| !cells[at + 1..].contains(cell)));
    assert!(cells.windows(2).all(|two| two[0].pattern != two[1].pattern));
}

fn ranks_of(kill: &Kill) -> (u32, u32) {
    match *kill {
        Kill::PowerCut { .. } => (0, 0),
        Kill::At { rank, .. } | Kill::InCall { rank, .. } => (rank, rank),
        Kill::DuringRepair { rank, dead } => (rank, dead),
        Kill::DuringRecovery { rank, recovering } => (rank, recovering),
    }
}

#[test]
fn the_cells_of_one_protocol_have_no_other() {
    let listed = Listed::sample();
    let cells = Cell::of(&listed, Some("of-bits")).unwrap();
    assert!(cells.len() == 37 && cells.iter().all(|cell| cell.protocol.name == "of-bits"), "{}", cells.len());
    assert!(Cell::of(&listed, Some("lossy")).is_err());
}

#[test]
fn the_same_seed_draws_the_same_command_line() {
    let listed = Listed::sample();
    let draw = |seed| Parameters::draw(cells(&listed)[0], &mut SplitMix64::new(seed)).arguments();
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

#[test]
fn six_hundred_runs_draw_every_value_of_every_parameter() {
    let listed = Listed::sample();
    let drawn = drawn(&listed, 600);
    for pattern in PATTERNS {
        assert!(drawn.iter().any(|p| p.pattern == pattern), "{pattern}");
    }
    for protocol in listed.protocols(None).unwrap() {
        let of = || drawn.iter().filter(|p| p.protocol == protocol);
        for clusters in [1, 2, 4].into_iter().filter(|_| protocol.clusters) {
            assert!(of().any(|p| p.clusters == Some(clusters)), "{protocol:?}");
        }
        assert!(protocol.bits.iter().all(|bits| of().any(|p| p.bits == Some(bits))), "{protocol:?}");
        assert!(
            of().all(|p| p.clusters.is_some() == protocol.clusters && p.bits.is_none() == protocol.bits.is_empty())
        );
    }
    for checkpoint_every in CHECKPOINTS {
        assert!(drawn.iter().any(|p| p.checkpoint_every == checkpoint_every));
    }
    for workload in &listed.programs {
        for tier in TIERS {
            assert!(drawn.iter().any(|p| (p.workload, p.tier) == (workload, tier)), "{workload:?} {tier}");
        }
        for ranks in workload.rank_counts() {
            assert!(drawn.iter().any(|p| (p.workload, p.ranks) == (workload, ranks)), "{workload:?} {ranks}");
        }
    }
}

#[test]
fn every_kill_is_of_an_existing_rank_and_iteration() {
    let listed = Listed::sample();
    for parameters in drawn(&listed, 2_000) {
        for kill in &parameters.kills {
            let (rank, other) = ranks_of(kill);
            assert!(rank.max(other) < parameters.ranks, "{parameters:?}");
            if let Kill::At { iteration, .. } | Kill::InCall { iteration, .. } | Kill::PowerCut { iteration } = kill {
                let iterations = parameters.workload.iterations;
                assert!((1..=iterations).contains(iteration), "{parameters:?}");
            }
        }
    }
}

#[test]
fn the_kills_match_the_pattern() {
    let listed = Listed::sample();
    for parameters in drawn(&listed, 2_000) {
        let matches = match (parameters.pattern, parameters.kills.as_slice()) {
            (Pattern::OneRank, [Kill::At { .. }]) => true,
            (Pattern::SameRankAgain, [Kill::At { rank, iteration }, Kill::At { rank: same, iteration: later }]) => {
                rank == same && later > iteration
            }
            (Pattern::TwoAtOnce, [Kill::At { rank, iteration }, Kill::At { rank: other, iteration: same }]) => {
                rank != other && iteration == same
            }
            (Pattern::InCall(call), [Kill::InCall { call: in_call, .. }]) => {
                call == *in_call && (call != Call::Checkpoint || parameters.checkpoint_every.is_some())
            }
            (Pattern::DuringRepair, [Kill::At { rank, .. }, Kill::DuringRepair { rank: second, dead }]) => {
                rank == dead && rank != second
            }
            (Pattern::PowerCut, [Kill::PowerCut { .. }]) => parameters.tier == Tier::NodeLocal,
            (Pattern::DuringRecovery, [Kill::At { rank, .. }, Kill::DuringRecovery { rank: second, recovering }]) => {
                rank == recovering && rank != second
            }
            _ => false,
        };
        assert!(matches, "{parameters:?}");
    }
}

#[test]
fn the_command_line_has_all_parameters() {
    let listed = Listed::sample();
    let mut parameters = Parameters {
        pattern: Pattern::DuringRecovery,
        workload: &listed.programs[0],
        tier: Tier::ProcessCrashSafe,
        ranks: 4,
        checkpoint_every: Some(3),
        protocol: listed.protocols(Some("of-clusters")).unwrap()[0],
        clusters: Some(2),
        bits: None,
        kills: vec![Kill::At { rank: 2, iteration: 7 }, Kill::DuringRecovery { rank: 0, recovering: 2 }],
        seed: 9,
        mpi: None,
        spares: None,
    };
    assert_eq!(
        parameters.arguments().join(" "),
        "demo --json --workload grid --ranks 4 --tier process-crash-safe --checkpoint-every 3 \
         --protocol of-clusters --clusters 2 --kill 2@7 --kill 0@recovery:2 --seed 9"
    );
    (parameters.mpi, parameters.spares) = (Some("debian".to_owned()), Some(0));
    assert!(parameters.arguments().join(" ").starts_with("demo --json --mpi=debian --spares 0 --workload grid"));
}
