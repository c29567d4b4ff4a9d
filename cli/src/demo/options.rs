//! Options of `counterfoil demo`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil_protocols::api::{Kept, Properties};
use counterfoil_runtime::local::{Kill, KillPoint};
use counterfoil_runtime::transport::CallKind;
use counterfoil_runtime::{LogKeep, LogOnFull, LogTier, RankSettings, Rule};
use counterfoil_workloads::{Class, LookupError, Workload, by_name};

/// Run a parallel program, kill some of its ranks, and check that its answer is still right.
///
/// Ranks are processes on this machine, killed by SIGKILL. The program runs twice, the first time without kills; results and
/// all deliveries of the two runs are compared. The exit code is 0 only if the answer is right, no message was lost,
/// duplicated or reordered, and every requested kill took place.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Number of ranks (processes)
    #[arg(long, default_value_t = 4)]
    pub(super) ranks: u32,
    /// Program: cg, ft, laplace, gauss, neurons, matmul, disks, ring or master-worker
    #[arg(long, default_value = "cg")]
    workload: String,
    /// Problem size: S, W or A
    #[arg(long, default_value = "S")]
    class: String,
    /// Kill RANK in ITERATION (from 1). As RANK@ITERATION:CALL, in the midst of the first send, receive, collective or checkpoint
    /// from that iteration on; as RANK@repair:OTHER, soon after OTHER was killed; as RANK@recovery:OTHER, while OTHER has been
    /// replaced and is recovering, and OTHER may be RANK itself. Repeatable [default: 2@7]
    #[arg(long = "kill", value_name = "RANK@ITERATION")]
    kills: Vec<Kill>,
    /// Kill no rank
    #[arg(long, conflicts_with = "kills")]
    no_kills: bool,
    /// Run the program as ranks of an MPI job, and compare with a run on local processes. MPI is wheel, debian, mpich, or an installation
    /// prefix for which `cargo xtask mpi` was run [default: the build in COUNTERFOIL_MPI_BUILD, else the first one next to this
    /// program]
    #[arg(long, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    pub(super) mpi: Option<Option<String>>,
    /// Number of spare processes of an MPI job, which replace dead ranks if the MPI outlives failures [default: one for each kill]
    #[arg(long, value_name = "SPARES", requires = "mpi")]
    pub(super) spares: Option<u32>,
    /// Simulate a power cut in this iteration of rank 0 (from 1): kill all ranks at once, discard their memory, and restart them
    /// from disk. Repeatable; requires --tier node-local
    #[arg(long = "power-cut", value_name = "ITERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) power_cuts: Vec<u64>,
    /// Lose the protocol's process apart from the ranks (initiator, recovery process) in this iteration of rank 0 (from 1), and replace
    /// it by one that knows nothing of it. Repeatable; requires --protocol send-deterministic, coordinated, event-logging or message-tagging
    #[arg(long = "lose-initiator", value_name = "ITERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) initiator_losses: Vec<u64>,
    /// Take a checkpoint after every ITERATIONS iterations [default: none]
    #[arg(long, value_name = "ITERATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_every: Option<u64>,
    /// Mean time between failures of the job, in seconds. Of the offered checkpoints, take one once the optimal time since the last
    /// has passed: the square root of twice this times the measured cost of a checkpoint (Zhao 2005). Implies --checkpoint-every 1
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    mtbf: Option<Duration>,
    /// Logging protocol
    #[arg(long, value_enum, default_value_t = ProtocolName::SenderBased)]
    protocol: ProtocolName,
    /// Number of clusters of neighbouring ranks; only messages from a cluster to a higher one are kept. Requires
    /// --protocol send-deterministic [default: 2, or 1 for a single rank]
    #[arg(long, value_name = "CLUSTERS", value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,
    /// How epoch and logging state of the participants of a collective call reach those that get its data. Requires --protocol
    /// coordinated [default: exchanged]
    #[arg(long, value_enum)]
    bits: Option<BitsName>,
    /// Storage of the log
    #[arg(long, value_enum, default_value_t = TierName::ProcessCrashSafe)]
    tier: TierName,
    /// How long messages are kept
    #[arg(long, value_enum, default_value_t = KeepName::Checkpoint)]
    keep: KeepName,
    /// Effect of a full log
    #[arg(long, value_enum, default_value_t = OnFullName::Block)]
    on_full: OnFullName,
    /// Memory of each rank's log; accepts KiB, MiB and GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256MiB")]
    budget: usize,
    /// Disk space of each rank's checkpoints and spilled messages; accepts KiB, MiB and GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4GiB")]
    disk_budget: usize,
    /// Seed of the exact moments of the kills within their iterations [default: from the clock; printed]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Directory for shared memory and sockets [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(super) shm_dir: Option<PathBuf>,
    /// Directory for checkpoints and spilled messages, on a local disk [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// Keep the ranks' files in this new directory on a local disk, for `counterfoil log`. Requires --tier node-local or
    /// --checkpoint-every; replaces --checkpoint-dir
    #[arg(long, value_name = "DIR", conflicts_with = "checkpoint_dir")]
    pub(super) keep_files: Option<PathBuf>,
    /// Time limit of each run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// Print a JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    /// Log every message until a checkpoint of its receiver covers it; only killed ranks roll back
    SenderBased,
    /// As sender-based, and record the receive order of each rank before delivery: the papers' baseline. Adds a
    /// sender-based run without kills, to measure the cost
    Pessimistic,
    /// Log only messages from the past to the future; ranks that sent other messages to a killed rank roll back with it
    /// (Guermouche 2011). For programs whose sends don't depend on the receive order: all but master-worker and disks
    SendDeterministic,
    /// As sender-based, but keep the results of bcast, allreduce, allgather and barrier whole instead of logging their messages; a rank that has
    /// one sends it to a killed rank that lacks it (Liu 2014). Only killed ranks roll back. For programs with many such calls: gauss, neurons
    UserLevel,
    /// Keep no messages but those that cross a checkpoint of the whole job (Bronevetsky et al., C3): all ranks go back to the last one.
    /// For jobs whose memory is scarce and whose failures are rare; with --checkpoint-every
    Coordinated,
    /// Log envelopes, and the messages that cross a checkpoint; all ranks go back to the last checkpoint of the job (Zhao 2005, libELC).
    /// Messages needn't be kept; a failure costs all ranks the time since that checkpoint. For many ranks that fail seldom, and few
    /// different pairs of tag and length
    EventLogging,
    /// As event-logging, but no envelopes are logged: each message carries the number of its sender's last checkpoint (Zhao 2005, libMTC).
    /// For many small messages of different tags
    MessageTagging,
    /// Keep nothing: what the others are measured against. A killed rank can't be replaced; with --no-kills
    Unlogged,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BitsName {
    /// In an exchange of their own before the call
    Exchanged,
    /// On the data of the call
    Piggybacked,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TierName {
    /// In process memory; lost with a killed rank
    Volatile,
    /// In private shared-memory files, which survive kill -9; taken over by the replacement
    ProcessCrashSafe,
    /// In memory, spilling to disk; a replacement starts from the last checkpoint, which survives a power cut
    NodeLocal,
}

impl From<TierName> for LogTier {
    fn from(name: TierName) -> LogTier {
        match name {
            TierName::Volatile => LogTier::Volatile,
            TierName::ProcessCrashSafe => LogTier::ProcessCrashSafe,
            TierName::NodeLocal => LogTier::NodeLocal,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeepName {
    /// Until acknowledged; a killed rank can't be replayed
    Acked,
    /// Until a checkpoint of the receiver covers them
    Checkpoint,
    /// Forever
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnFullName {
    /// The sender waits up to 10 seconds, then the run fails
    Block,
    /// Stop logging and continue; failures after that can't be recovered from
    StopLogging,
    /// The run fails
    Fail,
}

impl DemoArguments {
    pub(super) fn workload(&self) -> Result<Box<dyn Workload>, LookupError> {
        by_name(&self.workload, self.class.parse::<Class>()?)
    }

    /// Returns the requested kills, or the default one.
    pub(super) fn kills(&self) -> Vec<Kill> {
        if self.no_kills
            || self.ranks == 0
            || (self.kills.is_empty() && !(self.power_cuts.is_empty() && self.initiator_losses.is_empty()))
        {
            Vec::new()
        } else if self.kills.is_empty() {
            vec![Kill { rank: 2.min(self.ranks - 1), at: KillPoint::Iteration(7) }]
        } else {
            self.kills.clone()
        }
    }

    /// Returns the number of iterations from one offered checkpoint to the next.
    pub(super) fn checkpoint_every(&self) -> Option<u64> {
        self.checkpoint_every.or(self.mtbf.map(|_| 1))
    }

    pub(super) fn settings(&self) -> RankSettings {
        RankSettings {
            rule: match self.protocol {
                ProtocolName::SenderBased => Rule::SenderBased,
                ProtocolName::Pessimistic => Rule::Pessimistic,
                ProtocolName::SendDeterministic => {
                    Rule::SendDeterministic { clusters: self.clusters.unwrap_or(2.min(self.ranks)) }
                }
                ProtocolName::UserLevel => Rule::UserLevel,
                ProtocolName::Coordinated => {
                    Rule::Coordinated { piggybacked: matches!(self.bits, Some(BitsName::Piggybacked)) }
                }
                ProtocolName::EventLogging => Rule::EventLogging,
                ProtocolName::MessageTagging => Rule::MessageTagging,
                ProtocolName::Unlogged => Rule::Unlogged,
            },
            tier: self.tier.into(),
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
            mtbf: self.mtbf,
            ..RankSettings::new(self.ranks)
        }
    }

    /// Checks the combination of the arguments.
    pub(super) fn check(&self, workload: &dyn Workload) -> Result<(), Refusal> {
        let Properties { keeps, has_coordinator, .. } = self.settings().rule.properties();
        let kills_any = !(self.kills().is_empty() && self.power_cuts.is_empty());
        if self.bits.is_some() && self.protocol != ProtocolName::Coordinated {
            return Err(Refusal::BitsOfAnother);
        }
        if !self.initiator_losses.is_empty() && !has_coordinator {
            return Err(Refusal::NoInitiator);
        }
        match (self.protocol, self.clusters) {
            (ProtocolName::SendDeterministic, Some(clusters)) if clusters > self.ranks => {
                return Err(Refusal::TooManyClusters { ranks: self.ranks });
            }
            (ProtocolName::SendDeterministic, _) if matches!(self.keep, KeepName::Acked) => {
                return Err(Refusal::AckedByItself);
            }
            (ProtocolName::SendDeterministic, _) if !workload.deterministic() => {
                return Err(Refusal::NotSendDeterministic { workload: workload.name() });
            }
            (ProtocolName::SendDeterministic, _) | (_, None) => {}
            (_, Some(_)) => return Err(Refusal::ClustersOfAnother),
        }
        if self.protocol == ProtocolName::Unlogged && kills_any {
            return Err(Refusal::NothingKept);
        }
        // Rules that keep no records don't ask for how long.
        if matches!(self.keep, KeepName::Acked) && keeps != Kept::Nothing && kills_any {
            return Err(Refusal::Acked);
        }
        let is_in_checkpoint = |kill: &Kill| matches!(kill.at, KillPoint::Call(_, CallKind::Checkpoint));
        if let Some(kill) = self.kills.iter().copied().find(is_in_checkpoint)
            && self.checkpoint_every().is_none()
        {
            return Err(Refusal::NoCheckpoint { kill });
        }
        if !self.power_cuts.is_empty() && !matches!(self.tier, TierName::NodeLocal) {
            return Err(Refusal::NotOnDisk);
        }
        if self.keep_files.is_some() && !matches!(self.tier, TierName::NodeLocal) && self.checkpoint_every().is_none() {
            return Err(Refusal::NoFiles);
        }
        Ok(())
    }

    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }
}

/// Reason why options don't go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("--bits requires --protocol coordinated")]
    BitsOfAnother,
    #[error("--lose-initiator requires --protocol send-deterministic, coordinated, event-logging or message-tagging")]
    NoInitiator,
    #[error("--clusters requires --protocol send-deterministic")]
    ClustersOfAnother,
    #[error("--clusters: there are only {ranks} ranks")]
    TooManyClusters { ranks: u32 },
    #[error(
        "--keep acked: killed ranks couldn't be replayed; --protocol send-deterministic decides itself what is kept"
    )]
    AckedByItself,
    #[error(
        "--protocol send-deterministic: the sends of {workload} depend on its receive order; use another workload, such as cg or ring"
    )]
    NotSendDeterministic { workload: &'static str },
    #[error(
        "--protocol unlogged keeps nothing that a killed rank could be fed from; use another protocol, or --no-kills"
    )]
    NothingKept,
    #[error(
        "--keep acked: what is acknowledged is dropped, so that a killed rank can't be replayed; use --keep checkpoint, or --no-kills"
    )]
    Acked,
    #[error("--kill {kill} requires --checkpoint-every")]
    NoCheckpoint { kill: Kill },
    #[error("--power-cut requires --tier node-local")]
    NotOnDisk,
    #[error("--keep-files requires --tier node-local or --checkpoint-every; nothing is on disk otherwise")]
    NoFiles,
}

/// Error for a kill during a recovery that no other kill causes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--kill {kill} would never happen: nothing else kills rank {victim}; add such a kill, as in --kill {victim}@7")]
pub(super) struct KillNeverHappens {
    kill: Kill,
    victim: u32,
}

/// Checks that every recovery that a kill waits for is caused by an earlier kill.
pub(super) fn check_kills(kills: &[Kill]) -> Result<(), KillNeverHappens> {
    let mut dying = BTreeSet::new();
    let mut waiting = kills.to_vec();
    loop {
        let before = waiting.len();
        waiting.retain(|kill| {
            let happens = match kill.at {
                KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::PowerCut(_) => true,
                KillPoint::RepairOf(other) | KillPoint::RecoveryOf(other) => dying.contains(&other),
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
        KillPoint::RepairOf(victim) | KillPoint::RecoveryOf(victim) => Some(KillNeverHappens { kill, victim }),
        KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::PowerCut(_) => None,
    });
    never.map_or(Ok(()), Err)
}

/// Error for an iteration that a rank doesn't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{option} would never happen: rank {rank} of {workload}, class {class}, on {ranks} ranks runs at most {most} iterations"
)]
pub(super) struct IterationNeverHappens {
    option: String,
    rank: u32,
    ranks: u32,
    workload: &'static str,
    class: Class,
    most: u64,
}

/// Checks that each rank has the iterations in which it is to be killed, and rank 0 those of the power cuts.
pub(super) fn check_iterations(
    workload: &dyn Workload,
    ranks: u32,
    kills: &[Kill],
    power_cuts: &[u64],
) -> Result<(), IterationNeverHappens> {
    let of_kills = kills.iter().filter_map(|kill| match kill.at {
        KillPoint::Iteration(iteration) | KillPoint::Call(iteration, _) => {
            Some((format!("--kill {kill}"), kill.rank, iteration))
        }
        KillPoint::PowerCut(_) | KillPoint::RepairOf(_) | KillPoint::RecoveryOf(_) => None,
    });
    let of_cuts = power_cuts.iter().map(|&iteration| (format!("--power-cut {iteration}"), 0, iteration));
    for (option, rank, iteration) in of_kills.chain(of_cuts) {
        let most = workload.iterations(rank, ranks).at_most;
        if iteration > most {
            let (workload, class) = (workload.name(), workload.class());
            return Err(IterationNeverHappens { option, rank, ranks, workload, class, most });
        }
    }
    Ok(())
}

/// Parses a positive number of seconds, such as `3600` or `0.5`.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| format!("{text:?} is not a positive number of seconds"))
}

/// Parses a number of bytes, such as `65536`, `64KiB`, `1MiB` or `2GiB`.
fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("unknown unit {other:?}; use KiB, MiB or GiB")),
    };
    let number: usize = digits.parse().map_err(|_| format!("{digits:?} is not a number of bytes"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} exceeds the address space"))
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    #[test]
    fn a_kill_during_a_recovery_requires_an_earlier_kill() {
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
    fn killed_ranks_need_a_rule_that_keeps_something() {
        let check = |line: &[&str]| {
            let command = DemoArguments::augment_args(clap::Command::new("demo"));
            let matches = command.get_matches_from(["demo"].iter().chain(line));
            let arguments = DemoArguments::from_arg_matches(&matches).unwrap();
            let workload = arguments.workload().unwrap();
            arguments.check(workload.as_ref())
        };
        assert_eq!(check(&["--protocol", "unlogged"]), Err(Refusal::NothingKept));
        assert_eq!(check(&["--protocol", "unlogged", "--no-kills"]), Ok(()));
        for protocol in ["sender-based", "pessimistic", "user-level"] {
            assert_eq!(check(&["--protocol", protocol, "--keep", "acked"]), Err(Refusal::Acked));
        }
        for protocol in ["coordinated", "event-logging", "message-tagging"] {
            assert_eq!(check(&["--protocol", protocol, "--keep", "acked"]), Ok(()));
        }
    }

    #[test]
    fn protocols_have_the_names_of_their_rules() {
        for protocol in ProtocolName::value_variants() {
            let name = protocol.to_possible_value().unwrap().get_name().to_owned();
            let command = DemoArguments::augment_args(clap::Command::new("demo"));
            let matches = command.get_matches_from(["demo", "--protocol", &name]);
            let arguments = DemoArguments::from_arg_matches(&matches).unwrap();
            assert_eq!(arguments.settings().rule.name(), name);
        }
    }

    #[test]
    fn sizes_accept_binary_units() {
        assert_eq!(parse_bytes("1000"), Ok(1000));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("3MiB"), Ok(3 << 20));
        for wrong in ["", "KiB", "-1", "1.5MiB", "1kb", "99999999999GiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
