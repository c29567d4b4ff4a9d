//! `cargo xtask bench mpi`: latency with the logging library, over shared memory and TCP, in both tiers, by the set of
//! kept messages.

// Shared with the measured program.
#[path = "../../../../mpi/benches/src/bin/bench/pattern.rs"]
mod pattern;

use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::pattern::Pattern;
use super::floor::{self, Floor};
use super::{mpirun_two_ranks, preload_library, read_summary};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Choice, Mpi, Toolkit, preload};
use crate::workspace::{TaskError, Workspace, command_line, json_output};

/// Options for `cargo xtask bench mpi`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    ping_pong: PingPongOptions,
    /// Message pattern; repeatable [default: ping-pong]
    #[arg(long = "pattern")]
    patterns: Vec<Pattern>,
    /// Number of message tags, used in rotation [default: 4]
    #[arg(long)]
    tags: Option<u32>,
    /// Durability tier for the log; repeatable [default: both]
    #[arg(long = "tier")]
    tiers: Vec<Tier>,
    /// Records kept by the log; repeatable [default: acked]
    #[arg(long = "keep")]
    keeps: Vec<Keep>,
    /// Transport between the ranks; repeatable [default: both]
    #[arg(long = "transport")]
    transports: Vec<Transport>,
    /// Also measure parts of the library in the volatile tier: interposition without logging, counting without copies,
    /// and the receiver alone
    #[arg(long)]
    parts: bool,
}

/// Options for each job.
#[derive(Clone, Debug, Args)]
struct PingPongOptions {
    #[command(flatten)]
    choice: Choice,
    /// Number of runs of each job, which show the spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Batch pairs per figure
    #[arg(long, value_name = "ROUNDS")]
    rounds: Option<u32>,
    /// Message size in bytes; repeatable [default: 8 B to 1 MiB, and 4 MiB with the library]
    #[arg(long = "size", value_name = "BYTES")]
    sizes: Vec<u32>,
}

impl PingPongOptions {
    /// Runs the command and returns its rows, each with `fields` and the fields common to the report.
    fn rows(&self, command: &mut Command, fields: &[(&str, Value)]) -> Result<Vec<Value>, TaskError> {
        command.arg("--json");
        for size in &self.sizes {
            command.args(["--size", &size.to_string()]);
        }
        if let Some(rounds) = self.rounds {
            command.args(["--rounds", &rounds.to_string()]);
        }
        let report = json_output(command)?;
        rows_with_fields(&report, fields).ok_or_else(|| TaskError::Output {
            program: command_line(command),
            reason: "the report has no rows".to_owned(),
        })
    }
}

/// Returns a report's rows, each with `fields` and the fields common to the report.
fn rows_with_fields(report: &Value, fields: &[(&str, Value)]) -> Option<Vec<Value>> {
    let mut rows = report["rows"].as_array()?.clone();
    for row in &mut rows {
        for name in ["mpi", "tags", "transport"] {
            row[name] = report[name].clone();
        }
        for (name, value) in fields {
            row[*name] = value.clone();
        }
    }
    Some(rows)
}

/// Log durability tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    Volatile,
    ProcessCrashSafe,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Tier::Volatile => "volatile",
            Tier::ProcessCrashSafe => "process-crash-safe",
        }
    }
}

/// Transport between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    SharedMemory,
    Tcp,
}

impl Transport {
    fn has_name(self, name: &str) -> bool {
        match self {
            Transport::SharedMemory => name == "shared memory",
            Transport::Tcp => name == "tcp",
        }
    }
}

/// Set of records kept by a job's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keep {
    /// Unacknowledged records
    Acked,
    /// Everything, in memory prefaulted before the measurement
    All,
    /// Everything, in memory with 16 MiB prefaulted, the default
    AllAhead,
    /// Everything: 64 MiB in memory, the rest on disk
    AllSpilled,
    /// Everything, by a library that only copies into prefaulted memory: the floor of `all`
    Floor,
}

impl Keep {
    fn name(self) -> &'static str {
        match self {
            Keep::Acked => "acked",
            Keep::All => "all",
            Keep::AllAhead => "all, ahead",
            Keep::AllSpilled => "all, spilled",
            Keep::Floor => "floor",
        }
    }

    /// Returns `true` if each message takes new memory, limiting a job to a single size.
    fn takes_new_memory(self) -> bool {
        matches!(self, Keep::All | Keep::AllAhead | Keep::Floor)
    }

    /// Returns the subset of `tiers` in which it is measured.
    fn tiers(self, tiers: &[Tier]) -> &[Tier] {
        // Spilled records are in memory that is lost with the process, whatever the tier.
        if self == Keep::AllSpilled { &tiers[..1] } else { tiers }
    }
}

/// Default message sizes in a job that takes new memory.
const SIZES: [u32; 10] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Default round count for the measured program.
const ROUNDS: u32 = 101;

/// Returns the bytes logged by a rank in a job, with a margin: a batch of a millisecond has 5 MiB or 8 messages at
/// most, and a record headers and a rest of its chunk.
fn log_bytes(size: u32, rounds: u32) -> u64 {
    let batch = u64::from(size).saturating_mul(8).max(8 << 20);
    batch * u64::from(rounds + 3) * 3 / 2
}

/// Returns the rows of all jobs: `mpi`, `transport`, `tags`, `tier`, `keep`, `run`, `pattern`, `size`, `way`,
/// `native_ns`, `logged_ns`, `ratio`, `ratio_p25`, `ratio_p75`, `ratio_of_sums`, `control`, `control_p25`,
/// `control_p75`.
///
/// A log that keeps everything adds both ranks' `late_commit_bytes` and `spilled_bytes`. A spilling log also adds
/// `disk_ns`, the time to write a message of the size at the disk's rate measured after the job.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let repeat = options.ping_pong.repeat;
    let toolkit = Toolkit::find_or_install(workspace, &options.ping_pong.choice)?;
    let program = toolkit.build_program(workspace, "counterfoil-mpi-benches", "counterfoil-mpi-bench")?;
    let library = preload::build(workspace, &toolkit)?;
    let tiers: &[Tier] = if options.tiers.is_empty() { Tier::value_variants() } else { &options.tiers };
    let keeps: &[Keep] = if options.keeps.is_empty() { &[Keep::Acked] } else { &options.keeps };
    let scratch = Scratch::on_disk(workspace.target(), "bench")?;
    let floor = floor::build(workspace, &toolkit, scratch.path(), Floor::Log)?;
    let sizes = if options.ping_pong.sizes.is_empty() { &SIZES[..] } else { &options.ping_pong.sizes };
    let mut rows = Vec::new();
    for run in 1..=repeat {
        for (transport, btl) in toolkit.mpi.transports() {
            if !options.transports.is_empty() && !options.transports.iter().any(|selected| selected.has_name(transport))
            {
                continue;
            }
            let mut job = |keep: Keep, tier: Tier, ways: &[&str], is_logging_off, sizes: &[u32]| {
                eprintln!("{}, {transport}, {}, {}, run {run} of {repeat}", toolkit.mpi, tier.name(), keep.name());
                let job = Job {
                    mpi: &toolkit.mpi,
                    program: &program,
                    library: if keep == Keep::Floor { &floor } else { &library },
                    spill: scratch.path(),
                    run,
                    transport,
                    btl,
                    tier,
                    keep,
                    ways,
                    is_logging_off,
                    sizes,
                };
                rows.extend(job.rows(options)?);
                Ok::<_, TaskError>(())
            };
            // One size after the other, so that a size's rows lie close together in time.
            for size in sizes {
                for keep in keeps.iter().filter(|keep| keep.takes_new_memory()) {
                    for tier in keep.tiers(tiers) {
                        job(*keep, *tier, &["logged"], false, std::slice::from_ref(size))?;
                    }
                }
            }
            for keep in keeps.iter().filter(|keep| !keep.takes_new_memory()) {
                for tier in keep.tiers(tiers) {
                    job(*keep, *tier, &["logged"], false, &options.ping_pong.sizes)?;
                }
            }
            if options.parts {
                job(Keep::Acked, Tier::Volatile, &["logged"], true, &options.ping_pong.sizes)?;
                job(Keep::Acked, Tier::Volatile, &["counted", "received"], false, &options.ping_pong.sizes)?;
            }
        }
    }
    Ok(rows)
}

/// One two-rank job.
struct Job<'a> {
    mpi: &'a Mpi,
    program: &'a Path,
    library: &'a Path,
    /// Folder on disk for spilled records.
    spill: &'a Path,
    run: u32,
    transport: &'a str,
    btl: &'a str,
    tier: Tier,
    keep: Keep,
    ways: &'a [&'a str],
    /// The library is loaded, but logging is off.
    is_logging_off: bool,
    sizes: &'a [u32],
}

impl Job<'_> {
    fn rows(&self, options: &Options) -> Result<Vec<Value>, TaskError> {
        let (scratch, disk) = (Scratch::create("bench")?, Scratch::on_disk(self.spill, "spill")?);
        let dir = scratch.path().to_string_lossy().into_owned();
        let mut command = mpirun_two_ranks(self.mpi, self.btl);
        let rounds = options.ping_pong.rounds.unwrap_or(ROUNDS);
        let bytes = self.sizes.iter().map(|size| log_bytes(*size, rounds)).max().unwrap_or(0);
        let mut variables = vec![("COUNTERFOIL_SUMMARY_DIR", dir.clone())];
        let mut set = |name, value: &str| variables.push((name, value.to_owned()));
        set("COUNTERFOIL_LOGGING", if self.is_logging_off { "off" } else { "on" });
        set("COUNTERFOIL_TIER", self.tier.name());
        set("COUNTERFOIL_SHM_DIR", &dir);
        match self.keep {
            Keep::Acked => {}
            Keep::All | Keep::AllAhead => {
                set("COUNTERFOIL_KEEP", "all");
                set("COUNTERFOIL_BUDGET", &bytes.to_string());
                if self.keep == Keep::All {
                    set("COUNTERFOIL_PREFAULT", &bytes.to_string());
                }
            }
            Keep::AllSpilled => {
                set("COUNTERFOIL_KEEP", "all");
                set("COUNTERFOIL_TIER", "node-local");
                set("COUNTERFOIL_SPILL_DIR", &disk.path().to_string_lossy());
            }
            Keep::Floor => {
                set("FLOOR_BYTES", &bytes.to_string());
                if self.tier == Tier::ProcessCrashSafe {
                    set("FLOOR_DIR", &dir);
                }
            }
        }
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
        preload_library(&mut command, self.library, &variables);
        command.arg(self.program).args(["--transport", self.transport]);
        for way in self.ways {
            command.args(["--way", way]);
        }
        for pattern in &options.patterns {
            command.args(["--pattern", pattern.name()]);
        }
        if let Some(tags) = options.tags {
            command.args(["--tags", &tags.to_string()]);
        }
        let tier = if self.keep == Keep::AllSpilled { "node-local" } else { self.tier.name() };
        let mut fields = vec![("run", json!(self.run)), ("tier", json!(tier)), ("keep", json!(self.keep.name()))];
        if self.is_logging_off {
            fields.push(("way", json!("interposed")));
        }
        let ping_pong = PingPongOptions { sizes: self.sizes.to_vec(), ..options.ping_pong.clone() };
        let mut rows = ping_pong.rows(&mut command, &fields)?;
        if !self.is_logging_off && self.keep != Keep::Floor && self.ways.contains(&"logged") {
            let figures = check_logged(scratch.path())?;
            if self.keep != Keep::Acked {
                for row in &mut rows {
                    for (name, bytes) in &figures {
                        row[*name] = json!(bytes);
                    }
                }
            }
        }
        if self.keep == Keep::AllSpilled {
            let disk_bytes_per_s = floor::disk_bytes_per_s(disk.path())?;
            for row in &mut rows {
                row["disk_ns"] = json!(row["size"].as_f64().map(|bytes| bytes * 1e9 / disk_bytes_per_s));
            }
        }
        Ok(rows)
    }
}

/// Sums over a job's ranks.
const FIGURES: [&str; 2] = ["late_commit_bytes", "spilled_bytes"];

/// Checks that both ranks logged messages until the program ended.
///
/// Returns their log figures.
fn check_logged(folder: &Path) -> Result<[(&'static str, u64); 2], TaskError> {
    let mut figures = FIGURES.map(|name| (name, 0));
    for rank in 0..2 {
        let reason = match read_summary(folder, rank) {
            Ok(summary) if summary["messages_logged"].as_u64().unwrap_or(0) > 0 => {
                for (name, sum) in &mut figures {
                    *sum += summary[*name].as_u64().unwrap_or(0);
                }
                continue;
            }
            Ok(_) => "no message was logged".to_owned(),
            Err(reason) => reason,
        };
        return Err(TaskError::Output { program: format!("rank {rank}"), reason });
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_job_that_stopped_logging_are_refused() {
        let folder = Scratch::create("summaries").unwrap();
        let write = |rank: u32, summary: Value| {
            std::fs::write(folder.path().join(format!("rank-{rank}.json")), summary.to_string()).unwrap();
        };
        let summary = |logged: u64, stopped: bool| json!({ "messages_logged": logged, "gave_up": null, "logging_stopped": stopped, "spilled_bytes": 7 });
        write(0, summary(5, false));
        assert!(check_logged(folder.path()).is_err(), "rank 1 has no summary");
        write(1, summary(5, false));
        assert_eq!(check_logged(folder.path()).unwrap(), [("late_commit_bytes", 0), ("spilled_bytes", 14)]);
        let gave_up = json!({ "messages_logged": 5, "gave_up": "no room", "logging_stopped": false });
        for wrong in [summary(0, false), summary(5, true), gave_up, json!({})] {
            write(1, wrong);
            assert!(check_logged(folder.path()).is_err());
        }
    }
}
