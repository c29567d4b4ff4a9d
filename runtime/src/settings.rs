//! Settings that all ranks of a job share.

use std::time::Duration;

use counterfoil::{Keep, OnFull, Tier};
use counterfoil_protocols::api::{Kept, Rule};
use serde::{Deserialize, Serialize};

use crate::oracle::Repeats;

/// Limits and options of a job that all its ranks share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSettings {
    /// Number of ranks.
    pub ranks: u32,
    /// Rule of recovery.
    pub rule: Rule,
    /// Storage of the log. In the volatile tier, the re-execution of a killed rank rebuilds its log; in the
    /// process-crash-safe tier, the replacement takes it over; in the node-local tier, all ranks may lose their memory
    /// at once and continue from their checkpoints.
    pub tier: Tier,
    /// Retention of sent messages. With [`Keep::Acked`], a killed rank can't be replayed; for measurements only.
    pub keep: Keep,
    /// Behaviour when the log is full: with [`OnFull::Block`], the sender waits for at most
    /// [`full_wait_max`](Self::full_wait_max); with [`OnFull::StopLogging`], the job continues after one warning and
    /// can't be recovered from there on.
    pub on_full: OnFull,
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
    /// Mean time between failures of the job, if checkpoints are taken by interval: of those that the program offers, a
    /// rank takes one once the optimal time since its last has passed (Zhao 2005, section 5.8), which follows from this
    /// and from what its checkpoints cost. It takes the first one at once. `None`: it takes all.
    pub mtbf: Option<Duration>,
    /// A re-execution that sends other bytes than before, of the same length, goes on: its peers have the bytes on
    /// record, or get them, and the rank itself gets the new ones. Otherwise that is an error.
    pub tolerates_divergence: bool,
    /// Write traces for the [`oracle`](crate::oracle).
    pub trace: bool,
}

impl RankSettings {
    /// Returns the defaults for a job of `ranks` ranks.
    pub fn new(ranks: u32) -> RankSettings {
        RankSettings {
            ranks,
            rule: Rule::default(),
            tier: Tier::ProcessCrashSafe,
            keep: Keep::default(),
            on_full: OnFull::default(),
            log_bytes_max: 256 << 20,
            disk_bytes_max: 4 << 30,
            disk_block_bytes: 256 << 10,
            local_log_bytes_max: 16 << 20,
            full_wait_max: Duration::from_secs(10),
            unexpected_bytes_max: 64 << 20,
            unexpected_bytes_limit: 512 << 20,
            requests_max: 1 << 16,
            mtbf: None,
            tolerates_divergence: false,
            trace: false,
        }
    }

    /// Returns what the oracle demands of a re-execution: in the node-local tier, an outcome is durable only before the
    /// next send.
    pub fn repeats(&self) -> Repeats {
        match (self.rule.properties.keeps, self.tier) {
            (Kept::Nothing, _) => Repeats::Nothing,
            (_, Tier::Volatile | Tier::ProcessCrashSafe) => Repeats::All,
            (_, Tier::NodeLocal) => Repeats::UpToLastSend,
        }
    }
}
