//! Verdict on one run, from the report of `counterfoil demo --json` and the run's termination.

use serde_json::Value;

use super::launch::{Outcome, Termination};
use super::parameters::{Call, Kill, Parameters};

/// Recovery phases, in order.
///
/// The demo reports their durations in milliseconds.
pub(super) const RECOVERY_PHASES: [&str; 5] = ["detect", "repair", "start", "replay", "catch_up"];

/// Field of a kill: `true` if the victim sent or received messages before it and would have done so after it.
const IN_TRAFFIC: &str = "between_first_and_last_message";

/// Milliseconds of each of [`RECOVERY_PHASES`]; `None` if the report has no number.
pub(super) type RecoveryMs = [Option<f64>; RECOVERY_PHASES.len()];

/// Check results for one run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Descriptions for all failed checks; empty if the run is correct.
    pub(super) problems: Vec<String>,
    /// Kills carried out.
    pub(super) kills: u64,
    /// Kills that took place as planned for an iteration; others may come before the victim's first message.
    pub(super) kills_in_iterations: u64,
    /// Kills planned for an iteration that took place between the victim's first and last message.
    pub(super) kills_in_traffic: u64,
    /// Phase durations for each timed recovery.
    pub(super) recovery_ms: Vec<RecoveryMs>,
}

impl Verdict {
    /// Checks the run, reporting each violated guarantee as a separate problem.
    pub(super) fn judge(parameters: &Parameters, outcome: &Outcome) -> Self {
        let mut verdict = Self::default();
        match outcome.termination {
            Termination::Exited(0) => {}
            Termination::Exited(code) => verdict.problem(format!("exit code {code}")),
            Termination::Signalled => verdict.problem("killed by a signal"),
            Termination::TimedOut => verdict.problem("timed out"),
        }
        for leftover in &outcome.leftovers {
            verdict.problem(format!("leftover: {leftover}"));
        }
        match serde_json::from_str(&outcome.stdout) {
            Ok(report) => verdict.judge_report(parameters, &report),
            Err(error) => verdict.problem(format!("stdout is not a JSON object: {error}")),
        }
        verdict
    }

    fn judge_report(&mut self, parameters: &Parameters, report: &Value) {
        for field in ["digest_equal", "recovered", "survivors_undisturbed"] {
            if report[field] != Value::Bool(true) {
                self.problem(format!("{field} is {}", report[field]));
            }
        }
        // A workload without a published result has `null`; its digest is compared instead.
        if !(report["verified"].is_null() || report["verified"] == Value::Bool(true)) {
            self.problem(format!("verified is {}", report["verified"]));
        }
        for field in ["lost", "duplicated", "reordered"] {
            if report[field].as_u64() != Some(0) {
                self.problem(format!("{field} is {}", report[field]));
            }
        }
        let Some(kills) = report["kills"].as_array() else {
            self.problem("the report has no array of kills");
            return;
        };
        self.judge_kills(parameters, kills);
        self.collect_recovery_times(report, kills);
    }

    /// Checks that exactly the planned kills took place.
    ///
    /// A kill during a recovery has no iteration to compare.
    fn judge_kills(&mut self, parameters: &Parameters, kills: &[Value]) {
        let mut unmatched: Vec<&Value> = kills.iter().collect();
        for planned in &parameters.kills {
            if let Kill::PowerCut { .. } = planned {
                // A power cut kills every rank.
                let (victims, others) = unmatched.into_iter().partition(|kill| matches_plan(planned, kill));
                let victims: Vec<&Value> = victims;
                unmatched = others;
                if victims.len() != parameters.ranks as usize {
                    self.problem(format!(
                        "the power cut {planned} killed {} of {} ranks",
                        victims.len(),
                        parameters.ranks
                    ));
                }
                continue;
            }
            match unmatched.iter().position(|kill| matches_plan(planned, kill)) {
                Some(index) => {
                    unmatched.swap_remove(index);
                }
                None => self.problem(format!("the planned kill {planned} did not take place")),
            }
        }
        for kill in unmatched {
            self.problem(format!("unplanned kill: {kill}"));
        }
        for kill in kills {
            self.kills += 1;
            match kill[IN_TRAFFIC].as_bool() {
                // A program with collectives alone has no messages to define its traffic.
                Some(in_traffic) if is_in_iteration(kill) && parameters.workload.makes(Call::Send) => {
                    self.kills_in_iterations += 1;
                    self.kills_in_traffic += u64::from(in_traffic);
                }
                Some(_) => {}
                None => self.problem(format!("kill without {IN_TRAFFIC}: {kill}")),
            }
        }
    }

    /// Collects the times of each kill, or those of the whole run if no kill has any.
    fn collect_recovery_times(&mut self, report: &Value, kills: &[Value]) {
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

/// Returns `true` for a kill planned for an iteration of its victim, and `false` for a power cut or a kill during a
/// repair or a recovery.
fn is_in_iteration(kill: &Value) -> bool {
    kill["planned"]
        .as_str()
        .is_some_and(|planned| ["all@", "repair", "recovery"].iter().all(|word| !planned.contains(word)))
}

/// Returns `true` if a reported kill is the planned one.
fn matches_plan(planned: &Kill, reported: &Value) -> bool {
    match planned {
        Kill::At { rank, iteration } => reported["rank"] == *rank && reported["iteration"] == *iteration,
        Kill::DuringRepair { rank, .. } | Kill::DuringRecovery { rank, .. } => reported["rank"] == *rank,
        Kill::InCall { rank, .. } => reported["rank"] == *rank && reported["planned"] == planned.to_string(),
        Kill::PowerCut { .. } => reported["planned"] == planned.to_string(),
    }
}

fn recovery_ms(times: &Value) -> RecoveryMs {
    RECOVERY_PHASES.map(|phase| times[phase].as_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::listed::Listed;
    use super::super::parameters::Cell;
    use super::super::random::SplitMix64;
    use super::*;

    /// Returns parameters with these kills.
    ///
    /// The others do not affect the verdict.
    fn with_kills<'a>(listed: &'a Listed, kills: &[Kill]) -> Parameters<'a> {
        let cell = Cell::of(listed, None).unwrap()[0];
        let mut parameters = Parameters::draw(cell, &mut SplitMix64::new(1));
        parameters.kills = kills.to_vec();
        parameters
    }

    fn correct_report() -> Value {
        json!({
            "verified": true, "digest_equal": true, "recovered": true,
            "survivors_undisturbed": true, "lost": 0, "duplicated": 0, "reordered": 0,
            "kills": [
                {"rank": 2, "iteration": 7, "planned": "2@7", "between_first_and_last_message": true,
                 "recovery_ms": {"detect": 1, "start": 2.5, "replay": 3, "catch_up": 4}},
                {"rank": 1, "iteration": 9, "planned": "1@recovery:2", "between_first_and_last_message": false,
                 "recovery_ms": {"detect": 1, "start": 2.5, "replay": null, "catch_up": 4}},
            ],
            "recovery_ms": {"detect": 9, "repair": 0.5, "start": 9, "replay": 9, "catch_up": 9},
        })
    }

    fn planned(listed: &Listed) -> Parameters<'_> {
        with_kills(listed, &[Kill::At { rank: 2, iteration: 7 }, Kill::DuringRecovery { rank: 1, recovering: 2 }])
    }

    fn outcome(termination: Termination, stdout: &str) -> Outcome {
        Outcome { termination, stdout: stdout.to_owned(), leftovers: Vec::new() }
    }

    fn judge(report: &Value) -> Verdict {
        Verdict::judge(&planned(&Listed::sample()), &outcome(Termination::Exited(0), &report.to_string()))
    }

    #[test]
    fn a_correct_run_has_no_problem() {
        let verdict = judge(&correct_report());
        assert_eq!(verdict.problems, Vec::<String>::new());
        assert_eq!((verdict.kills, verdict.kills_in_iterations, verdict.kills_in_traffic), (2, 1, 1));
        let first = [Some(1.0), None, Some(2.5), Some(3.0), Some(4.0)];
        let second = [Some(1.0), None, Some(2.5), None, Some(4.0)];
        assert_eq!(verdict.recovery_ms, [first, second]);
    }

    #[test]
    fn the_times_of_the_run_serve_if_no_kill_has_any() {
        let mut report = correct_report();
        for kill in report["kills"].as_array_mut().unwrap() {
            kill.as_object_mut().unwrap().remove("recovery_ms");
        }
        assert_eq!(judge(&report).recovery_ms, [[Some(9.0), Some(0.5), Some(9.0), Some(9.0), Some(9.0)]]);
    }

    #[test]
    fn every_violated_guarantee_is_a_problem() {
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
            let mut report = correct_report();
            report[field] = wrong.clone();
            let problems = judge(&report).problems;
            assert!(!problems.is_empty(), "{field}: {wrong} was accepted");
        }
        let mut unverifiable = correct_report();
        unverifiable["verified"] = json!(null);
        assert!(judge(&unverifiable).problems.is_empty());
    }

    #[test]
    fn the_kills_must_be_those_that_were_planned() {
        let mut other_iteration = correct_report();
        other_iteration["kills"][0]["iteration"] = json!(8);
        let problems = judge(&other_iteration).problems;
        assert!(problems[0].contains("kill 2@7 did not take place"), "{problems:?}");
        let mut one_more = correct_report();
        let kills = one_more["kills"].as_array_mut().unwrap();
        kills.push(json!({"rank": 3, "iteration": 1}));
        assert!(judge(&one_more).problems[0].contains("unplanned"));
    }

    #[test]
    fn a_kill_without_its_position_in_the_traffic_is_a_problem() {
        let mut report = correct_report();
        report["kills"][0][IN_TRAFFIC] = json!(null);
        let verdict = judge(&report);
        assert_eq!((verdict.problems.len(), verdict.kills, verdict.kills_in_traffic), (1, 2, 0));
    }

    #[test]
    fn a_failed_run_and_a_malformed_report_are_problems() {
        let correct = correct_report().to_string();
        for termination in [Termination::Exited(1), Termination::Signalled, Termination::TimedOut] {
            assert_eq!(Verdict::judge(&planned(&Listed::sample()), &outcome(termination, &correct)).problems.len(), 1);
        }
        for stdout in ["", "[]", "{}", "thread 'main' panicked"] {
            let verdict = Verdict::judge(&planned(&Listed::sample()), &outcome(Termination::Exited(0), stdout));
            assert!(!verdict.problems.is_empty(), "{stdout:?} was accepted");
        }
    }

    #[test]
    fn a_leftover_is_a_problem() {
        let mut outcome = outcome(Termination::Exited(0), &correct_report().to_string());
        outcome.leftovers.push("/dev/shm/counterfoil-0-1-a".to_owned());
        let problems = Verdict::judge(&planned(&Listed::sample()), &outcome).problems;
        assert_eq!(problems, ["leftover: /dev/shm/counterfoil-0-1-a"]);
    }
}
