//! Counters of a rank.

use serde::{Deserialize, Serialize};

/// Counters of one incarnation of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Messages that this incarnation appended to the log, or found in the log that it took over.
    pub messages_logged: u64,
    /// Payload bytes of these messages.
    pub bytes_logged: u64,
    /// Messages that were transmitted again to a replaced peer.
    pub messages_replayed: u64,
    /// Received messages that were dropped as duplicates.
    pub duplicates_dropped: u64,
    /// Messages that were delivered to the program.
    pub messages_delivered: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// Time that they took, in microseconds.
    pub checkpoint_us: u64,
    /// Recorded non-deterministic outcomes.
    pub choices_logged: u64,
    /// Recorded deliveries.
    pub determinants_logged: u64,
    /// Bytes of the recorded deliveries, without the log's overhead for each.
    pub determinant_bytes: u64,
    /// Sends of a re-execution that a dead incarnation had sent.
    pub sends_repeated: u64,
    /// ... of them, those that had other bytes then, where that is tolerated.
    pub sends_diverged: u64,
    /// Acknowledged messages that the rule retains for the recovery of other ranks.
    pub messages_kept: u64,
    /// Acknowledged messages that the rule released.
    pub messages_released: u64,
    /// Sends that the rule suppressed: their receivers have them.
    pub sends_suppressed: u64,
    /// Checkpoints that the rule asked for.
    pub checkpoints_asked: u64,
    /// Collective calls that ran natively, or whose results were recorded.
    pub collectives: u64,
    /// ... of them, those whose results were recorded.
    pub collectives_recorded: u64,
    /// Native runs that a lost rank has ended.
    pub collectives_failed: u64,
    /// Calls that this rank has taken part in once more, with dummy arguments.
    pub collectives_repeated: u64,
    /// Results of collective calls, messages and notes that the rule kept in the local log.
    pub entries_kept: u64,
    /// Bytes of these entries.
    pub entry_bytes: u64,
    /// Entries of the local log that were sent to other ranks.
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
