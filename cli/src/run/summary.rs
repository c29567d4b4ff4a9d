//! Summary of a job, from the files that its ranks wrote into the job directory.

mod notes;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use counterfoil_profile::{Channel, Live, Word, refused};
use indicatif::BinaryBytes;
use serde_json::{Map, Value, json};

use super::launch::Exit;
use super::mpi::Mpi;
use super::takeover::TakenOver;
use crate::config::{Key, Settings};
use crate::report::{rank_list, strip_digits};
use crate::table::Table;

/// Summary of a job.
#[derive(Debug)]
pub(super) struct JobSummary {
    protocol: String,
    mpi: String,
    is_on: bool,
    /// Directory that keeps the logs.
    log_dir: Option<String>,
    code: u8,
    interrupted: bool,
    wall: Duration,
    /// Ascending by rank.
    ranks: Vec<RankSummary>,
    /// Ranks that can't log and why; ascending by rank.
    refused: Vec<(u32, String)>,
}

/// Summary of a rank.
#[derive(Debug)]
struct RankSummary {
    rank: u32,
    ending: Ending,
    /// Figures in the format of the library's summary file.
    figures: Map<String, Value>,
}

/// Reason why the log of a rank without MPI_Finalize is incomplete on disk.
const NO_FINALIZE: &str = "no MPI_Finalize, and the records in memory are lost";

/// End of a rank, as seen by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Finalized,
    Aborted,
    /// Without MPI_Finalize or MPI_Abort; the figures are the rank's last live counters.
    Unfinalized,
}

impl JobSummary {
    /// Reads the job directory. Ignores unreadable files: their ranks ended while writing them.
    pub(super) fn read(settings: &Settings, mpi: &Mpi, exit: &Exit, dir: &Path) -> JobSummary {
        let mut ranks: Vec<RankSummary> = live(dir)
            .into_iter()
            .map(|(rank, live)| RankSummary { rank, ending: Ending::Unfinalized, figures: figures(&live) })
            .collect();
        for (rank, figures) in objects(dir) {
            let is_aborted = figures.get("aborted").and_then(Value::as_bool) == Some(true);
            let ending = if is_aborted { Ending::Aborted } else { Ending::Finalized };
            ranks.retain(|known| known.rank != rank);
            ranks.push(RankSummary { rank, ending, figures });
        }
        ranks.sort_by_key(|one| one.rank);
        if settings.value(Key::LogDir).is_some() {
            for one in ranks.iter_mut().filter(|one| one.ending == Ending::Unfinalized) {
                one.figures.insert("kept".to_owned(), json!(false));
                one.figures.insert("not_kept".to_owned(), json!(NO_FINALIZE));
            }
        }
        JobSummary {
            protocol: settings.value(Key::Protocol).unwrap_or_default().to_owned(),
            mpi: mpi.to_string(),
            is_on: settings.value(Key::Logging) == Some("on"),
            log_dir: settings.value(Key::LogDir).map(str::to_owned),
            code: exit.code,
            interrupted: exit.interrupted,
            wall: exit.wall,
            ranks,
            refused: refused(dir),
        }
    }

    pub(super) fn has_ranks(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Number of ranks that initialized MPI; `None` if none did.
    pub(super) fn ranks(&self) -> Option<u32> {
        self.ranks.last().map(|one| one.rank + 1)
    }

    /// Returns `true` if a rank's log is in the log directory, or the rank stopped logging.
    pub(super) fn is_done(&self, rank: u32) -> bool {
        let is = |one: &RankSummary, name: &str| one.figures.get(name).and_then(Value::as_bool) == Some(true);
        let one = self.ranks.iter().find(|one| one.rank == rank);
        one.is_some_and(|one| is(one, "kept") || is(one, "logging_stopped") || text(&one.figures, "gave_up").is_some())
    }

    /// Adds the outcome of taking over logs from shared memory.
    pub(super) fn add_taken_over(&mut self, taken: TakenOver) {
        for (rank, outcome) in taken {
            let Some(one) = self.ranks.iter_mut().find(|one| one.rank == rank) else { continue };
            let (records, why) = match outcome {
                Ok(records) => (Some(records), None),
                Err(why) => (None, Some(format!("its log in shared memory can't be taken over: {why}"))),
            };
            one.figures.insert("kept".to_owned(), json!(why.is_none()));
            one.figures.insert("not_kept".to_owned(), json!(why));
            one.figures.insert("taken_over".to_owned(), json!(records));
        }
    }

    pub(super) fn to_json(&self) -> String {
        let ranks = self.ranks.iter().map(|one| {
            let mut figures = one.figures.clone();
            figures.insert("rank".to_owned(), json!(one.rank));
            figures.insert("complete".to_owned(), json!(one.ending == Ending::Finalized));
            Value::Object(figures)
        });
        json!({
            "protocol": self.protocol,
            "mpi": self.mpi,
            "wall_s": self.wall.as_secs_f64(),
            "exit_code": self.code,
            "interrupted": self.interrupted,
            "ranks": ranks.collect::<Vec<_>>(),
            "refused": self.refused.iter().map(|(rank, why)| json!({ "rank": rank, "why": why })).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Groups the ranks without a complete log by reason.
    fn not_kept(&self) -> Vec<(&str, Vec<u32>)> {
        by_reason(self.ranks.iter().filter_map(|one| Some((one.rank, text(&one.figures, "not_kept")?))))
    }

    /// Groups the ranks whose logs lack records by reason.
    fn gaps(&self) -> Vec<(&str, Vec<u32>)> {
        let gaps = self.ranks.iter().filter_map(|one| Some((one.rank, one.figures.get("gaps")?.as_array()?)));
        by_reason(gaps.flat_map(|(rank, whys)| whys.iter().filter_map(move |why| Some((rank, why.as_str()?)))))
    }
}

/// Groups ranks by reason. Reasons that differ in numbers only are merged, with the text of the first rank.
fn by_reason<'a>(reasons: impl Iterator<Item = (u32, &'a str)>) -> Vec<(&'a str, Vec<u32>)> {
    let mut by_reason: BTreeMap<String, (&str, Vec<u32>)> = BTreeMap::new();
    for (rank, why) in reasons {
        by_reason.entry(strip_digits(why)).or_insert_with(|| (why, Vec::new())).1.push(rank);
    }
    by_reason.into_values().collect()
}

fn text<'a>(figures: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    figures.get(name).and_then(Value::as_str)
}

/// Returns a count; 0 where the figures don't have it.
fn number(figures: &Map<String, Value>, name: &str) -> u64 {
    figures.get(name).and_then(Value::as_u64).unwrap_or(0)
}

impl fmt::Display for JobSummary {
    /// Writes a table with one line per rank, and the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["rank", "logged", "bytes", "received", "collectives", "peak memory", "spilled", "waited"]);
        for one in &self.ranks {
            let number = |name: &str| number(&one.figures, name);
            let bytes = |name: &str| BinaryBytes(number(name)).to_string();
            let waited = one.figures.get("waited_s").and_then(Value::as_f64).unwrap_or(0.0);
            table.row([
                format!("{}{}", one.rank, if one.ending == Ending::Finalized { "" } else { "*" }),
                number("messages_logged").to_string(),
                bytes("bytes_logged"),
                number("messages_received").to_string(),
                number("collectives").to_string(),
                bytes("memory_peak_bytes"),
                bytes("spilled_bytes"),
                format!("{waited:.3} s"),
            ]);
        }
        let sum = |name| -> u64 { self.ranks.iter().map(|one| number(&one.figures, name)).sum() };
        writeln!(f, "counterfoil: {} over {}, {:.3} s", self.protocol, self.mpi, self.wall.as_secs_f64())?;
        writeln!(f, "{table}")?;
        let (messages, bytes) = (sum("messages_logged"), BinaryBytes(sum("bytes_logged")));
        write!(f, "    {messages} messages logged ({bytes})")?;
        let contributed_bytes: u64 = self.ranks.iter().map(|one| contributed(&one.figures)).sum();
        if contributed_bytes > 0 {
            write!(f, ", and {} contributed to collective operations", BinaryBytes(contributed_bytes))?;
        }
        if self.ranks.iter().any(|one| one.ending != Ending::Finalized) {
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

/// Bytes that a rank contributed to collective operations and logged.
fn contributed(figures: &Map<String, Value>) -> u64 {
    figures.get("contributions").and_then(|of| of.get("bytes")).and_then(Value::as_u64).unwrap_or(0)
}

/// Process ids of the ranks that initialized MPI.
pub(super) fn pids(dir: &Path) -> Vec<u32> {
    live(dir).iter().filter_map(|(_, live)| live.word(Word::Pid).try_into().ok()).collect()
}

/// Live counters of the ranks that initialized MPI.
pub(super) fn live(dir: &Path) -> Vec<(u32, Live)> {
    files(dir, ".live").into_iter().filter_map(|(rank, bytes)| Some((rank, Live::parse(&bytes)?))).collect()
}

/// Converts live counters to the format of the library's summary file.
fn figures(live: &Live) -> Map<String, Value> {
    let count = |channel: Channel| json!({ "messages": channel.messages, "bytes": channel.bytes });
    let (sent_to, received_from): (Vec<_>, Vec<_>) = (live.logged().collect(), live.received().collect());
    let sum = |of: &[Channel], what: fn(&Channel) -> u64| of.iter().map(what).sum::<u64>();
    let (messages, bytes) = (|one: &Channel| one.messages, |one: &Channel| one.bytes);
    let figures = [
        ("messages_logged", json!(sum(&sent_to, messages))),
        ("bytes_logged", json!(sum(&sent_to, bytes))),
        ("messages_received", json!(sum(&received_from, messages))),
        ("bytes_received", json!(sum(&received_from, bytes))),
        ("collectives", json!(live.word(Word::Collectives))),
        (
            "contributions",
            json!({ "messages": live.word(Word::Contributions), "bytes": live.word(Word::ContributedBytes) }),
        ),
        ("determinants", json!(live.word(Word::Determinants))),
        ("unacknowledged", json!(live.unacknowledged())),
        ("memory_bytes", json!(live.word(Word::Memory))),
        ("memory_peak_bytes", json!(live.word(Word::MemoryPeak))),
        ("spilled_bytes", json!(live.word(Word::Spilled))),
        ("waited_s", json!(Duration::from_millis(live.word(Word::WaitedMs)).as_secs_f64())),
        ("sent_to", sent_to.into_iter().map(count).collect()),
        ("received_from", received_from.into_iter().map(count).collect()),
    ];
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Parses the files `rank-N.json`.
fn objects(dir: &Path) -> Vec<(u32, Map<String, Value>)> {
    let object = |(rank, text): (u32, Vec<u8>)| match serde_json::from_slice(&text) {
        Ok(Value::Object(figures)) => Some((rank, figures)),
        _ => None,
    };
    files(dir, ".json").into_iter().filter_map(object).collect()
}

/// Reads the reasons of ranks that can't log.
fn refused(dir: &Path) -> Vec<(u32, String)> {
    let text = |(rank, text): (u32, Vec<u8>)| (rank, String::from_utf8_lossy(&text).into_owned());
    let mut refused: Vec<_> = files(dir, refused::SUFFIX).into_iter().map(text).collect();
    refused.sort();
    refused
}

/// Reads the files whose names are `rank-N` followed by `end`.
fn files(dir: &Path, end: &str) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rank = name.to_str().and_then(|name| name.strip_prefix("rank-")?.strip_suffix(end)?.parse().ok());
        let Some(rank) = rank else { continue };
        found.push((rank, fs::read(entry.path()).unwrap_or_default()));
    }
    found
}

#[cfg(test)]
mod tests {
    use counterfoil_profile::{LIVE_MAGIC, live_words, logged_word, received_word};

    use super::*;
    use crate::config::SettingOptions;

    /// Summarizes a job directory with the given files.
    pub(super) fn summary(texts: &[(&str, &[u8])], code: u8, interrupted: bool) -> JobSummary {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mpi = Mpi { name: "x".to_owned(), version: "5.0.0".to_owned(), mpirun: "/x".into(), libraries: None };
        let exit = Exit { code, wall: Duration::from_secs(2), interrupted };
        let settings = Settings::from(&SettingOptions::default(), |_| None, None).unwrap();
        JobSummary::read(&settings, &mpi, &exit, dir.path())
    }

    pub(super) const DONE: &[u8] = br#"{"aborted":false,"messages_logged":5,"bytes_logged":2048,"gave_up":null}"#;

    /// Live counters of rank 0 of 2, which logged 3 messages of 30 bytes in total, 1 of them acknowledged.
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
    fn live_counters_have_the_names_of_a_summary() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rank-0.live"), live_counters()).unwrap();
        assert_eq!(pids(dir.path()), [7]);
        let figures = figures(&live(dir.path())[0].1);
        for (name, value) in
            [("messages_logged", 3), ("bytes_logged", 30), ("messages_received", 4), ("unacknowledged", 2)]
        {
            assert_eq!(figures[name], json!(value), "{name}");
        }
        assert_eq!(figures["waited_s"], json!(1.5));
        assert_eq!(figures["sent_to"], json!([{ "messages": 0, "bytes": 0 }, { "messages": 3, "bytes": 30 }]));
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
