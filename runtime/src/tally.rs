//! Rank counters.

use serde::{Deserialize, Serialize};

/// Counters for one incarnation of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Messages appended to the log by this incarnation, or found in the log that it took over.
    pub messages_logged: u64,
    /// Their payload bytes.
    pub bytes_logged: u64,
    /// Messages transmitted again to a replaced peer.
    pub messages_replayed: u64,
    /// Received messages dropped as duplicates.
    pub duplicates_dropped: u64,
    /// Messages delivered to the program.
    pub messages_delivered: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// Time taken by them, in microseconds.
    pub checkpoint_us: u64,
    /// Recorded non-deterministic outcomes.
    pub choices_logged: u64,
    /// Recorded deliveries.
    pub determinants_logged: u64,
    /// Bytes in the recorded deliveries, without the log's overhead for each.
    pub determinant_bytes: u64,
    /// Sends in a re-execution that a dead incarnation had sent.
    pub sends_repeated: u64,
    /// Repeated sends with other bytes than before, where tolerated.
    pub sends_diverged: u64,
    /// Acknowledged messages retained by the rule for other ranks' recovery.
    pub messages_kept: u64,
    /// Acknowledged messages released by the rule.
    pub messages_released: u64,
    /// Sends suppressed by the rule: their receivers have them.
    pub sends_suppressed: u64,
    /// Checkpoints requested by the rule.
    pub checkpoints_asked: u64,
    /// Collective calls that ran natively, or with recorded results.
    pub collectives: u64,
    /// Collective calls with recorded results.
    pub collectives_recorded: u64,
    /// Native runs ended by a lost rank.
    pub collectives_failed: u64,
    /// Calls repeated by this rank, with dummy arguments.
    pub collectives_repeated: u64,
    /// Collective results, messages and notes kept by the rule in the local log.
    pub entries_kept: u64,
    /// Their bytes.
    pub entry_bytes: u64,
    /// Local log entries sent to other ranks.
    pub entries_sent: u64,
    /// 1 if logging stopped because the log was full; as a sum, the number of such ranks.
    pub logging_stopped: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.messages_logged += other.messages_logged;
        self.bytes_logged += other.bytes_logged;
        self.messages_replayed += other.messages_replayed;
        self.duplicates_dropped += other.duplicates_dropped;
        self.messages_delivered += other.messages_delivered;
        self.checkpoints += other.checkpoints;
        self.checkpoint_us += other.checkpoint_us;
        self.choices_logged += other.choices_logged;
        self.determinants_logged += other.determinants_logged;
        self.determinant_bytes += other.determinant_bytes;
        self.sends_repeated += other.sends_repeated;
        self.sends_diverged += other.sends_diverged;
        self.messages_kept += other.messages_kept;
        self.messages_released += other.messages_released;
        self.sends_suppressed += other.sends_suppressed;
        self.checkpoints_asked += other.checkpoints_asked;
        self.collectives += other.collectives;
        self.collectives_recorded += other.collectives_recorded;
        self.collectives_failed += other.collectives_failed;
        self.collectives_repeated += other.collectives_repeated;
        self.entries_kept += other.entries_kept;
        self.entry_bytes += other.entry_bytes;
        self.entries_sent += other.entries_sent;
        self.logging_stopped += other.logging_stopped;
    }
}
