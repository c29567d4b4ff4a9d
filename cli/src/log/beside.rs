//! What stands beside the stores of an MPI job: what the command and the ranks left there. With it a store can be asked whether it has
//! what its rank logged.

use std::path::{Path, PathBuf};

use counterfoil::store::{CheckpointImage, StoreView};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_profile::{Job, RankProfile};

use super::stores::{Found, Opened, count};
use crate::Failure;

/// What is said of one rank's store.
#[derive(Debug, Default)]
pub(super) struct Beside {
    job: Option<Job>,
    profile: Option<RankProfile>,
    /// What can't be read of it.
    pub(super) unread: Vec<String>,
}

/// What the comparison brought.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// What the rank logged, and the store hasn't.
    pub(super) missing: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Beside {
    /// Reads what is there of the rank whose store has this path.
    pub(super) fn of(store: &Path) -> Beside {
        let mut beside = Beside::default();
        let Some(rank) = rank_of(store) else { return beside };
        let dir = store.parent().map_or_else(PathBuf::new, Path::to_owned);
        match Job::read(&dir) {
            Ok(job) => beside.job = job,
            Err(error) => beside.unread.push(error.to_string()),
        }
        if RankProfile::path(&dir, rank).exists() {
            match RankProfile::read(&dir, rank) {
                Ok(profile) => beside.profile = Some(profile),
                Err(error) => beside.unread.push(error.to_string()),
            }
        }
        beside
    }

    /// Why there is no store.
    pub(super) fn without_store(&self) -> String {
        match self.profile.as_ref().map(|profile| (sum(profile), profile.not_kept.as_deref())) {
            Some((messages, Some(why))) => format!("{}, and its log could not be kept: {why}", logged(messages)),
            Some((messages, None)) => format!("{}, and it is not there any more", logged(messages)),
            None => "it left no log: it ended without MPI_Finalize, and what it had in memory is gone".to_owned(),
        }
    }

    /// What the rank logged, and the store hasn't. A store that somebody is writing isn't asked.
    pub(super) fn compare(&self, store: &mut Opened) -> Compared {
        let mut compared = Compared::default();
        if store.in_use.is_some() || self.job.is_none() && self.profile.is_none() {
            return compared;
        }
        let image = newest(store);
        let is_taken_over = image.as_ref().is_some_and(|image| image.tables.iter().any(|(name, _)| name == TAKEN_OVER));
        if is_taken_over {
            compared.notes.push(
                "the rank ended without MPI_Finalize; `counterfoil run` took the log over from shared memory"
                    .to_owned(),
            );
        }
        let Some(profile) = &self.profile else {
            // Of one that can't be read it is said that it can't.
            if is_taken_over || !self.unread.is_empty() {
                return compared;
            }
            match image {
                Some(_) => compared.notes.push("the rank left no profile: nothing says how much it logged".to_owned()),
                None => compared
                    .missing
                    .push("what was in memory: the rank ended without MPI_Finalize, and left no checkpoint".to_owned()),
            }
            return compared;
        };
        if let Some(why) = profile.not_kept.as_ref().filter(|_| !is_taken_over) {
            compared.missing.push(format!("{}, and the log could not be kept: {why}", logged(sum(profile))));
            return compared;
        }
        let keeps_all = self.job.as_ref().is_some_and(|job| job.setting("keep").is_some_and(|keep| keep != "acked"));
        // What was acknowledged had left shared memory, with the number of the last message.
        if is_taken_over && !keeps_all {
            return compared;
        }
        for channel in &profile.logged {
            let held = image.as_ref().map_or(0, |image| held(image, channel.peer, keeps_all));
            let lacks = channel.messages.saturating_sub(held);
            if lacks > 0 {
                let messages = channel.messages;
                compared.missing.push(format!(
                    "{lacks} of {messages} messages to rank {}, as the rank's profile has it",
                    channel.peer
                ));
            }
        }
        compared
    }
}

/// The stores of a job, and where those of its other ranks would be.
pub(super) fn with_absent(dir: &Path, found: Result<Found, Failure>) -> Result<Found, Failure> {
    // Of one rank's store it isn't asked whose others there are.
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
    Ok(Found { dirs, is_job: true })
}

fn rank_of(store: &Path) -> Option<u32> {
    store.file_name()?.to_str()?.strip_prefix("rank-")?.parse().ok()
}

fn newest(store: &mut Opened) -> Option<CheckpointImage> {
    let mut view = StoreView::new(&mut *store.backend).ok()?;
    let epoch = view.checkpoints().last().copied()?;
    view.image(epoch).ok()
}

/// How many records a checkpoint has of those to a rank; where not all are kept, how many there were.
fn held(image: &CheckpointImage, peer: u32, keeps_all: bool) -> u64 {
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
    format!("it logged {}", count(usize::try_from(messages).unwrap_or(usize::MAX), "message"))
}
