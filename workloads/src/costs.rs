//! Measurement of the rules' cost without failures: a launcher's plan for a job, and the results.

mod calls;

use counterfoil_runtime::{Rule, Tier};
use serde::{Deserialize, Serialize};

use crate::{LookupError, Workload, by_name};
use calls::Calls;

/// Measurement plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Subjects, run one after the other.
    pub subjects: Vec<Subject>,
    /// Number of runs for each subject in each mode.
    pub rounds: u32,
    /// Log storage.
    pub tier: Tier,
}

/// Program with its modes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The program.
    pub program: Program,
    /// Modes, in their order within a round; `None` is a run on plain MPI, the control.
    pub modes: Vec<Option<Mode>>,
}

/// Timed program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A workload.
    Workload {
        /// Its name.
        name: String,
        /// Problem class: S, W or A.
        class: String,
    },
    /// Repeated collective call.
    Calls {
        /// The call.
        call: Call,
        /// Bytes contributed or received by each rank; a multiple of 8.
        bytes: usize,
        /// Number of calls.
        calls: u64,
    },
}

/// A collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Sum on all ranks.
    Allreduce,
    /// Sum on rank 0.
    Reduce,
    /// From rank 0 to all.
    Bcast,
}

/// Mode of a program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// Recovery rule.
    pub rule: Rule,
    /// Workload iterations from one checkpoint to the next; none are taken if `None`.
    pub checkpoint_every: Option<u64>,
}

impl From<Rule> for Mode {
    fn from(rule: Rule) -> Mode {
        Mode { rule, checkpoint_every: None }
    }
}

/// One subject's runs in one mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The mode; `None` for plain MPI.
    pub mode: Option<Mode>,
    /// Length of each run in seconds.
    pub seconds: Vec<f64>,
    /// For each run: its length divided by the mean length of the plain MPI runs before and after it.
    pub ratios: Vec<f64>,
    /// Logs of all ranks together in the last run, including the barrier and the reduction around the program.
    pub logged: Logged,
}

/// Amount of logged data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Messages in the lanes.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Local log entries: collective call results, messages and notes kept by the rule.
    pub entries: u64,
    /// Their bytes.
    pub entry_bytes: u64,
}

impl Program {
    /// Returns the program for `workload`.
    pub fn of(workload: &dyn Workload) -> Program {
        Program::Workload { name: workload.name().to_owned(), class: workload.class().to_string() }
    }

    /// Returns the program, to be run.
    ///
    /// # Errors
    /// [`LookupError`] for an unknown workload or class.
    pub fn workload(&self) -> Result<Box<dyn Workload>, LookupError> {
        match self {
            Program::Workload { name, class } => by_name(name, class.parse()?),
            &Program::Calls { call, bytes, calls } => Ok(Box::new(Calls::new(call, bytes, calls))),
        }
    }
}
