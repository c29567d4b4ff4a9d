//! A rank's counters in a small mapped file, for tools that watch the job ([`counterfoil_profile::live`]).
//!
//! The file also marks this process as a rank for `counterfoil run`, and shows the progress of a rank that ended
//! abnormally.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil_profile::{LIVE_MAGIC, Traffic, Word, live_words, logged_word, received_word};
use memmap2::MmapRaw;

/// Counters for the process's lifetime.
///
/// One thread at a time writes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    words: &'static [AtomicU64],
    ranks: u32,
}

impl Live {
    /// Maps `rank-N.live` in a directory, or uses its own memory without one, or if it can't be mapped.
    ///
    /// An unwritable directory is reported with the summary.
    pub(super) fn begin(dir: Option<&Path>, rank: u32, ranks: u32) -> Live {
        let mapped = dir.and_then(|dir| map(&counterfoil_profile::Live::path(dir, rank), live_words(ranks)).ok());
        let own = || &*Vec::leak((0..live_words(ranks)).map(|_| AtomicU64::new(0)).collect());
        let live = Live { words: mapped.unwrap_or_else(own), ranks };
        live.set(Word::Pid, u64::from(std::process::id()));
        live.set(Word::Ranks, u64::from(ranks));
        live.words[Word::Magic as usize].store(LIVE_MAGIC.to_le(), Ordering::Release);
        live
    }

    #[inline]
    pub(super) fn set(self, word: Word, value: u64) {
        self.words[word as usize].store(value.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn add(self, at: usize, bytes: usize) {
        if let Some([messages, sum]) = self.words.get(at..at + 2) {
            for (word, more) in [(messages, 1), (sum, bytes as u64)] {
                word.store((u64::from_le(word.load(Ordering::Relaxed)) + more).to_le(), Ordering::Relaxed);
            }
        }
    }

    /// Counts a message to a rank.
    #[inline]
    pub(super) fn add_logged(self, to: u32, bytes: usize) {
        self.add(logged_word(to), bytes);
    }

    /// Counts a message from a rank.
    #[inline]
    pub(super) fn add_received(self, from: u32, bytes: usize) {
        self.add(received_word(from, self.ranks), bytes);
    }

    #[inline]
    fn traffic(self, at: usize) -> Traffic {
        let [messages, bytes] = [at, at + 1].map(|at| u64::from_le(self.words[at].load(Ordering::Relaxed)));
        Traffic { messages, bytes }
    }

    /// Returns the messages to a rank.
    pub(super) fn logged(self, to: u32) -> Traffic {
        self.traffic(logged_word(to))
    }

    /// Returns the messages from a rank.
    pub(super) fn received(self, from: u32) -> Traffic {
        self.traffic(received_word(from, self.ranks))
    }

    /// Returns the job's ranks.
    pub(super) fn ranks(self) -> std::ops::Range<u32> {
        0..self.ranks
    }
}

/// Maps a new file with `words` words.
fn map(path: &Path, words: usize) -> io::Result<&'static [AtomicU64]> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    // Allocates it fully: the first store to a mapped page without disk space would end the process.
    file.write_all_at(&vec![0; words * size_of::<u64>()], 0)?;
    let map: &'static MmapRaw = Box::leak(Box::new(MmapRaw::map_raw(&file)?));
    let begin: *const AtomicU64 = map.as_ptr().cast();
    // SAFETY: a mapping begins at a page, has as many bytes as were written, and is never unmapped; any bytes are a
    // valid word, and the process reaches them in no other way.
    Ok(unsafe { std::slice::from_raw_parts(begin, words) })
}

#[cfg(test)]
mod tests {
    use counterfoil_profile::Channel;

    use super::*;

    #[test]
    fn counts_are_in_the_file_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let live = Live::begin(Some(dir.path()), 1, 3);
        for bytes in [10, 32] {
            live.add_logged(2, bytes);
            live.add_received(0, bytes + 1);
        }
        // A rank outside the job is ignored.
        live.add_received(3, 7);
        live.set(Word::MemoryPeak, 99);
        let seen = counterfoil_profile::Live::parse(&std::fs::read(dir.path().join("rank-1.live")).unwrap()).unwrap();
        assert_eq!(seen.word(Word::Pid), u64::from(std::process::id()));
        assert_eq!(seen.word(Word::MemoryPeak), 99);
        let channel = |peer, messages, bytes| Channel { peer, messages, bytes };
        assert_eq!(seen.logged().collect::<Vec<_>>(), [channel(0, 0, 0), channel(1, 0, 0), channel(2, 2, 42)]);
        assert_eq!(seen.received().collect::<Vec<_>>(), [channel(0, 2, 44), channel(1, 0, 0), channel(2, 0, 0)]);
        assert_eq!((live.logged(2).bytes, live.received(0).messages), (42, 2));
    }

    #[test]
    fn without_a_file_counts_are_kept_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        for dir in [None, Some(dir.path().join("missing"))] {
            let live = Live::begin(dir.as_deref(), 0, 1);
            live.add_logged(0, 5);
            assert_eq!(live.logged(0), Traffic { messages: 1, bytes: 5 });
        }
    }
}
