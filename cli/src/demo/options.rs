//! Options for `counterfoil demo`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use counterfoil::{Keep, OnFull, Tier, UnknownWord};
use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Kept, Properties, Rule, RuleOption};
use counterfoil_runtime::RankSettings;
use counterfoil_runtime::local::{Kill, KillPoint};
use counterfoil_runtime::transport::CallKind;
use counterfoil_settings::{ByteSize, Seconds};
use counterfoil_workloads::{Class, LookupError, NAMES, Workload, by_name};

use crate::protocol;

/// Run a parallel program, kill some ranks, and check that the answer is still right.
///
/// Ranks are processes on this machine, killed by SIGKILL. The program runs twice, first without kills; the runs'
/// results and deliveries are compared. The exit code is 0 only if the answer is right, no message was lost, duplicated
/// or reordered, and every requested kill took place.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Number of ranks (processes)
    #[arg(long, default_value_t = 4)]
    pub(super) ranks: u32,
    #[arg(long, default_value = NAMES[0], help = format!("Program: {}", NAMES.join(", ")))]
    workload: String,
    /// Problem size: S, W or A
    #[arg(long, default_value = "S")]
    class: String,
    /// Kill RANK in ITERATION (from 1). As RANK@ITERATION:CALL, inside the first send, receive, collective or
    /// checkpoint from that iteration on; as RANK@event:N, at its N-th send, receive or checkpoint; as
    /// RANK@repair:OTHER, soon after OTHER was killed; as RANK@recovery:OTHER, while the replacement for OTHER is
    /// recovering; OTHER may be RANK itself. Repeatable [default: 2@7]
    #[arg(long = "kill", value_name = "RANK@ITERATION")]
    kills: Vec<Kill>,
    /// Kill no rank
    #[arg(long, conflicts_with = "kills")]
    no_kills: bool,
    /// Run the program as ranks of an MPI job, and compare with a run on local processes. MPI is wheel, debian, mpich,
    /// or the prefix of an installation prepared with `cargo xtask mpi` [default: the build in COUNTERFOIL_MPI_BUILD,
    /// else the first one next to this program]
    #[arg(long, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    pub(super) mpi: Option<Option<String>>,
    /// Number of spare processes in an MPI job, which replace dead ranks if the MPI outlives failures [default: one for
    /// each kill]
    #[arg(long, value_name = "SPARES", requires = "mpi")]
    pub(super) spares: Option<u32>,
    /// Start the MPI job with User-Level Failure Mitigation even if the protocol restarts the job and needs none
    #[arg(long, requires = "mpi")]
    pub(super) ulfm: bool,
    /// Simulate a power cut in this iteration of rank 0 (from 1): kill all ranks at once, discard their memory, and
    /// restart them from disk. Repeatable; requires --tier node-local
    #[arg(long = "power-cut", value_name = "ITERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) power_cuts: Vec<u64>,
    /// Lose the protocol's separate process (initiator, recovery process) in this iteration of rank 0 (from 1), and
    /// replace it by one without its state. Repeatable; requires a protocol with such a process
    #[arg(long = "lose-initiator", value_name = "ITERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) initiator_losses: Vec<u64>,
    /// Take a checkpoint after every ITERATIONS iterations [default: none]
    #[arg(long, value_name = "ITERATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_every: Option<u64>,
    /// The job's mean time between failures, in seconds. Takes an offered checkpoint once the optimal time since the
    /// last has passed: the square root of twice this times the measured checkpoint cost (Zhao 2005). Implies
    /// --checkpoint-every 1
    #[arg(long, value_name = "SECONDS")]
    mtbf: Option<Seconds>,
    /// Logging protocol
    #[arg(long, value_name = "PROTOCOL", default_value = RULES[0].name, value_parser = protocol::parser(|_| true))]
    protocol: Rule,
    /// Number of clusters (neighbouring ranks); only messages to higher clusters are kept. Requires a protocol with
    /// clusters [default: 2, or 1 for a single rank]
    #[arg(long, value_name = "CLUSTERS", value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,
    /// Transport of epoch and logging state from a collective call's participants to the receivers of its data: in a
    /// separate exchange before the call, or on its data. Requires a protocol with such bits [default: exchanged]
    #[arg(long, value_parser = protocol::bits())]
    bits: Option<Bits>,
    /// Log storage
    #[arg(long, value_parser = tiers(), default_value_t = Tier::ProcessCrashSafe)]
    tier: Tier,
    /// Message retention
    #[arg(long, value_parser = keeps(), default_value_t = Keep::Checkpoint)]
    keep: Keep,
    /// Effect of a full log
    #[arg(long, value_parser = effects_of_a_full_log(), default_value_t = OnFull::Block)]
    on_full: OnFull,
    /// Log memory per rank; accepts KiB, MiB and GiB
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    budget: ByteSize,
    /// Disk space per rank for checkpoints and spilled messages; accepts KiB, MiB and GiB
    #[arg(long, value_name = "BYTES", default_value = "4GiB")]
    disk_budget: ByteSize,
    /// Seed for the exact moments of the kills within their iterations [default: from the clock; printed]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Directory for shared memory and sockets [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(super) shm_dir: Option<PathBuf>,
    /// Directory for checkpoints and spilled messages, on a local disk [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// Keep the ranks' files in this new directory on a local disk, for `counterfoil log`. Requires --tier node-local
    /// or --checkpoint-every; replaces --checkpoint-dir
    #[arg(long, value_name = "DIR", conflicts_with = "checkpoint_dir")]
    pub(super) keep_files: Option<PathBuf>,
    /// Time limit per run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// Print a JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a tier's name.
pub(crate) fn tiers() -> impl TypedValueParser<Value = Tier> {
    words([
        (Tier::Volatile.word(), "In process memory; lost with a killed rank"),
        (
            Tier::ProcessCrashSafe.word(),
            "In private shared-memory files, which survive kill -9; taken over by the replacement",
        ),
        (
            Tier::NodeLocal.word(),
            "In memory, spilling to disk; a replacement starts from the last checkpoint, which survives a power cut",
        ),
    ])
}

fn keeps() -> impl TypedValueParser<Value = Keep> {
    words([
        (Keep::Acked.word(), "Until acknowledged; a killed rank can't be replayed"),
        (Keep::Checkpoint.word(), "Until a checkpoint of the receiver covers them"),
        (Keep::All.word(), "Forever"),
    ])
}

fn effects_of_a_full_log() -> impl TypedValueParser<Value = OnFull> {
    words([
        (OnFull::Block.word(), "The sender waits up to 10 seconds, then the run fails"),
        (OnFull::StopLogging.word(), "Stop logging and continue; failures after that can't be recovered from"),
        (OnFull::Fail.word(), "The run fails"),
    ])
}

/// Parses one of these words, each with its own help.
fn words<T, const N: usize>(helps: [(&'static str, &'static str); N]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = UnknownWord> + Clone + Send + Sync + 'static,
{
    let values = helps.map(|(word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(values).try_map(|word| word.parse::<T>())
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

    /// Returns the number of iterations between offered checkpoints.
    pub(super) fn checkpoint_every(&self) -> Option<u64> {
        self.checkpoint_every.or(self.mtbf.map(|_| 1))
    }

    /// Returns the protocol, with its options.
    fn rule(&self) -> Rule {
        let clusters = self.clusters.unwrap_or(2.min(self.ranks));
        let rule = self.protocol.with_bits(self.bits.unwrap_or_default());
        if rule.takes(RuleOption::Clusters) { rule.with_clusters(clusters) } else { rule }
    }

    pub(super) fn settings(&self) -> RankSettings {
        RankSettings {
            rule: self.rule(),
            tier: self.tier,
            keep: self.keep,
            on_full: self.on_full,
            log_bytes_max: self.budget.0,
            disk_bytes_max: self.disk_budget.0 as u64,
            mtbf: self.mtbf.map(|mtbf| mtbf.0),
            ..RankSettings::new(self.ranks)
        }
    }

    /// Checks the combination of arguments.
    pub(super) fn check(&self, workload: &dyn Workload) -> Result<(), Refusal> {
        let rule = &self.protocol;
        let Properties { keeps, needs_send_determinism, restarts_job, .. } = rule.properties;
        let kills_any = !(self.kills().is_empty() && self.power_cuts.is_empty());
        if self.bits.is_some() && !rule.takes(RuleOption::Bits) {
            return Err(Refusal::BitsOfAnother);
        }
        if !self.initiator_losses.is_empty() && !may_lose_initiator(rule) {
            return Err(Refusal::NoInitiator);
        }
        match self.clusters {
            Some(_) if !rule.takes(RuleOption::Clusters) => return Err(Refusal::ClustersOfAnother),
            Some(clusters) if clusters > self.ranks => return Err(Refusal::TooManyClusters { ranks: self.ranks }),
            _ => {}
        }
        if keeps == Kept::Logged && self.keep == Keep::Acked {
            return Err(Refusal::AckedByItself { protocol: rule.name });
        }
        if needs_send_determinism && !workload.deterministic() {
            return Err(Refusal::NotSendDeterministic { protocol: rule.name, workload: workload.name() });
        }
        if !rule.properties.recovers() && !restarts_job && kills_any {
            return Err(Refusal::NothingKept { protocol: rule.name });
        }
        // Rules without records don't need a retention period.
        if self.keep == Keep::Acked && keeps != Kept::Nothing && kills_any {
            return Err(Refusal::Acked);
        }
        let is_in_checkpoint = |kill: &Kill| matches!(kill.at, KillPoint::Call(_, CallKind::Checkpoint));
        if let Some(kill) = self.kills.iter().copied().find(is_in_checkpoint)
            && self.checkpoint_every().is_none()
        {
            return Err(Refusal::NoCheckpoint { kill });
        }
        if !self.power_cuts.is_empty() && self.tier != Tier::NodeLocal {
            return Err(Refusal::NotOnDisk);
        }
        if self.keep_files.is_some() && self.tier != Tier::NodeLocal && self.checkpoint_every().is_none() {
            return Err(Refusal::NoFiles);
        }
        Ok(())
    }

    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }
}

/// Returns `true` if the protocol has a separate process that may be lost.
fn may_lose_initiator(rule: &Rule) -> bool {
    rule.properties.has_coordinator && !rule.properties.restarts_job
}

/// Reason why options don't go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("--bits requires --protocol {}", protocol::names(|rule| rule.takes(RuleOption::Bits)))]
    BitsOfAnother,
    #[error("--lose-initiator requires --protocol {}", protocol::names(may_lose_initiator))]
    NoInitiator,
    #[error("--clusters requires --protocol {}", protocol::names(|rule| rule.takes(RuleOption::Clusters)))]
    ClustersOfAnother,
    #[error("--clusters: there are only {ranks} ranks")]
    TooManyClusters { ranks: u32 },
    #[error("--keep acked: killed ranks couldn't be replayed; --protocol {protocol} decides itself what is kept")]
    AckedByItself { protocol: &'static str },
    #[error(
        "--protocol {protocol}: the sends of {workload} depend on its receive order; use another workload, such as cg or ring"
    )]
    NotSendDeterministic { protocol: &'static str, workload: &'static str },
    #[error(
        "--protocol {protocol} keeps nothing that a killed rank could be fed from; use another protocol, or --no-kills"
    )]
    NothingKept { protocol: &'static str },
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

/// Error for a kill during a recovery not caused by another kill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--kill {kill} would never happen: nothing else kills rank {victim}; add such a kill, as in --kill {victim}@7")]
pub(super) struct KillNeverHappens {
    kill: Kill,
    victim: u32,
}

/// Checks that every recovery awaited by a kill is caused by an earlier kill.
pub(super) fn check_kills(kills: &[Kill]) -> Result<(), KillNeverHappens> {
    let mut dying = BTreeSet::new();
    let mut waiting = kills.to_vec();
    loop {
        let before = waiting.len();
        waiting.retain(|kill| {
            let happens = match kill.at {
                KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::Event(_) | KillPoint::PowerCut(_) => true,
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
        KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::Event(_) | KillPoint::PowerCut(_) => None,
    });
    never.map_or(Ok(()), Err)
}

/// Error for an iteration not reached by a rank.
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

/// Checks that each rank reaches the iterations of its kills, and rank 0 those of the power cuts.
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
        KillPoint::Event(_) | KillPoint::PowerCut(_) | KillPoint::RepairOf(_) | KillPoint::RecoveryOf(_) => None,
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
        assert_eq!(check(&["--protocol", "unlogged"]), Err(Refusal::NothingKept { protocol: "unlogged" }));
        assert_eq!(check(&["--protocol", "unlogged", "--no-kills"]), Ok(()));
        for protocol in ["sender-based", "pessimistic", "user-level"] {
            assert_eq!(check(&["--protocol", protocol, "--keep", "acked"]), Err(Refusal::Acked));
        }
        for protocol in ["coordinated", "event-logging", "message-tagging"] {
            assert_eq!(check(&["--protocol", protocol, "--keep", "acked"]), Ok(()));
        }
    }

    #[test]
    fn every_rule_is_a_protocol_and_takes_its_options_only() {
        for rule in RULES {
            let line = ["--protocol", rule.name, "--bits", "piggybacked", "--clusters", "3", "--no-kills"];
            let command = DemoArguments::augment_args(clap::Command::new("demo"));
            let matches = command.get_matches_from(["demo"].iter().chain(&line));
            let arguments = DemoArguments::from_arg_matches(&matches).unwrap();
            let chosen = arguments.settings().rule;
            assert_eq!((chosen.name, chosen.options.bits), (rule.name, Bits::Piggybacked));
            assert_eq!(chosen.options.clusters, if rule.takes(RuleOption::Clusters) { 3 } else { 0 });
            let refused = arguments.check(arguments.workload().unwrap().as_ref()).unwrap_err();
            let expected = match rule.takes(RuleOption::Bits) {
                true => "--clusters requires --protocol send-deterministic",
                false => "--bits requires --protocol coordinated",
            };
            assert_eq!(refused.to_string(), expected, "{rule:?}");
        }
    }
}
