//! Memory of long frames, reused for later ones.
//!
//! The heap returns a long allocation's memory to the system when it is dropped. If each frame took new memory, page
//! faults would cost more than the transmission: a 1 MB exchange over shared memory took 1,000 µs, and takes 240 µs
//! with reused memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Minimum length at which a frame's memory is kept.
const KEPT_BYTES_MIN: usize = 16 << 10;
/// Limit of kept memory, in bytes.
const FREE_BYTES_MAX: usize = 32 << 20;
/// Number of size classes, the powers of two up to the limit.
const CLASSES: usize = FREE_BYTES_MAX.ilog2() as usize + 1;

/// Memory for frames, most recently used first.
///
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    /// Empty vectors by the binary logarithm of their capacity, rounded down.
    classes: [Vec<Vec<u8>>; CLASSES],
    /// Sum of their capacities.
    bytes: usize,
}

impl Buffers {
    /// Returns an empty vector with a capacity of at least `len` bytes.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        if !(KEPT_BYTES_MIN..=FREE_BYTES_MAX).contains(&len) {
            return Vec::with_capacity(len);
        }
        let capacity = len.next_power_of_two();
        let mut free = self.lock();
        match free.classes[capacity.ilog2() as usize].pop() {
            Some(buffer) => {
                free.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(capacity),
        }
    }

    /// Keeps the memory of `buffer` for another frame, up to the limit.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity < KEPT_BYTES_MIN {
            return;
        }
        let mut free = self.lock();
        if free.bytes + capacity <= FREE_BYTES_MAX {
            buffer.clear();
            free.bytes += capacity;
            free.classes[capacity.ilog2() as usize].push(buffer);
        }
    }

    /// Shares the bytes of `buffer`; its memory is given back when the last reference is dropped.
    pub(super) fn share(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < KEPT_BYTES_MIN {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Shared { buffer, home: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer given back on drop.
struct Shared {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Buffers {
        fn free_bytes(&self) -> usize {
            let free = self.lock();
            assert_eq!(free.bytes, free.classes.iter().flatten().map(Vec::capacity).sum::<usize>());
            free.bytes
        }
    }

    #[test]
    fn memory_is_used_again() {
        let buffers = Buffers::default();
        let mut first = buffers.take(100_000);
        assert!(first.is_empty() && first.capacity() >= 100_000);
        first.extend_from_slice(&[7; 100_000]);
        let at = first.as_ptr();
        let bytes = buffers.share(first);
        let part = bytes.slice(64..);
        assert_eq!(buffers.free_bytes(), 0);
        drop(bytes);
        assert_eq!((buffers.free_bytes(), part.len(), part[0]), (0, 99_936, 7));
        drop(part);
        assert_ne!(buffers.free_bytes(), 0);
        // A longer one doesn't fit, and a shorter one of the same class does.
        let longer = buffers.take(200_000);
        assert_ne!(longer.as_ptr(), at);
        let again = buffers.take(70_000);
        assert_eq!((again.as_ptr(), again.len(), buffers.free_bytes()), (at, 0, 0));
    }

    #[test]
    fn short_frames_leave_nothing() {
        let buffers = Buffers::default();
        drop(buffers.share(vec![1; 100]));
        buffers.give_back(vec![1; KEPT_BYTES_MIN - 1]);
        assert_eq!(buffers.free_bytes(), 0);
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let buffers = Buffers::default();
        (0..100)
            .map(|_| buffers.take(1 << 20))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|buffer| buffers.give_back(buffer));
        assert_eq!(buffers.free_bytes(), FREE_BYTES_MAX);
        let huge = buffers.take(FREE_BYTES_MAX + 1);
        assert!(huge.capacity() < FREE_BYTES_MAX + 4096, "no more than asked for");
        buffers.give_back(huge);
        assert_eq!(buffers.free_bytes(), FREE_BYTES_MAX);
    }
}
