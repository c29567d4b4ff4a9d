//! Immediate collective operations, each with the contribution expected in this rank's log.

use counterfoil_mpi::SystemOperation;
use counterfoil_mpi::logged::{
    CommunicatorCollectives, LoggedCommunicator, LoggedError, Partition, PartitionMut, Process, Request,
    RequestCollection, Root, WaitGuard, scope,
};

use crate::collectives::{laid_out, layout, uneven};
use crate::expected::{Determinant, expect_contribution, expect_determinants};
use crate::{value, values};

pub(crate) fn run(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    for root in 0..comm.size() {
        with_root(&comm.process_at_rank(root)?, comm.rank(), comm.size())?;
    }
    concurrent(comm)?;
    varcount(comm)?;
    dropped(comm)?;
    barriers(comm)
}

fn with_root(root: &Process<'_>, rank: u32, size: u32) -> Result<(), LoggedError> {
    let mut numbers = if root.is_self() { values(rank, 10) } else { vec![0; 10] };
    let (counts, places) = layout(size);
    let (mut mine, mut part) = (0_u32, vec![0; rank as usize + 1]);
    let (all, own) = ((0..size).collect::<Vec<_>>(), [i64::from(rank)]);
    let (mut gathered, mut sum) = (vec![0_u32; size as usize], [0_i64]);
    let (uneven_own, uneven_all) = (uneven(rank), laid_out(size));
    let mut uneven_gathered = vec![u64::MAX; uneven_all.len()];
    if root.is_self() {
        expect_contribution(&numbers[..]);
    }
    scope(|scope| {
        let broadcast = root.immediate_broadcast_into(scope, &mut numbers[..])?;
        if root.is_self() {
            expect_contribution(&all[..]);
            expect_contribution(&(0..size).flat_map(uneven).collect::<Vec<_>>()[..]);
            let gather = root.immediate_gather_into_root(scope, &rank, &mut gathered[..])?;
            let scatter = root.immediate_scatter_into_root(scope, &all[..], &mut mine)?;
            let reduce = root.immediate_reduce_into_root(scope, &own, &mut sum, SystemOperation::Sum)?;
            let parts = PartitionMut::new(&mut uneven_gathered, &counts, &places)?;
            let uneven_gather = root.immediate_gather_varcount_into_root(scope, &uneven_own[..], parts)?;
            let parts = Partition::new(&uneven_all, &counts, &places)?;
            let uneven_scatter = root.immediate_scatter_varcount_into_root(scope, &parts, &mut part[..])?;
            assert_eq!(*uneven_gather.wait()?, uneven_all);
            assert_eq!(*gather.wait()?, all);
            assert_eq!(*reduce.wait()?, [(0..i64::from(size)).sum::<i64>()]);
            scatter.wait()?;
            uneven_scatter.wait()?;
        } else {
            expect_contribution(&rank);
            expect_contribution(&own);
            expect_contribution(&uneven_own[..]);
            let gather = root.immediate_gather_into(scope, &rank)?;
            let scatter = root.immediate_scatter_into(scope, &mut mine)?;
            let reduce = root.immediate_reduce_into(scope, &own, SystemOperation::Sum)?;
            let uneven_gather = root.immediate_gather_varcount_into(scope, &uneven_own[..])?;
            let uneven_scatter = root.immediate_scatter_varcount_into(scope, &mut part[..])?;
            uneven_scatter.wait()?;
            scatter.wait()?;
            for request in [gather, reduce, uneven_gather] {
                request.wait()?;
            }
        }
        assert_eq!(*broadcast.wait()?, values(root.rank(), 10));
        Ok::<_, LoggedError>(())
    })?;
    assert_eq!((mine, part), (rank, uneven(rank)));
    Ok(())
}

/// Several operations are pending at once, on different memory, and complete in any order.
fn concurrent(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let mine: Vec<u64> = (0..size).map(|to| value(rank, to as usize)).collect();
    let (mut all, mut parts) = (vec![0_u32; size as usize], vec![0_u64; size as usize]);
    let (one, mut greatest, mut up_to, mut below, mut block) = ([rank as i64], [0], [0], [-1], [0; 1]);
    expect_contribution(&rank);
    expect_contribution(&mine[..]);
    expect_contribution(&one);
    expect_contribution(&one);
    expect_contribution(&one);
    expect_contribution(&mine[..]);
    let mut ended = Vec::new();
    scope(|scope| {
        let mut requests = RequestCollection::default();
        requests.add(comm.immediate_all_gather_into(scope, &rank, &mut all[..])?.map(discard));
        requests.add(comm.immediate_all_to_all_into(scope, &mine[..], &mut parts[..])?.map(discard));
        let farther = comm.commutative(|one: &i64, other: &mut i64| *other = (*one).max(*other))?;
        requests.add(comm.immediate_all_reduce_into(scope, &one, &mut greatest, &farther)?.map(discard));
        drop(farther);
        requests.add(comm.immediate_scan_into(scope, &one, &mut up_to, SystemOperation::Sum)?.map(discard));
        requests.add(comm.immediate_exclusive_scan_into(scope, &one, &mut below, SystemOperation::Sum)?.map(discard));
        let scattered = comm.immediate_reduce_scatter_block_into(scope, &mine, &mut block, SystemOperation::Max)?;
        requests.add(scattered.map(discard));
        expect_determinants(Determinant::Completion, 1);
        ended.extend(requests.wait_any()?);
        let mut others = Vec::new();
        requests.wait_all(&mut others)?;
        ended.extend(others);
        Ok::<_, LoggedError>(())
    })?;
    ended.sort_unstable();
    assert!(ended.into_iter().map(|(index, ())| index).eq(0..6));
    assert!(all.into_iter().eq(0..size));
    assert!(parts.into_iter().eq((0..size).map(|from| value(from, rank as usize))));
    let sum = |ranks: std::ops::Range<u32>| ranks.map(i64::from).sum::<i64>();
    let before = if rank == 0 { -1 } else { sum(0..rank) };
    assert_eq!((greatest, up_to, below), ([i64::from(size) - 1], [sum(0..rank + 1)], [before]));
    assert_eq!(block, [value(size - 1, rank as usize)]);
    Ok(())
}

fn discard<T: ?Sized>(_: &mut T) {}

fn varcount(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (counts, places) = layout(size);
    let (own, mut all) = (uneven(rank), vec![u64::MAX; laid_out(size).len()]);
    let mine: Vec<u64> = (0..size).flat_map(|to| values(rank * size + to, to as usize)).collect();
    let mut got = vec![0_u64; (rank * size) as usize];
    expect_contribution(&own[..]);
    expect_contribution(&mine[..]);
    scope(|scope| {
        let parts = PartitionMut::new(&mut all, &counts, &places)?;
        let gather = comm.immediate_all_gather_varcount_into(scope, &own[..], parts)?;
        let to_each: Vec<usize> = (0..size as usize).collect();
        let parts = PartitionMut::in_order(&mut got, &vec![rank as usize; size as usize])?;
        let exchange = comm.immediate_all_to_all_varcount_into(scope, &Partition::in_order(&mine, &to_each)?, parts)?;
        let got = exchange.wait()?;
        assert_eq!(*got, (0..size).flat_map(|from| values(from * size + rank, rank as usize)).collect::<Vec<_>>());
        assert_eq!(*gather.wait()?, laid_out(size));
        Ok(())
    })
}

/// Dropped requests, and one that leaves its scope: the scope completes them.
fn dropped(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (mut dropped, mut taken_out) = (vec![0_u32; size as usize], [0]);
    for _ in 0..2 {
        expect_contribution(&rank);
    }
    let request = scope(|scope| {
        drop(comm.immediate_all_gather_into(scope, &rank, &mut dropped[..])?);
        comm.immediate_all_reduce_into(scope, std::slice::from_ref(&rank), &mut taken_out, SystemOperation::Sum)
    })?;
    // The operation is complete, and the request still gives its memory back.
    assert!(request.is_ready()?);
    assert_eq!(*request.wait()?, [(0..size).sum::<u32>()]);
    assert!(dropped.into_iter().eq(0..size));
    Ok(())
}

/// Leaked requests: the scope waits for them before their memory is reused.
pub(crate) fn leaked(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    for round in 0..100 {
        let (own, mut all) = (rank + round, vec![0_u32; size as usize]);
        scope(|scope| comm.immediate_all_gather_into(scope, &own, &mut all[..]).map(std::mem::forget))?;
        assert!(all.into_iter().eq(round..round + size));
    }
    Ok(())
}

/// A panic while an operation is pending on memory about to be released by the scope.
pub(crate) fn panics(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, mut all) = (comm.rank(), vec![0_u32; comm.size() as usize]);
    scope(|scope| {
        let request = comm.immediate_all_gather_into(scope, &rank, &mut all[..])?;
        assert!(rank > 0, "rank 0 gives up");
        request.wait().map(drop)
    })
}

fn barriers(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (first, mut second) = (comm.immediate_barrier()?, comm.immediate_barrier()?);
    while let Err(pending) = second.test()? {
        second = pending;
    }
    first.wait()?;
    // Dropping a barrier's request waits for it, and so does the guard.
    drop(comm.immediate_barrier()?);
    drop(WaitGuard::from(comm.immediate_barrier()?));
    Ok(())
}
