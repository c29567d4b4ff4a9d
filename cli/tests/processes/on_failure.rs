//! Tests of jobs that save when a rank is lost, and are restarted.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use counterfoil_campaign::stride;
use rustix::process::Signal;
use serde_json::Value;

use crate::output::ProgramOutput;
use crate::program::{Running, Sandbox, is_alive, send, wait_until};

const RULE: [&str; 2] = ["--protocol", "on-failure"];
const SHARED_MEMORY_RULE: [&str; 2] = ["--protocol", "on-failure-shared-memory"];

/// Checks that a demo has ended right, and returns its report.
fn checked(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    checked_under(RULE, sandbox, arguments)
}

fn checked_under(rule: [&str; 2], sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let output = sandbox.demo(&[&rule, arguments, &["--json"]].concat());
    assert_eq!(output.code, Some(0), "{arguments:?}: {}{}", output.stderr, output.stdout);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&report["verified"], &report["recovered"]), (&true.into(), &true.into()), "{report}");
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    report
}

/// Returns the lost ranks for each restart with states to load.
fn lost(report: &Value) -> Vec<Vec<u64>> {
    let restarts = report["restarts"].as_array().unwrap().iter().filter(|restart| restart["from_saved"] == true);
    let ranks =
        |restart: &Value| restart["lost"].as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap()).collect();
    restarts.map(ranks).collect()
}

#[test]
fn lost_ranks_are_rebuilt_on_each_grid_and_with_each_protection() {
    let sandbox = Sandbox::new();
    for (round, protection) in (0..).zip(["rotating", "duplicated", "3"]) {
        for (grid, ranks, kind) in
            [("1x4", 4, "random"), ("2x2", 4, "graded"), ("2x3", 6, "hilbert"), ("3x2", 6, "singular")]
        {
            let workload = format!("qr:{grid}:{protection}:160x144:12:{kind}");
            let (victim, other) = ((5 * round + 2) % ranks, (3 * round + 1) % ranks);
            let (first, second) = (3 + round, 8 + round);
            let mut kills = vec![format!("{victim}@{first}"), format!("{victim}@recovery:{victim}")];
            // Later, another one.
            kills.push(format!("{other}@{second}:receive"));
            let ranks = ranks.to_string();
            let mut arguments = vec!["--workload", &workload, "--ranks", &ranks];
            kills.iter().for_each(|kill| arguments.extend(["--kill", kill]));
            let output = sandbox.demo(&[&RULE, &arguments[..], &["--json"]].concat());
            let report: Value = serde_json::from_str(&output.stdout).unwrap();
            // A rank without work has no such receive.
            let problems = output.stderr.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>();
            assert!(problems.iter().all(|line| line.contains("never happened")), "{arguments:?}: {}", output.stderr);
            assert_eq!((&report["verified"], &report["recovered"]), (&true.into(), &true.into()), "{report}");
            assert!(!lost(&report).is_empty() && lost(&report).iter().all(|ranks| ranks.len() <= 1), "{report}");
        }
    }
}

/// Returns a process's processor time, in hundredths of a second.
fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(11).map_or(0, |ticks| ticks.parse().unwrap())
}

/// Kills processes before the launcher can notice one of them; returns its final output.
fn kill_at_once(demo: Running, processes: &[u32]) -> ProgramOutput {
    demo.signal(Signal::STOP);
    processes.iter().for_each(|process| send(*process, Signal::KILL));
    demo.signal(Signal::CONT);
    demo.wait()
}

/// Checks that a job has ended because two ranks of a process row are lost, and that the error names both.
fn assert_ranks_1_and_3_are_named(sandbox: &Sandbox, output: &ProgramOutput) {
    let what = "checksums rebuild one lost rank of each process row: ranks [1, 3] of row 0 are lost";
    assert!(output.code == Some(1) && output.stderr.contains(what), "{}", output.stderr);
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
}

/// Kills two ranks at once in the midst of a factorization.
fn kill_two(sandbox: &Sandbox, grid: &str, victims: [usize; 2]) -> ProgramOutput {
    let workload = format!("qr:{grid}:rotating:2560x2560:32");
    let demo = sandbox.start(&[&RULE, &["--workload", &workload, "--no-kills"][..]].concat());
    let mut ranks = Vec::new();
    // Earlier, they may have no state yet. This may be either run.
    wait_until("all ranks factor", || {
        ranks = demo.ranks();
        ranks.len() == 4 && ranks.iter().all(|rank| processor_ticks(*rank) > 10)
    });
    kill_at_once(demo, &victims.map(|victim| ranks[victim]))
}

#[test]
fn one_rank_of_each_process_row_may_be_lost_at_once() {
    let sandbox = Sandbox::new();
    let output = kill_two(&sandbox, "2x2", [0, 3]);
    assert!(output.code == Some(0) && output.stdout.contains("verified: yes"), "{}", output.stderr);
    assert!(output.stderr.contains("2 states are lost"), "{}", output.stderr);
}

#[test]
fn more_than_that_ends_the_job_and_the_ranks_are_named() {
    let sandbox = Sandbox::new();
    let output = kill_two(&sandbox, "1x4", [1, 3]);
    assert_ranks_1_and_3_are_named(&sandbox, &output);
}

#[test]
fn a_program_that_rebuilds_nothing_begins_anew() {
    let sandbox = Sandbox::new();
    let report = checked(&sandbox, &["--workload", "cg", "--kill", "2@7"]);
    assert_eq!((&report["restarts"][0]["from_saved"], &report["restarts"][0]["bytes"]), (&false.into(), &0.into()));
}

#[test]
fn the_launcher_notices_a_kill_from_outside() {
    let sandbox = Sandbox::new();
    let demo = sandbox.start(&[&RULE, &["--workload", "qr", "--class", "A", "--no-kills"][..]].concat());
    let ranks = demo.freeze(&sandbox, 4);
    send(ranks[2], Signal::KILL);
    demo.signal(Signal::CONT);
    let output = demo.wait();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("verified: yes"), "{}", output.stdout);
}

#[test]
fn integers_are_rebuilt_bit_by_bit() {
    let sandbox = Sandbox::new();
    let run = |more: &[&str]| checked(&sandbox, &[&["--workload", "checked-matmul"], more].concat());
    let expected = run(&["--no-kills"]);
    for victim in 0..4 {
        let report = run(&["--kill", &format!("{victim}@5"), "--kill", &format!("{}@9", 3 - victim)]);
        assert_eq!((&report["digest"], lost(&report).len()), (&expected["digest"], 2), "{report}");
    }
}

#[test]
fn states_in_memory_outlive_ranks_that_are_killed_in_a_call() {
    let sandbox = Sandbox::new();
    for workload in ["qr:1x4:rotating:160x144:12", "qr:1x4:duplicated:160x144:12", "qr:2x2:3:160x144:12"] {
        // Two in a process row, and one of them again while all go back to one iteration.
        let kills = ["--kill", "1@5", "--kill", "0@9", "--kill", "1@recovery:1"];
        let report = checked_under(SHARED_MEMORY_RULE, &sandbox, &[&["--workload", workload][..], &kills].concat());
        let lost = lost(&report);
        // Until all ranks have started, a failure begins the program anew.
        assert!(lost.iter().all(|ranks| ranks.len() <= 1) && lost.iter().any(Vec::is_empty), "{report}");
        let saved = report["restarts"].as_array().unwrap().iter().map(|restart| restart["bytes"].as_u64().unwrap());
        assert_eq!(saved.sum::<u64>(), 0, "{report}");
    }
    let run = |more: &[&str]| {
        checked_under(SHARED_MEMORY_RULE, &sandbox, &[&["--workload", "checked-matmul"], more].concat())
    };
    let (expected, killed) = (run(&["--no-kills"]), run(&["--kill", "3@5", "--kill", "0@9"]));
    assert_eq!((&killed["digest"], lost(&killed)), (&expected["digest"], vec![vec![], vec![]]), "{killed}");
    assert_eq!(
        checked_under(SHARED_MEMORY_RULE, &sandbox, &["--workload", "cg", "--kill", "2@7"])["digest_equal"],
        Value::Null
    );
}

/// Returns `true` if a rank is changing its state in memory, and all ranks have begun.
///
/// The mark of `counterfoil_log_core::StateMemory` is then odd; it grows by two with each change.
fn is_changing(sandbox: &Sandbox, rank: u32) -> bool {
    let job = sandbox.remaining_jobs().pop().unwrap_or_default();
    let mut head = [0; 16];
    let file = File::open(sandbox.path().join(job).join(format!("state-{rank}")));
    let is_read = file.and_then(|mut file| file.read_exact(&mut head)).is_ok();
    let mark = u64::from_le_bytes(std::array::from_fn(|at| head[8 + at]));
    is_read && mark > 20 && mark % 2 == 1
}

/// Stops ranks while they change their states.
///
/// Returns their processes; `None` if the demo ends before.
fn stop_changing(sandbox: &Sandbox, demo: &Running, victims: &[u32]) -> Option<Vec<u32>> {
    while is_alive(demo.pid()) {
        let ranks = demo.ranks();
        if ranks.len() < 4 {
            continue;
        }
        let stopped: Vec<u32> = victims.iter().map(|victim| ranks[*victim as usize]).collect();
        stopped.iter().for_each(|process| send(*process, Signal::STOP));
        stopped.iter().for_each(|process| wait_until("it is stopped", || is_stopped(*process)));
        if victims.iter().all(|victim| is_changing(sandbox, *victim)) {
            return Some(stopped);
        }
        stopped.iter().for_each(|process| send(*process, Signal::CONT));
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Kills ranks while they change their states.
///
/// `victims`: process numbers in the order of their start.
fn kill_changing(sandbox: &Sandbox, grid: &str, victims: &[u32]) -> ProgramOutput {
    let workload = format!("qr:{grid}:rotating:2560x2560:32");
    for _ in 0..10 {
        let demo = sandbox.start(&[&SHARED_MEMORY_RULE, &["--workload", &workload, "--no-kills"][..]].concat());
        if let Some(stopped) = stop_changing(sandbox, &demo, victims) {
            return kill_at_once(demo, &stopped);
        }
        demo.wait();
    }
    panic!("ranks {victims:?} never change their states at the same time");
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with(['T', 'Z', 'X']))
}

#[test]
fn a_rank_that_is_killed_while_it_changes_its_state_in_memory_is_rebuilt() {
    let sandbox = Sandbox::new();
    for (grid, victims, lost) in [("1x4", &[2][..], "1 state is lost"), ("2x2", &[0, 3], "2 states are lost")] {
        let output = kill_changing(&sandbox, grid, victims);
        assert!(output.code == Some(0) && output.stdout.contains("verified: yes"), "{}", output.stderr);
        assert!(output.stderr.contains(lost), "{grid}: {}", output.stderr);
    }
    let output = kill_changing(&sandbox, "1x4", &[1, 3]);
    assert_ranks_1_and_3_are_named(&sandbox, &output);
}

#[test]
fn a_rank_may_be_killed_at_each_event_of_a_small_factorization() {
    let sandbox = Sandbox::new();
    for (rule, step) in [(RULE, stride()), (SHARED_MEMORY_RULE, stride().max(4))] {
        let mut kills = 0;
        for event in (1..).step_by(step) {
            let kill = format!("1@event:{event}");
            let arguments = ["--workload", "qr:1x3:rotating:18x18:4", "--ranks", "3", "--kill", &kill, "--json"];
            let output = sandbox.demo(&[&rule, &arguments[..]].concat());
            let report: Value = serde_json::from_str(&output.stdout).unwrap();
            assert_eq!((&report["verified"], &report["recovered"]), (&true.into(), &true.into()), "{kill}: {report}");
            if report["kills"].as_array().unwrap().is_empty() {
                assert!(output.stderr.contains("never happened"), "{kill}: {}", output.stderr);
                break;
            }
            kills += 1;
        }
        assert!(kills > 10, "{rule:?}: {kills}");
    }
}
