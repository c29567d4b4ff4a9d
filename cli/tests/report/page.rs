//! The page, its pictures and its figures.

use std::collections::BTreeSet;
use std::fs;

use counterfoil_profile::{Ended, RANKS_MAX, RankProfile, Sample};
use serde_json::json;

use super::made::{Made, job, profile, texts, traffic};

const PICTURES: [&str; 8] =
    ["matrix-messages", "matrix-bytes", "growth", "memory", "unacknowledged", "sizes", "delays", "collectives"];

#[test]
fn figures_are_those_of_the_profiles() {
    let made = Made::new(3);
    let figures = made.figures(&[]);
    let matrix = figures["matrix"].as_array().unwrap();
    assert_eq!(matrix.len(), 6);
    for channel in matrix {
        let [from, to] = ["from", "to"].map(|end| u32::try_from(channel[end].as_u64().unwrap()).unwrap());
        let (messages, bytes) = traffic(from, to);
        assert_eq!((&channel["messages"], &channel["bytes"]), (&messages.into(), &(messages * bytes).into()));
    }
    let sizes: u64 = figures["sizes"].as_array().unwrap().iter().map(|class| class["messages"].as_u64().unwrap()).sum();
    let logged: u64 = matrix.iter().map(|channel| channel["messages"].as_u64().unwrap()).sum();
    assert_eq!(sizes, logged);
    assert_eq!(figures["collectives"][0], json!({ "kind": "Allreduce", "calls": 150, "kept_bytes": 1200 }));
    assert_eq!(figures["delays"]["samples"], 300);
    let quantiles = figures["delays"]["quantiles"].as_array().unwrap();
    let at = |index: usize| quantiles[index]["delay_ns"].as_u64().unwrap();
    assert_eq!([at(0), at(1), at(2), at(4)], [1_000, 1_000, 50_000, 2_000_000]);
    assert_eq!(figures["job"]["mpi"], "Open MPI 5.0.11 (wheel)");
    assert_eq!(figures["notes"], json!([]));
}

#[test]
fn the_page_has_every_picture_in_it_and_asks_for_nothing() {
    let made = Made::new(4);
    let files = made.figures(&[])["files"].as_array().unwrap().len();
    assert_eq!(files, 1 + PICTURES.len());
    let page = made.page();
    for name in PICTURES {
        let svg = fs::read_to_string(made.logs().join(format!("report/{name}.svg"))).unwrap();
        assert!(!texts(&svg).is_empty() && svg.contains("</svg>"), "{name}");
        assert!(page.contains(&svg), "{name} is the picture on the page, too");
    }
    for word in ["src=", "href=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count(), "only a name of XML");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "what a program is told is text");
    for text in ["solver", "Open MPI 5.0.11 (wheel)", "node-local", "1.250 s", "MPI_Finalize"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn pictures_say_what_was_counted() {
    let made = Made::new(3);
    made.figures(&[]);
    let texts = |name: &str| -> BTreeSet<String> {
        texts(&fs::read_to_string(made.logs().join(format!("report/{name}.svg"))).unwrap()).into_iter().collect()
    };
    for text in ["from rank", "to rank", "2", "3", "11", "13", "21", "22"] {
        assert!(texts("matrix-messages").contains(text), "{text}: {:?}", texts("matrix-messages"));
    }
    assert!(texts("collectives").contains("150, 1.17 KiB kept"), "{:?}", texts("collectives"));
    assert!(texts("delays").contains("Delay of acknowledgements: half within 1 µs, 99 % within 50 µs"));
    for text in ["logged", "in memory", "moved to disk"] {
        assert!(texts("growth").contains(text), "{text}: {:?}", texts("growth"));
    }
    for text in ["rank 0", "rank 1", "rank 2"] {
        assert!(texts("memory").contains(text), "{text}: {:?}", texts("memory"));
    }
}

#[test]
fn the_same_directory_gives_the_same_page() {
    let made = Made::new(2);
    made.figures(&[]);
    let first = made.page();
    made.figures(&[]);
    assert!(first == made.page());
}

#[test]
fn a_large_job_has_a_page_of_bounded_size() {
    let made = Made::new(64);
    made.figures(&[]);
    let page = made.page();
    assert!(page.len() < 2 << 20, "{}", page.len());
    assert!(page.contains("The 20 of 4,032 channels that have most bytes"));
    let memory = fs::read_to_string(made.logs().join("report/memory.svg")).unwrap();
    assert!(memory.contains("the 8 ranks of 64 that reached highest"));
}

#[test]
fn figures_that_no_job_has_are_drawn_all_the_same() {
    let made = Made::new(2);
    let mut extreme = profile(1, 2);
    for channel in &mut extreme.logged {
        (channel.messages, channel.bytes) = (u64::MAX, u64::MAX);
    }
    extreme.sizes = serde_json::from_str("[[0,18446744073709551615],[64,18446744073709551615]]").unwrap();
    extreme.delays.delays_ns = vec![(0, 0), (1, u64::MAX), (u64::MAX, u64::MAX)];
    let last =
        Sample { at_ms: u64::MAX, messages: u64::MAX, bytes: u64::MAX, used_bytes: u64::MAX, ..Sample::default() };
    extreme.series.finish(last);
    (extreme.wall_ms, extreme.memory_peak_bytes, extreme.collectives[0].calls) = (u64::MAX, u64::MAX, u64::MAX);
    extreme.write(&made.logs()).unwrap();
    assert_eq!(made.figures(&[])["files"].as_array().unwrap().len(), 1 + PICTURES.len());
    // One of very many.
    let lonely = Made::empty();
    RankProfile { ranks: RANKS_MAX, ..profile(0, 2) }.write(&lonely.logs()).unwrap();
    let notes = lonely.figures(&[])["notes"].to_string();
    assert!(notes.contains("ranks 1-16383: this part is missing"), "{notes}");
}

#[test]
fn a_rank_that_left_nothing_is_said_to_be_missing() {
    let made = Made::new(3);
    for rank in [1, 2] {
        fs::remove_file(RankProfile::path(&made.logs(), rank)).unwrap();
        fs::remove_dir(made.logs().join(format!("rank-{rank}"))).unwrap();
    }
    let figures = made.figures(&[]);
    let note = figures["notes"][0].as_str().unwrap();
    assert!(note.starts_with("ranks 1, 2: this part is missing"), "{note}");
    assert!(made.page().contains("ranks 1, 2: this part is missing"));
    assert_eq!(figures["ranks"][2]["source"], "missing");
}

#[test]
fn what_others_received_from_a_rank_that_left_nothing_is_in_its_row() {
    let made = Made::new(4);
    for rank in [1, 2] {
        fs::remove_file(RankProfile::path(&made.logs(), rank)).unwrap();
        fs::remove_dir(made.logs().join(format!("rank-{rank}"))).unwrap();
    }
    let figures = made.figures(&[]);
    let matrix = figures["matrix"].as_array().unwrap();
    for from in 0..4 {
        for to in 0..4 {
            let found = matrix.iter().find(|row| row["from"] == from && row["to"] == to);
            let is_gone = |rank| rank == 1 || rank == 2;
            if from == to || is_gone(from) && is_gone(to) {
                assert_eq!(found, None, "{from} to {to}");
                continue;
            }
            let (messages, bytes) = traffic(from, to);
            let mut right = json!({ "from": from, "to": to, "messages": messages, "bytes": messages * bytes });
            if is_gone(from) {
                right["by"] = json!("receiver");
            }
            assert_eq!(found, Some(&right));
        }
    }
    let note = figures["notes"][1].as_str().unwrap();
    assert!(note.starts_with("ranks 1, 2: what others received from there"), "{note}");
    let page = made.page();
    assert_eq!(page.matches("missing: what others received from it").count(), 2);
    let (first, last) = (traffic(1, 0).0, traffic(1, 3).0);
    assert!(page.contains(&format!("<td>1</td><td>{}</td>", first + last)), "{page}");
}

#[test]
fn what_went_wrong_is_said_first() {
    let made = Made::new(2);
    let mut aborted = profile(1, 2);
    (aborted.ended, aborted.logging_stopped, aborted.gave_up) = (Ended::Aborted, true, Some("the disk".to_owned()));
    aborted.received.clear();
    aborted.write(&made.logs()).unwrap();
    let mut failed = job();
    failed.exit_code = Some(7);
    failed.write(&made.logs()).unwrap();
    let notes = made.figures(&[])["notes"].to_string();
    failed.interrupted = true;
    failed.write(&made.logs()).unwrap();
    let interrupted = made.figures(&[])["notes"].to_string();
    assert!(interrupted.contains("the job was interrupted") && !interrupted.contains("exit code"), "{interrupted}");
    for what in ["exit code 7", "rank 1: called MPI_Abort", "rank 1: the log was full", "gave up logging: the disk"] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    let (lost, _) = traffic(0, 1);
    assert!(notes.contains(&format!("{lost} messages more were logged than their receivers took")), "{notes}");
    fs::remove_file(made.logs().join("job.json")).unwrap();
    assert!(made.figures(&[])["notes"].to_string().contains("no job.json"));
}

#[test]
fn logs_that_could_not_be_kept_are_said_once_and_in_the_rows() {
    let made = Made::new(4);
    for rank in 1..4 {
        let mut full = profile(rank, 4);
        full.not_kept = Some(format!("the disk is full: {} bytes left", 100 + rank));
        full.write(&made.logs()).unwrap();
    }
    let notes = made.figures(&[])["notes"].clone();
    let note = "ranks 1-3: the log could not be kept, these are figures only: the disk is full: 101 bytes left";
    assert_eq!(notes, json!([note]));
    assert_eq!(made.page().matches(", log not kept").count(), 3);
}

#[test]
fn ranks_that_left_nothing_at_all_are_rows_where_the_job_says_how_many_there_were() {
    let made = Made::new(2);
    let mut larger = job();
    larger.ranks = Some(4);
    larger.write(&made.logs()).unwrap();
    for rank in 0..2 {
        fs::remove_file(RankProfile::path(&made.logs(), rank)).unwrap();
        fs::remove_dir(made.logs().join(format!("rank-{rank}"))).unwrap();
        profile(rank, 4).write(&made.logs()).unwrap();
    }
    let figures = made.figures(&[]);
    assert_eq!(figures["ranks"].as_array().unwrap().len(), 4);
    assert!(figures["notes"][0].as_str().unwrap().starts_with("ranks 2, 3: this part is missing"), "{figures}");
}

#[test]
fn out_is_a_folder_or_the_page() {
    let made = Made::new(2);
    made.figures(&["--out", "new/folder"]);
    assert!(made.path().join("new/folder/report.html").exists() && made.path().join("new/folder/sizes.svg").exists());
    made.figures(&["--out", "run-7.html"]);
    assert!(made.path().join("run-7.html").exists() && made.path().join("run-7-sizes.svg").exists());
    assert!(!made.logs().join("report").exists(), "nothing is written where nobody asked for it");
    let text = made.report(&[]);
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(said.starts_with("solver: 2 ranks, ") && said.contains("logs/report/report.html"), "{said}");
}
