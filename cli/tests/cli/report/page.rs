//! The page, its pictures and its figures.

use std::collections::BTreeSet;
use std::fs;

use counterfoil_profile::{Ended, RANKS_MAX, RankProfile, Sample};
use serde_json::json;

use super::job_dir::{JobDir, job, profile, texts, traffic};

const PICTURES: [&str; 8] =
    ["matrix-messages", "matrix-bytes", "growth", "memory", "unacknowledged", "sizes", "delays", "collectives"];

#[test]
fn figures_are_those_of_the_profiles() {
    let job_dir = JobDir::new(3);
    let figures = job_dir.figures(&[]);
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
fn the_page_embeds_every_picture_and_refers_to_no_resources() {
    let job_dir = JobDir::new(4);
    let files = job_dir.figures(&[])["files"].as_array().unwrap().len();
    assert_eq!(files, 1 + PICTURES.len());
    let page = job_dir.page();
    for name in PICTURES {
        let svg = fs::read_to_string(job_dir.logs().join(format!("report/{name}.svg"))).unwrap();
        assert!(!texts(&svg).is_empty() && svg.contains("</svg>"), "{name}");
        assert!(page.contains(&svg), "{name} is embedded in the page");
    }
    for word in ["src=", "href=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count(), "XML namespaces only");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "arguments are escaped");
    for text in ["solver", "Open MPI 5.0.11 (wheel)", "node-local", "1.250 s", "MPI_Finalize"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn pictures_show_the_figures() {
    let job_dir = JobDir::new(3);
    job_dir.figures(&[]);
    let texts = |name: &str| -> BTreeSet<String> {
        texts(&fs::read_to_string(job_dir.logs().join(format!("report/{name}.svg"))).unwrap()).into_iter().collect()
    };
    for text in ["from rank", "to rank", "2", "3", "11", "13", "21", "22"] {
        assert!(texts("matrix-messages").contains(text), "{text}: {:?}", texts("matrix-messages"));
    }
    assert!(texts("collectives").contains("150, 1.17 KiB kept"), "{:?}", texts("collectives"));
    assert!(texts("delays").contains("Delay of acknowledgements: 50 % within 1 µs, 99 % within 50 µs"));
    for text in ["logged", "in memory", "spilled"] {
        assert!(texts("growth").contains(text), "{text}: {:?}", texts("growth"));
    }
    for text in ["rank 0", "rank 1", "rank 2"] {
        assert!(texts("memory").contains(text), "{text}: {:?}", texts("memory"));
    }
}

#[test]
fn the_same_directory_gives_the_same_page() {
    let job_dir = JobDir::new(2);
    job_dir.figures(&[]);
    let first = job_dir.page();
    job_dir.figures(&[]);
    assert!(first == job_dir.page());
}

#[test]
fn a_large_job_has_a_page_of_bounded_size() {
    let job_dir = JobDir::new(64);
    job_dir.figures(&[]);
    let page = job_dir.page();
    assert!(page.len() < 2 << 20, "{}", page.len());
    assert!(page.contains("The 20 of 4,032 channels with the most bytes"));
    let memory = fs::read_to_string(job_dir.logs().join("report/memory.svg")).unwrap();
    assert!(memory.contains("Log memory of the 8 of 64 ranks with the highest peaks"));
}

#[test]
fn extreme_figures_are_drawn() {
    let job_dir = JobDir::new(2);
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
    extreme.write(&job_dir.logs()).unwrap();
    assert_eq!(job_dir.figures(&[])["files"].as_array().unwrap().len(), 1 + PICTURES.len());
    // One out of very many ranks.
    let lonely = JobDir::empty();
    RankProfile { ranks: RANKS_MAX, ..profile(0, 2) }.write(&lonely.logs()).unwrap();
    let notes = lonely.figures(&[])["notes"].to_string();
    assert!(notes.contains("ranks 1-16383: no data"), "{notes}");
}

#[test]
fn a_rank_without_profile_and_log_is_reported() {
    let job_dir = JobDir::new(3);
    for rank in [1, 2] {
        fs::remove_file(RankProfile::path(&job_dir.logs(), rank)).unwrap();
        fs::remove_dir(job_dir.logs().join(format!("rank-{rank}"))).unwrap();
    }
    let figures = job_dir.figures(&[]);
    let note = figures["notes"][0].as_str().unwrap();
    assert!(note.starts_with("ranks 1, 2: no data"), "{note}");
    assert!(job_dir.page().contains("ranks 1, 2: no data"));
    assert_eq!(figures["ranks"][2]["source"], "missing");
}

#[test]
fn messages_received_from_a_rank_without_profile_and_log_are_in_its_row() {
    let job_dir = JobDir::new(4);
    for rank in [1, 2] {
        fs::remove_file(RankProfile::path(&job_dir.logs(), rank)).unwrap();
        fs::remove_dir(job_dir.logs().join(format!("rank-{rank}"))).unwrap();
    }
    let figures = job_dir.figures(&[]);
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
    assert!(note.starts_with("ranks 1, 2: messages are counted by their receivers"), "{note}");
    let page = job_dir.page();
    assert_eq!(page.matches("missing: counted by receivers").count(), 2);
    let (first, last) = (traffic(1, 0).0, traffic(1, 3).0);
    assert!(page.contains(&format!("<td>1</td><td>{}</td>", first + last)), "{page}");
}

#[test]
fn problems_are_reported_as_notes() {
    let job_dir = JobDir::new(2);
    let mut aborted = profile(1, 2);
    (aborted.ended, aborted.logging_stopped, aborted.gave_up) = (Ended::Aborted, true, Some("the disk".to_owned()));
    aborted.received.clear();
    aborted.write(&job_dir.logs()).unwrap();
    let mut failed = job();
    failed.exit_code = Some(7);
    failed.write(&job_dir.logs()).unwrap();
    let notes = job_dir.figures(&[])["notes"].to_string();
    failed.interrupted = true;
    failed.write(&job_dir.logs()).unwrap();
    let interrupted = job_dir.figures(&[])["notes"].to_string();
    assert!(interrupted.contains("the job was interrupted") && !interrupted.contains("exit code"), "{interrupted}");
    for what in ["exit code 7", "rank 1: called MPI_Abort", "rank 1: the log was full", "gave up logging: the disk"] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    let (lost, _) = traffic(0, 1);
    assert!(notes.contains(&format!("{lost} more messages were logged than received")), "{notes}");
    fs::remove_file(job_dir.logs().join("job.json")).unwrap();
    assert!(job_dir.figures(&[])["notes"].to_string().contains("no job.json"));
}

#[test]
fn logs_that_could_not_be_kept_are_in_one_note_and_in_the_rows() {
    let job_dir = JobDir::new(4);
    for rank in 1..4 {
        let mut full = profile(rank, 4);
        full.not_kept = Some(format!("the disk is full: {} bytes left", 100 + rank));
        full.write(&job_dir.logs()).unwrap();
    }
    let notes = job_dir.figures(&[])["notes"].clone();
    let note = "ranks 1-3: the log could not be kept, only its figures: the disk is full: 101 bytes left";
    assert_eq!(notes, json!([note]));
    assert_eq!(job_dir.page().matches(", log not kept").count(), 3);
}

#[test]
fn missing_records_are_in_one_note() {
    let job_dir = JobDir::new(3);
    for rank in [0, 2] {
        RankProfile { gaps: vec!["it was turned off".to_owned()], ..profile(rank, 3) }.write(&job_dir.logs()).unwrap();
    }
    let figures = job_dir.figures(&[]);
    assert_eq!(figures["notes"], json!(["ranks 0, 2: records are missing from the log: it was turned off"]));
    assert_eq!(figures["ranks"][2]["gaps"], json!(["it was turned off"]));
}

#[test]
fn ranks_without_files_have_rows_if_the_job_knows_their_number() {
    let job_dir = JobDir::new(2);
    let mut larger = job();
    larger.ranks = Some(4);
    larger.write(&job_dir.logs()).unwrap();
    for rank in 0..2 {
        fs::remove_file(RankProfile::path(&job_dir.logs(), rank)).unwrap();
        fs::remove_dir(job_dir.logs().join(format!("rank-{rank}"))).unwrap();
        profile(rank, 4).write(&job_dir.logs()).unwrap();
    }
    let figures = job_dir.figures(&[]);
    assert_eq!(figures["ranks"].as_array().unwrap().len(), 4);
    assert!(figures["notes"][0].as_str().unwrap().starts_with("ranks 2, 3: no data"), "{figures}");
}

#[test]
fn out_is_a_folder_or_the_page() {
    let job_dir = JobDir::new(2);
    job_dir.figures(&["--out", "new/folder"]);
    assert!(
        job_dir.path().join("new/folder/report.html").exists() && job_dir.path().join("new/folder/sizes.svg").exists()
    );
    job_dir.figures(&["--out", "run-7.html"]);
    assert!(job_dir.path().join("run-7.html").exists() && job_dir.path().join("run-7-sizes.svg").exists());
    assert!(!job_dir.logs().join("report").exists(), "nothing is written to the default folder");
    let text = job_dir.report(&[]);
    let stdout = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(stdout.starts_with("solver: 2 ranks, ") && stdout.contains("logs/report/report.html"), "{stdout}");
}
