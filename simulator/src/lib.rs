//! Runs a protocol under virtual ranks, network and time: a program and a schedule of failures in one thread, without a
//! clock.
//!
//! A run follows from its [`Schedule`] alone: virtual ranks run a program with fixed sends and free receive order,
//! connections are FIFO, and a seed chooses the next event among all possible ones. Processes die at any event, even
//! while others recover, several at once, or repeatedly. Oracles observe every event, independently of protocol and
//! log. A failing schedule is shrunk to a small one, written as one line of text.
//!
//! - `schedule`, `text`: input of a run, and its text form
//! - `canary`: planted mistakes, in builds with the feature `planted`; rules have theirs from `counterfoil_canaries`
//! - `program`, `application`, `call`: the ranks' program, their state, and collective calls
//! - `rule`: settings of a [`Rule`]'s state machines
//! - `chooser`, `network`, `process`, `world`: scheduler, connections, process state, and the run as a whole
//! - `trace`, `oracle`, `violation`: events of a run, and their checks
//! - `recording`, [`diagram`]: a run as a list, and as a picture
//! - `campaign`, `shrink`, `coverage`: many schedules, a smaller one, and counters of cases reached
//! - [`measure`]: tables from the papers, measured on the state machines without failures
//!
//! # The log is a model
//!
//! A lane is a queue of headers and payloads in the rank's memory, not the facade's `Log`: a process lives for some
//! hundred events, and creating pools, chunks and files for each would leave time for few schedules. The simulator
//! proves the rule; the engine has its own proofs (memory-order models, fuzzing, real kills). The model loses a lane
//! with its process ([`Tier::Volatile`]) or keeps it ([`Tier::ProcessCrashSafe`]); checkpoints (application, tables,
//! lanes, and received, untaken messages), recorded outcomes and recorded deliveries survive in both. Payloads are
//! sixteen bytes derived from everything their sender had seen, so one wrong message changes all later ones.
//!
//! ```
//! use counterfoil_protocols::sender_based::RULE;
//! use counterfoil_simulator::{Config, Schedule, campaign, run};
//!
//! let config = Config::default();
//! let outcome = run(&RULE, &config.schedule(7, false));
//! assert_eq!(outcome.violation, None);
//! let summary = campaign(&RULE, 0..20, &config, |_| {});
//! assert_eq!((summary.schedules, summary.failed), (20, 0));
//!
//! let line = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform \
//!             seed=5 faults=31:2:9";
//! assert_eq!(run(&RULE, &line.parse::<Schedule>()?).violation, None);
//! # Ok::<(), counterfoil_simulator::ScheduleError>(())
//! ```
#![forbid(unsafe_code)]

mod application;
mod call;
mod campaign;
mod canary;
mod chooser;
mod coverage;
mod damage;
pub mod diagram;
pub mod generations;
pub mod measure;
mod network;
mod oracle;
mod process;
mod program;
mod random;
mod recording;
mod rule;
mod schedule;
mod settings;
mod shrink;
mod text;
mod trace;
mod violation;
mod world;

pub use campaign::{Failure, Progress, Summary, campaign};
pub use canary::Canary;
pub use coverage::{Coverage, Splits};
pub use damage::Damage;
pub use program::{Pattern, Shape};
pub use recording::{Activity, Dropped, Recorded};
pub use schedule::{Config, Fault, Mode, Schedule, Tier};
pub use settings::Settings;
pub use shrink::{Shrunk, shrink};
pub use text::ScheduleError;
pub use violation::{Violation, ViolationKind};

use counterfoil_protocols::api::Rule;
use recording::Recorder;
use world::World;

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// First violation, if any.
    pub violation: Option<Violation>,
    /// Counters of the run.
    pub coverage: Coverage,
    /// Hash over all events in order: equal in two runs of one schedule.
    pub fingerprint: u64,
    /// Index of each chosen event among the possible ones; as [`Mode::Listed`], the same run again.
    pub choices: Vec<u32>,
}

/// Runs a schedule under a protocol, to its end or to the first violation.
///
/// Cost: about a microsecond an event in an optimised build, and some memory for each message. An endless run is
/// stopped after a number of events proportionate to the program and the faults ([`ViolationKind::Endless`]).
pub fn run(rule: &Rule, schedule: &Schedule) -> Outcome {
    run_world(rule, schedule, Recorder::default(), Vec::new()).0
}

/// Runs a schedule as [`run`] does, with bytes of some notices changed on their way, as a network never does.
///
/// Also returns the number of changed notices; if it isn't 0, violations mean nothing, and only panics count.
pub fn run_damaged(rule: &Rule, schedule: &Schedule, damages: Vec<Damage>) -> (Outcome, usize) {
    let all = damages.len();
    let (outcome, _, left) = run_world(rule, schedule, Recorder::default(), damages);
    (outcome, all - left)
}

/// Runs a schedule as [`run`] does, and returns a log for humans.
///
/// The log has a line for each event with its number, and an indented one for each effect. The text is not for parsing.
pub fn transcript(rule: &Rule, schedule: &Schedule) -> (Outcome, Vec<String>) {
    let recorder = Recorder { transcript: Some(Vec::new()), recording: None };
    let (outcome, recorder, _) = run_world(rule, schedule, recorder, Vec::new());
    (outcome, recorder.transcript.unwrap_or_default())
}

/// Runs a schedule as [`run`] does, and returns a recording for a [`diagram`].
pub fn record(rule: &Rule, schedule: &Schedule) -> (Outcome, Vec<Recorded>) {
    let recorder = Recorder { transcript: None, recording: Some(Vec::new()) };
    let (outcome, recorder, _) = run_world(rule, schedule, recorder, Vec::new());
    (outcome, recorder.recording.unwrap_or_default())
}

/// Runs a schedule: under the rule itself without a rule mistake, otherwise under the build with the mistake.
fn run_world(rule: &Rule, schedule: &Schedule, recorder: Recorder, damages: Vec<Damage>) -> (Outcome, Recorder, usize) {
    #[cfg(feature = "planted")]
    if let Some(Canary::Rule(canary)) = schedule.canary {
        let _planted = canary.plant();
        return World::run(rule::planted(rule), schedule, recorder, damages);
    }
    World::run(*rule, schedule, recorder, damages)
}
