//! Table 2 of Liu 2014: time to the end of a run with a killed process, when all ranks go back, and when only the
//! killed one does.

use std::mem::take;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use counterfoil_protocols::{api::Bits, coordinated, user_level};
use counterfoil_runtime::Rule;
use counterfoil_runtime::local::{Interrupts, Kill, KillPoint, launch};
use counterfoil_workloads::Workload;
use serde_json::{Value, json};

use super::costs::{progress_bar, workload};
use crate::sample::{quantile, sorted};
use crate::table::Table;
use crate::{Failure, print, rank};

/// Iterations between checkpoints, and the kill's iteration, out of CG's 15: one checkpoint precedes the kill.
const CHECKPOINT_EVERY: u64 = 8;
const KILLED_IN: u64 = 14;
/// Killed rank, as in the paper.
const KILLED: u32 = 3;

/// Time CG runs with a killed rank, under checkpoints of the whole job and under user-level logging, compared with
/// table 2 of Liu et al. 2014.
///
/// Ranks are processes on this machine. Rank 3 is killed in iteration 14 of 15, after a checkpoint in iteration 8; the
/// paper's in iteration 70 of 75, after one in iteration 10. The four kinds of runs take turns. CPU time covers all
/// processes.
#[derive(Debug, Args)]
pub(crate) struct UlmlTable2Arguments {
    /// Number of ranks, a power of two from 4 on
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=1024))]
    ranks: u32,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
    /// Runs per kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a JSON array with an object per kind of run
    #[arg(long)]
    pub(super) json: bool,
}

/// Run kind.
struct Kind {
    name: &'static str,
    rule: Rule,
    has_kill: bool,
    /// The paper's wall and CPU time in seconds.
    paper: [f64; 2],
}

const COORDINATED: Rule = coordinated::RULE.with_bits(Bits::Piggybacked);
const KINDS: [Kind; 4] = [
    Kind { name: "checkpoint/restart (coordinated)", rule: COORDINATED, has_kill: false, paper: [2.78, 21.33] },
    Kind { name: "the same, a rank is killed", rule: COORDINATED, has_kill: true, paper: [5.24, 38.54] },
    Kind { name: "user-level", rule: user_level::RULE, has_kill: false, paper: [2.83, 22.12] },
    Kind { name: "the same, a rank is killed", rule: user_level::RULE, has_kill: true, paper: [3.83, 30.01] },
];

/// Run times for one kind, in seconds.
#[derive(Debug, Default)]
struct Times {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Times {
    fn sort(&mut self) {
        self.wall = sorted(take(&mut self.wall));
        self.cpu = sorted(take(&mut self.cpu));
    }
}

pub(crate) fn run(arguments: &UlmlTable2Arguments) -> Result<ExitCode, Failure> {
    let workload = workload("cg", &arguments.class, arguments.ranks)?;
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let bar = progress_bar(arguments.json, "CG", KINDS.len() as u64 * u64::from(arguments.rounds), "runs");
    let mut times = KINDS.map(|_| Times::default());
    for round in 0..arguments.rounds {
        for (kind, times) in KINDS.iter().zip(&mut times) {
            let (wall, cpu) = run_once(workload.as_ref(), arguments.ranks, kind, round, &interrupts)?;
            times.wall.push(wall);
            times.cpu.push(cpu);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    times.iter_mut().for_each(Times::sort);
    let title = format!("CG of class {} on {} local processes", arguments.class, arguments.ranks);
    print(&if arguments.json { to_json(&times).to_string() } else { report(&title, arguments.rounds, &times) })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a job; returns its wall time and its processes' CPU time, in seconds.
fn run_once(
    workload: &dyn Workload,
    ranks: u32,
    kind: &Kind,
    round: u32,
    interrupts: &Interrupts,
) -> Result<(f64, f64), Failure> {
    let mut job = rank::job(workload, ranks, Some(CHECKPOINT_EVERY))?;
    job.settings.rule = kind.rule;
    job.kills =
        kind.has_kill.then_some(Kill { rank: KILLED, at: KillPoint::Iteration(KILLED_IN) }).into_iter().collect();
    job.seed = round.into();
    let before = cpu_of_children()?;
    let report = launch(&job, Some(interrupts), &mut ()).map_err(Failure::failed)?;
    if report.deaths.len() != job.kills.len() {
        return Err(Failure::failed("the planned kill did not take place"));
    }
    Ok((report.wall.as_secs_f64(), (cpu_of_children()? - before).as_secs_f64()))
}

/// Returns the CPU time of all ended, awaited children.
fn cpu_of_children() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(Failure::failed)?;
    let ticks = children_ticks(&stat).ok_or_else(|| Failure::failed("/proc/self/stat can't be read"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns fields 16 and 17, `cutime` and `cstime`, of a process's `stat` (proc(5)).
fn children_ticks(stat: &str) -> Option<u64> {
    // The name, field 2, is in parentheses and may contain anything.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(13).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

fn to_json(times: &[Times]) -> Value {
    let rows = KINDS.iter().zip(times).map(|(kind, times)| {
        json!({
            "protocol": kind.rule.name,
            "killed": kind.has_kill,
            "wall_s": quantile(&times.wall, 0.5),
            "wall_s_all": times.wall,
            "cpu_s": quantile(&times.cpu, 0.5),
            "cpu_s_all": times.cpu,
            "paper": {"wall_s": kind.paper[0], "cpu_s": kind.paper[1]},
        })
    });
    Value::Array(rows.collect())
}

fn report(title: &str, rounds: u32, times: &[Times]) -> String {
    let mut table = Table::new(&["<run", "wall", "quartiles", "CPU", "paper: wall", "CPU"]);
    for (kind, times) in KINDS.iter().zip(times) {
        let wall = |share| quantile(&times.wall, share);
        table.row([
            kind.name.to_owned(),
            format!("{:.2} s", wall(0.5)),
            format!("{:.2} to {:.2}", wall(0.25), wall(0.75)),
            format!("{:.2} s", quantile(&times.cpu, 0.5)),
            format!("{:.2} s", kind.paper[0]),
            format!("{:.2} s", kind.paper[1]),
        ]);
    }
    let [_, all_go_back, _, one_goes_back] = times else { return table.to_string() };
    let saved =
        |of: fn(&Times) -> &Vec<f64>| 100.0 * (1.0 - quantile(of(one_goes_back), 0.5) / quantile(of(all_go_back), 0.5));
    format!(
        "Table 2 of Liu et al. 2014: {title}\n\n{table}\n\n\
         With a kill, user-level logging saves {:.1} % of the wall time (paper: 26.9 %) and {:.1} % of the CPU time (22.1 %). \
         Medians of {rounds} runs. The paper's are of class C on 8 processes, with 80 % of the work lost; here it is 40 %.",
        saved(|times| &times.wall),
        saved(|times| &times.cpu)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_of_children_are_read_after_any_name() {
        let stat = "1 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 30 12 20 0 1";
        assert_eq!(children_ticks(stat), Some(42));
        assert_eq!(children_ticks("1 (a) S 1"), None);
        assert!(cpu_of_children().is_ok());
    }

    #[test]
    fn the_saving_is_that_of_the_runs_with_a_kill() {
        let times = [[1.0, 8.0], [2.0, 16.0], [1.0, 8.0], [1.5, 14.0]]
            .map(|[wall, cpu]| Times { wall: vec![wall], cpu: vec![cpu] });
        let text = report("CG", 1, &times);
        assert!(text.contains("saves 25.0 % of the wall time (paper: 26.9 %) and 12.5 % of the CPU time"), "{text}");
        assert_eq!(to_json(&times)[3]["cpu_s"], 14.0);
        let paper = 100.0 * (1.0 - KINDS[3].paper[0] / KINDS[1].paper[0]);
        assert!((paper - 26.9).abs() < 0.05, "{paper}");
    }
}
