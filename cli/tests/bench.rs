//! `counterfoil bench` and the help, the real program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use serde_json::Value;

fn counterfoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(arguments).output().unwrap()
}

#[test]
fn there_are_as_many_rounds_as_were_asked_for() {
    let output = counterfoil(&["bench", "append", "--quick", "--rounds", "3", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.len() > 8 && rows.iter().all(|row| row["rounds"] == 3), "{rows:?}");
}

#[test]
fn a_directory_that_is_not_there_is_what_is_wrong() {
    for what in ["spill", "recover", "disk-replay", "spilling"] {
        let output = counterfoil(&["bench", what, "--quick", "--dir", "/nonexistent"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("--dir: /nonexistent") && !said.contains("shared-memory"), "{said}");
    }
}

#[test]
fn the_variable_that_says_what_is_reported_is_in_the_help_and_a_wrong_value_is_said() {
    let output = counterfoil(&["--help"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("COUNTERFOIL_LOG"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["clean", "--json"]);
    for (value, is_right) in [("a=b=c", false), ("loud", false), ("info,counterfoil_runtime=debug,counterfoil", true)] {
        let output = command.env("COUNTERFOIL_LOG", value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("COUNTERFOIL_LOG") && said.contains("ignored"), !is_right, "{said}");
    }
}
