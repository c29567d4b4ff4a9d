//! Collectives, made of point-to-point messages over a [`CollectiveSubstrate`].
//!
//! | call | algorithm | messages that a rank sends, of `p` |
//! |---|---|---|
//! | [`barrier`] | dissemination | log2 p, rounded up |
//! | [`bcast`] | binomial tree | at most log2 p, rounded up |
//! | [`reduce`] | binomial tree to rank 0, then one message to the root | at most 1 |
//! | [`allreduce`], 8 KiB or more | pairwise exchange of blocks, and of combined blocks | 2 (p - 1) |
//! | [`allreduce`], fewer, p = 2^k | recursive doubling | log2 p |
//! | [`allreduce`], otherwise | reduce to rank 0, bcast from there | at most 1 + log2 p |
//! | [`gather`], [`scatter`] | straight to or from the root | 1, or p - 1 on the root |
//! | [`allgather`] | ring | p - 1 |
//! | [`alltoall`], [`alltoallv`] | pairwise exchange | p - 1 |
//!
//! Each message's source follows from the rank and the number of ranks alone: no wildcard, no determinant. Reductions
//! combine in one fixed order, so all runs give the same bits.
//!
//! A rule may want a call to run *natively*, with its messages outside the log, or to take its result from the local
//! log ([`CollectiveSubstrate::plan_collective`]). A native [`bcast`] goes straight from the root to all, so a rank may
//! take part in it with dummy arguments: it has nothing to forward.
//!
//! Programs call them as [`crate::Communicator`] methods.

mod reduction;

use std::mem::size_of_val;

use bytes::Bytes;
use counterfoil::Rank;
use counterfoil_protocols::api::CollectiveClass;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::communicator::{CallError, CollectiveRun, CollectiveSubstrate, InternalTag};

pub use reduction::{allreduce, allreduce_bytes, reduce, reduce_bytes};
pub(crate) use reduction::{combine_f64, combine_u64};

/// Returns once every rank has called it (Hensgen, Finkel and Manber 1988, dissemination barrier).
///
/// In round k each rank sends to the one 2^k after it and receives from the one 2^k before it.
///
/// # Errors
/// Errors of the communicator.
pub fn barrier(comm: &mut dyn CollectiveSubstrate) -> Result<(), Error> {
    call(comm, (CollectiveClass::Barrier, Results::Uniform), |comm, tag, _| {
        let (rank, size) = (comm.rank(), comm.size());
        let mut distance = 1;
        while distance < size {
            let from = rotate(rank, size - distance, size);
            exchange(comm, tag, rotate(rank, distance, size), &[], from)?;
            distance = distance.saturating_mul(2);
        }
        Ok(Vec::new())
    })?;
    Ok(())
}

/// Returns the root's `payload` on every rank.
///
/// See [`crate::Communicator::bcast`].
///
/// # Errors
/// [`CallError::NoSuchRank`] and the communicator's errors.
pub fn bcast(comm: &mut dyn CollectiveSubstrate, root: u32, payload: &[u8]) -> Result<Bytes, Error> {
    CallError::check_rank("bcast", root, comm.size())?;
    one(call(comm, (CollectiveClass::FromRoot(Rank(root)), Results::Uniform), |comm, tag, way| {
        let received = match way {
            Way::Logged => bcast_tree(comm, tag, root, payload),
            Way::Native => bcast_straight(comm, tag, root, payload),
        };
        Ok(vec![received?])
    }))
}

/// Like [`bcast`], into `values`.
///
/// See [`crate::Communicator::bcast_f64`].
///
/// # Errors
/// [`CallError::NoSuchRank`], [`CallError::LengthMismatch`] and the communicator's errors.
pub fn bcast_values<T>(comm: &mut dyn CollectiveSubstrate, root: u32, values: &mut [T]) -> Result<(), Error>
where
    T: FromBytes + IntoBytes + Immutable,
{
    let payload = bcast(comm, root, values.as_bytes())?;
    fill("bcast", root, values, &payload)
}

/// Returns every rank's `block` on rank `root`.
///
/// See [`crate::Communicator::gather`].
///
/// # Errors
/// [`CallError::NoSuchRank`] and the communicator's errors.
pub fn gather(comm: &mut dyn CollectiveSubstrate, root: u32, block: &[u8]) -> Result<Option<Vec<Bytes>>, Error> {
    CallError::check_rank("gather", root, comm.size())?;
    let is_root = comm.rank() == root;
    let blocks = call(comm, (CollectiveClass::ToRoot(Rank(root)), Results::PerRank), |comm, tag, _| {
        if !is_root {
            send_internal(comm, root, tag, block)?;
            return Ok(Vec::new());
        }
        let blocks = (0..comm.size()).map(|source| {
            if source == root { Ok(Bytes::copy_from_slice(block)) } else { receive_internal(comm, source, tag) }
        });
        blocks.collect()
    })?;
    Ok(is_root.then_some(blocks))
}

/// Distributes the root's `blocks`, and returns this rank's.
///
/// See [`crate::Communicator::scatter`].
///
/// # Errors
/// [`CallError::NoSuchRank`], on the root [`CallError::BlockCount`], and the communicator's errors.
pub fn scatter(comm: &mut dyn CollectiveSubstrate, root: u32, blocks: &[&[u8]]) -> Result<Bytes, Error> {
    CallError::check_rank("scatter", root, comm.size())?;
    let is_root = comm.rank() == root;
    if is_root {
        check_blocks("scatter", blocks, comm.size())?;
    }
    one(call(comm, (CollectiveClass::FromRoot(Rank(root)), Results::PerRank), |comm, tag, _| {
        if !is_root {
            return Ok(vec![receive_internal(comm, root, tag)?]);
        }
        for (to, block) in (0..).zip(blocks).filter(|(to, _)| *to != root) {
            send_internal(comm, to, tag, block)?;
        }
        Ok(vec![Bytes::copy_from_slice(blocks[root as usize])])
    }))
}

/// Returns every rank's `block` on every rank.
///
/// See [`crate::Communicator::allgather`].
///
/// A ring: in step k each rank forwards to its right neighbour the block received from the left in step k - 1.
///
/// # Errors
/// Errors of the communicator.
pub fn allgather(comm: &mut dyn CollectiveSubstrate, block: &[u8]) -> Result<Vec<Bytes>, Error> {
    call(comm, (CollectiveClass::AllToAll, Results::Uniform), |comm, tag, _| {
        let (rank, size) = (comm.rank(), comm.size());
        let (right, left) = (rotate(rank, 1, size), rotate(rank, size - 1, size));
        let mut blocks = vec![Bytes::new(); size as usize];
        let mut passing = Bytes::copy_from_slice(block);
        blocks[rank as usize] = passing.clone();
        for step in 1..size {
            passing = exchange(comm, tag, right, &passing, left)?;
            blocks[rotate(rank, size - step, size) as usize] = passing.clone();
        }
        Ok(blocks)
    })
}

/// Exchanges equal blocks between all pairs.
///
/// See [`crate::Communicator::alltoall`].
///
/// # Errors
/// [`CallError::UnequalBlocks`], [`CallError::LengthMismatch`] and the communicator's errors.
pub fn alltoall(comm: &mut dyn CollectiveSubstrate, blocks: &[u8]) -> Result<Vec<u8>, Error> {
    let size = comm.size();
    let block_len = blocks.len() / size as usize;
    if block_len * size as usize != blocks.len() {
        return Err(CallError::UnequalBlocks { call: "alltoall", len: blocks.len(), size }.into());
    }
    let block = |rank: u32| &blocks[rank as usize * block_len..][..block_len];
    let received =
        call(comm, (CollectiveClass::AllToAll, Results::PerRank), |comm, tag, _| exchange_pairwise(comm, tag, block))?;
    let mut result = Vec::with_capacity(blocks.len());
    for (peer, received) in (0..).zip(&received) {
        check_len("alltoall", peer, block_len, received)?;
        result.extend_from_slice(received);
    }
    Ok(result)
}

/// Exchanges blocks with any lengths between all pairs.
///
/// See [`crate::Communicator::alltoallv`].
///
/// # Errors
/// [`CallError::BlockCount`] and the communicator's errors.
pub fn alltoallv(comm: &mut dyn CollectiveSubstrate, blocks: &[&[u8]]) -> Result<Vec<Bytes>, Error> {
    check_blocks("alltoallv", blocks, comm.size())?;
    call(comm, (CollectiveClass::AllToAll, Results::PerRank), |comm, tag, _| {
        exchange_pairwise(comm, tag, |rank| blocks[rank as usize])
    })
}

/// Transmission of a collective's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Logged like any other.
    Logged,
    /// Outside the log.
    Native,
}

/// Results of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// The same at every rank, or none.
    Uniform,
    /// Another one at each rank, or only at the root.
    PerRank,
}

/// Counts a call, and runs it as the rule wants.
///
/// The blocks are the program's result: none, one, or one from each rank.
fn call(
    comm: &mut dyn CollectiveSubstrate,
    (class, results): (CollectiveClass, Results),
    mut run: impl FnMut(&mut dyn CollectiveSubstrate, InternalTag, Way) -> Result<Vec<Bytes>, Error>,
) -> Result<Vec<Bytes>, Error> {
    let tag = comm.begin_collective();
    loop {
        let blocks = match comm.plan_collective(tag, class, results == Results::Uniform)? {
            CollectiveRun::AsMessages => run(comm, tag, Way::Logged)?,
            CollectiveRun::Native => match run(comm, tag, Way::Native) {
                Ok(blocks) => blocks,
                Err(Error::CallAgain) => continue,
                Err(error) => return Err(error),
            },
            CollectiveRun::Recorded(bytes) => decode(tag, &bytes)?,
            CollectiveRun::Skip => Vec::new(),
        };
        comm.complete_collective(tag, &|| encode(&blocks))?;
        return Ok(blocks);
    }
}

/// Encodes blocks for the local log: each after its length, 8 bytes.
fn encode(blocks: &[Bytes]) -> Vec<u8> {
    blocks.iter().flat_map(|block| [&(block.len() as u64).to_le_bytes(), &block[..]].concat()).collect()
}

fn decode(tag: InternalTag, mut bytes: &[u8]) -> Result<Vec<Bytes>, Error> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let block = bytes.split_first_chunk().and_then(|(len, rest)| {
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            rest.split_at_checked(len)
        });
        let (block, rest) = block.ok_or(Error::NoResult { number: tag.sequence() })?;
        blocks.push(Bytes::copy_from_slice(block));
        bytes = rest;
    }
    Ok(blocks)
}

/// Returns the only block.
fn one(blocks: Result<Vec<Bytes>, Error>) -> Result<Bytes, Error> {
    Ok(blocks?.pop().unwrap_or_default())
}

/// Broadcasts from the root to each other rank.
fn bcast_straight(
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    root: u32,
    payload: &[u8],
) -> Result<Bytes, Error> {
    if comm.rank() != root {
        return receive_internal(comm, root, tag);
    }
    for to in (0..comm.size()).filter(|&to| to != root) {
        send_internal(comm, to, tag, payload)?;
    }
    Ok(Bytes::copy_from_slice(payload))
}

/// Broadcasts along a binomial tree.
///
/// With ranks counted from the root, a rank receives from the one without its lowest bit and sends to those differing
/// in one lower bit.
fn bcast_tree(comm: &mut dyn CollectiveSubstrate, tag: InternalTag, root: u32, payload: &[u8]) -> Result<Bytes, Error> {
    let size = comm.size();
    let place = rotate(comm.rank(), size - root, size);
    let payload = match place {
        0 => Bytes::copy_from_slice(payload),
        _ => receive_internal(comm, rotate(place & (place - 1), root, size), tag)?,
    };
    let bits = if place == 0 { u32::BITS } else { place.trailing_zeros() };
    for bit in (0..bits).rev().map(|shift| 1 << shift) {
        if bit < size - place {
            send_internal(comm, rotate(place + bit, root, size), tag, &payload)?;
        }
    }
    Ok(payload)
}

/// Exchanges pairwise: in step k each rank sends to the one k after it and receives from the one k before it.
fn exchange_pairwise<'a>(
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    block: impl Fn(u32) -> &'a [u8],
) -> Result<Vec<Bytes>, Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut received = vec![Bytes::new(); size as usize];
    received[rank as usize] = Bytes::copy_from_slice(block(rank));
    for step in 1..size {
        let (to, from) = (rotate(rank, step, size), rotate(rank, size - step, size));
        received[from as usize] = exchange(comm, tag, to, block(to), from)?;
    }
    Ok(received)
}

fn exchange(
    comm: &mut dyn CollectiveSubstrate,
    tag: InternalTag,
    to: u32,
    payload: &[u8],
    from: u32,
) -> Result<Bytes, Error> {
    let receive = comm.irecv_internal(from, tag)?;
    send_internal(comm, to, tag, payload)?;
    Ok(comm.wait(receive)?.1)
}

/// Sends a collective's message, for layers with additional collectives.
///
/// # Errors
/// Errors of the communicator.
pub fn send_internal(
    comm: &mut dyn CollectiveSubstrate,
    to: u32,
    tag: InternalTag,
    payload: &[u8],
) -> Result<(), Error> {
    let request = comm.isend_internal(to, tag, payload)?;
    comm.wait(request)?;
    Ok(())
}

fn receive_internal(comm: &mut dyn CollectiveSubstrate, from: u32, tag: InternalTag) -> Result<Bytes, Error> {
    let request = comm.irecv_internal(from, tag)?;
    Ok(comm.wait(request)?.1)
}

/// Returns `(rank + by) mod size`, where neither is larger than `size`; exact for every u32.
fn rotate(rank: u32, by: u32, size: u32) -> u32 {
    // A remainder below a u32 fits in one.
    ((u64::from(rank) + u64::from(by)) % u64::from(size)) as u32
}

fn check_blocks(call: &'static str, blocks: &[&[u8]], size: u32) -> Result<(), CallError> {
    if blocks.len() == size as usize { Ok(()) } else { Err(CallError::BlockCount { call, blocks: blocks.len(), size }) }
}

fn check_len(call: &'static str, peer: u32, expected: usize, received: &[u8]) -> Result<(), CallError> {
    let actual = received.len();
    if actual == expected { Ok(()) } else { Err(CallError::LengthMismatch { call, peer, expected, actual }) }
}

fn fill<T>(call: &'static str, peer: u32, values: &mut [T], received: &[u8]) -> Result<(), Error>
where
    T: FromBytes + IntoBytes + Immutable,
{
    check_len(call, peer, size_of_val(values), received)?;
    values.as_mut_bytes().copy_from_slice(received);
    Ok(())
}
