//! CG kernel of the NAS Parallel Benchmarks, from its published specification (Bailey et al., 'The NAS Parallel
//! Benchmarks', report RNR-94-007, section 2.4; parallel layout as in report NAS-95-020).
//!
//! It estimates a large sparse random matrix's eigenvalue nearest to a shift, by the inverse power method: each outer
//! iteration solves A z = x in 25 conjugate gradient steps, computes zeta = shift + 1 / (x . z), and continues with x =
//! z / |z|. The kernel has irregular memory accesses and many small messages in a fixed pattern: exchanges along the
//! rows in a 2-D process grid, and with a partner at the transposed place.
//!
//! The benchmark's untimed warm-up pass, with a discarded result, is omitted.

mod grid;
mod matrix;
mod solve;

use std::ops::RangeInclusive;

use counterfoil_runtime::communicator::Communicator;
use counterfoil_runtime::transport::CallKind;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

use crate::steps::Steps;
use crate::values::numbers;
use crate::{Class, Error, Outcome, RanksError, StateError, Value};
use grid::Grid;
use matrix::{Matrix, Shape};
use solve::Solver;

/// Name of this workload.
pub const NAME: &str = "cg";

/// Maximum deviation of zeta from the published value.
const TOLERANCE: f64 = 1e-10;

/// The CG kernel.
///
/// | class | order | elements in a random vector | outer iterations | shift | zeta |
/// |---|---|---|---|---|---|
/// | S | 1,400 | 7 | 15 | 10 | 8.5971775078648 |
/// | W | 7,000 | 8 | 15 | 12 | 10.362595087124 |
/// | A | 14,000 | 11 | 15 | 20 | 17.130235054029 |
///
/// Runs on any power of two up to 2^16 ranks. Every rank's iteration is one outer iteration.
#[derive(Clone, Debug)]
pub struct Cg {
    class: Class,
    shape: Shape,
    outer_iterations: u64,
    /// Published answer.
    zeta: f64,
}

/// A rank's place in the process grid, matrix block, and state between two outer iterations.
pub(crate) struct Part {
    grid: Grid,
    matrix: Matrix,
    progress: Progress,
}

/// State between two outer iterations.
struct Progress {
    zeta: f64,
    /// |x - A z| after the last solve.
    residual: f64,
    /// This process's part of the vector.
    x: Vec<f64>,
}

impl Cg {
    /// Limit at which the smallest class's blocks have only a few elements.
    const RANKS_MAX: u32 = 1 << 16;

    /// Creates the kernel with size `class`.
    pub fn new(class: Class) -> Cg {
        let (order, nonzeros, shift, zeta) = match class {
            Class::S => (1_400, 7, 10.0, 8.597_177_507_864_8),
            Class::W => (7_000, 8, 12.0, 10.362_595_087_124),
            Class::A => (14_000, 11, 20.0, 17.130_235_054_029),
        };
        Cg { class, shape: Shape { order, nonzeros, shift }, outer_iterations: 15, zeta }
    }
}

impl Progress {
    /// Encodes zeta, residual and vector, little-endian as in memory.
    fn to_body(&self) -> Vec<u8> {
        [&self.zeta.to_le_bytes(), &self.residual.to_le_bytes(), self.x.as_bytes()].concat()
    }

    fn from_body(body: &[u8], columns: usize) -> Result<Progress, StateError> {
        let mut numbers = numbers(body, columns + 2)?;
        let x = numbers.split_off(2);
        Ok(Progress { zeta: numbers[0], residual: numbers[1], x })
    }
}

impl Steps for Cg {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 1;

    type Part = Part;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=Cg::RANKS_MAX
    }

    fn check_ranks(&self, ranks: u32) -> Result<(), RanksError> {
        RanksError::check_power_of_two(NAME, ranks)
    }

    /// Sums are exchanged by point-to-point messages.
    fn makes(&self, call: CallKind) -> bool {
        call != CallKind::Collective
    }

    fn steps(&self) -> u64 {
        self.outer_iterations
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        let grids = (0..ranks).filter_map(|rank| Grid::new(self.shape.order, rank, ranks).ok());
        (0..).zip(grids).map(|(rank, grid)| solve::message_bytes_max(&grid, rank)).max().unwrap_or(0)
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Part, RanksError> {
        let grid = Grid::new(self.shape.order, rank, ranks)?;
        let matrix = Matrix::generate(&self.shape, grid.rows(), grid.columns());
        let progress = Progress { zeta: 0.0, residual: 0.0, x: vec![1.0; grid.columns().len()] };
        Ok(Part { grid, matrix, progress })
    }

    fn restore(&self, part: &mut Part, _iteration: u64, body: &[u8]) -> Result<(), StateError> {
        part.progress = Progress::from_body(body, part.progress.x.len())?;
        Ok(())
    }

    fn encode(&self, part: &Part) -> Vec<u8> {
        part.progress.to_body()
    }

    fn step(&self, comm: &mut dyn Communicator, _iteration: u64, part: &mut Part) -> Result<(), Error> {
        let Part { grid, matrix, progress } = part;
        let mut solver = Solver::new(comm, grid, matrix);
        let solution = solver.solve(&progress.x)?;
        let [xz, zz] = solver.dots([(&progress.x, &solution.z), (&solution.z, &solution.z)])?;
        progress.zeta = self.shape.shift + 1.0 / xz;
        progress.residual = solution.residual;
        let scale = 1.0 / zz.sqrt();
        progress.x = solution.z.iter().map(|z| scale * z).collect();
        Ok(())
    }

    fn finish(&self, _: &mut dyn Communicator, part: Part) -> Result<Outcome, Error> {
        let progress = part.progress;
        Ok(Outcome {
            verified: Some((progress.zeta - self.zeta).abs() <= TOLERANCE),
            value: Value::Number(progress.zeta),
            digest: xxh3_64(&progress.to_body()),
        })
    }
}
