//! Damaged stores: reports and repairs.

use std::fs;
use std::path::Path;

use counterfoil::{Log, Rank, Ssn};
use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess, scan};
use serde_json::{Value, json};

use super::fixture::{MESSAGES, Stores, array, copy, files, flip, log, log_json, payload};

/// Offset within the records of a block with several pages, with or without a page for a chunk table in front.
const INSIDE: u64 = 4096 + 300;

/// Returns a referenced block in the middle of a lane in rank 0's store: file, offset, lane, first and last SSN.
fn referenced_block(store: &Path) -> (String, u64, Rank, Ssn, Ssn) {
    let (mut backend, _) = Directory::open(store, BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
    let report = scan(&mut *backend, &mut |_, _| {}).unwrap();
    let all = report.segments.iter().flat_map(|segment| segment.blocks.iter().map(|of| (segment.file.clone(), of)));
    let mut blocks = all.filter(|(_, of)| of.is_referenced && of.block.lane == Rank(2));
    let (file, of) = blocks.nth(1).unwrap();
    (file, of.block.at, of.block.lane, of.block.first, of.block.last)
}

#[test]
fn a_damaged_block_is_reported_with_its_losses_and_a_repair_keeps_the_rest() {
    let stores = Stores::new();
    let store = stores.intact();
    assert_eq!(log_json(&["verify"], &store).0, Some(0));
    assert!(log(&["verify"], &store).stdout.ends_with("  sound\n"));

    let (file, at, lane, first, last) = referenced_block(&store);
    flip(&store.join(&file), at + INSIDE);
    let output = log(&["verify"], &store);
    assert_eq!(output.code, Some(1));
    for part in [
        format!("damaged      {file} at byte {at}: the block's checksum is wrong"),
        format!("{first} to {last} of the lane to {lane}"),
        format!("`counterfoil log repair {}`", store.display()),
        "DAMAGED".to_owned(),
    ] {
        assert!(output.stdout.contains(&part), "no {part:?} in\n{}", output.stdout);
    }
    assert_eq!(output.stderr, "");
    let (code, report) = log_json(&["verify"], &store);
    assert_eq!((code, &report["sound"], array(&report["damage"]).len()), (Some(1), &json!(false), 1));
    assert!(Log::recover(stores.options(0)).is_err());

    // The repair gives up the damaged block and the one before it in its lane.
    let given_up = array(&report["given_up"]);
    let [of] = &given_up[..] else { panic!("{report}") };
    assert_eq!((&of["lane"], &of["blocks"], &of["records"]), (&json!(lane.0), &json!(2), &json!(last.0)));
    assert!(of["bytes"].as_u64().unwrap() > 0, "{of}");
    let losses = format!("{} records (", last.0);
    assert!(
        log(&["verify"], &store).stdout.contains(&losses)
            && log(&["repair", "--dry-run"], &store).stdout.contains(&losses)
    );

    let damaged = files(&store);
    let (code, would) = log_json(&["repair", "--dry-run"], &store);
    assert_eq!((code, &would["sound"]), (Some(1), &json!(false)));
    assert!(files(&store) == damaged);
    let (code, done) = log_json(&["repair"], &store);
    assert_eq!((code, &done["sound"], &done["steps"]), (Some(0), &json!(true), &would["steps"]));
    assert_eq!((&would["given_up"], &done["given_up"]), (&report["given_up"], &report["given_up"]));
    assert!(array(&done["steps"]).len() >= 2, "{done}");
    assert_eq!(log(&["verify"], &store).code, Some(0));
    assert!(log(&["repair"], &store).stdout.contains("nothing to repair"));

    let (mut log, _) = Log::recover(stores.options(0)).unwrap();
    assert!(log.kept_from(lane) > first);
    let mut cursor = log.cursor(lane, log.kept_from(lane)).unwrap();
    let record = cursor.read().unwrap().unwrap();
    assert_eq!(record.payload(), payload(lane, record.ssn()));
    drop(cursor);
    assert_eq!(log.kept_from(Rank(1)), Ssn::FIRST);
}

#[test]
fn dump_shows_the_readable_records_of_a_damaged_store() {
    let stores = Stores::new();
    let store = stores.intact();
    let (file, at, _, first, last) = referenced_block(&store);
    flip(&store.join(file), at + INSIDE);
    let (code, dump) = log_json(&["dump"], &store);
    assert_eq!(code, Some(1));
    let lost = last.0 - first.0 + 1;
    assert_eq!(array(&dump["records"]).len() as u64, 3 * MESSAGES - lost);
    assert!(
        dump["errors"][0].as_str().unwrap().contains(&format!("SSN {} to {}", first.0, last.0)),
        "{}",
        dump["errors"]
    );
    assert_eq!(array(&dump["local"]).len(), 2);
}

#[test]
fn the_stores_of_a_job_are_handled_independently() {
    let stores = Stores::new();
    for rank in [0, 1] {
        drop(stores.fill(rank));
    }
    let (code, reports) = log_json(&["verify"], stores.dir());
    let ranks: Vec<&Value> = array(&reports).iter().map(|report| &report["rank"]).collect();
    assert_eq!((code, ranks), (Some(0), vec![&json!(0), &json!(1)]));
    fs::write(stores.rank(0).join("manifest"), "unreadable").unwrap();
    let (code, reports) = log_json(&["verify"], stores.dir());
    assert_eq!((code, &reports[0]["sound"], &reports[1]["sound"]), (Some(1), &json!(false), &json!(true)));
    assert!(reports[0]["advice"].as_str().unwrap().contains("restore"), "{reports}");
    fs::remove_file(stores.rank(0).join("manifest")).unwrap();
    for command in ["inspect", "verify", "dump", "stats", "repair"] {
        let (code, reports) = log_json(&[command], stores.dir());
        assert_eq!((code, &reports[1]["rank"]), (Some(1), &json!(1)), "{command}");
        let error = reports[0]["error"].as_str().unwrap();
        assert!(error.contains("the manifest is missing"), "{command}: {error}");
    }
}

#[test]
fn torn_writes_are_not_damage() {
    let stores = Stores::new();
    let store = stores.intact();
    let (_, report) = log_json(&["inspect"], &store);
    let last = array(&report["segments"]).last().unwrap();
    let (file, end) = (last["file"].as_str().unwrap(), last["end"].as_u64().unwrap());
    let mut bytes = fs::read(store.join(file)).unwrap();
    bytes.resize(bytes.len().max(end as usize + 8192), 0);
    bytes[end as usize + 50] = 1;
    fs::write(store.join(file), bytes).unwrap();
    let output = log(&["verify"], &store);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.contains(&format!("{file} is torn at byte {end}")), "{}", output.stdout);
    let (code, repaired) = log_json(&["repair"], &store);
    assert_eq!((code, array(&repaired["steps"]).len()), (Some(0), 1), "{repaired}");
    assert!(!log(&["verify"], &store).stdout.contains("torn"));
}

#[test]
fn arbitrary_file_contents_result_in_a_report_or_an_error() {
    let stores = Stores::new();
    let store = stores.intact();
    let names: Vec<String> = files(&store).into_keys().filter(|name| name != "lock").collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |below: usize| {
        (state, _) = state.overflowing_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..24 {
        let broken = stores.dir().join(format!("rank-{}", 100 + round));
        copy(&store, &broken);
        let name = &names[draw(names.len())];
        let mut bytes = fs::read(broken.join(name)).unwrap();
        match draw(3) {
            0 => bytes.truncate(draw(bytes.len() + 1)),
            // Headers contain the numbers used by parsers.
            1 if !bytes.is_empty() => (0..8).for_each(|_| {
                let at = draw(bytes.len().min(200));
                bytes[at] = draw(256) as u8;
            }),
            _ => (0..40).for_each(|_| {
                let at = draw(bytes.len().max(1));
                bytes.resize(bytes.len().max(1), 0);
                bytes[at] ^= 0xff;
            }),
        }
        fs::write(broken.join(name), bytes).unwrap();
        for arguments in [&["inspect"][..], &["verify"], &["dump", "--all"], &["stats"], &["repair"], &["verify"]] {
            let output = log(&[arguments, &["--json"]].concat(), &broken);
            assert!(matches!(output.code, Some(0 | 1)), "{arguments:?} {name}, round {round}: {}", output.stderr);
            let is_json = serde_json::from_str::<Value>(&output.stdout).is_ok();
            assert!(
                is_json || (output.stdout.is_empty() && output.stderr.starts_with("error: ")),
                "{arguments:?} {name}"
            );
        }
    }
}
