//! A run as a picture: a space-time diagram as the papers of the field draw them.
//!
//! Time goes to the right, one step for each event in which something is to be seen; each rank has a line, and the
//! coordinator has the last one, where a protocol has one. Arrows are messages, from where they went on the wire to where
//! the protocol let them in or dropped them. A line is interrupted while its process is dead, and has another colour after
//! each restart and rollback; a dotted arc leads back to the checkpoint from which the rank went on.
//!
//! The picture is SVG, without scripts or fonts of its own; it is as wide as there are events to be seen (12 pixels each, more if there are few)
//! and follows the reader's preference for a dark background, where the viewer passes that on.
//!
//! ```
//! use counterfoil_runtime::sim::{self, Plain, Schedule, diagram};
//!
//! let line = "sim1 pattern=ring ranks=3 rounds=1 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform \
//!             seed=5 faults=31:2:9";
//! let schedule: Schedule = line.parse()?;
//! let (outcome, recording) = sim::record::<Plain>(&schedule);
//! let svg = diagram::svg(&schedule, &outcome, &recording, 0..=u64::MAX);
//! assert!(svg.starts_with("<svg ") && svg.contains("id=\"rank-2\""));
//! # Ok::<(), sim::ScheduleError>(())
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

/// Draws what [`record`](super::record) has recorded of a schedule. Of a long run, `events` is the part to be drawn, both
/// ends included; arrows that come from before or go on after it are cut off.
pub fn svg(schedule: &Schedule, outcome: &Outcome, recording: &[Recorded], events: RangeInclusive<u64>) -> String {
    let history = history::History::new(schedule.shape.ranks, recording);
    figure::draw(schedule, outcome, &history, &events)
}

/// How many steps to the right a picture of these events has; above some hundred, nobody wants to look at all of it.
pub fn steps(schedule: &Schedule, recording: &[Recorded], events: RangeInclusive<u64>) -> usize {
    history::History::new(schedule.shape.ranks, recording).steps(&events).len()
}
