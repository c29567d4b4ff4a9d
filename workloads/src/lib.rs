//! Parallel programs with known answers, written against [`Communicator`].
//!
//! | name | program | receives |
//! |---|---|---|
//! | `cg` | NAS Parallel Benchmarks' CG kernel: sparse matrix, 2-D process grid | from a named rank |
//! | `ring` | tokens from 0 B to 200 KB around a ring, each depending on all earlier ones | from a named rank |
//! | `ft` | the same benchmarks' FT kernel: Fourier transforms in three dimensions | all-to-all exchanges |
//! | `laplace` | Laplace's equation on a square by Jacobi's method | from both neighbours |
//! | `gauss` | dense linear equations by Gauss-Jordan elimination | reductions and broadcasts |
//! | `neurons` | a neuron network by the Runge-Kutta method | five allgathers a step |
//! | `matmul` | matrix multiplications, with rows going around a ring | from a named rank |
//! | `disks` | Monte Carlo: tasks are hard disks' random walks | as `master-worker` |
//! | `checked-matmul` | matrix multiplications, with block sums for rebuilding a lost rank | allgathers |
//! | `qr` | dense QR, with checksums for rebuilding lost ranks | from a named rank |
//! | `master-worker` | tasks assigned to workers as they become idle | wildcards, probes and tests |
//!
//! Each workload saves its state every few iterations, can resume from a saved state, and verifies its answer at the
//! end. [`patterns`] has larger programs' communication, without their computation. A program depends only on its own
//! state and on communicator call outcomes, so a rank with the same outcomes repeats the same execution.
#![forbid(unsafe_code)]

pub mod cg;
pub mod checked_matmul;
pub mod costs;
mod error;
pub mod ft;
pub mod gauss;
pub mod laplace;
pub mod master_worker;
pub mod matmul;
pub mod neurons;
mod outcome;
pub mod patterns;
mod program;
pub mod qr;
mod random;
mod resilient;
pub mod ring;
mod state;
mod steps;
mod values;

use std::fmt;
use std::str::FromStr;

use counterfoil_runtime::communicator::Communicator;
use counterfoil_runtime::transport::CallKind;

use master_worker::{Kind, MasterWorker};

pub use error::{Error, MessageError, RanksError, UnrecoverableError};
pub use outcome::{Outcome, Value, job_digest};
pub use program::{Program, ProgramError};
pub use resilient::Resilient;
pub use state::StateError;

/// Version of this build, with a hash of the sources of everything exchanged between a job's processes.
///
/// Only programs from equal builds make a job together.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (sources ", env!("COUNTERFOIL_SOURCES"), ")");

/// A parallel program with a known answer.
pub trait Workload: fmt::Debug + Send + Sync {
    /// Returns the name, as for [`by_name`].
    fn name(&self) -> &'static str;

    /// Returns the name for recreating the same program; by default, [`name`](Self::name).
    fn full_name(&self) -> String {
        self.name().to_owned()
    }

    /// Returns the problem size.
    fn class(&self) -> Class;

    /// Returns `true` if every run sends and receives the same messages in the same order on every channel; `false` if
    /// they depend on timing.
    ///
    /// The answer is the same in either case.
    fn deterministic(&self) -> bool;

    /// Returns `true` if the program makes such calls, in which a rank can be killed: all kinds, by default.
    fn makes(&self, call: CallKind) -> bool {
        let _ = call;
        true
    }

    /// Checks the number of ranks.
    ///
    /// # Errors
    /// [`RanksError`] names the valid numbers.
    fn validate(&self, ranks: u32) -> Result<(), RanksError>;

    /// Returns the number of iterations reached by rank `rank` of `ranks`, for planning kills.
    fn iterations(&self, rank: u32, ranks: u32) -> Iterations;

    /// Returns the largest payload in bytes sent by any of `ranks` ranks, including collectives.
    ///
    /// Every rank's log must be able to hold it. `ranks` must be [valid](Self::validate).
    fn message_bytes_max(&self, ranks: u32) -> usize;

    /// Runs this rank's part, from the state returned by [`Communicator::restore`] or from the start.
    ///
    /// Iteration n begins with [`Communicator::iteration`]; it ends with a checkpoint if n is a multiple of
    /// `checkpoint_every`. `None` or 0 disable checkpoints. The outcome is the same on all ranks.
    ///
    /// # Errors
    /// [`Error`]: communicator errors, an invalid number of ranks, or another program's state.
    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error>;

    /// Returns one rank's program that rebuilds lost ranks' state, if available.
    fn resilient(&self) -> Option<Box<dyn Resilient>> {
        None
    }
}

/// Bounds on a rank's number of iterations, equal if the number doesn't depend on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// Number reached in every run.
    pub at_least: u64,
    /// Number never exceeded.
    pub at_most: u64,
}

impl Iterations {
    /// Returns bounds of exactly `count` iterations.
    pub const fn exactly(count: u64) -> Iterations {
        Iterations { at_least: count, at_most: count }
    }
}

/// Problem size, named as in the NAS Parallel Benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A sample: well below a second.
    #[default]
    S,
    /// A problem for a 1994 workstation: about a second.
    W,
    /// The smallest real problem: several seconds.
    A,
}

impl Class {
    /// All classes, smallest first.
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

/// Unknown workload or class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No workload has this name.
    #[error("there is no workload {name:?}; there are {}", NAMES.join(", "))]
    Workload {
        /// The requested name.
        name: String,
    },
    /// No factorization has this name.
    #[error(transparent)]
    Shape(#[from] qr::ParseShapeError),
    /// No class has this name.
    #[error("there is no class {name:?}; there are S, W, A")]
    Class {
        /// The requested name.
        name: String,
    },
}

/// Workload constructor.
type Make = fn(Class) -> Box<dyn Workload>;

/// All workloads by name; the first is the default.
const WORKLOADS: [(&str, Make); 11] = [
    (cg::NAME, |class| Box::new(cg::Cg::new(class))),
    (ring::NAME, |class| Box::new(ring::Ring::new(class))),
    (master_worker::NAME, |class| Box::new(MasterWorker::new(Kind::Hashes, class))),
    (ft::NAME, |class| Box::new(ft::Ft::new(class))),
    (laplace::NAME, |class| Box::new(laplace::Laplace::new(class))),
    (gauss::NAME, |class| Box::new(gauss::Gauss::new(class))),
    (neurons::NAME, |class| Box::new(neurons::Neurons::new(class))),
    (matmul::NAME, |class| Box::new(matmul::Matmul::new(class))),
    (checked_matmul::NAME, |class| Box::new(checked_matmul::CheckedMatmul::new(class))),
    (qr::NAME, |class| Box::new(qr::Qr::new(class))),
    (master_worker::DISKS, |class| Box::new(MasterWorker::new(Kind::Disks, class))),
];

/// Names of all workloads.
pub const NAMES: [&str; WORKLOADS.len()] = {
    let mut names = [""; WORKLOADS.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = WORKLOADS[place].0;
        place += 1;
    }
    names
};

/// Returns the workload `name` with size `class`.
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
/// [`LookupError::Workload`] for an unknown name; [`LookupError::Shape`] for an invalid one beginning like a
/// [`qr::Shape`]'s.
pub fn by_name(name: &str, class: Class) -> Result<Box<dyn Workload>, LookupError> {
    if name.strip_prefix(qr::NAME).is_some_and(|rest| rest.starts_with(':')) {
        return Ok(Box::new(qr::Qr::with_shape(name.parse()?)));
    }
    let found = WORKLOADS.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, make)| make(class)).ok_or_else(|| LookupError::Workload { name: name.to_owned() })
}

/// Returns `true` if a checkpoint is due at the end of iteration `n`.
fn checkpoint_due(comm: &dyn Communicator, n: u64, checkpoint_every: Option<u64>) -> bool {
    checkpoint_every.is_some_and(|every| every > 0 && n.is_multiple_of(every)) && comm.is_checkpoint_due()
}
