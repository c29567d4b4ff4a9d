//! Space-time diagrams of runs, as the papers of the field draw them.
//!
//! Time goes to the right, one step for each visible event; each rank has a line, and the coordinator has the last one,
//! where a protocol has one. Arrows are messages, from where they went on the wire to where the protocol delivered or
//! dropped them. A line is interrupted while its process is dead, and has another colour after each restart and
//! rollback; a dotted arc leads back to the checkpoint from which the rank went on.
//!
//! The picture is SVG, without scripts or embedded fonts; its width grows with the visible events (12 pixels each, more
//! if there are few), and it follows the reader's preference for a dark background, where the viewer passes that on.
//!
//! ```
//! use counterfoil_protocols::sender_based::RULE;
//! use counterfoil_simulator::{Schedule, diagram, record};
//!
//! let line = "sim1 pattern=ring ranks=3 rounds=1 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform \
//!             seed=5 faults=31:2:9";
//! let schedule: Schedule = line.parse()?;
//! let (outcome, recording) = record(&RULE, &schedule);
//! let svg = diagram::svg(&schedule, &outcome, &recording, 0..=u64::MAX);
//! assert!(svg.starts_with("<svg ") && svg.contains("id=\"rank-2\""));
//! # Ok::<(), counterfoil_simulator::ScheduleError>(())
//! ```

mod figure;
mod history;
mod legend;
mod style;
mod writer;

use std::ops::RangeInclusive;

use super::Outcome;
use super::recording::Recorded;
use super::schedule::Schedule;

/// Draws what [`record`](super::record) has recorded of a schedule. `events` selects the part of a long run, both ends
/// included; arrows that come from before or go on after it are cut off.
pub fn svg(schedule: &Schedule, outcome: &Outcome, recording: &[Recorded], events: RangeInclusive<u64>) -> String {
    let history = history::History::new(schedule.shape.ranks, recording);
    figure::draw(schedule, outcome, &history, &events)
}

/// Returns the number of steps in a picture of these events; a picture of more than some hundred is hard to read.
pub fn steps(schedule: &Schedule, recording: &[Recorded], events: RangeInclusive<u64>) -> usize {
    history::History::new(schedule.shape.ranks, recording).steps(&events).len()
}
