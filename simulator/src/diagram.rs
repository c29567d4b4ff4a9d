//! Space-time diagrams of runs, in the style of the field's papers.
//!
//! Time goes to the right, one step for each visible event; each rank has a line, and the coordinator has the last one,
//! where a protocol has one. Arrows are messages, from transmission to where the protocol delivered or dropped them. A
//! line is interrupted while its process is dead, and has another colour after each restart and rollback; a dotted arc
//! leads back to the restored checkpoint.
//!
//! The picture is SVG, without scripts or embedded fonts; its width grows with the visible events (12 pixels each, more
//! if there are few), and it follows the reader's preference for a dark background, where the viewer passes it on.
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

/// Draws a schedule's recording, made by [`record`](super::record).
///
/// `events` selects a part of a long run, both ends included; arrows from before it or beyond it are cut off.
pub fn svg(schedule: &Schedule, outcome: &Outcome, recording: &[Recorded], events: RangeInclusive<u64>) -> String {
    let history = history::History::new(schedule.shape.ranks, recording);
    figure::draw(schedule, outcome, &history, &events)
}

/// Returns the number of steps in a picture of these events; more than some hundred are hard to read.
pub fn steps(schedule: &Schedule, recording: &[Recorded], events: RangeInclusive<u64>) -> usize {
    history::History::new(schedule.shape.ranks, recording).steps(&events).len()
}
