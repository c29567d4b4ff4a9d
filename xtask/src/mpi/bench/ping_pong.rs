//! `cargo xtask bench mpi`: a ping-pong, or another pattern, with the real library, over shared memory and TCP, in both tiers.

// The program that measures has it.
#[path = "../../../../mpi/benches/src/bin/bench/pattern.rs"]
mod pattern;

use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::pattern::Pattern;
use super::{PingPong, account, two_ranks, with_library};
use crate::mpi::scratch::Scratch;
use crate::mpi::{Mpi, Toolkit, preload};
use crate::workspace::{TaskError, Workspace};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    ping_pong: PingPong,
    /// How messages go; repeatable [default: ping-pong]
    #[arg(long = "pattern")]
    patterns: Vec<Pattern>,
    /// Tags that are used one after the other [default: 4]
    #[arg(long)]
    tags: Option<u32>,
    /// Where the log is; repeatable [default: both]
    #[arg(long = "tier")]
    tiers: Vec<Tier>,
    /// How the bytes go; repeatable [default: both]
    #[arg(long = "transport")]
    transports: Vec<Transport>,
    /// Also what parts of it cost, in the volatile tier: the library loaded and off; messages counted; the receiver's side alone
    #[arg(long)]
    parts: bool,
}

/// Where the log is.
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

/// How the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    SharedMemory,
    Tcp,
}

impl Transport {
    fn is_called(self, name: &str) -> bool {
        match self {
            Transport::SharedMemory => name == "shared memory",
            Transport::Tcp => name == "tcp",
        }
    }
}

/// The rows of all jobs: `mpi, transport, tags, tier, run, pattern, size, way, native_ns, logged_ns, ratio, ratio_p25, ratio_p75, control,
/// control_p25, control_p75`.
pub(crate) fn rows(workspace: &Workspace, options: &Options) -> Result<Vec<Value>, TaskError> {
    let repeat = options.ping_pong.repeat;
    let toolkit = Toolkit::ready(workspace, &options.ping_pong.choice)?;
    let program = toolkit.program(workspace, "counterfoil-mpi-bench")?;
    let library = preload::build(workspace, &toolkit)?;
    let tiers: &[Tier] = if options.tiers.is_empty() { Tier::value_variants() } else { &options.tiers };
    let mut rows = Vec::new();
    for run in 1..=repeat {
        for (transport, layers) in toolkit.mpi.transports() {
            if !options.transports.is_empty() && !options.transports.iter().any(|asked| asked.is_called(transport)) {
                continue;
            }
            let mut job = |tier: Tier, ways: &[&str], is_off| {
                eprintln!("{}, {transport}, {}, run {run} of {}", toolkit.mpi, tier.name(), repeat);
                let job = Job {
                    mpi: &toolkit.mpi,
                    program: &program,
                    library: &library,
                    run,
                    transport,
                    layers,
                    tier,
                    ways,
                    is_off,
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
    layers: &'a str,
    tier: Tier,
    ways: &'a [&'a str],
    /// The library is loaded and does nothing.
    is_off: bool,
}

impl Job<'_> {
    fn rows(&self, options: &Options) -> Result<Vec<Value>, TaskError> {
        let scratch = Scratch::create("bench")?;
        let dir = scratch.path().to_string_lossy();
        let mut command = two_ranks(self.mpi, self.layers);
        let logging = if self.is_off { "off" } else { "on" };
        let variables = [
            ("COUNTERFOIL_LOGGING", logging),
            ("COUNTERFOIL_TIER", self.tier.name()),
            ("COUNTERFOIL_SHM_DIR", &dir),
            ("COUNTERFOIL_SUMMARY_DIR", &dir),
        ];
        with_library(&mut command, self.library, &variables);
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
        if self.is_off {
            fields.push(("way", json!("interposed")));
        }
        let rows = options.ping_pong.rows(&mut command, &fields)?;
        if !self.is_off && self.ways.contains(&"logged") {
            has_logged(scratch.path())?;
        }
        Ok(rows)
    }
}

/// Both ranks have logged to the end.
fn has_logged(folder: &Path) -> Result<(), TaskError> {
    for rank in 0..2 {
        let wrong = match account(folder, rank) {
            Ok(account) if account["messages_logged"].as_u64().unwrap_or(0) > 0 => continue,
            Ok(_) => "nothing was logged".to_owned(),
            Err(reason) => reason,
        };
        return Err(TaskError::Output { program: format!("rank {rank}"), reason: wrong });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_job_that_did_not_log_to_its_end_are_refused() {
        let folder = Scratch::create("accounts").unwrap();
        let say = |rank: u32, account: Value| {
            std::fs::write(folder.path().join(format!("rank-{rank}.json")), account.to_string()).unwrap();
        };
        let account = |logged: u64, stopped: bool| json!({ "messages_logged": logged, "gave_up": null, "logging_stopped": stopped });
        say(0, account(5, false));
        assert!(has_logged(folder.path()).is_err(), "rank 1 has said nothing");
        say(1, account(5, false));
        has_logged(folder.path()).unwrap();
        let gave_up = json!({ "messages_logged": 5, "gave_up": "no room", "logging_stopped": false });
        for wrong in [account(0, false), account(5, true), gave_up, json!({})] {
            say(1, wrong);
            assert!(has_logged(folder.path()).is_err());
        }
    }
}
