//! Settings and machine checks, without MPI.

use std::fs;

use serde_json::Value;

use super::sandbox::Sandbox;
use crate::output::ProgramOutput;

#[test]
fn each_setting_has_its_origin() {
    let sandbox = Sandbox::new();
    fs::write(
        sandbox.path().join("counterfoil.toml"),
        "keep = \"checkpoint\"\nbudget = \"8MiB\"\non-full = \"fail\"\n",
    )
    .unwrap();
    let mut command = sandbox.command(&["config", "--keep", "all", "--json"]);
    let output = command.env("COUNTERFOIL_BUDGET", "16MiB").output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is = |name: &str, value: &str, source: &str| {
        let setting = &found["settings"][name];
        assert_eq!((setting["value"].as_str(), setting["source"].as_str()), (Some(value), Some(source)), "{name}");
    };
    is("keep", "all", "option");
    is("budget", "16MiB", "environment");
    is("on-full", "fail", "file");
    is("logging", "on", "default");
    is("tier", "node-local", "default");
    assert_eq!(found["file"], "counterfoil.toml");
    let text = sandbox.counterfoil(&["config"]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.lines().any(|line| line.contains("keep") && line.contains("checkpoint")), "{}", text.stdout);
}

#[test]
fn a_size_may_have_a_space_before_its_unit() {
    let sandbox = Sandbox::new();
    let budget = |output: ProgramOutput| -> Value {
        let found: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.stderr));
        found["settings"]["budget"]["value"].clone()
    };
    assert_eq!(budget(sandbox.counterfoil(&["config", "--json", "--budget", "8 MiB"])), "8MiB");
    let mut command = sandbox.command(&["config", "--json"]);
    assert_eq!(budget(command.env("COUNTERFOIL_BUDGET", "16 MiB").output().unwrap().into()), "16MiB");
    fs::write(sandbox.path().join("counterfoil.toml"), "budget = \"64 KiB\"\n").unwrap();
    assert_eq!(budget(sandbox.counterfoil(&["config", "--json"])), "64KiB");
}

#[test]
fn unknown_settings_are_refused_in_a_file_and_named_in_the_environment() {
    let sandbox = Sandbox::new();
    for name in ["kepe", "protocol"] {
        fs::write(sandbox.path().join("counterfoil.toml"), format!("{name} = \"all\"\n")).unwrap();
        sandbox.counterfoil(&["config"]).assert_exit(2, &format!("unknown setting `{name}`; the settings are mpi, "));
    }
    fs::remove_file(sandbox.path().join("counterfoil.toml")).unwrap();
    let output = sandbox.command(&["config"]).env("COUNTERFOIL_PROTOCOL", "sender-based").output().unwrap();
    ProgramOutput::from(output).assert_exit(0, "warning: unknown variable COUNTERFOIL_PROTOCOL is ignored");
}

#[test]
fn a_missing_file_is_refused_if_it_is_named() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["config"]);
    let output = command.env("COUNTERFOIL_CONFIG", "none.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot read none.toml"));
}

#[test]
fn doctor_checks_the_machine_and_leaves_no_files() {
    let sandbox = Sandbox::new();
    let output = sandbox.counterfoil(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    for what in ["MPI", "io_uring", "locked memory", "shared memory", "disk"] {
        let finding = found["findings"].as_array().unwrap().iter().find(|one| one["what"] == what).unwrap();
        let has_advice = finding["advice"].is_string();
        assert_eq!(finding["state"] != "good", has_advice, "unless good, a finding has advice: {finding}");
    }
    let disk = found["findings"].as_array().unwrap().iter().find(|one| one["what"] == "disk").unwrap();
    assert!(disk["disk_bytes_per_s"].as_f64().unwrap() > 0.0, "{disk}");
    assert_eq!(sandbox.remaining_jobs(), Vec::<std::path::PathBuf>::new());
    let missing = sandbox.counterfoil(&["doctor", "--dir", "/nonexistent"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stdout.contains("--dir"), "{}", missing.stdout);
}
