//! Ranks without a profile: figures from their logs.

use std::fs;
use std::process::Command;

use counterfoil::{Contents, Epoch, Log, Options, Rank, StoreOptions, Tier, create_private_dir};
use counterfoil_profile::{Channel, RankProfile};
use serde_json::{Value, json};

use super::job_dir::{JobDir, profile};

/// Builds the prefix written by the MPI library before a payload.
fn prefix(tag: i32, number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&tag.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Creates a job directory in which rank 1 out of 2 has no profile; its log has five 100-byte messages to rank 0, and
/// two contributions.
fn with_a_log() -> JobDir {
    let job_dir = JobDir::new(2);
    fs::remove_file(RankProfile::path(&job_dir.logs(), 1)).unwrap();
    fs::remove_dir(job_dir.logs().join("rank-1")).unwrap();
    let mut options = Options::new(Rank(1), 2);
    options.tier = Tier::NodeLocal;
    options.store = Some(StoreOptions::new(job_dir.logs()));
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
    job_dir
}

/// Makes rank 0's profile count this many messages from rank 1.
fn received(job_dir: &JobDir, messages: u64) {
    let mut profile = profile(0, 2);
    profile.received[0] = Channel { peer: 1, messages, bytes: messages * 100 };
    profile.write(&job_dir.logs()).unwrap();
}

#[test]
fn a_log_is_shown_as_the_source_of_its_figures() {
    let job_dir = with_a_log();
    received(&job_dir, 5);
    let figures = job_dir.figures(&[]);
    assert_eq!(
        figures["ranks"][1],
        json!({ "rank": 1, "source": "log", "contributions": 2, "has_checkpoint": true, "taken_over": false })
    );
    let channel = figures["matrix"].as_array().unwrap().iter().find(|channel| channel["from"] == 1).unwrap();
    assert_eq!(*channel, json!({ "from": 1, "to": 0, "messages": 5, "bytes": 500 }));
    assert!(figures["notes"][0].as_str().unwrap().starts_with("rank 1: no profile"), "{}", figures["notes"]);
    assert!(job_dir.page().contains("no profile: counted in its log<"));
}

#[test]
fn counts_of_receivers_replace_those_of_a_log_that_released_records() {
    let job_dir = with_a_log();
    received(&job_dir, 12);
    let figures = job_dir.figures(&[]);
    let channel = figures["matrix"].as_array().unwrap().iter().find(|channel| channel["from"] == 1).unwrap();
    assert_eq!(*channel, json!({ "from": 1, "to": 0, "messages": 12, "bytes": 1200, "by": "receiver" }));
    let note = figures["notes"][1].as_str().unwrap();
    assert!(note.starts_with("rank 1: messages are counted by their receivers"), "{note}");
    assert!(job_dir.page().contains("no profile: counted in its log, or by receivers"));
}

#[test]
fn an_unreadable_log_is_missing_with_a_reason() {
    let job_dir = with_a_log();
    for entry in fs::read_dir(job_dir.logs().join("rank-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-") {
            fs::write(path, [0; 5000]).unwrap();
        }
    }
    let figures = job_dir.figures(&[]);
    assert_eq!(figures["ranks"][1]["source"], "missing");
    let why = figures["ranks"][1]["why"].as_str().unwrap();
    assert!(why.starts_with("no profile, and its log can't be read: "), "{why}");
}

#[test]
fn a_demos_directory_is_reported_from_its_logs() {
    let job_dir = JobDir::empty();
    fs::remove_dir(job_dir.logs()).unwrap();
    let counterfoil = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        let output = command.args(arguments).current_dir(job_dir.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let shm_dir = job_dir.path().join("demo");
    create_private_dir(&shm_dir).unwrap();
    let shm_dir = shm_dir.to_str().unwrap();
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
        shm_dir,
    ]);
    let figures = job_dir.figures(&[]);
    let stats: Value = serde_json::from_slice(&counterfoil(&["log", "stats", "logs", "--json"])).unwrap();
    let stats = stats.as_array().unwrap();
    assert_eq!(figures["ranks"].as_array().unwrap().len(), stats.len());
    let mut channels = 0;
    for (from, of) in stats.iter().enumerate() {
        for to in 0..stats.len() {
            let lanes = of["by"].as_array().unwrap().iter().filter(|row| row["lane"] == to);
            let is_referenced = |row: &&Value| row["state"] != "superseded" && row["state"] != "unreferenced";
            let records: u64 = lanes.filter(is_referenced).map(|row| row["records"].as_u64().unwrap()).sum();
            let known = figures["matrix"].as_array().unwrap().iter().find(|row| row["from"] == from && row["to"] == to);
            assert_eq!(known.map_or(0, |row| row["messages"].as_u64().unwrap()), records, "{from} to {to}");
            channels += u64::from(records > 0);
        }
    }
    assert!(channels > 0, "{figures}");
}
