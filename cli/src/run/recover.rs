//! `counterfoil run --recover`: runs an unmodified MPI program, and replaces killed ranks.
//!
//! Where the MPI outlives failures, spare processes replace ranks while the others go on. Where it doesn't, and when no
//! spare is left, the job is started again under its name, and every rank goes on from the records.

mod deaths;
mod kills;
mod relay;
mod summary;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use counterfoil::{Tier, create_private_dir};
use counterfoil_mpi_discovery::Implementation;
use counterfoil_protocols::api::Rule;
use counterfoil_runtime::RankSettings;
use counterfoil_runtime::local::{JobDirectory, clean_named, default_checkpoint_root, default_shm_root};
use counterfoil_runtime::replay::can_replay;
use counterfoil_settings::recover::{JobDescription, RecoverSettings};
use rustix::fs::statvfs;
use tempfile::TempDir;

use super::launch::{Exit, Launch};
use super::library;
use super::mpi::Mpi;
use super::{RunArguments, claim_log_dir, find_program, remove_dead_jobs};
use crate::Failure;
use crate::mpirun::OUTLIVES_FAILURES;
use crate::protocol;
use crate::settings::{Settings, Source};
use kills::Kill;
use relay::Relay;
use summary::Summary;

/// Maximum number of job restarts.
const RESTARTS_MAX: u32 = 10;
/// Settings for jobs that only log.
const OF_LOGGING: [&str; 6] = ["logging", "keep", "on-full", "prefault", "spill-cpu", "deadlock-after"];
/// Outcomes get this fraction of the log memory, if above the default.
const BUDGET_PER_OUTCOMES: usize = 4;
/// Largest default budget of a rank.
const DEFAULT_BUDGET_MAX: u64 = 16 << 30;
/// Longest wait for the exits of killed processes, and time between two checks.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(5);
const EXIT_NAP: Duration = Duration::from_millis(20);
/// Maximum number of starts of a job whose processes die before becoming ranks.
const STARTS_MAX: u32 = 5;
/// Report directory, in the log directory.
pub(super) const REPORTS: &str = "reports";

/// Returns the free bytes of a directory's file system.
fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns the default budget of a rank whose log is in `dir`: all logs and outcomes together may take half of what is
/// free there, but a rank at least the runtime's default.
///
/// All messages are kept, and a program with a full log ends.
fn default_budget(dir: &Path, ranks: u32, defaults: &RankSettings) -> usize {
    let free = free_bytes(dir).unwrap_or(0);
    let of_rank = free / 2 / u64::from(ranks.max(1));
    let of_outcomes = of_rank / (BUDGET_PER_OUTCOMES as u64 + 1);
    let log_bytes = (of_rank - of_outcomes).min(DEFAULT_BUDGET_MAX) >> 20 << 20;
    usize::try_from(log_bytes).unwrap_or(usize::MAX).max(defaults.log_bytes_max)
}

/// Recovery options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recovery")]
pub(super) struct RecoverOptions {
    /// Replace ranks whose processes are killed; needs -n, and refuses --logging, --keep, --on-full, --prefault,
    /// --spill-cpu and --deadlock-after
    #[arg(long)]
    recover: bool,
    /// Number of spare processes, each able to replace one rank [default: 1 where the MPI outlives failures]
    #[arg(long, value_name = "N", requires = "recover")]
    spares: Option<u32>,
    /// Recovery rule
    #[arg(long, value_name = "RULE", requires = "recover", default_value = "sender-based", value_parser = protocol::parser(is_offered))]
    protocol: Rule,
    /// If a replacement sends other bytes than its predecessor: end the job, or warn and go on with the recorded ones
    #[arg(
        long,
        value_name = "stop|warn",
        requires = "recover",
        default_value = "stop",
        value_enum,
        hide_possible_values = true
    )]
    divergence: Divergence,
    /// The program takes checkpoints (`counterfoil_checkpoint`), in a library or in Python; those of an executable are
    /// noticed
    #[arg(long, requires = "recover")]
    checkpoints: bool,
    /// Directory shared by all hosts, for the processes' output and reports; needed for ranks on several hosts
    #[arg(long, value_name = "DIR", requires = "recover")]
    shared_dir: Option<PathBuf>,
    /// Kill rank R, to try the recovery: before its call number CALL, or at a TIME since the start, as 1.5s or 250ms.
    /// May be repeated; a rank's calls apply to its processes, one after the other
    #[arg(long = "kill", value_name = "R@CALL|R@TIME", requires = "recover")]
    kills: Vec<Kill>,
}

/// Reaction to a replacement sending other bytes than its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Divergence {
    Stop,
    Warn,
}

impl RecoverOptions {
    pub(super) fn is_wanted(&self) -> bool {
        self.recover
    }
}

/// Returns `true` for a rule under which a killed rank is replaced alone, without checkpoints and without a launcher.
fn is_offered(rule: &Rule) -> bool {
    let properties = &rule.properties;
    properties.recovers()
        && !properties.has_coordinator
        && !properties.rolls_back_survivors
        && !properties.needs_send_determinism
}

/// Returns `true` if the program may take checkpoints, which not every rule permits.
fn may_take_checkpoints(options: &RecoverOptions, program: &[OsString]) -> bool {
    let wants = options.checkpoints || program.first().is_some_and(|program| takes_checkpoints(program));
    if wants && !can_replay(&options.protocol) {
        eprintln!("counterfoil: under the {} rule the program's checkpoints are not taken", options.protocol.name);
    }
    wants && can_replay(&options.protocol)
}

/// Returns `true` if an executable calls `counterfoil_checkpoint`: its name is among its symbols.
fn takes_checkpoints(program: &OsStr) -> bool {
    const NAME: &[u8] = b"counterfoil_checkpoint";
    let bytes = find_program(program).and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    bytes.windows(NAME.len()).any(|window| window == NAME)
}

/// Returns a unique name for the job.
fn job_name() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("run-{}-{}", std::process::id(), since.as_micros() % 1_000_000_000)
}

pub(super) fn run(arguments: &RunArguments, settings: &Settings, mpi: &Mpi) -> Result<ExitCode, Failure> {
    let (run, options) = (&settings.run, &arguments.recover);
    let ranks = arguments.ranks.ok_or_else(|| Failure::usage("--recover needs -n: the number of ranks"))?;
    let given = |key: &&&str| matches!(settings.source(key), Source::Option(_));
    if let Some(key) = OF_LOGGING.iter().find(given) {
        return Err(Failure::usage(format!(
            "--{key}: a job that recovers keeps all its messages, and waits for no room"
        )));
    }
    if options.kills.iter().any(|kill| kill.rank() >= ranks) {
        return Err(Failure::usage(format!("--kill: the ranks are 0 to {}", ranks - 1)));
    }
    let outlives = mpi.has_ulfm() == Some(true);
    let spares = options.spares.unwrap_or(u32::from(outlives));
    if spares > 0 && !outlives {
        return Err(Failure::refused(format!(
            "--spares: {mpi} ends a job with its first dead process: without spares, the job is started again"
        )));
    }
    let library = library::find_recovery(run.mpi_library.as_deref(), mpi).map_err(Failure::failed)?;
    let is_default = |key| matches!(settings.source(key), Source::Default | Source::DefaultWith(_));
    let tier = if is_default("tier") { Tier::ProcessCrashSafe } else { run.tier };
    if run.log_dir.is_some() && tier != Tier::ProcessCrashSafe {
        return Err(Failure::refused(format!(
            "--log-dir: the {tier} tier keeps no logs: use --tier process-crash-safe"
        )));
    }
    if run.log_dir.is_some() && !can_replay(&options.protocol) {
        let rule = options.protocol.name;
        return Err(Failure::refused(format!("--log-dir: no rank can be replayed alone from logs of the {rule} rule")));
    }
    if run.log_dir.is_some() && options.shared_dir.is_some() {
        return Err(Failure::usage("--shared-dir: with --log-dir, the hosts share the directory of the logs"));
    }
    let roots = [default_shm_root(), default_checkpoint_root()];
    remove_dead_jobs(&roots);
    let job = JobDirectory::create(&roots[0], &roots[1]).map_err(Failure::failed)?;
    let (name, defaults) = (job_name(), RankSettings::new(ranks));
    let log_dir = run.log_dir.as_deref().map(|dir| claim_log_dir(dir, JobDescription::FILE));
    let log_dir = log_dir.transpose().map_err(Failure::refused)?;
    let shared_dir = options.shared_dir.as_deref().map(shared_dir).transpose()?;
    let log_bytes = match (is_default("budget"), tier) {
        (false, _) => run.budget,
        (true, Tier::ProcessCrashSafe) => default_budget(log_dir.as_deref().unwrap_or(&roots[0]), ranks, &defaults),
        (true, Tier::Volatile | Tier::NodeLocal) => defaults.log_bytes_max,
    };
    let mut recover = RecoverSettings {
        ranks,
        rule: options.protocol.name.to_owned(),
        tier,
        log_bytes,
        local_log_bytes: (log_bytes / BUDGET_PER_OUTCOMES).max(4 * defaults.local_log_bytes_max),
        disk_bytes: run.disk_budget,
        tolerates_divergence: options.divergence == Divergence::Warn,
        start: 0,
        job: Some(name.clone()),
        shm_root: log_dir.clone(),
        checkpoint_root: log_dir.clone(),
        report_dir: match (&log_dir, &shared_dir) {
            (Some(dir), _) => dir.join(REPORTS),
            (None, Some(dir)) => dir.path().to_owned(),
            (None, None) => job.paths().traces(),
        },
        kills: options.kills.iter().filter_map(|kill| kill.at_call()).collect(),
        keeps_logs: log_dir.is_some(),
        checkpoints: may_take_checkpoints(options, &arguments.program),
        replay: None,
    };
    if let Some(dir) = &log_dir {
        create_private_dir(&recover.report_dir).map_err(Failure::failed)?;
        // Before the run: this process may be killed before its end.
        let description = JobDescription {
            version: JobDescription::VERSION,
            settings: recover.clone(),
            program: arguments.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            mpi: mpi.to_string(),
        };
        description.write(dir).map_err(|error| Failure::failed(format!("--log-dir: {error}")))?;
    }
    let (begun, mut relay) = (Instant::now(), Relay::new(&recover, ranks + spares, !arguments.no_progress));
    let (job_runs, ended) = mpsc::channel();
    let (kills, of_kills, start) = (options.kills.clone(), recover.clone(), Arc::new(AtomicU32::new(0)));
    let of_killer = Arc::clone(&start);
    let killer = thread::spawn(move || kills::carry_out(&kills, &of_kills, &of_killer, begun, &ended));
    let exit = loop {
        let (variable, value) = recover.to_env();
        let launch = Launch {
            mpi,
            library: &library,
            variables: [(variable, OsString::from(value))].into_iter().chain(hash_seed()).collect(),
            processes: Some(ranks + spares),
            job: &job,
            has_own_output: true,
            options: if outlives { &OUTLIVES_FAILURES } else { &[] },
            mpirun_options: &arguments.mpirun,
            program: &arguments.program,
        };
        relay.begin_start(recover.start);
        let exit = launch.run(&mut relay).map_err(Failure::failed)?;
        if relay.is_done() || !can_go_on(&exit, mpi, &relay) || recover.start == RESTARTS_MAX {
            break exit;
        }
        if !relay.has_ranks() && recover.start + 1 == STARTS_MAX {
            eprintln!("counterfoil: the processes die before MPI_Init has ended: not started again");
            break exit;
        }
        recover.start += 1;
        start.store(recover.start, Ordering::Relaxed);
        eprintln!("counterfoil: the job has lost its processes: starting it again, to go on from what is on record");
    };
    drop(job_runs);
    let _ = killer.join();
    if let Some(dir) = relay.full_dir() {
        eprintln!(
            "counterfoil: {}: its file system has no room for what the ranks print, so the job was ended: make room \
             there, or have the files elsewhere with --shared-dir",
            dir.display()
        );
    }
    // A failed job's files are of no use, unless it keeps its logs: only this command knows its name.
    remove_files(&name, &roots);
    let summary = Summary::of(&recover, mpi, spares, &relay, begun.elapsed());
    let code = summary.exit_code(&exit);
    if !relay.has_ranks() {
        eprintln!("counterfoil: no process of the job has become a rank");
        let dir = std::env::temp_dir();
        if relay::is_almost_full(&dir) {
            eprintln!(
                "counterfoil: {}: its file system is full, and mpirun keeps files there: make room, or set TMPDIR",
                dir.display()
            );
        }
    }
    let others = summary.other_hosts();
    if code != 0 && log_dir.is_none() && !others.is_empty() {
        let hosts = others.join(", ");
        eprintln!(
            "counterfoil: the job may have left logs in the memory of {hosts}: `counterfoil clean --job {name}` there"
        );
    }
    if arguments.json {
        eprintln!("{}", summary.to_json(&exit, code));
    } else if relay.has_ranks() {
        eprintln!("{summary}");
        if let Some(dir) = &log_dir {
            eprintln!(
                "logs: {0}; `counterfoil replay --rank R {0} -- PROGRAM` runs rank R again, alone",
                dir.display()
            );
        }
    }
    if let Some(path) = &run.summary {
        let written = std::fs::write(path, format!("{}\n", summary.to_json(&exit, code)));
        written.map_err(|error| Failure::failed(format!("--summary: {}: {error}", path.display())))?;
    }
    Ok(ExitCode::from(code))
}

/// Makes the job's directory in one shared by all hosts.
fn shared_dir(dir: &Path) -> Result<TempDir, Failure> {
    let made =
        std::fs::canonicalize(dir).and_then(|dir| tempfile::Builder::new().prefix("counterfoil-").tempdir_in(dir));
    made.map_err(|error| Failure::refused(format!("--shared-dir: {}: {error}", dir.display())))
}

/// Removes a job's remaining files.
///
/// Killed processes may still be about to exit.
fn remove_files(job: &str, roots: &[PathBuf]) {
    let begun = Instant::now();
    loop {
        let is_removed = match clean_named(job, roots) {
            Ok(cleaned) => cleaned.live.is_empty() && cleaned.in_use.is_empty() && cleaned.refused.is_empty(),
            Err(_) => true,
        };
        if is_removed {
            return;
        }
        if begun.elapsed() >= EXIT_WAIT_MAX {
            eprintln!(
                "counterfoil: processes of the job still use its files: `counterfoil clean --job {job}` removes them"
            );
            return;
        }
        thread::sleep(EXIT_NAP);
    }
}

/// Returns mpirun's exit code after one of its processes was killed.
fn code_of_kill(mpi: &Mpi) -> u8 {
    match mpi.implementation {
        // Like a shell's.
        Implementation::OpenMpi => 137,
        Implementation::Mpich => 9,
    }
}

/// Returns `true` if the job has lost processes, and none of its ranks has ended it for good.
fn can_go_on(exit: &Exit, mpi: &Mpi, relay: &Relay) -> bool {
    // Where processes outlive others, a process's death is no error to mpirun, nor is the death of all; and in MPI_Init
    // an MPI that has lost a process may end the others with any code.
    let is_of_kills = exit.code == code_of_kill(mpi) || exit.code == 0;
    let has_lost_processes = (is_of_kills && relay.has_ranks()) || relay.has_killed_start();
    let is_lost = relay.take_lost() || has_lost_processes;
    is_lost && !exit.interrupted && relay.aborted().is_none() && relay.full_dir().is_none()
}

/// Returns the variable making Python hash strings alike in all processes, with its value, unless it is set.
///
/// A replacement then repeats the order of its predecessor's sets.
pub(crate) fn hash_seed() -> Option<(&'static str, OsString)> {
    const NAME: &str = "PYTHONHASHSEED";
    std::env::var_os(NAME).is_none().then(|| (NAME, OsString::from("0")))
}

/// Returns seconds with three digits.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_checkpoints_or_a_launcher_are_not_offered() {
        let offered = protocol::names(is_offered);
        assert!(offered.contains("sender-based") && offered.contains("pessimistic"), "{offered}");
        for other in ["coordinated", "send-deterministic", "unlogged"] {
            assert!(!offered.contains(other), "{offered}");
        }
    }
}
