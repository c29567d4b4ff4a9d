//! End-to-end tests of `counterfoil simulate`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use counterfoil_simulator::Coverage;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::output::ProgramOutput;

/// Schedule with a pattern for rules that run collective calls as a whole.
const CALLS: &str =
    "sim1 pattern=calls ranks=2 rounds=1 program=1 checkpoints=0 ordered=0 tier=volatile mode=uniform seed=1 faults=";

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.env("COUNTERFOIL_LOG", "off");
    spawn(command, arguments)
}

fn spawn(mut command: Command, arguments: &[&str]) -> Child {
    command.arg("simulate").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn wait(child: Child) -> ProgramOutput {
    child.wait_with_output().unwrap().into()
}

fn simulate(arguments: &[&str]) -> ProgramOutput {
    wait(start(arguments))
}

fn object(output: &ProgramOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr))
}

/// Runs the replay command printed by a failure, with further arguments.
///
/// Its only quotes are around the schedule.
fn replay(command: &str, more: &[&str]) -> ProgramOutput {
    let mut pieces = command.split('\'');
    let mut arguments: Vec<&str> = pieces.next().unwrap().split_whitespace().collect();
    assert_eq!(arguments[..2], ["counterfoil", "simulate"]);
    arguments.extend(pieces.next());
    assert_eq!((pieces.next(), pieces.next()), (Some(""), None), "{command}");
    simulate(&[&arguments[2..], more].concat())
}

#[test]
fn a_campaign_of_the_default_rule_finds_nothing_and_reports_its_coverage() {
    let output = simulate(&["--schedules", "600", "--seed", "40", "--faults", "1..4", "--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{}", output.stdout);
    let report = object(&output);
    for (field, value) in [("schedules", 600), ("seed", 40), ("schedules_wanted", 600)] {
        assert_eq!(report[field], value, "{field}");
    }
    for field in ["violations", "lost", "duplicated", "reordered"] {
        assert_eq!(report[field], 0, "{field}");
    }
    assert_eq!(report["protocol"], "sender-based");
    assert_eq!((&report["interrupted"], &report["failure"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(report["seeds_failed"].as_array().unwrap().len(), 0);
    assert!(report["faults"].as_u64().unwrap() >= 600);
    for (name, _) in Coverage::default().each() {
        assert!(report[name].as_u64().is_some(), "{name}");
    }
    assert!(report["replayed"].as_u64().unwrap() > 0 && report["faults_during_recovery"].as_u64().unwrap() > 0);
}

#[test]
fn the_number_of_threads_does_not_affect_the_result() {
    for more in [&[][..], &["--canary", "skip-one"]] {
        let run = |threads: &str| {
            let output =
                simulate(&[&["--schedules", "333", "--seed", "7", "--json", "--threads", threads], more].concat());
            (output.code, output.stdout)
        };
        let one = run("1");
        assert_eq!(one, run("2"));
        assert_eq!(one, run("5"));
        assert_eq!(one.0, Some(i32::from(!more.is_empty())));
    }
    // Other seeds are another campaign.
    let fingerprint =
        |seed: &str| object(&simulate(&["--schedules", "9", "--json", "--seed", seed]))["fingerprint"].clone();
    assert_ne!(fingerprint("7"), fingerprint("8"));
}

#[test]
fn a_canary_is_found_and_its_replay_command_reproduces_it() {
    for (canary, effect) in
        [("drop-record", "lost"), ("deliver-duplicate", "duplicated"), ("ForgetChoices", "reordered")]
    {
        let output = simulate(&["--schedules", "1000", "--seed", "1", "--json", "--canary", canary]);
        assert_eq!(output.code, Some(1), "{canary}: {}", output.stderr);
        assert!(output.stderr.contains("of 1000 schedules failed"), "{}", output.stderr);
        let report = object(&output);
        let violations = report["violations"].as_u64().unwrap();
        let kinds = report["kinds"].as_object().unwrap().values();
        assert_eq!(kinds.map(|times| times.as_u64().unwrap()).sum::<u64>(), violations, "{canary}");
        assert_eq!(report["seeds_failed"].as_array().unwrap().len() as u64, violations, "{canary}");
        if canary != "ForgetChoices" {
            assert!(report[effect].as_u64().unwrap() > 0, "{canary}: {report}");
        }
        let failure = &report["failure"];
        assert_eq!(failure["seed"], report["seeds_failed"][0], "{canary}");
        let small = &failure["shrunk"];
        assert_eq!(small["violation"]["kind"], failure["violation"]["kind"], "{canary}");
        let again = replay(failure["replay"].as_str().unwrap(), &["--json"]);
        assert_eq!(again.code, Some(1), "{canary}: {}", again.stderr);
        let again = object(&again);
        assert_eq!((&again["violation"], &again["schedule"]), (&small["violation"], &small["schedule"]), "{canary}");
    }
}

#[test]
fn the_text_report_describes_the_first_failure() {
    let output = simulate(&["--schedules", "200", "--seed", "3", "--canary", "drop-record"]);
    assert_eq!(output.code, Some(1));
    let line = |with: &str| {
        output.stdout.lines().find(|line| line.contains(with)).unwrap_or_else(|| panic!("{}", output.stdout))
    };
    assert!(line("first failure: seed").contains("at event"));
    assert!(line("shrunk in").contains("at event"));
    let again = replay(line("counterfoil simulate").trim(), &["--tell"]);
    assert_eq!(again.code, Some(1));
    let violation = again.stdout.lines().last().unwrap();
    let description = violation.strip_prefix("violation at ").unwrap();
    assert!(line("shrunk in").ends_with(description), "{description}");
    assert!(again.stdout.contains("Killed { node:") || again.stdout.contains("Sent { rank:"), "{}", again.stdout);
}

#[test]
fn a_diagram_is_well_formed_and_has_a_row_per_rank() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.svg");
    let path = file.to_str().unwrap();
    for (seed, more) in [("1", &[][..]), ("2", &["--canary", "drop-record"]), ("3", &["--svg-events", "20..60"])] {
        let output =
            simulate(&[&["--schedules", "1", "--ranks", "4", "--seed", seed, "--svg", path, "--json"], more].concat());
        assert!(matches!(output.code, Some(0 | 1)), "{}", output.stderr);
        assert_eq!(object(&output)["svg"], path);
        let text = std::fs::read_to_string(&file).unwrap();
        let picture = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(picture.root_element().tag_name().name(), "svg");
        let with_class =
            |class: &str| picture.descendants().filter(|node| node.attribute("class") == Some(class)).count();
        assert_eq!(with_class("row"), 4);
        for rank in 0..4 {
            let id = format!("rank-{rank}");
            assert_eq!(picture.descendants().filter(|node| node.attribute("id") == Some(&id)).count(), 1, "{id}");
        }
        assert!(with_class("solid tip first") > 0);
    }
}

/// A campaign with one schedule is the same run as the schedule's replay.
#[test]
fn a_single_run_prints_its_events_and_its_schedule() {
    let output = simulate(&["--schedules", "1", "--seed", "9", "--tell", "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let first = object(&output);
    assert!(first["story"].as_array().unwrap().len() as u64 > first["events"].as_u64().unwrap());
    let again = object(&simulate(&["--replay", first["schedule"].as_str().unwrap(), "--tell", "--json"]));
    assert_eq!(first, again);
}

#[test]
fn an_interrupted_campaign_reports_the_completed_schedules() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.env("COUNTERFOIL_LOG", "counterfoil=debug");
        let mut child = spawn(command, &["--schedules", "100000000", "--threads", "2", "--json"]);
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("the first schedules are done") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended before any schedule was done");
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        let output = wait(child);
        assert_eq!(output.code, Some(130), "{rest}");
        assert!(rest.contains("interrupted after"), "{rest}");
        let report = object(&output);
        let done = report["schedules"].as_u64().unwrap();
        assert!(done > 0 && done < 100_000_000 && report["interrupted"] == true, "{report}");
        assert!(report["faults"].as_u64().unwrap() >= done, "{report}");
    }
}

const LINE: &str = "sim1 pattern=ring ranks=3 rounds=2 program=17 checkpoints=2 ordered=0 tier=volatile mode=uniform \
                    seed=5 faults=31:2:9";

#[test]
fn invalid_arguments_are_refused_with_exit_code_2() {
    for (arguments, message) in [
        (&["--ranks", "1"][..], "from 2 to 32"),
        (&["--ranks", "2..33"], "from 2 to 32"),
        (&["--ranks", "5..3"], "5 is more than 3"),
        (&["--ranks", "x"], "not a number"),
        (&["--rounds", "0"], "from 1 to 64"),
        (&["--faults", "65"], "from 0 to 64"),
        (&["--pattern", "rong"], "unknown pattern"),
        (&["--pattern", "calls"], "use --protocol user-level, coordinated, event-logging or message-tagging"),
        (&["--replay", CALLS], "use --protocol user-level, coordinated, event-logging or message-tagging"),
        (
            &["--protocol", "user-level", "--pattern", "calls-to-root"],
            "use --protocol coordinated, event-logging or message-tagging",
        ),
        (&["--protocol", "coordinated", "--clusters", "2"], "--clusters requires --protocol send-deterministic"),
        (&["--protocol", "coordinated", "--unnamed"], "--unnamed requires --protocol sender-based or pessimistic"),
        (&["--protocol", "user-level", "--bits", "piggybacked"], "--bits requires --protocol coordinated"),
        (&["--moment", "offered"], "--moment requires --protocol coordinated"),
        (&["--collections", "2"], "--collections requires --protocol send-deterministic or coordinated"),
        (&["--late"], "--late requires --protocol send-deterministic"),
        (&["--protocol", "unlogged"], "invalid value"),
        (&["--protocol", "user-level", "--unnamed"], "--unnamed requires"),
        (&["--workload", "ring,rong"], "unknown pattern"),
        (&["--protocol", "optimistic"], "invalid value"),
        (&["--canary", "nightingale"], "drop-record"),
        (&["--canary", "phase-not-raised"], "has no effect under sender-based; available: drop-record"),
        (&["--protocol", "send-deterministic", "--canary", "forget-choices"], "has no effect under send-deterministic"),
        (&["--protocol", "send-deterministic", "--canary", "deliver-dead"], "available: drop-record, forget-pending"),
        (&["--schedules", "0"], "--schedules"),
        (&["--threads", "0"], "--threads"),
        (&["--seed", "18446744073709551615", "--schedules", "2"], "too large for 2 schedules"),
        (&["--seed", "18446744073709551615", "--schedules", "1"], "too large for 1 schedule,"),
        (&["--replay", "sim9 pattern=ring"], "begins with `sim1`"),
        (&["--replay", "sim1 pattern=ring"], "`ranks`"),
        (&["--replay", LINE, "--seed", "3"], "cannot be used with"),
        (&["--replay", LINE, "--canary", "drop-record"], "cannot be used with"),
        (&["--replay", LINE, "--svg-events", "1..2"], "--svg"),
        (&["--replay", LINE, "--svg", "/dev/null", "--svg-events", "9..2"], "9 is more than 2"),
        (&["--replay", LINE, "--svg", "/dev/null", "--svg-events", "5000..6000"], "no events to draw"),
        (&["--tell"], "--schedules 1"),
        (&["--svg", "/dev/null", "--schedules", "2"], "--schedules 1"),
    ] {
        let output = simulate(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{arguments:?}");
    }
}

#[test]
fn an_unwritable_diagram_is_an_error() {
    let output = simulate(&["--replay", LINE, "--svg", "/nonexistent/run.svg", "--json"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("cannot write /nonexistent/run.svg"), "{}", output.stderr);
    assert_eq!(object(&output)["exit_code"], 1);
}

#[test]
fn canaries_are_listed_by_protocol_and_those_of_a_protocol_can_be_planted() {
    let listed = simulate(&["--canary", "list"]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let rows = simulate(&["--canary", "list", "--json"]);
    let rows = object(&rows);
    let rows = rows.as_array().unwrap();
    assert_eq!(listed.stdout.lines().count(), 2 * rows.len());
    for row in rows {
        let [name, description] = ["name", "description"].map(|field| row[field].as_str().unwrap());
        assert!(listed.stdout.contains(&format!("\n{name} ")) || listed.stdout.starts_with(name), "{name}");
        assert!(listed.stdout.contains(description), "{description}");
    }
    let of = |protocol: &str| {
        let named = |row: &&Value| row["protocols"].as_array().unwrap().iter().any(|name| name == protocol);
        rows.iter().filter(named).map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (plain, send_deterministic) = (of("sender-based"), of("send-deterministic"));
    assert!(plain.contains(&"forget-choices".into()) && !send_deterministic.contains(&"forget-choices".into()));
    assert!(!plain.contains(&"duplicate-by-phase".into()) && send_deterministic.contains(&"duplicate-by-phase".into()));
    let protocol = ["--protocol", "send-deterministic"];
    let found =
        simulate(&[&protocol[..], &["--schedules", "200", "--seed", "1", "--canary", "duplicate-by-phase"]].concat());
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    assert!(found.stdout.contains("with canary duplicate-by-phase"), "{}", found.stdout);
    let command = found.stdout.lines().find(|line| line.contains("--replay")).unwrap();
    assert!(command.contains("canary=send-deterministic/DuplicateByPhase"), "{command}");
    assert_eq!(replay(command.trim(), &[]).code, Some(1));
    let line = command.split('\'').nth(1).unwrap();
    assert_eq!(simulate(&["--replay", line]).code, Some(2), "not a canary of the default rule");
}

#[test]
fn the_coordinated_protocol_runs_collective_calls_and_draws_a_line() {
    for more in [&[][..], &["--bits", "piggybacked"], &["--bits", "piggybacked", "--moment", "offered"]] {
        let protocol = [&["--protocol", "coordinated"], more].concat();
        let options = ["--rounds", "3..8", "--collections", "2..8", "--schedules", "200", "--seed", "7", "--json"];
        let output = simulate(&[&protocol[..], &options].concat());
        let report = object(&output);
        assert_eq!(report["bits"], if more.is_empty() { "exchanged" } else { "piggybacked" });
        assert_eq!(report["moment"], if more.len() < 4 { "any-time" } else { "offered" });
        assert_eq!((output.code, &report["violations"]), (Some(0), &Value::from(0)), "{report}");
        for counter in ["calls", "calls_straddled", "late", "early", "rollbacks", "coordinator_faults"] {
            assert!(report[counter].as_u64().unwrap() > 0, "{counter}: {report}");
        }
        assert_eq!(simulate(&[&protocol[..], &["--replay", CALLS]].concat()).code, Some(0));
    }
}
