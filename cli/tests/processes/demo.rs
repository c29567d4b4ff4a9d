//! End-to-end tests of `counterfoil demo`, with real processes and real kills.

use counterfoil_runtime::local::SharedJobDirectory;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::output::ProgramOutput;
use crate::program::{Sandbox, is_alive, send, wait_until};

/// Runs the demo, which must succeed and leave no files.
fn run_demo(arguments: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let report = sandbox.demo(&arguments).checked_report();
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    report
}

fn kills(report: &Value) -> Vec<(u64, u64)> {
    let kills = report["kills"].as_array().unwrap().iter();
    kills.map(|kill| (kill["rank"].as_u64().unwrap(), kill["iteration"].as_u64().unwrap())).collect()
}

#[test]
fn the_default_kills_rank_2_in_iteration_7_of_cg_on_4_ranks() {
    let report = run_demo(&[]);
    assert_eq!((&report["workload"], &report["ranks"], &report["class"]), (&json!("cg"), &json!(4), &json!("S")));
    assert_eq!(kills(&report), [(2, 7)]);
    assert_eq!(report["kills"][0]["between_first_and_last_message"], true);
    assert_eq!((&report["same_events"], &report["checkpoints"]), (&json!(true), &json!(0)));
    for count in ["messages_logged", "messages_replayed"] {
        assert!(report[count].as_u64().unwrap() > 0, "{count}");
    }
    for phase in ["detect", "start", "replay", "catch_up"] {
        assert!(report["recovery_ms"][phase].as_f64().is_some(), "{phase}");
    }
    let value: f64 = report["value"].as_str().unwrap().parse().unwrap();
    assert!((value - 8.597_177_507_864_8).abs() < 1e-10);
}

#[test]
fn programs_recover_in_both_memory_tiers_with_and_without_checkpoints() {
    for workload in ["cg", "ring", "master-worker"] {
        for tier in ["volatile", "process-crash-safe"] {
            for checkpoints in [&[][..], &["--checkpoint-every", "3"]] {
                let mut arguments = vec!["--workload", workload, "--tier", tier, "--kill", "1@5"];
                arguments.extend(checkpoints);
                let report = run_demo(&arguments);
                assert_eq!(kills(&report), [(1, 5)], "{arguments:?}");
                assert_eq!(report["checkpoints"].as_u64().unwrap() > 0, !checkpoints.is_empty());
            }
        }
    }
}

#[test]
fn two_ranks_die_at_once() {
    for tier in ["volatile", "process-crash-safe"] {
        let report = run_demo(&["--tier", tier, "--kill", "1@6", "--kill", "2@6"]);
        let mut kills = kills(&report);
        kills.sort_unstable();
        assert_eq!(kills, [(1, 6), (2, 6)]);
    }
}

#[test]
fn all_ranks_die() {
    for tier in ["volatile", "process-crash-safe"] {
        let all = ["--kill", "0@6", "--kill", "1@6", "--kill", "2@6", "--kill", "3@6"];
        assert_eq!(kills(&run_demo(&[&["--tier", tier][..], &all].concat())).len(), 4);
        let with_checkpoints = ["--tier", tier, "--checkpoint-every", "4"];
        assert_eq!(kills(&run_demo(&[&with_checkpoints[..], &all].concat())).len(), 4);
    }
}

#[test]
fn the_same_rank_dies_again_and_again() {
    let report = run_demo(&["--workload", "ring", "--kill", "2@9", "--kill", "2@9", "--kill", "2@4", "--kill", "2@30"]);
    assert_eq!(kills(&report), [(2, 4), (2, 9), (2, 9), (2, 30)]);
    let incarnations: Vec<&Value> =
        report["kills"].as_array().unwrap().iter().map(|kill| &kill["incarnation"]).collect();
    assert_eq!(incarnations, [0, 1, 2, 3]);
}

#[test]
fn a_rank_dies_while_another_is_being_recovered() {
    for workload in ["cg", "ring", "master-worker"] {
        let report = run_demo(&["--workload", workload, "--kill", "2@6", "--kill", "1@recovery:2"]);
        let victims: Vec<u64> = kills(&report).iter().map(|kill| kill.0).collect();
        assert_eq!(victims, [2, 1]);
    }
}

#[test]
fn a_rank_dies_while_it_is_being_recovered_itself() {
    let report = run_demo(&["--kill", "2@6", "--kill", "2@recovery:2"]);
    let victims: Vec<u64> = kills(&report).iter().map(|kill| kill.0).collect();
    assert_eq!(victims, [2, 2]);
    assert_eq!(report["kills"][0]["recovery_ms"]["catch_up"], Value::Null);
}

#[test]
fn a_job_of_one_rank_recovers_from_itself() {
    assert_eq!(kills(&run_demo(&["--ranks", "1", "--workload", "ring", "--kill", "0@11"])), [(0, 11)]);
}

/// Each rank's number of rollbacks without a kill.
fn rolled_back(report: &Value) -> Vec<u64> {
    report["rolled_back"].as_array().unwrap().iter().map(|times| times.as_u64().unwrap()).collect()
}

#[test]
fn under_send_deterministic_only_ranks_of_the_recovery_line_roll_back() {
    for tier in ["volatile", "process-crash-safe", "node-local"] {
        let common = ["--protocol", "send-deterministic", "--tier", tier, "--checkpoint-every", "3"];
        let report = run_demo(&[&common[..], &["--clusters", "2", "--kill", "2@7"]].concat());
        // Ranks 2 and 3 are the higher cluster: messages from 0 and 1 to them were logged.
        assert_eq!((kills(&report), rolled_back(&report)), (vec![(2, 7)], vec![0, 0, 0, 1]), "{tier}");
        let kept = report["messages_kept"].as_u64().unwrap();
        assert!(kept > 0 && 5 * kept < report["messages_released"].as_u64().unwrap(), "{report}");
        // Within one cluster all ranks depend on each other.
        let report = run_demo(&[&common[..], &["--clusters", "1", "--kill", "2@7"]].concat());
        assert_eq!(rolled_back(&report), [1, 1, 0, 1], "{tier}");
    }
}

#[test]
fn send_deterministic_survives_several_failures() {
    let protocol = ["--protocol", "send-deterministic", "--checkpoint-every", "2"];
    for more in [
        &["--kill", "1@5", "--kill", "2@5"][..],
        &["--kill", "0@5", "--kill", "0@5", "--kill", "3@9"],
        &["--kill", "2@6", "--kill", "0@recovery:2", "--kill", "2@recovery:2"],
        &["--workload", "ring", "--ranks", "5", "--clusters", "5", "--kill", "4@9", "--kill", "1@20"],
        &["--ranks", "8", "--clusters", "3", "--kill", "7@4", "--kill", "1@recovery:7"],
        &["--tier", "node-local", "--power-cut", "8", "--kill", "1@10"],
        &["--ranks", "1", "--kill", "0@3"],
    ] {
        run_demo(&[&protocol[..], more].concat());
    }
}

#[test]
fn options_that_send_deterministic_does_not_support_are_refused() {
    let usage = |arguments: &[&str]| {
        let output = Sandbox::new().demo(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {}", output.stderr);
        output.stderr
    };
    let rule = ["--protocol", "send-deterministic"];
    assert!(usage(&[&rule[..], &["--workload", "master-worker"]].concat()).contains("depend on its receive order"));
    assert!(usage(&[&rule[..], &["--clusters", "5"]].concat()).contains("only 4 ranks"));
    assert!(usage(&["--clusters", "2"]).contains("send-deterministic"));
    assert!(usage(&[&rule[..], &["--keep", "acked"]].concat()).contains("couldn't be replayed"));
    usage(&[&rule[..], &["--clusters", "0"]].concat());
}

#[test]
fn a_rank_killed_by_another_process_is_replaced() {
    // At any time: before its first message, in the middle of the run, or after its last message.
    for workload in ["cg", "ring", "master-worker"] {
        let sandbox = Sandbox::new();
        let demo = sandbox.start(&["--json", "--no-kills", "--workload", workload, "--class", "W"]);
        for victim in demo.await_ranks(4) {
            send(victim, Signal::KILL);
        }
        demo.wait().checked_report();
        assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    }
}

#[test]
fn ranks_die_with_a_killed_launcher_and_clean_removes_its_files() {
    let sandbox = Sandbox::new();
    let demo = sandbox.start(&["--class", "A"]);
    let ranks = demo.freeze(&sandbox, 4);
    demo.signal(Signal::KILL);
    demo.wait();
    wait_until("all ranks have died with their launcher", || !ranks.iter().any(|pid| is_alive(*pid)));
    assert_eq!(sandbox.remaining_jobs().len(), 2);
    let cleaned = sandbox.clean(&[]);
    assert!(cleaned.status.success());
    let cleaned: Value = serde_json::from_slice(&cleaned.stdout).unwrap();
    let removed = cleaned["removed"].as_array().unwrap();
    assert!(sandbox.remaining_jobs().is_empty() && removed.len() >= 2, "{cleaned}");
}

#[test]
fn clean_leaves_running_jobs_alone() {
    let sandbox = Sandbox::new();
    let demo = sandbox.start(&["--class", "A", "--json"]);
    demo.freeze(&sandbox, 4);
    let cleaned = sandbox.clean(&[]);
    demo.signal(Signal::CONT);
    let cleaned: Value = serde_json::from_slice(&cleaned.stdout).unwrap();
    let here = sandbox.path().to_str().unwrap();
    let mentions = |list: &str| cleaned[list].to_string().contains(here);
    assert!(mentions("live") && !mentions("removed"), "{cleaned}");
    demo.wait().checked_report();
}

#[test]
fn clean_removes_a_named_job_by_its_name_only() {
    let sandbox = Sandbox::new();
    let name = SharedJobDirectory::directory_name("heat").unwrap();
    let job = SharedJobDirectory::join(&name, sandbox.path(), sandbox.path()).unwrap();
    let removed = |arguments: &[&str]| {
        let cleaned = sandbox.clean(arguments);
        assert!(cleaned.status.success());
        let cleaned: Value = serde_json::from_slice(&cleaned.stdout).unwrap();
        cleaned["removed"].as_array().unwrap().iter().filter(|path| path.as_str().unwrap().contains(&name)).count()
    };
    assert_eq!(removed(&["--job", "heat"]), 0);
    drop(job);
    assert_eq!((removed(&[]), removed(&["--job", "cold"]), removed(&["--job", "cold", "--job", "heat"])), (0, 0, 2));
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    let refused = sandbox.clean(&["--job", "../heat"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--job: \"../heat\" is no name of a job"));
}

#[test]
fn a_signal_stops_the_job_and_leaves_no_files() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let sandbox = Sandbox::new();
        let demo = sandbox.start(&["--class", "A"]);
        let ranks = demo.await_ranks(4);
        demo.signal(signal);
        let output = demo.wait();
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains("interrupted"), "{}", output.stderr);
        assert!(!ranks.iter().any(|pid| is_alive(*pid)));
        assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    }
}

/// Runs the demo, which must fail with this exit code and leave no files.
fn failing_demo(arguments: &[&str], code: i32) -> ProgramOutput {
    let sandbox = Sandbox::new();
    let output = sandbox.demo(arguments);
    assert_eq!(output.code, Some(code), "{arguments:?}: {}", output.stderr);
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new(), "{arguments:?}");
    output
}

#[test]
fn invalid_arguments_are_refused_with_exit_code_2() {
    for (arguments, message) in [
        (&["--ranks", "0"][..], "at least one rank"),
        (&["--ranks", "x"], "invalid"),
        (&["--ranks", "100000"], "at most 1024"),
        (&["--tier", "node-local", "--disk-budget", "1KiB"], "--disk-budget"),
        (&["--workload", "fft"], "no workload"),
        (&["--class", "Z"], "no class"),
        (&["--ranks", "3"], "power of two"),
        (&["--workload", "master-worker", "--ranks", "1"], "at least 2"),
        (&["--kill", "4@1"], "no rank 4"),
        (&["--kill", "1@recovery:4"], "no rank 4"),
        (&["--kill", "1@recovery:1"], "nothing else kills rank 1"),
        (&["--kill", "1@recovery:2", "--kill", "3@4"], "nothing else kills rank 2"),
        (&["--kill", "2"], "RANK@ITERATION"),
        (&["--kill", "2@0"], "from 1"),
        (&["--kill", "two@7"], "not a rank"),
        (&["--budget", "100"], "--budget"),
        (&["--budget", "1KiB"], "at least 65536"),
        (&["--tier", "node-local", "--disk-budget", "1KiB"], "at least 17825792"),
        (&["--time-limit", "0"], "--time-limit"),
        (&["--keep-files", "/nonexistent/dir"], "cannot be used with"),
        (&["--budget", "1XB"], "with the unit KiB, MiB or GiB"),
        (&["--checkpoint-every", "0"], "checkpoint-every"),
        (&["--tier", "paper"], "tier"),
    ] {
        let output = failing_demo(arguments, 2);
        assert!(output.stderr.contains(message), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn with_json_errors_are_objects_too() {
    let output = failing_demo(&["--ranks", "0", "--json"], 2);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(value["exit_code"], 2);
    assert!(value["error"].as_str().unwrap().contains("at least one rank"), "{value}");
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let output = command.args(["demo", "--ranks", "1", "--no-kills"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to standard output"), "{stderr}");
    assert!(stderr.contains("cg of class S on 1 rank\n"), "{stderr}");
}

#[test]
fn a_kill_that_can_never_happen_is_refused() {
    let output = failing_demo(&["--kill", "2@99", "--kill", "1@3"], 2);
    assert!(
        output.stderr.contains("--kill 2@99 would never happen") && output.stderr.contains("15"),
        "{}",
        output.stderr
    );
    let output = failing_demo(&["--tier", "node-local", "--power-cut", "999"], 2);
    assert!(output.stderr.contains("--power-cut 999 would never happen"), "{}", output.stderr);
    let output = failing_demo(&["--no-kills", "--kill", "2@99"], 2);
    assert!(output.stderr.contains("cannot be used with"), "{}", output.stderr);
}

#[test]
fn a_kill_that_did_not_happen_is_an_error_with_exit_code_1() {
    // Each of the three workers can get 48 of the 72 tasks, but not two of them.
    let output = failing_demo(&["--workload", "master-worker", "--kill", "1@48", "--kill", "2@48"], 1);
    assert!(output.stderr.contains("@48 never happened"), "{}", output.stderr);
}

#[test]
fn a_job_over_its_time_limit_names_the_stuck_ranks_and_their_last_progress() {
    let sandbox = Sandbox::new();
    let demo = sandbox.start(&["--class", "A", "--no-kills", "--time-limit", "3"]);
    let ranks = demo.await_ranks(4);
    send(ranks[1], Signal::STOP);
    let output = demo.wait();
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let stuck = format!("process {})", ranks[1]);
    for words in ["the job was not done after 3s", "4 of 4 ranks were not done: rank", "s ago", &stuck] {
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
}

#[test]
fn kept_files_are_sound_and_the_only_ones_left() {
    let sandbox = Sandbox::new();
    let keep = sandbox.path().join("kept");
    let run = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(["demo", "--tier", "node-local", "--checkpoint-every", "3", "--power-cut", "8", "--keep-files"]);
        command.arg(&keep).arg("--shm-dir").arg(sandbox.path()).output().unwrap()
    };
    let output = run();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("none: every rank was killed"), "{stdout}");
    assert!(stdout.contains(&format!("counterfoil log inspect {}", keep.display())), "{stdout}");
    let mut names: Vec<_> = std::fs::read_dir(&keep).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["rank-0", "rank-1", "rank-2", "rank-3"]);
    let mut verify = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    assert!(verify.args(["log", "verify"]).arg(&keep).output().unwrap().status.success());
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    // Without a store there are no files to keep.
    let mut none = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let none = none.args(["demo", "--keep-files"]).arg(sandbox.path().join("none")).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("--tier node-local or --checkpoint-every"));
    assert!(!sandbox.path().join("none").exists());
    // An existing directory is never overwritten.
    let again = run();
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--keep-files"));
}

#[test]
fn a_log_too_small_for_one_message_is_refused() {
    // The ring's largest token has 200,000 bytes, and a block for it, with all headers, 212,992.
    for budget in ["100KiB", "212991"] {
        let output = failing_demo(&["--workload", "ring", "--budget", budget], 2);
        assert!(output.stderr.contains("200000 bytes") && output.stderr.contains("212992"), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
    // Enough for one message, but not for two.
    let output = failing_demo(&["--workload", "ring", "--budget", "212992", "--on-full", "fail"], 1);
    assert!(output.stderr.contains("the log is full"), "{}", output.stderr);
}

#[test]
fn a_full_log_fails_or_stops_as_requested() {
    let output = failing_demo(&["--workload", "ring", "--budget", "1MiB", "--on-full", "fail"], 1);
    assert!(output.stderr.contains("the log is full"), "{}", output.stderr);
    let report = run_demo(&["--workload", "ring", "--budget", "1MiB", "--on-full", "stop-logging", "--no-kills"]);
    assert!(report["logging_stopped"].as_u64().unwrap() > 0);
    // Checkpoints free memory.
    run_demo(&["--workload", "ring", "--budget", "2MiB", "--checkpoint-every", "1"]);
}

#[test]
fn kills_are_refused_if_messages_are_not_kept() {
    let output = failing_demo(&["--keep", "acked", "--kill", "2@9"], 2);
    assert!(output.stderr.contains("can't be replayed"), "{}", output.stderr);
    run_demo(&["--keep", "acked", "--no-kills"]);
}

#[test]
fn unusable_directories_are_refused() {
    let sandbox = Sandbox::new();
    let missing = sandbox.path().join("missing");
    let run = |option: &str, value: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let output = command.args(["demo", option, value]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run("--shm-dir", missing.to_str().unwrap());
    assert!(code == Some(1) && stderr.contains("missing"), "{stderr}");
    let (code, stderr) = run("--checkpoint-dir", missing.to_str().unwrap());
    assert!(code == Some(1) && stderr.contains("missing"), "{stderr}");
    let long = sandbox.path().join("x".repeat(100));
    std::fs::create_dir(&long).unwrap();
    let (code, stderr) = run("--shm-dir", long.to_str().unwrap());
    assert!(code == Some(1) && stderr.contains("shorter directory"), "{stderr}");
    assert_eq!(std::fs::read_dir(long).unwrap().count(), 0);
}

#[test]
fn the_text_summary_reports_kills_and_results() {
    let output = Sandbox::new().demo(&["--seed", "77"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for words in ["rank 2 killed in iteration 7", "verified: yes", "0 lost", "3 ranks undisturbed", "seed 77"] {
        assert!(output.stdout.contains(words), "{words}: {}", output.stdout);
    }
}
