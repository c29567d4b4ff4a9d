//! Page-aligned memory for direct reads and writes.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, madvise};

/// Alignment for write offsets and lengths, in bytes: satisfies O_DIRECT on any disk in use.
pub const PAGE_BYTES: usize = 4096;

/// Size of a huge page on most machines, in bytes.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A byte range aligned to [`PAGE_BYTES`], owned by its filler or by the write in flight.
///
/// Its bytes are zeros or left from an earlier use.
#[derive(Debug)]
pub struct Buffer {
    /// Its first byte; no other buffer shares its bytes.
    start: NonNull<u8>,
    capacity: usize,
    len: usize,
    slot: Option<u16>,
    /// The allocation.
    #[expect(dead_code, reason = "it is freed with the last buffer that holds it")]
    slab: Arc<Slab>,
}

// SAFETY: a buffer is the sole owner of its bytes, as a `Vec` is, and the slab is only held to be freed.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads the bytes.
unsafe impl Sync for Buffer {}

/// An allocation shared by several buffers, freed with the last one.
#[derive(Debug)]
struct Slab {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: nothing but `drop` uses the address, and memory may be freed on any thread.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Allocates `bytes` zeros; a multiple of [`PAGE_BYTES`].
    ///
    /// Requests huge pages from 2 MiB on: a transfer then is one segment to the disk instead of one for each page. A
    /// disk with a full segment queue blocks the thread submitting the next write.
    fn new(bytes: usize) -> Slab {
        let is_large = bytes >= LARGE_PAGE_BYTES;
        let align = if is_large { LARGE_PAGE_BYTES } else { PAGE_BYTES };
        let layout = Layout::from_size_align(bytes.next_multiple_of(align).max(PAGE_BYTES), align);
        let layout = layout.unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; PAGE_BYTES]>()));
        // SAFETY: the layout has a size.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        if is_large {
            // Before the first touch. If the system refuses, pages are small.
            // SAFETY: memory that was just allocated, whole pages; the advice doesn't change what is in it.
            let _ = unsafe { madvise(start.as_ptr().cast(), layout.size(), Advice::LinuxHugepage) };
        }
        // SAFETY: the allocation has that many bytes.
        unsafe { start.write_bytes(0, layout.size()) };
        Slab { start, layout }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and no buffer is left in it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Buffer {
    /// Creates an empty buffer of `capacity` bytes, rounded up to whole pages, all zero.
    pub fn new(capacity: usize) -> Buffer {
        let slab = Arc::new(Slab::new(capacity.next_multiple_of(PAGE_BYTES)));
        Buffer::in_slab(&slab, 0, capacity.next_multiple_of(PAGE_BYTES))
    }

    /// Creates `count` adjacent buffers, each with `capacity` bytes; see [`new`](Self::new).
    pub fn several(count: usize, capacity: usize) -> Vec<Buffer> {
        let capacity = capacity.next_multiple_of(PAGE_BYTES);
        let slab = Arc::new(Slab::new(count * capacity));
        (0..count).map(|index| Buffer::in_slab(&slab, index * capacity, capacity)).collect()
    }

    /// Creates a buffer for the `capacity` bytes from `at` on, which must be in no other buffer.
    fn in_slab(slab: &Arc<Slab>, at: usize, capacity: usize) -> Buffer {
        assert!(at + capacity <= slab.layout.size());
        // SAFETY: inside the allocation (asserted above), kept by the buffer.
        Buffer { start: unsafe { slab.start.add(at) }, capacity, len: 0, slot: None, slab: Arc::clone(slab) }
    }

    /// Sets the buffer's registration number in a backend.
    #[must_use]
    pub fn with_slot(self, slot: u16) -> Buffer {
        Buffer { slot: Some(slot), ..self }
    }

    /// Returns the buffer's registration number in a backend.
    pub fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the length of the contents in bytes, whole pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the buffer has no contents.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the contents.
    pub fn as_slice(&self) -> &[u8] {
        &self.whole()[..self.len]
    }

    /// Returns the whole capacity, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: initialised (`Slab::new`), this buffer's alone (`in_slab`), and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }

    /// Sets the contents to the first `len` bytes, padded with zeros to whole pages.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        let whole = len.next_multiple_of(PAGE_BYTES);
        self.bytes_mut()[len..whole].fill(0);
        self.len = whole;
    }

    fn whole(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`, shared.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_whole_pages_and_the_slot_that_it_was_given() {
        let mut buffer = Buffer::new(PAGE_BYTES + 1);
        assert_eq!((buffer.capacity(), buffer.len(), buffer.slot()), (2 * PAGE_BYTES, 0, None));
        assert!(buffer.is_empty());
        buffer.bytes_mut().fill(7);
        buffer.set_len(10);
        assert_eq!((buffer.len(), &buffer.as_slice()[8..12]), (PAGE_BYTES, &[7, 7, 0, 0][..]));
        assert!(!buffer.is_empty() && buffer.as_slice()[10..].iter().all(|byte| *byte == 0));
        for slot in [0, 1, 5] {
            buffer = buffer.with_slot(slot);
            assert_eq!(buffer.slot(), Some(slot));
        }
    }

    #[test]
    fn buffers_of_one_allocation_do_not_overlap() {
        let mut buffers = Buffer::several(3, PAGE_BYTES + 1);
        for (value, buffer) in (1..).zip(&mut buffers) {
            assert_eq!(buffer.capacity(), 2 * PAGE_BYTES);
            buffer.bytes_mut().fill(value);
        }
        for (value, mut buffer) in (1..).zip(buffers) {
            assert!(buffer.bytes_mut().iter().all(|byte| *byte == value));
        }
    }
}
