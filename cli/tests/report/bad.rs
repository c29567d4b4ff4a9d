//! Directories that can't be reported on.

use std::fs;

use counterfoil_profile::RankProfile;

use super::made::{Made, profile, refusal};

#[test]
fn a_directory_that_is_none_or_has_no_job_is_refused_with_what_to_give() {
    let made = Made::empty();
    assert!(
        refusal(&made.report(&[]))
            .contains("has no job's logs: give the directory that `counterfoil run --log-dir DIR`")
    );
    fs::write(made.logs().join("manifest"), "").unwrap();
    assert!(refusal(&made.report(&[])).contains("is the log of one rank: give the directory above"));
    fs::remove_dir_all(made.logs()).unwrap();
    assert!(refusal(&made.report(&[])).contains("cannot look into logs"));
    fs::write(made.logs(), "").unwrap();
    assert!(refusal(&made.report(&[])).contains("cannot look into logs"));
}

#[test]
fn a_damaged_profile_is_named_and_nothing_is_written() {
    let made = Made::new(2);
    let path = RankProfile::path(&made.logs(), 1);
    let whole = fs::read(&path).unwrap();
    for damaged in [&b""[..], b"{}", b"\x00\xff", &whole[..whole.len() / 2]] {
        fs::write(&path, damaged).unwrap();
        let said = refusal(&made.report(&[]));
        assert!(said.contains("logs/rank-1.profile is damaged") && said.contains("remove it"), "{said}");
        let object = made.report(&["--json"]);
        let object: serde_json::Value = serde_json::from_slice(&object.stdout).unwrap();
        assert_eq!(object["exit_code"], 1);
    }
    assert!(!made.logs().join("report").exists());
    fs::remove_file(&path).unwrap();
    fs::write(made.logs().join("job.json"), "[").unwrap();
    assert!(refusal(&made.report(&[])).contains("job.json is damaged"));
}

#[test]
fn profiles_of_two_jobs_are_told_apart() {
    let made = Made::new(2);
    let mut other = profile(1, 2);
    other.ranks = 5;
    other.write(&made.logs()).unwrap();
    assert!(refusal(&made.report(&[])).contains("jobs with 2 and with 5 ranks (rank 1)"));
    profile(1, 2).write(&made.logs()).unwrap();
    fs::create_dir(made.logs().join("rank-7")).unwrap();
    assert!(refusal(&made.report(&[])).contains("jobs with 2 and with 8 ranks (rank 7)"));
    let many = Made::empty();
    fs::create_dir(many.logs().join("rank-4000000000")).unwrap();
    assert!(refusal(&many.report(&[])).contains("16384 ranks at most"));
}

#[test]
fn a_place_that_can_t_be_written_is_named() {
    let made = Made::new(2);
    fs::write(made.path().join("file"), "").unwrap();
    assert!(refusal(&made.report(&["--out", "file"])).contains("cannot make the folder file"));
    assert!(refusal(&made.report(&["--out", "/proc/report.html"])).contains("cannot write /proc/report.html"));
}
