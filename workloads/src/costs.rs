//! Measurement of what the rules cost while nothing fails: the plan that a launcher passes to a job, and what it
//! returns.

mod calls;

use counterfoil_runtime::{Rule, Tier};
use serde::{Deserialize, Serialize};

use crate::{LookupError, Workload, by_name};
use calls::Calls;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What runs, one after the other.
    pub subjects: Vec<Subject>,
    /// Number of runs of each subject in each mode.
    pub rounds: u32,
    /// Storage of the logs.
    pub tier: Tier,
}

/// A program, and the modes in which it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The program.
    pub program: Program,
    /// Modes, in the order of the runs of a round; `None` is a run on plain MPI, the control.
    pub modes: Vec<Option<Mode>>,
}

/// A program whose runs are timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A workload.
    Workload {
        /// Its name.
        name: String,
        /// Its problem class: S, W or A.
        class: String,
    },
    /// A collective call, again and again.
    Calls {
        /// The call.
        call: Call,
        /// Bytes that each rank contributes or gets; a multiple of 8.
        bytes: usize,
        /// Number of calls.
        calls: u64,
    },
}

/// A collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// A sum that all ranks get.
    Allreduce,
    /// A sum that rank 0 gets.
    Reduce,
    /// From rank 0 to all.
    Bcast,
}

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// Rule of recovery.
    pub rule: Rule,
    /// Iterations of a workload from one checkpoint to the next; none are taken if `None`.
    pub checkpoint_every: Option<u64>,
}

impl From<Rule> for Mode {
    fn from(rule: Rule) -> Mode {
        Mode { rule, checkpoint_every: None }
    }
}

/// Runs of one subject in one mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The mode; `None` for plain MPI.
    pub mode: Option<Mode>,
    /// Length of each run in seconds.
    pub seconds: Vec<f64>,
    /// For each run: its length by the mean length of the runs on plain MPI before and after it.
    pub ratios: Vec<f64>,
    /// What all ranks together have logged in the last run, the barrier and the reduction around the program included.
    pub logged: Logged,
}

/// What ranks have logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Messages in the lanes.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Entries of the local logs: results of collective calls, messages and notes that the rule kept.
    pub entries: u64,
    /// Bytes of these entries.
    pub entry_bytes: u64,
}

impl Program {
    /// Returns the program that runs `workload`.
    pub fn of(workload: &dyn Workload) -> Program {
        Program::Workload { name: workload.name().to_owned(), class: workload.class().to_string() }
    }

    /// Returns the program, to be run.
    ///
    /// # Errors
    /// [`LookupError`] for a workload or a class that there isn't.
    pub fn workload(&self) -> Result<Box<dyn Workload>, LookupError> {
        match self {
            Program::Workload { name, class } => by_name(name, class.parse()?),
            &Program::Calls { call, bytes, calls } => Ok(Box::new(Calls::new(call, bytes, calls))),
        }
    }
}
