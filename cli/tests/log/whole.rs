//! Stores that are sound: what is shown of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use counterfoil::{Epoch, Log, Rank, Ssn};
use serde_json::{Value, json};

use super::stores::{
    ENTRY, MESSAGES, PEERS, Stores, acknowledge, append, array, files, log, log_json, payload, program,
};

#[test]
fn inspect_shows_checkpoints_segments_and_whose_store_it_is() {
    let stores = Stores::new();
    let store = stores.whole();
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

    let ended = log(&["inspect"], &store);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.starts_with(&format!("rank 0 of 4: {}\n", store.display())), "{}", ended.stdout);
    for part in ["  checkpoints\n", "segment-00000001", "whole", "clean", "slots: whole ("] {
        assert!(ended.stdout.contains(part), "no {part:?} in\n{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("backend"), "{}", ended.stdout);
    let (_, report) = log_json(&["inspect", "--probe"], &store);
    assert!(["io_uring", "pwrite"].contains(&report["backend"]["kind"].as_str().unwrap()), "{report}");
}

#[test]
fn looking_changes_nothing() {
    let stores = Stores::new();
    let store = stores.whole();
    let before = files(&store);
    for arguments in [&["inspect"][..], &["verify"], &["dump", "--all"], &["stats"], &["repair", "--dry-run"]] {
        assert_eq!(log(arguments, &store).code, Some(0), "{arguments:?}");
        assert!(files(&store) == before, "{arguments:?}");
    }
}

#[test]
fn dump_shows_every_record_with_its_bytes() {
    let stores = Stores::new();
    let store = stores.whole();
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
        // The last five are not acknowledged; the first half arrived in the receiver's first epoch.
        let (state, epoch) = match ssn.0 {
            ssn if ssn > MESSAGES - 5 => ("unacknowledged", Value::Null),
            ssn if ssn > MESSAGES / 2 => ("retained", json!(2)),
            _ => ("retained", json!(1)),
        };
        assert_eq!((&record["state"], &record["epoch"]), (&json!(state), &epoch), "{record}");
    }
    let keys: Vec<&Value> = array(&dump["local"]).iter().map(|entry| &entry["key"]).collect();
    assert_eq!(keys, [2, 3, 99], "the last was synced after the checkpoint");
}

#[test]
fn dump_shows_the_part_that_was_asked_for() {
    let stores = Stores::new();
    let store = stores.whole();
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
    // The older checkpoint has half of the messages.
    let (_, dump) = log_json(&["dump", "--epoch", "2", "--peer", "3"], &store);
    assert_eq!(ssns(&dump), (1..=MESSAGES / 2).collect::<Vec<_>>());
    let (_, dump) = log_json(&["dump", "--local", "--payload"], &store);
    assert_eq!((array(&dump["records"]).len(), array(&dump["local"]).len()), (0, 3));
    assert_eq!(dump["local"][0]["text"], ENTRY);
    let ended = log(&["dump", "--peer", "1", "--ssn", "..2", "--payload"], &store);
    for part in
        ["lane to rank 1: next SSN", "retained", "Message 0 -> 1, tag 7, comm 0", "checksum right", "payload  \""]
    {
        assert!(ended.stdout.contains(part), "no {part:?} in\n{}", ended.stdout);
    }
    let ended = log(&["dump", "--epoch", "9"], &store);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("kept: 2, 3"), "{}", ended.stderr);
}

#[test]
fn what_no_checkpoint_refers_to_is_shown_when_asked_for() {
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
fn stats_say_who_needs_how_many_bytes() {
    let stores = Stores::new();
    let store = stores.whole();
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
fn a_living_store_can_be_looked_at_and_not_repaired() {
    let stores = Stores::new();
    let mut kept = stores.fill(0);
    let store = stores.rank(0);
    let (code, report) = log_json(&["inspect"], &store);
    assert_eq!((code, &report["in_use"]), (Some(0), &json!(true)));
    assert_eq!(report["process"], std::process::id());
    let by = format!("in use by process {}", std::process::id());
    assert!(log(&["inspect"], &store).stdout.contains(&by));
    assert!(log(&["inspect", "--probe"], &store).stdout.contains("backend      not known"), "it is in use");
    assert_eq!(log(&["dump"], &store).code, Some(0));
    for arguments in [&["repair"][..], &["repair", "--dry-run"]] {
        let ended = log(arguments, &store);
        assert_eq!(ended.code, Some(1), "{arguments:?}");
        assert!(ended.stderr.contains(&by), "{}", ended.stderr);
    }
    // While checkpoints come and go, and what they had is freed.
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
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        // Where a checkpoint came each time in between, it says so.
        assert!(status.success() || said.contains("try again"), "{said}");
    }
    assert_eq!(log(&["verify"], &store).code, Some(0));
}

#[test]
fn a_segment_that_a_living_process_has_begun_is_not_left_over() {
    let stores = Stores::new();
    let store = stores.rank(0);
    let mut living = Log::create(stores.options(0)).unwrap();
    living.local().append(1, 1, ENTRY.as_bytes()).unwrap();
    living.sync_local().unwrap();
    let text = log(&["inspect"], &store).stdout;
    assert!(text.contains("no checkpoint refers to it yet") && !text.contains("left over"), "{text}");
    assert!(!log(&["verify"], &store).stdout.contains("left over"));
    let begun = |report: &Value| (array(&report["left_over"]).len(), array(&report["being_written"]).len());
    assert_eq!(begun(&log_json(&["inspect"], &store).1), (0, 1));
    // Its process is gone: only the entry of the local log is of use to the next one.
    drop(living);
    assert_eq!(begun(&log_json(&["inspect"], &store).1), (1, 0));
}

#[test]
fn wrong_arguments_exit_with_2_and_what_is_not_there_with_1() {
    let stores = Stores::new();
    let store = stores.whole();
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
        let ended = program(&[command], Path::new("--help")).output().unwrap();
        assert!(ended.status.success() && ended.stdout.len() > 200, "{command} --help");
        for missing in [&stores.dir().join("nowhere"), &empty] {
            let ended = log(&[command], missing);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{command}");
            assert!(ended.stderr.contains("give a rank's store"), "{command}: {}", ended.stderr);
        }
    }
}

#[test]
fn nobody_has_to_read_a_dump_to_its_end() {
    let stores = Stores::new();
    let store = stores.whole();
    let mut child = program(&["dump", "--hex"], &store).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("rank 0 of 4"), "{line}");
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}
