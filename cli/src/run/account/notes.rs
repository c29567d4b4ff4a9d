//! What the user should know beside the figures: a line for each thing that isn't as it was asked for.

use serde_json::Value;

use super::{Account, How, RankAccount, by_reason, text};
use crate::report::named;

impl Account {
    /// In the order in which they matter.
    pub(in crate::run) fn notes(&self, program: &str) -> Vec<String> {
        let interrupted = self.interrupted.then(|| "interrupted; mpirun and its ranks have ended".to_owned());
        let mut notes: Vec<String> = interrupted.into_iter().chain(self.refusals()).collect();
        notes.extend(self.nobody_began(program));
        notes.extend(self.ends());
        notes.extend(self.what_was_taken_over());
        notes.extend(self.ranks.iter().flat_map(RankAccount::notes));
        notes
    }

    /// Why ranks can't log.
    fn refusals(&self) -> impl Iterator<Item = String> {
        let reasons = by_reason(self.refused.iter().map(|(rank, why)| (*rank, why.as_str())));
        reasons.into_iter().map(|(why, ranks)| {
            let ranks = named(&ranks);
            // One that can't make its log is enough for nobody to log.
            if self.ranks.is_empty() {
                format!("nothing was logged, because of {ranks}: {why}")
            } else {
                format!("nothing was logged by {ranks}: {why}")
            }
        })
    }

    /// Where no rank began to log, and none says why.
    fn nobody_began(&self, program: &str) -> Option<String> {
        if !self.ranks.is_empty() || !self.refused.is_empty() || !self.is_on || self.interrupted {
            return None;
        }
        Some(match self.code {
            0 => format!(
                "nothing was logged: no rank of {program} began to log over {}. Is it an MPI program in C or C++ (calls from \
                 Fortran aren't seen), linked with that MPI, and not statically?",
                self.mpi
            ),
            code => format!("nothing was logged: no rank had begun to log when the job ended with exit code {code}"),
        })
    }

    /// Ranks that ended in another way than by MPI_Finalize.
    fn ends(&self) -> Option<String> {
        if let Some(ranks) = self.named_that(How::Aborted) {
            return Some(format!(
                "{ranks} called MPI_Abort: its figures are as they were then, the others' (*) may lack the messages that they received last"
            ));
        }
        // Of an interrupt, as of MPI_Abort, it is what one expects.
        let ranks = self.named_that(How::Silently).filter(|_| !self.interrupted)?;
        let mut left = self.that(How::Silently);
        let lost = if left.all(|one| one.figures.contains_key("taken_over")) {
            ""
        } else {
            ", and what was not on disk yet is in no log"
        };
        Some(format!(
            "{ranks} ended without MPI_Finalize (by exit, _exit or a signal): the figures (*) may lack the messages that \
             they received last{lost}"
        ))
    }

    fn that(&self, how: How) -> impl Iterator<Item = &RankAccount> {
        self.ranks.iter().filter(move |one| one.how == how)
    }

    fn named_that(&self, how: How) -> Option<String> {
        let ranks: Vec<u32> = self.that(how).map(|one| one.rank).collect();
        (!ranks.is_empty()).then(|| named(&ranks))
    }

    /// Logs that ranks had left in shared memory.
    fn what_was_taken_over(&self) -> Option<String> {
        let taken = |one: &RankAccount| Some((one.rank, one.figures.get("taken_over")?.as_u64()?));
        let (ranks, records): (Vec<u32>, Vec<u64>) = self.ranks.iter().filter_map(taken).unzip();
        (!ranks.is_empty()).then(|| {
            format!(
                "{}: what was left in shared memory is in {} now: {} records",
                named(&ranks),
                self.log_dir.as_deref().unwrap_or_default(),
                records.iter().sum::<u64>()
            )
        })
    }
}

impl RankAccount {
    /// What became of its logging.
    fn notes(&self) -> Vec<String> {
        let (rank, mut notes) = (self.rank, Vec::new());
        if let Some(why) = text(&self.figures, "gave_up") {
            notes.push(format!("rank {rank} gave up logging: {why}"));
        }
        if let Some(count) = self.figures.get("sends_refused").and_then(Value::as_u64).filter(|count| *count > 0) {
            let sends = if count == 1 { "send" } else { "sends" };
            notes.push(format!("rank {rank}'s log was full: {count} {sends} failed, as --on-full fail asks"));
        }
        if self.figures.get("logging_stopped").and_then(Value::as_bool) == Some(true) {
            notes.push(format!("rank {rank}'s log was full: it keeps nothing from there on (stop-logging)"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{DONE, account, in_time};
    use super::*;

    #[test]
    fn notes_say_what_is_not_to_be_expected() {
        let notes =
            |texts: &[(&str, &[u8])], code, interrupted| account(texts, code, interrupted).notes("prog").join("; ");
        assert!(notes(&[], 0, false).contains("no rank of prog began to log over Open MPI 5.0.0 (x)"));
        assert!(notes(&[], 3, false).contains("exit code 3"));
        assert_eq!(notes(&[("rank-0.json", DONE)], 0, false), "");
        assert_eq!(notes(&[("rank-0.live", &in_time())], 1, true), "interrupted; mpirun and its ranks have ended");
        let aborted = notes(&[("rank-0.live", &in_time()), ("rank-1.json", br#"{"aborted":true}"#)], 7, false);
        assert!(aborted.contains("rank 1 called MPI_Abort") && !aborted.contains("MPI_Finalize"), "{aborted}");
        let gave_up = notes(&[("rank-0.json", br#"{"gave_up":"no","logging_stopped":true}"#)], 0, false);
        assert!(gave_up.contains("gave up logging: no") && gave_up.contains("stop-logging"), "{gave_up}");
        let refused =
            notes(&[("rank-0.json", br#"{"sends_refused":1}"#), ("rank-1.json", br#"{"sends_refused":0}"#)], 0, false);
        assert_eq!(refused, "rank 0's log was full: 1 send failed, as --on-full fail asks");
    }

    #[test]
    fn why_ranks_cannot_log_is_quoted_once_for_equal_reasons() {
        let texts: [(&str, &[u8]); 4] = [
            ("rank-10.refused", b"logs/rank-10 is there"),
            ("rank-2.refused", b"the disk is full"),
            ("rank-1.refused", b"logs/rank-1 is there"),
            ("rank-3.unfinished", b"x"),
        ];
        for (code, interrupted) in [(0, false), (7, false)] {
            let notes = account(&texts, code, interrupted).notes("prog");
            let of = |ranks: &str| format!("nothing was logged, because of {ranks}");
            let right = [of("ranks 1, 10: logs/rank-1 is there"), of("rank 2: the disk is full")];
            assert_eq!(notes, right, "{code}");
        }
        assert_eq!(account(&texts, 1, true).notes("prog").len(), 3);
        let value: Value = serde_json::from_str(&account(&texts, 0, false).to_json()).unwrap();
        assert_eq!(value["refused"][0], json!({ "rank": 1, "why": "logs/rank-1 is there" }));
        assert_eq!((value["refused"].as_array().unwrap().len(), &value["ranks"]), (3, &json!([])));
        let one = [("rank-0.json", DONE), ("rank-1.refused", b"no")];
        assert_eq!(account(&one, 0, false).notes("prog"), ["nothing was logged by rank 1: no"]);
    }
}
