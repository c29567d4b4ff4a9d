//! Judges one run by the object that `counterfoil demo --json` prints, and by how it ended.

use serde_json::Value;

use super::draw::{Kill, Parameters};
use super::launch::{End, Launched};

/// The parts of a recovery that the demo times, in milliseconds, in the order in which they happen.
pub(super) const RECOVERY_PARTS: [&str; 4] = ["detect", "start", "replay", "catch_up"];

/// A kill's field that says whether the victim had sent or received before, and would have afterwards.
const IN_TRAFFIC: &str = "between_first_and_last_message";

/// Milliseconds for each of [`RECOVERY_PARTS`]; `None` where the demo gave no number.
pub(super) type RecoveryMs = [Option<f64>; RECOVERY_PARTS.len()];

/// What a run showed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// What was wrong; empty for a run in which everything was right.
    pub(super) problems: Vec<String>,
    /// Kills that really happened.
    pub(super) kills: u64,
    /// Those of them between the victim's first and last message.
    pub(super) kills_in_traffic: u64,
    /// Of each recovery that was timed.
    pub(super) recovery_ms: Vec<RecoveryMs>,
}

impl Verdict {
    /// Checks all that the demo promises; each broken promise is a problem of its own.
    pub(super) fn judge(parameters: &Parameters, launched: &Launched) -> Self {
        let mut verdict = Self::default();
        match launched.end {
            End::Exited(0) => {}
            End::Exited(code) => verdict.problem(format!("exit code {code}")),
            End::Signalled => verdict.problem("ended by a signal"),
            End::TimedOut => verdict.problem("no end within the limit"),
        }
        for left in &launched.left_behind {
            verdict.problem(format!("left behind: {left}"));
        }
        match serde_json::from_str(&launched.stdout) {
            Ok(report) => verdict.judge_report(parameters, &report),
            Err(error) => verdict.problem(format!("no JSON object on stdout: {error}")),
        }
        verdict
    }

    fn judge_report(&mut self, parameters: &Parameters, report: &Value) {
        for field in ["digest_equal", "recovered", "survivors_undisturbed"] {
            if report[field] != Value::Bool(true) {
                self.problem(format!("{field} is {}", report[field]));
            }
        }
        // A workload without a published answer has nothing to verify: its digest is compared.
        if !(report["verified"].is_null() || report["verified"] == Value::Bool(true)) {
            self.problem(format!("verified is {}", report["verified"]));
        }
        for field in ["lost", "duplicated", "reordered"] {
            if report[field].as_u64() != Some(0) {
                self.problem(format!("{field} is {}", report[field]));
            }
        }
        let Some(kills) = report["kills"].as_array() else {
            self.problem("no list of kills");
            return;
        };
        self.judge_kills(parameters, kills);
        self.note_recoveries(report, kills);
    }

    /// Exactly the kills that were asked for; a kill during a recovery has no iteration to compare.
    fn judge_kills(&mut self, parameters: &Parameters, kills: &[Value]) {
        let mut happened: Vec<&Value> = kills.iter().collect();
        for asked in &parameters.kills {
            if let Kill::PowerCut { .. } = asked {
                // Every rank that was there died of it.
                let (of_it, others) = happened.into_iter().partition(|kill| is_kill(asked, kill));
                let of_it: Vec<&Value> = of_it;
                happened = others;
                if of_it.len() != parameters.ranks as usize {
                    self.problem(format!("the power cut {asked} killed {} ranks", of_it.len()));
                }
                continue;
            }
            match happened.iter().position(|kill| is_kill(asked, kill)) {
                Some(index) => {
                    happened.swap_remove(index);
                }
                None => self.problem(format!("kill {asked} did not happen")),
            }
        }
        for kill in happened {
            self.problem(format!("a kill that was not asked for: {kill}"));
        }
        for kill in kills {
            self.kills += 1;
            match kill[IN_TRAFFIC].as_bool() {
                Some(in_traffic) => self.kills_in_traffic += u64::from(in_traffic),
                None => self.problem(format!("a kill without {IN_TRAFFIC}: {kill}")),
            }
        }
    }

    /// Each kill's own times where they are given, else the run's.
    fn note_recoveries(&mut self, report: &Value, kills: &[Value]) {
        self.recovery_ms =
            kills.iter().map(|kill| &kill["recovery_ms"]).filter(|times| times.is_object()).map(recovery_ms).collect();
        if self.recovery_ms.is_empty() && report["recovery_ms"].is_object() {
            self.recovery_ms.push(recovery_ms(&report["recovery_ms"]));
        }
    }

    fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }
}

fn is_kill(asked: &Kill, happened: &Value) -> bool {
    match asked {
        Kill::At { rank, iteration } => happened["rank"] == *rank && happened["iteration"] == *iteration,
        Kill::DuringRecoveryOf { rank, .. } => happened["rank"] == *rank,
        Kill::PowerCut { .. } => happened["planned"] == asked.to_string(),
    }
}

fn recovery_ms(times: &Value) -> RecoveryMs {
    RECOVERY_PARTS.map(|part| times[part].as_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::random::SplitMix64;
    use super::*;

    /// Parameters with these kills; the rest does not matter to a verdict.
    fn with_kills(kills: &[Kill]) -> Parameters {
        let mut parameters = Parameters::draw(&mut SplitMix64::new(1));
        parameters.kills = kills.to_vec();
        parameters
    }

    fn a_right_report() -> Value {
        json!({
            "verified": true, "digest_equal": true, "recovered": true,
            "survivors_undisturbed": true, "lost": 0, "duplicated": 0, "reordered": 0,
            "kills": [
                {"rank": 2, "iteration": 7, "between_first_and_last_message": true,
                 "recovery_ms": {"detect": 1, "start": 2.5, "replay": 3, "catch_up": 4}},
                {"rank": 1, "iteration": 9, "between_first_and_last_message": false,
                 "recovery_ms": {"detect": 1, "start": 2.5, "replay": null, "catch_up": 4}},
            ],
            "recovery_ms": {"detect": 9, "start": 9, "replay": 9, "catch_up": 9},
        })
    }

    fn asked() -> Parameters {
        with_kills(&[Kill::At { rank: 2, iteration: 7 }, Kill::DuringRecoveryOf { rank: 1, other: 2 }])
    }

    fn launched(end: End, stdout: &str) -> Launched {
        Launched { end, stdout: stdout.to_owned(), left_behind: Vec::new() }
    }

    fn judge(report: &Value) -> Verdict {
        Verdict::judge(&asked(), &launched(End::Exited(0), &report.to_string()))
    }

    #[test]
    fn a_run_in_which_all_is_right_has_no_problem() {
        let verdict = judge(&a_right_report());
        assert_eq!(verdict.problems, Vec::<String>::new());
        assert_eq!((verdict.kills, verdict.kills_in_traffic), (2, 1));
        let first = [Some(1.0), Some(2.5), Some(3.0), Some(4.0)];
        let second = [Some(1.0), Some(2.5), None, Some(4.0)];
        assert_eq!(verdict.recovery_ms, [first, second]);
    }

    #[test]
    fn the_runs_times_are_taken_where_kills_have_none() {
        let mut report = a_right_report();
        for kill in report["kills"].as_array_mut().unwrap() {
            kill.as_object_mut().unwrap().remove("recovery_ms");
        }
        assert_eq!(judge(&report).recovery_ms, [[Some(9.0); 4]]);
    }

    #[test]
    fn every_broken_promise_is_a_problem() {
        for (field, wrong) in [
            ("verified", json!(false)),
            ("digest_equal", json!(false)),
            ("recovered", json!(false)),
            ("survivors_undisturbed", json!(null)),
            ("lost", json!(1)),
            ("duplicated", json!(2)),
            ("reordered", json!(null)),
            ("kills", json!([])),
            ("kills", json!(null)),
        ] {
            let mut report = a_right_report();
            report[field] = wrong.clone();
            let problems = judge(&report).problems;
            assert!(!problems.is_empty(), "{field}: {wrong} was taken for right");
        }
        let mut unverifiable = a_right_report();
        unverifiable["verified"] = json!(null);
        assert!(judge(&unverifiable).problems.is_empty());
    }

    #[test]
    fn the_kills_that_happened_are_those_that_were_asked_for() {
        let mut other_iteration = a_right_report();
        other_iteration["kills"][0]["iteration"] = json!(8);
        let problems = judge(&other_iteration).problems;
        assert!(problems[0].contains("kill 2@7 did not happen"), "{problems:?}");
        let mut one_more = a_right_report();
        let kills = one_more["kills"].as_array_mut().unwrap();
        kills.push(json!({"rank": 3, "iteration": 1}));
        assert!(judge(&one_more).problems[0].contains("not asked for"));
    }

    #[test]
    fn a_kill_that_does_not_say_where_it_fell_is_a_problem() {
        let mut report = a_right_report();
        report["kills"][0][IN_TRAFFIC] = json!(null);
        let verdict = judge(&report);
        assert_eq!((verdict.problems.len(), verdict.kills, verdict.kills_in_traffic), (1, 2, 0));
    }

    #[test]
    fn a_run_that_ends_badly_or_says_nothing_is_wrong() {
        let right = a_right_report().to_string();
        for end in [End::Exited(1), End::Signalled, End::TimedOut] {
            assert_eq!(Verdict::judge(&asked(), &launched(end, &right)).problems.len(), 1);
        }
        for stdout in ["", "[]", "{}", "thread 'main' panicked"] {
            let verdict = Verdict::judge(&asked(), &launched(End::Exited(0), stdout));
            assert!(!verdict.problems.is_empty(), "{stdout:?} was taken for right");
        }
    }

    #[test]
    fn what_is_left_behind_is_a_problem() {
        let mut launched = launched(End::Exited(0), &a_right_report().to_string());
        launched.left_behind.push("/dev/shm/counterfoil-0-1-a".to_owned());
        let problems = Verdict::judge(&asked(), &launched).problems;
        assert_eq!(problems, ["left behind: /dev/shm/counterfoil-0-1-a"]);
    }
}
