//! What a rank counts.

use serde::{Deserialize, Serialize};

/// Counters of one incarnation of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tally {
    /// Messages that this incarnation has put into the log, or has found in the log that it took over.
    pub messages_logged: u64,
    /// Their payload bytes.
    pub bytes_logged: u64,
    /// Messages that were transmitted to a peer again because it had been replaced.
    pub messages_replayed: u64,
    /// Messages that came a second time and were dropped.
    pub duplicates_dropped: u64,
    /// Messages that were handed to the program.
    pub messages_delivered: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// Non-deterministic outcomes that were recorded.
    pub choices_logged: u64,
    /// Deliveries that were recorded.
    pub determinants_logged: u64,
    /// Bytes of these records, without what the log puts around each.
    pub determinant_bytes: u64,
    /// Sends that were found equal, byte by byte, to what a dead incarnation had committed.
    pub sends_repeated: u64,
    /// Acknowledged messages that the rule keeps for others' recoveries.
    pub messages_kept: u64,
    /// Acknowledged messages that it has no more use for.
    pub messages_released: u64,
    /// 1 if the log was full and has stopped keeping messages; summed, how many ranks did.
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
        self.choices_logged += other.choices_logged;
        self.determinants_logged += other.determinants_logged;
        self.determinant_bytes += other.determinant_bytes;
        self.sends_repeated += other.sends_repeated;
        self.messages_kept += other.messages_kept;
        self.messages_released += other.messages_released;
        self.logging_stopped += other.logging_stopped;
    }
}
