//! A rank that goes back: its lanes are cut, or what it sends again is compared with what it had sent.

use crate::chunk::{CHUNK_HEADER, LAST_AT, NEXT_AT, OPEN};
use crate::lane::writer::{AppendError, LaneWriter};
use crate::lane::{Claim, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::AllocError;
use crate::record::{RECORD_ALIGN, RECORD_HEADER, SSN_AT, Word, footprint};
use crate::sync::Ordering;

/// Why a lane can't be truncated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TruncateError {
    /// A cursor is open and might be in the part that goes. Nothing was changed.
    #[error("a cursor is open on the lane to {peer}: close it before truncating")]
    CursorOpen {
        /// The destination.
        peer: Rank,
    },
    /// So many were never sent. Nothing was changed.
    #[error("the lane to {peer} can't end with {last}: only {sent} was sent")]
    NeverSent {
        /// The destination.
        peer: Rank,
        /// The SSN to end with.
        last: Ssn,
        /// The last SSN sent.
        sent: Ssn,
    },
    /// The records around the cut were freed before, and there is no memory for the chunk that marks the gap. The lane
    /// was cut, but ends with an earlier SSN.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// A re-execution sent something else than the first execution did under the same SSN.
///
/// The program is not deterministic in what it sends, or the log is damaged: a recovery by replay would be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ssn} to {peer} differs from what was sent before (from byte {at} of {now} now, {before} before): \
         the program is not send-deterministic, or its log is damaged"
)]
pub struct Diverged {
    /// The destination.
    pub peer: Rank,
    /// The message.
    pub ssn: Ssn,
    /// The first byte that differs.
    pub at: usize,
    /// Length of the payload now.
    pub now: usize,
    /// Length of the payload before.
    pub before: usize,
}

/// Why [`LaneWriter::repeat`] refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepeatError {
    /// The payload is another one.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// The lane is not rewound: claim instead.
    #[error("the lane to {peer} is not rewound: everything it holds was already repeated")]
    NotRewound {
        /// The destination.
        peer: Rank,
    },
}

/// Why a record can't be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// SSNs must rise.
    #[error("{ssn} can't be imported into the lane to {peer}, which is at {next} already")]
    OutOfOrder {
        /// The destination.
        peer: Rank,
        /// The SSN.
        ssn: Ssn,
        /// The next SSN of the lane.
        next: Ssn,
    },
    /// There is no room.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Where a re-execution is in what had been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewound {
    /// The next SSN to be repeated.
    next: Ssn,
    /// Sequence of the chunk, and offset in the arena, where the search for it goes on.
    place: Option<(u64, usize)>,
}

impl LaneWriter {
    /// Forgets every record after `last`: a rank rolled back to where it had sent that many.
    ///
    /// Returns the last SSN of the chunks that are still settled; the chunk that the cut is in, or ends with, is written
    /// again and will be settled anew.
    ///
    /// # Errors
    /// [`TruncateError`], also while a cursor is open on the lane.
    pub fn truncate(&mut self, last: Ssn) -> Result<Ssn, TruncateError> {
        let peer = self.peer();
        if last >= self.next {
            return Err(TruncateError::NeverSent { peer, last, sent: self.next.prev() });
        }
        // A cursor that is being opened shows its pin below, or finds a lane without chunks until the cut is made.
        self.cold.shared.head.store(0, Ordering::Release);
        if self.lowest_pin() != UNPINNED {
            self.publish_front();
            return Err(TruncateError::CursorOpen { peer });
        }
        self.reclaim();
        // The last chunk that begins at or before the cut becomes the current one again.
        while self.cold.chunks.back().is_some_and(|chunk| chunk.header.first > last.next()) {
            if let Some(chunk) = self.cold.chunks.pop_back() {
                self.give_back(chunk.block);
            }
        }
        let end = self.reopen_last(last);
        // Where no chunk is left, cursors begin behind the cut.
        self.next = last.next();
        self.publish_front();
        self.next = end.next();
        self.acked = self.acked.min(last);
        self.cold.runs.forget_after(last);
        self.cold.settled = self.cold.settled.min(self.cold.chunks.len().saturating_sub(1));
        self.cold.rewound = None;
        self.set_boundary();
        if self.cold.chunks.is_empty() && self.cold.keeps_runs {
            // The records around the cut are kept elsewhere: there is nothing here to mark a gap in.
            self.next = last.next();
        } else if end < last {
            // What was just freed is enough for a small chunk, once it is the pool's.
            self.empty_spares();
            self.begin_chunk(CHUNK_HEADER + RECORD_ALIGN, last.next(), true)?;
            self.next = last.next();
        }
        Ok(match self.cold.settled.checked_sub(1) {
            Some(newest) => self.cold.chunks[newest].last,
            None => self.cold.chunks.front().map_or(last, |oldest| oldest.header.first.prev()),
        })
    }

    /// Makes the last chunk the current one again, ending with `last` or the last record before; says which that is.
    fn reopen_last(&mut self, last: Ssn) -> Ssn {
        let Some(chunk) = self.cold.chunks.back_mut() else {
            self.go_nowhere();
            return Ssn::ZERO;
        };
        let (block, first) = (chunk.block, chunk.header.first);
        self.cold.sealed_bytes -= std::mem::take(&mut chunk.record_bytes) as u64;
        let (at, end, pad_bytes) = self.end_of(block.at() + CHUNK_HEADER, first.prev(), last);
        if let Some(chunk) = self.cold.chunks.back_mut() {
            chunk.pad_bytes = pad_bytes;
        }
        let arena = &self.cold.pool.arena;
        arena.word(block.at() + LAST_AT).store(OPEN, Ordering::Relaxed);
        arena.word(block.at() + NEXT_AT).store(0, Ordering::Relaxed);
        arena.word(at).store(0, Ordering::Release);
        self.go_to(block, at);
        end
    }

    /// Goes back to where `last` was the last message sent, keeping what was committed after: the next messages are
    /// [`repeat`](Self::repeat)ed.
    pub fn rewind(&mut self, last: Ssn) {
        self.cold.rewound = (last.next() < self.next).then_some(Rewound { next: last.next(), place: None });
    }

    /// The SSN of the next message to be repeated, while the lane is rewound.
    #[inline]
    pub fn rewound_to(&self) -> Option<Ssn> {
        self.cold.rewound.map(|rewound| rewound.next)
    }

    /// Sends again what had been sent: compares the payload with the committed record of the next SSN.
    ///
    /// A record that was released or collected since can't be compared and is passed.
    ///
    /// # Errors
    /// [`Diverged`] where the bytes differ; the lane stays where it is.
    pub fn repeat(&mut self, payload: &[u8]) -> Result<Ssn, RepeatError> {
        let peer = self.peer();
        let Some(rewound) = self.cold.rewound else { return Err(RepeatError::NotRewound { peer }) };
        let ssn = rewound.next;
        let mut place = rewound.place;
        if let Some((sequence, at, body, prefix)) = self.find_record(ssn, place) {
            self.compare(ssn, at + RECORD_HEADER + prefix, body - prefix, payload)?;
            place = Some((sequence, at + footprint(body)));
        }
        let next = ssn.next();
        self.cold.rewound = (next < self.next).then_some(Rewound { next, place });
        Ok(ssn)
    }

    /// Appends a record under a given SSN, as a checkpoint kept it: SSNs may be missing in between.
    ///
    /// # Errors
    /// [`ImportError`]; nothing is changed then.
    pub fn import(&mut self, ssn: Ssn, prefix: usize, payload: usize) -> Result<Claim<'_>, ImportError> {
        if ssn < self.next || ssn >= Ssn::MAX {
            return Err(ImportError::OutOfOrder { peer: self.peer(), ssn, next: self.next });
        }
        if ssn > self.next {
            self.skip_to(ssn, prefix.saturating_add(payload)).map_err(AppendError::from)?;
        }
        Ok(self.claim(prefix, payload)?)
    }

    /// Sets the SSN of the next record, above all that are there: messages in between are not in the log.
    ///
    /// # Errors
    /// [`ImportError`]; nothing is changed then.
    pub fn set_next(&mut self, next: Ssn) -> Result<(), ImportError> {
        if next < self.next || next >= Ssn::MAX {
            return Err(ImportError::OutOfOrder { peer: self.peer(), ssn: next, next: self.next });
        }
        if next > self.next {
            self.skip_to(next, 0).map_err(AppendError::from)?;
        }
        Ok(())
    }

    /// Goes on at `ssn` in a chunk that is marked as having gaps.
    fn skip_to(&mut self, ssn: Ssn, body: usize) -> Result<(), AllocError> {
        let sparse = self.cold.chunks.back().is_some_and(|chunk| chunk.header.sparse);
        if !sparse {
            self.begin_chunk(CHUNK_HEADER + footprint(body) + RECORD_ALIGN, ssn, true)?;
        }
        self.next = ssn;
        Ok(())
    }

    /// The offset behind the record `last`, or behind the last one before it and the pads that follow; the last record's
    /// SSN (`end` if there is none); and the bytes of pads up to there.
    fn end_of(&self, mut at: usize, mut end: Ssn, last: Ssn) -> (usize, Ssn, usize) {
        let mut pad_bytes = 0;
        loop {
            let ssn = Ssn(self.arena().word(at + SSN_AT).load(Ordering::Relaxed));
            match Word::parse(self.arena().word(at).load(Ordering::Relaxed)) {
                Word::Record { body, .. } if ssn <= last => {
                    at += footprint(body);
                    end = ssn;
                }
                Word::Pad { body } => {
                    at += footprint(body);
                    pad_bytes += footprint(body);
                }
                _ => return (at, end, pad_bytes),
            }
        }
    }

    /// Looks for a record from `place` on: its chunk's sequence, offset, body and prefix.
    fn find_record(&self, ssn: Ssn, place: Option<(u64, usize)>) -> Option<(u64, usize, usize, usize)> {
        let start = match place {
            Some((sequence, _)) => self.cold.chunks.partition_point(|chunk| chunk.header.sequence < sequence),
            None => self.cold.chunks.partition_point(|chunk| chunk.header.first <= ssn).saturating_sub(1),
        };
        for chunk in self.cold.chunks.range(start.min(self.cold.chunks.len())..) {
            let sequence = chunk.header.sequence;
            let mut at = match place {
                Some((known, at)) if known == sequence => at,
                _ => chunk.block.at() + CHUNK_HEADER,
            };
            loop {
                match Word::parse(self.arena().word(at).load(Ordering::Relaxed)) {
                    Word::Record { body, prefix } => {
                        let found = Ssn(self.arena().word(at + SSN_AT).load(Ordering::Relaxed));
                        if found == ssn {
                            return Some((sequence, at, body, prefix));
                        }
                        if found > ssn {
                            return None;
                        }
                        at += footprint(body);
                    }
                    Word::Pad { body } => at += footprint(body),
                    Word::End | Word::Empty | Word::Damaged => break,
                }
            }
        }
        None
    }

    #[cfg(not(counterfoil_loom))]
    fn compare(&self, ssn: Ssn, at: usize, before: usize, payload: &[u8]) -> Result<(), Diverged> {
        // SAFETY: a committed record of this lane; only this writer could reuse its chunk, and it doesn't meanwhile.
        let bytes = unsafe { self.arena().bytes(at, before) };
        if bytes == payload {
            return Ok(());
        }
        let at = bytes.iter().zip(payload).position(|(a, b)| a != b).unwrap_or(before.min(payload.len()));
        Err(Diverged { peer: self.peer(), ssn, at, now: payload.len(), before })
    }

    #[cfg(counterfoil_loom)]
    fn compare(&self, _ssn: Ssn, _at: usize, _before: usize, _payload: &[u8]) -> Result<(), Diverged> {
        Ok(())
    }
}
