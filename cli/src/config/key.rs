//! Names and permitted values of the settings of `counterfoil run`.

use counterfoil::{Options, Rank};

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Mpi,
    MpiLibrary,
    Protocol,
    Logging,
    Keep,
    OnFull,
    Budget,
    Prefault,
    SpillCpu,
    DeadlockAfter,
    Tier,
    LogDir,
    Summary,
}

/// Permitted values of a setting.
enum ValueKind {
    Words(&'static [&'static str]),
    Budget,
    Bytes,
    Percent,
    Seconds,
    Text,
}

impl Key {
    pub(crate) const ALL: [Key; 13] = [
        Key::Mpi,
        Key::MpiLibrary,
        Key::Protocol,
        Key::Logging,
        Key::Keep,
        Key::OnFull,
        Key::Budget,
        Key::Prefault,
        Key::SpillCpu,
        Key::DeadlockAfter,
        Key::Tier,
        Key::LogDir,
        Key::Summary,
    ];

    /// Settings that the ranks get in their environment, and that a report shows.
    pub(crate) const OF_RANKS: [Key; 9] = [
        Key::Protocol,
        Key::Logging,
        Key::Keep,
        Key::OnFull,
        Key::Budget,
        Key::Prefault,
        Key::SpillCpu,
        Key::DeadlockAfter,
        Key::Tier,
    ];

    /// Name in the settings file; the option is the same with `--` before it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Key::Mpi => "mpi",
            Key::MpiLibrary => "mpi-library",
            Key::Protocol => "protocol",
            Key::Logging => "logging",
            Key::Keep => "keep",
            Key::OnFull => "on-full",
            Key::Budget => "budget",
            Key::Prefault => "prefault",
            Key::SpillCpu => "spill-cpu",
            Key::DeadlockAfter => "deadlock-after",
            Key::Tier => "tier",
            Key::LogDir => "log-dir",
            Key::Summary => "summary",
        }
    }

    /// Name of the environment variable.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Key::Mpi => "COUNTERFOIL_MPI",
            Key::MpiLibrary => "COUNTERFOIL_MPI_LIBRARY",
            Key::Protocol => "COUNTERFOIL_PROTOCOL",
            Key::Logging => "COUNTERFOIL_LOGGING",
            Key::Keep => "COUNTERFOIL_KEEP",
            Key::OnFull => "COUNTERFOIL_ON_FULL",
            Key::Budget => "COUNTERFOIL_BUDGET",
            Key::Prefault => "COUNTERFOIL_PREFAULT",
            Key::SpillCpu => "COUNTERFOIL_SPILL_CPU",
            Key::DeadlockAfter => "COUNTERFOIL_DEADLOCK_AFTER",
            Key::Tier => "COUNTERFOIL_TIER",
            Key::LogDir => "COUNTERFOIL_LOG_DIR",
            Key::Summary => "COUNTERFOIL_SUMMARY",
        }
    }

    /// One-line description for `counterfoil config`.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Key::Mpi => "MPI to run under; by default the mpirun in PATH",
            Key::MpiLibrary => "logging library; by default the one built for the MPI",
            Key::Protocol => "logging protocol",
            Key::Logging => "whether messages are logged",
            Key::Keep => "how long messages are kept",
            Key::OnFull => "effect of a full log on a send",
            Key::Budget => "memory of each rank's log",
            Key::Prefault => "part of that memory that is committed at the start",
            Key::SpillCpu => "processor time of the thread that spills, in percent of a core",
            Key::DeadlockAfter => "seconds without activity before a wait for log space is given up",
            Key::Tier => "storage of the log",
            Key::LogDir => "directory that keeps the logs after the run",
            Key::Summary => "file for the summary of the run",
        }
    }

    /// Returns `true` if the value is always a file or folder.
    pub(super) fn is_path(self) -> bool {
        matches!(self, Key::MpiLibrary | Key::LogDir | Key::Summary)
    }

    fn value_kind(self) -> ValueKind {
        match self {
            Key::Protocol => ValueKind::Words(&["sender-based"]),
            Key::Logging => ValueKind::Words(&["on", "off"]),
            Key::Keep => ValueKind::Words(&["acked", "checkpoint", "all"]),
            Key::OnFull => ValueKind::Words(&["block", "stop-logging", "fail"]),
            Key::Tier => ValueKind::Words(&["volatile", "process-crash-safe", "node-local"]),
            Key::Budget => ValueKind::Budget,
            Key::Prefault => ValueKind::Bytes,
            Key::SpillCpu => ValueKind::Percent,
            Key::DeadlockAfter => ValueKind::Seconds,
            Key::Mpi | Key::MpiLibrary | Key::LogDir | Key::Summary => ValueKind::Text,
        }
    }

    /// Returns the requirement that `value` violates, if any.
    pub(super) fn violation(self, value: &str) -> Option<String> {
        match self.value_kind() {
            ValueKind::Words(words) if words.contains(&value) => None,
            ValueKind::Words([only]) => Some(format!("only `{only}` is available over MPI")),
            ValueKind::Words(words) => Some(format!("must be one of {}", words.join(", "))),
            ValueKind::Budget => budget_violation(value),
            ValueKind::Bytes => bytes(value).is_none().then(|| BYTES.to_owned()),
            ValueKind::Percent if value.parse::<u8>().is_ok_and(|percent| (1..=100).contains(&percent)) => None,
            ValueKind::Percent => Some("must be a whole number of percent, from 1 to 100".to_owned()),
            ValueKind::Seconds if value.parse::<u32>().is_ok_and(|seconds| seconds > 0) => None,
            ValueKind::Seconds => Some("must be a whole number of seconds, at least 1".to_owned()),
            ValueKind::Text if value.is_empty() => Some("must not be empty".to_owned()),
            ValueKind::Text => None,
        }
    }
}

const BYTES: &str = "must be a whole number of bytes, optionally with the unit KiB, MiB or GiB";

/// Returns the reason why a rank's log can't have `value` as its memory limit, if any.
fn budget_violation(value: &str) -> Option<String> {
    let Some(bytes) = bytes(value) else {
        return Some(BYTES.to_owned());
    };
    // The limits depend only on options that a rank's log leaves at their defaults.
    let mut options = Options::new(Rank(0), 1);
    let least = options.prefault_bytes.max(options.chunk_bytes);
    if bytes < least {
        return Some(format!("a log needs at least {}KiB", least.div_ceil(1 << 10)));
    }
    options.memory_bytes_max = bytes;
    options.validate().err().map(|error| error.rule.into_owned())
}

/// Parses a size such as `64MiB`; returns bytes.
pub(crate) fn bytes(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}
