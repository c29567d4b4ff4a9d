//! What can be asked of the demo.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil_runtime::local::{Kill, KillPoint};
use counterfoil_runtime::{LogKeep, LogOnFull, LogTier, RankSettings, Rule};
use counterfoil_workloads::{Class, LookupError, Workload, by_name};

/// Run a parallel program, kill some of its ranks, and see it end with the right answer.
///
/// The ranks are real processes of this machine, and the kills are real SIGKILLs. The program runs twice, first with
/// nobody killed; results and every single delivery are compared. Exits with 0 only if the answer is right, nothing
/// was lost, duplicated or reordered, and every kill that was asked for happened.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How many ranks (processes)
    #[arg(long, default_value_t = 4)]
    pub(super) ranks: u32,
    /// The program: cg, ring or master-worker
    #[arg(long, default_value = "cg")]
    workload: String,
    /// How large a problem: S, W or A
    #[arg(long, default_value = "S")]
    class: String,
    /// Kill a rank: RANK@ITERATION (from 1), or RANK@recovery:OTHER while OTHER (which may be RANK itself, and which another
    /// kill must have killed) is being recovered. Repeatable
    /// [default: 2@7]
    #[arg(long = "kill", value_name = "RANK@ITERATION")]
    kills: Vec<Kill>,
    /// Kill nobody
    #[arg(long, conflicts_with = "kills")]
    no_kills: bool,
    /// Run the program over MPI, where nobody is killed, and compare with a run between processes of this machine. `cargo xtask
    /// mpi` builds what it takes; COUNTERFOIL_MPI_BUILD says where that is if it isn't beside this program
    #[arg(long, conflicts_with_all = ["kills", "power_cuts", "keep_files"])]
    pub(super) mpi: bool,
    /// Cut the power in this iteration of rank 0 (from 1): all ranks are killed at once, what they had in memory is discarded,
    /// and all go on from what is on disk. Repeatable; with --tier node-local
    #[arg(long = "power-cut", value_name = "ITERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) power_cuts: Vec<u64>,
    /// Take a checkpoint at the end of every so many iterations [default: none]
    #[arg(long, value_name = "ITERATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) checkpoint_every: Option<u64>,
    /// The rule that the ranks follow
    #[arg(long, value_enum, default_value_t = ProtocolName::SenderBased)]
    protocol: ProtocolName,
    /// Clusters of neighbouring ranks; messages from one to a higher one are logged [default: 2, or 1 for a single rank]. With
    /// --protocol send-deterministic
    #[arg(long, value_name = "CLUSTERS", value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,
    /// Where the log lives. A killed rank's log is lost with volatile, taken over with process-crash-safe, and as its last
    /// checkpoint has it with node-local, which spills to disk what doesn't fit into memory
    #[arg(long, value_enum, default_value_t = TierName::ProcessCrashSafe)]
    tier: TierName,
    /// How long messages are kept
    #[arg(long, value_enum, default_value_t = KeepName::Checkpoint)]
    keep: KeepName,
    /// What happens when a rank's log is full: with block, the run fails where the sender has waited for 10 seconds
    #[arg(long, value_enum, default_value_t = OnFullName::Block)]
    on_full: OnFullName,
    /// Memory for the log of each rank; KiB, MiB and GiB are understood
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256MiB")]
    budget: usize,
    /// Disk for the checkpoints of each rank and for what it spills; KiB, MiB and GiB are understood
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4GiB")]
    disk_budget: usize,
    /// Where exactly in an iteration the kills strike [default: from the clock; printed]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// The directory for shared memory and sockets [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(super) shm_dir: Option<PathBuf>,
    /// The directory for checkpoints and spilled messages: on a disk of this node [default: where temporary files go]
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// Keep what the ranks had on disk at the end, for `counterfoil log`: in this directory, which must not exist yet, on a disk
    /// of this node. With --tier node-local or --checkpoint-every, and in place of --checkpoint-dir
    #[arg(long, value_name = "DIR", conflicts_with = "checkpoint_dir")]
    pub(super) keep_files: Option<PathBuf>,
    /// Give up after this many seconds (from 1), for each of the two runs
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    /// Every message is logged until a checkpoint of its receiver covers it; only killed ranks go back
    SenderBased,
    /// The same, and every rank records the order in which it receives before a message is delivered: what the others are measured
    /// against. One run more, without kills and sender-based, is made to compare with
    Pessimistic,
    /// Only messages from the past to the future are logged; who has sent others to a killed rank goes back, too (Guermouche 2011).
    /// For programs that send the same whatever the order of their receives: cg and ring
    SendDeterministic,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TierName {
    /// In each process's own memory
    Volatile,
    /// In private shared-memory files, which survive kill -9
    ProcessCrashSafe,
    /// In memory and on disk; checkpoints survive a power cut
    NodeLocal,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeepName {
    /// Until they are acknowledged: a killed rank can't be replayed
    Acked,
    /// Until a checkpoint of the receiver covers them
    Checkpoint,
    /// For ever
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnFullName {
    /// The sender waits, for 10 seconds at the most: then the run fails
    Block,
    /// The run goes on, not recoverable from there
    StopLogging,
    /// The run fails
    Fail,
}

impl DemoArguments {
    pub(super) fn workload(&self) -> Result<Box<dyn Workload>, LookupError> {
        by_name(&self.workload, self.class.parse::<Class>()?)
    }

    /// The kills that were asked for, or the one that everybody gets to see.
    pub(super) fn kills(&self) -> Vec<Kill> {
        if self.no_kills || self.mpi || self.ranks == 0 || (self.kills.is_empty() && !self.power_cuts.is_empty()) {
            Vec::new()
        } else if self.kills.is_empty() {
            vec![Kill { rank: 2.min(self.ranks - 1), at: KillPoint::Iteration(7) }]
        } else {
            self.kills.clone()
        }
    }

    pub(super) fn settings(&self) -> RankSettings {
        RankSettings {
            rule: match self.protocol {
                ProtocolName::SenderBased => Rule::SenderBased,
                ProtocolName::Pessimistic => Rule::Pessimistic,
                ProtocolName::SendDeterministic => {
                    Rule::SendDeterministic { clusters: self.clusters.unwrap_or(2.min(self.ranks)) }
                }
            },
            tier: match self.tier {
                TierName::Volatile => LogTier::Volatile,
                TierName::ProcessCrashSafe => LogTier::ProcessCrashSafe,
                TierName::NodeLocal => LogTier::NodeLocal,
            },
            keep: match self.keep {
                KeepName::Acked => LogKeep::Acked,
                KeepName::Checkpoint => LogKeep::Checkpoint,
                KeepName::All => LogKeep::All,
            },
            on_full: match self.on_full {
                OnFullName::Block => LogOnFull::Block,
                OnFullName::StopLogging => LogOnFull::StopLogging,
                OnFullName::Fail => LogOnFull::Fail,
            },
            log_bytes_max: self.budget,
            disk_bytes_max: self.disk_budget as u64,
            ..RankSettings::new(self.ranks)
        }
    }

    /// What is wrong with these arguments together, if anything is.
    pub(super) fn check(&self, workload: &dyn Workload) -> Result<(), String> {
        match self.protocol {
            ProtocolName::SenderBased | ProtocolName::Pessimistic if self.clusters.is_some() => {
                return Err("--clusters: only --protocol send-deterministic has them".to_owned());
            }
            ProtocolName::SendDeterministic if self.clusters.is_some_and(|clusters| clusters > self.ranks) => {
                return Err(format!("--clusters: there are only {} ranks", self.ranks));
            }
            ProtocolName::SendDeterministic if matches!(self.keep, KeepName::Acked) => {
                return Err("--keep acked: a killed rank can't be replayed then, and --protocol send-deterministic decides what is kept"
                    .to_owned());
            }
            ProtocolName::SendDeterministic if !workload.deterministic() => {
                return Err(format!(
                    "--protocol send-deterministic: what {} sends depends on the order in which messages come; use cg or ring",
                    workload.name()
                ));
            }
            _ => {}
        }
        if !self.power_cuts.is_empty() && !matches!(self.tier, TierName::NodeLocal) {
            return Err("--power-cut: only --tier node-local survives one".to_owned());
        }
        if self.keep_files.is_some() && !matches!(self.tier, TierName::NodeLocal) && self.checkpoint_every.is_none() {
            return Err("--keep-files: nothing is on disk without --tier node-local or --checkpoint-every".to_owned());
        }
        Ok(())
    }

    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }
}

/// A kill that waits for a recovery that no other kill brings about: it would never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--kill {kill} would never happen: nothing else kills rank {victim}; add such a kill, as in --kill {victim}@7")]
pub(super) struct KillNeverHappens {
    kill: Kill,
    victim: u32,
}

/// Checks that each recovery that a kill waits for comes about by a kill that happens before.
pub(super) fn check_kills(kills: &[Kill]) -> Result<(), KillNeverHappens> {
    let mut dying = BTreeSet::new();
    let mut waiting = kills.to_vec();
    loop {
        let before = waiting.len();
        waiting.retain(|kill| {
            let happens = match kill.at {
                KillPoint::Iteration(_) | KillPoint::PowerCut(_) => true,
                KillPoint::RecoveryOf(other) => dying.contains(&other),
            };
            if happens {
                dying.insert(kill.rank);
            }
            !happens
        });
        if waiting.len() == before {
            break;
        }
    }
    let never = waiting.iter().find_map(|&kill| match kill.at {
        KillPoint::RecoveryOf(victim) => Some(KillNeverHappens { kill, victim }),
        KillPoint::Iteration(_) | KillPoint::PowerCut(_) => None,
    });
    never.map_or(Ok(()), Err)
}

/// Checks that the ranks that are to be killed in an iteration have as many, and rank 0 those in which the power is cut.
pub(super) fn check_iterations(
    workload: &dyn Workload,
    ranks: u32,
    kills: &[Kill],
    power_cuts: &[u64],
) -> Result<(), String> {
    let of_kills = kills.iter().filter_map(|kill| match kill.at {
        KillPoint::Iteration(iteration) => Some((format!("--kill {kill}"), kill.rank, iteration)),
        KillPoint::PowerCut(_) | KillPoint::RecoveryOf(_) => None,
    });
    let of_cuts = power_cuts.iter().map(|&iteration| (format!("--power-cut {iteration}"), 0, iteration));
    for (option, rank, iteration) in of_kills.chain(of_cuts) {
        let most = workload.iterations(rank, ranks).at_most;
        if iteration > most {
            let (name, class) = (workload.name(), workload.class());
            return Err(format!(
                "{option} would never happen: in {name} of class {class} on {ranks} ranks, rank {rank} has at most {most} iterations"
            ));
        }
    }
    Ok(())
}

/// A number of bytes, as in `65536`, `64KiB`, `1MiB`, `2GiB`.
fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("{other:?} is not a unit: use KiB, MiB or GiB")),
    };
    let number: usize = digits.parse().map_err(|_| format!("{digits:?} is not a number of bytes"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is more than can be addressed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_during_a_recovery_needs_another_kill_that_happens() {
        let check = |kills: &[&str]| {
            let kills: Vec<Kill> = kills.iter().map(|kill| kill.parse().unwrap()).collect();
            check_kills(&kills).map_err(|never| never.kill.to_string())
        };
        for good in [
            &[][..],
            &["2@7"],
            &["2@6", "2@recovery:2"],
            &["2@recovery:2", "2@recovery:2", "2@6"],
            &["1@recovery:3", "3@recovery:2", "2@6"],
        ] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in [
            &["1@recovery:1"][..],
            &["1@recovery:1", "2@7"],
            &["1@recovery:1", "1@recovery:1"],
            &["1@recovery:2", "2@recovery:1", "3@7"],
        ] {
            assert_eq!(check(bad), Err(bad[0].to_owned()), "{bad:?}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(parse_bytes("1000"), Ok(1000));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("3MiB"), Ok(3 << 20));
        for wrong in ["", "KiB", "-1", "1.5MiB", "1kb", "99999999999GiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
