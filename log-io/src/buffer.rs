//! Memory for direct reads and writes.

/// Places and lengths of writes are multiples of this: what O_DIRECT needs on any disk in use.
pub const PAGE_BYTES: usize = 4096;

/// A run of bytes aligned to [`PAGE_BYTES`], owned by whoever fills it or by the write that it is in.
///
/// Its bytes are zero or whatever an earlier use left there.
#[derive(Debug)]
pub struct Buffer {
    pages: Vec<Page>,
    len: usize,
    slot: Option<u16>,
}

#[derive(Clone, Debug)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

const _: () = assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == PAGE_BYTES);

impl Buffer {
    /// A buffer of `capacity` bytes, rounded up to whole pages; empty, all zero.
    pub fn new(capacity: usize) -> Buffer {
        Buffer { pages: vec![Page([0; PAGE_BYTES]); capacity.div_ceil(PAGE_BYTES)], len: 0, slot: None }
    }

    /// Gives the buffer the number under which a backend knows it.
    #[must_use]
    pub fn with_slot(self, slot: u16) -> Buffer {
        Buffer { slot: Some(slot), ..self }
    }

    /// The number under which a backend knows it.
    pub fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Bytes that it holds: what is written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it holds.
    pub fn as_slice(&self) -> &[u8] {
        &self.whole()[..self.len]
    }

    /// All of it, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.capacity();
        let start = self.pages.as_mut_ptr().cast::<u8>();
        // SAFETY: a Page is its bytes and nothing else (the assertion above), initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Says that the first `len` bytes count; zeros are put behind them up to a whole page, which count, too.
    ///
    /// # Panics
    /// Where `len` is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        let whole = len.next_multiple_of(PAGE_BYTES);
        self.bytes_mut()[len..whole].fill(0);
        self.len = whole;
    }

    fn whole(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`, shared.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<u8>(), self.capacity()) }
    }
}
