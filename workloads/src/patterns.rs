//! Communication patterns: who sends how much to whom in one iteration, and what has to be received before.
//!
//! Five kernels of the NAS Parallel Benchmarks in class D, which are the ones of Table I of Guermouche 2011 (section
//! V.E), and a torus of neighbours for as many ranks as one likes. A pattern computes nothing; it is for simulating
//! runs that are too large to run, for choosing clusters, and for counting what a rule of logging would keep.
//! `docs/patterns.md` says where each structure comes from and what is left out.
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

use counterfoil_runtime::measure::{Hop, Iteration, MeasureError};
use neighbour::Torus;

pub use matrix::{Matrix, Pair};
pub use published::Cell;

/// One message of an iteration.
///
/// `step` orders the iteration: a message may depend on what its source has received with lower steps, and on nothing
/// else of the same iteration. So every rank can go through the steps one by one and, in each, first send and then
/// receive, and never waits for a message that waits for it. Messages of one source and step leave in the order in
/// which [`Pattern::sends`] gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Place in the iteration, from 0. Not every rank sends in every step.
    pub step: u32,
    /// The sender.
    pub source: u32,
    /// The receiver; never the sender itself.
    pub destination: u32,
    /// Payload in bytes.
    pub bytes: u64,
}

/// A kernel of the NAS Parallel Benchmarks, in class D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// Multigrid V-cycles on 1024^3 points: borders of a 3-D torus on ten levels.
    Mg,
    /// SSOR sweeps over 408^3 points: wavefronts over a 2-D grid.
    Lu,
    /// Fourier transform of 2048 x 1024 x 1024 points: a transpose of all with all.
    Ft,
    /// Conjugate gradients, order 1,500,000: sums along rows of a 2-D grid, swaps across its diagonal.
    Cg,
    /// Block-tridiagonal solver on 408^3 points, each process with a diagonal of cells.
    Bt,
}

impl Kernel {
    /// All of them, in the order of the paper's Table I.
    pub const ALL: [Kernel; 5] = [Kernel::Mg, Kernel::Lu, Kernel::Ft, Kernel::Cg, Kernel::Bt];

    /// Iterations of a run of class D.
    pub const fn iterations(self) -> u32 {
        match self {
            Kernel::Mg => mg::ITERATIONS,
            Kernel::Lu => lu::ITERATIONS,
            Kernel::Ft => ft::ITERATIONS,
            Kernel::Cg => cg::ITERATIONS,
            Kernel::Bt => bt::ITERATIONS,
        }
    }

    /// The largest number of ranks, at most `ranks`, that it runs on; `None` if `ranks` is below the smallest.
    ///
    /// BT needs a square: it gives 121 for 128.
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

    /// The smallest and largest number of ranks for which the structure here is that of the benchmark.
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

    /// By its two letters, large or small.
    fn from_str(name: &str) -> Result<Kernel, PatternError> {
        let known = Kernel::ALL.into_iter().find(|kernel| kernel.to_string().eq_ignore_ascii_case(name));
        known.ok_or_else(|| PatternError::Kernel { name: name.to_owned() })
    }
}

/// What is sent in one iteration, by each of a fixed number of ranks.
///
/// It holds only the shape, never a list of messages: those of one rank are made when they are asked for.
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
    /// A kernel's iteration, in class D.
    ///
    /// # Errors
    /// [`PatternError::Ranks`] unless `ranks` is a number that the kernel runs on: a power of two, for BT a square.
    pub fn nas(kernel: Kernel, ranks: u32) -> Result<Pattern, PatternError> {
        if kernel.ranks_within(ranks) != Some(ranks) {
            let (at_least, at_most) = kernel.ranks_limits();
            let shape = if kernel == Kernel::Bt { "a square" } else { "a power of two" };
            return Err(PatternError::Ranks { kernel, ranks, shape, at_least, at_most });
        }
        Ok(Pattern { ranks, shape: Shape::Nas(kernel) })
    }

    /// Ranks on a torus; each sends `bytes` to the next and to the previous rank along each axis.
    ///
    /// Rank = x + `extents[0]` * (y + `extents[1]` * z). An axis of extent 1 has no messages (so a 2-D torus has a
    /// third extent of 1); on one of extent 2, both messages go to the same rank.
    ///
    /// # Errors
    /// [`PatternError::Extents`] if an extent is 0 or there are more ranks than a `u32` can count.
    pub fn neighbour(extents: [u32; 3], bytes: u64) -> Result<Pattern, PatternError> {
        let torus = Torus::new(extents, bytes).ok_or(PatternError::Extents { extents })?;
        Ok(Pattern { ranks: torus.ranks(), shape: Shape::Neighbour(torus) })
    }

    /// How many ranks there are.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// What `rank` sends in one iteration, in its order; nothing if there is no such rank.
    ///
    /// Costs time and memory in proportion to that rank's messages, whatever the number of ranks.
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

    /// All messages of one iteration, rank after rank, each rank's in its order. Holds one rank's at a time.
    ///
    /// A stable sort by [`Message::step`] puts them into an order in which they could have been sent.
    pub fn messages(&self) -> impl Iterator<Item = Message> + use<> {
        let pattern = *self;
        (0..self.ranks).flat_map(move |rank| pattern.sends(rank))
    }

    /// The same messages, for the state machines of [`counterfoil_runtime::measure`].
    ///
    /// # Errors
    /// None of the patterns here has a message that it refuses.
    pub fn iteration(&self) -> Result<Iteration, MeasureError> {
        let hop = |Message { step, source, destination, bytes }| Hop { step, source, destination, bytes };
        Iteration::new(self.ranks, self.messages().map(hop))
    }

    /// Messages and bytes of one iteration for each ordered pair of ranks that has any.
    pub fn matrix(&self) -> Matrix {
        Matrix::new((0..self.ranks).map(|rank| self.sends(rank)))
    }
}

/// A pattern that doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The kernel doesn't run on that many ranks.
    #[error("{kernel} of class D needs {shape} of ranks, {at_least} to {at_most}, not {ranks}")]
    Ranks {
        /// The kernel.
        kernel: Kernel,
        /// How many ranks were asked for.
        ranks: u32,
        /// What kind of number it must be.
        shape: &'static str,
        /// The smallest that will do.
        at_least: u32,
        /// The largest that will do.
        at_most: u32,
    },
    /// No such kernel.
    #[error("no kernel is called {name}: there are mg, lu, ft, cg and bt")]
    Kernel {
        /// What was asked for.
        name: String,
    },
    /// An extent is 0, or the torus has more ranks than can be counted.
    #[error("a torus of {extents:?} has no rank or more than {}", u32::MAX)]
    Extents {
        /// What was asked for.
        extents: [u32; 3],
    },
}
