//! Messages and their bytes.

use serde::{Deserialize, Serialize};

/// Message and byte counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Message count.
    pub messages: u64,
    /// Packed payload bytes.
    pub bytes: u64,
}

impl Traffic {
    /// Counts a message.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    /// Returns the total, each figure at most [`u64::MAX`]: figures from files may be any.
    pub fn sum(of: impl IntoIterator<Item = Traffic>) -> Traffic {
        of.into_iter().fold(Traffic::default(), |sum, one| Traffic {
            messages: sum.messages.saturating_add(one.messages),
            bytes: sum.bytes.saturating_add(one.bytes),
        })
    }
}
