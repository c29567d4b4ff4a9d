//! Stores without a valid manifest slot, and directory entries that aren't regular files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use counterfoil::{Log, create_private_dir};
use serde_json::{Value, json};

use super::fixture::{MESSAGES, Stores, array, files, flip, log, log_json};

const COMMANDS: [&str; 5] = ["inspect", "verify", "dump", "stats", "repair"];

/// Damages both manifest slots.
fn spoil(store: &Path, how: &str) {
    let manifest = store.join("manifest");
    let bytes = fs::metadata(&manifest).unwrap().len();
    match how {
        "zeros" => fs::write(manifest, vec![0; bytes as usize]).unwrap(),
        // The version's lowest byte.
        "version" => [8, bytes / 2 + 8].into_iter().for_each(|at| flip(&manifest, at)),
        _ => [40, bytes / 2 + 40].into_iter().for_each(|at| flip(&manifest, at)),
    }
}

/// Returns the text by which a command reports the lack of a valid slot; `dump` and `repair` print the store's own
/// error.
fn no_valid_slot(command: &str) -> &'static str {
    if ["dump", "repair"].contains(&command) { "without it no checkpoint is valid" } else { "no valid manifest slot" }
}

#[test]
fn every_command_reports_a_manifest_without_a_valid_slot() {
    for how in ["zeros", "version", "session"] {
        let stores = Stores::new();
        let store = stores.intact();
        spoil(&store, how);
        let spoiled = files(&store);
        for command in COMMANDS {
            let output = log(&[command], &store);
            assert_eq!(output.code, Some(1), "{how} {command}");
            let text = output.stdout + &output.stderr;
            assert!(text.contains(no_valid_slot(command)), "{how} {command}: {text}");
            assert!(!text.contains("log repair") && !text.contains("no store"), "{how} {command}: {text}");
            assert!(!text.contains("newer") && !text.contains("the program that wrote it"), "{how} {command}: {text}");
            assert!(!text.contains("that wrote the store"), "{how} {command}: {text}");
        }
        let (_, verified) = log_json(&["verify"], &store);
        assert!(verified["advice"].as_str().unwrap().contains("restore"), "{verified}");
        let (_, inspected) = log_json(&["inspect"], &store);
        assert_eq!((&inspected["sound"], &inspected["left_over"]), (&json!(false), &json!([])));
        assert!(array(&inspected["segments"]).iter().any(|segment| segment["unreferenced_bytes"] != 0), "{inspected}");
        // Readable records are shown on request.
        let (code, dump) = log_json(&["dump", "--all"], &store);
        assert_eq!((code, array(&dump["errors"]).len(), &dump["rank"]), (Some(1), 1, &Value::Null));
        let of_lanes = array(&dump["records"]).iter().filter(|record| record["lane"] != "local").count();
        assert!(of_lanes as u64 >= 3 * MESSAGES, "{of_lanes}");
        let (_, stats) = log_json(&["stats"], &store);
        assert_eq!((&stats["needed"], array(&stats["errors"]).len()), (&Value::Null, 1));
        assert!(Log::recover(stores.options(0)).is_err());
        assert!(files(&store) == spoiled, "{how}: a command changes files");
    }
}

#[test]
fn one_valid_slot_is_enough() {
    let stores = Stores::new();
    let store = stores.intact();
    flip(&store.join("manifest"), 8);
    let output = log(&["verify"], &store);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains("slot 0 is damaged; the other one is used"), "{}", output.stdout);
    assert_eq!(log(&["repair"], &store).code, Some(0));
    assert!(!log(&["verify"], &store).stdout.contains("slot"));
}

#[test]
fn an_incomplete_creation_is_not_a_store() {
    let stores = Stores::new();
    let store = stores.rank(0);
    create_private_dir(&store).unwrap();
    fs::write(store.join("manifest"), vec![0; 8192]).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(store.join("manifest"), mode).unwrap();
    for command in COMMANDS {
        let output = log(&[command], &store);
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{command}");
        assert!(output.stderr.contains("its creation was not completed"), "{command}: {}", output.stderr);
    }
    drop(Log::create(stores.options(0)).unwrap());
}

/// Returns `true` for lines about foreign entries, and for verdicts.
fn is_about_foreign_entries(line: &str) -> bool {
    line.contains(", ignored: the store can't be opened") || line.starts_with("  BLOCKED") || line == "  sound"
}

#[test]
fn entries_with_the_name_of_a_segment_that_are_no_files_are_named_and_ignored() {
    let stores = Stores::new();
    let store = stores.intact();
    let right: Vec<String> = COMMANDS.iter().map(|command| log(&[command], &store).stdout).collect();
    let victim = stores.dir().join("victim");
    fs::write(&victim, "x").unwrap();
    symlink(&victim, store.join("segment-00000097")).unwrap();
    fs::create_dir(store.join("segment-00000098")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(store.join("segment-00000099")).status().unwrap().success());
    for (command, right) in COMMANDS.into_iter().zip(right) {
        let output = log(&[command], &store);
        // Nothing is damaged, but the store can't be opened for writing; only `verify` gives a verdict.
        let verdict = command == "verify";
        assert_eq!(output.code, Some(i32::from(verdict)), "{command}: {}{}", output.stdout, output.stderr);
        assert_eq!(output.stdout.contains("  BLOCKED"), verdict, "{command}");
        let of_the_store = |text: &str| {
            text.lines().filter(|line| !is_about_foreign_entries(line)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_the_store(&output.stdout), of_the_store(&right), "{command}");
    }
    for command in ["inspect", "verify", "repair"] {
        let text = log(&[command], &store).stdout;
        for what in ["097 is a symbolic link", "098 is a directory", "099 is a named pipe"] {
            assert!(text.contains(what), "{command}: {text}");
        }
    }
    let (_, inspected) = log_json(&["inspect"], &store);
    assert_eq!(array(&inspected["not_files"]).len(), 3);
    let error = Log::recover(stores.options(0)).unwrap_err().to_string();
    assert!(error.contains("segment-00000097") && error.contains("a symbolic link"), "{error}");
    assert_eq!(fs::read(victim).unwrap(), b"x");
}

#[test]
fn a_missing_lane_is_an_error_and_an_empty_one_is_reported() {
    let stores = Stores::new();
    let store = stores.intact();
    for peer in ["4", "99", "4294967295"] {
        let output = log(&["dump", "--peer", peer], &store);
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        assert!(output.stderr.contains("no lane to rank"), "{}", output.stderr);
    }
    let output = log(&["dump", "--peer", "1", "--ssn", "100000.."], &store);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains("lane to rank 1: no matching records"), "{}", output.stdout);
}
