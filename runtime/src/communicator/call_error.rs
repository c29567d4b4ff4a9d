//! Invalid communicator calls.

/// An invalid call, or one that doesn't fit the peers' calls.
///
/// None of these changes the communicator's state, except a collective failing half-way: it has consumed its number on
/// this rank, and the job must end then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The rank is not in the job.
    #[error("{call}: there is no rank {rank} among {size} ranks")]
    NoSuchRank {
        /// Call name.
        call: &'static str,
        /// The invalid rank.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// Application tags are 0 or more.
    #[error("{call}: tag {tag} is negative")]
    NegativeTag {
        /// Call name.
        call: &'static str,
        /// The invalid tag.
        tag: i32,
    },
    /// The request is not open in this communicator.
    #[error("{call}: request {id} is not one of this communicator")]
    UnknownRequest {
        /// Call name.
        call: &'static str,
        /// Request number.
        id: u64,
    },
    /// The buffer's length is not a multiple of the number of ranks.
    #[error("{call}: {len} bytes cannot be cut into {size} equal blocks")]
    UnequalBlocks {
        /// Call name.
        call: &'static str,
        /// Buffer length in bytes.
        len: usize,
        /// Number of ranks.
        size: u32,
    },
    /// The number of blocks is not the number of ranks.
    #[error("{call}: {blocks} blocks were given for {size} ranks")]
    BlockCount {
        /// Call name.
        call: &'static str,
        /// Number of blocks in the call.
        blocks: usize,
        /// Number of ranks.
        size: u32,
    },
    /// A peer's buffer has another length.
    #[error("{call}: rank {peer} sent {actual} bytes where {expected} were expected")]
    LengthMismatch {
        /// Call name.
        call: &'static str,
        /// Rank whose message has the wrong length.
        peer: u32,
        /// Expected length in bytes.
        expected: usize,
        /// Message length in bytes.
        actual: usize,
    },
}

impl CallError {
    /// Checks that `rank` is one of `size` ranks.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`].
    pub fn check_rank(call: &'static str, rank: u32, size: u32) -> Result<(), CallError> {
        if rank < size { Ok(()) } else { Err(CallError::NoSuchRank { call, rank, size }) }
    }

    /// Checks that applications may use `tag`.
    ///
    /// # Errors
    /// [`CallError::NegativeTag`].
    pub fn check_tag(call: &'static str, tag: i32) -> Result<(), CallError> {
        if tag >= 0 { Ok(()) } else { Err(CallError::NegativeTag { call, tag }) }
    }
}
