//! Communication patterns: one iteration's messages with their sizes and order.
//!
//! Five NAS Parallel Benchmarks kernels in class D, from Table I in Guermouche 2011 (section V.E), and a torus for any
//! number of ranks. A pattern computes nothing; it serves to simulate runs too large to execute, to choose clusters,
//! and to count the messages a logging rule would keep. `docs/book/src/explanation/patterns.md` has each structure's
//! sources and omissions.
//!
//! ```
//! use counterfoil_workloads::patterns::{Kernel, Pattern};
//! let cg = Pattern::nas(Kernel::Cg, 64)?;
//! let matrix = cg.matrix();
//! assert_eq!(matrix.messages(), cg.messages().count() as u64);
//! assert!(Pattern::nas(Kernel::Bt, 128).is_err());
//! assert_eq!(Kernel::Bt.ranks_within(128), Some(121));
//! # Ok::<(), counterfoil_workloads::patterns::PatternError>(())
//! ```

mod blocks;
mod bt;
mod cg;
mod collective;
mod ft;
mod lu;
mod matrix;
mod mg;
mod neighbour;
mod published;
mod sends;
#[cfg(test)]
mod structure;
#[cfg(test)]
mod table_1;
#[cfg(test)]
mod table_1_measured;

use std::fmt;
use std::str::FromStr;

use counterfoil_simulator::measure::{Hop, Iteration, MeasureError};
use neighbour::Torus;

pub use matrix::{Matrix, Pair};
pub use published::Cell;

/// One message in an iteration.
///
/// `step` orders the iteration: a message may depend on messages received by its source in lower steps, and on nothing
/// else in the same iteration. So every rank can execute the steps one by one, in each first send and then receive,
/// without a deadlock. Messages with the same source and step are sent in the order of [`Pattern::sends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Step in the iteration, from 0.
    ///
    /// Not every rank sends in every step.
    pub step: u32,
    /// Source rank.
    pub source: u32,
    /// Destination rank; never the source itself.
    pub destination: u32,
    /// Payload in bytes.
    pub bytes: u64,
}

/// NAS Parallel Benchmarks kernel, in class D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// Multigrid V-cycles on 1024^3 points: border exchange on a 3-D torus, on ten levels.
    Mg,
    /// SSOR sweeps over 408^3 points: wavefronts over a 2-D grid.
    Lu,
    /// Fourier transform on 2048 x 1024 x 1024 points: an all-to-all transpose.
    Ft,
    /// Conjugate gradients, order 1,500,000: sums along the rows in a 2-D grid, swaps across its diagonal.
    Cg,
    /// Block-tridiagonal solver on 408^3 points, each process with a diagonal of cells.
    Bt,
}

impl Kernel {
    /// All kernels, in the order of the paper's Table I.
    pub const ALL: [Kernel; 5] = [Kernel::Mg, Kernel::Lu, Kernel::Ft, Kernel::Cg, Kernel::Bt];

    /// Returns the number of iterations in a class D run.
    pub const fn iterations(self) -> u32 {
        match self {
            Kernel::Mg => mg::ITERATIONS,
            Kernel::Lu => lu::ITERATIONS,
            Kernel::Ft => ft::ITERATIONS,
            Kernel::Cg => cg::ITERATIONS,
            Kernel::Bt => bt::ITERATIONS,
        }
    }

    /// Returns the largest valid number of ranks up to `ranks`; `None` if `ranks` is below the smallest valid one.
    ///
    /// BT needs a square: 121 for 128.
    pub fn ranks_within(self, ranks: u32) -> Option<u32> {
        let (at_least, at_most) = self.ranks_limits();
        let ranks = ranks.min(at_most);
        if ranks < at_least {
            return None;
        }
        Some(match self {
            Kernel::Bt => ranks.isqrt().pow(2),
            Kernel::Mg | Kernel::Lu | Kernel::Ft | Kernel::Cg => 1 << ranks.ilog2(),
        })
    }

    /// Returns the smallest and largest number of ranks for which this structure matches the benchmark.
    const fn ranks_limits(self) -> (u32, u32) {
        match self {
            Kernel::Mg => mg::RANKS,
            Kernel::Lu => lu::RANKS,
            Kernel::Ft => ft::RANKS,
            Kernel::Cg => cg::RANKS,
            Kernel::Bt => bt::RANKS,
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::Mg => "MG",
            Kernel::Lu => "LU",
            Kernel::Ft => "FT",
            Kernel::Cg => "CG",
            Kernel::Bt => "BT",
        })
    }
}

impl FromStr for Kernel {
    type Err = PatternError;

    /// Parses a kernel's two letters, ignoring case.
    fn from_str(name: &str) -> Result<Kernel, PatternError> {
        let known = Kernel::ALL.into_iter().find(|kernel| kernel.to_string().eq_ignore_ascii_case(name));
        known.ok_or_else(|| PatternError::Kernel { name: name.to_owned() })
    }
}

/// One iteration's messages, for a fixed number of ranks.
///
/// Stores only the shape, no message list: a rank's messages are generated on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    ranks: u32,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nas(Kernel),
    Neighbour(Torus),
}

impl Pattern {
    /// Returns a kernel's pattern, in class D.
    ///
    /// # Errors
    /// [`PatternError::Ranks`] unless `ranks` is valid for the kernel: a power of two, for BT a square.
    pub fn nas(kernel: Kernel, ranks: u32) -> Result<Pattern, PatternError> {
        if kernel.ranks_within(ranks) != Some(ranks) {
            let (at_least, at_most) = kernel.ranks_limits();
            let shape = if kernel == Kernel::Bt { "a square" } else { "a power of two" };
            return Err(PatternError::Ranks { kernel, ranks, shape, at_least, at_most });
        }
        Ok(Pattern { ranks, shape: Shape::Nas(kernel) })
    }

    /// Returns a torus pattern: each rank sends `bytes` to the next and to the previous rank along each axis.
    ///
    /// Rank = x + `extents[0]` * (y + `extents[1]` * z). An axis with extent 1 has no messages (so a 2-D torus has 1 as
    /// third extent); with extent 2, both messages go to the same rank.
    ///
    /// # Errors
    /// [`PatternError::Extents`] if an extent is 0 or the number of ranks exceeds a `u32`.
    pub fn neighbour(extents: [u32; 3], bytes: u64) -> Result<Pattern, PatternError> {
        let torus = Torus::new(extents, bytes).ok_or(PatternError::Extents { extents })?;
        Ok(Pattern { ranks: torus.ranks(), shape: Shape::Neighbour(torus) })
    }

    /// Returns the number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the messages sent by `rank` in one iteration, in order; none for a nonexistent rank.
    ///
    /// Time and memory are proportional to the rank's messages, independent of the number of ranks.
    pub fn sends(&self, rank: u32) -> Vec<Message> {
        if rank >= self.ranks {
            return Vec::new();
        }
        match self.shape {
            Shape::Nas(Kernel::Mg) => mg::sends(rank, self.ranks),
            Shape::Nas(Kernel::Lu) => lu::sends(rank, self.ranks),
            Shape::Nas(Kernel::Ft) => ft::sends(rank, self.ranks),
            Shape::Nas(Kernel::Cg) => cg::sends(rank, self.ranks),
            Shape::Nas(Kernel::Bt) => bt::sends(rank, self.ranks),
            Shape::Neighbour(torus) => torus.sends(rank),
        }
    }

    /// Iterates over all messages in one iteration, rank by rank, each rank's in order.
    ///
    /// Stores one rank's at a time. A stable sort by [`Message::step`] gives a possible sending order.
    pub fn messages(&self) -> impl Iterator<Item = Message> + use<> {
        let pattern = *self;
        (0..self.ranks).flat_map(move |rank| pattern.sends(rank))
    }

    /// Converts the pattern for the state machines in [`counterfoil_simulator::measure`].
    ///
    /// # Errors
    /// Never fails for this crate's patterns.
    pub fn iteration(&self) -> Result<Iteration, MeasureError> {
        let hop = |Message { step, source, destination, bytes }| Hop { step, source, destination, bytes };
        Iteration::new(self.ranks, self.messages().map(hop))
    }

    /// Returns one iteration's messages and bytes for each communicating ordered pair of ranks.
    pub fn matrix(&self) -> Matrix {
        Matrix::new((0..self.ranks).map(|rank| self.sends(rank)))
    }
}

/// Error in the parameters of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The number of ranks is invalid for the kernel.
    #[error("{kernel} of class D needs {shape} of ranks, {at_least} to {at_most}, not {ranks}")]
    Ranks {
        /// The kernel.
        kernel: Kernel,
        /// The requested number of ranks.
        ranks: u32,
        /// Required kind of number.
        shape: &'static str,
        /// Smallest valid number.
        at_least: u32,
        /// Largest valid number.
        at_most: u32,
    },
    /// No kernel has this name.
    #[error("no kernel is called {name}: there are mg, lu, ft, cg and bt")]
    Kernel {
        /// The requested name.
        name: String,
    },
    /// An extent is 0, or the number of ranks exceeds a `u32`.
    #[error("a torus of {extents:?} has no rank or more than {}", u32::MAX)]
    Extents {
        /// The requested extents.
        extents: [u32; 3],
    },
}
