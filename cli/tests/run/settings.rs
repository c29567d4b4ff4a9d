//! What needs no MPI: settings, and what this machine offers.

use std::fs;

use serde_json::Value;

use super::place::Place;

#[test]
fn each_setting_says_where_it_comes_from() {
    let place = Place::new();
    fs::write(place.path().join("counterfoil.toml"), "keep = \"checkpoint\"\nbudget = \"8MiB\"\non-full = \"fail\"\n")
        .unwrap();
    let mut command = place.command(&["config", "--keep", "all", "--json"]);
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
    let text = place.counterfoil(&["config"]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.lines().any(|line| line.contains("keep") && line.contains("checkpoint")), "{}", text.stdout);
}

#[test]
fn a_file_with_something_else_in_it_is_refused() {
    let place = Place::new();
    fs::write(place.path().join("counterfoil.toml"), "kepe = \"all\"\n").unwrap();
    place.counterfoil(&["config"]).says(2, "there is no setting `kepe`");
    let mut command = place.command(&["config"]);
    let output = command.env("COUNTERFOIL_CONFIG", "none.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot read none.toml"));
}

#[test]
fn a_machine_is_looked_at_and_nothing_is_left() {
    let place = Place::new();
    let ended = place.counterfoil(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    for what in ["MPI", "io_uring", "locked memory", "shared memory", "disk"] {
        let finding = found["findings"].as_array().unwrap().iter().find(|one| one["what"] == what).unwrap();
        let has_advice = finding["advice"].is_string();
        assert_eq!(finding["state"] != "good", has_advice, "what lacks has advice: {finding}");
    }
    let disk = found["findings"].as_array().unwrap().iter().find(|one| one["what"] == "disk").unwrap();
    assert!(disk["disk_bytes_per_s"].as_f64().unwrap() > 0.0, "{disk}");
    assert_eq!(place.left_behind(), Vec::<std::path::PathBuf>::new());
    let nowhere = place.counterfoil(&["doctor", "--dir", "/nonexistent"]);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.stdout.contains("--dir"), "{}", nowhere.stdout);
}
