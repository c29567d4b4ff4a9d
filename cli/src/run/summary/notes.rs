//! Notes on deviations from the requested run.

use std::collections::BTreeMap;
use std::path::Path;

use indicatif::BinaryBytes;

use super::{Ending, JobSummary, Rank, by_reason};
use crate::report::rank_list;

/// Minimum number of bytes provided during sends to be worth a note: some 0.1 s.
const LATE_COMMIT_BYTES_MIN: u64 = 128 << 20;

impl JobSummary {
    /// Returns the notes, the most important first.
    pub(in crate::run) fn notes(&self, program: &str) -> Vec<String> {
        let interrupted = self.interrupted.then(|| "interrupted; mpirun and its ranks have ended".to_owned());
        let mut notes: Vec<String> = interrupted.into_iter().chain(self.refusals()).collect();
        notes.extend(self.no_rank_started(program));
        notes.extend(self.abnormal_endings());
        notes.extend(self.taken_over());
        notes.extend(self.on_other_hosts());
        notes.extend(self.ranks.iter().flat_map(Rank::notes));
        notes.extend(self.late_commitment());
        notes
    }

    /// Reports waits for memory during sends, if they were long.
    fn late_commitment(&self) -> Option<String> {
        let late = self.ranks.iter().filter_map(|one| Some(one.summary.end.as_ref()?.late_commit_bytes)).max()?;
        let peak = self.ranks.iter().map(|one| one.summary.memory_peak_bytes).max()?;
        (late >= LATE_COMMIT_BYTES_MIN).then(|| {
            format!(
                "up to {} of a rank's log went to memory that the system had to provide during a send; --prefault {}MiB has it provided in MPI_Init",
                BinaryBytes(late),
                peak.div_ceil(1 << 20)
            )
        })
    }

    /// Reports the ranks unable to log, grouped by reason.
    pub(in crate::run) fn refusals(&self) -> impl Iterator<Item = String> {
        let reasons = by_reason(self.refused.iter().map(|(rank, why)| (*rank, why.as_str())));
        reasons.into_iter().map(|(why, ranks)| {
            let ranks = rank_list(&ranks);
            // No rank logs if one can't create its log.
            if self.ranks.is_empty() {
                format!("nothing was logged, because of {ranks}: {why}")
            } else {
                format!("nothing was logged by {ranks}: {why}")
            }
        })
    }

    /// Reports that no rank started logging, unless ranks gave reasons.
    fn no_rank_started(&self, program: &str) -> Option<String> {
        if !self.ranks.is_empty() || !self.refused.is_empty() || !self.is_on || self.interrupted {
            return None;
        }
        Some(match self.code {
            0 => format!(
                "nothing was logged: no rank of {program} started logging over {}. Is it an MPI program, dynamically linked \
                 with that MPI? Does a rank run on this host, so that it can write the figures?",
                self.mpi
            ),
            code => format!("nothing was logged: the job ended with exit code {code} before any rank started logging"),
        })
    }

    /// Reports ranks ended without MPI_Finalize.
    fn abnormal_endings(&self) -> Option<String> {
        if let Some(ranks) = self.ranks_that(Ending::Aborted) {
            return Some(format!(
                "{ranks} called MPI_Abort: figures up to that call; the other ranks' figures (*) may lack their last received messages"
            ));
        }
        // Expected after an interrupt.
        let ranks = self.ranks_that(Ending::Unfinalized).filter(|_| !self.interrupted)?;
        let mut unfinalized = self.that(Ending::Unfinalized);
        let lost = if unfinalized.all(|one| one.taken_over.is_some()) {
            ""
        } else {
            ", and records that were not on disk are lost (--tier process-crash-safe keeps them)"
        };
        Some(format!(
            "{ranks} ended without MPI_Finalize (by exit, _exit or a signal): the figures (*) may lack the last received \
             messages{lost}"
        ))
    }

    fn that(&self, ending: Ending) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(move |one| one.ending() == ending)
    }

    fn ranks_that(&self, ending: Ending) -> Option<String> {
        let ranks: Vec<u32> = self.that(ending).map(|one| one.summary.rank).collect();
        (!ranks.is_empty()).then(|| rank_list(&ranks))
    }

    /// Reports the logs on other hosts, by host.
    fn on_other_hosts(&self) -> Vec<String> {
        let Some(dir) = &self.log_dir else { return Vec::new() };
        let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for one in &self.ranks {
            let rank = one.summary.rank;
            let is_here = Path::new(dir).join(format!("rank-{rank}")).exists();
            let host = one.summary.end.as_ref().and_then(|end| end.host.as_deref());
            if let Some(host) = host.filter(|_| !is_here) {
                hosts.entry(host).or_default().push(rank);
            }
        }
        let note = |(host, ranks): (&str, Vec<u32>)| format!("{}: log in {dir} on host {host}", rank_list(&ranks));
        hosts.into_iter().map(note).collect()
    }

    /// Reports the logs taken over from shared memory.
    fn taken_over(&self) -> Option<String> {
        let taken = |one: &Rank| Some((one.summary.rank, one.taken_over.flatten()?));
        let (ranks, records): (Vec<u32>, Vec<u64>) = self.ranks.iter().filter_map(taken).unzip();
        (!ranks.is_empty()).then(|| {
            format!(
                "{}: log in shared memory taken over into {} ({} records)",
                rank_list(&ranks),
                self.log_dir.as_deref().unwrap_or_default(),
                records.iter().sum::<u64>()
            )
        })
    }
}

impl Rank {
    /// Reports restrictions on the rank's logging.
    fn notes(&self) -> Vec<String> {
        let (rank, mut notes) = (self.summary.rank, Vec::new());
        if let Some(why) = self.gave_up() {
            notes.push(format!("rank {rank} gave up logging: {why}"));
        }
        let count = self.summary.end.as_ref().map_or(0, |end| end.sends_refused);
        if count > 0 {
            let sends = if count == 1 { "send" } else { "sends" };
            notes.push(format!("rank {rank}'s log was full: {count} {sends} failed (--on-full fail)"));
        }
        if self.has_stopped() {
            notes.push(format!("rank {rank}'s log was full: logging stopped (--on-full stop-logging)"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{DONE, live_counters, summary};

    #[test]
    fn notes_report_deviations_from_the_requested_run() {
        let notes =
            |texts: &[(&str, &[u8])], code, interrupted| summary(texts, code, interrupted).notes("prog").join("; ");
        assert!(notes(&[], 0, false).contains("no rank of prog started logging over Open MPI 5.0.0 (x)"));
        assert!(notes(&[], 3, false).contains("exit code 3"));
        assert_eq!(notes(&[("rank-0.json", DONE)], 0, false), "");
        assert_eq!(
            notes(&[("rank-0.live", &live_counters())], 1, true),
            "interrupted; mpirun and its ranks have ended"
        );
        let aborted = notes(&[("rank-0.live", &live_counters()), ("rank-1.json", br#"{"aborted":true}"#)], 7, false);
        assert!(aborted.contains("rank 1 called MPI_Abort") && !aborted.contains("MPI_Finalize"), "{aborted}");
        let gave_up = notes(&[("rank-0.json", br#"{"gave_up":"no","logging_stopped":true}"#)], 0, false);
        assert!(gave_up.contains("gave up logging: no") && gave_up.contains("stop-logging"), "{gave_up}");
        let refused =
            notes(&[("rank-0.json", br#"{"sends_refused":1}"#), ("rank-1.json", br#"{"sends_refused":0}"#)], 0, false);
        assert_eq!(refused, "rank 0's log was full: 1 send failed (--on-full fail)");
    }

    #[test]
    fn memory_that_was_provided_late_is_a_note_if_it_was_much() {
        let notes = |late: u64, other: u64| {
            let text = |late| format!(r#"{{"late_commit_bytes":{late},"memory_peak_bytes":{}}}"#, late + (8 << 20) + 1);
            let (first, second) = (text(late), text(other));
            summary(&[("rank-0.json", first.as_bytes()), ("rank-1.json", second.as_bytes())], 0, false).notes("prog")
        };
        assert!(notes((128 << 20) - 1, 0).is_empty());
        let expected = "up to 128.00 MiB of a rank's log went to memory that the system had to provide during a send; --prefault 137MiB has it \
                        provided in MPI_Init";
        assert_eq!(notes(0, 128 << 20), [expected]);
    }

    #[test]
    fn equal_reasons_of_ranks_that_cannot_log_are_merged() {
        let texts: [(&str, &[u8]); 4] = [
            ("rank-10.refused", b"logs/rank-10 exists"),
            ("rank-2.refused", b"the disk is full"),
            ("rank-1.refused", b"logs/rank-1 exists"),
            ("rank-3.unfinished", b"x"),
        ];
        for (code, interrupted) in [(0, false), (7, false)] {
            let notes = summary(&texts, code, interrupted).notes("prog");
            let of = |ranks: &str| format!("nothing was logged, because of {ranks}");
            let right = [of("ranks 1, 10: logs/rank-1 exists"), of("rank 2: the disk is full")];
            assert_eq!(notes, right, "{code}");
        }
        assert_eq!(summary(&texts, 1, true).notes("prog").len(), 3);
        let value: Value = serde_json::from_str(&summary(&texts, 0, false).to_json()).unwrap();
        assert_eq!(value["refused"][0], json!({ "rank": 1, "why": "logs/rank-1 exists" }));
        assert_eq!((value["refused"].as_array().unwrap().len(), &value["ranks"]), (3, &json!([])));
        let one = [("rank-0.json", DONE), ("rank-1.refused", b"no")];
        assert_eq!(summary(&one, 0, false).notes("prog"), ["nothing was logged by rank 1: no"]);
    }
}
