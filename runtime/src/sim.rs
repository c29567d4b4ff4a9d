//! The simulator: a protocol, a program, a network and a schedule of failures in one thread, without a clock.
//!
//! A run follows from its [`Schedule`] alone: virtual ranks run a program whose sends are fixed and whose order of
//! receives is not, connections are FIFO, and what happens next among all that could is chosen from a seed. Processes
//! die at any event: also while others recover, several at once, the same one again. Oracles hear of everything that
//! happens and ask neither the protocol nor the log what was right. A schedule that fails is shrunk to a small one,
//! which is one line of text.
//!
//! | module | what it is |
//! |---|---|
//! | `schedule`, `text`, `canary` | what a run follows from; as text |
//! | `program`, `application` | what the ranks do, and their state |
//! | `protocol` | [`SimProtocol`]: what a protocol has to be able to do |
//! | `local` | the frame's rules under which only who was killed goes back, doing it: `plain`, `pessimistic` |
//! | `send_deterministic` | a rule under which others go back too, doing it |
//! | `chooser`, `network`, `process`, `world` | who is next, what is under way, what a process has, all together |
//! | `trace`, `oracle`, `violation` | what really happened, and what is wrong with it |
//! | `recording`, [`diagram`] | the same to be looked at: as a list, as a picture |
//! | `campaign`, `shrink`, `coverage` | many schedules, a smaller one, what they have reached |
//!
//! # The log is a model
//!
//! A lane is a queue of headers and payloads in the rank's memory, and not the facade's `Log`: a process lives for some
//! hundred events, and to make pools, chunks and files for each would leave time for few schedules. What is proved here
//! is the rule; the engine has proofs of its own (models of its memory orders, fuzzing, real kills). The model loses a
//! lane with its process ([`Tier::Volatile`]) or keeps it ([`Tier::ProcessCrashSafe`]); checkpoints (of application,
//! tables, lanes and messages received and not taken), recorded outcomes and recorded deliveries survive in both. Payloads are sixteen bytes
//! that follow from all that their sender had seen, so that one wrong message changes all that come after it.
//!
//! ```
//! use counterfoil_runtime::sim::{self, Config, Plain, Schedule};
//!
//! let config = Config::default();
//! let outcome = sim::run::<Plain>(&config.schedule(7, false));
//! assert_eq!(outcome.violation, None);
//! let summary = sim::campaign::<Plain>(0..20, &config, |_| {});
//! assert_eq!((summary.schedules, summary.failed), (20, 0));
//!
//! let line = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform \
//!             seed=5 faults=31:2:9";
//! assert_eq!(sim::run::<Plain>(&line.parse::<Schedule>()?).violation, None);
//! # Ok::<(), sim::ScheduleError>(())
//! ```

mod application;
mod campaign;
mod canary;
mod chooser;
mod coverage;
pub mod diagram;
mod local;
mod network;
mod oracle;
mod pessimistic;
mod plain;
mod process;
mod program;
mod protocol;
mod recording;
mod schedule;
mod send_deterministic;
mod shrink;
mod text;
mod trace;
mod violation;
mod world;

pub use campaign::{Failure, Progress, Summary, campaign};
pub use coverage::Coverage;
pub use local::{Local, LocalRule};
pub use pessimistic::Pessimistic;
pub use plain::Plain;
pub use program::{Pattern, Shape};
pub use protocol::{Action, Actions, Greeting, Past, Refusal, Repetition, Retention, Seat, SimProtocol, TableSizes};
pub use recording::{Dropped, Happening, Recorded};
pub use schedule::{Canary, Config, Fault, Mode, Schedule, Tier};
pub use send_deterministic::{Coordinator, Member, SendDet};
pub use shrink::{Shrunk, shrink};
pub use text::ScheduleError;
pub use violation::{Violation, Wrong};

use recording::Witness;
use world::World;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong, if anything is: the first that was seen.
    pub violation: Option<Violation>,
    /// What was met.
    pub coverage: Coverage,
    /// A hash over all that happened, in order: two runs of one schedule have the same.
    pub fingerprint: u64,
    /// Which event was chosen each time, among those that were possible: as [`Mode::Listed`], the same run again.
    pub choices: Vec<u32>,
}

/// Runs a schedule under a protocol, to its end or to the first violation.
///
/// Cost: about a microsecond an event in an optimised build, and some memory for each message. A run that doesn't end
/// is stopped after a number of events that grows with the program and the faults ([`Wrong::Endless`]).
pub fn run<P: SimProtocol>(schedule: &Schedule) -> Outcome {
    World::<P>::run(schedule, Witness::default()).0
}

/// Runs a schedule as [`run`] does, and tells what happens: for each event a line with its number and what was chosen,
/// and indented what came of it. For people; the text is not for parsing.
pub fn tell<P: SimProtocol>(schedule: &Schedule) -> (Outcome, Vec<String>) {
    let (outcome, witness) = World::<P>::run(schedule, Witness { story: Some(Vec::new()), recording: None });
    (outcome, witness.story.unwrap_or_default())
}

/// Runs a schedule as [`run`] does, and records what happens, in order: what a [`diagram`] is drawn from.
pub fn record<P: SimProtocol>(schedule: &Schedule) -> (Outcome, Vec<Recorded>) {
    let (outcome, witness) = World::<P>::run(schedule, Witness { story: None, recording: Some(Vec::new()) });
    (outcome, witness.recording.unwrap_or_default())
}
