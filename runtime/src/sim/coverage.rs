//! What the schedules have reached.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often what was met, in one run or in many.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// Adds what another run has met.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
            }

            /// All of them by name, in the order of their declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Events.
    events,
    /// Messages that were sent by an application, again ones too.
    sends,
    /// Processes that died.
    faults,
    /// ... of the coordinator.
    coordinator_faults,
    /// ... while another was dead.
    faults_at_once,
    /// ... while some rank had not come again to where it was, or was told that a recovery is under way.
    faults_during_recovery,
    /// ... when all had recovered from another that was before.
    faults_after_recovery,
    /// ... of a rank that had died before.
    faults_again,
    /// ... of a rank that was at the end of its program.
    faults_when_finished,
    /// ... while a checkpoint was being written.
    faults_while_writing,
    /// Messages in flight to or from a process that died, and lost.
    in_flight_lost,
    /// Messages in flight from a process that died, that still arrived.
    in_flight_kept,
    /// Replacements that started from a checkpoint.
    restarts_from_checkpoint,
    /// Replacements that started from the start.
    restarts_from_start,
    /// Living ranks that went back to a checkpoint or the start.
    rollbacks,
    /// Checkpoints that became durable.
    checkpoints,
    /// Messages that were dropped as duplicates.
    duplicates,
    /// Messages that were dropped because their sender's incarnation was dead.
    dead_messages,
    /// Hellos of dead incarnations.
    dead_hellos,
    /// Messages that were dropped as orphans.
    orphans_dropped,
    /// Messages that were received where a recovery line has left their receivers, and had yet to be sent again.
    orphans,
    /// Messages that were received in another epoch than the time before.
    other_receive_epochs,
    /// Messages and sends that the protocol held.
    held,
    /// Messages that were transmitted again.
    replayed,
    /// Outcomes that were recorded.
    choices,
    /// Deliveries that were recorded.
    determinants,
    /// Outcomes that were forced on a re-execution.
    choices_forced,
    /// Records that were freed.
    freed,
    /// Records whose memory was given up, because who would lose them sends them again with their sender.
    released,
    /// Messages that were let in marked as logged: replays of logged messages, and the second and later ones from the past.
    logged_replays,
    /// Recovery lines that take more than one rank back.
    lines_of_several,
    /// Collections that were begun.
    collections,
    /// Checkpoints that the rule didn't want.
    checkpoints_refused,
    /// Acknowledgements that a receiver's death made void.
    unacknowledged,
}
