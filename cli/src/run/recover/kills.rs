//! Kills planned by the user, to try the recovery.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use counterfoil_settings::host_name;
use counterfoil_settings::recover::{Begun, KillAtCall, RecoverSettings, Started, read_report};
use rustix::process::{Pid, Signal, kill_process};

/// A planned kill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kill {
    /// A process of the rank kills itself before a call.
    AtCall(KillAtCall),
    /// The rank's current process is killed from outside, at a time since the job's start.
    AtTime { rank: u32, after: Duration },
}

impl Kill {
    /// Returns the kill at a call.
    pub(super) fn at_call(self) -> Option<KillAtCall> {
        if let Kill::AtCall(kill) = self { Some(kill) } else { None }
    }

    pub(super) fn rank(self) -> u32 {
        match self {
            Kill::AtCall(kill) => kill.rank,
            Kill::AtTime { rank, .. } => rank,
        }
    }
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Kill, String> {
        let wrong = || {
            "must be R@CALL, a rank and the number of a call from 1, such as 2@500, or R@TIME, such as 2@1.5s or 2@250ms"
                .to_owned()
        };
        let (rank, when) = text.split_once('@').ok_or_else(wrong)?;
        let rank = rank.parse().map_err(|_| wrong())?;
        if let Ok(call) = when.parse() {
            return if call == 0 { Err(wrong()) } else { Ok(Kill::AtCall(KillAtCall { rank, call })) };
        }
        let (number, seconds) = match (when.strip_suffix("ms"), when.strip_suffix('s')) {
            (Some(number), _) => (number, 1e-3),
            (None, Some(number)) => (number, 1.0),
            (None, None) => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let after = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        Ok(Kill::AtTime { rank, after })
    }
}

/// Time between two checks for a process not started yet.
const POLL: Duration = Duration::from_millis(5);

/// Kills ranks at their times since `begun`, or as soon as they have a process.
///
/// Returns once none is left, or `ended` has no sender. `start` is the number of the job's current start.
pub(super) fn carry_out(
    kills: &[Kill],
    settings: &RecoverSettings,
    start: &AtomicU32,
    begun: Instant,
    ended: &Receiver<()>,
) {
    let timed = kills.iter().filter_map(|kill| match kill {
        Kill::AtTime { rank, after } => Some((*after, *rank)),
        Kill::AtCall(_) => None,
    });
    let mut timed: Vec<(Duration, u32)> = timed.collect();
    timed.sort_unstable();
    let mut settings = settings.clone();
    for (after, rank) in timed {
        let mut wait = (begun + after).saturating_duration_since(Instant::now());
        let (host, pid) = loop {
            if ended.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            settings.start = start.load(Ordering::Relaxed);
            if let Some(process) = process_of(rank, &settings) {
                break process;
            }
            wait = POLL;
        };
        if host != host_name() {
            eprintln!("counterfoil: --kill: rank {rank} is on host {host}, where this command can't kill it");
        } else if is_of_job(pid, &settings) {
            // An already ended process needs no kill.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns a rank's newest process in this start of the job, and its host: before any has become the rank, the one that
/// will.
fn process_of(rank: u32, settings: &RecoverSettings) -> Option<(String, Pid)> {
    let mut processes = Begun::of_rank(&settings.report_dir, rank);
    processes.retain(|begun| begun.output.is_some_and(|output| settings.is_of_this_start(output)));
    let newest = processes.into_iter().max_by_key(|begun| begun.incarnation).map(|begun| (begun.host, begun.pid));
    let first = || {
        let started: Started = read_report(&settings.report_dir.join(Started::file(settings.output_of(rank))))?;
        Some((started.host, started.pid))
    };
    let (host, pid) = newest.or_else(first)?;
    Some((host, Pid::from_raw(i32::try_from(pid).ok()?)?))
}

/// Returns `true` for a process of the job: another process may have an ended one's id.
fn is_of_job(pid: Pid, settings: &RecoverSettings) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let reports = settings.report_dir.as_os_str().as_bytes();
    environment.windows(reports.len().max(1)).any(|part| part == reports)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kill_is_a_rank_and_a_call_or_a_time() {
        let at_time = |rank, ms| Ok(Kill::AtTime { rank, after: Duration::from_millis(ms) });
        assert_eq!("2@500".parse(), Ok(Kill::AtCall(KillAtCall { rank: 2, call: 500 })));
        assert_eq!("0@1.5s".parse(), at_time(0, 1500));
        assert_eq!("7@250ms".parse(), at_time(7, 250));
        for wrong in ["", "2", "@5", "2@", "2@0", "a@1", "1@-1", "1@2@3", "1@s", "1@-1s", "1@2m", "1@1e99s"] {
            assert!(wrong.parse::<Kill>().unwrap_err().contains("R@CALL"), "{wrong}");
        }
    }

    #[test]
    fn the_newest_process_of_a_rank_is_killed() {
        let reports = tempfile::tempdir().unwrap();
        let settings = r#"{ "ranks": 2, "rule": "", "tier": "volatile", "log_bytes": 0, "local_log_bytes": 0,
            "disk_bytes": 0, "tolerates_divergence": false, "start": 0, "kills": [], "keeps_logs": false, "report_dir": "" }"#;
        let mut settings: RecoverSettings = serde_json::from_str(settings).unwrap();
        settings.report_dir = reports.path().to_owned();
        let newest = |settings: &RecoverSettings| process_of(1, settings).map(|(_, pid)| pid.as_raw_nonzero().get());
        assert_eq!(newest(&settings), None);
        let write = |name: String, report: serde_json::Value| {
            fs::write(reports.path().join(name), report.to_string()).unwrap();
        };
        write(Started::file(1), json!({ "host": "a", "pid": 71, "has_called_init": false }));
        assert_eq!(newest(&settings), Some(71));
        for (incarnation, pid) in [(0, 71), (2, 80), (1, 75)] {
            let begun =
                json!({ "rank": 1, "incarnation": incarnation, "host": "a", "pid": pid, "at_ms": 0, "output": 1 });
            write(Begun::file(1, incarnation), begun);
        }
        assert_eq!(newest(&settings), Some(80));
        settings.start = 1;
        assert_eq!(newest(&settings), None, "those of an earlier start are dead");
        write(Started::file(settings.output_of(1)), json!({ "host": "a", "pid": 90, "has_called_init": true }));
        assert_eq!(newest(&settings), Some(90));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_of_job(Pid::from_raw(own).unwrap(), &settings));
    }
}
