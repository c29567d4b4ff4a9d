//! `cargo xtask bench mpi`: latency with the logging library, over shared memory and TCP, in both tiers.

// Shared with the measured program.
#[path = "../../../../mpi/benches/src/bin/bench/pattern.rs"]
mod pattern;

use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::pattern::Pattern;
use super::{PingPongOptions, mpirun_two_ranks, preload_library, read_summary};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Mpi, Toolkit, preload};
use crate::workspace::{TaskError, Workspace};

/// Options of `cargo xtask bench mpi`.
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
    /// Durability tier of the log; repeatable [default: both]
    #[arg(long = "tier")]
    tiers: Vec<Tier>,
    /// Transport between the ranks; repeatable [default: both]
    #[arg(long = "transport")]
    transports: Vec<Transport>,
    /// Also measure parts of the library in the volatile tier: interposition without logging, counting without copies, and the
    /// receiver alone
    #[arg(long)]
    parts: bool,
}

/// Durability tier of the log.
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

/// Returns the rows of all jobs: `mpi, transport, tags, tier, run, pattern, size, way, native_ns, logged_ns, ratio, ratio_p25,
/// ratio_p75, control, control_p25, control_p75`.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let repeat = options.ping_pong.repeat;
    let toolkit = Toolkit::find_or_install(workspace, &options.ping_pong.choice)?;
    let program = toolkit.build_program(workspace, "counterfoil-mpi-bench")?;
    let library = preload::build(workspace, &toolkit)?;
    let tiers: &[Tier] = if options.tiers.is_empty() { Tier::value_variants() } else { &options.tiers };
    let mut rows = Vec::new();
    for run in 1..=repeat {
        for (transport, btl) in toolkit.mpi.transports() {
            if !options.transports.is_empty() && !options.transports.iter().any(|selected| selected.has_name(transport))
            {
                continue;
            }
            let mut job = |tier: Tier, ways: &[&str], is_logging_off| {
                eprintln!("{}, {transport}, {}, run {run} of {repeat}", toolkit.mpi, tier.name());
                let job = Job {
                    mpi: &toolkit.mpi,
                    program: &program,
                    library: &library,
                    run,
                    transport,
                    btl,
                    tier,
                    ways,
                    is_logging_off,
                };
                rows.extend(job.rows(options)?);
                Ok::<_, TaskError>(())
            };
            for tier in tiers {
                job(*tier, &["logged"], false)?;
            }
            if options.parts {
                job(Tier::Volatile, &["logged"], true)?;
                job(Tier::Volatile, &["counted", "received"], false)?;
            }
        }
    }
    Ok(rows)
}

/// One job of two ranks.
struct Job<'a> {
    mpi: &'a Mpi,
    program: &'a Path,
    library: &'a Path,
    run: u32,
    transport: &'a str,
    btl: &'a str,
    tier: Tier,
    ways: &'a [&'a str],
    /// The library is loaded, but logging is off.
    is_logging_off: bool,
}

impl Job<'_> {
    fn rows(&self, options: &Options) -> Result<Vec<Value>, TaskError> {
        let scratch = Scratch::create("bench")?;
        let dir = scratch.path().to_string_lossy();
        let mut command = mpirun_two_ranks(self.mpi, self.btl);
        let logging = if self.is_logging_off { "off" } else { "on" };
        let variables = [
            ("COUNTERFOIL_LOGGING", logging),
            ("COUNTERFOIL_TIER", self.tier.name()),
            ("COUNTERFOIL_SHM_DIR", &dir),
            ("COUNTERFOIL_SUMMARY_DIR", &dir),
        ];
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
        let mut fields = vec![("run", json!(self.run)), ("tier", json!(self.tier.name()))];
        if self.is_logging_off {
            fields.push(("way", json!("interposed")));
        }
        let rows = options.ping_pong.rows(&mut command, &fields)?;
        if !self.is_logging_off && self.ways.contains(&"logged") {
            check_logged(scratch.path())?;
        }
        Ok(rows)
    }
}

/// Checks that both ranks have logged messages until the end of the program.
fn check_logged(folder: &Path) -> Result<(), TaskError> {
    for rank in 0..2 {
        let reason = match read_summary(folder, rank) {
            Ok(summary) if summary["messages_logged"].as_u64().unwrap_or(0) > 0 => continue,
            Ok(_) => "no message was logged".to_owned(),
            Err(reason) => reason,
        };
        return Err(TaskError::Output { program: format!("rank {rank}"), reason });
    }
    Ok(())
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
        let summary = |logged: u64, stopped: bool| json!({ "messages_logged": logged, "gave_up": null, "logging_stopped": stopped });
        write(0, summary(5, false));
        assert!(check_logged(folder.path()).is_err(), "rank 1 has no summary");
        write(1, summary(5, false));
        check_logged(folder.path()).unwrap();
        let gave_up = json!({ "messages_logged": 5, "gave_up": "no room", "logging_stopped": false });
        for wrong in [summary(0, false), summary(5, true), gave_up, json!({})] {
            write(1, wrong);
            assert!(check_logged(folder.path()).is_err());
        }
    }
}
