//! Profiles of an MPI job: files in the directory with the job's logs.
//!
//! The log can't provide these figures afterwards: it no longer has acknowledged messages, and records have no time
//! stamp. So the logging library counts while the program runs, and each rank writes a small file when it ends;
//! `counterfoil run` adds the job's settings. `counterfoil report` reads both.
//!
//! | module | contents |
//! |---|---|
//! | [`rank`] | [`RankProfile`]: the activity of one rank, `rank-N.profile` |
//! | [`job`] | [`Job`]: the program, its settings and its outcome, `job.json` |
//! | [`sizes`] | [`Sizes`]: histogram of message lengths |
//! | [`delays`] | [`Delays`]: acknowledgement delays |
//! | [`series`] | [`Series`]: growth of a log, in a bounded number of samples |
//! | [`live`] | [`Live`]: counters of a running rank, `rank-N.live`, binary |
//! | [`summary`] | [`RankSummary`]: figures of one rank for the command's summary, `rank-N.json` |
//! | [`record_tag`] | [`RecordTag`]: prefix of each record in the ranks' logs; their stores are in the same directory |
//! | [`refused`] | reason why a rank can't log, `rank-N.refused`, text |
//! | [`file`](mod@file) | file input and output, and their errors |
//!
//! The other files are JSON with a version. Their size is bounded: a rank's file has at most [`Series::SAMPLES_MAX`] +
//! 1 samples, one entry for each peer and operation kind, and a bounded histogram. This crate reads no clock: callers
//! pass the time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod delays;
pub mod file;
pub mod job;
pub mod live;
pub mod rank;
pub mod record_tag;
pub mod refused;
pub mod series;
pub mod sizes;
pub mod summary;
mod traffic;

pub use delays::{DelayCounts, Delays};
pub use file::{FILE_BYTES_MAX, ProfileError};
pub use job::{Job, Setting};
pub use live::{LIVE_MAGIC, Live, Word, live_words, logged_word, received_word};
pub use rank::{Channel, Collective, Ended, RankProfile};
pub use record_tag::{COLLECTIVE, RecordTag};
pub use series::{Sample, Series};
pub use sizes::Sizes;
pub use summary::{RankEnd, RankSummary};
pub use traffic::Traffic;

/// Version of both JSON formats.
///
/// Readers refuse any other.
pub const VERSION: u32 = 1;

/// Maximum number of ranks in a job: pictures and tables have an entry for each pair.
pub const RANKS_MAX: u32 = 16_384;
