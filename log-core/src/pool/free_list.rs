//! Free blocks of a size class.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A lock-free stack of block numbers: the head is (tag, number + 1), the links are in their own array.
///
/// The tag changes with each push, so that a pop's exchange fails if another thread has popped and pushed the same
/// block meanwhile, and no stale link is installed.
#[derive(Debug)]
pub(super) struct Stack {
    head: AtomicU64,
}

impl Stack {
    pub(super) fn new() -> Stack {
        Stack { head: AtomicU64::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) as u32 == 0
    }

    pub(super) fn push(&self, links: &[AtomicU32], index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            links[index as usize].store(head as u32, Ordering::Relaxed);
            let tagged = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            // Release: the thread popping this block must see its link, and everything done to the block before.
            match self.head.compare_exchange_weak(head, tagged, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    pub(super) fn pop(&self, links: &[AtomicU32]) -> Option<u32> {
        // Acquire: pairs with the release in the push of the block now on top.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            let next = links[index as usize].load(Ordering::Relaxed);
            let untouched = head & 0xFFFF_FFFF_0000_0000 | u64::from(next);
            match self.head.compare_exchange_weak(head, untouched, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }
}

/// Free blocks of one class.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Blocks with committed memory, most recently used on top.
    pub(super) warm: Stack,
    /// Blocks with their memory returned to the system.
    pub(super) cold: Stack,
    /// Number of the first never used block.
    pub(super) fresh: AtomicU32,
    pub(super) links: Box<[AtomicU32]>,
}
