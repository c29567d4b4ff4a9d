//! FT: a 3-D grid's Fourier transform, divided into slabs.
//!
//! Each process has whole planes (the benchmark's 1-D layout): two of the three dimensions are transformed in place,
//! then one all-to-all exchange transposes the grid for the third. An iteration is one inverse transform and a
//! checksum, with parts summed up at rank 0.

use super::Message;
use super::collective::{all_to_all_pairwise, reduce_binomial};
use super::sends::Sends;

/// Class D iterations.
pub(super) const ITERATIONS: u32 = 25;
/// Valid numbers of ranks, with blocks above 32 KiB in the exchange.
///
/// (Above 1,024 ranks, the benchmark has a 2-D layout with two exchanges.)
pub(super) const RANKS: (u32, u32) = (2, 512);

/// Grid points.
const POINTS: u64 = 2_048 * 1_024 * 1_024;
/// Bytes in a double-precision complex number: a point or a checksum.
const COMPLEX_BYTES: u64 = 16;

/// Returns the messages sent by `rank` in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    let mut sends = Sends::new(rank);
    all_to_all_pairwise(&mut sends, rank, ranks, POINTS * COMPLEX_BYTES / u64::from(ranks).pow(2));
    reduce_binomial(&mut sends, rank, ranks, COMPLEX_BYTES);
    sends.finish()
}
