//! Stores from an MPI job, compared with its job.json and profiles.

use std::fs;

use counterfoil::{Contents, Epoch, Log, Rank};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_profile::{Channel, DelayCounts, Ended, Job, RankProfile, Series, Setting, Sizes, VERSION};
use serde_json::{Value, json};

use super::fixture::{MESSAGES, Stores, array, copy, log, log_json};

/// Writes the job.json for a job in which this many ranks initialized MPI.
fn job(stores: &Stores, keep: &str, ranks: Option<u32>) {
    let keep = Setting { name: "keep".to_owned(), value: keep.to_owned(), source: "--keep".to_owned() };
    let job = Job {
        version: VERSION,
        program: vec!["a".to_owned()],
        mpi: "Open MPI 5.0.0".to_owned(),
        settings: vec![keep],
        wall_s: Some(1.0),
        exit_code: Some(0),
        interrupted: false,
        ranks,
        not_logged: Vec::new(),
    };
    job.write(stores.dir()).unwrap();
}

/// Writes the profile of rank 0 out of 4, with this many messages logged to rank 2.
fn profile(stores: &Stores, messages: u64, not_kept: Option<&str>) {
    let channel = |peer, messages| Channel { peer, messages, bytes: messages };
    let profile = RankProfile {
        version: VERSION,
        rank: 0,
        ranks: 4,
        ended: Ended::Finalized,
        wall_ms: 1,
        logged: vec![channel(1, MESSAGES), channel(2, messages), channel(3, MESSAGES)],
        received: Vec::new(),
        sizes: Sizes::default(),
        collectives: Vec::new(),
        determinants: 0,
        memory_peak_bytes: 0,
        spilled_bytes: 0,
        waited_ms: 0,
        logging_stopped: false,
        gave_up: None,
        not_kept: not_kept.map(str::to_owned),
        gaps: Vec::new(),
        delays: DelayCounts { delays_ns: Vec::new(), left_out: 0, unanswered: 0 },
        series: Series::default(),
    };
    profile.write(stores.dir()).unwrap();
}

/// Verifies the job directory and its only store alone; returns exit code, JSON and text.
#[track_caller]
fn verified(stores: &Stores) -> (Option<i32>, Value, String) {
    let (code, all) = log_json(&["verify"], stores.dir());
    let (alone, one) = log_json(&["verify"], &stores.rank(0));
    assert_eq!((code, &all[0]), (alone, &one));
    (code, one, log(&["verify"], stores.dir()).stdout)
}

#[test]
fn a_store_that_lacks_logged_messages_is_not_sound() {
    let stores = Stores::new();
    stores.intact();
    job(&stores, "all", Some(1));
    profile(&stores, MESSAGES, None);
    let (code, whole, text) = verified(&stores);
    assert_eq!((code, &whole["sound"], &whole["missing"]), (Some(0), &json!(true), &json!([])), "{text}");
    profile(&stores, MESSAGES + 7, None);
    let (code, lacking, text) = verified(&stores);
    assert_eq!((code, &lacking["sound"]), (Some(1), &json!(false)));
    assert_eq!(lacking["missing"], json!(["7 of the 607 messages to rank 2 that its profile counts"]));
    assert!(text.contains("INCOMPLETE") && !text.contains("  sound"), "{text}");
    profile(&stores, MESSAGES, Some("the disk is full"));
    let (code, lost, text) = verified(&stores);
    assert_eq!((code, array(&lost["missing"]).len()), (Some(1), 1), "{text}");
    assert!(text.contains("the rank logged 1800 messages, but its log could not be kept: the disk is full"), "{text}");
}

#[test]
fn acknowledged_messages_may_be_missing_with_keep_acked() {
    let stores = Stores::new();
    let mut short = Log::create(stores.options(0)).unwrap();
    for _ in 0..MESSAGES {
        for peer in super::fixture::PEERS {
            let ssn = super::fixture::append(&mut short, peer);
            super::fixture::acknowledge(&mut short, peer, ssn, 1);
            short.receiver_covered(peer, Epoch(2), ssn).unwrap();
        }
    }
    short.checkpoint(Epoch(2), Contents::default()).unwrap();
    drop(short);
    profile(&stores, MESSAGES, None);
    job(&stores, "acked", None);
    let (code, _, text) = verified(&stores);
    assert_eq!(code, Some(0), "{text}");
    job(&stores, "all", None);
    let (code, _, text) = verified(&stores);
    assert!(code == Some(1) && text.contains("600 of the 600 messages to rank 1"), "{text}");
    job(&stores, "acked", None);
    profile(&stores, MESSAGES + 1, None);
    assert_eq!(verified(&stores).0, Some(1));
}

#[test]
fn a_rank_without_profile_and_checkpoint_has_lost_the_records_in_memory() {
    let stores = Stores::new();
    let mut spilled = Log::create(stores.options(0)).unwrap();
    for _ in 0..3 * MESSAGES {
        for peer in super::fixture::PEERS {
            let ssn = super::fixture::append(&mut spilled, peer);
            super::fixture::acknowledge(&mut spilled, peer, ssn, 1);
        }
    }
    drop(spilled);
    // A store outside an MPI job isn't compared.
    let (code, text) = (log(&["verify"], stores.dir()).code, log(&["verify"], stores.dir()).stdout);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("checked, none referenced by a checkpoint")
            && text.contains("`counterfoil log dump --all` shows"),
        "{text}"
    );
    job(&stores, "all", Some(1));
    let (code, killed, text) = verified(&stores);
    assert_eq!((code, &killed["sound"]), (Some(1), &json!(false)), "{text}");
    assert!(text.contains("missing      the records in memory: the rank ended without MPI_Finalize"), "{text}");
    // `counterfoil run` took the log over: nothing is missing.
    let contents = Contents { application: Vec::new(), tables: vec![(TAKEN_OVER.to_owned(), Vec::new())] };
    let (mut taken, _) = Log::recover(stores.options(0)).unwrap();
    taken.checkpoint(Epoch(2), contents).unwrap();
    drop(taken);
    let (code, _, text) = verified(&stores);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("`counterfoil run` took its log over from shared memory"), "{text}");
}

#[test]
fn a_rank_without_a_store_is_reported() {
    let stores = Stores::new();
    stores.intact();
    job(&stores, "all", Some(3));
    let (code, all) = log_json(&["verify"], stores.dir());
    assert_eq!((code, array(&all).len()), (Some(1), 3));
    assert!(all[2]["missing"][0].as_str().unwrap().contains("no log: "), "{all}");
    assert!(log(&["verify"], stores.dir()).stdout.contains("rank-1: no store"));
    fs::remove_dir_all(stores.rank(0)).unwrap();
    profile(&stores, 0, Some("no room"));
    let (code, all) = log_json(&["verify"], stores.dir());
    assert_eq!(code, Some(1));
    assert!(all[0]["missing"][0].as_str().unwrap().contains("could not be kept: no room"), "{all}");
    assert!(log(&["dump"], stores.dir()).stderr.contains("is a job's directory, but no rank left a log in it"));
}

#[test]
fn a_job_that_logged_nothing_says_why() {
    let stores = Stores::new();
    job(&stores, "all", None);
    for (not_logged, said) in [
        (Vec::new(), "is a job's directory, but no rank left a log in it"),
        (
            vec!["nothing was logged, because of ranks 0 and 1: no room"],
            "is a job's directory: nothing was logged, because of",
        ),
    ] {
        let job = Job::read(stores.dir()).unwrap().unwrap();
        let not_logged = not_logged.into_iter().map(str::to_owned).collect();
        Job { not_logged, ..job }.write(stores.dir()).unwrap();
        for command in ["verify", "dump"] {
            let run = log(&[command], stores.dir());
            assert!(run.code == Some(1) && run.stderr.contains(said), "{}", run.stderr);
        }
    }
}

#[test]
fn records_of_an_mpi_program_have_communicator_tag_and_number() {
    let stores = Stores::new();
    let mut log_of_rank = Log::create(stores.options(0)).unwrap();
    for (peer, prefix) in
        [(1, b"\x05\0\0\0\x07\0\0\0\x09\0\0\0\0\0\0\0"), (0, b"\x05\0\0\0\xfe\xff\xff\xff\x02\0\0\0\0\0\0\0")]
    {
        let mut claim = log_of_rank.claim(Rank(peer), 16, 3).unwrap();
        claim.prefix_mut().copy_from_slice(prefix);
        claim.payload_mut().copy_from_slice(b"abc");
        claim.commit();
    }
    log_of_rank.checkpoint(Epoch(2), Contents::default()).unwrap();
    drop(log_of_rank);
    let (_, dump) = log_json(&["dump"], &stores.rank(0));
    let headers: Vec<&Value> = array(&dump["records"]).iter().map(|record| &record["header"]).collect();
    let contribution = json!({ "kind": "Contribution", "comm": 5, "tag": null, "number": 2 });
    let message = json!({ "kind": "Message", "comm": 5, "tag": 7, "number": 9 });
    assert_eq!(headers, [&contribution, &message]);
    let text = log(&["dump"], &stores.rank(0)).stdout;
    for line in ["Message, tag 7, comm 5, number 9", "Contribution to operation 2, comm 5"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn root_may_read_but_not_repair_the_store_of_another_user() {
    let stores = Stores::new();
    let (store, theirs) = (stores.intact(), stores.rank(2));
    copy(&store, &theirs);
    // Only root can change a file's owner and read the file after that.
    let paths = fs::read_dir(&theirs).unwrap().map(|entry| entry.unwrap().path()).chain([theirs.clone()]);
    if !paths.map(|path| std::os::unix::fs::chown(path, Some(12345), None)).all(|given| given.is_ok()) {
        return;
    }
    for arguments in [&["verify"][..], &["dump", "--limit", "1"], &["stats"], &["inspect"]] {
        let output = log(arguments, &theirs);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
    }
    let repair = log(&["repair"], &theirs);
    assert_eq!(repair.code, Some(1));
    assert!(repair.stderr.contains("belongs to user 12345") && !repair.stderr.contains("remove"), "{}", repair.stderr);
}
