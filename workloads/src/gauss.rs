//! Dense linear equations by Gauss-Jordan elimination with partial pivoting: rows are distributed, the pivot is found
//! by a reduction, and its row is broadcast in each step.
//!
//! Each element is computed by the same operations whatever rank has its row, so the result doesn't depend on the
//! number of ranks. The right-hand side belongs to the solution 1, 2, ..., n.

use std::ops::RangeInclusive;

use counterfoil_runtime::communicator::{Communicator, Reduction};
use counterfoil_runtime::transport::CallKind;
use zerocopy::IntoBytes;

use crate::random::Random;
use crate::steps::Steps;
use crate::values::{digest, numbers, part};
use crate::{Class, Error, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "gauss";

/// Largest error in an unknown, relative to their number.
const TOLERANCE: f64 = 1e-9;

/// Gauss-Jordan elimination; class S, W, A have 48, 192, 2,048 unknowns.
///
/// Every rank's iteration eliminates one. Runs on any number of ranks up to the unknowns.
#[derive(Clone, Debug)]
pub struct Gauss {
    class: Class,
    unknowns: usize,
}

/// A rank's matrix rows, each followed by its right-hand side.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Index of the first row.
    first: usize,
    width: usize,
    values: Vec<f64>,
    /// For each matrix row, the unknown with this pivot row; negative if none.
    pivot_of: Vec<f64>,
}

impl Rows {
    fn start(unknowns: usize, rows: std::ops::Range<usize>) -> Rows {
        let width = unknowns + 1;
        let row = |row: usize| {
            let mut random = Random::from_seed(row as u64);
            let mut values: Vec<f64> = (0..unknowns).map(|_| 2.0 * random.next_fraction() - 1.0).collect();
            values.push((1..).zip(&values).map(|(solution, value)| f64::from(solution) * value).sum());
            values
        };
        let pivot_of = vec![-1.0; unknowns];
        Rows { first: rows.start, width, values: rows.flat_map(row).collect(), pivot_of }
    }

    /// Returns the largest absolute value in column `unknown`, and its row, among rows not yet used as pivots.
    fn pivot(&self, unknown: usize) -> (f64, u64) {
        let rows = (self.first..).zip(self.values.chunks_exact(self.width));
        let free = rows.filter(|(row, _)| self.pivot_of[*row] < 0.0);
        free.map(|(row, values)| (values[unknown].abs(), row as u64))
            .fold((-1.0, u64::MAX), |best, other| if other.0 > best.0 { other } else { best })
    }

    /// Returns matrix row `row`, if it is here.
    fn get(&self, row: usize) -> Option<&[f64]> {
        self.values.chunks_exact(self.width).nth(row.checked_sub(self.first)?)
    }

    /// Eliminates an unknown from all rows but its pivot.
    fn eliminate(&mut self, unknown: usize, pivot_row: usize, pivot: &[f64]) {
        self.pivot_of[pivot_row] = unknown as f64;
        for (row, values) in (self.first..).zip(self.values.chunks_exact_mut(self.width)) {
            if row != pivot_row {
                let factor = values[unknown] / pivot[unknown];
                values.iter_mut().zip(pivot).skip(unknown).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }

    /// Returns the unknowns with pivots here, and 0 for the others.
    fn solution(&self) -> Vec<f64> {
        let mut solution = vec![0.0; self.pivot_of.len()];
        for (row, values) in (self.first..).zip(self.values.chunks_exact(self.width)) {
            let unknown = self.pivot_of[row] as usize;
            solution[unknown] = values[self.width - 1] / values[unknown];
        }
        solution
    }
}

impl Gauss {
    /// Creates the program with size `class`.
    pub fn new(class: Class) -> Gauss {
        let unknowns = match class {
            Class::S => 48,
            Class::W => 192,
            Class::A => 2_048,
        };
        Gauss { class, unknowns }
    }

    /// Checks that a restored table is possible after `iteration` eliminations.
    fn check_pivots(&self, pivot_of: &[f64], iteration: u64) -> Result<(), StateError> {
        let mut unknowns: Vec<u64> =
            pivot_of.iter().filter(|unknown| **unknown >= 0.0).map(|unknown| *unknown as u64).collect();
        unknowns.sort_unstable();
        match unknowns.into_iter().eq(0..iteration) {
            true => Ok(()),
            false => Err(StateError::Invalid { what: "a pivot after iteration", found: iteration }),
        }
    }
}

impl Steps for Gauss {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 5;

    type Part = Rows;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=self.unknowns as u32
    }

    fn makes(&self, call: CallKind) -> bool {
        !matches!(call, CallKind::Send | CallKind::Receive)
    }

    fn steps(&self) -> u64 {
        self.unknowns as u64
    }

    fn message_bytes_max(&self, _ranks: u32) -> usize {
        (self.unknowns + 1) * size_of::<f64>()
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Rows, RanksError> {
        Ok(Rows::start(self.unknowns, part(self.unknowns, rank, ranks)))
    }

    fn restore(&self, rows: &mut Rows, done: u64, body: &[u8]) -> Result<(), StateError> {
        let mut numbers = numbers(body, self.unknowns + rows.values.len())?;
        rows.values = numbers.split_off(self.unknowns);
        self.check_pivots(&numbers, done)?;
        rows.pivot_of = numbers;
        Ok(())
    }

    fn encode(&self, rows: &Rows) -> Vec<u8> {
        [&rows.pivot_of[..], &rows.values].concat().as_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, step: u64, rows: &mut Rows) -> Result<(), Error> {
        let (unknown, ranks) = (step as usize - 1, comm.size());
        let (value, row) = rows.pivot(unknown);
        let mut largest = [value];
        comm.allreduce_f64(&mut largest, Reduction::Max)?;
        let mut pivot_row = [if value == largest[0] { row } else { u64::MAX }];
        comm.allreduce_u64(&mut pivot_row, Reduction::Min)?;
        let pivot_row = pivot_row[0] as usize;
        let mut pivot = rows.get(pivot_row).map_or_else(|| vec![0.0; rows.width], <[f64]>::to_vec);
        let root = (0..ranks).find(|rank| part(self.unknowns, *rank, ranks).contains(&pivot_row)).unwrap_or(0);
        comm.bcast_f64(root, &mut pivot)?;
        rows.eliminate(unknown, pivot_row, &pivot);
        Ok(())
    }

    fn finish(&self, comm: &mut dyn Communicator, rows: Rows) -> Result<Outcome, Error> {
        let mut solution = rows.solution();
        comm.allreduce_f64(&mut solution, Reduction::Sum)?;
        let errors = (1..).zip(&solution).map(|(exact, found)| (found - f64::from(exact)).abs());
        let largest = errors.fold(0.0, f64::max) / self.unknowns as f64;
        Ok(Outcome {
            verified: Some(largest <= TOLERANCE),
            value: Value::Number(solution.last().copied().unwrap_or(0.0)),
            digest: digest(&solution),
        })
    }
}
