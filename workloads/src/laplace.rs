//! Laplace's equation on a square, by Jacobi's method: grid rows are distributed, and each sweep exchanges the border
//! rows with the two neighbours.
//!
//! The border potential is x^2 - y^2, which also solves the equation inside; the sweeps start from 0. Each new value
//! depends on four old ones alone, so the result equals the serial computation's bit for bit.

use std::ops::RangeInclusive;

use counterfoil_runtime::communicator::{Communicator, Reduction};
use zerocopy::IntoBytes;

use crate::steps::Steps;
use crate::values::{digest, from_message, numbers, part, place_sum};
use crate::{Class, Error, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "laplace";

const TAG_UP: i32 = 1;
const TAG_DOWN: i32 = 2;

/// Sweeps between two reductions of the largest change.
const SWEEPS_PER_NORM: u64 = 10;

/// Jacobi's method; class S, W, A have 96, 256, 768 points a side and 60, 200, 500 sweeps.
///
/// Every rank's iteration is one sweep. Runs on any number of ranks up to a side's points.
#[derive(Clone, Debug)]
pub struct Laplace {
    class: Class,
    /// Points on a side, without the border.
    side: usize,
    sweeps: u64,
}

/// Grid rows from `first` on, with one more before and after them, each with its two border points.
#[derive(Debug)]
pub(crate) struct Rows {
    first: usize,
    width: usize,
    values: Vec<f64>,
    /// Largest change in the sweep before the last reduction.
    change: [f64; 1],
}

impl Rows {
    /// Returns the rows before the first sweep: 0 inside.
    fn start(side: usize, rows: std::ops::Range<usize>) -> Rows {
        let (first, width) = (rows.start, side + 2);
        let all = first..rows.end + 2;
        let points = all.flat_map(|row| (0..width).map(move |column| border(side, row, column)));
        Rows { first, width, values: points.collect(), change: [0.0] }
    }

    fn own(&self) -> std::ops::Range<usize> {
        self.width..self.values.len() - self.width
    }

    /// Makes a sweep; returns the largest change.
    fn sweep(&mut self) -> f64 {
        let (width, old) = (self.width, self.values.clone());
        let mut change = 0.0f64;
        for row in self.own().step_by(width) {
            for at in row + 1..row + width - 1 {
                let new = 0.25 * (old[at - width] + old[at + width] + (old[at - 1] + old[at + 1]));
                change = change.max((new - old[at]).abs());
                self.values[at] = new;
            }
        }
        change
    }

    /// Exchanges the border rows with the neighbours.
    fn exchange(&mut self, comm: &mut dyn Communicator) -> Result<(), Error> {
        let (rank, ranks, width) = (comm.rank(), comm.size(), self.width);
        let (own, end) = (self.own(), self.values.len());
        let mut receives = Vec::new();
        if rank > 0 {
            receives.push((0..width, comm.irecv(Some(rank - 1), Some(TAG_DOWN))?));
        }
        if rank + 1 < ranks {
            receives.push((end - width..end, comm.irecv(Some(rank + 1), Some(TAG_UP))?));
        }
        if rank > 0 {
            comm.send(rank - 1, TAG_UP, self.values[own.start..own.start + width].as_bytes())?;
        }
        if rank + 1 < ranks {
            comm.send(rank + 1, TAG_DOWN, self.values[own.end - width..own.end].as_bytes())?;
        }
        for (to, request) in receives {
            let (status, bytes) = comm.wait(request)?;
            let row: Vec<f64> = from_message(comm, (status.source, status.tag), &bytes, width, "a row of the grid")?;
            self.values[to].copy_from_slice(&row);
        }
        Ok(())
    }
}

/// Returns the potential at a border point, and 0 inside.
///
/// Row and column 0 and `side` + 1 are the border.
fn border(side: usize, row: usize, column: usize) -> f64 {
    if (1..=side).contains(&row) && (1..=side).contains(&column) {
        return 0.0;
    }
    let [x, y] = [column, row].map(|at| at as f64 / (side + 1) as f64);
    x * x - y * y
}

impl Laplace {
    /// Creates the program with size `class`.
    pub fn new(class: Class) -> Laplace {
        let (side, sweeps) = match class {
            Class::S => (96, 60),
            Class::W => (256, 200),
            Class::A => (768, 500),
        };
        Laplace { class, side, sweeps }
    }

    /// Computes the sum over all points, and the last largest change, without messages.
    fn known_answer(&self) -> (u64, f64) {
        let mut rows = Rows::start(self.side, 0..self.side);
        let change = (1..=self.sweeps).map(|_| rows.sweep()).last().unwrap_or(0.0);
        (place_sum(0, &rows.values[rows.own()]), change)
    }
}

impl Steps for Laplace {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 4;

    type Part = Rows;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=self.side as u32
    }

    fn steps(&self) -> u64 {
        self.sweeps
    }

    fn message_bytes_max(&self, _ranks: u32) -> usize {
        (self.side + 2) * size_of::<f64>()
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Rows, RanksError> {
        Ok(Rows::start(self.side, part(self.side, rank, ranks)))
    }

    fn restore(&self, rows: &mut Rows, _sweep: u64, body: &[u8]) -> Result<(), StateError> {
        let mut numbers = numbers(body, 1 + rows.values.len())?;
        rows.change = [numbers.remove(0)];
        rows.values = numbers;
        Ok(())
    }

    fn encode(&self, rows: &Rows) -> Vec<u8> {
        [&rows.change[..], &rows.values].concat().as_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, sweep: u64, rows: &mut Rows) -> Result<(), Error> {
        rows.exchange(comm)?;
        let largest = rows.sweep();
        if sweep.is_multiple_of(SWEEPS_PER_NORM) || sweep == self.sweeps {
            rows.change = [largest];
            comm.allreduce_f64(&mut rows.change, Reduction::Max)?;
        }
        Ok(())
    }

    fn finish(&self, comm: &mut dyn Communicator, rows: Rows) -> Result<Outcome, Error> {
        let own = &rows.values[rows.own()];
        let mut sum = [place_sum(rows.first * rows.width, own)];
        comm.allreduce_u64(&mut sum, Reduction::Sum)?;
        Ok(Outcome {
            verified: Some((sum[0], rows.change[0]) == self.known_answer()),
            value: Value::Number(rows.change[0]),
            digest: digest(own),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_approach_the_solution() {
        let side = 15;
        let mut rows = Rows::start(side, 0..side);
        while rows.sweep() > 1e-14 {}
        for (row, column) in (1..=side).flat_map(|row| (1..=side).map(move |column| (row, column))) {
            let [x, y] = [column, row].map(|at| at as f64 / (side + 1) as f64);
            assert!((rows.values[row * (side + 2) + column] - (x * x - y * y)).abs() < 1e-11);
        }
    }
}
