//! Stores of which nothing says what counts, and entries that are no files: every command says the same of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use counterfoil::{Log, create_private_dir};
use serde_json::{Value, json};

use super::stores::{MESSAGES, Stores, array, files, flip, log, log_json};

const COMMANDS: [&str; 5] = ["inspect", "verify", "dump", "stats", "repair"];

/// Neither slot of the manifest is whole any more.
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

#[test]
fn where_no_slot_is_whole_every_command_says_that_nothing_says_what_counts() {
    for how in ["zeros", "version", "session"] {
        let stores = Stores::new();
        let store = stores.whole();
        spoil(&store, how);
        let spoiled = files(&store);
        for command in COMMANDS {
            let ended = log(&[command], &store);
            assert_eq!(ended.code, Some(1), "{how} {command}");
            let said = ended.stdout + &ended.stderr;
            assert!(said.contains("nothing says which"), "{how} {command}: {said}");
            assert!(!said.contains("log repair") && !said.contains("no store"), "{how} {command}: {said}");
            assert!(!said.contains("newer") && !said.contains("the program that wrote it"), "{how} {command}: {said}");
        }
        let (_, verified) = log_json(&["verify"], &store);
        assert!(verified["advice"].as_str().unwrap().contains("restore"), "{verified}");
        let (_, inspected) = log_json(&["inspect"], &store);
        assert_eq!((&inspected["sound"], &inspected["left_over"]), (&json!(false), &json!([])));
        assert!(array(&inspected["segments"]).iter().any(|segment| segment["unreferenced_bytes"] != 0), "{inspected}");
        // What is there is shown where it is asked for.
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
fn one_slot_is_enough_whatever_bit_of_the_other_flips() {
    let stores = Stores::new();
    let store = stores.whole();
    flip(&store.join("manifest"), 8);
    let ended = log(&["verify"], &store);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("slot 0 is damaged; the other one counts"), "{}", ended.stdout);
    assert_eq!(log(&["repair"], &store).code, Some(0));
    assert!(!log(&["verify"], &store).stdout.contains("slot"));
}

#[test]
fn a_creation_that_was_not_finished_is_no_store_to_any_command() {
    let stores = Stores::new();
    let store = stores.rank(0);
    create_private_dir(&store).unwrap();
    fs::write(store.join("manifest"), vec![0; 8192]).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(store.join("manifest"), mode).unwrap();
    for command in COMMANDS {
        let ended = log(&[command], &store);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{command}");
        assert!(ended.stderr.contains("its creation wasn't finished"), "{command}: {}", ended.stderr);
    }
    drop(Log::create(stores.options(0)).unwrap());
}

/// What `log` says of files that are in the way, and the verdict that it comes to.
fn is_about_strays(line: &str) -> bool {
    line.contains("was passed over") || line.starts_with("  IN THE WAY") || line == "  sound"
}

#[test]
fn what_has_the_name_of_a_segment_and_is_none_is_named_and_passed_over() {
    let stores = Stores::new();
    let store = stores.whole();
    let right: Vec<String> = COMMANDS.iter().map(|command| log(&[command], &store).stdout).collect();
    let victim = stores.dir().join("victim");
    fs::write(&victim, "x").unwrap();
    symlink(&victim, store.join("segment-00000097")).unwrap();
    fs::create_dir(store.join("segment-00000098")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(store.join("segment-00000099")).status().unwrap().success());
    for (command, right) in COMMANDS.into_iter().zip(right) {
        let ended = log(&[command], &store);
        // Nothing is damaged, but the store can't be opened to write: only `verify` is asked for a verdict.
        let verdict = command == "verify";
        assert_eq!(ended.code, Some(i32::from(verdict)), "{command}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout.contains("  IN THE WAY"), verdict, "{command}");
        let of_the_store =
            |text: &str| text.lines().filter(|line| !is_about_strays(line)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of_the_store(&ended.stdout), of_the_store(&right), "{command}");
    }
    for command in ["inspect", "verify", "repair"] {
        let said = log(&[command], &store).stdout;
        for what in ["097 is a symbolic link", "098 is a directory", "099 is a named pipe"] {
            assert!(said.contains(what), "{command}: {said}");
        }
    }
    let (_, inspected) = log_json(&["inspect"], &store);
    assert_eq!(array(&inspected["not_files"]).len(), 3);
    let error = Log::recover(stores.options(0)).unwrap_err().to_string();
    assert!(error.contains("segment-00000097") && error.contains("a symbolic link"), "{error}");
    assert_eq!(fs::read(victim).unwrap(), b"x");
}

#[test]
fn a_lane_that_the_job_does_not_have_is_an_error_and_one_without_records_is_said() {
    let stores = Stores::new();
    let store = stores.whole();
    for peer in ["4", "99", "4294967295"] {
        let ended = log(&["dump", "--peer", peer], &store);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.contains("no lane to rank"), "{}", ended.stderr);
    }
    let ended = log(&["dump", "--peer", "1", "--ssn", "100000.."], &store);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("lane to rank 1: no record of those that were asked for"), "{}", ended.stdout);
}
