//! Event Logging, the rule of libELC (Zhao 2005).
//!
//! Every rank logs the *envelopes* of messages sent and received, and no contents. Checkpoints with one number form a
//! *line*. A rank taking one sends each other rank a request with its send log; the receiver takes its own checkpoint
//! with the same number, and matches the send log with its receive log. This identifies the messages *in transit* over
//! the line (sent before it and received after: their receiver copies them into its local log) and the *orphans*
//! (received before it and sent after). A failure takes all ranks back to the last line finished by all: messages in
//! transit are presented again, and orphans are discarded when they are sent again.
//!
//! - 3.3.1, an interval's send and receive logs: `log::EventLog`, in [`EventLogs`]
//! - 3.3.2, 4.3.2, message identification in three steps: `matching::Crossing::match_interval`
//! - 3.3.4, no limit on message transit in intervals: `matching::Crossing` keeps messages without a counterpart;
//!   [`EventLogs`] has a queue of intervals
//! - 3.4.2, counted rows; matching in less than quadratic time: `log::EventLog`, `log::Counts`
//! - 4.3.3, logging messages in transit, second form: [`EventLogs`], `log_receipt`
//! - 4.4.1, pending message queue: [`EventLogs`], `present`; then the driver's matching
//! - 4.4.2, orphan message queue: [`EventLogs`], `take_orphan`
//! - 5.8, optimal interval: [`optimal_interval`]
//!
//! The rest is the frame's, [`chandy_lamport`](crate::chandy_lamport):
//!
//! - 4.3.1, `ELC_DoCKPT`: checkpoint, request to all: `handle_checkpoint`, `message::Request`
//! - 4.3.1, a request forces a checkpoint: `handle_control`, `ask_checkpoint`
//! - 4.3.1, "mark the local checkpoint finished": `finish_lines`, then
//!   [`LineCoordinator`](crate::chandy_lamport::LineCoordinator) (the paper has no agreement)
//! - 4.5.1, collectives: `handle_collective`, `handle_collective_words`
//! - 4.5.2, non-blocking receives: messages are copied when they arrive, whatever receive is open
//! - 4.5.3, `ANY_TAG`: messages from one source are presented in their order
//! - 4.5.3, `ANY_SOURCE`, receive numbers: `next_choice`, `handle_choice`
//!
//! `docs/book/src/explanation/event-logging.md` has the invariants, and why nothing is lost. Where the paper doesn't
//! work as written: `docs/lab/errata.md`.
//!
//! ```
//! use counterfoil_log_core::{Incarnation, Rank};
//! use counterfoil_protocols::api::Protocol;
//! use counterfoil_protocols::chandy_lamport::Config;
//! use counterfoil_protocols::event_logging::EventLogging;
//!
//! let mut rank = EventLogging::new(Config::new(Rank(0), 2, Incarnation(0)))?;
//! assert!(!rank.is_running()); // before the coordinator's order
//! let first = rank.first_checkpoint().expect("every rank can go back to the start");
//! rank.restore(&first.tables, first.epoch)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod identification;
mod interval;
mod log;
mod matching;

use crate::api::{Rule, RuleOptions};
use crate::chandy_lamport::{ChandyLamport, Config, MAKE_COORDINATOR};
pub use identification::EventLogs;
pub use interval::optimal_interval;

/// State of one rank under the rule.
pub type EventLogging = ChandyLamport<EventLogs>;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "event-logging",
    paper: "Zhao 2005, libELC",
    summary: "Log envelopes, and the messages that cross a checkpoint; all ranks go back to the last checkpoint of the job. Messages needn't be kept; a failure costs all ranks the time since that checkpoint. For many ranks that fail seldom, and few different pairs of communicator and tag",
    properties: EventLogging::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| {
        Ok(Box::new(EventLogging::new(Config::new(rank, settings.ranks, incarnation))?))
    },
    make_coordinator: MAKE_COORDINATOR,
};
