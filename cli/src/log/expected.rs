//! Comparison of a store with the files written next to it by `counterfoil run` and the ranks: does it contain what its
//! rank logged?

use std::path::{Path, PathBuf};

use counterfoil_log_io::{CheckpointImage, StoreView};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_profile::{Job, RankProfile};

use super::stores::{OpenedStore, StoreSet, count};
use crate::Failure;

/// Contents of a rank's log according to the job's files.
#[derive(Debug, Default)]
pub(super) struct Expected {
    job: Option<Job>,
    profile: Option<RankProfile>,
    /// Errors from reading these files.
    pub(super) errors: Vec<String>,
}

/// Result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Messages logged by the rank and missing in the store.
    pub(super) missing: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Expected {
    /// Reads the files about the rank with its store at `store`.
    pub(super) fn read(store: &Path) -> Expected {
        let mut expected = Expected::default();
        let Some(rank) = rank_of(store) else { return expected };
        let dir = store.parent().map_or_else(PathBuf::new, Path::to_owned);
        match Job::read(&dir) {
            Ok(job) => expected.job = job,
            Err(error) => expected.errors.push(error.to_string()),
        }
        if RankProfile::path(&dir, rank).exists() {
            match RankProfile::read(&dir, rank) {
                Ok(profile) => expected.profile = Some(profile),
                Err(error) => expected.errors.push(error.to_string()),
            }
        }
        expected
    }

    /// Returns why the rank has no store.
    pub(super) fn missing_store_reason(&self) -> String {
        match self.profile.as_ref().map(|profile| (sum(profile), profile.not_kept.as_deref())) {
            Some((messages, Some(why))) => format!("{}, but its log could not be kept: {why}", logged(messages)),
            Some((messages, None)) => format!("{}, but its store is gone", logged(messages)),
            None => "no log: the rank ended without MPI_Finalize, and the records in its memory are lost".to_owned(),
        }
    }

    /// Compares with the store, unless a process has it open.
    pub(super) fn compare(&self, store: &mut OpenedStore) -> Comparison {
        let mut comparison = Comparison::default();
        if store.in_use.is_some() || self.job.is_none() && self.profile.is_none() {
            return comparison;
        }
        let image = newest_checkpoint(store);
        let is_taken_over = image.as_ref().is_some_and(|image| image.tables.iter().any(|(name, _)| name == TAKEN_OVER));
        if is_taken_over {
            comparison.notes.push(
                "the rank ended without MPI_Finalize; `counterfoil run` took its log over from shared memory"
                    .to_owned(),
            );
        }
        let Some(profile) = &self.profile else {
            // An unreadable profile is among the errors already.
            if is_taken_over || !self.errors.is_empty() {
                return comparison;
            }
            match image {
                Some(_) => comparison.notes.push("the rank left no profile: how much it logged is unknown".to_owned()),
                None => comparison.missing.push(
                    "the records in memory: the rank ended without MPI_Finalize and left no checkpoint".to_owned(),
                ),
            }
            return comparison;
        };
        if let Some(why) = profile.not_kept.as_ref().filter(|_| !is_taken_over) {
            comparison.missing.push(format!("{}, but its log could not be kept: {why}", logged(sum(profile))));
            return comparison;
        }
        let keeps_all = self.job.as_ref().is_some_and(|job| job.setting("keep").is_some_and(|keep| keep != "acked"));
        // Acknowledged records, and with them the last SSN, had been released from shared memory.
        if is_taken_over && !keeps_all {
            return comparison;
        }
        for channel in &profile.logged {
            let stored = image.as_ref().map_or(0, |image| records_stored(image, channel.peer, keeps_all));
            let lacks = channel.messages.saturating_sub(stored);
            if lacks > 0 {
                let messages = channel.messages;
                comparison.missing.push(format!(
                    "{lacks} of the {messages} messages to rank {} that its profile counts",
                    channel.peer
                ));
            }
        }
        comparison
    }
}

/// Adds the missing stores of the job's other ranks.
pub(super) fn with_missing_ranks(dir: &Path, found: Result<StoreSet, Failure>) -> Result<StoreSet, Failure> {
    // `dir` is a single rank's store.
    if found.as_ref().is_ok_and(|found| !found.is_job) {
        return found;
    }
    let job = Job::read(dir).ok().flatten();
    let ranks = job.and_then(|job| job.ranks).unwrap_or(0);
    if ranks == 0 {
        return found;
    }
    let known = found.map(|found| found.dirs).unwrap_or_default();
    let beyond = known.iter().filter(|path| rank_of(path).is_none_or(|rank| rank >= ranks)).cloned();
    let dirs = (0..ranks).map(|rank| dir.join(format!("rank-{rank}"))).chain(beyond).collect();
    Ok(StoreSet { dirs, is_job: true })
}

fn rank_of(store: &Path) -> Option<u32> {
    store.file_name()?.to_str()?.strip_prefix("rank-")?.parse().ok()
}

fn newest_checkpoint(store: &mut OpenedStore) -> Option<CheckpointImage> {
    let mut view = StoreView::new(&mut *store.backend).ok()?;
    let epoch = view.checkpoints().last().copied()?;
    view.image(epoch).ok()
}

/// Returns the number of a lane's records in a checkpoint or, unless all are kept, the number logged.
fn records_stored(image: &CheckpointImage, peer: u32, keeps_all: bool) -> u64 {
    let Some(lane) = image.lanes.iter().find(|lane| lane.peer.0 == peer) else { return 0 };
    let first = match lane.blocks.first() {
        Some(block) if keeps_all => block.first,
        None if keeps_all => lane.next,
        _ => counterfoil::Ssn::FIRST,
    };
    lane.next.0.saturating_sub(first.0)
}

fn sum(profile: &RankProfile) -> u64 {
    profile.logged.iter().fold(0, |sum, channel| sum.saturating_add(channel.messages))
}

fn logged(messages: u64) -> String {
    format!("the rank logged {}", count(usize::try_from(messages).unwrap_or(usize::MAX), "message"))
}
