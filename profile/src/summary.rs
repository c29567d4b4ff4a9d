//! Summary of one rank, `rank-N.json` in the job directory.
//!
//! Written by the logging library when the rank ends, and read by `counterfoil run` when the job has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::file::{self, ProfileError};
use crate::live::{self, Live, Word};
use crate::{Channel, Traffic};

/// File name suffix, after `rank-N`.
const SUFFIX: &str = ".json";

/// Figures of a rank.
///
/// Without [`end`](Self::end), they are the last live counters of a rank that ended without MPI_Finalize or MPI_Abort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankSummary {
    /// Rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Messages logged.
    pub messages_logged: u64,
    /// Their payload bytes.
    pub bytes_logged: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Collective operations called.
    pub collectives: u64,
    /// Logged contributions to collective operations.
    pub contributions: Traffic,
    /// Recorded outcomes of non-deterministic calls.
    pub determinants: u64,
    /// Unacknowledged records; live counters only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<u64>,
    /// Log memory, in bytes; live counters only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Peak log memory, in bytes.
    pub memory_peak_bytes: u64,
    /// Memory freed by spilling records to disk, in bytes.
    pub spilled_bytes: u64,
    /// Time sends waited for log space, in seconds.
    pub waited_s: f64,
    /// Messages logged by destination: an entry for each rank.
    pub sent_to: Vec<Traffic>,
    /// Messages received by source: an entry for each rank.
    pub received_from: Vec<Traffic>,
    /// True if the log is complete in the kept-logs directory; `None` without such a directory.
    pub kept: Option<bool>,
    /// Reason why it isn't.
    pub not_kept: Option<String>,
    /// Figures known only when the rank ends.
    #[serde(flatten)]
    pub end: Option<RankEnd>,
}

/// Figures of a rank that called MPI_Finalize or MPI_Abort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankEnd {
    /// Size of MPI_COMM_WORLD.
    pub ranks: u32,
    /// True if the rank called MPI_Abort.
    pub aborted: bool,
    /// Collective operations called, by name.
    pub collectives_by_kind: BTreeMap<String, u64>,
    /// Log memory committed while a message was logged, in bytes.
    pub late_commit_bytes: u64,
    /// Processor time of the thread that writes spilled records, in seconds.
    pub spill_cpu_s: f64,
    /// Sends and collective operations that failed because the log had no space.
    pub sends_refused: u64,
    /// True if logging stopped because the log was full.
    pub logging_stopped: bool,
    /// Reason why logging was given up.
    pub gave_up: Option<String>,
    /// Reasons why records are missing from the log.
    pub gaps: Vec<String>,
    /// Name of the rank's host, if it isn't the host running `counterfoil run`.
    pub host: Option<String>,
    /// Logging duration, in seconds.
    pub wall_s: f64,
}

impl RankSummary {
    /// Returns the path to a rank's file in a job directory.
    pub fn path(dir: &Path, rank: u32) -> PathBuf {
        file::path_of_rank(dir, rank, SUFFIX)
    }

    /// Returns the summary as JSON.
    pub fn to_json(&self) -> String {
        // Doesn't fail: all keys are strings.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Writes a rank's summary, as [JSON](Self::to_json), into a job directory.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(dir: &Path, rank: u32, json: &[u8]) -> Result<(), ProfileError> {
        file::write_text(&RankSummary::path(dir, rank), json)
    }

    /// Reads the summaries of a job's ranks, ascending by rank.
    ///
    /// Uses the live counters for a rank without a summary. Ignores damaged files: their ranks ended while writing
    /// them.
    pub fn read_all(dir: &Path) -> Vec<RankSummary> {
        let live = live::read_all(dir).into_iter().map(|(rank, live)| (rank, RankSummary::from_live(rank, &live)));
        let mut summaries: BTreeMap<u32, RankSummary> = live.collect();
        for (rank, json) in file::of_ranks(dir, SUFFIX) {
            if let Ok(summary) = serde_json::from_slice::<RankSummary>(&json) {
                summaries.insert(rank, RankSummary { rank, ..summary });
            }
        }
        summaries.into_values().collect()
    }

    fn from_live(rank: u32, live: &Live) -> RankSummary {
        let sent_to: Vec<Traffic> = live.logged().map(Channel::traffic).collect();
        let received_from: Vec<Traffic> = live.received().map(Channel::traffic).collect();
        let [logged, received] = [&sent_to, &received_from].map(|all| Traffic::sum(all.iter().copied()));
        RankSummary {
            rank,
            messages_logged: logged.messages,
            bytes_logged: logged.bytes,
            messages_received: received.messages,
            bytes_received: received.bytes,
            collectives: live.word(Word::Collectives),
            contributions: Traffic {
                messages: live.word(Word::Contributions),
                bytes: live.word(Word::ContributedBytes),
            },
            determinants: live.word(Word::Determinants),
            unacknowledged: Some(live.unacknowledged()),
            memory_bytes: Some(live.word(Word::Memory)),
            memory_peak_bytes: live.word(Word::MemoryPeak),
            spilled_bytes: live.word(Word::Spilled),
            waited_s: Duration::from_millis(live.word(Word::WaitedMs)).as_secs_f64(),
            sent_to,
            received_from,
            kept: None,
            not_kept: None,
            end: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;
    use crate::{LIVE_MAGIC, live_words, logged_word, received_word};

    fn ended() -> RankSummary {
        RankSummary {
            rank: 3,
            messages_logged: 5,
            sent_to: vec![Traffic { messages: 5, bytes: 2048 }],
            kept: Some(true),
            end: Some(RankEnd { ranks: 4, gave_up: Some("no".to_owned()), wall_s: 1.5, ..RankEnd::default() }),
            ..RankSummary::default()
        }
    }

    /// Writes live counters for rank 0 of 2, which logged 3 messages, 30 bytes in total, 1 of them acknowledged.
    fn write_live(dir: &Path) {
        let mut words = vec![0; live_words(2)];
        for (word, value) in [(Word::Magic, LIVE_MAGIC), (Word::Ranks, 2), (Word::HasLog, 1), (Word::Acknowledged, 1)] {
            words[word as usize] = value;
        }
        words[Word::WaitedMs as usize] = 1500;
        words[logged_word(1)..][..2].copy_from_slice(&[3, 30]);
        words[received_word(0, 2)..][..2].copy_from_slice(&[4, 40]);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        fs::write(Live::path(dir, 0), bytes).unwrap();
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        RankSummary::write(dir.path(), 3, ended().to_json().as_bytes()).unwrap();
        assert_eq!(RankSummary::read_all(dir.path()), [ended()]);
    }

    #[test]
    fn the_fields_of_a_rank_that_ended_are_all_there() {
        let object: Value = serde_json::from_str(&ended().to_json()).unwrap();
        let mut names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let fields = "aborted bytes_logged bytes_received collectives collectives_by_kind contributions determinants gaps gave_up \
                      host kept late_commit_bytes logging_stopped memory_peak_bytes messages_logged messages_received not_kept rank \
                      ranks received_from sends_refused sent_to spill_cpu_s spilled_bytes waited_s wall_s";
        assert_eq!(names.join(" "), fields);
        assert_eq!((&object["gave_up"], &object["host"]), (&json!("no"), &Value::Null));
    }

    #[test]
    fn live_counters_have_the_names_of_a_summary() {
        let dir = tempfile::tempdir().unwrap();
        write_live(dir.path());
        let summaries = RankSummary::read_all(dir.path());
        assert_eq!(summaries[0].end, None);
        let object: Value = serde_json::from_str(&summaries[0].to_json()).unwrap();
        for (name, value) in
            [("messages_logged", 3), ("bytes_logged", 30), ("messages_received", 4), ("unacknowledged", 2)]
        {
            assert_eq!(object[name], json!(value), "{name}");
        }
        assert_eq!(object["waited_s"], json!(1.5));
        assert_eq!(object["sent_to"], json!([{ "messages": 0, "bytes": 0 }, { "messages": 3, "bytes": 30 }]));
        assert!(object.get("aborted").is_none() && object.get("gave_up").is_none(), "{object}");
    }

    #[test]
    fn a_summary_takes_precedence_over_live_counters_unless_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        write_live(dir.path());
        fs::write(RankSummary::path(dir.path(), 0), "{\"mess").unwrap();
        fs::write(RankSummary::path(dir.path(), 10), "{\"messages_logged\":7}").unwrap();
        fs::write(RankSummary::path(dir.path(), 2), "").unwrap();
        let logged = |dir: &Path| -> Vec<(u32, u64)> {
            RankSummary::read_all(dir).iter().map(|one| (one.rank, one.messages_logged)).collect()
        };
        assert_eq!(logged(dir.path()), [(0, 3), (10, 7)]);
        fs::write(RankSummary::path(dir.path(), 0), "{\"messages_logged\":5}").unwrap();
        assert_eq!(logged(dir.path()), [(0, 5), (10, 7)]);
    }
}
