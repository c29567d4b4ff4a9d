//! What the ranks of a job have in common.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where the log is: what survives a `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogTier {
    /// In the process's own memory: a killed rank's log is lost, and made again by its re-execution.
    Volatile,
    /// In a private shared-memory file: a killed rank's log is taken over by its replacement.
    #[default]
    ProcessCrashSafe,
    /// In the process's own memory, and on disk what doesn't fit there or is covered by a checkpoint: all ranks may lose
    /// their memory at once and go on from their checkpoints.
    NodeLocal,
}

/// How long sent messages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogKeep {
    /// Until they are acknowledged. A killed rank can then not be replayed: only for measurements.
    Acked,
    /// Until a durable checkpoint of the receiver covers them.
    #[default]
    Checkpoint,
    /// For ever.
    All,
}

/// What happens when the log's memory is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogOnFull {
    /// The sender waits, for at most [`RankSettings::full_wait_max`].
    #[default]
    Block,
    /// The job goes on without logging, after one warning: from there on it cannot be recovered.
    StopLogging,
    /// The send fails.
    Fail,
}

/// The rule that the ranks follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Plain sender-based logging: every message is logged until the receiver's checkpoint covers it, and only those who were
    /// killed go back.
    #[default]
    SenderBased,
    /// The same, and the order in which each rank receives is recorded, message by message, before a message is delivered.
    /// Receives from anybody need no record of their own.
    Pessimistic,
    /// Guermouche 2011: only messages from the past to the future are logged, and who has sent others goes back, too. For
    /// programs that send the same whatever the order of their receives.
    SendDeterministic {
        /// Into so many clusters of neighbouring ranks the job is divided; at least 1. Messages from one to a higher one are
        /// logged.
        clusters: u32,
    },
}

impl Rule {
    /// Whether senders keep every message until a checkpoint of its receiver covers it, and a replacement sends the same again:
    /// then only who was killed goes back.
    pub fn keeps_every_message(self) -> bool {
        match self {
            Rule::SenderBased | Rule::Pessimistic => true,
            Rule::SendDeterministic { .. } => false,
        }
    }

    /// Whether what a receive from anybody takes follows from the order of the messages, which the rule repeats. Otherwise each
    /// is a choice of its own.
    pub fn repeats_receive_order(self) -> bool {
        self == Rule::Pessimistic
    }
}

/// The limits and choices of a job that all its ranks share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSettings {
    /// How many ranks the job has.
    pub ranks: u32,
    /// The rule that they follow.
    pub rule: Rule,
    /// Where the log is.
    pub tier: LogTier,
    /// How long sent messages are kept.
    pub keep: LogKeep,
    /// What happens when the log's memory is used up.
    pub on_full: LogOnFull,
    /// Memory for the log of one rank, in bytes.
    pub log_bytes_max: usize,
    /// Disk for the checkpoints of one rank and, in the node-local tier, for what it spills, in bytes.
    pub disk_bytes_max: u64,
    /// Bytes of a block on disk.
    pub disk_block_bytes: usize,
    /// Memory for one rank's record of non-deterministic outcomes and of its receive order, in bytes: some 60 for each.
    pub local_log_bytes_max: usize,
    /// Longest wait for room in the log.
    pub full_wait_max: Duration,
    /// Payload bytes that one peer's messages may take before they are received. Beyond it, its connection is
    /// not read until a receive could take one.
    pub unexpected_bytes_max: usize,
    /// Payload bytes of one peer's messages at which a rank gives up: reached only if a receive waits for a
    /// message that its sender sent after all these.
    pub unexpected_bytes_limit: usize,
    /// Requests that may be open at the same time.
    pub requests_max: usize,
    /// Whether to write traces for the [`oracle`](crate::oracle).
    pub trace: bool,
}

impl RankSettings {
    /// The defaults for a job of `ranks` ranks.
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
            trace: false,
        }
    }
}
