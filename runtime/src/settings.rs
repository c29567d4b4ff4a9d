//! Settings shared by all ranks of a job.

use std::time::Duration;

use counterfoil::{Keep, OnFull, Tier};
use counterfoil_protocols::api::{Kept, Rule};
use serde::{Deserialize, Serialize};

use crate::oracle::Repeats;

/// Limits and options shared by all ranks of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSettings {
    /// Number of ranks.
    pub ranks: u32,
    /// Recovery rule.
    pub rule: Rule,
    /// Log storage.
    ///
    /// In the volatile tier, a killed rank's re-execution rebuilds its log; in the process-crash-safe tier, the
    /// replacement takes it over; in the node-local tier, all ranks may lose their memory at once and continue from
    /// their checkpoints.
    pub tier: Tier,
    /// Retention of sent messages.
    ///
    /// With [`Keep::Acked`], a killed rank can't be replayed; for measurements only.
    pub keep: Keep,
    /// Behaviour when the log is full.
    ///
    /// With [`OnFull::Block`], the sender waits for at most [`full_wait_max`](Self::full_wait_max); with
    /// [`OnFull::StopLogging`], the job continues after one warning and can't be recovered from there on.
    pub on_full: OnFull,
    /// Memory for one rank's log, in bytes.
    pub log_bytes_max: usize,
    /// Disk space for one rank's checkpoints and, in the node-local tier, for spilled records, in bytes.
    pub disk_bytes_max: u64,
    /// Disk block length, in bytes.
    pub disk_block_bytes: usize,
    /// Memory for one rank's recorded outcomes and receive order, in bytes; an entry takes about 60.
    pub local_log_bytes_max: usize,
    /// Longest wait for log space.
    pub full_wait_max: Duration,
    /// Payload bytes in unexpected messages from one peer, up to which it is read.
    ///
    /// At this limit, its connection is not read until a posted receive could take one of its messages.
    pub unexpected_bytes_max: usize,
    /// Payload bytes in unexpected messages from one peer at which a rank fails.
    ///
    /// Reached only if a receive waits for a message sent after all of them.
    pub unexpected_bytes_limit: usize,
    /// Limit on open requests.
    pub requests_max: usize,
    /// The job's mean time between failures, if checkpoints are taken by interval; `None`: the rank takes all.
    ///
    /// Of the checkpoints offered by the program, a rank takes one once the optimal time since its last has passed
    /// (Zhao 2005, section 5.8), computed from this and its checkpoint costs. It takes the first one at once.
    pub mtbf: Option<Duration>,
    /// Continue a re-execution that sends other bytes than before, with the same length.
    ///
    /// Its peers have the recorded bytes, or get them, and the rank itself gets the new ones. Otherwise that is an
    /// error.
    pub tolerates_divergence: bool,
    /// Write traces for the [`oracle`](crate::oracle).
    pub trace: bool,
}

impl RankSettings {
    /// Returns the defaults for a job with `ranks` ranks.
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

    /// Returns the events that a re-execution must repeat: in the node-local tier, an outcome is durable only before
    /// the next send.
    pub fn repeats(&self) -> Repeats {
        match (self.rule.properties.keeps, self.tier) {
            (Kept::Nothing, _) => Repeats::Nothing,
            (_, Tier::Volatile | Tier::ProcessCrashSafe) => Repeats::All,
            (_, Tier::NodeLocal) => Repeats::UpToLastSend,
        }
    }
}
