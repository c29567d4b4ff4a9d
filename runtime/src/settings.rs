//! Settings that all ranks of a job share.

use counterfoil_protocols::api::Kept;

use crate::oracle::Repeats;
use crate::rule::Rule;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Location of the log, which decides what survives a `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogTier {
    /// In the process's own memory: a killed rank's log is lost, and rebuilt by its re-execution.
    Volatile,
    /// In a private shared-memory file: the replacement takes over a killed rank's log.
    #[default]
    ProcessCrashSafe,
    /// In the process's own memory, with spilled records and checkpoints on disk: all ranks may lose their memory at
    /// once and continue from their checkpoints.
    NodeLocal,
}

/// Retention of sent messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogKeep {
    /// Until they are acknowledged. A killed rank can then not be replayed; for measurements only.
    Acked,
    /// Until a durable checkpoint of the receiver covers them.
    #[default]
    Checkpoint,
    /// For ever.
    All,
}

/// Reaction to a full log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogOnFull {
    /// The sender waits, for at most [`RankSettings::full_wait_max`].
    #[default]
    Block,
    /// The job continues without logging, after one warning: from there on it cannot be recovered.
    StopLogging,
    /// The send fails.
    Fail,
}

/// Limits and options of a job that all its ranks share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSettings {
    /// Number of ranks.
    pub ranks: u32,
    /// Rule of recovery.
    pub rule: Rule,
    /// Location of the log.
    pub tier: LogTier,
    /// Retention of sent messages.
    pub keep: LogKeep,
    /// Reaction to a full log.
    pub on_full: LogOnFull,
    /// Memory for the log of one rank, in bytes.
    pub log_bytes_max: usize,
    /// Disk space for the checkpoints of one rank and, in the node-local tier, for spilled records, in bytes.
    pub disk_bytes_max: u64,
    /// Bytes of a block on disk.
    pub disk_block_bytes: usize,
    /// Memory for one rank's recorded outcomes and receive order, in bytes; an entry takes about 60.
    pub local_log_bytes_max: usize,
    /// Longest wait for room in the log.
    pub full_wait_max: Duration,
    /// Payload bytes of unexpected messages from one peer. At this limit, its connection is not read until a posted
    /// receive could take one of its messages.
    pub unexpected_bytes_max: usize,
    /// Payload bytes of unexpected messages from one peer at which a rank fails: reached only if a receive waits for a
    /// message that was sent after all of them.
    pub unexpected_bytes_limit: usize,
    /// Limit on open requests.
    pub requests_max: usize,
    /// Mean time between failures of the job, if checkpoints are taken by interval: of those that the program offers, a rank takes one once
    /// the optimal time since its last has passed (Zhao 2005, section 5.8), which follows from this and from what its checkpoints cost. It takes the
    /// first one at once. `None`: it takes all.
    pub mtbf: Option<Duration>,
    /// Write traces for the [`oracle`](crate::oracle).
    pub trace: bool,
}

impl RankSettings {
    /// Returns the defaults for a job of `ranks` ranks.
    pub fn new(ranks: u32) -> RankSettings {
        RankSettings {
            ranks,
            rule: Rule::default(),
            tier: LogTier::default(),
            keep: LogKeep::default(),
            on_full: LogOnFull::default(),
            log_bytes_max: 256 << 20,
            disk_bytes_max: 4 << 30,
            disk_block_bytes: 256 << 10,
            local_log_bytes_max: 16 << 20,
            full_wait_max: Duration::from_secs(10),
            unexpected_bytes_max: 64 << 20,
            unexpected_bytes_limit: 512 << 20,
            requests_max: 1 << 16,
            mtbf: None,
            trace: false,
        }
    }

    /// Returns what the oracle demands of a re-execution: in the node-local tier, an outcome is durable only before the next send.
    pub fn repeats(&self) -> Repeats {
        match (self.rule.properties().keeps, self.tier) {
            (Kept::Nothing, _) => Repeats::Nothing,
            (_, LogTier::Volatile | LogTier::ProcessCrashSafe) => Repeats::All,
            (_, LogTier::NodeLocal) => Repeats::UpToLastSend,
        }
    }
}
