//! What one rank did.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, ProfileError};
use crate::{DelayCounts, RANKS_MAX, Series, Sizes, VERSION};

/// How a rank's use of MPI ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// By MPI_Finalize.
    Finalized,
    /// By MPI_Abort, which this rank called.
    Aborted,
}

/// One direction between this rank and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, u64, u64)", from = "(u32, u64, u64)")]
pub struct Channel {
    /// The other one, as a rank of MPI_COMM_WORLD.
    pub peer: u32,
    /// Messages.
    pub messages: u64,
    /// Bytes of their payloads, packed.
    pub bytes: u64,
}

impl From<Channel> for (u32, u64, u64) {
    fn from(channel: Channel) -> (u32, u64, u64) {
        (channel.peer, channel.messages, channel.bytes)
    }
}

impl From<(u32, u64, u64)> for Channel {
    fn from((peer, messages, bytes): (u32, u64, u64)) -> Channel {
        Channel { peer, messages, bytes }
    }
}

/// A kind of collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Its name, as in `Allreduce`; the immediate and persistent forms count as it.
    pub kind: String,
    /// How often the rank took part.
    pub calls: u64,
    /// Bytes that were logged of what it gave.
    pub kept_bytes: u64,
}

/// What one rank did while MPI was up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankProfile {
    /// [`VERSION`].
    pub version: u32,
    /// Which rank of MPI_COMM_WORLD.
    pub rank: u32,
    /// How many ranks MPI_COMM_WORLD has.
    pub ranks: u32,
    /// How it ended.
    pub ended: Ended,
    /// For how long it logged, in milliseconds.
    pub wall_ms: u64,
    /// What was logged, by destination; ascending, without those that got nothing.
    pub logged: Vec<Channel>,
    /// What was received, by source; likewise.
    pub received: Vec<Channel>,
    /// Lengths of the messages that were logged.
    pub sizes: Sizes,
    /// Collective operations that were called.
    pub collectives: Vec<Collective>,
    /// Outcomes that were left to MPI, and recorded.
    pub determinants: u64,
    /// Bytes of memory that the log took, at most.
    pub memory_peak_bytes: u64,
    /// Bytes of memory that were given back because their records were on disk.
    pub spilled_bytes: u64,
    /// For how long sends waited for room in the log, in milliseconds.
    pub waited_ms: u64,
    /// Whether logging stopped because the log was full.
    pub logging_stopped: bool,
    /// Why logging was given up, if it was.
    pub gave_up: Option<String>,
    /// Why the log isn't in the store as it was at the end, if it isn't.
    #[serde(default)]
    pub not_kept: Option<String>,
    /// How long messages waited for their acknowledgement.
    pub delays: DelayCounts,
    /// How the log grew.
    pub series: Series,
}

impl RankProfile {
    /// The file of a rank in a job's directory.
    pub fn path(dir: &Path, rank: u32) -> PathBuf {
        dir.join(format!("rank-{rank}.profile"))
    }

    /// The rank whose file has this name, if it is one.
    pub fn rank_in(name: &str) -> Option<u32> {
        name.strip_prefix("rank-")?.strip_suffix(".profile")?.parse().ok()
    }

    /// Writes the rank's file into a job's directory.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), ProfileError> {
        file::write(&RankProfile::path(dir, self.rank), self)
    }

    /// Reads a rank's file.
    ///
    /// # Errors
    /// [`ProfileError`]: also where what it says can't be so.
    pub fn read(dir: &Path, rank: u32) -> Result<RankProfile, ProfileError> {
        let path = RankProfile::path(dir, rank);
        let profile: RankProfile = file::read(&path)?;
        match profile.impossible(rank) {
            None => Ok(profile),
            Some(why) => Err(ProfileError::Damaged { path, why }),
        }
    }

    fn impossible(&self, rank: u32) -> Option<String> {
        if self.version != VERSION {
            return Some(format!("its version is {}, this program reads {VERSION}", self.version));
        }
        if self.rank != rank {
            return Some(format!("it says that it is of rank {}", self.rank));
        }
        if self.rank >= self.ranks || self.ranks > RANKS_MAX {
            return Some(format!("it says that it is rank {} of {}, with {RANKS_MAX} at most", self.rank, self.ranks));
        }
        let are_possible = |channels: &[Channel]| {
            channels.is_sorted_by(|one, next| one.peer < next.peer)
                && channels.last().is_none_or(|channel| channel.peer < self.ranks)
        };
        if !are_possible(&self.logged) || !are_possible(&self.received) {
            return Some("it has channels to ranks that the job doesn't have, or has one twice".to_owned());
        }
        if !self.series.is_possible() || !self.delays.delays_ns.is_sorted() {
            return Some("its samples are not in order".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Sample;

    fn profile() -> RankProfile {
        let mut sizes = Sizes::default();
        sizes.add(100);
        let mut series = Series::default();
        series.add(Sample { at_ms: 1, messages: 1, bytes: 100, ..Sample::default() });
        RankProfile {
            version: VERSION,
            rank: 1,
            ranks: 3,
            ended: Ended::Finalized,
            wall_ms: 1234,
            logged: vec![Channel { peer: 0, messages: 1, bytes: 100 }],
            received: Vec::new(),
            sizes,
            collectives: vec![Collective { kind: "Bcast".to_owned(), calls: 3, kept_bytes: 12 }],
            determinants: 0,
            memory_peak_bytes: 1 << 20,
            spilled_bytes: 0,
            waited_ms: 0,
            logging_stopped: false,
            gave_up: None,
            not_kept: None,
            delays: DelayCounts { delays_ns: vec![(1000, 1)], left_out: 0, unanswered: 0 },
            series,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        profile().write(dir.path()).unwrap();
        assert_eq!(RankProfile::read(dir.path(), 1).unwrap(), profile());
        assert_eq!(RankProfile::rank_in("rank-1.profile"), Some(1));
        assert!(
            ["rank-1", "rank-.profile", "rank-x.profile", "1.profile"]
                .map(RankProfile::rank_in)
                .iter()
                .all(Option::is_none)
        );
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |change: &dyn Fn(&mut RankProfile)| {
            let mut profile = profile();
            change(&mut profile);
            fs::write(RankProfile::path(dir.path(), 1), serde_json::to_string(&profile).unwrap()).unwrap();
            RankProfile::read(dir.path(), 1).unwrap_err().to_string()
        };
        assert!(refused(&|profile| profile.version = 2).contains("its version is 2"));
        assert!(refused(&|profile| profile.rank = 2).contains("of rank 2"));
        assert!(refused(&|profile| profile.ranks = 1).contains("rank 1 of 1"));
        assert!(refused(&|profile| profile.ranks = u32::MAX).contains("at most"));
        assert!(refused(&|profile| profile.logged[0].peer = 3).contains("channels"));
        assert!(refused(&|profile| profile.logged.push(profile.logged[0])).contains("twice"));
        assert!(refused(&|profile| profile.delays.delays_ns = vec![(2, 1), (1, 1)]).contains("not in order"));
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_an_error_and_never_another_profile() {
        let dir = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&profile()).unwrap();
        for len in 0..text.len() {
            fs::write(RankProfile::path(dir.path(), 1), &text[..len]).unwrap();
            assert!(matches!(RankProfile::read(dir.path(), 1), Err(ProfileError::Damaged { .. })), "{len}");
        }
    }
}
