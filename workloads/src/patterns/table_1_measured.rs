//! Table I in Guermouche 2011, measured on the state machines: some cells, including the unusual ones. `counterfoil
//! reproduce table-1` measures all forty.
#![expect(clippy::print_stdout, reason = "prints the compared numbers")]

use counterfoil::Rank;
use counterfoil_protocols::cluster::{Clusters, Share, Traffic};
use counterfoil_protocols::send_deterministic::recovery_line;
use counterfoil_simulator::measure::{Job, Measured, Plan, RolledBack, coloured, measure};

use super::{Cell, Kernel};

/// Smallest run with two checkpoint rounds: iterations are alike, and each reaches all ranks of a kernel.
const PLAN: Plan = Plan { rounds: 2, iterations: 2 };

fn cells(filter: impl Fn(&Cell) -> bool) -> Vec<(Cell, Measured)> {
    let measured = |cell: Cell| {
        let pattern = cell.pattern().unwrap();
        let clusters = Clusters::blocks(pattern.ranks(), cell.ranks_in_cluster()).unwrap();
        let measured = measure(&pattern.iteration().unwrap(), &clusters, PLAN, |_| {}).unwrap();
        println!("{cell:?}: logged {:.2}, back {:.2}", measured.logged.percent(), measured.rolled_back.percent());
        (cell, measured)
    };
    Cell::all().filter(filter).map(measured).collect()
}

#[test]
fn at_64_ranks_the_state_machines_reproduce_the_papers_table() {
    for (cell, measured) in cells(|cell| cell.ranks == 64) {
        let logged = measured.logged.percent() - cell.logged_percent;
        let rolled_back = measured.rolled_back.percent() - cell.rolled_back_percent;
        let bound = match cell.kernel {
            Kernel::Cg => 0.2,
            Kernel::Lu | Kernel::Ft | Kernel::Bt => 1.5,
            Kernel::Mg => 3.0,
        };
        assert!(logged.abs() < bound, "{cell:?}: {logged:+.2}");
        assert!(rolled_back.abs() < 3.0, "{cell:?}: {rolled_back:+.2}");
    }
}

/// If clusters are halves of planes or rows, a failure rolls back fewer than all clusters above it.
#[test]
fn cells_with_fewer_rollbacks_than_the_formula_are_reproduced() {
    let odd = [(Kernel::Mg, 128), (Kernel::Lu, 128), (Kernel::Cg, 128), (Kernel::Mg, 256)];
    for (cell, measured) in cells(|cell| cell.clusters == 16 && odd.contains(&(cell.kernel, cell.ranks))) {
        let (rolled_back, formula) = (measured.rolled_back.percent(), 100.0 * 17.0 / 32.0);
        assert!((rolled_back - cell.rolled_back_percent).abs() < 0.6, "{cell:?}: {rolled_back:.2}");
        assert!(rolled_back < formula - 9.0, "{cell:?}: {rolled_back:.2}");
    }
}

/// The state machines log exactly the messages counted by the formula.
#[test]
fn the_state_machines_log_exactly_the_upward_messages() {
    for (cell, measured) in cells(|cell| cell.ranks == 64 && cell.clusters == 8) {
        let pattern = cell.pattern().unwrap();
        let pairs = pattern.messages().map(|message| (Rank(message.source), Rank(message.destination), 1));
        let clusters = Clusters::blocks(pattern.ranks(), cell.ranks_in_cluster()).unwrap();
        let share = Share::of(&Traffic::new(pattern.ranks(), pairs).unwrap(), &clusters).unwrap();
        let iterations = u64::from(PLAN.rounds * PLAN.iterations);
        let logged = measured.logged;
        assert_eq!((logged.messages, logged.logged), (share.total * iterations, share.logged * iterations), "{cell:?}");
        assert_eq!(logged.covered_first, 0, "{cell:?}");
    }
}

/// A failure rolls back its own cluster and those above it reached by a chain of upward messages.
#[test]
fn a_failure_in_mg_rolls_back_the_planes_above_on_its_own_side() {
    let cell = Cell::all().find(|cell| (cell.kernel, cell.ranks, cell.clusters) == (Kernel::Mg, 64, 8)).unwrap();
    let iteration = cell.pattern().unwrap().iteration().unwrap();
    let mut job = Job::new(&iteration, &Clusters::blocks(64, 8).unwrap()).unwrap();
    job.iterate().unwrap();
    let tables = job.tables();
    // Cluster 2 z + h is half h of plane z out of four.
    for cluster in 0..8 {
        let mut rolled_back = RolledBack::default();
        rolled_back.add(&tables, [cluster * 8]);
        let (z, half) = (cluster / 2, cluster % 2);
        assert_eq!(rolled_back.rolled_back, u64::from((4 - z) * (2 - half) * 8), "cluster {cluster}");
    }
}

/// In blocks of 8 on BT's 11 x 11 ranks, a cluster across the end of a row consists of two parts exchanging nothing,
/// and a rank's failure rolls back only its part. If the whole cluster fails, as in the paper's estimate ('a
/// pessimistic scenario'), the share equals the paper's.
#[test]
fn bt_on_121_ranks_in_16_clusters_equals_the_paper_if_whole_clusters_fail() {
    let cell = Cell::all().find(|cell| (cell.kernel, cell.ranks, cell.clusters) == (Kernel::Bt, 128, 16)).unwrap();
    let iteration = cell.pattern().unwrap().iteration().unwrap();
    let clusters = Clusters::blocks(121, 8).unwrap();
    let mut job = Job::new(&iteration, &clusters).unwrap();
    job.iterate().unwrap();
    let tables = job.tables();
    let [mut alone, mut whole] = [RolledBack::default(); 2];
    for rank in 0..121 {
        alone.add(&tables, [rank]);
        let fails = |other: u32| (other / 8 == rank / 8).then_some(tables[other as usize].epoch);
        whole.count(&recovery_line(&tables, &(0..121).map(fails).collect::<Vec<_>>()));
    }
    println!("alone {:.2}, whole {:.2}, paper {}", alone.percent(), whole.percent(), cell.rolled_back_percent);
    assert!((whole.percent() - cell.rolled_back_percent).abs() < 0.05, "{:.2}", whole.percent());
    assert!((alone.percent() - 51.58).abs() < 0.01, "{:.2}", alone.percent());
}

/// Another epoch order for the clusters logs as much but rolls back far fewer ranks, if not all clusters communicate.
#[test]
fn lu_in_the_order_of_a_colouring_logs_the_same_and_rolls_back_a_fifth() {
    let cell = Cell::all().find(|cell| (cell.kernel, cell.ranks, cell.clusters) == (Kernel::Lu, 64, 8)).unwrap();
    let iteration = cell.pattern().unwrap().iteration().unwrap();
    let ascending = Clusters::blocks(64, 8).unwrap();
    let alternating = coloured(&ascending, &iteration).unwrap();
    let [paper, here] = [&ascending, &alternating].map(|clusters| measure(&iteration, clusters, PLAN, |_| {}).unwrap());
    assert_eq!(paper.logged.logged, here.logged.logged);
    // Eight columns in a row: four roll back alone, three with two neighbours, one with one.
    assert_eq!((paper.rolled_back.percent(), here.rolled_back.percent()), (56.25, 100.0 * 15.0 / 64.0));
}
