//! Job directory reader.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use counterfoil_profile::{Job, ProfileError, RANKS_MAX, RankProfile};
use counterfoil_settings::recover::JobDescription;

use super::log_only::{self, LogPart};

const EXPECTED_DIRECTORY: &str =
    "expected the directory given to `counterfoil run --log-dir DIR`, with rank-0, rank-0.profile and so on";

/// Contents of the log directory of a job that recovers.
pub(crate) const OF_RECOVER: &str =
    "the logs of `counterfoil run --recover`, which `counterfoil replay` and `counterfoil check` read";

/// Error while reading a job's directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error("cannot read {}: {source}; {EXPECTED_DIRECTORY}", dir.display())]
    ReadDir { dir: PathBuf, source: io::Error },
    #[error("{} contains no logs of a job: {EXPECTED_DIRECTORY}", dir.display())]
    NoJob { dir: PathBuf },
    #[error("{} contains {OF_RECOVER}", dir.display())]
    OfRecover { dir: PathBuf },
    #[error("{} is the log of a single rank: use its parent directory, with those of all ranks", dir.display())]
    OneRank { dir: PathBuf },
    #[error(
        "{} contains profiles of jobs with {one} and with {other} ranks (rank {rank}): remove those of other jobs",
        dir.display()
    )]
    Mixed { dir: PathBuf, one: u32, other: u32, rank: u32 },
    #[error("{} contains rank {rank}: a report supports at most {RANKS_MAX} ranks", dir.display())]
    TooMany { dir: PathBuf, rank: u32 },
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Source of a rank's figures.
#[derive(Debug)]
pub(super) enum Source {
    /// Profile, written by the rank at its end.
    Profile(Box<RankProfile>),
    /// Remaining records in the rank's log.
    Log(Box<LogPart>),
    /// Nothing readable, and why.
    Missing(String),
}

/// Everything known about a job.
#[derive(Debug)]
pub(super) struct JobProfile {
    pub(super) dir: PathBuf,
    pub(super) job: Option<Job>,
    /// Each rank's source, by number.
    pub(super) ranks: Vec<Source>,
}

impl JobProfile {
    /// Reads the job's directory.
    pub(super) fn read(dir: &Path) -> Result<JobProfile, JobError> {
        let (profiles, logs) = list(dir)?;
        let job = Job::read(dir)?;
        let mut ranks: Vec<Source> = Vec::new();
        let mut put = |rank: u32, source: Source| {
            while ranks.len() <= rank as usize {
                ranks.push(Source::Missing("no profile and no log".to_owned()));
            }
            ranks[rank as usize] = source;
        };
        let mut known: Option<u32> = None;
        for &rank in &profiles {
            let profile = RankProfile::read(dir, rank)?;
            let (one, other) = (*known.get_or_insert(profile.ranks), profile.ranks);
            if one != other {
                return Err(JobError::Mixed { dir: dir.to_owned(), one, other, rank });
            }
            put(rank, Source::Profile(Box::new(profile)));
        }
        for &rank in logs.difference(&profiles) {
            if rank >= known.unwrap_or(RANKS_MAX) {
                return Err(match known {
                    Some(one) => JobError::Mixed { dir: dir.to_owned(), one, other: rank + 1, rank },
                    None => JobError::TooMany { dir: dir.to_owned(), rank },
                });
            }
            let path = dir.join(format!("rank-{rank}"));
            put(rank, log_only::read(&path).map_or_else(Source::Missing, |part| Source::Log(Box::new(part))));
        }
        if let Some(last) = known
            .max(job.as_ref().and_then(|job| job.ranks))
            .and_then(|ranks| ranks.checked_sub(1))
            .filter(|last| ranks.len() <= *last as usize)
        {
            let missing = || Source::Missing("no profile and no log".to_owned());
            ranks.resize_with(last as usize + 1, missing);
        }
        Ok(JobProfile { dir: dir.to_owned(), job, ranks })
    }
}

/// Lists the ranks with a profile, and those with a log.
fn list(dir: &Path) -> Result<(BTreeSet<u32>, BTreeSet<u32>), JobError> {
    let read_error = |source| JobError::ReadDir { dir: dir.to_owned(), source };
    let (mut profiles, mut logs) = (BTreeSet::new(), BTreeSet::new());
    let mut is_store = false;
    for entry in fs::read_dir(dir).map_err(read_error)? {
        let name = entry.map_err(read_error)?.file_name().to_string_lossy().into_owned();
        profiles.extend(RankProfile::parse_file_name(&name));
        logs.extend(name.strip_prefix("rank-").and_then(|rank| rank.parse::<u32>().ok()));
        is_store |= name == "manifest" || name.starts_with("segment-");
    }
    if !profiles.is_empty() || !logs.is_empty() {
        Ok((profiles, logs))
    } else if is_store {
        Err(JobError::OneRank { dir: dir.to_owned() })
    } else if dir.join(JobDescription::FILE).exists() {
        Err(JobError::OfRecover { dir: dir.to_owned() })
    } else {
        Err(JobError::NoJob { dir: dir.to_owned() })
    }
}
