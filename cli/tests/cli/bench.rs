//! End-to-end tests of `counterfoil bench` and the help.

use std::process::{Command, Output};

use serde_json::Value;

fn counterfoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(arguments).output().unwrap()
}

#[test]
fn the_requested_number_of_rounds_is_run() {
    let output = counterfoil(&["bench", "append", "--quick", "--rounds", "3", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.len() > 8 && rows.iter().all(|row| row["rounds"] == 3), "{rows:?}");
}

#[test]
fn a_missing_directory_is_named_in_the_error() {
    for what in ["spill", "recover", "disk-replay", "spilling"] {
        let output = counterfoil(&["bench", what, "--quick", "--dir", "/nonexistent"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr.contains("--dir: /nonexistent") && !stderr.contains("shared-memory"), "{stderr}");
    }
}

#[test]
fn the_filter_variable_is_in_the_help_and_invalid_values_are_reported() {
    let output = counterfoil(&["--help"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("COUNTERFOIL_LOG"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["clean", "--json"]);
    for (value, is_valid) in [("a=b=c", false), ("loud", false), ("info,counterfoil_runtime=debug,counterfoil", true)] {
        let output = command.env("COUNTERFOIL_LOG", value).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.contains("COUNTERFOIL_LOG") && stderr.contains("ignored"), !is_valid, "{stderr}");
    }
}
