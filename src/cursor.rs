//! Reading a lane as one sequence, wherever its records are.

use std::sync::Arc;

use counterfoil_log_core::{Cursor as MemoryCursor, CursorError, LaneReader, Rank, Record, Ssn};
use counterfoil_log_io::{BlockBuffer, BlockCursor, RecordPlace, StoreError};

use crate::disk_index::{Extent, Place};
use crate::spill::Disk;

/// Why a record can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The records that were asked for are no longer kept, or too many cursors are open.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// A block can't be read back, or isn't what was written.
    #[error("replay from disk: {0}")]
    Store(#[from] StoreError),
}

/// Opens [`Cursor`]s on a lane; can be sent to and cloned for other threads.
#[derive(Clone, Debug)]
pub struct Reader {
    lane: LaneReader,
    disk: Option<Arc<Disk>>,
}

impl Reader {
    pub(crate) fn new(lane: LaneReader, disk: Option<Arc<Disk>>) -> Reader {
        Reader { lane, disk }
    }

    /// The destination.
    pub fn peer(&self) -> Rank {
        self.lane.peer()
    }

    /// A cursor on the first record with SSN `from` or above.
    ///
    /// # Errors
    /// [`ReplayError::Cursor`] where records from `from` on were released or collected, or as many cursors are open as
    /// `cursors_max`.
    pub fn open(&self, from: Ssn) -> Result<Cursor, ReplayError> {
        let mut cursor = Cursor { reader: self.clone(), memory: None, disk: None, position: from.max(Ssn::FIRST) };
        cursor.enter()?;
        Ok(cursor)
    }
}

/// A place in a lane: reads committed records in SSN order, from disk where they were spilled and from memory where they
/// were not, and keeps what it has not read from being reused.
///
/// It ends where the writer is: [`peek`](Cursor::peek) says `None` there and goes on when more is committed. What comes
/// from disk was verified before a byte of it is handed out.
///
/// On disk it keeps what a checkpoint of the receiver covers from being collected; not what is released because it is
/// acknowledged, or because logging stopped: where that was ahead of it, it ends with [`CursorError::Gone`].
#[derive(Debug)]
pub struct Cursor {
    reader: Reader,
    /// Once it has its place in memory a cursor stays there: its pin keeps what follows.
    memory: Option<MemoryCursor>,
    disk: Option<Box<DiskCursor>>,
    /// The lowest SSN that was not passed, while the cursor is on disk.
    position: Ssn,
}

impl Cursor {
    /// The destination of the lane.
    pub fn peer(&self) -> Rank {
        self.reader.peer()
    }

    /// The lowest SSN that the cursor has not passed.
    pub fn position(&self) -> Ssn {
        self.memory.as_ref().map_or(self.position, MemoryCursor::position)
    }

    /// The record at the cursor, or `None` where nothing more is committed yet.
    ///
    /// # Errors
    /// [`ReplayError`]: a damaged block, a disk that fails. The cursor stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record<'_>>, ReplayError> {
        if !self.is_in_memory() {
            self.find()?;
        }
        Ok(match &mut self.memory {
            Some(memory) => memory.peek(),
            None => self.disk.as_ref().and_then(|disk| disk.record()),
        })
    }

    /// Passes the record that [`peek`](Cursor::peek) shows; nothing where it shows none.
    #[inline]
    pub fn advance(&mut self) {
        // Where nothing can be read there is nothing to pass; `peek` says why.
        if !self.is_in_memory() && self.find().is_err() {
            return;
        }
        match &mut self.memory {
            Some(memory) => memory.advance(),
            None => self.pass_on_disk(),
        }
    }

    /// The record at the cursor, which is passed: [`peek`](Cursor::peek) and [`advance`](Cursor::advance) in one.
    ///
    /// # Errors
    /// As [`peek`](Cursor::peek).
    #[inline]
    pub fn read(&mut self) -> Result<Option<Record<'_>>, ReplayError> {
        if !self.is_in_memory() {
            self.find()?;
            if self.memory.is_none() {
                return Ok(self.read_on_disk());
            }
        }
        Ok(self.memory.as_mut().and_then(MemoryCursor::read))
    }

    #[inline]
    fn is_in_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(MemoryCursor::is_placed)
    }

    /// Finds the place of `position`: in memory if it is there, else on disk. Until then the cursor is where it was.
    fn enter(&mut self) -> Result<(), ReplayError> {
        let lane = self.peer();
        loop {
            // Memory first: what it lets go is on disk before.
            let (gone, kept_from) = match self.reader.lane.open(self.position) {
                Ok(memory) => {
                    (self.memory, self.disk) = (Some(memory), None);
                    return Ok(());
                }
                Err(gone @ CursorError::Gone { kept_from, .. }) => (gone, kept_from),
                Err(other) => return Err(other.into()),
            };
            let Some(disk) = &self.reader.disk else { return Err(gone.into()) };
            match disk.index.find(lane, self.position) {
                Place::Blocks { pin, extents } => {
                    self.memory = None;
                    self.disk = Some(Box::new(DiskCursor::new(lane, disk.clone(), pin, extents)));
                    return Ok(());
                }
                Place::NothingUpto(last) => self.position = last.next(),
                Place::Gone(on_disk) => {
                    let kept_from = on_disk.map_or(kept_from, |on_disk| on_disk.min(kept_from));
                    return Err(CursorError::Gone { peer: lane, asked: self.position, kept_from }.into());
                }
                // The lane's owner is at it.
                Place::Cut => std::thread::yield_now(),
            }
        }
    }

    /// Finds the record at `position`, where it is on disk, or the cursor's place in memory.
    #[cold]
    fn find(&mut self) -> Result<(), ReplayError> {
        if let Some(memory) = &mut self.memory {
            // Opened when nothing was in memory. What has come since may be on disk already.
            match memory.place() {
                Ok(_) => return Ok(()),
                Err(CursorError::Gone { .. }) => self.position = memory.position(),
                Err(other) => return Err(other.into()),
            }
            self.enter()?;
        }
        while self.memory.is_none() {
            if let Some(disk) = &mut self.disk {
                if disk.find(self.position)? {
                    return Ok(());
                }
                // All that was on disk when it was looked at is read: the rest is in memory, or on disk by now.
                self.position = self.position.max(disk.end);
            }
            self.enter()?;
        }
        Ok(())
    }

    #[cold]
    fn pass_on_disk(&mut self) {
        if let Some(passed) = self.disk.as_mut().and_then(|disk| disk.pass()) {
            self.position = passed.next();
        }
    }

    #[cold]
    fn read_on_disk(&mut self) -> Option<Record<'_>> {
        let disk = self.disk.as_mut()?;
        let at = disk.at;
        self.position = disk.pass()?.next();
        disk.record_at(at)
    }
}

/// The part of a cursor that is on disk: blocks one after the other, read ahead.
#[derive(Debug)]
struct DiskCursor {
    lane: Rank,
    disk: Arc<Disk>,
    pin: u64,
    blocks: BlockCursor,
    /// How far each block counts, from the present one on.
    extents: std::vec::IntoIter<Extent>,
    buffer: BlockBuffer,
    /// The last record that counts in the present block.
    last: Ssn,
    /// Behind the last record that counts in all of them.
    end: Ssn,
    /// A block could not be read: all are to be looked up anew, from the cursor's position on.
    has_failed: bool,
    /// Place in the buffer of the record that was found, and of the one behind it.
    at: RecordPlace,
    next: RecordPlace,
    found: bool,
}

impl DiskCursor {
    fn new(lane: Rank, disk: Arc<Disk>, pin: u64, extents: Vec<Extent>) -> DiskCursor {
        let blocks = BlockCursor::new(disk.reader.clone(), extents.iter().map(|extent| extent.block).collect());
        let end = extents.last().map_or(Ssn::ZERO, |extent| extent.last.next());
        DiskCursor {
            lane,
            disk,
            pin,
            blocks,
            extents: extents.into_iter(),
            buffer: BlockBuffer::default(),
            last: Ssn::ZERO,
            end,
            has_failed: false,
            at: RecordPlace::default(),
            next: RecordPlace::default(),
            found: false,
        }
    }

    /// Goes to the first record at or above `position`; false where the blocks have none.
    fn find(&mut self, position: Ssn) -> Result<bool, StoreError> {
        if self.found {
            return Ok(true);
        }
        loop {
            while let Some((record, behind)) = self.buffer.at(self.next) {
                let ssn = record.ssn();
                if ssn > self.last {
                    break;
                }
                (self.at, self.next) = (self.next, behind);
                if ssn >= position {
                    self.found = true;
                    return Ok(true);
                }
            }
            match self.blocks.next(&mut self.buffer) {
                Ok(true) if !self.has_failed => {}
                Ok(_) => return Ok(false),
                Err(error) => {
                    (self.has_failed, self.end) = (true, Ssn::ZERO);
                    return Err(error);
                }
            }
            let Some(extent) = self.extents.next() else { return Ok(false) };
            (self.last, self.next) = (extent.last, RecordPlace::default());
            self.disk.index.move_pin(self.lane, self.pin, position);
        }
    }

    fn record(&self) -> Option<Record<'_>> {
        if self.found { self.record_at(self.at) } else { None }
    }

    fn record_at(&self, at: RecordPlace) -> Option<Record<'_>> {
        let (record, _) = self.buffer.at(at)?;
        Some(record)
    }

    /// Passes the record that was found, and says which it was.
    fn pass(&mut self) -> Option<Ssn> {
        let ssn = self.record()?.ssn();
        self.found = false;
        Some(ssn)
    }
}

impl Drop for DiskCursor {
    fn drop(&mut self) {
        self.disk.index.unpin(self.lane, self.pin);
    }
}
