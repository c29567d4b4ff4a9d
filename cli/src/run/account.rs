//! What the ranks did: what they left in the job's directory, put together.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use counterfoil_profile::{Channel, Live, Word};
use indicatif::BinaryBytes;
use serde_json::{Map, Value, json};

use super::launch::Ended;
use super::mpi::Mpi;
use crate::config::{Key, Settings};
use crate::table::Table;

/// What a job did.
#[derive(Debug)]
pub(super) struct Account {
    protocol: String,
    mpi: String,
    is_on: bool,
    code: u8,
    interrupted: bool,
    wall: Duration,
    /// In the order of ranks.
    ranks: Vec<RankAccount>,
}

/// What one rank did.
#[derive(Debug)]
struct RankAccount {
    rank: u32,
    how: How,
    /// As the library wrote it.
    figures: Map<String, Value>,
}

/// How a rank ended, as far as the library saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Finalized,
    Aborted,
    /// Without a word: the figures are what it had counted up to then.
    Silently,
}

impl Account {
    /// Reads what is in the directory. A file that can't be read is that of a rank that ended while it wrote it.
    pub(super) fn read(settings: &Settings, mpi: &Mpi, ended: &Ended, dir: &Path) -> Account {
        let mut ranks: Vec<RankAccount> = live(dir)
            .into_iter()
            .map(|(rank, live)| RankAccount { rank, how: How::Silently, figures: figures(&live) })
            .collect();
        for (rank, figures) in objects(dir) {
            let is_aborted = figures.get("aborted").and_then(Value::as_bool) == Some(true);
            let how = if is_aborted { How::Aborted } else { How::Finalized };
            ranks.retain(|known| known.rank != rank);
            ranks.push(RankAccount { rank, how, figures });
        }
        ranks.sort_by_key(|one| one.rank);
        Account {
            protocol: settings.value(Key::Protocol).unwrap_or_default().to_owned(),
            mpi: mpi.to_string(),
            is_on: settings.value(Key::Logging) == Some("on"),
            code: ended.code,
            interrupted: ended.interrupted,
            wall: ended.wall,
            ranks,
        }
    }

    pub(super) fn has_ranks(&self) -> bool {
        !self.ranks.is_empty()
    }

    pub(super) fn to_json(&self) -> String {
        let ranks = self.ranks.iter().map(|one| {
            let mut figures = one.figures.clone();
            figures.insert("rank".to_owned(), json!(one.rank));
            figures.insert("complete".to_owned(), json!(one.how == How::Finalized));
            Value::Object(figures)
        });
        json!({
            "protocol": self.protocol,
            "mpi": self.mpi,
            "wall_s": self.wall.as_secs_f64(),
            "exit_code": self.code,
            "interrupted": self.interrupted,
            "ranks": ranks.collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// What the user should know beside the figures.
    pub(super) fn notes(&self, program: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push("interrupted; mpirun and its ranks have ended".to_owned());
        }
        if self.ranks.is_empty() && self.is_on && !self.interrupted {
            notes.push(match self.code {
                0 => format!(
                    "nothing was logged: no rank of {program} began to log over {}. Where a rank says above why it can't, that is why. \
                     Otherwise: is it an MPI program in C or C++ (calls from Fortran aren't seen), linked with that MPI, and not \
                     statically?",
                    self.mpi
                ),
                code => format!("nothing was logged: no rank had begun to log when the job ended with exit code {code}"),
            });
        }
        let of = |how| {
            let ranks: Vec<String> =
                self.ranks.iter().filter(|one| one.how == how).map(|one| one.rank.to_string()).collect();
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            (!ranks.is_empty()).then(|| format!("{noun} {}", ranks.join(", ")))
        };
        let aborted = of(How::Aborted);
        if let Some(ranks) = &aborted {
            notes.push(format!(
                "{ranks} called MPI_Abort: its figures are as they were then, the others' (*) may lack the messages that they received last"
            ));
        }
        // Of an interrupt and of MPI_Abort it is what one expects.
        if let Some(ranks) = of(How::Silently).filter(|_| aborted.is_none() && !self.interrupted) {
            notes.push(format!(
                "{ranks} ended without MPI_Finalize (by exit, _exit or a signal): the figures (*) may lack the messages that \
                 they received last, and what was not on disk yet is in no log"
            ));
        }
        for one in &self.ranks {
            if let Some(why) = one.figures.get("gave_up").and_then(Value::as_str) {
                notes.push(format!("rank {} gave up logging: {why}", one.rank));
            }
            if let Some(count) = one.figures.get("sends_refused").and_then(Value::as_u64).filter(|count| *count > 0) {
                let sends = if count == 1 { "send" } else { "sends" };
                notes.push(format!("rank {}'s log was full: {count} {sends} failed, as --on-full fail asks", one.rank));
            }
            if one.figures.get("logging_stopped").and_then(Value::as_bool) == Some(true) {
                notes.push(format!("rank {}'s log was full: it keeps nothing from there on (stop-logging)", one.rank));
            }
        }
        notes
    }
}

impl fmt::Display for Account {
    /// A line for each rank, and one for all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["rank", "logged", "bytes", "received", "collectives", "memory at most", "spilled", "waited"]);
        for one in &self.ranks {
            let number = |name: &str| one.figures.get(name).and_then(Value::as_u64).unwrap_or(0);
            let bytes = |name: &str| BinaryBytes(number(name)).to_string();
            let waited = one.figures.get("waited_s").and_then(Value::as_f64).unwrap_or(0.0);
            table.row([
                format!("{}{}", one.rank, if one.how == How::Finalized { "" } else { "*" }),
                number("messages_logged").to_string(),
                bytes("bytes_logged"),
                number("messages_received").to_string(),
                number("collectives").to_string(),
                bytes("memory_peak_bytes"),
                bytes("spilled_bytes"),
                format!("{waited:.3} s"),
            ]);
        }
        let sum = |name: &str| -> u64 {
            self.ranks.iter().filter_map(|one| one.figures.get(name).and_then(Value::as_u64)).sum()
        };
        writeln!(f, "counterfoil: {} over {}, {:.3} s", self.protocol, self.mpi, self.wall.as_secs_f64())?;
        writeln!(f, "{table}")?;
        let (messages, bytes) = (sum("messages_logged"), BinaryBytes(sum("bytes_logged")));
        write!(f, "    {messages} messages logged ({bytes})")
    }
}

/// The process ids of ranks that began.
pub(super) fn pids(dir: &Path) -> Vec<u32> {
    live(dir).iter().filter_map(|(_, live)| live.word(Word::Pid).try_into().ok()).collect()
}

/// What the ranks that began have counted so far.
pub(super) fn live(dir: &Path) -> Vec<(u32, Live)> {
    files(dir, ".live").into_iter().filter_map(|(rank, bytes)| Some((rank, Live::parse(&bytes)?))).collect()
}

/// What a rank had counted, with the names that it would have written itself.
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

/// The objects in files `rank-N.json`, with the rank.
fn objects(dir: &Path) -> Vec<(u32, Map<String, Value>)> {
    let object = |(rank, text): (u32, Vec<u8>)| match serde_json::from_slice(&text) {
        Ok(Value::Object(figures)) => Some((rank, figures)),
        _ => None,
    };
    files(dir, ".json").into_iter().filter_map(object).collect()
}

/// What is in files `rank-N` and the end, with the rank.
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
    use counterfoil_profile::{LIVE_MAGIC, live_words, logged_at, received_at};

    use super::*;
    use crate::config::Chosen;

    /// An account of files with this text, and this end.
    fn account(texts: &[(&str, &[u8])], code: u8, interrupted: bool) -> Account {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mpi = Mpi { name: "x".to_owned(), version: "5.0.0".to_owned(), mpirun: "/x".into(), libraries: None };
        let ended = Ended { code, wall: Duration::from_secs(2), interrupted };
        let settings = Settings::from(&Chosen::default(), |_| None, None).unwrap();
        Account::read(&settings, &mpi, &ended, dir.path())
    }

    const DONE: &[u8] = br#"{"aborted":false,"messages_logged":5,"bytes_logged":2048,"gave_up":null}"#;

    /// Of a rank of a job of two that has logged 3 messages of 30 bytes, of which 1 is acknowledged.
    fn in_time() -> Vec<u8> {
        let mut words = vec![0; live_words(2)];
        for (word, value) in [(Word::Magic, LIVE_MAGIC), (Word::Ranks, 2), (Word::Pid, 7), (Word::HasLog, 1)] {
            words[word as usize] = value;
        }
        words[Word::Acknowledged as usize] = 1;
        words[Word::WaitedMs as usize] = 1500;
        words[logged_at(1)..][..2].copy_from_slice(&[3, 30]);
        words[received_at(0, 2)..][..2].copy_from_slice(&[4, 40]);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn what_a_rank_had_counted_has_the_names_of_an_account() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rank-0.live"), in_time()).unwrap();
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
    fn an_account_counts_before_what_was_seen_last_and_ranks_are_in_order() {
        let seen = in_time();
        let texts: [(&str, &[u8]); 5] = [
            ("rank-10.json", DONE),
            ("rank-2.live", &seen),
            ("rank-10.live", &seen),
            ("rank-0.json", DONE),
            ("x", b""),
        ];
        let account = account(&texts, 0, false);
        let value: Value = serde_json::from_str(&account.to_json()).unwrap();
        let ranks = value["ranks"].as_array().unwrap();
        let line = |rank: &Value| (rank["rank"].as_u64(), rank["messages_logged"].as_u64(), rank["complete"].as_bool());
        let right = [(0, 5, true), (2, 3, false), (10, 5, true)];
        let lines: Vec<_> = ranks.iter().map(line).collect();
        assert_eq!(lines, right.map(|(rank, messages, complete)| (Some(rank), Some(messages), Some(complete))));
        let text = account.to_string();
        assert!(text.contains("  2*") && text.contains("13 messages logged (4.03 KiB)"), "{text}");
        assert_eq!(account.notes("a").len(), 1, "{:?}", account.notes("a"));
        assert!(account.notes("a")[0].starts_with("rank 2 ended without MPI_Finalize"), "{:?}", account.notes("a"));
    }

    #[test]
    fn a_half_written_file_is_no_account() {
        let seen = in_time();
        assert!(!account(&[("rank-0.live", &seen[..9]), ("rank-1.json", b"")], 0, false).has_ranks());
        let both = account(&[("rank-0.live", &seen), ("rank-0.json", br#"{"mess"#)], 0, false);
        assert!(both.to_json().contains(r#""messages_logged":3"#), "{}", both.to_json());
    }

    #[test]
    fn notes_say_what_is_not_to_be_expected() {
        let notes =
            |texts: &[(&str, &[u8])], code, interrupted| account(texts, code, interrupted).notes("prog").join("; ");
        assert!(notes(&[], 0, false).contains("no rank of prog began to log over Open MPI 5.0.0 (x)"));
        assert!(notes(&[], 3, false).contains("exit code 3"));
        assert_eq!(notes(&[("rank-0.json", DONE)], 0, false), "");
        assert_eq!(notes(&[("rank-0.live", &in_time())], 1, true), "interrupted; mpirun and its ranks have ended");
        let aborted = notes(&[("rank-0.live", &in_time()), ("rank-1.json", br#"{"aborted":true}"#)], 7, false);
        assert!(aborted.contains("rank 1 called MPI_Abort") && !aborted.contains("MPI_Finalize"), "{aborted}");
        let gave_up = notes(&[("rank-0.json", br#"{"gave_up":"no","logging_stopped":true}"#)], 0, false);
        assert!(gave_up.contains("gave up logging: no") && gave_up.contains("stop-logging"), "{gave_up}");
        let refused =
            notes(&[("rank-0.json", r#"{"sends_refused":1}"#), ("rank-1.json", r#"{"sends_refused":0}"#)], 0, false);
        assert_eq!(refused, "rank 0's log was full: 1 send failed, as --on-full fail asks");
    }
}
