//! What can be set for a run over MPI: names and limits.

use counterfoil::{Options, Rank};

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Mpi,
    MpiLibrary,
    Protocol,
    Logging,
    Keep,
    OnFull,
    Budget,
    Standstill,
    Tier,
    LogDir,
    Summary,
}

/// What a value must be.
enum Rule {
    Words(&'static [&'static str]),
    Bytes,
    Seconds,
    Anything,
}

impl Key {
    pub(crate) const ALL: [Key; 11] = [
        Key::Mpi,
        Key::MpiLibrary,
        Key::Protocol,
        Key::Logging,
        Key::Keep,
        Key::OnFull,
        Key::Budget,
        Key::Standstill,
        Key::Tier,
        Key::LogDir,
        Key::Summary,
    ];

    /// As in the file; the option is the same with `--` before it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Key::Mpi => "mpi",
            Key::MpiLibrary => "mpi-library",
            Key::Protocol => "protocol",
            Key::Logging => "logging",
            Key::Keep => "keep",
            Key::OnFull => "on-full",
            Key::Budget => "budget",
            Key::Standstill => "standstill",
            Key::Tier => "tier",
            Key::LogDir => "log-dir",
            Key::Summary => "summary",
        }
    }

    /// The environment variable.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Key::Mpi => "COUNTERFOIL_MPI",
            Key::MpiLibrary => "COUNTERFOIL_MPI_LIBRARY",
            Key::Protocol => "COUNTERFOIL_PROTOCOL",
            Key::Logging => "COUNTERFOIL_LOGGING",
            Key::Keep => "COUNTERFOIL_KEEP",
            Key::OnFull => "COUNTERFOIL_ON_FULL",
            Key::Budget => "COUNTERFOIL_BUDGET",
            Key::Standstill => "COUNTERFOIL_STANDSTILL",
            Key::Tier => "COUNTERFOIL_TIER",
            Key::LogDir => "COUNTERFOIL_LOG_DIR",
            Key::Summary => "COUNTERFOIL_SUMMARY",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Key::Mpi => "which MPI; without: the mpirun in PATH",
            Key::MpiLibrary => "the library that logs; without: the one built for that MPI",
            Key::Protocol => "the rule by which is logged",
            Key::Logging => "whether anything is logged",
            Key::Keep => "how long a message is kept",
            Key::OnFull => "what a send does where the log is full",
            Key::Budget => "memory of each rank's log",
            Key::Standstill => "seconds in which nothing happens to any rank before a wait for room is given up",
            Key::Tier => "where the log is",
            Key::LogDir => "where the logs are afterwards",
            Key::Summary => "a file for what the ranks did",
        }
    }

    /// Whether a value names a file or folder, and nothing else.
    pub(super) fn is_path(self) -> bool {
        matches!(self, Key::MpiLibrary | Key::LogDir | Key::Summary)
    }

    fn rule(self) -> Rule {
        match self {
            Key::Protocol => Rule::Words(&["sender-based"]),
            Key::Logging => Rule::Words(&["on", "off"]),
            Key::Keep => Rule::Words(&["acked", "checkpoint", "all"]),
            Key::OnFull => Rule::Words(&["block", "stop-logging", "fail"]),
            Key::Tier => Rule::Words(&["volatile", "process-crash-safe", "node-local"]),
            Key::Budget => Rule::Bytes,
            Key::Standstill => Rule::Seconds,
            Key::Mpi | Key::MpiLibrary | Key::LogDir | Key::Summary => Rule::Anything,
        }
    }

    /// What a value would have to be, where it isn't.
    pub(super) fn refuse(self, value: &str) -> Option<String> {
        match self.rule() {
            Rule::Words(words) if words.contains(&value) => None,
            Rule::Words([only]) => Some(format!("over MPI there is only `{only}`")),
            Rule::Words(words) => Some(format!("must be one of {}", words.join(", "))),
            Rule::Bytes => refuse_budget(value),
            Rule::Seconds if value.parse::<u32>().is_ok_and(|seconds| seconds > 0) => None,
            Rule::Seconds => Some("must be a whole number of seconds, at least 1".to_owned()),
            Rule::Anything if value.is_empty() => Some("must not be empty".to_owned()),
            Rule::Anything => None,
        }
    }
}

/// Whether a log of a rank can have so much memory.
fn refuse_budget(value: &str) -> Option<String> {
    let Some(bytes) = bytes(value) else {
        return Some(
            "must be a whole number of bytes, or one with KiB, MiB or GiB behind, and no other unit".to_owned(),
        );
    };
    // In everything that counts here, a rank's log has the defaults.
    let mut options = Options::new(Rank(0), 1);
    let least = options.prefault_bytes.max(options.chunk_bytes);
    if bytes < least {
        return Some(format!("a log takes at least {}KiB", least.div_ceil(1 << 10)));
    }
    options.memory_bytes_max = bytes;
    options.validate().err().map(|error| error.rule.into_owned())
}

/// `64MiB` as a number.
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
