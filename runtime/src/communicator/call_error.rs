//! Calls of a communicator that make no sense.

/// A call that cannot be carried out as it was made, or that the peers' calls don't fit.
///
/// None of these changes the state of the communicator, except that a collective that fails half-way has used up
/// its number on this rank: the job can then only end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A rank that the job doesn't have.
    #[error("{call}: there is no rank {rank} among {size} ranks")]
    NoSuchRank {
        /// The call.
        call: &'static str,
        /// The rank that was asked for.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// Application tags are 0 or more.
    #[error("{call}: tag {tag} is negative")]
    NegativeTag {
        /// The call.
        call: &'static str,
        /// The tag that was asked for.
        tag: i32,
    },
    /// A request that this communicator doesn't know.
    #[error("{call}: request {id} is not one of this communicator")]
    UnknownRequest {
        /// The call.
        call: &'static str,
        /// The number of the request.
        id: u64,
    },
    /// A buffer that cannot be cut into one equal block for each rank.
    #[error("{call}: {len} bytes cannot be cut into {size} equal blocks")]
    UnequalBlocks {
        /// The call.
        call: &'static str,
        /// Length of the buffer in bytes.
        len: usize,
        /// How many ranks there are.
        size: u32,
    },
    /// Too few or too many blocks: there must be one for each rank.
    #[error("{call}: {blocks} blocks were given for {size} ranks")]
    BlockCount {
        /// The call.
        call: &'static str,
        /// How many blocks were given.
        blocks: usize,
        /// How many ranks there are.
        size: u32,
    },
    /// A peer called with another length.
    #[error("{call}: rank {peer} sent {actual} bytes where {expected} were expected")]
    LengthMismatch {
        /// The call.
        call: &'static str,
        /// The rank whose message has the wrong length.
        peer: u32,
        /// Expected length in bytes.
        expected: usize,
        /// Length of what came, in bytes.
        actual: usize,
    },
}

impl CallError {
    /// `Ok` if `rank` is one of `size` ranks.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`].
    pub fn check_rank(call: &'static str, rank: u32, size: u32) -> Result<(), CallError> {
        if rank < size { Ok(()) } else { Err(CallError::NoSuchRank { call, rank, size }) }
    }

    /// `Ok` if `tag` is a tag that applications may use.
    ///
    /// # Errors
    /// [`CallError::NegativeTag`].
    pub fn check_tag(call: &'static str, tag: i32) -> Result<(), CallError> {
        if tag >= 0 { Ok(()) } else { Err(CallError::NegativeTag { call, tag }) }
    }
}
