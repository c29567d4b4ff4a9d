//! Rollback of the sender: truncates its lanes, or compares repeated messages with those in the log.

use crate::chunk::{CHUNK_HEADER, LAST_AT, NEXT_AT, OPEN};
use crate::lane::writer::{AppendError, LaneWriter};
use crate::lane::{Claim, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::AllocError;
use crate::record::{RECORD_ALIGN, RECORD_HEADER, SSN_AT, Word, footprint};
use crate::sync::Ordering;

/// Error of [`LaneWriter::truncate`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TruncateError {
    /// An open cursor might be in the part to be cut off.
    ///
    /// Nothing was changed.
    #[error("a cursor is open on the lane to {peer}: close it before truncating")]
    CursorOpen {
        /// The destination.
        peer: Rank,
    },
    /// The last record to keep was never sent.
    ///
    /// Nothing was changed.
    #[error("the lane to {peer} can't end with {last}: only {sent} was sent")]
    NeverSent {
        /// The destination.
        peer: Rank,
        /// The last SSN to keep.
        last: Ssn,
        /// The last SSN sent.
        sent: Ssn,
    },
    /// The records around the cut were freed before, and there is no memory for the chunk marking the gap.
    ///
    /// The lane was truncated, but ends with an earlier SSN.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// A re-execution sent other bytes than the first execution did under the same SSN.
///
/// The program is not deterministic in what it sends, or the log is damaged: a recovery by replay would be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ssn} to {peer} differs from what was sent before ({}): the program doesn't repeat its sends, or its log is damaged",
    difference(*at, *bytes, (*before, *now))
)]
pub struct Diverged {
    /// The destination.
    pub peer: Rank,
    /// The message's SSN.
    pub ssn: Ssn,
    /// Offset of the first differing byte.
    pub at: usize,
    /// New payload length.
    pub now: usize,
    /// Payload length in the log.
    pub before: usize,
    /// The differing byte in the log, and in the new payload; `None` if one of them is shorter.
    pub bytes: Option<(u8, u8)>,
}

impl Diverged {
    /// Returns `true` if only bytes differ, and not their number.
    pub fn has_same_length(&self) -> bool {
        self.now == self.before
    }
}

fn difference(at: usize, bytes: Option<(u8, u8)>, (before, now): (usize, usize)) -> String {
    let byte = bytes.map(|(was, is)| format!("byte {at} is {is:#04x} and was {was:#04x}"));
    let length = (before != now).then(|| format!("it has {now} bytes and had {before}"));
    byte.into_iter().chain(length).collect::<Vec<_>>().join("; ")
}

/// Error of [`LaneWriter::repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepeatError {
    /// The payload differs.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// The lane is not rewound: claim instead.
    #[error("the lane to {peer} is not rewound: everything it holds was already repeated")]
    NotRewound {
        /// The destination.
        peer: Rank,
    },
}

/// Error of [`LaneWriter::import`], [`LaneWriter::set_next`] and [`LaneWriter::resume`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The SSN doesn't rise, or is out of its limits.
    #[error("{ssn} can't be imported into the lane to {peer}, which is at {next} already")]
    OutOfOrder {
        /// The destination.
        peer: Rank,
        /// The refused SSN.
        ssn: Ssn,
        /// The lane's next SSN.
        next: Ssn,
    },
    /// There is no room for the record.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Progress of a re-execution through the messages sent before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewound {
    /// Next SSN to be repeated.
    next: Ssn,
    /// Chunk sequence and arena offset where the search for the record begins.
    place: Option<(u64, usize)>,
}

impl LaneWriter {
    /// Forgets every record after `last`: the rank rolled back to its state after sending `last`.
    ///
    /// Returns the last SSN in the chunks still settled. The chunk containing the cut, or ending with it, becomes the
    /// current one again and will be settled anew.
    ///
    /// # Errors
    /// [`TruncateError`], also while a cursor is open on the lane.
    pub fn truncate(&mut self, last: Ssn) -> Result<Ssn, TruncateError> {
        let peer = self.peer();
        if last >= self.next {
            return Err(TruncateError::NeverSent { peer, last, sent: self.next.prev() });
        }
        // The pin of a cursor being opened is seen below, or the cursor finds a lane without chunks until the
        // truncation is done.
        self.cold.shared.head.store(0, Ordering::Release);
        if self.lowest_pin() != UNPINNED {
            self.publish_front();
            return Err(TruncateError::CursorOpen { peer });
        }
        self.reclaim();
        // The last chunk beginning at or before the cut becomes the current one again.
        while self.cold.chunks.back().is_some_and(|chunk| chunk.header.first > last.next()) {
            if let Some(chunk) = self.cold.chunks.pop_back() {
                self.give_back(chunk.block);
            }
        }
        let end = self.reopen_last(last);
        // If no chunk is left, cursors begin after the cut.
        self.next = last.next();
        self.publish_front();
        self.next = end.next();
        self.acked = self.acked.min(last);
        self.cold.runs.forget_after(last);
        self.cold.settled = self.cold.settled.min(self.cold.chunks.len().saturating_sub(1));
        self.cold.rewound = None;
        self.set_boundary();
        if self.cold.chunks.is_empty() && self.cold.keeps_runs {
            // The records around the cut are on disk: memory has no gap to mark.
            self.next = last.next();
        } else if end < last {
            self.begin_smallest_chunk(last.next(), true)?;
            self.next = last.next();
        }
        Ok(match self.cold.settled.checked_sub(1) {
            Some(newest) => self.cold.chunks[newest].last,
            None => self.cold.chunks.front().map_or(last, |oldest| oldest.header.first.prev()),
        })
    }

    /// Makes the last chunk the current one again, ending with `last` or the last record before it; returns that
    /// record's SSN.
    fn reopen_last(&mut self, last: Ssn) -> Ssn {
        let Some(chunk) = self.cold.chunks.back_mut() else {
            self.leave_chunk();
            return Ssn::ZERO;
        };
        let (block, first) = (chunk.block, chunk.header.first);
        self.cold.sealed_bytes -= std::mem::take(&mut chunk.record_bytes) as u64;
        let (at, end, pad_bytes) = self.find_end(block.at() + CHUNK_HEADER, first.prev(), last);
        if let Some(chunk) = self.cold.chunks.back_mut() {
            chunk.pad_bytes = pad_bytes;
        }
        let arena = &self.cold.pool.arena;
        // In this order, for a recovery if the owner dies between the stores: an end word without a link is damage.
        arena.word(block.at() + LAST_AT).store(OPEN, Ordering::Relaxed);
        arena.word(at).store(0, Ordering::Release);
        arena.word(block.at() + NEXT_AT).store(0, Ordering::Release);
        self.move_to(block, at);
        end
    }

    /// Rewinds the lane to the state after message `last` without forgetting later records: the next messages are
    /// [`repeat`](Self::repeat)ed.
    pub fn rewind(&mut self, last: Ssn) {
        self.cold.rewound = (last.next() < self.next).then_some(Rewound { next: last.next(), place: None });
    }

    /// Returns the SSN of the next message to be repeated, while the lane is rewound.
    #[inline]
    pub fn rewound_to(&self) -> Option<Ssn> {
        self.cold.rewound.map(|rewound| rewound.next)
    }

    /// Repeats a message: compares the payload with the next SSN's committed record, and returns the SSN.
    ///
    /// A record released or collected since can't be compared and is skipped.
    ///
    /// # Errors
    /// [`RepeatError::Diverged`] if the bytes differ, [`RepeatError::NotRewound`]; nothing is changed then.
    pub fn repeat(&mut self, payload: &[u8]) -> Result<Ssn, RepeatError> {
        let peer = self.peer();
        let Some(rewound) = self.cold.rewound else { return Err(RepeatError::NotRewound { peer }) };
        let ssn = rewound.next;
        let mut place = rewound.place;
        if let Some((sequence, at, body, prefix)) = self.find_record(ssn, place) {
            self.compare(ssn, at + RECORD_HEADER + prefix, body - prefix, payload)?;
            place = Some((sequence, at + footprint(body)));
        }
        self.pass(ssn, place);
        Ok(ssn)
    }

    /// Goes on after a repeated message; `place` is the following record's, if known.
    fn pass(&mut self, ssn: Ssn, place: Option<(u64, usize)>) {
        let next = ssn.next();
        self.cold.rewound = (next < self.next).then_some(Rewound { next, place });
    }

    /// Repeats a message found different by [`repeat`](Self::repeat): the record stays as it is.
    ///
    /// # Errors
    /// [`RepeatError::NotRewound`].
    pub fn repeat_as_recorded(&mut self) -> Result<Ssn, RepeatError> {
        let Some(Rewound { next: ssn, place }) = self.cold.rewound else {
            return Err(RepeatError::NotRewound { peer: self.peer() });
        };
        let found = self.find_record(ssn, place);
        self.pass(ssn, found.map(|(sequence, at, body, _)| (sequence, at + footprint(body))).or(place));
        Ok(ssn)
    }

    /// Claims a record with a given SSN, to restore one from a checkpoint: SSNs may be missing in between.
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

    /// Raises the next record's SSN: the messages in between are not in the log.
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

    /// Continues at `ssn` in a chunk marked as sparse.
    fn skip_to(&mut self, ssn: Ssn, body: usize) -> Result<(), AllocError> {
        let sparse = self.cold.chunks.back().is_some_and(|chunk| chunk.header.sparse);
        if !sparse {
            self.begin_chunk(CHUNK_HEADER + footprint(body) + RECORD_ALIGN, ssn, true)?;
        }
        self.next = ssn;
        Ok(())
    }

    /// Finds the end of the records up to `last` and of the pads after them: returns its offset, the last record's SSN
    /// (`end` if there is none), and the bytes of the pads before it.
    fn find_end(&self, mut at: usize, mut end: Ssn, last: Ssn) -> (usize, Ssn, usize) {
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

    /// Searches a record from `place` on: returns its chunk's sequence, its offset, body and prefix length.
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
        // SAFETY: a committed record in this lane; only this writer could reuse its chunk, and it is borrowed.
        let bytes = unsafe { self.arena().bytes(at, before) };
        if bytes == payload {
            return Ok(());
        }
        let at = bytes.iter().zip(payload).position(|(a, b)| a != b).unwrap_or(before.min(payload.len()));
        let both = bytes.get(at).copied().zip(payload.get(at).copied());
        Err(Diverged { peer: self.peer(), ssn, at, now: payload.len(), before, bytes: both })
    }

    #[cfg(counterfoil_loom)]
    fn compare(&self, _ssn: Ssn, _at: usize, _before: usize, _payload: &[u8]) -> Result<(), Diverged> {
        Ok(())
    }
}
