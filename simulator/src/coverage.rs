//! Counters of the cases that schedules reached.

mod splits;

use counterfoil_protocols::api::{Kept, NativeCollectives, Properties};
use serde::{Deserialize, Serialize};

pub use splits::Splits;

/// Condition on the properties of a rule.
type Condition = fn(&Properties) -> bool;

/// Counters of cases that are hard for rules with certain properties: a long campaign has to meet each of them.
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
    /// Returns the counters of the cases that are hard for a rule of these properties.
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
            /// Calls that some ranks had completed and others had not, when a rank died, and all others lived.
            pub splits_at_faults: Splits,
            /// Calls that some ranks began in a later epoch than others.
            pub splits_at_lines: Splits,
        }

        impl Coverage {
            /// Adds the counters of another run.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
                self.splits_at_faults.add(&other.splits_at_faults);
                self.splits_at_lines.add(&other.splits_at_lines);
            }

            /// Returns the ways in which calls of four ranks were split, by name.
            pub fn splits(&self) -> [(&'static str, &Splits); 2] {
                [("splits_at_faults", &self.splits_at_faults), ("splits_at_lines", &self.splits_at_lines)]
            }

            /// Returns all counters but the splits by name, in the order of their declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Events.
    events,
    /// Messages that an application sent, repetitions included.
    sends,
    /// Processes that died.
    faults,
    /// ... of the coordinator.
    coordinator_faults,
    /// ... while another was dead.
    faults_at_once,
    /// ... while some rank had not caught up with its predecessor, or knew of a recovery under way.
    faults_during_recovery,
    /// ... when all had recovered from an earlier one.
    faults_after_recovery,
    /// ... of a rank that had died before.
    faults_again,
    /// ... of a rank that was at the end of its program.
    faults_when_finished,
    /// ... while a checkpoint was being written.
    faults_while_writing,
    /// ... within an event, after some of its effects or none.
    faults_within_events,
    /// Messages in flight to or from a process that died, and lost.
    in_flight_lost,
    /// Messages in flight from a process that died, that still arrived.
    in_flight_kept,
    /// Pairs of living ranks that connected again after the death of another one.
    reconnections,
    /// Replacements that started from a checkpoint.
    restarts_from_checkpoint,
    /// Replacements that started from the start.
    restarts_from_start,
    /// Living ranks that rolled back to a checkpoint or the start.
    rollbacks,
    /// Checkpoints that became durable.
    checkpoints,
    /// Checkpoints that were replaced by later ones before they were durable.
    checkpoints_abandoned,
    /// Messages that were dropped as duplicates.
    duplicates,
    /// Messages that were dropped because their sender's incarnation was dead.
    dead_messages,
    /// Hellos of dead incarnations.
    dead_hellos,
    /// Messages that arrived before an earlier one of their channel.
    overtaken,
    /// Messages that were dropped as orphans.
    orphans_dropped,
    /// Messages that were received where a recovery line left their receivers, and had yet to be sent again.
    orphans,
    /// Messages that were received in another epoch than the time before.
    other_receive_epochs,
    /// Messages and sends that the protocol held.
    held,
    /// Sends that the rule suppressed.
    suppressed,
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
    /// Records whose memory was released, because their sender sends them again whenever the receiver loses them.
    released,
    /// Messages that were delivered with the logged mark: replays of logged messages, and the second and later ones
    /// from the past.
    logged_replays,
    /// Recovery lines that roll back more than one rank.
    lines_of_several,
    /// Collections begun.
    collections,
    /// Checkpoints that the rule refused.
    checkpoints_refused,
    /// Collective calls that ran natively and were completed by a rank.
    calls,
    /// ... that a lost participant ended.
    calls_failed,
    /// ... that ran again.
    calls_again,
    /// Calls that some ranks had completed and other living ones had not, when a lost participant was replaced: from
    /// the root.
    calls_straddled_from_root,
    /// ... from all to all.
    calls_straddled_all_to_all,
    /// ... barriers.
    calls_straddled_barriers,
    /// ... from the root, and the root was the lost participant.
    calls_straddled_root_lost,
    /// Collective calls whose result came from the local log.
    calls_recorded,
    /// ... that were skipped.
    calls_skipped,
    /// Calls that a restored program was beyond, and that ran once more with dummy arguments.
    calls_with_dummies,
    /// Collective calls in which data went from one epoch to another, counted at the receivers.
    calls_straddled,
    /// Messages that were received in a later epoch than sent in.
    late,
    /// Messages that were received in an earlier epoch than sent in.
    early,
    /// Faults of ranks that had yet to take the checkpoint of the job that they were asked for (C3, section 3.1, phase
    /// 1).
    faults_when_asked,
    /// ... that waited for late messages (phase 2).
    faults_when_logging,
    /// ... that were ready to stop logging (phase 3).
    faults_when_ready,
    /// ... that had stopped logging, before the commit (phase 4).
    faults_when_stopped,
    /// Faults of the coordinator while it collected: a rule may make checkpoints of the job for that.
    coordinator_faults_collecting,
    /// Entries of local logs that were sent to peers.
    entries_sent,
    /// Checkpoints that a rule asked for while the application waited.
    checkpoints_forced,
    /// ... in a collective call that it held.
    checkpoints_in_calls,
    /// Messages that a rule copied into the local log before it delivered them.
    messages_copied,
    /// ... that were presented again to a restored application.
    messages_presented,
    /// ... although they had been sent more than one epoch before.
    messages_presented_late,
    /// Acknowledgements that a receiver's death voided.
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
