//! Settings and checks of the machine, which need no MPI.

use std::fs;

use serde_json::Value;

use super::sandbox::Sandbox;

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
    is("protocol", "sender-based", "default");
    is("tier", "node-local", "default");
    assert_eq!(found["file"], "counterfoil.toml");
    let text = sandbox.counterfoil(&["config"]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.lines().any(|line| line.contains("keep") && line.contains("checkpoint")), "{}", text.stdout);
}

#[test]
fn files_with_unknown_settings_are_refused() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("counterfoil.toml"), "kepe = \"all\"\n").unwrap();
    sandbox.counterfoil(&["config"]).assert_exit(2, "unknown setting `kepe`");
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
