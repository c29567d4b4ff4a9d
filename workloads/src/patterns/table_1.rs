//! Table I in Guermouche 2011: the share of logged messages, cell by cell, with the paper's clusters and with proposed
//! ones.
#![expect(clippy::print_stdout, reason = "the tables of docs/lab/simulations.md are what these tests print")]

use counterfoil::Rank;
use counterfoil_protocols::cluster::{Clusters, Share, Traffic, propose};

use super::{Cell, Kernel, Pattern};

/// Maximum deviation of a pattern from the paper's %log, in percentage points.
const TOLERANCES: [(Kernel, f64); 5] =
    [(Kernel::Mg, 0.6), (Kernel::Lu, 0.05), (Kernel::Ft, 0.4), (Kernel::Cg, 0.1), (Kernel::Bt, 0.1)];

/// Cells not explained by the benchmark's structure; see `docs/book/src/explanation/patterns.md`.
const OUTSIDE: [(Kernel, (u32, u32)); 1] = [(Kernel::Mg, (256, 16))];

/// Returns one iteration's messages, for a number of ranks in the table.
fn traffic(kernel: Kernel, ranks: u32) -> Traffic {
    let pattern = Pattern::nas(kernel, kernel.ranks_within(ranks).unwrap()).unwrap();
    let matrix = pattern.matrix();
    let pairs = matrix.pairs().iter().map(|pair| (Rank(pair.source), Rank(pair.destination), pair.messages));
    Traffic::new(pattern.ranks(), pairs).unwrap()
}

/// Returns the paper's clusters: blocks of successive ranks, the column's ranks divided by its clusters.
fn paper_clusters(traffic: &Traffic, (ranks, clusters): (u32, u32)) -> Clusters {
    Clusters::blocks(traffic.ranks(), ranks / clusters).unwrap()
}

#[test]
fn the_share_of_logged_messages_is_the_papers_in_39_of_40_cells() {
    let mut outside = Vec::new();
    for Cell { kernel, ranks, clusters: count, logged_percent: paper, .. } in Cell::all() {
        let traffic = traffic(kernel, ranks);
        let clusters = paper_clusters(&traffic, (ranks, count));
        assert_eq!(clusters.count(), count as usize);
        let logged = Share::of(&traffic, &clusters).unwrap().logged_percent();
        println!("{kernel}, {ranks} ranks, {count} clusters: {logged:.2}, paper {paper}");
        let tolerance = TOLERANCES.iter().find(|&&(other, _)| other == kernel).unwrap().1;
        if (logged - paper).abs() > tolerance {
            outside.push((kernel, (ranks, count)));
        }
    }
    assert_eq!(outside, OUTSIDE);
}

/// In MG on 256 ranks, a plane has 4 x 8 of them. Successive ranks divide it across the 8; the paper's share fits
/// planes divided across the 4.
#[test]
fn the_deviating_cell_is_that_of_planes_divided_the_other_way() {
    let traffic = traffic(Kernel::Mg, 256);
    let across_x = (0..256).map(|rank| rank / 32 * 2 + rank % 4 / 2).collect();
    let logged = Share::of(&traffic, &Clusters::from_assignment(across_x).unwrap()).unwrap().logged_percent();
    assert!((logged - 24.9).abs() < 0.3, "{logged:.2}");
}

/// If a cluster fails, all with higher epochs roll back with it (section V.E.3): (p + 1) / 2p of the ranks for p equal
/// clusters, which is 62.5, 56.25 and 53.125 %. For BT the table has these values at 64 and 256, but 62.6, 56.4 and
/// 53.3 at '128'. They determine the number of ranks, and the cluster sizes.
#[test]
fn bt_at_128_ran_on_121_ranks_in_blocks_of_32_16_and_8() {
    for (column, paper) in [((128, 4), 62.6), ((128, 8), 56.4), ((128, 16), 53.3)] {
        let sizes = paper_clusters(&traffic(Kernel::Bt, 128), column).sizes();
        let ranks: u32 = sizes.iter().sum();
        let rolled_back = |from: usize| sizes[from] * sizes[from..].iter().sum::<u32>();
        let all: u32 = (0..sizes.len()).map(rolled_back).sum();
        let percent = 100.0 * f64::from(all) / f64::from(ranks).powi(2);
        assert!((percent - paper).abs() < 0.06, "{column:?}: {percent:.2}, paper {paper}");
    }
}

/// Renumbers the ranks to make successive ones unrelated.
fn renumbered(traffic: &Traffic) -> Traffic {
    let ranks = traffic.ranks();
    // 75 has no divisor in common with 64, 121, 128 and 256.
    let at = |rank: Rank| Rank(rank.0 * 75 % ranks);
    Traffic::new(ranks, traffic.pairs().map(|(from, to, weight)| (at(from), at(to), weight))).unwrap()
}

#[test]
fn proposed_clusters_are_no_worse_than_the_papers() {
    for (kernel, column) in Cell::all().map(|cell| (cell.kernel, (cell.ranks, cell.clusters))) {
        let traffic = traffic(kernel, column.0);
        let paper = Share::of(&traffic, &paper_clusters(&traffic, column)).unwrap();
        let [found, mixed] = [traffic.clone(), renumbered(&traffic)].map(|traffic| {
            let clusters = propose(&traffic, column.1).unwrap();
            Share::of(&traffic, &clusters).unwrap()
        });
        let between = [found, mixed, paper].map(|share| share.between_percent());
        let logged = [found, mixed, paper].map(|share| share.logged_percent());
        println!("{kernel} {column:?}: proposed, renumbered, the paper's: between {between:.2?}, logged {logged:.2?}");
        assert!(found.between <= paper.between, "{kernel} {column:?}: {found:?}, the paper's {paper:?}");
        assert!(found.logged <= paper.logged, "{kernel} {column:?}: {found:?}, the paper's {paper:?}");
        // Without the original numbering's hint. The worst case is MG on 256 ranks in 4 clusters.
        let worse = mixed.between_percent() - paper.between_percent();
        assert!(worse < 2.2, "{kernel} {column:?}: {mixed:?}, the paper's {paper:?}");
    }
}

/// A one-iteration pattern omits the all-reduces: an MG run has 51 iterations (one to warm up) and 88 all-reduces, 80
/// of them to place its charges, twice, and 8 for norms. By recursive doubling each consists of log2 n swaps with ranks
/// at distance 1, 2, 4, ... At least as large a share of these as of the border messages is between clusters.
#[test]
fn most_of_the_deviation_in_mgs_row_is_its_initial_all_reduces() {
    const ITERATIONS: u64 = 51;
    const ALL_REDUCES: u64 = 88;
    for cell in Cell::all().filter(|cell| cell.kernel == Kernel::Mg) {
        let (column, paper) = ((cell.ranks, cell.clusters), cell.logged_percent);
        if OUTSIDE.contains(&(Kernel::Mg, column)) {
            continue;
        }
        let iteration = traffic(Kernel::Mg, column.0);
        let ranks = iteration.ranks();
        let swap = |rank: u32, bit: u32| (Rank(rank), Rank(rank ^ (1 << bit)), ALL_REDUCES);
        let swaps = (0..ranks).flat_map(|rank| (0..ranks.ilog2()).map(move |bit| swap(rank, bit)));
        let iterations = iteration.pairs().map(|(from, to, weight)| (from, to, weight * ITERATIONS));
        let run = Traffic::new(ranks, iterations.chain(swaps)).unwrap();
        let [iteration, run] = [&iteration, &run]
            .map(|traffic| Share::of(traffic, &paper_clusters(traffic, column)).unwrap().logged_percent() - paper);
        println!("MG, {} ranks, {} clusters: {iteration:+.2}, with all-reduces {run:+.2}", column.0, column.1);
        assert!(run.abs() < iteration.abs() + 0.005 && run.abs() < 0.22, "{column:?}: {iteration:+.2}, {run:+.2}");
    }
}
