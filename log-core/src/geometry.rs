//! Layout of a log's address space: size classes and their block regions.
//!
//! The space has a region for each class, with room for the whole budget: use decides which class gets the bytes, and
//! the budget bounds the sum. Address space costs nothing until it is touched, so no block is ever moved, merged or
//! split, and a class's free list is a stack.

use crate::options::{BLOCK_BYTES_MIN, HEADER_BYTES, MEMORY_BYTES_MAX, OptionsError, PoolOptions};

/// Bytes in a large page on most machines.
#[cfg(not(miri))]
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Classes between a power of two and the next, for blocks holding one large record: at most 1/8 is wasted.
const JUMBO_STEPS: usize = 8;

/// A block size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// Block size in bytes.
    pub(crate) bytes: usize,
    /// Offset of the first block in the space.
    pub(crate) region: usize,
    /// Number of blocks fitting the region.
    pub(crate) blocks: usize,
}

/// Layout of a pool's address space: a pure function of its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub(crate) classes: Vec<Class>,
    /// Index of the ordinary chunks' class.
    pub(crate) chunk_class: usize,
    len: usize,
}

impl PoolOptions {
    /// Returns the layout of the pool's address space.
    ///
    /// # Errors
    /// [`OptionsError`] names the first option out of its limits.
    pub fn geometry(&self) -> Result<Geometry, OptionsError> {
        let refuse = |option, value, rule: &'static str| Err(OptionsError { option, value, rule: rule.into() });
        if !self.chunk_bytes.is_power_of_two() || self.chunk_bytes < BLOCK_BYTES_MIN || self.chunk_bytes > 1 << 30 {
            return refuse("chunk_bytes", self.chunk_bytes, "must be a power of two from 4 KiB to 1 GiB");
        }
        if self.memory_bytes_max < self.chunk_bytes {
            return refuse("memory_bytes_max", self.memory_bytes_max, "must hold at least one chunk");
        }
        if self.memory_bytes_max > MEMORY_BYTES_MAX {
            return refuse("memory_bytes_max", self.memory_bytes_max, "must be at most 256 GiB");
        }
        if self.prefault_bytes > self.memory_bytes_max {
            return refuse("prefault_bytes", self.prefault_bytes, "must be at most memory_bytes_max");
        }
        if self.cursors_max == 0 || self.cursors_max > 64 {
            return refuse("cursors_max", self.cursors_max, "must be from 1 to 64");
        }
        Ok(Geometry::new(self))
    }
}

impl Geometry {
    /// Computes the layout for these options, which must be valid.
    pub(crate) fn new(options: &PoolOptions) -> Geometry {
        let mut classes = Vec::new();
        let mut chunk_class = 0;
        let mut at = HEADER_BYTES;
        let mut push = |bytes: usize| {
            let blocks = options.memory_bytes_max / bytes;
            classes.push(Class { bytes, region: at, blocks });
            at += blocks * bytes;
        };
        let mut bytes = BLOCK_BYTES_MIN;
        while bytes <= options.chunk_bytes {
            push(bytes);
            bytes *= 2;
        }
        let mut power = options.chunk_bytes;
        while power < options.memory_bytes_max {
            for step in 1..=JUMBO_STEPS {
                let bytes = (power + power / JUMBO_STEPS * step).next_multiple_of(BLOCK_BYTES_MIN);
                if bytes <= options.memory_bytes_max {
                    push(bytes);
                }
            }
            power *= 2;
        }
        // Classes next to small chunks can round to the same page count.
        classes.dedup_by_key(|class| class.bytes);
        for (index, class) in classes.iter().enumerate() {
            if class.bytes == options.chunk_bytes {
                chunk_class = index;
            }
        }
        Geometry { classes, chunk_class, len: at }
    }

    /// Returns the least budget for allocating a chunk of `bytes`: its block, or an ordinary chunk if larger.
    ///
    /// `None` if it is above [`MEMORY_BYTES_MAX`].
    pub(crate) fn memory_bytes_for(bytes: usize, chunk_bytes: usize) -> Option<usize> {
        // The smaller classes don't depend on the budget, and every doubling has at least one.
        let memory_bytes_max = bytes.checked_mul(2)?.max(chunk_bytes);
        let geometry = Geometry::new(&PoolOptions { memory_bytes_max, chunk_bytes, ..PoolOptions::default() });
        let block = geometry.classes[geometry.class_for(bytes)?].bytes.max(chunk_bytes);
        (block <= MEMORY_BYTES_MAX).then_some(block)
    }

    /// Returns the parts of the space worth large pages, as offset and bytes: the ordinary chunks after their first
    /// large page, and all larger blocks of at least half a large page.
    ///
    /// A log with few chunks must not take a large page for them.
    #[cfg(not(miri))]
    pub(crate) fn large_pages(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let Class { bytes, region, blocks } = self.classes[self.chunk_class];
        let skipped = if bytes < LARGE_PAGE_BYTES { LARGE_PAGE_BYTES } else { 0 };
        let chunks = (blocks * bytes).checked_sub(skipped).map(|len| (region + skipped, len));
        let large = self.classes.iter().skip(self.chunk_class + 1).find(|class| class.bytes >= LARGE_PAGE_BYTES / 2);
        let blocks = large.map(|class| (class.region, self.len - class.region));
        chunks.into_iter().chain(blocks).filter(|(_, len)| *len >= LARGE_PAGE_BYTES)
    }

    /// Returns the address space in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `false`: there is always a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the index of the smallest class with blocks holding `bytes`.
    pub(crate) fn class_for(&self, bytes: usize) -> Option<usize> {
        let index = self.classes.partition_point(|class| class.bytes < bytes);
        (index < self.classes.len()).then_some(index)
    }
}

#[cfg(not(counterfoil_loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(memory_bytes_max: usize, chunk_bytes: usize) -> Geometry {
        Geometry::new(&PoolOptions { memory_bytes_max, chunk_bytes, ..PoolOptions::default() })
    }

    #[test]
    fn classes_grow_and_their_regions_do_not_overlap() {
        for (memory, chunk) in [(1 << 20, 4096), (64 << 20, 65536), (MEMORY_BYTES_MAX, 1 << 20), (12288, 8192)] {
            let geometry = geometry(memory, chunk);
            for pair in geometry.classes.windows(2) {
                assert!(pair[0].bytes < pair[1].bytes);
                assert!(pair[0].region + pair[0].blocks * pair[0].bytes <= pair[1].region);
            }
            assert_eq!(geometry.classes[geometry.chunk_class].bytes, chunk);
            let last = geometry.classes.last().unwrap();
            assert!(last.bytes <= memory && last.region + last.blocks * last.bytes <= geometry.len());
            assert!(geometry.len() < 1 << 47, "more address space than a process has");
        }
    }

    #[test]
    fn a_large_record_wastes_at_most_an_eighth() {
        let geometry = geometry(64 << 20, 65536);
        for bytes in (65536..60 << 20).step_by(if cfg!(miri) { 10_000_019 } else { 100_003 }) {
            let class = geometry.classes[geometry.class_for(bytes).unwrap()];
            assert!(class.bytes >= bytes && class.bytes <= bytes + bytes / 8 + BLOCK_BYTES_MIN);
        }
        assert!(geometry.class_for((64 << 20) + 1).is_none());
        for (index, class) in geometry.classes.iter().enumerate() {
            assert_eq!(geometry.class_for(class.bytes), Some(index), "{} bytes fit", class.bytes);
        }
    }
    #[cfg(not(miri))]
    #[test]
    fn large_pages_are_for_many_chunks_and_for_large_blocks() {
        const LARGE: usize = LARGE_PAGE_BYTES;
        for (memory, chunk) in [(64 << 20, 64 << 10), (64 << 20, LARGE / 2), (64 << 20, LARGE), (64 << 20, 2 * LARGE)] {
            let geometry = geometry(memory, chunk);
            let Class { bytes, region, blocks } = geometry.classes[geometry.chunk_class];
            let skipped = if chunk < LARGE { LARGE } else { 0 };
            let above = geometry.classes[geometry.chunk_class + 1..].iter();
            let first_large = above.filter(|class| class.bytes >= LARGE / 2).map(|class| class.region).min().unwrap();
            let expected = [(region + skipped, blocks * bytes - skipped), (first_large, geometry.len() - first_large)];
            assert_eq!(geometry.large_pages().collect::<Vec<_>>(), expected, "{memory} bytes, chunks of {chunk}");
        }
        // Chunks for one large page, and no block of half its size.
        assert_eq!(geometry(1 << 20, 4096).large_pages().count(), 0);
    }
}
