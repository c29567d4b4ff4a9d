//! Reusable buffers, all the same size.

use crate::Buffer;

/// Free buffers of one size, up to a limit.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Vec<Buffer>,
    buffer_bytes: usize,
    max: usize,
}

impl BufferPool {
    /// Creates an empty pool for up to `max` buffers of `buffer_bytes`.
    pub(crate) const fn new(max: usize, buffer_bytes: usize) -> BufferPool {
        BufferPool { free: Vec::new(), buffer_bytes, max }
    }

    /// Creates a pool with `max` buffers of `buffer_bytes`.
    pub(crate) fn filled(max: usize, buffer_bytes: usize) -> BufferPool {
        BufferPool::of(Buffer::several(max, buffer_bytes), buffer_bytes)
    }

    /// Creates a pool with these buffers of `buffer_bytes`; the last one is taken first.
    pub(crate) fn of(buffers: Vec<Buffer>, buffer_bytes: usize) -> BufferPool {
        BufferPool { max: buffers.len(), free: buffers, buffer_bytes }
    }

    /// Returns the maximum number of buffers.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the buffer size in bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Allocates another buffer.
    pub(crate) fn allocate(&self) -> Buffer {
        Buffer::new(self.buffer_bytes)
    }

    /// Takes a free buffer.
    pub(crate) fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Adds a buffer, discarding its contents; returns it if it has another size or the pool is full.
    pub(crate) fn put(&mut self, mut buffer: Buffer) -> Option<Buffer> {
        if self.free.len() < self.max && buffer.capacity() == self.buffer_bytes {
            buffer.set_len(0);
            self.free.push(buffer);
            return None;
        }
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    #[test]
    fn a_pool_keeps_empty_buffers_of_its_size_up_to_its_number() {
        let mut pool = BufferPool::new(2, PAGE_BYTES);
        assert!(pool.take().is_none());
        let filled = |pages: usize| {
            let mut buffer = Buffer::new(pages * PAGE_BYTES);
            buffer.set_len(PAGE_BYTES);
            buffer
        };
        assert_eq!(pool.put(filled(2)).map(|buffer| buffer.capacity()), Some(2 * PAGE_BYTES));
        assert!(pool.put(filled(1)).is_none() && pool.put(filled(1)).is_none() && pool.put(filled(1)).is_some());
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).map(|buffer| buffer.len()).collect();
        assert_eq!(taken, [0, 0]);
    }
}
