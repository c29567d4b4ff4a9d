//! Communicators derived from others.

use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, GroupRelation, LoggedCommunicator, LoggedError, LoggedUniverse, Request,
    Source, scope, send_receive_with_tags,
};
use counterfoil_mpi::{CommunicatorRelation, SystemOperation};

use crate::expected::{Determinant, expect_contribution, expect_determinants};
use crate::value;

/// Returns the sum of `number` over a communicator's ranks.
fn sum(comm: &LoggedCommunicator, number: u32) -> Result<u32, LoggedError> {
    let mut sum = [0];
    expect_contribution(&number);
    comm.all_reduce_into(&[number], &mut sum, SystemOperation::Sum)?;
    Ok(sum[0])
}

pub(crate) fn groups(world: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    let (rank, size) = (world.rank(), world.size());
    let all = world.group();
    assert_eq!((all.size(), all.rank()), (size, Some(rank)));
    let backwards: Vec<u32> = (0..size).rev().collect();
    let turned = all.include(&backwards)?;
    assert_eq!((turned.rank(), turned.compare(&all)), (Some(size - 1 - rank), GroupRelation::Similar));
    let (low, high) = (all.include(&[0, 1])?, all.include(&[1, 2])?);
    assert_eq!(low.union(&high).difference(&low.intersection(&high)), all.include(&[0, 2])?);
    assert_eq!(all.translate_ranks(&[2, 0], &high)?, [Some(1), None]);
    // All ranks but rank 0, in reverse order; collective over all.
    let others = turned.exclude(&[size - 1])?;
    let part = world.split_by_subgroup_collective(&others)?;
    assert_eq!(part.is_none(), rank == 0);
    if let Some(part) = &part {
        assert_eq!((part.rank(), part.size()), (size - 1 - rank, size - 1));
        assert_eq!(part.group(), others);
        assert_eq!(sum(part, rank)?, (1..size).sum::<u32>());
        assert_eq!(part.compare(world)?, CommunicatorRelation::Unequal);
    }
    // Collective over the group alone; concurrent calls with common ranks have different tags.
    let [first, last] = [all.include(&[0, 1])?, all.include(&[size - 1, 1])?];
    let first = world.split_by_subgroup(&first)?;
    let last = world.split_by_subgroup_with_tag(&last, 3)?;
    assert_eq!((first.is_some(), last.is_some()), (rank < 2, rank == 1 || rank == size - 1));
    for comm in first.iter().chain(&last) {
        let other = comm.process_at_rank(1 - comm.rank())?;
        other.send_with_tag(&value(rank, 1), 70)?;
        let from = comm.group().translate_rank(other.rank(), &all)?.unwrap();
        assert_eq!(other.receive_with_tag::<u64>(70)?.0, value(from, 1));
    }
    if let Some(part) = &part {
        let result = part.split_by_subgroup(&all);
        assert!(matches!(result, Err(LoggedError::NotInCommunicator { rank: 0 })));
    }
    // Both halves at once, with disjoint groups.
    let half: Vec<u32> = (0..size).filter(|other| other % 2 == rank % 2).collect();
    let half = world.split_by_subgroup_collective(&all.include(&half)?)?.unwrap();
    assert_eq!(sum(&half, 1)?, half.size());
    let here = world.split_by_color_with_key(Some(3), -(rank as i32))?.unwrap();
    assert_eq!((here.size(), here.rank()), (size, size - 1 - rank));
    assert_eq!(here.compare(world)?, CommunicatorRelation::Similar);
    assert_eq!(world.compare(&world.duplicate()?)?, CommunicatorRelation::Congruent);
    assert_eq!(world.compare(&world.clone())?, CommunicatorRelation::Identical);
    here.set_name("here")?;
    assert_eq!((here.get_name()?, world.get_name()?), ("here".to_owned(), "MPI_COMM_WORLD".to_owned()));
    let itself = logged.self_comm();
    itself.this_process().send_with_tag(&value(rank, 2), 71)?;
    assert_eq!(itself.any_process().receive_with_tag::<u64>(71)?.0, value(rank, 2));
    expect_determinants(Determinant::Receive, 1);
    assert_eq!((itself.size(), sum(&itself, rank)?), (1, rank));
    world.barrier()
}

pub(crate) fn of_one_host(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let here = world.split_shared(-(world.rank() as i32))?.unwrap();
    // All ranks are on one machine.
    assert_eq!((here.size(), here.rank()), (world.size(), world.size() - 1 - world.rank()));
    Ok(())
}

/// Contributions to non-synchronising operations are kept until an operation on all ranks synchronises.
pub(crate) fn released_contributions(world: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    const TIMES: usize = 30;
    let copy = world.duplicate()?;
    let part = world.split_by_color(Some(world.rank() % 2))?.unwrap();
    world.barrier()?;
    // Nothing has been sent yet.
    assert_eq!(logged.unacknowledged()?, 0);
    for comm in [&copy, &part] {
        for _ in 0..TIMES {
            let (own, mut numbers) = ([1_u64], [0]);
            expect_contribution(&own);
            comm.scan_into(&own, &mut numbers, SystemOperation::Sum)?;
            assert_eq!(numbers[0], u64::from(comm.rank()) + 1);
        }
    }
    assert_eq!(logged.unacknowledged()?, 2 * TIMES as u64);
    part.barrier()?;
    // The contributions to the other communicator precede them in the log, and a barrier of some ranks proves nothing
    // about the other communicator.
    assert_eq!(logged.unacknowledged()?, 2 * TIMES as u64);
    world.barrier()?;
    assert_eq!(logged.unacknowledged()?, 0);
    // Another rank might begin a pending operation after the barrier.
    let (own, mut numbers) = ([1_u64], [0]);
    expect_contribution(&own);
    scope(|scope| {
        let request = part.immediate_scan_into(scope, &own, &mut numbers, SystemOperation::Sum)?;
        world.barrier()?;
        assert_eq!(logged.unacknowledged()?, 1);
        request.wait()?;
        world.barrier()?;
        assert_eq!(logged.unacknowledged()?, 0);
        Ok::<_, LoggedError>(())
    })?;
    world.barrier()
}

/// A grid with two rows, periodic along the rows only.
pub(crate) fn grids(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let size = world.size();
    let (dims, periods) = ([2, size / 2], [false, true]);
    let grid = world.create_cartesian_communicator(&dims, &periods, false)?.unwrap();
    let layout = grid.get_layout().clone();
    let [row, column] = layout.coords[..] else { panic!("{layout:?}") };
    assert_eq!((&layout.dims[..], &layout.periods[..], grid.num_dimensions()), (&dims[..], &periods[..], 2));
    assert_eq!(grid.rank(), row * dims[1] + column);
    assert_eq!(grid.rank_to_coordinates(grid.rank())?, layout.coords);
    // Twice around the ring.
    let around = column as i32 + 2 * dims[1] as i32;
    assert_eq!(grid.coordinates_to_rank(&[row as i32, around])?, grid.rank());
    assert!(matches!(
        grid.coordinates_to_rank(&[2, 0]),
        Err(LoggedError::NoSuchCoordinate { coordinate: 2, ranks: 2 })
    ));
    assert!(matches!(grid.coordinates_to_rank(&[-1, 0]), Err(LoggedError::NoSuchCoordinate { coordinate: -1, .. })));
    assert!(matches!(grid.coordinates_to_rank(&[0]), Err(LoggedError::Dimensions { given: 1, dims: 2 })));
    assert!(matches!(grid.rank_to_coordinates(size), Err(LoggedError::NoSuchRank { .. })));
    assert!(matches!(grid.shift(2, 1), Err(LoggedError::NoSuchDimension { dimension: 2, dims: 2 })));
    assert!(matches!(grid.subgroup(&[true]), Err(LoggedError::Dimensions { .. })));
    let up_and_down = if row == 0 { (None, Some(dims[1] + column)) } else { (Some(column), None) };
    assert_eq!(grid.shift(0, 1)?, up_and_down);
    let (left, right) = grid.shift(1, 1)?;
    let (left, right) = (grid.process_at_rank(left.unwrap())?, grid.process_at_rank(right.unwrap())?);
    let (number, _) = send_receive_with_tags::<u64, _>(&value(grid.rank(), 3), &right, 72, &left, 72)?;
    assert_eq!(number, value(left.rank(), 3));
    let ring = grid.subgroup(&[false, true])?.unwrap();
    assert_eq!((ring.size(), ring.rank(), ring.num_dimensions()), (dims[1], column, 1));
    assert_eq!((ring.get_layout().periods[0], sum(&ring, row)?), (true, row * dims[1]));
    // A grid without a place for the last rank.
    let smaller = world.create_cartesian_communicator(&[size - 1], &[false], false)?;
    assert_eq!(smaller.is_none(), world.rank() == size - 1);
    assert_eq!(world.cartesian_map(&[size - 1], &[false])?.is_none(), world.rank() == size - 1);
    assert!(matches!(world.cartesian_map(&[1], &[]), Err(LoggedError::Dimensions { given: 0, dims: 1 })));
    world.barrier()
}
