//! Directories unfit for a report.

use std::fs;

use counterfoil_profile::RankProfile;

use super::job_dir::{JobDir, error, profile};

#[test]
fn a_path_without_a_job_is_refused_with_advice() {
    let job_dir = JobDir::empty();
    let message = error(&job_dir.report(&[]));
    assert!(
        message.contains("contains no logs of a job: expected the directory given to `counterfoil run --log-dir DIR`"),
        "{message}"
    );
    fs::write(job_dir.logs().join("manifest"), "").unwrap();
    assert!(error(&job_dir.report(&[])).contains("is the log of a single rank: use its parent directory"));
    fs::remove_dir_all(job_dir.logs()).unwrap();
    assert!(error(&job_dir.report(&[])).contains("cannot read logs"));
    fs::write(job_dir.logs(), "").unwrap();
    assert!(error(&job_dir.report(&[])).contains("cannot read logs"));
}

#[test]
fn a_damaged_profile_is_named_and_nothing_is_written() {
    let job_dir = JobDir::new(2);
    let path = RankProfile::path(&job_dir.logs(), 1);
    let whole = fs::read(&path).unwrap();
    for damaged in [&b""[..], b"{}", b"\x00\xff", &whole[..whole.len() / 2]] {
        fs::write(&path, damaged).unwrap();
        let message = error(&job_dir.report(&[]));
        assert!(message.contains("logs/rank-1.profile is damaged") && message.contains("remove it"), "{message}");
        let object = job_dir.report(&["--json"]);
        let object: serde_json::Value = serde_json::from_slice(&object.stdout).unwrap();
        assert_eq!(object["exit_code"], 1);
    }
    assert!(!job_dir.logs().join("report").exists());
    fs::remove_file(&path).unwrap();
    fs::write(job_dir.logs().join("job.json"), "[").unwrap();
    assert!(error(&job_dir.report(&[])).contains("job.json is damaged"));
}

#[test]
fn profiles_of_two_jobs_are_told_apart() {
    let job_dir = JobDir::new(2);
    let mut other = profile(1, 2);
    other.ranks = 5;
    other.write(&job_dir.logs()).unwrap();
    assert!(error(&job_dir.report(&[])).contains("jobs with 2 and with 5 ranks (rank 1)"));
    profile(1, 2).write(&job_dir.logs()).unwrap();
    fs::create_dir(job_dir.logs().join("rank-7")).unwrap();
    assert!(error(&job_dir.report(&[])).contains("jobs with 2 and with 8 ranks (rank 7)"));
    let many = JobDir::empty();
    fs::create_dir(many.logs().join("rank-4000000000")).unwrap();
    assert!(error(&many.report(&[])).contains("at most 16384 ranks"));
}

#[test]
fn an_unwritable_output_path_is_named() {
    let job_dir = JobDir::new(2);
    fs::write(job_dir.path().join("file"), "").unwrap();
    assert!(error(&job_dir.report(&["--out", "file"])).contains("cannot create the folder file"));
    assert!(error(&job_dir.report(&["--out", "/proc/report.html"])).contains("cannot write /proc/report.html"));
}
