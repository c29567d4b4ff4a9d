//! Intact stores.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use counterfoil::{Epoch, Log, Rank, Ssn};
use serde_json::{Value, json};

use super::fixture::{
    ENTRY, MESSAGES, PEERS, Stores, acknowledge, append, array, files, log, log_json, payload, program,
};

#[test]
fn inspect_shows_checkpoints_segments_and_the_owner() {
    let stores = Stores::new();
    let store = stores.intact();
    let (code, report) = log_json(&["inspect"], &store);
    assert_eq!(code, Some(0));
    assert_eq!((&report["rank"], &report["ranks"], &report["in_use"]), (&json!(0), &json!(4), &json!(false)));
    assert_eq!((&report["sound"], &report["left_over"]), (&json!(true), &json!([])));
    let epochs: Vec<&Value> = array(&report["checkpoints"]).iter().map(|checkpoint| &checkpoint["epoch"]).collect();
    assert_eq!(epochs, [2, 3]);
    assert_eq!(report["checkpoints"][1]["contents"]["lanes"], 3);
    assert_eq!(report["checkpoints"][1]["contents"]["local_entries"], 2);
    let segments = array(&report["segments"]);
    let referenced: u64 = segments.iter().map(|segment| segment["referenced_bytes"].as_u64().unwrap()).sum();
    assert!(referenced > 1 << 20, "{report}");
    assert!(segments.iter().all(|segment| segment["tail"] == "clean"), "{report}");

    let output = log(&["inspect"], &store);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.starts_with(&format!("rank 0 of 4: {}\n", store.display())), "{}", output.stdout);
    for part in ["  checkpoints\n", "segment-00000001", "intact", "clean", "slots: valid ("] {
        assert!(output.stdout.contains(part), "no {part:?} in\n{}", output.stdout);
    }
    assert!(!output.stdout.contains("backend"), "{}", output.stdout);
    let (_, report) = log_json(&["inspect", "--probe"], &store);
    assert!(["io_uring", "pwrite"].contains(&report["backend"]["kind"].as_str().unwrap()), "{report}");
}

#[test]
fn read_only_commands_change_nothing() {
    let stores = Stores::new();
    let store = stores.intact();
    let before = files(&store);
    for arguments in [&["inspect"][..], &["verify"], &["dump", "--all"], &["stats"], &["repair", "--dry-run"]] {
        assert_eq!(log(arguments, &store).code, Some(0), "{arguments:?}");
        assert!(files(&store) == before, "{arguments:?}");
    }
}

#[test]
fn dump_shows_every_record_with_its_bytes() {
    let stores = Stores::new();
    let store = stores.intact();
    let (code, dump) = log_json(&["dump", "--hex", "--bytes", "9999"], &store);
    assert_eq!((code, &dump["epoch"], &dump["errors"]), (Some(0), &json!(3), &json!([])));
    let records = array(&dump["records"]);
    assert_eq!(records.len() as u64, 3 * MESSAGES);
    for (number, record) in records.iter().enumerate() {
        let lane = Rank(1 + (number as u64 / MESSAGES) as u32);
        let ssn = Ssn(1 + number as u64 % MESSAGES);
        assert_eq!((&record["lane"], &record["ssn"]), (&json!(lane.0), &json!(ssn.0)));
        let bytes: String = payload(lane, ssn).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(record["payload_hex"], bytes);
        let header = &record["header"];
        assert_eq!((&header["tag"], &header["ssn"], &header["checksum"]), (&json!(7), &json!(ssn.0), &json!("right")));
        // The last five messages are not acknowledged; the first half arrived in the receiver's first epoch.
        let (state, epoch) = match ssn.0 {
            ssn if ssn > MESSAGES - 5 => ("unacknowledged", Value::Null),
            ssn if ssn > MESSAGES / 2 => ("retained", json!(2)),
            _ => ("retained", json!(1)),
        };
        assert_eq!((&record["state"], &record["epoch"]), (&json!(state), &epoch), "{record}");
    }
    let keys: Vec<&Value> = array(&dump["local"]).iter().map(|entry| &entry["key"]).collect();
    assert_eq!(keys, [2, 3, 99], "the last entry was synced after the checkpoint");
}

#[test]
fn dump_shows_the_requested_records() {
    let stores = Stores::new();
    let store = stores.intact();
    let ssns = |dump: &Value| -> Vec<u64> {
        array(&dump["records"]).iter().map(|record| record["ssn"].as_u64().unwrap()).collect()
    };
    let (_, dump) = log_json(&["dump", "--peer", "2", "--ssn", "100..103"], &store);
    assert_eq!(ssns(&dump), [100, 101, 102, 103]);
    assert!(array(&dump["records"]).iter().all(|record| record["lane"] == 2));
    let (_, dump) = log_json(&["dump", "--peer", "2", "--ssn", "7"], &store);
    assert_eq!(ssns(&dump), [7]);
    let (_, dump) = log_json(&["dump", "--limit", "5"], &store);
    assert_eq!((ssns(&dump), &dump["limit_reached"]), (vec![1, 2, 3, 4, 5], &json!(true)));
    // The older checkpoint has half the messages.
    let (_, dump) = log_json(&["dump", "--epoch", "2", "--peer", "3"], &store);
    assert_eq!(ssns(&dump), (1..=MESSAGES / 2).collect::<Vec<_>>());
    let (_, dump) = log_json(&["dump", "--local", "--payload"], &store);
    assert_eq!((array(&dump["records"]).len(), array(&dump["local"]).len()), (0, 3));
    assert_eq!(dump["local"][0]["text"], ENTRY);
    let output = log(&["dump", "--peer", "1", "--ssn", "..2", "--payload"], &store);
    for part in ["lane to rank 1: next SSN", "retained", "Message 0 -> 1, tag 7, comm 0", "checksum ok", "payload  \""]
    {
        assert!(output.stdout.contains(part), "no {part:?} in\n{}", output.stdout);
    }
    let output = log(&["dump", "--epoch", "9"], &store);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("kept: 2, 3"), "{}", output.stderr);
}

#[test]
fn unreferenced_records_are_shown_on_request() {
    let stores = Stores::new();
    let mut kept = Log::create(stores.options(0)).unwrap();
    for _ in 0..3 * MESSAGES {
        for peer in PEERS {
            let ssn = append(&mut kept, peer);
            acknowledge(&mut kept, peer, ssn, 1);
        }
    }
    drop(kept);
    let store = stores.rank(0);
    let (code, dump) = log_json(&["dump"], &store);
    assert_eq!((code, &dump["epoch"], array(&dump["records"]).len()), (Some(0), &Value::Null, 0));
    let (_, dump) = log_json(&["dump", "--all", "--peer", "3", "--ssn", "1..3"], &store);
    let records: Vec<_> = array(&dump["records"]).iter().map(|record| (&record["ssn"], &record["state"])).collect();
    let unreferenced = json!("unreferenced");
    assert_eq!(records, [(&json!(1), &unreferenced), (&json!(2), &unreferenced), (&json!(3), &unreferenced)]);
    let (code, stats) = log_json(&["stats"], &store);
    assert_eq!((code, &stats["needed"]["records"]), (Some(0), &json!(0)));
    assert!(array(&stats["by"]).iter().all(|row| row["state"] == "unreferenced"), "{stats}");
}

#[test]
fn stats_count_bytes_by_peer_and_state() {
    let stores = Stores::new();
    let store = stores.intact();
    let (code, stats) = log_json(&["stats"], &store);
    assert_eq!((code, &stats["errors"], &stats["epoch"]), (Some(0), &json!([]), &json!(3)));
    for peer in PEERS {
        let sum =
            |from: u64, to: u64| -> u64 { (from..=to).map(|ssn| 64 + payload(peer, Ssn(ssn)).len() as u64).sum() };
        let row = |state: &str, epoch: Value| {
            let is_it = |row: &&Value| row["lane"] == peer.0 && row["state"] == state && row["epoch"] == epoch;
            let row = array(&stats["by"]).iter().find(is_it).unwrap_or_else(|| panic!("no {state} {epoch}: {stats}"));
            (row["records"].as_u64().unwrap(), row["bytes"].as_u64().unwrap())
        };
        assert_eq!(row("retained", json!(1)), (MESSAGES / 2, sum(1, MESSAGES / 2)));
        assert_eq!(row("retained", json!(2)), (MESSAGES / 2 - 5, sum(MESSAGES / 2 + 1, MESSAGES - 5)));
        assert_eq!(row("unacknowledged", Value::Null), (5, sum(MESSAGES - 4, MESSAGES)));
    }
    assert_eq!(stats["needed"]["records"], 3 * MESSAGES);
    let sized: u64 = array(&stats["sizes"]).iter().map(|size| size["records"].as_u64().unwrap()).sum();
    assert_eq!(sized, 3 * MESSAGES);
    assert!(stats["compression"].as_f64().unwrap() > 0.5);
    assert_eq!(stats["local"]["entries"], 2);
    let text = log(&["stats"], &store).stdout;
    for part in ["rank 1", "unacknowledged", "needed", "compression", "####"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_store_in_use_can_be_read_but_not_repaired() {
    let stores = Stores::new();
    let mut kept = stores.fill(0);
    let store = stores.rank(0);
    let (code, report) = log_json(&["inspect"], &store);
    assert_eq!((code, &report["in_use"]), (Some(0), &json!(true)));
    assert_eq!(report["process"], std::process::id());
    let by = format!("in use by process {}", std::process::id());
    assert!(log(&["inspect"], &store).stdout.contains(&by));
    assert!(log(&["inspect", "--probe"], &store).stdout.contains("backend      unknown"), "it is in use");
    assert_eq!(log(&["dump"], &store).code, Some(0));
    for arguments in [&["repair"][..], &["repair", "--dry-run"]] {
        let output = log(arguments, &store);
        assert_eq!(output.code, Some(1), "{arguments:?}");
        assert!(output.stderr.contains(&by), "{}", output.stderr);
    }
    // While checkpoints are added and removed, and blocks freed.
    let mut epoch = 3;
    for _ in 0..4 {
        let mut child = program(&["verify"], &store);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let status = loop {
            for number in 0..600 {
                let peer = PEERS[number % 3];
                let last = append(&mut kept, peer);
                acknowledge(&mut kept, peer, last, epoch);
            }
            for peer in PEERS {
                let upto = kept.acked(peer);
                kept.receiver_covered(peer, Epoch(epoch + 1), Ssn(upto.0 - 10)).unwrap();
            }
            kept.collect();
            epoch += 1;
            if epoch % 2 == 0 {
                kept.checkpoint(Epoch(epoch), counterfoil::Contents::default()).unwrap();
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        // Fails with this advice if a checkpoint came during every scan.
        assert!(status.success() || stderr.contains("try again"), "{stderr}");
    }
    assert_eq!(log(&["verify"], &store).code, Some(0));
}

#[test]
fn a_segment_begun_by_a_running_process_is_not_left_over() {
    let stores = Stores::new();
    let store = stores.rank(0);
    let mut living = Log::create(stores.options(0)).unwrap();
    living.local().append(1, 1, ENTRY.as_bytes()).unwrap();
    living.sync_local().unwrap();
    let text = log(&["inspect"], &store).stdout;
    assert!(text.contains("not yet referenced by a checkpoint") && !text.contains("left over"), "{text}");
    assert!(!log(&["verify"], &store).stdout.contains("left over"));
    let begun = |report: &Value| (array(&report["left_over"]).len(), array(&report["being_written"]).len());
    assert_eq!(begun(&log_json(&["inspect"], &store).1), (0, 1));
    // Without the process, only the local log's entry is useful to the next one.
    drop(living);
    assert_eq!(begun(&log_json(&["inspect"], &store).1), (1, 0));
}

#[test]
fn invalid_arguments_exit_with_2_and_missing_stores_with_1() {
    let stores = Stores::new();
    let store = stores.intact();
    for arguments in [
        &[][..],
        &["look"],
        &["dump", "--ssn", "3..2"],
        &["dump", "--ssn", "x"],
        &["dump", "--peer", "1", "--local"],
        &["verify", "--hex"],
        &["stats", "--epoch", "one"],
    ] {
        assert_eq!(log(arguments, &store).code, Some(2), "{arguments:?}");
    }
    let empty = stores.dir().join("empty");
    fs::create_dir(&empty).unwrap();
    for command in ["inspect", "verify", "dump", "stats", "repair"] {
        let output = program(&[command], Path::new("--help")).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 200, "{command} --help");
        for missing in [&stores.dir().join("nowhere"), &empty] {
            let output = log(&[command], missing);
            assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{command}");
            assert!(output.stderr.contains("expected a rank's store"), "{command}: {}", output.stderr);
        }
    }
}

#[test]
fn a_dump_to_a_closed_pipe_succeeds() {
    let stores = Stores::new();
    let store = stores.intact();
    let mut child = program(&["dump", "--hex"], &store).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("rank 0 of 4"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
