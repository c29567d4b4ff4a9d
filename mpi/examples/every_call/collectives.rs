//! Collective operations, each with the contribution expected in this rank's log.

use counterfoil_mpi::logged::{
    CommunicatorCollectives, LoggedCommunicator, LoggedError, Partition, PartitionMut, Process, Root,
};
use counterfoil_mpi::{MpiError, SystemOperation, reduce_local_into};

use crate::expected::expect_contribution;
use crate::{value, values};

pub(crate) fn run(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    for root in 0..comm.size() {
        with_root(&comm.process_at_rank(root)?, comm.rank(), comm.size())?;
    }
    all_to_all(comm)?;
    reductions(comm)?;
    varcount(comm)?;
    user_operations(comm)?;
    invalid_calls(comm)?;
    // Non-synchronising operations.
    for i in 0..200_u32 {
        let mut number = if comm.rank() == 1 { i } else { 0 };
        if comm.rank() == 1 {
            expect_contribution(&number);
        }
        comm.process_at_rank(1)?.broadcast_into(&mut number)?;
        assert_eq!(number, i);
    }
    Ok(())
}

/// Returns rank r's part: r + 1 numbers.
pub(crate) fn uneven(rank: u32) -> Vec<u64> {
    values(rank, rank as usize + 1)
}

/// Returns these parts' lengths and displacements, with a gap of one number between two parts.
pub(crate) fn layout(size: u32) -> (Vec<usize>, Vec<usize>) {
    let counts: Vec<usize> = (1..=size as usize).collect();
    let places = counts.iter().map(|count| (count - 1) * count / 2 + count - 1).collect();
    (counts, places)
}

/// Returns all parts, with the numbers in the gaps.
pub(crate) fn laid_out(size: u32) -> Vec<u64> {
    let parts: Vec<_> = (0..size).map(uneven).collect();
    parts.join(&u64::MAX)
}

fn with_root(root: &Process<'_>, rank: u32, size: u32) -> Result<(), LoggedError> {
    let mut numbers = if root.is_self() { values(rank, 10) } else { vec![0; 10] };
    if root.is_self() {
        expect_contribution(&numbers[..]);
    }
    root.broadcast_into(&mut numbers[..])?;
    assert_eq!(numbers, values(root.rank(), 10));
    let (counts, places) = layout(size);
    let (mut mine, mut part) = (0_u32, vec![0; rank as usize + 1]);
    if root.is_self() {
        let mut all = vec![0_u32; size as usize];
        root.gather_into_root(&rank, &mut all[..])?;
        assert!(all.iter().copied().eq(0..size));
        expect_contribution(&all[..]);
        root.scatter_into_root(&all[..], &mut mine)?;
        let mut sum = [0_i64];
        root.reduce_into_root(&[i64::from(rank)], &mut sum, SystemOperation::Sum)?;
        assert_eq!(sum[0], (0..i64::from(size)).sum::<i64>());
        let mut parts = vec![u64::MAX; laid_out(size).len()];
        root.gather_varcount_into_root(&uneven(rank)[..], &mut PartitionMut::new(&mut parts, &counts, &places)?)?;
        assert_eq!(parts, laid_out(size));
        // The gaps belong to no part, and are not logged.
        expect_contribution(&(0..size).flat_map(uneven).collect::<Vec<_>>()[..]);
        root.scatter_varcount_into_root(&Partition::new(&parts, &counts, &places)?, &mut part[..])?;
    } else {
        expect_contribution(&rank);
        root.gather_into(&rank)?;
        root.scatter_into(&mut mine)?;
        expect_contribution(&i64::from(rank));
        root.reduce_into(&[i64::from(rank)], SystemOperation::Sum)?;
        expect_contribution(&uneven(rank)[..]);
        root.gather_varcount_into(&uneven(rank)[..])?;
        root.scatter_varcount_into(&mut part[..])?;
    }
    assert_eq!((mine, part), (rank, uneven(rank)));
    Ok(())
}

fn all_to_all(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut all = vec![0_u32; size as usize];
    expect_contribution(&rank);
    comm.all_gather_into(&rank, &mut all[..])?;
    assert!(all.into_iter().eq(0..size));
    let mine: Vec<u64> = (0..size).map(|to| value(rank, to as usize)).collect();
    let mut parts = vec![0_u64; size as usize];
    expect_contribution(&mine[..]);
    comm.all_to_all_into(&mine[..], &mut parts[..])?;
    assert!(parts.into_iter().eq((0..size).map(|from| value(from, rank as usize))));
    Ok(())
}

fn reductions(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (mut greatest, mut up_to, mut below) = ([0.0_f32], [0_u8], [77_i16]);
    expect_contribution(&(rank as f32 + 0.5));
    comm.all_reduce_into(&[rank as f32 + 0.5], &mut greatest, SystemOperation::Max)?;
    expect_contribution(&1_u8);
    comm.scan_into(&[1_u8], &mut up_to, SystemOperation::Sum)?;
    expect_contribution(&1_i16);
    comm.exclusive_scan_into(&[1_i16], &mut below, SystemOperation::Sum)?;
    let expected = if rank == 0 { 77 } else { rank as i16 };
    assert_eq!((greatest, up_to, below), ([size as f32 - 0.5], [rank as u8 + 1], [expected]));
    // Two numbers for each rank, the second one false on rank 0.
    let mine: Vec<u32> = (0..size).flat_map(|to| [to + rank, rank]).collect();
    let mut part = [0; 2];
    expect_contribution(&mine[..]);
    comm.reduce_scatter_block_into(&mine, &mut part, SystemOperation::Sum)?;
    let sum: u32 = (0..size).sum();
    assert_eq!(part, [size * rank + sum, sum]);
    for (operation, expected) in [
        (SystemOperation::Min, 0),
        (SystemOperation::Product, 0),
        (SystemOperation::LogicalAnd, 0),
        (SystemOperation::LogicalOr, 1),
        (SystemOperation::LogicalXor, (size - 1) % 2),
        (SystemOperation::BitwiseAnd, 0),
        (SystemOperation::BitwiseOr, (0..size).fold(0, |or, rank| or | rank)),
        (SystemOperation::BitwiseXor, (0..size).fold(0, |xor, rank| xor ^ rank)),
    ] {
        let mut result = [9_usize];
        expect_contribution(&(rank as usize));
        comm.all_reduce_into(&[rank as usize], &mut result, operation)?;
        assert_eq!(result, [expected as usize], "{operation:?}");
    }
    Ok(())
}

fn varcount(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (counts, places) = layout(size);
    let mut parts = vec![u64::MAX; laid_out(size).len()];
    expect_contribution(&uneven(rank)[..]);
    let mut partition = PartitionMut::new(&mut parts, &counts, &places)?;
    comm.all_gather_varcount_into(&uneven(rank)[..], &mut partition)?;
    assert_eq!(parts, laid_out(size));
    // Each rank sends s numbers to rank s, so rank r receives r numbers from every rank.
    let to_each: Vec<usize> = (0..size as usize).collect();
    let mine: Vec<u64> = (0..size).flat_map(|to| values(rank * size + to, to as usize)).collect();
    let mut got = vec![0_u64; (rank * size) as usize];
    expect_contribution(&mine[..]);
    comm.all_to_all_varcount_into(
        &Partition::in_order(&mine, &to_each)?,
        &mut PartitionMut::in_order(&mut got, &vec![rank as usize; size as usize])?,
    )?;
    assert_eq!(got, (0..size).flat_map(|from| values(from * size + rank, rank as usize)).collect::<Vec<_>>());
    Ok(())
}

/// The map x -> a x + b.
///
/// Composition of such maps is associative, but not commutative.
type Change = [i64; 2];

fn user_operations(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let then = |first: &Change, second: &mut Change| *second = [second[0] * first[0], second[0] * first[1] + second[1]];
    let of = |rank: u32| [2, i64::from(rank)];
    let up_to = |rank: u32| {
        (0..=rank).map(of).reduce(|first, mut second| {
            then(&first, &mut second);
            second
        })
    };
    let operation = comm.associative(then)?;
    let (mut all, mut mine) = ([[0; 2]], [[0; 2]]);
    expect_contribution(&of(rank));
    comm.all_reduce_into(&[of(rank)], &mut all, &operation)?;
    expect_contribution(&of(rank));
    comm.scan_into(&[of(rank)], &mut mine, &operation)?;
    assert_eq!((Some(all[0]), Some(mine[0])), (up_to(size - 1), up_to(rank)));
    let mut local = [[1, 1]];
    reduce_local_into(&[[3, 4]], &mut local, &operation)?;
    assert_eq!(local, [[3, 5]]);
    // MPI has no datatype of three bytes, and they are unaligned.
    let longer = comm.commutative(|one: &[u8; 3], other: &mut [u8; 3]| *other = (*one).max(*other))?;
    let (mine, mut greatest) = ([[1, rank as u8, 7], [rank as u8, 0, 9]], [[0; 3]; 2]);
    expect_contribution(&mine[..]);
    comm.all_reduce_into(&mine, &mut greatest, &longer)?;
    assert_eq!(greatest, [[1, size as u8 - 1, 7], [size as u8 - 1, 0, 9]]);
    Ok(())
}

/// An invalid call doesn't begin the operation, and leaves nothing in the log.
fn invalid_calls(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let size = comm.size() as usize;
    let is_length = |result: Result<(), LoggedError>| matches!(result, Err(LoggedError::Mpi(MpiError::Length { .. })));
    let (mut two, mut numbers) = ([0_u8; 2], vec![0_u8; 2 * size + 1]);
    assert!(is_length(comm.all_gather_into(&two, &mut numbers[..])));
    assert!(is_length(comm.all_to_all_into(&vec![0_u8; 2 * size + 1][..], &mut numbers[..])));
    assert!(is_length(comm.all_reduce_into(&[1_u8], &mut two, SystemOperation::Sum)));
    assert!(is_length(comm.reduce_scatter_block_into(&[1_u8], &mut two, SystemOperation::Sum)));
    let mut parts = PartitionMut::in_order(&mut numbers, &vec![1; size])?;
    assert!(is_length(comm.all_gather_varcount_into(&two, &mut parts)));
    let mut parts = PartitionMut::in_order(&mut numbers, &vec![1; size + 1])?;
    let result = comm.all_gather_varcount_into(&two, &mut parts);
    assert!(matches!(result, Err(LoggedError::Mpi(MpiError::Parts { .. }))));
    let overflowing = PartitionMut::new(&mut numbers, &[usize::MAX], &[1]);
    assert!(matches!(overflowing, Err(LoggedError::Partition { .. })));
    let (me, other) = (comm.this_process(), comm.process_at_rank((comm.rank() + 1) % comm.size())?);
    assert!(matches!(me.gather_into(&two), Err(LoggedError::NotRoot { .. })));
    assert!(matches!(other.scatter_into_root(&two, &mut numbers[..]), Err(LoggedError::NotRoot { .. })));
    Ok(())
}
