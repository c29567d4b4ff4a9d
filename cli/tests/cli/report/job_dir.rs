//! A job's directory with known figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use counterfoil_profile::{
    Channel, Collective, DelayCounts, Ended, Job, RankProfile, Sample, Series, Setting, Sizes, VERSION,
};
use serde_json::Value;
use tempfile::TempDir;

/// Returns the number of messages from one rank to another, and the size of each.
pub(crate) fn traffic(from: u32, to: u32) -> (u64, u64) {
    if from == to { (0, 0) } else { (u64::from(from * 10 + to + 1), 100 << (to % 8)) }
}

/// Creates the profile of a rank that sent and received all [`traffic`].
pub(crate) fn profile(rank: u32, ranks: u32) -> RankProfile {
    let mut sizes = Sizes::default();
    let mut series = Series::default();
    let (mut logged, mut received) = (Vec::new(), Vec::new());
    for peer in 0..ranks {
        let (messages, bytes) = traffic(rank, peer);
        for _ in 0..messages {
            sizes.add(bytes);
        }
        if messages > 0 {
            logged.push(Channel { peer, messages, bytes: messages * bytes });
        }
        let (messages, bytes) = traffic(peer, rank);
        if messages > 0 {
            received.push(Channel { peer, messages, bytes: messages * bytes });
        }
    }
    for step in 0..100 {
        series.add(Sample {
            at_ms: step * 10,
            messages: step,
            bytes: step * 1000,
            used_bytes: step * 700,
            spilled_bytes: step * 300,
            unacknowledged: step % 7,
        });
    }
    let collective = |kind: &str, calls| Collective { kind: kind.to_owned(), calls, kept_bytes: calls * 8 };
    RankProfile {
        version: VERSION,
        rank,
        ranks,
        ended: Ended::Finalized,
        wall_ms: 1000,
        logged,
        received,
        sizes,
        collectives: vec![collective("Barrier", 2), collective("Allreduce", 50)],
        determinants: 3,
        memory_peak_bytes: 1 << 20,
        spilled_bytes: 30_000,
        waited_ms: 0,
        logging_stopped: false,
        gave_up: None,
        not_kept: None,
        gaps: Vec::new(),
        delays: DelayCounts { delays_ns: vec![(1_000, 90), (50_000, 9), (2_000_000, 1)], left_out: 0, unanswered: 0 },
        series,
    }
}

pub(crate) fn job() -> Job {
    let setting = |name: &str, value: &str| Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        source: "default".to_owned(),
    };
    Job {
        version: VERSION,
        program: vec!["/opt/bin/solver".to_owned(), "<script>alert(1)</script>".to_owned()],
        mpi: "Open MPI 5.0.11 (wheel)".to_owned(),
        settings: vec![setting("protocol", "sender-based"), setting("keep", "all"), setting("tier", "node-local")],
        wall_s: Some(1.25),
        exit_code: Some(0),
        interrupted: false,
        ranks: None,
        not_logged: Vec::new(),
    }
}

/// Job directory.
pub(crate) struct JobDir {
    directory: TempDir,
}

impl JobDir {
    pub(crate) fn new(ranks: u32) -> JobDir {
        let job_dir = JobDir::empty();
        job().write(&job_dir.logs()).unwrap();
        for rank in 0..ranks {
            profile(rank, ranks).write(&job_dir.logs()).unwrap();
            fs::create_dir(job_dir.logs().join(format!("rank-{rank}"))).unwrap();
        }
        job_dir
    }

    pub(crate) fn empty() -> JobDir {
        let job_dir = JobDir { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(job_dir.logs()).unwrap();
        job_dir
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }

    /// Runs `counterfoil report logs` with the given further arguments.
    pub(crate) fn report(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(["report", "logs"]).args(arguments).current_dir(self.path()).output().unwrap()
    }

    /// Returns the figures from a successful report.
    pub(crate) fn figures(&self, arguments: &[&str]) -> Value {
        let output = self.report(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Reads the page at its default path.
    pub(crate) fn page(&self) -> String {
        fs::read_to_string(self.logs().join("report/report.html")).unwrap()
    }
}

/// Returns the message from a report that failed with exit code 1.
#[track_caller]
pub(crate) fn error(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

/// Returns a picture's texts; it must be well-formed.
pub(crate) fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    texts.filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect()
}
