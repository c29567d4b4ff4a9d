//! What a rank has done so far: words in a file that it counts up where they are, and that others read meanwhile.
//!
//! A rank maps its file, so that a count is one store and whoever reads is never behind; what a rank that was killed had done is still
//! there. The words are little-endian, each is written as a whole, and two of them need not be of the same moment. First the words of
//! [`Word`], then messages and bytes logged to each rank, then messages and bytes received from each.

use crate::{Channel, RANKS_MAX};

/// Says what the file is, and in which version: `cflive01`.
pub const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"cflive01");

/// What stands in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// [`LIVE_MAGIC`]; written last.
    Magic,
    /// The process.
    Pid,
    /// How many ranks the job has.
    Ranks,
    /// Collective operations that it took part in.
    Collectives,
    /// Those of them that something was kept for, each one record.
    Contributions,
    /// Bytes of these.
    ContributedBytes,
    /// Outcomes that were left to MPI, and recorded.
    Determinants,
    /// 1 where messages are logged, and 0 where that was given up or has stopped.
    HasLog,
    /// Records that somebody has said to have received, when the rank last looked.
    Acknowledged,
    /// Bytes of memory that its log took when it last looked.
    Memory,
    /// The same, at most.
    MemoryPeak,
    /// Bytes that the log had written to disk.
    Spilled,
    /// For how long sends have waited for room, in milliseconds.
    WaitedMs,
}

/// Words in front; some are not used.
const FRONT: usize = 16;
/// Words for a channel.
const CHANNEL: usize = 2;

/// Words of a rank's file in a job of so many ranks.
pub fn live_words(ranks: u32) -> usize {
    FRONT + 2 * CHANNEL * ranks as usize
}

/// Where the messages that were logged to a rank are counted; their bytes are in the next word.
pub fn logged_at(peer: u32) -> usize {
    FRONT + CHANNEL * peer as usize
}

/// Where the messages that were received from a rank are counted; their bytes are in the next word.
pub fn received_at(peer: u32, ranks: u32) -> usize {
    logged_at(ranks) + CHANNEL * peer as usize
}

/// What a rank has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    words: Vec<u64>,
    ranks: u32,
}

impl Live {
    /// Reads the bytes of a file; `None` if it isn't one, or not yet.
    pub fn parse(bytes: &[u8]) -> Option<Live> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let ranks = u32::try_from(*words.get(Word::Ranks as usize)?).ok().filter(|ranks| *ranks <= RANKS_MAX)?;
        let is_one = words[Word::Magic as usize] == LIVE_MAGIC && words.len() == live_words(ranks);
        is_one.then_some(Live { words, ranks })
    }

    /// One of the words in front.
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

    /// To each rank.
    pub fn logged(&self) -> impl Iterator<Item = Channel> {
        self.channels(logged_at)
    }

    /// From each rank.
    pub fn received(&self) -> impl Iterator<Item = Channel> {
        self.channels(|peer| received_at(peer, self.ranks))
    }

    /// Records that nobody has said to have received, as far as the rank had looked.
    pub fn unacknowledged(&self) -> u64 {
        let logged: u64 = self.logged().map(|channel| channel.messages).sum();
        let records = logged + self.word(Word::Contributions);
        if self.word(Word::HasLog) == 0 { 0 } else { records.saturating_sub(self.word(Word::Acknowledged)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a job of three ranks.
    fn bytes() -> Vec<u8> {
        let mut words: Vec<u64> = (0..live_words(3) as u64).map(|word| word * 10).collect();
        words[Word::Magic as usize] = LIVE_MAGIC;
        words[Word::Ranks as usize] = 3;
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn words_are_where_they_are_said_to_be() {
        let live = Live::parse(&bytes()).unwrap();
        assert_eq!((live.word(Word::Pid), live.word(Word::WaitedMs)), (10, 120));
        let logged: Vec<_> = live.logged().map(<(u32, u64, u64)>::from).collect();
        assert_eq!(logged, [(0, 160, 170), (1, 180, 190), (2, 200, 210)]);
        let received: Vec<_> = live.received().map(<(u32, u64, u64)>::from).collect();
        assert_eq!(received, [(0, 220, 230), (1, 240, 250), (2, 260, 270)]);
        assert_eq!(live.unacknowledged(), 160 + 180 + 200 + 40 - 80);
    }

    #[test]
    fn what_is_not_whole_is_no_account() {
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
