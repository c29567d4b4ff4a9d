//! Ranks without a profile: what their logs still have.

use std::fs;
use std::process::Command;

use counterfoil::{Contents, Epoch, Log, Options, Rank, StoreOptions, Tier, create_private_dir};
use counterfoil_profile::{Channel, RankProfile};
use serde_json::{Value, json};

use super::made::{Made, profile};

/// What the library for MPI puts in front of a payload.
fn prefix(tag: i32, number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&tag.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Rank 1 of two has no profile; its log has five messages of 100 bytes to rank 0, and two contributions.
fn with_a_log() -> Made {
    let made = Made::new(2);
    fs::remove_file(RankProfile::path(&made.logs(), 1)).unwrap();
    fs::remove_dir(made.logs().join("rank-1")).unwrap();
    let mut options = Options::new(Rank(1), 2);
    options.tier = Tier::NodeLocal;
    options.store = Some(StoreOptions::new(made.logs()));
    let mut log = Log::create(options).unwrap();
    let mut append = |peer, tag, number, bytes: &[u8]| {
        let mut claim = log.claim(Rank(peer), 16, bytes.len()).unwrap();
        claim.prefix_mut().copy_from_slice(&prefix(tag, number));
        claim.payload_mut().copy_from_slice(bytes);
        claim.commit();
    };
    for number in 1..=5 {
        append(0, 7, number, &[1; 100]);
    }
    append(1, -2, 1, &[2; 8]);
    append(1, -2, 2, &[2; 8]);
    log.checkpoint(Epoch(2), Contents::default()).unwrap();
    made
}

/// Rank 0 says that it received so much from rank 1.
fn received(made: &Made, messages: u64) {
    let mut profile = profile(0, 2);
    profile.received[0] = Channel { peer: 1, messages, bytes: messages * 100 };
    profile.write(&made.logs()).unwrap();
}

#[test]
fn what_a_log_still_has_is_shown_and_said_to_be_that() {
    let made = with_a_log();
    received(&made, 5);
    let figures = made.figures(&[]);
    assert_eq!(
        figures["ranks"][1],
        json!({ "rank": 1, "source": "log", "contributions": 2, "has_checkpoint": true, "taken_over": false })
    );
    let channel = figures["matrix"].as_array().unwrap().iter().find(|channel| channel["from"] == 1).unwrap();
    assert_eq!(*channel, json!({ "from": 1, "to": 0, "messages": 5, "bytes": 500 }));
    assert!(figures["notes"][0].as_str().unwrap().starts_with("rank 1: no profile"), "{}", figures["notes"]);
    assert!(made.page().contains("no profile: what its log still has<"));
}

#[test]
fn what_a_receiver_knows_stands_where_a_log_has_let_go_of_it() {
    let made = with_a_log();
    received(&made, 12);
    let figures = made.figures(&[]);
    let channel = figures["matrix"].as_array().unwrap().iter().find(|channel| channel["from"] == 1).unwrap();
    assert_eq!(*channel, json!({ "from": 1, "to": 0, "messages": 12, "bytes": 1200, "by": "receiver" }));
    let note = figures["notes"][1].as_str().unwrap();
    assert!(note.starts_with("rank 1: what others received from there"), "{note}");
    assert!(made.page().contains("no profile: what its log still has, or others received from it"));
}

#[test]
fn a_log_that_can_t_be_read_is_missing_and_says_why() {
    let made = with_a_log();
    for entry in fs::read_dir(made.logs().join("rank-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-") {
            fs::write(path, [0; 5000]).unwrap();
        }
    }
    let figures = made.figures(&[]);
    assert_eq!(figures["ranks"][1]["source"], "missing");
    let why = figures["ranks"][1]["why"].as_str().unwrap();
    assert!(why.starts_with("it left no profile, and its log can't be read: "), "{why}");
}

#[test]
fn a_demos_directory_shows_what_its_logs_have() {
    let made = Made::empty();
    fs::remove_dir(made.logs()).unwrap();
    let counterfoil = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let output = command.args(arguments).current_dir(made.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let place = made.path().join("demo");
    create_private_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    counterfoil(&[
        "demo",
        "--workload",
        "ring",
        "--tier",
        "node-local",
        "--checkpoint-every",
        "3",
        "--keep-files",
        "logs",
        "--shm-dir",
        place,
    ]);
    let figures = made.figures(&[]);
    let stats: Value = serde_json::from_slice(&counterfoil(&["log", "stats", "logs", "--json"])).unwrap();
    let stats = stats.as_array().unwrap();
    assert_eq!(figures["ranks"].as_array().unwrap().len(), stats.len());
    let mut channels = 0;
    for (from, of) in stats.iter().enumerate() {
        for to in 0..stats.len() {
            let lanes = of["by"].as_array().unwrap().iter().filter(|row| row["lane"] == to);
            let is_there = |row: &&Value| row["state"] != "superseded" && row["state"] != "unreferenced";
            let records: u64 = lanes.filter(is_there).map(|row| row["records"].as_u64().unwrap()).sum();
            let known = figures["matrix"].as_array().unwrap().iter().find(|row| row["from"] == from && row["to"] == to);
            assert_eq!(known.map_or(0, |row| row["messages"].as_u64().unwrap()), records, "{from} to {to}");
            channels += u64::from(records > 0);
        }
    }
    assert!(channels > 0, "{figures}");
}
