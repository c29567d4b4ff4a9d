//! Tests of the coordinated protocol, with the demo: the whole job goes back to the last committed line, and ends with
//! the same bytes.

use serde_json::{Value, json};

use crate::program::Sandbox;

/// Runs the demo under the protocol; it must succeed and leave no files.
fn run_demo(arguments: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let report = sandbox.demo(&[&["--protocol", "coordinated", "--json"], arguments].concat()).checked_report();
    assert_eq!(sandbox.remaining_jobs(), Vec::<String>::new());
    assert_eq!(report["protocol"], json!("coordinated"));
    assert_eq!(report["digest_equal"], json!(true), "{report}");
    report
}

#[test]
fn every_workload_goes_back_as_a_whole_and_ends_with_the_same_bytes() {
    for workload in ["cg", "ring", "master-worker"] {
        for (tier, bits) in
            [("volatile", "exchanged"), ("process-crash-safe", "piggybacked"), ("node-local", "exchanged")]
        {
            let options = ["--workload", workload, "--tier", tier, "--bits", bits, "--checkpoint-every", "2"];
            let report = run_demo(&[&options[..], &["--kill", "2@9"]].concat());
            let lines = report["lines"].as_array().unwrap();
            assert_eq!((lines.len(), &report["survivors"]), (1, &json!(0)), "{report}");
            assert!(report["messages_kept"] == 0 && report["rolled_back"].as_array().unwrap().len() == 4, "{report}");
        }
    }
}

#[test]
fn without_checkpoints_the_job_begins_again() {
    let report = run_demo(&["--workload", "ring", "--kill", "1@5"]);
    assert_eq!((&report["lines"], &report["checkpoints"]), (&json!([1]), &json!(0)));
    let text = Sandbox::new().demo(&["--protocol", "coordinated", "--workload", "ring", "--kill", "1@5"]);
    assert!(text.stdout.contains("went back       the whole job, to the start"), "{}", text.stdout);
}

#[test]
fn several_ranks_die_also_within_calls_and_while_the_job_goes_back() {
    let every = ["--checkpoint-every", "1"];
    for more in [
        &["--kill", "1@6", "--kill", "2@6"][..],
        &["--kill", "2@6", "--kill", "1@recovery:2"],
        &["--workload", "ring", "--kill", "2@9:collective", "--bits", "piggybacked"],
        &["--workload", "ring", "--kill", "2@9:checkpoint"],
        &["--workload", "ring", "--kill", "1@9:send", "--kill", "1@recovery:1", "--kill", "3@recovery:1"],
        &["--workload", "master-worker", "--kill", "0@6", "--kill", "3@repair:0"],
        &["--ranks", "1", "--workload", "ring", "--kill", "0@11"],
    ] {
        run_demo(&[&every[..], more].concat());
    }
}

#[test]
fn an_initiator_that_is_lost_is_replaced_and_nobody_rolls_back_for_it() {
    let every = ["--workload", "ring", "--checkpoint-every", "1", "--lose-initiator", "5", "--lose-initiator", "14"];
    let report = run_demo(&every);
    assert_eq!((&report["initiators_lost"], &report["lines"]), (&json!(2), &json!([])), "{report}");
    assert_eq!(report["survivors"], json!(4));
    let report = run_demo(&[&every[..], &["--kill", "2@15", "--kill", "1@recovery:2"]].concat());
    assert_eq!(report["initiators_lost"], json!(2), "{report}");
}

#[test]
fn after_a_power_cut_the_job_continues_from_the_line() {
    for workload in ["cg", "ring"] {
        let options = ["--workload", workload, "--tier", "node-local", "--checkpoint-every", "2", "--power-cut", "11"];
        let report = run_demo(&options);
        assert_eq!(report["power_cuts"].as_array().unwrap().len(), 1, "{report}");
    }
}

#[test]
fn options_of_other_protocols_are_refused() {
    for arguments in [
        &["--protocol", "coordinated", "--clusters", "2"][..],
        &["--protocol", "pessimistic", "--bits", "piggybacked"],
        &["--protocol", "pessimistic", "--lose-initiator", "3"],
    ] {
        assert_eq!(Sandbox::new().demo(arguments).code, Some(2), "{arguments:?}");
    }
}
