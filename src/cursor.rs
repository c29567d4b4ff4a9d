//! Cursors: read a lane as one sequence, from disk and memory.

use std::sync::Arc;
use std::task::{Context, Poll};

use counterfoil_log_core::{Cursor as MemoryCursor, CursorError, LaneReader, Rank, Record, Ssn};
use counterfoil_log_io::{BlockBuffer, BlockCursor, RecordPlace, StoreError};

use crate::disk_index::{Extent, Lookup};
use crate::spill::Disk;
use crate::waiting::{Registration, WaitingReaders};

/// A record can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The requested records are no longer kept, or too many cursors are open.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// A block can't be read back, or is damaged.
    #[error("replay from disk: {0}")]
    Store(#[from] StoreError),
    /// The log was dropped, and the cursor has passed all its records.
    #[error("the log was dropped, and no record is left")]
    Ended,
}

/// Opens [`Cursor`]s on a lane; can be cloned and sent to other threads.
#[derive(Clone, Debug)]
pub struct Reader {
    lane: LaneReader,
    disk: Option<Arc<Disk>>,
    waiting: Arc<WaitingReaders>,
}

impl Reader {
    pub(crate) fn new(lane: LaneReader, disk: Option<Arc<Disk>>, waiting: Arc<WaitingReaders>) -> Reader {
        Reader { lane, disk, waiting }
    }

    /// Returns the lane's destination.
    pub fn peer(&self) -> Rank {
        self.lane.peer()
    }

    /// Opens a cursor on the first record with SSN `from` or above.
    ///
    /// # Errors
    /// [`ReplayError::Cursor`] if records from `from` on were released or collected, or `cursors_max` cursors are open.
    pub fn open(&self, from: Ssn) -> Result<Cursor, ReplayError> {
        let position = from.max(Ssn::FIRST);
        let mut cursor = Cursor { reader: self.clone(), memory: None, disk: None, position, registration: None };
        cursor.enter(false)?;
        Ok(cursor)
    }
}

/// A position in a lane.
///
/// Reads committed records in SSN order, spilled ones from disk and the others from memory.
///
/// In memory, a cursor keeps unread records from being released, but not from being spilled: it holds its own chunk,
/// and if later records leave memory, it goes on with them on disk. A cursor beyond the lane's end holds no memory.
///
/// At the writer's position [`peek`](Cursor::peek) returns `None`; it continues when more is committed. A commit wakes
/// nobody: waking without missing a waiting reader needs a fence, which costs as much as the commit. A task waiting by
/// [`poll_ready`](Cursor::poll_ready) is woken by [`Log::wake_readers`](crate::Log::wake_readers), called by the writer
/// after any number of commits. Bytes from disk are verified before they are returned.
///
/// On disk, a cursor delays the collection of records there covered by a receiver's checkpoint; it passes over records
/// that were ahead of it in memory, and are covered and collected before it reaches them. It doesn't delay releases,
/// whether by acknowledgements or because logging stops: if released records were ahead of it, it fails with
/// [`CursorError::Gone`]. After the log was dropped, a cursor on disk ends with the records there.
#[derive(Debug)]
pub struct Cursor {
    reader: Reader,
    /// Set while the cursor has a place in memory, or waits for one there.
    memory: Option<MemoryCursor>,
    disk: Option<Box<DiskCursor>>,
    /// The lowest SSN not passed, while the cursor is on disk.
    position: Ssn,
    /// Set once a task has waited for a record.
    registration: Option<Registration>,
}

impl Cursor {
    /// Returns the lane's destination.
    pub fn peer(&self) -> Rank {
        self.reader.peer()
    }

    /// Returns the lowest SSN not yet passed.
    pub fn position(&self) -> Ssn {
        self.memory.as_ref().map_or(self.position, MemoryCursor::position)
    }

    /// Returns the record at the cursor, or `None` if nothing more is committed yet.
    ///
    /// # Errors
    /// [`ReplayError`]: a damaged block, or a failing disk. The cursor keeps its position.
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

    /// Polls until a record is at the cursor, for [`peek`](Cursor::peek) to return.
    ///
    /// While there is none, the last caller's task is woken by the first
    /// [`Log::wake_readers`](crate::Log::wake_readers) after its commit.
    ///
    /// ```
    /// # use std::future::poll_fn;
    /// # use counterfoil::{Cursor, ReplayError};
    /// /// Sends the lane's records as they are committed.
    /// async fn forward(mut cursor: Cursor, send: impl Fn(&[u8])) -> Result<(), ReplayError> {
    ///     loop {
    ///         poll_fn(|context| cursor.poll_ready(context)).await?;
    ///         while let Some(record) = cursor.read()? {
    ///             send(record.payload());
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`peek`](Cursor::peek); [`ReplayError::Ended`] once the log was dropped and no record is left.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReplayError>> {
        if self.peek()?.is_some() {
            return Poll::Ready(Ok(()));
        }
        let (lane, position) = (self.peer(), self.position());
        let registration = self.registration.get_or_insert_with(|| Registration::new(self.reader.waiting.clone()));
        let may_come = registration.wait(lane, position, context.waker());
        // Records committed before the registration are found here; later ones wake the task.
        match self.peek()? {
            Some(_) => Poll::Ready(Ok(())),
            None if may_come => Poll::Pending,
            None => Poll::Ready(Err(ReplayError::Ended)),
        }
    }

    /// Passes the record returned by [`peek`](Cursor::peek), if any.
    #[inline]
    pub fn advance(&mut self) {
        // An unreadable record can't be passed; `peek` returns the error.
        if !self.is_in_memory() && self.find().is_err() {
            return;
        }
        match &mut self.memory {
            Some(memory) => memory.advance(),
            None => self.pass_on_disk(),
        }
    }

    /// Returns the record at the cursor and passes it: [`peek`](Cursor::peek) and [`advance`](Cursor::advance) in one.
    ///
    /// Bytes in memory are returned as they are: a damaged payload in shared memory is not noticed
    /// ([`Log::recover`](crate::Log::recover)).
    ///
    /// # Errors
    /// See [`peek`](Cursor::peek).
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

    /// Returns `true` if the next record is in memory, or will be: the cursor is at the end of the lane.
    #[inline]
    fn is_in_memory(&mut self) -> bool {
        // In this order: a cursor learns that it was overtaken by looking for a record.
        self.memory.as_mut().is_some_and(|memory| memory.has_record() || memory.is_attached())
    }

    /// Moves the cursor to the place of `position`: in memory if it is there, otherwise on disk.
    ///
    /// On an error the cursor keeps its position.
    ///
    /// `was_overtaken`: missing records were freed while the cursor was in memory, and are passed over, as they would
    /// have been there.
    fn enter(&mut self, was_overtaken: bool) -> Result<(), ReplayError> {
        let lane = self.peer();
        loop {
            // Memory first: records are on disk before they are evicted.
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
                Lookup::Blocks { pin, extents } => {
                    self.disk = Some(Box::new(DiskCursor::new(lane, disk.clone(), pin, extents)));
                    return Ok(());
                }
                Lookup::NothingUpto(last) => self.position = last.next(),
                Lookup::Gone(on_disk) => {
                    let kept_from = on_disk.map_or(kept_from, |on_disk| on_disk.min(kept_from));
                    if !was_overtaken || kept_from <= self.position {
                        return Err(CursorError::Gone { peer: lane, asked: self.position, kept_from }.into());
                    }
                    self.position = kept_from;
                }
                // The lane's owner is truncating it.
                Lookup::Truncating => std::thread::yield_now(),
            }
        }
    }

    /// Finds the record at `position` if it is on disk, otherwise the cursor's place in memory.
    #[cold]
    fn find(&mut self) -> Result<(), ReplayError> {
        loop {
            let mut was_overtaken = false;
            if let Some(memory) = &mut self.memory {
                // It was beyond the end of the lane, or overtaken. Records appended since may be on disk already.
                match memory.attach() {
                    Ok(false) => return Ok(()),
                    Ok(true) if memory.has_record() || memory.is_attached() => return Ok(()),
                    // Overtaken again.
                    Ok(true) => continue,
                    Err(CursorError::Gone { .. }) => self.position = memory.position(),
                    Err(other) => return Err(other.into()),
                }
                was_overtaken = !memory.awaits_first_chunk();
                // Its cursor slot in the lane is free for a later position.
                self.memory = None;
            } else if let Some(disk) = &mut self.disk {
                if disk.find(self.position)? {
                    return Ok(());
                }
                // All blocks from the last lookup are read: the rest is in memory, or on disk by now.
                self.position = self.position.max(disk.end);
            }
            self.enter(was_overtaken)?;
        }
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

/// Disk part of a cursor: a sequence of blocks, read ahead.
#[derive(Debug)]
struct DiskCursor {
    lane: Rank,
    disk: Arc<Disk>,
    pin: u64,
    blocks: BlockCursor,
    /// Extents of the remaining blocks.
    extents: std::vec::IntoIter<Extent>,
    buffer: BlockBuffer,
    /// The current block's last valid record.
    last: Ssn,
    /// The SSN after the last valid record in all blocks.
    end: Ssn,
    /// A block could not be read: all must be looked up again from the cursor's position.
    has_failed: bool,
    /// Buffer positions of the found record, and of the next one.
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

    /// Advances to the first record at or above `position`; returns `false` if the blocks have none.
    fn find(&mut self, position: Ssn) -> Result<bool, StoreError> {
        if self.found {
            return Ok(true);
        }
        loop {
            while let Some((record, after)) = self.buffer.at(self.next) {
                let ssn = record.ssn();
                if ssn > self.last {
                    break;
                }
                (self.at, self.next) = (self.next, after);
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

    /// Passes the found record and returns its SSN.
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
