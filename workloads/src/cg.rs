//! The CG kernel of the NAS Parallel Benchmarks, from its published specification (Bailey et al., 'The NAS Parallel
//! Benchmarks', report RNR-94-007, section 2.4; parallel layout as in report NAS-95-020).
//!
//! It estimates the eigenvalue of a large sparse random matrix that is nearest to a shift, by the inverse power
//! method: each outer iteration solves A z = x by 25 steps of conjugate gradients, computes
//! zeta = shift + 1 / (x . z), and continues with x = z / |z|. The kernel has irregular memory accesses and many small
//! messages in a fixed pattern: exchanges along the rows of a 2-D process grid, and with a partner at the transposed place.
//!
//! The benchmark's untimed warm-up pass, whose result is discarded, is omitted.

mod grid;
mod matrix;
mod solve;

use counterfoil_runtime::communicator::Communicator;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

use crate::state::{Owner, decode, encode};
use crate::values::numbers;
use crate::{Class, Error, Iterations, Outcome, RanksError, StateError, Value, Workload, checkpoint_due};
use grid::Grid;
use matrix::{Matrix, Shape};
use solve::Solver;

/// Name of this workload.
pub const NAME: &str = "cg";

const STATE_ID: u32 = 1;

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
/// Runs on any power of two of ranks up to 2^16. An iteration of every rank is one outer iteration.
#[derive(Clone, Debug)]
pub struct Cg {
    class: Class,
    shape: Shape,
    outer_iterations: u64,
    /// Published answer.
    zeta: f64,
}

/// State between two outer iterations.
struct Progress {
    /// Last complete outer iteration.
    iteration: u64,
    zeta: f64,
    /// |x - A z| after the last solve.
    residual: f64,
    /// This process's part of the vector.
    x: Vec<f64>,
}

impl Cg {
    /// Limit at which blocks of the smallest class have only a few elements.
    const RANKS_MAX: u32 = 1 << 16;

    /// Creates the kernel of size `class`.
    pub fn new(class: Class) -> Cg {
        let (order, nonzeros, shift, zeta) = match class {
            Class::S => (1_400, 7, 10.0, 8.597_177_507_864_8),
            Class::W => (7_000, 8, 12.0, 10.362_595_087_124),
            Class::A => (14_000, 11, 20.0, 17.130_235_054_029),
        };
        Cg { class, shape: Shape { order, nonzeros, shift }, outer_iterations: 15, zeta }
    }

    fn owner(&self, rank: u32, ranks: u32) -> Owner {
        Owner { workload: STATE_ID, class: self.class, rank, ranks }
    }

    fn resume(&self, comm: &mut dyn Communicator, grid: &Grid) -> Result<Progress, Error> {
        let columns = grid.columns().len();
        let Some(bytes) = comm.restore()? else {
            return Ok(Progress { iteration: 0, zeta: 0.0, residual: 0.0, x: vec![1.0; columns] });
        };
        let owner = self.owner(comm.rank(), comm.size());
        let (iteration, body) = decode(&owner, Iterations::exactly(self.outer_iterations), &bytes)?;
        Ok(Progress::from_body(iteration, body, columns)?)
    }
}

impl Progress {
    /// Encodes zeta, residual and vector, little-endian as in memory.
    fn to_body(&self) -> Vec<u8> {
        [&self.zeta.to_le_bytes(), &self.residual.to_le_bytes(), self.x.as_bytes()].concat()
    }

    fn from_body(iteration: u64, body: &[u8], columns: usize) -> Result<Progress, StateError> {
        let mut numbers = numbers(body, columns + 2)?;
        let x = numbers.split_off(2);
        Ok(Progress { iteration, zeta: numbers[0], residual: numbers[1], x })
    }
}

impl Workload for Cg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        if !ranks.is_power_of_two() {
            return Err(RanksError::NotPowerOfTwo { workload: NAME, ranks });
        }
        if ranks > Cg::RANKS_MAX {
            return Err(RanksError::TooMany { workload: NAME, class: self.class, ranks, at_most: Cg::RANKS_MAX });
        }
        Ok(())
    }

    fn iterations(&self, _rank: u32, _ranks: u32) -> Iterations {
        Iterations::exactly(self.outer_iterations)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        let grids = (0..ranks).filter_map(|rank| Grid::new(self.shape.order, rank, ranks).ok());
        (0..).zip(grids).map(|(rank, grid)| solve::message_bytes_max(&grid, rank)).max().unwrap_or(0)
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        self.validate(comm.size())?;
        let grid = Grid::new(self.shape.order, comm.rank(), comm.size())?;
        let owner = self.owner(comm.rank(), comm.size());
        let mut progress = self.resume(comm, &grid)?;
        let matrix = Matrix::generate(&self.shape, grid.rows(), grid.columns());
        let mut solver = Solver::new(comm, &grid, &matrix);
        while progress.iteration < self.outer_iterations {
            let n = progress.iteration + 1;
            solver.comm().iteration(n)?;
            let solution = solver.solve(&progress.x)?;
            let [xz, zz] = solver.dots([(&progress.x, &solution.z), (&solution.z, &solution.z)])?;
            progress.iteration = n;
            progress.zeta = self.shape.shift + 1.0 / xz;
            progress.residual = solution.residual;
            let scale = 1.0 / zz.sqrt();
            progress.x = solution.z.iter().map(|z| scale * z).collect();
            if checkpoint_due(n, checkpoint_every) {
                solver.comm().checkpoint(&encode(&owner, n, &progress.to_body()))?;
            }
        }
        Ok(Outcome {
            verified: Some((progress.zeta - self.zeta).abs() <= TOLERANCE),
            value: Value::Number(progress.zeta),
            digest: xxh3_64(&progress.to_body()),
        })
    }
}
