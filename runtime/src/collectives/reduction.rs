//! Reductions in rank order, in a tree that depends on the number of ranks alone.
//!
//! All algorithms combine like a binomial tree's nodes with their children, so they give the same bits.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unalign};

use counterfoil::Rank;
use counterfoil_protocols::api::CollectiveClass;

use super::{
    Results, bcast_tree, call, check_len, exchange, exchange_pairwise, fill, one, receive_internal, send_internal,
};
use crate::Error;
use crate::communicator::{CallError, CollectiveSubstrate, InternalTag, Reduction};

/// Bytes from which an allreduce works by blocks: a rank sends fewer bytes then, in more messages.
const BLOCKS_BYTES_MIN: usize = 8 << 10;
/// The call's name in errors.
const ALLREDUCE: &str = "allreduce";

/// Combines all ranks' `values` into those on rank `root`.
///
/// See [`crate::Communicator::reduce_f64`].
///
/// `combine(left, right)` must be associative up to rounding; it needn't be commutative: `left` always comes from lower
/// ranks.
///
/// # Errors
/// [`CallError::NoSuchRank`], [`CallError::LengthMismatch`] and the communicator's errors.
pub fn reduce<T>(
    comm: &mut dyn CollectiveSubstrate,
    root: u32,
    values: &mut [T],
    combine: fn(T, T) -> T,
) -> Result<(), Error>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy,
{
    reduce_bytes(comm, root, values.as_mut_bytes(), by_element(combine))
}

/// Combines all ranks' `values`, with the result on all ranks.
///
/// See [`crate::Communicator::allreduce_f64`].
///
/// # Errors
/// [`CallError::LengthMismatch`] and the communicator's errors.
pub fn allreduce<T>(comm: &mut dyn CollectiveSubstrate, values: &mut [T], combine: fn(T, T) -> T) -> Result<(), Error>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy,
{
    allreduce_bytes(comm, values.as_mut_bytes(), size_of::<T>(), by_element(combine))
}

/// Like [`reduce`], for any elements.
///
/// `combine` stores the result of its two arguments, with the length of `values`, in the first, which comes from lower
/// ranks.
///
/// # Errors
/// Same as [`reduce`].
pub fn reduce_bytes(
    comm: &mut dyn CollectiveSubstrate,
    root: u32,
    values: &mut [u8],
    mut combine: impl FnMut(&mut [u8], &[u8]),
) -> Result<(), Error> {
    CallError::check_rank("reduce", root, comm.size())?;
    let result = call(comm, (CollectiveClass::ToRoot(Rank(root)), Results::PerRank), |comm, tag, _| {
        let combined = combine_to_first("reduce", comm, tag, values, &mut combine)?;
        // The tree ends at rank 0 whatever the root, so the order of operations doesn't depend on the root.
        match (combined, comm.rank() == root) {
            (Some(combined), true) => return Ok(vec![combined.into()]),
            (Some(combined), false) => send_internal(comm, root, tag, &combined)?,
            (None, true) => return Ok(vec![receive_internal(comm, 0, tag)?]),
            (None, false) => {}
        }
        Ok(Vec::new())
    })?;
    result.first().map_or(Ok(()), |result| fill("reduce", 0, values, result))
}

/// Like [`allreduce`], for any elements with `element_bytes` each, by `combine` as in [`reduce_bytes`].
///
/// It gets any number of elements.
///
/// # Errors
/// Same as [`allreduce`].
pub fn allreduce_bytes(
    comm: &mut dyn CollectiveSubstrate,
    values: &mut [u8],
    element_bytes: usize,
    mut combine: impl FnMut(&mut [u8], &[u8]),
) -> Result<(), Error> {
    let elements = values.len() / element_bytes.max(1);
    let result = one(call(comm, (CollectiveClass::AllToAll, Results::Uniform), |comm, tag, _| {
        let size = comm.size();
        let is_long = values.len() >= BLOCKS_BYTES_MIN && elements >= size as usize;
        let combined = if is_long {
            combine_by_blocks(comm, tag, values, element_bytes, &mut combine)?.into()
        } else if size.is_power_of_two() {
            combine_by_doubling(comm, tag, values, &mut combine)?.into()
        } else {
            let combined = combine_to_first(ALLREDUCE, comm, tag, values, &mut combine)?;
            bcast_tree(comm, tag, 0, combined.as_deref().unwrap_or_default())?
        };
        Ok(vec![combined])
    }))?;
    fill(ALLREDUCE, 0, values, &result)
}

/// Returns the `f64` function for `reduction`.
pub(crate) fn combine_f64(reduction: Reduction) -> fn(f64, f64) -> f64 {
    // Not f64::min and f64::max: they may return either zero, and results must be bitwise reproducible.
    match reduction {
        Reduction::Sum => |left, right| left + right,
        Reduction::Min => |left, right| {
            if right.total_cmp(&left).is_lt() { right } else { left }
        },
        Reduction::Max => |left, right| {
            if right.total_cmp(&left).is_gt() { right } else { left }
        },
    }
}

/// Returns the `u64` function for `reduction`.
pub(crate) fn combine_u64(reduction: Reduction) -> fn(u64, u64) -> u64 {
    match reduction {
        Reduction::Sum => u64::wrapping_add,
        Reduction::Min => Ord::min,
        Reduction::Max => Ord::max,
    }
}

/// Combines along a binomial tree to rank 0, which alone gets the result.
///
/// A rank combines its own values with those from the ranks above it, nearest first, and sends the result to the rank
/// without its lowest bit.
fn combine_to_first(
    call: &'static str,
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    values: &[u8],
    mut combine: impl FnMut(&mut [u8], &[u8]),
) -> Result<Option<Vec<u8>>, Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut combined = values.to_vec();
    let bits = if rank == 0 { u32::BITS } else { rank.trailing_zeros() };
    for bit in (0..bits).map(|shift| 1u32 << shift).take_while(|bit| *bit < size - rank) {
        let peer = rank + bit;
        let higher = receive_internal(comm, peer, tag)?;
        check_len(call, peer, combined.len(), &higher)?;
        combine(&mut combined, &higher);
    }
    if rank == 0 {
        return Ok(Some(combined));
    }
    send_internal(comm, rank & (rank - 1), tag, &combined)?;
    Ok(None)
}

/// Combines by recursive doubling (Thakur, Rabenseifner and Gropp 2005, section 4.5) on 2^k ranks: after step k, each
/// has the result for the 2^(k+1) ranks that differ from it in the lowest bits.
fn combine_by_doubling(
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    values: &[u8],
    mut combine: impl FnMut(&mut [u8], &[u8]),
) -> Result<Vec<u8>, Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut combined = values.to_vec();
    for bit in (0..size.trailing_zeros()).map(|shift| 1u32 << shift) {
        let peer = rank ^ bit;
        let other = exchange(comm, tag, peer, &combined, peer)?;
        check_len(ALLREDUCE, peer, combined.len(), &other)?;
        if rank & bit == 0 {
            combine(&mut combined, &other);
        } else {
            let higher = std::mem::replace(&mut combined, other.into());
            combine(&mut combined, &higher);
        }
    }
    Ok(combined)
}

/// Combines one block of elements at each rank, which gets it from all ranks and sends its result to all.
fn combine_by_blocks(
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    values: &[u8],
    element_bytes: usize,
    mut combine: impl FnMut(&mut [u8], &[u8]),
) -> Result<Vec<u8>, Error> {
    let (rank, size) = (comm.rank(), comm.size() as usize);
    let elements = values.len() / element_bytes;
    // The first `elements % size` blocks have one more.
    let begin = |block: usize| (elements / size * block + block.min(elements % size)) * element_bytes;
    let block = |rank: u32| begin(rank as usize)..begin(rank as usize + 1);

    let mut parts = exchange_pairwise(comm, tag, |to| &values[block(to)])?;
    for (peer, part) in (0..).zip(&parts) {
        check_len(ALLREDUCE, peer, block(rank).len(), part)?;
    }
    let mut distance = 1;
    while distance < size {
        for lower in (0..size - distance).step_by(2 * distance) {
            let higher = std::mem::take(&mut parts[lower + distance]);
            let mut combined = Vec::from(std::mem::take(&mut parts[lower]));
            combine(&mut combined, &higher);
            parts[lower] = combined.into();
        }
        distance *= 2;
    }
    let own = std::mem::take(&mut parts[0]);
    drop(parts);
    let blocks = exchange_pairwise(comm, tag, |_| &own)?;
    let mut result = Vec::with_capacity(values.len());
    for (peer, part) in (0..).zip(&blocks) {
        check_len(ALLREDUCE, peer, block(peer).len(), part)?;
        result.extend_from_slice(part);
    }
    Ok(result)
}

/// Returns a function combining equally long values element by element, at any alignment.
fn by_element<T>(combine: fn(T, T) -> T) -> impl FnMut(&mut [u8], &[u8])
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy,
{
    move |lower, higher| {
        let lower = <[Unalign<T>]>::mut_from_bytes(lower).unwrap_or_default();
        let higher = <[Unalign<T>]>::ref_from_bytes(higher).unwrap_or_default();
        for (left, right) in lower.iter_mut().zip(higher) {
            *left = Unalign::new(combine(left.get(), right.get()));
        }
    }
}
