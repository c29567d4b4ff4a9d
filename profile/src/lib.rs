//! What the ranks of an MPI job did, as files in the directory of the job's logs.
//!
//! A log can't tell it afterwards: what was acknowledged is gone from it, and no record says when it was written. So the library that
//! logs counts while the program runs, and each rank leaves a small file when it ends; `counterfoil run` adds what it was asked for.
//! `counterfoil report` reads both.
//!
//! | module | what it is |
//! |---|---|
//! | [`rank`] | [`RankProfile`]: what one rank did, `rank-N.profile` |
//! | [`job`] | [`Job`]: what was run, and how, `job.json` |
//! | [`sizes`] | [`Sizes`]: how many messages were how long |
//! | [`delays`] | [`Delays`]: how long messages waited for their acknowledgement |
//! | [`series`] | [`Series`]: how a log grew, in a bounded number of samples |
//! | [`live`] | [`Live`]: what a rank has done so far, `rank-N.live`, which is no JSON |
//! | [`record_tag`] | [`RecordTag`]: what each record of the ranks' logs begins with, whose stores are in the same directory |
//! | [`refused`] | why a rank can't log, `rank-N.refused`, which is text |
//! | [`file`](mod@file) | reading and writing, and why it fails |
//!
//! The others are JSON with a version. Whatever the job, a rank's has at most [`Series::SAMPLES_MAX`] samples, one entry for each peer
//! and kind of operation, and a histogram of bounded size. No code here has a clock: whoever counts says what time it is.
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

pub use delays::{DelayCounts, Delays};
pub use file::{FILE_BYTES_MAX, ProfileError};
pub use job::{Job, Setting};
pub use live::{LIVE_MAGIC, Live, Word, live_words, logged_at, received_at};
pub use rank::{Channel, Collective, Ended, RankProfile};
pub use record_tag::{COLLECTIVE, RecordTag};
pub use series::{Sample, Series};
pub use sizes::Sizes;

/// Of both kinds of files. A reader refuses another one.
pub const VERSION: u32 = 1;

/// The most ranks that a job can have here: pictures and tables have a place for each pair.
pub const RANKS_MAX: u32 = 16_384;
