//! Parallel programs with known answers, written against [`Communicator`].
//!
//! | name | what it does | receives |
//! |---|---|---|
//! | `cg` | the CG kernel of the NAS Parallel Benchmarks: sparse matrix, 2-D process grid | always of a named rank |
//! | `ring` | tokens of 0 B to 200 KB around a ring, each depending on all before | always of a named rank |
//! | `master-worker` | tasks handed out as workers come free | wildcards, probes and tests |
//!
//! Each one saves its state every so many iterations, goes on from a saved state, and says at the end whether its
//! answer is the known one. [`patterns`] are who-sends-to-whom of larger programs, without the programs. All that isn't determined by a program's own state comes from calls of the
//! communicator, so a rank that is fed the same outcomes again does the same again.
#![forbid(unsafe_code)]

pub mod cg;
mod error;
pub mod master_worker;
mod outcome;
pub mod patterns;
pub mod ring;
mod state;

use std::fmt;
use std::str::FromStr;

use counterfoil_runtime::communicator::Communicator;

pub use error::{Error, MessageError, RanksError};
pub use outcome::{Outcome, Value, job_digest};
pub use state::StateError;

/// A parallel program with a known answer.
pub trait Workload: fmt::Debug + Send + Sync {
    /// The name that [`by_name`] knows it under.
    fn name(&self) -> &'static str;

    /// How large a problem it solves.
    fn class(&self) -> Class;

    /// Whether every run sends and receives the same messages in the same order on every channel. False if what
    /// happens depends on timing; the answer is the same all the same.
    fn deterministic(&self) -> bool;

    /// Whether it can run on that many ranks.
    ///
    /// # Errors
    /// [`RanksError`] says what would do.
    fn validate(&self, ranks: u32) -> Result<(), RanksError>;

    /// How many iterations rank `rank` of `ranks` reaches: where a kill can be planned.
    fn iterations(&self, rank: u32, ranks: u32) -> Iterations;

    /// Payload of the largest message that any rank of `ranks` sends, those of collectives included, in bytes: what
    /// every rank's log must be able to hold. Only for a number of ranks that it can run on.
    fn message_bytes_max(&self, ranks: u32) -> usize;

    /// Runs this rank's part, from the state that [`Communicator::restore`] gives or from the start.
    ///
    /// Iteration n begins with [`Communicator::iteration`]; it ends with a checkpoint if n is a multiple of
    /// `checkpoint_every`. With `None` or 0 there are none. The outcome is the same on all ranks.
    ///
    /// # Errors
    /// [`Error`]: those of the communicator, too few or too many ranks, or a state of another program.
    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error>;
}

/// How many iterations a rank reaches. The two bounds are equal where the number doesn't depend on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// Reached in every run.
    pub at_least: u64,
    /// Never exceeded.
    pub at_most: u64,
}

impl Iterations {
    /// Exactly `count` iterations in every run.
    pub const fn exactly(count: u64) -> Iterations {
        Iterations { at_least: count, at_most: count }
    }
}

/// How large a problem is. The names are those of the NAS Parallel Benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A sample: well below a second.
    #[default]
    S,
    /// As large as a workstation of 1994 could do: about a second.
    W,
    /// The smallest of the real problems: several seconds.
    A,
}

impl Class {
    /// All of them, smallest first.
    pub const ALL: [Class; 3] = [Class::S, Class::W, Class::A];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::S => "S",
            Class::W => "W",
            Class::A => "A",
        })
    }
}

impl FromStr for Class {
    type Err = LookupError;

    fn from_str(name: &str) -> Result<Class, LookupError> {
        let class = Class::ALL.into_iter().find(|class| class.to_string().eq_ignore_ascii_case(name));
        class.ok_or_else(|| LookupError::Class { name: name.to_owned() })
    }
}

/// A workload or class that doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// There is no workload of this name.
    #[error("there is no workload {name:?}; there are {}", NAMES.join(", "))]
    Workload {
        /// The name that was asked for.
        name: String,
    },
    /// There is no class of this name.
    #[error("there is no class {name:?}; there are S, W, A")]
    Class {
        /// The name that was asked for.
        name: String,
    },
}

/// The names of all workloads.
pub const NAMES: [&str; 3] = [cg::NAME, ring::NAME, master_worker::NAME];

/// The workload called `name`, of size `class`.
///
/// ```
/// use counterfoil_workloads::{Class, by_name};
/// let cg = by_name("cg", Class::S)?;
/// assert_eq!(cg.iterations(2, 4).at_least, 15);
/// assert!(cg.validate(3).is_err());
/// # Ok::<(), counterfoil_workloads::LookupError>(())
/// ```
///
/// # Errors
/// [`LookupError::Workload`].
pub fn by_name(name: &str, class: Class) -> Result<Box<dyn Workload>, LookupError> {
    match name {
        cg::NAME => Ok(Box::new(cg::Cg::new(class))),
        ring::NAME => Ok(Box::new(ring::Ring::new(class))),
        master_worker::NAME => Ok(Box::new(master_worker::MasterWorker::new(class))),
        _ => Err(LookupError::Workload { name: name.to_owned() }),
    }
}

/// Whether a checkpoint is due at the end of iteration `n`.
fn checkpoint_due(n: u64, checkpoint_every: Option<u64>) -> bool {
    checkpoint_every.is_some_and(|every| every > 0 && n.is_multiple_of(every))
}
