//! Activity of one rank.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, ProfileError};
use crate::{DelayCounts, RANKS_MAX, Series, Sizes, Traffic, VERSION};

/// File name suffix, after `rank-N`.
const SUFFIX: &str = ".profile";

/// End of a rank's use of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The rank called MPI_Finalize.
    Finalized,
    /// The rank called MPI_Abort.
    Aborted,
}

/// Traffic between this rank and another, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, u64, u64)", from = "(u32, u64, u64)")]
pub struct Channel {
    /// The other rank, in MPI_COMM_WORLD.
    pub peer: u32,
    /// Number of messages.
    pub messages: u64,
    /// Packed payload bytes.
    pub bytes: u64,
}

impl Channel {
    /// Returns the channel's messages and bytes.
    pub fn traffic(self) -> Traffic {
        Traffic { messages: self.messages, bytes: self.bytes }
    }
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

/// Calls to one kind of collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Name, for example `Allreduce`.
    ///
    /// Includes the immediate and persistent forms.
    pub kind: String,
    /// Number of calls by this rank.
    pub calls: u64,
    /// Logged bytes of the rank's contributions.
    pub kept_bytes: u64,
}

/// Activity of one rank between MPI's initialisation and end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankProfile {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Size of MPI_COMM_WORLD.
    pub ranks: u32,
    /// End of the rank's MPI use.
    pub ended: Ended,
    /// Logging duration, in milliseconds.
    pub wall_ms: u64,
    /// Logged messages by destination; ascending, without empty entries.
    pub logged: Vec<Channel>,
    /// Received messages by source; ascending, without empty entries.
    pub received: Vec<Channel>,
    /// Logged message lengths.
    pub sizes: Sizes,
    /// Collective operations by kind.
    pub collectives: Vec<Collective>,
    /// Recorded outcomes of non-deterministic calls.
    pub determinants: u64,
    /// Peak log memory, in bytes.
    pub memory_peak_bytes: u64,
    /// Memory freed by spilling records to disk, in bytes.
    pub spilled_bytes: u64,
    /// Time sends waited for log space, in milliseconds.
    pub waited_ms: u64,
    /// True if logging stopped because the log was full.
    pub logging_stopped: bool,
    /// Reason why logging was given up, if it was.
    pub gave_up: Option<String>,
    /// Reason why the log's final state is not in the store, if it isn't.
    #[serde(default)]
    pub not_kept: Option<String>,
    /// Reasons why records are missing from the log, so the rank can't be recovered from it.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// Acknowledgement delays.
    pub delays: DelayCounts,
    /// Log growth.
    pub series: Series,
}

impl RankProfile {
    /// Returns the path to a rank's file in a job directory.
    pub fn path(dir: &Path, rank: u32) -> PathBuf {
        file::path_of_rank(dir, rank, SUFFIX)
    }

    /// Parses a rank's file name and returns the rank; `None` for other files.
    pub fn parse_file_name(name: &str) -> Option<u32> {
        file::rank_of(name, SUFFIX)
    }

    /// Writes the rank's file into a job directory.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), ProfileError> {
        file::write(&RankProfile::path(dir, self.rank), self)
    }

    /// Reads a rank's file.
    ///
    /// # Errors
    /// [`ProfileError::Read`], or [`ProfileError::Damaged`] if the contents are inconsistent.
    pub fn read(dir: &Path, rank: u32) -> Result<RankProfile, ProfileError> {
        let path = RankProfile::path(dir, rank);
        let profile: RankProfile = file::read(&path)?;
        match profile.check(rank) {
            Ok(()) => Ok(profile),
            Err(why) => Err(ProfileError::Damaged { path, why }),
        }
    }

    fn check(&self, rank: u32) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, this program reads {VERSION}", self.version));
        }
        if self.rank != rank {
            return Err(format!("it belongs to rank {}", self.rank));
        }
        if self.rank >= self.ranks || self.ranks > RANKS_MAX {
            return Err(format!("it has rank {} of {} (at most {RANKS_MAX})", self.rank, self.ranks));
        }
        let are_valid = |channels: &[Channel]| {
            channels.is_sorted_by(|one, next| one.peer < next.peer)
                && channels.last().is_none_or(|channel| channel.peer < self.ranks)
        };
        if !are_valid(&self.logged) || !are_valid(&self.received) {
            return Err("its channels name a rank outside the job, or one rank twice".to_owned());
        }
        if !self.series.is_valid() || !self.delays.delays_ns.is_sorted() {
            return Err("its samples are not in order".to_owned());
        }
        Ok(())
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
            gaps: vec!["logging was off".to_owned()],
            delays: DelayCounts { delays_ns: vec![(1000, 1)], left_out: 0, unanswered: 0 },
            series,
        }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        profile().write(dir.path()).unwrap();
        assert_eq!(RankProfile::read(dir.path(), 1).unwrap(), profile());
        assert_eq!(RankProfile::parse_file_name("rank-1.profile"), Some(1));
        assert!(
            ["rank-1", "rank-.profile", "rank-x.profile", "1.profile"]
                .map(RankProfile::parse_file_name)
                .iter()
                .all(Option::is_none)
        );
    }

    #[test]
    fn an_inconsistent_profile_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |change: &dyn Fn(&mut RankProfile)| {
            let mut profile = profile();
            change(&mut profile);
            fs::write(RankProfile::path(dir.path(), 1), serde_json::to_string(&profile).unwrap()).unwrap();
            RankProfile::read(dir.path(), 1).unwrap_err().to_string()
        };
        assert!(refused(&|profile| profile.version = 2).contains("its version is 2"));
        assert!(refused(&|profile| profile.rank = 2).contains("belongs to rank 2"));
        assert!(refused(&|profile| profile.ranks = 1).contains("rank 1 of 1"));
        assert!(refused(&|profile| profile.ranks = u32::MAX).contains("at most"));
        assert!(refused(&|profile| profile.logged[0].peer = 3).contains("channels"));
        assert!(refused(&|profile| profile.logged.push(profile.logged[0])).contains("twice"));
        assert!(refused(&|profile| profile.delays.delays_ns = vec![(2, 1), (1, 1)]).contains("not in order"));
    }

    #[test]
    fn a_truncated_file_is_an_error_wherever_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&profile()).unwrap();
        for len in 0..text.len() {
            fs::write(RankProfile::path(dir.path(), 1), &text[..len]).unwrap();
            assert!(matches!(RankProfile::read(dir.path(), 1), Err(ProfileError::Damaged { .. })), "{len}");
        }
    }
}
