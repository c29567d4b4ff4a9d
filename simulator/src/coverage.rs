//! Counters of the cases reached by schedules.

mod splits;

use counterfoil_protocols::api::{Kept, NativeCollectives, Properties};
use serde::{Deserialize, Serialize};

pub use splits::Splits;

/// Condition on a rule's properties.
type Condition = fn(&Properties) -> bool;

/// Counters of cases hard for rules with certain properties: a long campaign has to meet each.
const HARD_CASES: [(Condition, &[&str]); 6] = [
    (
        |_| true,
        &["faults_at_once", "faults_during_recovery", "faults_while_writing", "faults_within_events", "in_flight_lost"],
    ),
    (|properties| properties.keeps != Kept::Nothing, &["replayed", "duplicates"]),
    (
        |properties| properties.keeps == Kept::Logged,
        &["orphans", "logged_replays", "lines_of_several", "rollbacks", "coordinator_faults", "unacknowledged"],
    ),
    (
        |properties| properties.native_collectives == NativeCollectives::Uniform,
        &[
            "calls_straddled_from_root",
            "calls_straddled_all_to_all",
            "calls_straddled_barriers",
            "calls_straddled_root_lost",
            "calls_recorded",
            "calls_skipped",
            "calls_again",
            "entries_sent",
            "choices_forced",
            "overtaken",
        ],
    ),
    (
        |properties| properties.checkpoints_when_asked(),
        &[
            "late",
            "early",
            "suppressed",
            "overtaken",
            "calls_straddled",
            "calls_recorded",
            "calls_skipped",
            "calls_with_dummies",
            "choices_forced",
            "faults_when_asked",
            "faults_when_logging",
            "faults_when_ready",
            "faults_when_stopped",
            "coordinator_faults_collecting",
            "rollbacks",
        ],
    ),
    (
        |properties| properties.knows_due_checkpoints,
        &[
            "messages_copied",
            "messages_presented",
            "messages_presented_late",
            "orphans_dropped",
            "dead_messages",
            "calls_again",
            "checkpoints_in_calls",
            "checkpoints_abandoned",
            "choices_forced",
            "coordinator_faults",
            "rollbacks",
        ],
    ),
];

impl Coverage {
    /// Returns the counters of the cases hard for a rule with these properties.
    pub fn hard_cases(properties: &Properties) -> impl Iterator<Item = &'static str> {
        HARD_CASES.iter().filter(|(of, _)| of(properties)).flat_map(|(_, names)| names.iter().copied())
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Occurrences of each case, in one run or in many.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
            /// Calls split between completed and uncompleted when a rank died, while all others lived.
            pub splits_at_faults: Splits,
            /// Calls begun by some ranks in a later epoch than by others.
            pub splits_at_lines: Splits,
        }

        impl Coverage {
            /// Adds another run's counters.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
                self.splits_at_faults.add(&other.splits_at_faults);
                self.splits_at_lines.add(&other.splits_at_lines);
            }

            /// Returns the splits of calls of four ranks, by name.
            pub fn splits(&self) -> [(&'static str, &Splits); 2] {
                [("splits_at_faults", &self.splits_at_faults), ("splits_at_lines", &self.splits_at_lines)]
            }

            /// Returns all counters except the splits by name, in declaration order.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Events.
    events,
    /// Messages sent by an application, repetitions included.
    sends,
    /// Process deaths.
    faults,
    /// Faults of the coordinator.
    coordinator_faults,
    /// Faults while another process was dead.
    faults_at_once,
    /// Faults while some rank had not caught up with its predecessor, or knew of a recovery under way.
    faults_during_recovery,
    /// Faults after all had recovered from an earlier one.
    faults_after_recovery,
    /// Faults of a rank with an earlier fault.
    faults_again,
    /// Faults at the end of the rank's program.
    faults_when_finished,
    /// Faults while a checkpoint was being written.
    faults_while_writing,
    /// Faults within an event, after some of its effects or none.
    faults_within_events,
    /// Lost messages in flight to or from a process at its death.
    in_flight_lost,
    /// Messages in flight from a process at its death, yet received.
    in_flight_kept,
    /// Pairs of living ranks reconnecting after another's death.
    reconnections,
    /// Replacements that started from a checkpoint.
    restarts_from_checkpoint,
    /// Replacements that started from the start.
    restarts_from_start,
    /// Rollbacks of living ranks to a checkpoint or the start.
    rollbacks,
    /// Checkpoints made durable.
    checkpoints,
    /// Checkpoints replaced by later ones before they were durable.
    checkpoints_abandoned,
    /// Messages dropped as duplicates.
    duplicates,
    /// Messages dropped because their sender's incarnation was dead.
    dead_messages,
    /// Hellos from dead incarnations.
    dead_hellos,
    /// Messages overtaking an earlier one on their channel.
    overtaken,
    /// Messages dropped as orphans.
    orphans_dropped,
    /// Messages received where a recovery line left their receivers, but still to be sent again.
    orphans,
    /// Messages received in another epoch than the time before.
    other_receive_epochs,
    /// Messages and sends held by the protocol.
    held,
    /// Sends suppressed by the rule.
    suppressed,
    /// Retransmitted messages.
    replayed,
    /// Recorded outcomes.
    choices,
    /// Recorded deliveries.
    determinants,
    /// Outcomes forced on a re-execution.
    choices_forced,
    /// Freed records.
    freed,
    /// Records with released memory, because their sender sends them again whenever the receiver loses them.
    released,
    /// Messages delivered with the logged mark: replays of logged messages, and the second and later ones from the
    /// past.
    logged_replays,
    /// Recovery lines rolling back more than one rank.
    lines_of_several,
    /// Collections begun.
    collections,
    /// Checkpoints refused by the rule.
    checkpoints_refused,
    /// Native collective calls completed by a rank.
    calls,
    /// Calls ended by a lost participant.
    calls_failed,
    /// Calls run again.
    calls_again,
    /// Calls from the root, completed by some ranks and not by other living ones, when a lost participant was replaced.
    calls_straddled_from_root,
    /// Likewise, from all to all.
    calls_straddled_all_to_all,
    /// Likewise, barriers.
    calls_straddled_barriers,
    /// Likewise, from the root, with the root as the lost participant.
    calls_straddled_root_lost,
    /// Collective calls with a result from the local log.
    calls_recorded,
    /// Skipped collective calls.
    calls_skipped,
    /// Calls run once more with dummy arguments, because a restored program was beyond them.
    calls_with_dummies,
    /// Collective calls with data flow from one epoch to another, counted at the receivers.
    calls_straddled,
    /// Messages received in a later epoch than sent in.
    late,
    /// Messages received in an earlier epoch than sent in.
    early,
    /// Faults of ranks asked for the checkpoint of the job, before they took it (C3, section 3.1, phase 1).
    faults_when_asked,
    /// Faults of ranks waiting for late messages (phase 2).
    faults_when_logging,
    /// Faults of ranks ready to stop logging (phase 3).
    faults_when_ready,
    /// Faults of ranks no longer logging, before the commit (phase 4).
    faults_when_stopped,
    /// Faults of the coordinator during a collection: a rule may make checkpoints of the job for it.
    coordinator_faults_collecting,
    /// Local log entries sent to peers.
    entries_sent,
    /// Checkpoints requested by a rule while the application waited.
    checkpoints_forced,
    /// Checkpoints requested in a held collective call.
    checkpoints_in_calls,
    /// Messages copied into the local log by a rule before delivery.
    messages_copied,
    /// Messages presented again to a restored application.
    messages_presented,
    /// Messages presented again although sent more than one epoch before.
    messages_presented_late,
    /// Acknowledgements voided by a receiver's death.
    unacknowledged,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use counterfoil_protocols::{RULES, user_level};

    use super::*;

    #[test]
    fn hard_cases_are_counters_and_a_rule_has_none_twice() {
        let counters: BTreeSet<&str> = Coverage::default().each().map(|(name, _)| name).collect();
        for rule in RULES {
            let cases: Vec<&str> = Coverage::hard_cases(&rule.properties).collect();
            assert!(cases.iter().all(|case| counters.contains(case)), "{rule:?}: {cases:?}");
            assert_eq!(cases.iter().collect::<BTreeSet<_>>().len(), cases.len(), "{rule:?}: {cases:?}");
        }
        assert_eq!(Coverage::hard_cases(&user_level::RULE.properties).count(), 17);
    }
}
