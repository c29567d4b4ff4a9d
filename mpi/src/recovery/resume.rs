//! Resumption of a completely failed job: its program is started again under the job's name.
//!
//! | file | in | written |
//! |---|---|---|
//! | a rank's mark | both directories on the rank's host | before the first record, by the rank |
//! | record | the checkpoint directory on each host | at each start, once all have got that far |
//!
//! So a record means that every rank has a mark somewhere, and a rank without a mark on its host has lost its log. An
//! ended job's record is marked: its files are removed, and a job with its name is another one. Processes of different
//! starts have different incarnations.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use counterfoil_mpi_core::comm::Comm;
use counterfoil_runtime::local::{JobError, SharedJobDirectory};
use counterfoil_runtime::{RankSettings, Rule, Tier};
use serde::{Deserialize, Serialize};

use super::{Naps, Options, RecoveryError};
use crate::membership::own_host;

/// A rank's incarnations per start of its job.
const INCARNATIONS_PER_START: u32 = 1 << 16;
/// Record bytes in messages: at least its longest encoding.
const RECORD_BYTES: usize = 64;
/// Version of the record.
const VERSION: u8 = 3;
/// Time after which a wait for a job's locks is reported.
const WAIT_IS_SAID_AFTER: Duration = Duration::from_secs(1);

/// Reason that a named job can't be started or resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// A process holds a rank's files.
    #[error("job {name} is running: a process holds the files of rank {rank} in {}", directory.display())]
    Running {
        /// The job's name.
        name: String,
        /// The rank.
        rank: u32,
        /// The job's directory.
        directory: PathBuf,
    },
    /// An earlier job with this name has ended, and a process still holds its files.
    #[error("an earlier job {name} has ended, and one of its processes still holds files in {}: end it", directory.display())]
    Ending {
        /// The job's name.
        name: String,
        /// The job's directory.
        directory: PathBuf,
    },
    /// The job was started with other settings.
    #[error(
        "job {name} has {what}, and is started again with {given}: resume it with the same, choose another name, or remove it with \
         `counterfoil clean --job {name}`"
    )]
    Settings {
        /// The job's name.
        name: String,
        /// Setting of the job.
        what: String,
        /// Setting of this start.
        given: String,
    },
    /// A directory lacks a rank's mark: it ran on another host, or the host lost its memory.
    #[error(
        "rank {rank} of job {name} can't be resumed: its files aren't in {}. Resume the job with the same directories and the same ranks on \
         each host; after a host was restarted, that takes the node-local tier. `counterfoil clean --job {name}` removes the job",
        directory.display()
    )]
    Lost {
        /// The job's name.
        name: String,
        /// The rank.
        rank: u32,
        /// Directory without the files.
        directory: PathBuf,
    },
    /// The job has logs on this host, but no record in the checkpoint directory.
    #[error(
        "job {name} has logs in {}, and began with checkpoints in another directory, {}: resume it with that one, or remove it with \
         `counterfoil clean --job {name}`",
        logs.display(),
        checkpoints.display()
    )]
    OtherCheckpoints {
        /// The job's name.
        name: String,
        /// Log directory.
        logs: PathBuf,
        /// Checkpoint directory at the job's beginning.
        checkpoints: PathBuf,
    },
    /// The job's record is damaged, or has another version.
    #[error("{} isn't the record of a job: `counterfoil clean --job {name}` removes the job", path.display())]
    Record {
        /// The job's name.
        name: String,
        /// The record's path.
        path: PathBuf,
    },
    /// The job was started 65,535 times.
    #[error("job {name} was started {starts} times, and can't be resumed again")]
    Starts {
        /// The job's name.
        name: String,
        /// Number of starts.
        starts: u16,
    },
}

/// State of a job, as known on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u8,
    /// True if all ranks were done.
    has_ended: bool,
    /// Number of the job's starts.
    starts: u16,
    ranks: u32,
    rule: Rule,
    tier: Tier,
}

/// Begins a job with this name, or resumes it; returns its record, or `None` if an earlier one with this name has ended
/// and left files.
///
/// Collective.
///
/// # Errors
/// [`RecoveryError::Resume`], [`RecoveryError::Job`], [`RecoveryError::Mpi`].
pub(super) fn begin(
    world: &Comm,
    directory: &SharedJobDirectory,
    name: &str,
    options: &Options,
) -> Result<Option<Record>, RecoveryError> {
    wait_for_locks(directory, name, options)?;
    // No process starts its rank before all have looked.
    let records = gather(world, read(directory, name)?)?;
    if records.iter().flatten().any(|record| record.has_ended) {
        return Ok(None);
    }
    let newest = records.into_iter().flatten().max_by_key(|record| record.starts);
    let settings = &options.settings;
    let rank = Some(world.rank()?).filter(|process| *process < settings.ranks);
    match newest {
        Some(record) => {
            record.check(name, settings)?;
            let needs_memory = settings.tier != Tier::NodeLocal;
            if let Some((rank, unmarked)) = rank.and_then(|rank| Some((rank, directory.unmarked(rank, needs_memory)?)))
            {
                let directory = unmarked.to_owned();
                return Err(ResumeError::Lost { name: name.to_owned(), rank, directory }.into());
            }
        }
        None => {
            claim_checkpoints(directory, name)?;
            if let Some(rank) = rank {
                directory.mark_rank(rank, &own_host())?;
            }
        }
    }
    world.barrier()?;
    let before = newest.map_or(0, |record| record.starts);
    let Some(starts) = before.checked_add(1) else {
        return Err(ResumeError::Starts { name: name.to_owned(), starts: before }.into());
    };
    let record = Record::new(starts, settings);
    directory.write_record(world.rank()?, &record.encode())?;
    Ok(Some(record))
}

/// Begins a job with this checkpoint directory, unless this host has logs from a start with another one.
fn claim_checkpoints(directory: &SharedJobDirectory, name: &str) -> Result<(), RecoveryError> {
    let Some(checkpoints) = directory.claim_checkpoints()? else { return Ok(()) };
    let logs = directory.paths().logs();
    Err(ResumeError::OtherCheckpoints { name: name.to_owned(), logs, checkpoints }.into())
}

/// Waits until no process holds a rank's files.
fn wait_for_locks(directory: &SharedJobDirectory, name: &str, options: &Options) -> Result<(), ResumeError> {
    let (begun, mut naps) = (Instant::now(), Naps::default());
    let mut is_said = false;
    while let Some(rank) = (0..options.settings.ranks).find(|rank| directory.is_in_use(*rank)) {
        if begun.elapsed() >= options.locks_wait_max {
            let directory = directory.paths().directory().to_owned();
            return Err(ResumeError::Running { name: name.to_owned(), rank, directory });
        }
        if !is_said && begun.elapsed() >= WAIT_IS_SAID_AFTER {
            tracing::warn!(name, rank, "a process holds the files of a rank; waiting for its end");
            is_said = true;
        }
        naps.sleep();
    }
    Ok(())
}

fn read(directory: &SharedJobDirectory, name: &str) -> Result<Option<Record>, RecoveryError> {
    let Some(bytes) = directory.read_record()? else { return Ok(None) };
    let record = postcard::from_bytes(&bytes).ok().filter(|record: &Record| record.version == VERSION);
    let damaged = || ResumeError::Record { name: name.to_owned(), path: directory.record_path() };
    Ok(Some(record.ok_or_else(damaged)?))
}

/// Returns each process's record.
///
/// Collective.
fn gather(world: &Comm, own: Option<Record>) -> Result<Vec<Option<Record>>, RecoveryError> {
    let mut sent = own.map(|record| record.encode()).unwrap_or_default();
    sent.resize(RECORD_BYTES, 0);
    let mut all = vec![0; RECORD_BYTES * world.size()? as usize];
    world.all_gather(&sent, &mut all)?;
    let record = |bytes| postcard::take_from_bytes::<Record>(bytes).ok().map(|(record, _)| record);
    Ok(all.chunks(RECORD_BYTES).map(|bytes| record(bytes).filter(|record| record.version == VERSION)).collect())
}

impl Record {
    fn new(starts: u16, settings: &RankSettings) -> Record {
        let RankSettings { ranks, rule, tier, .. } = *settings;
        Record { version: VERSION, has_ended: false, starts, ranks, rule, tier }
    }

    /// Returns the first processes' incarnation in this start.
    pub(super) fn first_incarnation(&self) -> u32 {
        u32::from(self.starts - 1) * INCARNATIONS_PER_START
    }

    /// Records that all ranks are done.
    ///
    /// Call it while this process holds files of the job.
    ///
    /// # Errors
    /// [`JobError::Io`].
    pub(super) fn end(self, directory: &SharedJobDirectory, process: u32) -> Result<(), JobError> {
        directory.write_record(process, &Record { has_ended: true, ..self }.encode())
    }

    fn encode(&self) -> Vec<u8> {
        // Only an allocation can fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Checks that a start has the job's settings.
    fn check(&self, name: &str, settings: &RankSettings) -> Result<(), ResumeError> {
        let given = Record::new(self.starts, settings);
        if *self == given {
            return Ok(());
        }
        let (what, given) = if self.ranks != given.ranks {
            (format!("{} ranks", self.ranks), given.ranks.to_string())
        } else if self.rule != given.rule {
            (format!("the rule {:?}", self.rule), format!("{:?}", given.rule))
        } else {
            (format!("the tier {:?}", self.tier), format!("{:?}", given.tier))
        };
        Err(ResumeError::Settings { name: name.to_owned(), what, given })
    }
}

impl From<ResumeError> for RecoveryError {
    fn from(error: ResumeError) -> RecoveryError {
        RecoveryError::Resume(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_protocols::{pessimistic, send_deterministic};

    #[test]
    fn a_record_fits_into_its_message() {
        let mut settings = RankSettings::new(u32::MAX);
        settings.rule = send_deterministic::RULE.with_clusters(u32::MAX);
        settings.tier = Tier::NodeLocal;
        let record = Record::new(u16::MAX, &settings);
        let mut message = record.encode();
        assert!(message.len() <= RECORD_BYTES, "{}", message.len());
        message.resize(RECORD_BYTES, 0);
        assert_eq!(postcard::take_from_bytes::<Record>(&message).unwrap().0, record);
        // Encoding of a missing record.
        assert!(postcard::take_from_bytes::<Record>(&[0; RECORD_BYTES]).is_err());
    }

    #[test]
    fn a_start_with_other_settings_is_refused() {
        let settings = RankSettings::new(4);
        let record = Record::new(3, &settings);
        record.check("heat", &settings).unwrap();
        let said = |settings: RankSettings| record.check("heat", &settings).unwrap_err().to_string();
        let of = |what: &str| format!("job heat has {what}: resume it");
        let ranks = said(RankSettings { ranks: 5, ..settings.clone() });
        assert!(ranks.starts_with(&of("4 ranks, and is started again with 5")), "{ranks}");
        let rule = said(RankSettings { rule: pessimistic::RULE, ..settings.clone() });
        assert!(rule.starts_with(&of("the rule sender-based, and is started again with pessimistic")), "{rule}");
        let tier = said(RankSettings { tier: Tier::NodeLocal, ..settings });
        assert!(tier.starts_with(&of("the tier ProcessCrashSafe, and is started again with NodeLocal")), "{tier}");
    }
}
