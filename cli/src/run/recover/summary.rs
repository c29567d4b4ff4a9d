//! Summary of a job with replaced ranks.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use counterfoil_settings::host_name;
use counterfoil_settings::recover::{Begun, Ended, RecoverSettings, Recovered};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::relay::Relay;
use super::seconds;
use crate::plural;
use crate::run::launch::Exit;
use crate::run::mpi::Mpi;
use crate::table::Table;

/// Job summary.
pub(super) struct Summary {
    mpi: String,
    rule: String,
    tier: String,
    spares: u32,
    restarts: u32,
    wall: Duration,
    ranks: Vec<RankSummary>,
    /// The program's exit code: the code with which a rank has ended the job, or if all have called `MPI_Finalize`, the
    /// first non-zero one.
    code: Option<i32>,
}

/// A rank, with its processes, oldest first.
struct RankSummary {
    rank: u32,
    processes: Vec<Begun>,
    /// For each process, how it has replaced the one before.
    recovered: Vec<Option<Steps>>,
    ended: Option<Ended>,
}

/// Recovery steps, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Steps {
    /// From the death until the failure was noticed; `None` on another host.
    detect: Option<f64>,
    others: Recovered,
}

impl Steps {
    fn named(&self) -> [(&'static str, Option<f64>); 5] {
        let Recovered { repair, start, replay, catch_up, .. } = self.others;
        [("detect", self.detect), ("repair", repair), ("start", start), ("replay", replay), ("catch_up", catch_up)]
    }

    fn to_json(self) -> Value {
        self.named().into_iter().map(|(name, ms)| (name.to_owned(), json!(ms))).collect()
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken =
            self.named().into_iter().filter_map(|(name, ms)| Some(format!("{} {:.1} ms", name.replace('_', "-"), ms?)));
        f.write_str(&taken.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the steps in which each process of a rank has replaced the one before.
fn steps_of(relay: &Relay, rank: u32, processes: &[Begun]) -> Vec<Option<Steps>> {
    let mut previous: Option<&Begun> = None;
    let steps = processes.iter().map(|begun| {
        let died = previous.replace(begun).and_then(|process| relay.died(process));
        let others = relay.recovered(rank, begun.incarnation)?;
        let noticed = SystemTime::UNIX_EPOCH + Duration::from_micros(others.noticed_at_us);
        // Processes of a new start have noticed nothing.
        let detect = died.filter(|_| others.repair.is_some()).and_then(|died| noticed.duration_since(died).ok());
        Some(Steps { detect: detect.map(|time| time.as_secs_f64() * 1e3), others })
    });
    steps.collect()
}

impl Summary {
    pub(super) fn of(settings: &RecoverSettings, mpi: &Mpi, spares: u32, relay: &Relay, wall: Duration) -> Summary {
        let ranks = relay.processes().map(|(rank, processes)| RankSummary {
            rank,
            processes: processes.to_vec(),
            recovered: steps_of(relay, rank, processes),
            ended: relay.ended(rank),
        });
        // A process killed after MPI_Finalize has none.
        let code = (0..settings.ranks).filter_map(|rank| relay.exit_code(rank)).find(|code| *code != 0);
        Summary {
            mpi: mpi.to_string(),
            rule: settings.rule.clone(),
            tier: settings.tier.to_string(),
            spares,
            restarts: settings.start,
            wall,
            ranks: ranks.collect(),
            code: relay.aborted().map(|aborted| aborted.code).or(relay.is_done().then(|| code.unwrap_or(0))),
        }
    }

    /// Returns the program's exit code, or mpirun's if a rank has ended abnormally; this may be 0.
    pub(super) fn exit_code(&self, exit: &Exit) -> u8 {
        self.code.map_or(exit.code.max(1), |code| u8::try_from(code & 0xff).unwrap_or(1))
    }

    /// Returns the other hosts with processes of the job.
    pub(super) fn other_hosts(&self) -> Vec<&str> {
        let own = host_name();
        let hosts = self.ranks.iter().flat_map(|rank| &rank.processes).map(|begun| begun.host.as_str());
        let others: BTreeSet<&str> = hosts.filter(|host| *host != own).collect();
        others.into_iter().collect()
    }

    fn first_at(&self) -> u64 {
        let begun = self.ranks.iter().flat_map(|rank| &rank.processes).map(|begun| begun.at_ms);
        begun.min().unwrap_or_default()
    }

    pub(super) fn to_json(&self, exit: &Exit, code: u8) -> Value {
        let first = self.first_at();
        let at = |ms: u64| seconds(Duration::from_millis(ms.saturating_sub(first)));
        let ranks = self.ranks.iter().map(|rank| {
            let processes = rank.processes.iter().zip(&rank.recovered).map(|(begun, recovered)| {
                json!({
                    "host": begun.host,
                    "pid": begun.pid,
                    "begun_s": at(begun.at_ms),
                    "recovery_ms": recovered.map(Steps::to_json),
                })
            });
            json!({
                "rank": rank.rank,
                "processes": processes.collect::<Vec<_>>(),
                "done": rank.ended.is_some(),
                "calls": rank.ended.as_ref().map(|ended| ended.calls),
                "messages_logged": rank.ended.as_ref().map(|ended| ended.messages_logged),
                "bytes_logged": rank.ended.as_ref().map(|ended| ended.bytes_logged),
                "outcomes": rank.ended.as_ref().map(|ended| ended.outcomes),
                "sends_diverged": rank.ended.as_ref().map(|ended| ended.sends_diverged),
            })
        });
        json!({
            "mpi": self.mpi,
            "protocol": self.rule,
            "tier": self.tier,
            "spares": self.spares,
            "restarts": self.restarts,
            "wall_s": seconds(self.wall),
            "exit_code": code,
            "interrupted": exit.interrupted,
            "ranks": ranks.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replaced: usize = self.ranks.iter().map(|rank| rank.processes.len().saturating_sub(1)).sum();
        let restarts = match self.restarts {
            0 => String::new(),
            times => format!(", started again {}", plural::count(u64::from(times), "time", "times")),
        };
        writeln!(
            f,
            "counterfoil: {} in {:.2} s, {} replaced{restarts}; {} rule, {} tier, {}",
            plural::count(self.ranks.len() as u64, "rank", "ranks"),
            self.wall.as_secs_f64(),
            plural::count(replaced as u64, "process", "processes"),
            self.rule,
            self.tier,
            self.mpi
        )?;
        let mut headings = vec!["rank", "processes", "calls", "messages", "bytes", "outcomes", "<replaced after"];
        let mut hosts = self.ranks.iter().flat_map(|rank| &rank.processes).map(|begun| &begun.host);
        let first_host = hosts.next();
        // Without its heading, a cell isn't shown.
        if hosts.any(|host| Some(host) != first_host) {
            headings.push("<hosts");
        }
        let mut table = Table::new(&headings);
        let first = self.first_at();
        for RankSummary { rank, processes, ended, .. } in &self.ranks {
            let figure = |of: fn(&Ended) -> u64| ended.as_ref().map_or("-".to_owned(), |ended| of(ended).to_string());
            let bytes = ended.as_ref().map_or("-".to_owned(), |ended| BinaryBytes(ended.bytes_logged).to_string());
            let after = |begun: &Begun| format!("{:.2} s", begun.at_ms.saturating_sub(first) as f64 / 1e3);
            let replaced: Vec<String> = processes.iter().skip(1).map(after).collect();
            let hosts: Vec<&str> = processes.iter().map(|begun| begun.host.as_str()).collect();
            table.row([
                rank.to_string(),
                processes.len().to_string(),
                figure(|ended| ended.calls),
                figure(|ended| ended.messages_logged),
                bytes,
                figure(|ended| ended.outcomes),
                replaced.join(", "),
                hosts.join(", "),
            ]);
        }
        write!(f, "{table}")?;
        for RankSummary { rank, processes, recovered, .. } in &self.ranks {
            for (begun, recovered) in processes.iter().zip(recovered).filter_map(|(begun, by)| Some((begun, (*by)?))) {
                let after = begun.at_ms.saturating_sub(first) as f64 / 1e3;
                write!(f, "\nrank {rank} by process {} after {after:.2} s: {recovered}", begun.pid)?;
            }
        }
        for RankSummary { rank, ended, .. } in &self.ranks {
            if let Some(Ended { sends_diverged: sends @ 1.., .. }) = ended {
                write!(
                    f,
                    "\nrank {rank} sent {sends} messages with other bytes than are on record, which its peers have"
                )?;
            }
        }
        Ok(())
    }
}
