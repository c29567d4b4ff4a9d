//! Figures 1 and 2 of Guermouche 2011: ranks rolled back after a process failure, and the order of messages sent again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use counterfoil_protocols::send_deterministic;
use counterfoil_simulator::{Activity, Fault, Mode, Pattern, Recorded, Schedule, Shape, Tier, diagram, record};
use serde_json::{Value, json};

use crate::report::rank_list;
use crate::{Failure, print};

/// Number of seeds searched for a run with the figure's order of events.
const SEEDS: u64 = 20_000;

/// Let the execution scenario's processes fail, one at a time, as in Figure 1 of Guermouche et al. 2011.
///
/// Four of five ranks have a checkpoint; m7 comes from the fifth, from the past. The ranks named in the paper roll
/// back.
#[derive(Debug, Args)]
pub(crate) struct Figure1Arguments {
    #[command(flatten)]
    output: Output,
}

/// Replay messages in causal order, as in Figure 2 of Guermouche et al. 2011.
///
/// Reduced to three ranks: rank 1 received m0 from rank 2, sent m1 to rank 0, and received m2 from there. When it
/// fails, m0 and m2 are logged and could be sent at once; m2 has to wait for the orphan m1, on which it depends.
#[derive(Debug, Args)]
pub(crate) struct Figure2Arguments {
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Output {
    /// Draw the runs into this directory, as space-time diagrams (SVG); created if missing
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print a JSON array with one object per failure
    #[arg(long)]
    json: bool,
}

impl Figure1Arguments {
    pub(crate) fn wants_json(&self) -> bool {
        self.output.json
    }
}

impl Figure2Arguments {
    pub(crate) fn wants_json(&self) -> bool {
        self.output.json
    }
}

/// A failure in one of the figures.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    figure: &'static str,
    pattern: Pattern,
    ranks: u32,
    /// Rank failing after the last message.
    fails: u32,
    /// Ranks rolled back according to the paper.
    paper: &'static [u32],
    /// Statement in the paper.
    says: &'static str,
}

const FIGURE_1: [Scenario; 2] = [
    Scenario {
        figure: "figure-1",
        pattern: Pattern::Figure1,
        ranks: 5,
        fails: 1,
        paper: &[0, 1, 2],
        says: "0 and 2 send m8 and m9 again; 3 stays, although m10 is an orphan",
    },
    Scenario {
        figure: "figure-1",
        pattern: Pattern::Figure1,
        ranks: 5,
        fails: 3,
        paper: &[0, 1, 2, 3],
        says: "4 sends m7 again from its log, and stays",
    },
];

const FIGURE_2: [Scenario; 1] = [Scenario {
    figure: "figure-2",
    pattern: Pattern::Figure2,
    ranks: 3,
    fails: 1,
    paper: &[1],
    says: "m2 waits for the orphan m1",
}];

/// Events in a run.
#[derive(Debug)]
struct Run {
    scenario: Scenario,
    schedule: Schedule,
    rolled_back: Vec<u32>,
    violation: Option<String>,
    svg: String,
}

impl Scenario {
    fn schedule(&self, seed: u64) -> Schedule {
        let (pattern, ranks) = (self.pattern, self.ranks);
        let shape = Shape { pattern, ranks, rounds: 1, seed: 0, checkpoint_one_in: 0, ordered: false };
        Schedule {
            shape,
            tier: Tier::Volatile,
            mode: Mode::Uniform,
            seed,
            // Fails at the end of the run.
            faults: vec![Fault { at: u64::MAX, node: self.fails, seed: 0, effects: None }],
            collections: 0,
            clusters: 0,
            late: false,
            revoked: false,
            unnamed: false,
            clocks: false,
            background: false,
            overtaking: false,
            canary: None,
        }
    }

    /// Runs the first schedule with every message received in the figure's epoch.
    fn run(&self) -> Result<Run, Failure> {
        for seed in 0..SEEDS {
            let schedule = self.schedule(seed);
            let (outcome, recording) = record(&send_deterministic::RULE, &schedule);
            if !has_the_figures_epochs(&recording) {
                continue;
            }
            let rolled_back: BTreeSet<u32> = recording.iter().filter_map(|entry| goes_back(&entry.activity)).collect();
            let svg = diagram::svg(&schedule, &outcome, &recording, 0..=u64::MAX);
            let violation = outcome.violation.as_ref().map(ToString::to_string);
            return Ok(Run {
                scenario: *self,
                schedule,
                rolled_back: rolled_back.into_iter().collect(),
                violation,
                svg,
            });
        }
        Err(Failure::failed(format!("{}: none of {SEEDS} seeds has the order of events of the figure", self.figure)))
    }
}

/// Returns the rank going back to a checkpoint, or to its beginning.
fn goes_back(activity: &Activity) -> Option<u32> {
    match *activity {
        Activity::RolledBack { rank, .. } => Some(rank),
        Activity::Killed { node } => Some(node),
        _ => None,
    }
}

/// Returns `true` if each rank takes its checkpoint before it receives anything, before the failure.
fn has_the_figures_epochs(recording: &[Recorded]) -> bool {
    let mut has_received = BTreeSet::new();
    for entry in recording {
        match entry.activity {
            Activity::Received { rank, .. } => _ = has_received.insert(rank),
            Activity::Checkpointed { rank, epoch } if epoch > 1 && has_received.contains(&rank) => return false,
            Activity::Killed { .. } => break,
            _ => {}
        }
    }
    true
}

impl Run {
    fn agrees(&self) -> bool {
        self.violation.is_none() && self.rolled_back == self.scenario.paper
    }

    fn to_json(&self) -> Value {
        json!({
            "figure": self.scenario.figure,
            "fails": self.scenario.fails,
            "rolled_back": self.rolled_back,
            "paper_rolled_back": self.scenario.paper,
            "agrees": self.agrees(),
            "violation": self.violation,
            "schedule": self.schedule.to_string(),
        })
    }

    fn to_text(&self) -> String {
        let verdict = match &self.violation {
            Some(violation) => format!("violation at {violation}"),
            None if self.agrees() => "as in the paper".to_owned(),
            None => format!("the paper: {}", rank_list(self.scenario.paper)),
        };
        let Scenario { fails, says, .. } = self.scenario;
        format!("rank {fails} fails; rolled back: {} ({verdict}): {says}", rank_list(&self.rolled_back))
    }
}

pub(crate) fn figure_1(arguments: &Figure1Arguments) -> Result<ExitCode, Failure> {
    run(&FIGURE_1, &arguments.output)
}

pub(crate) fn figure_2(arguments: &Figure2Arguments) -> Result<ExitCode, Failure> {
    run(&FIGURE_2, &arguments.output)
}

fn run(scenarios: &[Scenario], output: &Output) -> Result<ExitCode, Failure> {
    let runs = scenarios.iter().map(Scenario::run).collect::<Result<Vec<_>, _>>()?;
    if let Some(dir) = &output.dir {
        std::fs::create_dir_all(dir).map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?;
        for run in &runs {
            let file = dir.join(format!("{}-rank-{}.svg", run.scenario.figure, run.scenario.fails));
            std::fs::write(&file, &run.svg).map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
        }
    }
    if output.json {
        print(&Value::Array(runs.iter().map(Run::to_json).collect()).to_string())?;
    } else {
        print(&runs.iter().map(Run::to_text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(if runs.iter().all(Run::agrees) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_that_the_paper_names_roll_back() {
        for scenario in FIGURE_1.iter().chain(&FIGURE_2) {
            let run = scenario.run().unwrap();
            assert!(run.agrees(), "{}", run.to_text());
            assert!(run.svg.starts_with("<svg"));
        }
    }

    #[test]
    fn a_logged_message_is_received_again_after_the_orphan_on_which_it_depends() {
        let run = FIGURE_2[0].run().unwrap();
        let (_, recording) = record(&send_deterministic::RULE, &run.schedule);
        let killed = recording.iter().position(|entry| matches!(entry.activity, Activity::Killed { .. })).unwrap();
        let after = &recording[killed..];
        let orphan = |entry: &Recorded| matches!(entry.activity, Activity::Dropped { rank: 0, from: 1, .. });
        let dependent = |entry: &Recorded| matches!(entry.activity, Activity::Received { rank: 1, from: 0, .. });
        let [orphan, dependent] = [after.iter().position(orphan).unwrap(), after.iter().position(dependent).unwrap()];
        assert!(orphan < dependent);
    }
}
