//! Factorizations with processes killed at any message: the residuals are as small as without.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

mod grid;

use counterfoil_campaign::stride;
use counterfoil_qr::recover::Unrecoverable;
use counterfoil_qr::verify::Residuals;
use counterfoil_qr::{Grid, Layout, Matrix, Place, Protection, Size};
use grid::{Job, Kill};
use proptest::prelude::*;
use proptest::sample::Index;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const PROTECTIONS: [Protection; 4] =
    [Protection::Duplicated, Protection::Rotating, Protection::Periodic(1), Protection::Periodic(4)];

/// Matrix kinds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Random,
    Large,
    GradedColumns,
    GradedRows,
    RankFive,
    ZeroColumns,
    Triangular,
    Hilbert,
    Zero,
}

const KINDS: [Kind; 9] = [
    Kind::Random,
    Kind::Large,
    Kind::GradedColumns,
    Kind::GradedRows,
    Kind::RankFive,
    Kind::ZeroColumns,
    Kind::Triangular,
    Kind::Hilbert,
    Kind::Zero,
];

fn matrix(kind: Kind, rows: usize, columns: usize, seed: u64) -> Matrix {
    let mut random = SplitMix64::seed_from_u64(seed);
    // From -1 to 1.
    let mut number = || (random.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
    let mut values = || (0..rows.max(columns) * 5).map(|_| number()).collect::<Vec<f64>>();
    let (left, right, scales) = (values(), values(), values());
    let mut matrix = Matrix::zeros(rows, columns);
    for column in 0..columns {
        for row in 0..rows {
            let scale = |at: usize| 10_f64.powf(8.0 * scales[at]);
            let low_rank = || (0..5).map(|of| left[5 * row + of] * right[5 * column + of]).sum::<f64>();
            matrix.column_mut(column)[row] = match kind {
                Kind::Random => number(),
                Kind::Large => 1e200 * number(),
                Kind::GradedColumns => scale(column) * number(),
                Kind::GradedRows => scale(row) * number(),
                Kind::RankFive => low_rank(),
                Kind::ZeroColumns => {
                    if scales[column] < -0.4 {
                        0.0
                    } else {
                        number()
                    }
                }
                Kind::Triangular => {
                    if row <= column {
                        number()
                    } else {
                        0.0
                    }
                }
                Kind::Hilbert => 1.0 / (row + column + 1) as f64,
                Kind::Zero => 0.0,
            };
        }
    }
    matrix
}

fn layout(size: (usize, usize, usize), grid: (usize, usize), protection: Protection) -> Layout {
    let (rows, columns, block) = size;
    Layout::new(Size { rows, columns, block }, Grid { rows: grid.0, columns: grid.1 }, protection).unwrap()
}

#[track_caller]
fn assert_small(residuals: Residuals, what: impl std::fmt::Debug) {
    let Residuals { factorization, orthogonality, column } = residuals;
    assert!(factorization < 2.0 && orthogonality < 4.0 && column < 4.0, "{what:?}: {residuals:?}");
}

#[test]
fn any_matrix_is_factored() {
    for kind in KINDS {
        for size in [(18, 18, 4), (24, 9, 4), (9, 24, 4), (7, 7, 8), (13, 13, 1)] {
            for grid in [(1, 1), (1, 3), (2, 2), (3, 2)] {
                let matrix = matrix(kind, size.0, size.1, 3);
                let protections = if grid.1 == 1 { &[][..] } else { &PROTECTIONS };
                for protection in protections.iter().copied().chain([Protection::Unprotected]) {
                    let mut job = Job::new(&layout(size, grid, protection), &matrix, 1);
                    job.run(None).unwrap();
                    assert_small(job.residuals(), (kind, size, grid, protection));
                }
            }
        }
    }
}

/// One process has the whole matrix, so both ways can be compared.
#[test]
fn residuals_are_near_what_a_few_vectors_show() {
    for size in [(40, 40, 8), (48, 20, 8), (20, 48, 8)] {
        let (layout, matrix) = (layout(size, (1, 1), Protection::Unprotected), matrix(Kind::Random, size.0, size.1, 5));
        let mut job = Job::new(&layout, &matrix, 1);
        job.run(None).unwrap();
        let probed = |job: &Job| {
            let state = job.states.values().next().unwrap();
            let element = |row: usize, column: usize| matrix.column(column)[row];
            counterfoil_qr::verify::probe(&layout, state, element, |_: &mut [f64]| Ok::<_, ()>(())).unwrap()
        };
        let (exact, near) = (job.residuals(), probed(&job));
        let is_near = |near: f64, exact: f64| near < 4.0 * exact && exact < 4.0 * near;
        assert!(is_near(near.factorization, exact.factorization), "{size:?}: {exact:?} {near:?}");
        assert!(is_near(near.orthogonality, exact.orthogonality), "{size:?}: {exact:?} {near:?}");
        // An element in R, and one in a reflector.
        for at in [0, 1] {
            let mut wrong = Job::new(&layout, &matrix, 1);
            wrong.run(None).unwrap();
            let state = wrong.states.values_mut().next().unwrap();
            let (numbers, arrays) = state.parts();
            let mut arrays: Vec<_> = arrays.into_iter().cloned().collect();
            arrays[1][at] += 1e-6;
            let mut arrays = arrays.into_iter();
            let next = |_| Ok::<_, ()>(arrays.next().unwrap());
            *state = counterfoil_qr::State::from_parts(&layout, &numbers, next).unwrap().unwrap();
            let Residuals { factorization, orthogonality, .. } = probed(&wrong);
            assert!(factorization.max(orthogonality) > 1e3, "{size:?}, {at}: {factorization} {orthogonality}");
        }
    }
}

#[test]
fn a_process_may_be_killed_at_each_message() {
    for (grid, size) in [((1, 3), (14, 14, 3)), ((2, 2), (12, 12, 3)), ((3, 2), (8, 8, 2))] {
        for protection in PROTECTIONS {
            let (layout, matrix) = (layout(size, grid, protection), matrix(Kind::Random, size.0, size.1, 1));
            let steps = Job::new(&layout, &matrix, 2).run(None).unwrap().steps;
            for (kill, at) in (0..steps).step_by(stride()).enumerate() {
                let victim = layout.places().nth(kill % (grid.0 * grid.1)).unwrap();
                let mut job = Job::new(&layout, &matrix, 2);
                let kill = Kill { at, victims: vec![victim] };
                assert!(job.run(Some(&kill)).unwrap().has_failed, "{kill:?}");
                job.run(None).unwrap();
                assert_small(job.residuals(), (grid, protection, kill));
            }
        }
    }
}

#[test]
fn states_in_memory_outlive_a_process_that_is_killed_at_each_message() {
    for (grid, size) in [((1, 3), (14, 14, 3)), ((2, 2), (12, 12, 3))] {
        for protection in PROTECTIONS {
            let (layout, matrix) = (layout(size, grid, protection), matrix(Kind::Random, size.0, size.1, 1));
            let start = || {
                let mut job = Job::new(&layout, &matrix, 2);
                job.keep_in_memory();
                job
            };
            let steps = start().run(None).unwrap().steps;
            for at in (0..steps).step_by(3) {
                // Two in a process row.
                let victims = vec![layout.places().next().unwrap(), layout.places().nth(1).unwrap()];
                let (mut job, kill) = (start(), Kill { at, victims });
                assert!(job.run(Some(&kill)).unwrap().has_failed, "{kill:?}");
                job.run(None).unwrap();
                assert_small(job.residuals(), (grid, protection, kill));
            }
        }
    }
}

#[test]
fn survivors_may_be_far_ahead_of_each_other() {
    let (mut skew, mut lost) = (0, 0);
    for protection in PROTECTIONS {
        let (layout, matrix) = (layout((14, 14, 1), (1, 4), protection), matrix(Kind::Random, 14, 14, 3));
        for (number, slow) in layout.places().enumerate() {
            let start = || {
                let mut job = Job::new(&layout, &matrix, 4);
                job.slow = Some(slow);
                job
            };
            let steps = start().run(None).unwrap().steps;
            for at in (number..steps).step_by(5) {
                let mut job = start();
                let victims = vec![layout.places().nth((number + 1 + at % 3) % 4).unwrap()];
                let ran = job.run(Some(&Kill { at, victims })).unwrap();
                (skew, lost) = (skew.max(ran.skew), lost + usize::from(ran.has_lost_message));
                // Another one soon after the recovery.
                job.run(Some(&Kill { at: at % 7, victims: vec![slow] })).unwrap();
                job.run(None).unwrap();
                assert_small(job.residuals(), (protection, slow, at));
            }
        }
    }
    // 2 Q - 2 at most.
    assert!((4..=6).contains(&skew) && lost > 20, "{skew} iterations, {lost} runs that lost a message");
}

#[test]
fn residuals_do_not_grow_with_the_number_of_failures() {
    let size = (30, 30, 3);
    for protection in PROTECTIONS {
        let (layout, matrix) = (layout(size, (2, 3), protection), matrix(Kind::Random, size.0, size.1, 5));
        let mut job = Job::new(&layout, &matrix, 9);
        for failure in 0..50 {
            // Soon after the last one.
            let kill = Kill { at: 7 * failure % 40, victims: vec![layout.places().nth(5 * failure % 6).unwrap()] };
            assert!(job.run(Some(&kill)).unwrap().has_failed, "{failure}");
        }
        job.run(None).unwrap();
        assert_small(job.residuals(), protection);
    }
}

#[test]
fn without_weights_a_small_column_is_lost_in_the_rounding_of_a_large_one() {
    let (layout, matrix) = (layout((24, 24, 3), (2, 3), Protection::Rotating), matrix(Kind::GradedColumns, 24, 24, 2));
    let kill = Kill { at: 100, victims: vec![Place { row: 0, column: 1 }, Place { row: 1, column: 2 }] };
    let residual = |mut job: Job| {
        job.run(Some(&kill)).unwrap();
        job.run(None).unwrap();
        job.residuals()
    };
    assert_small(residual(Job::new(&layout, &matrix, 2)), "weighted");
    let unweighted = residual(Job::with_weights(&layout, &matrix, 2, vec![1.0; 24]));
    assert!(unweighted.factorization < 2.0 && unweighted.column > 100.0, "{unweighted:?}");
}

#[test]
fn two_processes_lost_in_a_row_are_named() {
    let (layout, matrix) = (layout((12, 12, 3), (2, 3), Protection::Rotating), matrix(Kind::Random, 12, 12, 1));
    let victims = vec![Place { row: 1, column: 2 }, Place { row: 0, column: 1 }, Place { row: 1, column: 0 }];
    let lost = Job::new(&layout, &matrix, 1).run(Some(&Kill { at: 20, victims })).unwrap_err();
    assert_eq!(lost, Unrecoverable { row: 1, columns: vec![0, 2] });
    assert_eq!(lost.to_string(), "checksums survive one lost process in each process row: 2 are lost in row 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// One process in each of some process rows, several times; among them whole process columns.
    #[test]
    fn processes_may_be_killed_at_any_message(
        (rows, columns, block) in (1_usize..32, 1_usize..32, 1_usize..5),
        (process_rows, process_columns) in (1_usize..4, 2_usize..5),
        protection in proptest::sample::select(&PROTECTIONS[..]),
        kind in proptest::sample::select(&KINDS[..]),
        failures in prop::collection::vec((any::<Index>(), prop::collection::vec(any::<Index>(), 3), 1_usize..8), 1..4),
        seed in any::<u64>(),
    ) {
        let layout = layout((rows, columns, block), (process_rows, process_columns), protection);
        let matrix = matrix(kind, rows, columns, seed);
        let steps = Job::new(&layout, &matrix, seed).run(None).unwrap().steps;
        let mut job = Job::new(&layout, &matrix, seed);
        job.slow = layout.places().nth(seed as usize % 16);
        for (at, drawn, chosen) in &failures {
            let rows = (0..process_rows).filter(|row| chosen >> row & 1 == 1);
            let victims = rows.map(|row| Place { row, column: drawn[row].index(process_columns) }).collect();
            job.run(Some(&Kill { at: at.index(steps.max(1)), victims })).unwrap();
        }
        job.run(None).unwrap();
        assert_small(job.residuals(), (&failures, layout));
    }
}
