//! Format of a workload's state in a checkpoint: a header identifying its owner, then the workload's own body.
//!
//! ```text
//! 0   magic      8 bytes  "CFLstate"
//! 8   version    u32      1
//! 12  workload   u32      ID of the program
//! 16  class      u32      0, 1, 2 for S, W, A
//! 20  rank       u32
//! 24  ranks      u32
//! 28  reserved   u32      0
//! 32  iteration  u64      last complete iteration
//! 40  body_len   u64      bytes of the body that follows
//! ```
//! All numbers are little-endian. The checkpoint file's checksums protect these bytes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Class, Iterations};

const MAGIC: [u8; 8] = *b"CFLstate";
const VERSION: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    workload: U32,
    class: U32,
    rank: U32,
    ranks: U32,
    reserved: U32,
    iteration: U64,
    body_len: U64,
}

/// Owner of a state.
///
/// A run can resume only from a state with an equal owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) workload: u32,
    pub(crate) class: Class,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

/// This run can't resume from a saved state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes are too short, or not a workload's state.
    #[error("{len} bytes are not the saved state of a workload")]
    NotAState {
        /// Length in bytes.
        len: usize,
    },
    /// Another program version wrote the state.
    #[error("saved state has version {found}, this program reads version {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The state belongs to another workload, class, rank, or job size.
    #[error("saved state has {what} {found}, this run has {expected}")]
    Foreign {
        /// Field name.
        what: &'static str,
        /// Value in the state.
        found: u32,
        /// Value in this run.
        expected: u32,
    },
    /// The body has the wrong length for its contents.
    #[error("saved state has a body of {found} bytes where {expected} are expected")]
    Length {
        /// Expected length of the body in bytes.
        expected: u64,
        /// Length found in bytes.
        found: u64,
    },
    /// The state has a value never saved by a run of this program.
    #[error("saved state is invalid: {what} is {found}")]
    Invalid {
        /// Name of the value.
        what: &'static str,
        /// Value in the state.
        found: u64,
    },
}

/// Encodes the state after `iteration`.
pub(crate) fn encode(owner: &Owner, iteration: u64, body: &[u8]) -> Vec<u8> {
    let header = Header {
        magic: MAGIC,
        version: VERSION.into(),
        workload: owner.workload.into(),
        class: (owner.class as u32).into(),
        rank: owner.rank.into(),
        ranks: owner.ranks.into(),
        reserved: 0.into(),
        iteration: iteration.into(),
        body_len: (body.len() as u64).into(),
    };
    [header.as_bytes(), body].concat()
}

/// Decodes a state saved by `owner`: the last complete iteration, and the body.
pub(crate) fn decode<'a>(
    owner: &Owner,
    iterations: Iterations,
    bytes: &'a [u8],
) -> Result<(u64, &'a [u8]), StateError> {
    let not_a_state = StateError::NotAState { len: bytes.len() };
    let Ok((header, body)) = Header::ref_from_prefix(bytes) else { return Err(not_a_state) };
    if header.magic != MAGIC {
        return Err(not_a_state);
    }
    if header.version != VERSION {
        return Err(StateError::Version { found: header.version.get() });
    }
    for (what, found, expected) in [
        ("workload", header.workload, owner.workload),
        ("class", header.class, owner.class as u32),
        ("rank", header.rank, owner.rank),
        ("number of ranks", header.ranks, owner.ranks),
        ("reserved field", header.reserved, 0),
    ] {
        if found != expected {
            return Err(StateError::Foreign { what, found: found.get(), expected });
        }
    }
    if header.body_len != body.len() as u64 {
        return Err(StateError::Length { expected: header.body_len.get(), found: body.len() as u64 });
    }
    let iteration = header.iteration.get();
    if iteration > iterations.at_most {
        return Err(StateError::Invalid { what: "iteration", found: iteration });
    }
    Ok((iteration, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { workload: 7, class: Class::W, rank: 2, ranks: 4 };

    #[test]
    fn a_state_is_decoded_as_it_was_encoded() {
        let bytes = encode(&OWNER, 9, b"body");
        assert_eq!(decode(&OWNER, Iterations::exactly(9), &bytes), Ok((9, &b"body"[..])));
        assert_eq!(
            decode(&OWNER, Iterations::exactly(8), &bytes),
            Err(StateError::Invalid { what: "iteration", found: 9 })
        );
    }

    #[test]
    fn the_state_of_another_rank_or_program_is_refused() {
        let bytes = encode(&OWNER, 9, b"body");
        for other in [
            Owner { workload: 8, ..OWNER },
            Owner { class: Class::S, ..OWNER },
            Owner { rank: 3, ..OWNER },
            Owner { ranks: 8, ..OWNER },
        ] {
            let refused = decode(&other, Iterations::exactly(9), &bytes);
            assert!(matches!(refused, Err(StateError::Foreign { .. })), "{other:?}: {refused:?}");
        }
    }

    #[test]
    fn truncations_and_flipped_header_bytes_are_refused() {
        let bytes = encode(&OWNER, 9, b"body");
        for len in 0..bytes.len() {
            assert!(decode(&OWNER, Iterations::exactly(9), &bytes[..len]).is_err(), "truncated to {len} bytes");
        }
        for at in 0..size_of::<Header>() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let lower_iteration = at == 32 && damaged[at] <= 9;
            let refused = decode(&OWNER, Iterations::exactly(9), &damaged).is_err();
            assert!(refused || lower_iteration, "byte {at} flipped");
        }
    }
}
