//! Live counters of a rank: words in a memory-mapped file, read by other processes while the rank runs.
//!
//! The rank maps its file, so a count is one store and readers always see the current value; a killed rank's counts
//! remain. The words are little-endian, each is written as a whole, and two words need not show the same moment. The
//! [`Word`]s come first, then messages and bytes logged to each rank, then messages and bytes received from each.

use std::path::{Path, PathBuf};

use crate::{Channel, RANKS_MAX, file};

/// File name suffix, after `rank-N`.
const SUFFIX: &str = ".live";

/// Magic number with the format version: `cflive01`.
pub const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"cflive01");

/// Words at the beginning of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// [`LIVE_MAGIC`]; written last.
    Magic,
    /// Process ID.
    Pid,
    /// Number of ranks in the job.
    Ranks,
    /// Collective operations in which the rank took part.
    Collectives,
    /// Collective operations with a logged contribution, one record each.
    Contributions,
    /// Bytes in the logged contributions.
    ContributedBytes,
    /// Recorded outcomes of non-deterministic calls.
    Determinants,
    /// 1 while messages are logged, 0 after logging was given up or has stopped.
    HasLog,
    /// Acknowledged records, when last updated.
    Acknowledged,
    /// Memory used by the log when last updated, in bytes.
    Memory,
    /// Peak of `Memory`.
    MemoryPeak,
    /// Bytes written to disk by the log.
    Spilled,
    /// Time sends have waited for log space, in milliseconds.
    WaitedMs,
}

/// Words before the first channel; some are unused.
const HEADER_WORDS: usize = 16;
/// Words in a channel.
const CHANNEL_WORDS: usize = 2;

/// Returns the length of a rank's file in words, in a job with `ranks` ranks.
pub fn live_words(ranks: u32) -> usize {
    HEADER_WORDS + 2 * CHANNEL_WORDS * ranks as usize
}

/// Returns the index of the message count logged to a rank; the next word counts the bytes.
pub fn logged_word(peer: u32) -> usize {
    HEADER_WORDS + CHANNEL_WORDS * peer as usize
}

/// Returns the index of the message count received from a rank; the next word counts the bytes.
pub fn received_word(peer: u32, ranks: u32) -> usize {
    logged_word(ranks) + CHANNEL_WORDS * peer as usize
}

/// Snapshot of a rank's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    words: Vec<u64>,
    ranks: u32,
}

/// Reads the counters of all ranks that initialised MPI, ascending by rank.
///
/// Ignores incomplete files.
pub fn read_all(dir: &Path) -> Vec<(u32, Live)> {
    file::of_ranks(dir, SUFFIX).into_iter().filter_map(|(rank, bytes)| Some((rank, Live::parse(&bytes)?))).collect()
}

/// Returns the process ids of the ranks that initialised MPI.
pub fn pids(dir: &Path) -> Vec<u32> {
    read_all(dir).iter().filter_map(|(_, live)| live.word(Word::Pid).try_into().ok()).collect()
}

impl Live {
    /// Returns the path to a rank's file in a job directory.
    pub fn path(dir: &Path, rank: u32) -> PathBuf {
        file::path_of_rank(dir, rank, SUFFIX)
    }

    /// Parses a file's bytes; `None` if invalid or incomplete.
    pub fn parse(bytes: &[u8]) -> Option<Live> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let ranks = u32::try_from(*words.get(Word::Ranks as usize)?).ok().filter(|ranks| *ranks <= RANKS_MAX)?;
        let is_valid = words[Word::Magic as usize] == LIVE_MAGIC && words.len() == live_words(ranks);
        is_valid.then_some(Live { words, ranks })
    }

    /// Returns a header word.
    pub fn word(&self, word: Word) -> u64 {
        self.words[word as usize]
    }

    fn channels(&self, at: impl Fn(u32) -> usize) -> impl Iterator<Item = Channel> {
        (0..self.ranks).map(move |peer| Channel {
            peer,
            messages: self.words[at(peer)],
            bytes: self.words[at(peer) + 1],
        })
    }

    /// Iterates over the messages logged to each rank.
    pub fn logged(&self) -> impl Iterator<Item = Channel> {
        self.channels(logged_word)
    }

    /// Iterates over the messages received from each rank.
    pub fn received(&self) -> impl Iterator<Item = Channel> {
        self.channels(|peer| received_word(peer, self.ranks))
    }

    /// Returns the number of unacknowledged records, as last updated; 0 without a log.
    pub fn unacknowledged(&self) -> u64 {
        let logged: u64 = self.logged().map(|channel| channel.messages).sum();
        let records = logged + self.word(Word::Contributions);
        if self.word(Word::HasLog) == 0 { 0 } else { records.saturating_sub(self.word(Word::Acknowledged)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file for a job with three ranks.
    fn bytes() -> Vec<u8> {
        let mut words: Vec<u64> = (0..live_words(3) as u64).map(|word| word * 10).collect();
        words[Word::Magic as usize] = LIVE_MAGIC;
        words[Word::Ranks as usize] = 3;
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn words_are_at_their_documented_places() {
        let live = Live::parse(&bytes()).unwrap();
        assert_eq!((live.word(Word::Pid), live.word(Word::WaitedMs)), (10, 120));
        let logged: Vec<_> = live.logged().map(<(u32, u64, u64)>::from).collect();
        assert_eq!(logged, [(0, 160, 170), (1, 180, 190), (2, 200, 210)]);
        let received: Vec<_> = live.received().map(<(u32, u64, u64)>::from).collect();
        assert_eq!(received, [(0, 220, 230), (1, 240, 250), (2, 260, 270)]);
        assert_eq!(live.unacknowledged(), 160 + 180 + 200 + 40 - 80);
    }

    #[test]
    fn an_incomplete_or_invalid_file_is_refused() {
        let whole = bytes();
        for len in 0..whole.len() {
            assert_eq!(Live::parse(&whole[..len]), None, "{len} bytes");
        }
        let with = |word: Word, value: u64| {
            let mut bytes = whole.clone();
            bytes[word as usize * 8..][..8].copy_from_slice(&value.to_le_bytes());
            Live::parse(&bytes)
        };
        for (word, value) in [(Word::Magic, 0), (Word::Ranks, 2), (Word::Ranks, u64::MAX), (Word::Ranks, 1 << 31)] {
            assert_eq!(with(word, value), None, "{word:?} {value}");
        }
        assert_eq!(with(Word::HasLog, 0).map(|live| live.unacknowledged()), Some(0));
    }
}
