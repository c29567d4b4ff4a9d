//! Job summary, from the files written by its ranks into the job directory.

mod notes;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use counterfoil_profile::{RankEnd, RankSummary, refused};
use counterfoil_settings::RunSettings;
use indicatif::BinaryBytes;
use serde::Serialize;
use serde_json::json;

use super::launch::Exit;
use super::mpi::Mpi;
use super::takeover::TakenOver;
use crate::report::{rank_list, strip_digits};
use crate::table::Table;

/// The logging rule for every MPI run.
const PROTOCOL: &str = "sender-based";

/// Job summary.
#[derive(Debug)]
pub(super) struct JobSummary {
    mpi: String,
    is_on: bool,
    /// Directory keeping the logs.
    log_dir: Option<String>,
    code: u8,
    interrupted: bool,
    wall: Duration,
    /// Ascending by rank.
    ranks: Vec<Rank>,
    /// Ranks unable to log, and why; ascending by rank.
    refused: Vec<(u32, String)>,
}

/// A job's rank.
#[derive(Debug, Serialize)]
struct Rank {
    #[serde(flatten)]
    summary: RankSummary,
    /// True if the rank called MPI_Finalize.
    complete: bool,
    /// Number of records taken over from shared memory; `Some(None)` if they can't be.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_over: Option<Option<u64>>,
}

/// Reason why the log on disk is incomplete for a rank without MPI_Finalize.
const NO_FINALIZE: &str = "no MPI_Finalize, and the records in memory are lost";

/// A rank's end, as seen by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Finalized,
    Aborted,
    /// Without MPI_Finalize or MPI_Abort; the figures are the rank's last live counters.
    Unfinalized,
}

impl Rank {
    fn ending(&self) -> Ending {
        match &self.summary.end {
            Some(RankEnd { aborted: false, .. }) => Ending::Finalized,
            Some(_) => Ending::Aborted,
            None => Ending::Unfinalized,
        }
    }

    /// Reason for which the rank gave up logging, if it did.
    fn gave_up(&self) -> Option<&str> {
        self.summary.end.as_ref()?.gave_up.as_deref()
    }

    /// Returns `true` if logging stopped because the log was full.
    fn has_stopped(&self) -> bool {
        self.summary.end.as_ref().is_some_and(|end| end.logging_stopped)
    }
}

impl JobSummary {
    /// Summarizes a job from the directory with its ranks' summaries.
    pub(super) fn read(settings: &RunSettings, mpi: &Mpi, exit: &Exit, dir: &Path) -> JobSummary {
        let mut ranks: Vec<Rank> = RankSummary::read_all(dir)
            .into_iter()
            .map(|summary| Rank { complete: false, taken_over: None, summary })
            .collect();
        for one in &mut ranks {
            one.complete = one.ending() == Ending::Finalized;
            if one.ending() == Ending::Unfinalized && settings.log_dir.is_some() {
                (one.summary.kept, one.summary.not_kept) = (Some(false), Some(NO_FINALIZE.to_owned()));
            }
        }
        JobSummary {
            mpi: mpi.to_string(),
            is_on: settings.logging,
            log_dir: settings.log_dir.as_ref().map(|dir| dir.to_string_lossy().into_owned()),
            code: exit.code,
            interrupted: exit.interrupted,
            wall: exit.wall,
            ranks,
            refused: refused::read_all(dir),
        }
    }

    pub(super) fn has_ranks(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Number of ranks with MPI initialized; `None` if there are none.
    pub(super) fn ranks(&self) -> Option<u32> {
        self.ranks.last().map(|one| one.summary.rank + 1)
    }

    /// Returns `true` if a rank's log is in the log directory, or the rank stopped logging.
    pub(super) fn is_done(&self, rank: u32) -> bool {
        let one = self.ranks.iter().find(|one| one.summary.rank == rank);
        one.is_some_and(|one| one.summary.kept == Some(true) || one.has_stopped() || one.gave_up().is_some())
    }

    /// Adds the outcome of taking over logs from shared memory.
    pub(super) fn add_taken_over(&mut self, taken: TakenOver) {
        for (rank, outcome) in taken {
            let Some(one) = self.ranks.iter_mut().find(|one| one.summary.rank == rank) else { continue };
            let (records, why) = match outcome {
                Ok(records) => (Some(records), None),
                Err(why) => (None, Some(format!("its log in shared memory can't be taken over: {why}"))),
            };
            (one.summary.kept, one.summary.not_kept) = (Some(why.is_none()), why);
            one.taken_over = Some(records);
        }
    }

    pub(super) fn to_json(&self) -> String {
        json!({
            "protocol": PROTOCOL,
            "mpi": self.mpi,
            "wall_s": self.wall.as_secs_f64(),
            "exit_code": self.code,
            "interrupted": self.interrupted,
            "ranks": self.ranks,
            "refused": self.refused.iter().map(|(rank, why)| json!({ "rank": rank, "why": why })).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Groups the ranks without a complete log by reason.
    fn not_kept(&self) -> Vec<(&str, Vec<u32>)> {
        by_reason(self.ranks.iter().filter_map(|one| Some((one.summary.rank, one.summary.not_kept.as_deref()?))))
    }

    /// Groups the ranks with incomplete logs by reason.
    fn gaps(&self) -> Vec<(&str, Vec<u32>)> {
        let ended = self.ranks.iter().filter_map(|one| Some((one.summary.rank, one.summary.end.as_ref()?)));
        by_reason(ended.flat_map(|(rank, end)| end.gaps.iter().map(move |why| (rank, why.as_str()))))
    }
}

/// Groups ranks by reason.
///
/// Reasons that differ only in numbers are merged, with the first rank's text.
fn by_reason<'a>(reasons: impl Iterator<Item = (u32, &'a str)>) -> Vec<(&'a str, Vec<u32>)> {
    let mut by_reason: BTreeMap<String, (&str, Vec<u32>)> = BTreeMap::new();
    for (rank, why) in reasons {
        by_reason.entry(strip_digits(why)).or_insert_with(|| (why, Vec::new())).1.push(rank);
    }
    by_reason.into_values().collect()
}

impl fmt::Display for JobSummary {
    /// Writes a table with one line per rank, and the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["rank", "logged", "bytes", "received", "collectives", "peak memory", "spilled", "waited"]);
        for one in &self.ranks {
            let summary = &one.summary;
            table.row([
                format!("{}{}", summary.rank, if one.complete { "" } else { "*" }),
                summary.messages_logged.to_string(),
                BinaryBytes(summary.bytes_logged).to_string(),
                summary.messages_received.to_string(),
                summary.collectives.to_string(),
                BinaryBytes(summary.memory_peak_bytes).to_string(),
                BinaryBytes(summary.spilled_bytes).to_string(),
                format!("{:.3} s", summary.waited_s),
            ]);
        }
        let sum = |of: fn(&RankSummary) -> u64| -> u64 { self.ranks.iter().map(|one| of(&one.summary)).sum() };
        writeln!(f, "counterfoil: {PROTOCOL} over {}, {:.3} s", self.mpi, self.wall.as_secs_f64())?;
        writeln!(f, "{table}")?;
        let (messages, bytes) = (sum(|one| one.messages_logged), BinaryBytes(sum(|one| one.bytes_logged)));
        write!(f, "    {messages} messages logged ({bytes})")?;
        let contributed_bytes = sum(|one| one.contributions.bytes);
        if contributed_bytes > 0 {
            write!(f, ", and {} contributed to collective operations", BinaryBytes(contributed_bytes))?;
        }
        if self.ranks.iter().any(|one| !one.complete) {
            write!(f, "\n    * ended without MPI_Finalize")?;
        }
        for (why, ranks) in self.not_kept() {
            let dir = self.log_dir.as_deref().unwrap_or_default();
            write!(f, "\n    NOT KEPT: the log of {} in {dir} is incomplete: {why}", rank_list(&ranks))?;
        }
        for (why, ranks) in self.gaps() {
            write!(f, "\n    GAP: records of {} are missing, so they can't be recovered: {why}", rank_list(&ranks))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use counterfoil_profile::{LIVE_MAGIC, Word, live_words, logged_word, received_word};
    use serde_json::Value;

    use super::*;

    /// Summarizes a job directory with the given files.
    pub(super) fn summary(texts: &[(&str, &[u8])], code: u8, interrupted: bool) -> JobSummary {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mpi = Mpi::example();
        let exit = Exit { code, wall: Duration::from_secs(2), interrupted };
        JobSummary::read(&RunSettings::default(), &mpi, &exit, dir.path())
    }

    pub(super) const DONE: &[u8] = br#"{"aborted":false,"messages_logged":5,"bytes_logged":2048,"gave_up":null}"#;

    /// Live counters of rank 0 out of 2, which logged 3 messages with 30 bytes in total, 1 of them acknowledged.
    pub(super) fn live_counters() -> Vec<u8> {
        let mut words = vec![0; live_words(2)];
        for (word, value) in [(Word::Magic, LIVE_MAGIC), (Word::Ranks, 2), (Word::Pid, 7), (Word::HasLog, 1)] {
            words[word as usize] = value;
        }
        words[Word::Acknowledged as usize] = 1;
        words[Word::WaitedMs as usize] = 1500;
        words[logged_word(1)..][..2].copy_from_slice(&[3, 30]);
        words[received_word(0, 2)..][..2].copy_from_slice(&[4, 40]);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn summaries_take_precedence_over_live_counters_and_ranks_are_sorted() {
        let live = live_counters();
        let texts: [(&str, &[u8]); 5] = [
            ("rank-10.json", DONE),
            ("rank-2.live", &live),
            ("rank-10.live", &live),
            ("rank-0.json", DONE),
            ("x", b""),
        ];
        let summary = summary(&texts, 0, false);
        let value: Value = serde_json::from_str(&summary.to_json()).unwrap();
        let ranks = value["ranks"].as_array().unwrap();
        let line = |rank: &Value| (rank["rank"].as_u64(), rank["messages_logged"].as_u64(), rank["complete"].as_bool());
        let right = [(0, 5, true), (2, 3, false), (10, 5, true)];
        let lines: Vec<_> = ranks.iter().map(line).collect();
        assert_eq!(lines, right.map(|(rank, messages, complete)| (Some(rank), Some(messages), Some(complete))));
        let text = summary.to_string();
        assert!(text.contains("  2*") && text.contains("13 messages logged (4.03 KiB)"), "{text}");
        assert_eq!(summary.notes("a").len(), 1, "{:?}", summary.notes("a"));
        assert!(summary.notes("a")[0].starts_with("rank 2 ended without MPI_Finalize"), "{:?}", summary.notes("a"));
    }

    #[test]
    fn missing_records_are_reported_under_the_table_with_their_ranks() {
        let gap = br#"{"messages_logged":5,"gaps":["it was turned off"]}"#;
        let texts: [(&str, &[u8]); 3] = [("rank-0.json", gap), ("rank-1.json", DONE), ("rank-2.json", gap)];
        let text = summary(&texts, 0, false).to_string();
        let line = "GAP: records of ranks 0, 2 are missing, so they can't be recovered: it was turned off";
        assert_eq!((text.matches(line).count(), text.matches("GAP").count()), (1, 1), "{text}");
    }

    #[test]
    fn a_log_that_is_not_kept_is_reported_in_table_and_summary() {
        let full = r#"{"messages_logged":5,"kept":false,"not_kept":"the disk is full, 7 left"}"#;
        let other = full.replace('7', "9");
        let (full, other, live) = (full.as_bytes(), other.as_bytes(), live_counters());
        let texts = [("rank-0.json", full), ("rank-1.json", other), ("rank-2.json", DONE), ("rank-3.live", &live)];
        let mut one = summary(&texts, 0, false);
        one.log_dir = Some("logs".to_owned());
        let text = one.to_string();
        assert!(
            text.contains("NOT KEPT: the log of ranks 0, 1 in logs is incomplete: the disk is full, 7 left"),
            "{text}"
        );
        assert!(text.contains("\n    * ended without MPI_Finalize"), "{text}");
        let value: Value = serde_json::from_str(&one.to_json()).unwrap();
        assert_eq!((&value["ranks"][0]["kept"], &value["ranks"][0]["complete"]), (&json!(false), &json!(true)));
        assert!(!one.is_done(0) && !one.is_done(3) && one.ranks() == Some(4));
        one.add_taken_over([(1, Err("no room".to_owned())), (3, Ok(7))].into());
        let value: Value = serde_json::from_str(&one.to_json()).unwrap();
        assert_eq!((&value["ranks"][3]["kept"], &value["ranks"][3]["taken_over"]), (&json!(true), &json!(7)));
        assert!(value["ranks"][1]["not_kept"].as_str().unwrap().contains("shared memory can't be taken over: no room"));
        let notes = one.notes("a").join("; ");
        assert!(notes.contains("rank 3: log in shared memory taken over into logs (7 records)"), "{notes}");
        assert!(!notes.contains("are lost"), "{notes}");
        assert!(summary(&[("rank-0.json", br#"{"gave_up":"no"}"#)], 0, false).is_done(0));
    }

    #[test]
    fn contributions_to_collective_operations_are_in_the_totals() {
        let given = br#"{"messages_logged":0,"contributions":{"messages":2,"bytes":2048}}"#;
        let text = summary(&[("rank-0.json", &given[..]), ("rank-1.json", &given[..])], 0, false).to_string();
        assert!(text.contains("0 messages logged (0 B), and 4.00 KiB contributed to collective"), "{text}");
    }

    #[test]
    fn incomplete_files_are_ignored() {
        let live = live_counters();
        assert!(!summary(&[("rank-0.live", &live[..9]), ("rank-1.json", b"")], 0, false).has_ranks());
        let both = summary(&[("rank-0.live", &live), ("rank-0.json", br#"{"mess"#)], 0, false);
        assert!(both.to_json().contains(r#""messages_logged":3"#), "{}", both.to_json());
    }
}
