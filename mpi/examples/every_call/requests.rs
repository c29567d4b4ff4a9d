//! Message requests, one by one and in collections.

use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, LoggedCommunicator, LoggedError, Request, RequestCollection, Source,
    WaitGuard, multiple_scope, scope, wait_any,
};

use crate::expected::{Determinant, expect_determinants};
use crate::{is_class, is_of_class, neighbours, value, values};

/// Receives into borrowed memory; some are not waited for.
pub(crate) fn scopes(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let before = from.rank();
    let (mut numbers, mut one, mut matched) = ([7; 4], 0, [7; 2]);
    expect_determinants(Determinant::Receive, 1);
    scope(|scope| {
        let first = from.immediate_receive_into(scope, &mut numbers)?;
        let second = from.immediate_receive_into_with_tag(scope, &mut one, 50)?;
        to.send_with_tag(&values(rank, 3)[..], 51)?;
        drop(WaitGuard::from(to.immediate_send_with_tag(&value(rank, 5), 50)?));
        to.send_with_tag(&value(rank, 6), 52)?;
        assert_eq!(*second.wait()?.0, value(before, 5));
        let (numbers, envelope) = first.wait()?;
        assert_eq!((envelope.tag, envelope.len, envelope.source), (51, 24, before));
        numbers[3] = 8;
        let message = from.matched_probe_with_tag(52)?;
        let (matched, envelope) = message.immediate_matched_receive_into(scope, &mut matched)?.wait()?;
        assert_eq!((*matched, envelope.len), ([value(before, 6), 7], 8));
        Ok::<_, LoggedError>(())
    })?;
    assert_eq!(numbers[..], [&values(before, 3)[..], &[8]].concat());
    // These messages are never sent: one request is dropped, the other leaves the scope.
    let (mut dropped, mut left) = ([1_u64], [3_u64]);
    let request = scope(|scope| {
        drop(from.immediate_receive_into_with_tag(scope, &mut dropped, 53)?);
        from.immediate_receive_into_with_tag(scope, &mut left, 55)
    })?;
    assert!(matches!(request.wait(), Err(LoggedError::Cancelled)));
    assert_eq!((dropped, left), ([1], [3]));
    // A dropped receive leaves its message to a later one, in the same scope too.
    let mut dropped = 1_u64;
    scope(|scope| {
        drop(from.immediate_receive_into_with_tag(scope, &mut dropped, 59)?);
        comm.barrier()?;
        to.send_with_tag(&value(rank, 7), 59)?;
        assert_eq!(from.receive_with_tag::<u64>(59)?.0, value(before, 7));
        Ok::<_, LoggedError>(())
    })?;
    assert_eq!(dropped, 1);
    // A truncated message is an error of the wait, not of the scope.
    let mut small = 0_u8;
    scope(|scope| {
        let request = from.immediate_receive_into_with_tag(scope, &mut small, 56)?;
        to.send_with_tag(&[1_u8; 9], 56)?;
        assert!(is_class(request.wait(), "MPI_ERR_TRUNCATE"));
        Ok::<_, LoggedError>(())
    })?;
    comm.barrier()
}

/// Leaked receives: the scope cancels them before their memory is reused.
pub(crate) fn leaked(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let mut numbers = [7_u64; 2];
    scope(|scope| from.immediate_receive_into_with_tag(scope, &mut numbers, 54).map(std::mem::forget))?;
    std::mem::forget(from.immediate_receive_with_tag::<u64>(1, 55)?);
    comm.barrier()?;
    to.send_with_tag(&value(rank, 1), 54)?;
    to.send_with_tag(&value(rank, 2), 55)?;
    // The leaked receive was cancelled, so another receive takes the message.
    assert_eq!(from.receive_with_tag::<u64>(54)?.0, value(from.rank(), 1));
    comm.barrier()?;
    assert_eq!(numbers, [7; 2]);
    comm.barrier()
}

/// Receives cancelled before and after their message has arrived.
pub(crate) fn cancelled(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let mut numbers = [0_u64; 2];
    assert!(from.immediate_receive_with_tag::<u64>(1, 58)?.cancel()?.is_none());
    let receives: Vec<_> = (0..2).map(|_| from.immediate_receive_with_tag::<u64>(1, 57)).collect::<Result<_, _>>()?;
    for place in 0..4 {
        to.send_with_tag(&value(rank, place), 57)?;
    }
    let [first, second]: [_; 2] = receives.try_into().unwrap();
    while !(first.is_ready()? && second.is_ready()?) {}
    assert_eq!(first.cancel()?.unwrap().0, [value(from.rank(), 0)]);
    // Its message had arrived and is lost; it counts as received.
    drop(second);
    scope(|scope| {
        let request = from.immediate_receive_into_with_tag(scope, &mut numbers, 57)?;
        while !request.is_ready()? {}
        let (numbers, envelope) = request.cancel()?.unwrap();
        assert_eq!((numbers[0], envelope.len), (value(from.rank(), 2), 8));
        Ok::<_, LoggedError>(())
    })?;
    assert_eq!(from.receive_with_tag::<u64>(57)?.0, value(from.rank(), 3));
    comm.barrier()
}

/// Requests in collections: from all ranks to rank 0, and around a ring.
pub(crate) fn collections(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    if comm.rank() == 0 {
        receive_from_all(comm)?
    } else {
        send_to_first(comm)?
    }
    comm.barrier()?;
    mixed(comm)?;
    failures(comm)?;
    comm.barrier()
}

const ROUNDS: usize = 5;

fn send_to_first(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let first = comm.process_at_rank(0)?;
    (0..ROUNDS).try_for_each(|round| {
        first.send_with_tag(&value(comm.rank(), round), 60)?;
        // Rank 0 ends the round.
        first.receive_with_tag::<u8>(61).map(drop)
    })
}

fn receive_from_all(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let others = comm.size() as usize - 1;
    for round in 0..ROUNDS {
        let receive = |rank: u32| comm.process_at_rank(rank)?.immediate_receive_with_tag::<u64>(1, 60);
        let receives: Vec<_> = (1..comm.size()).map(receive).collect::<Result<_, _>>()?;
        let mut got = Vec::new();
        if round == 0 {
            let mut receives = receives;
            // For the last request, MPI has no choice.
            expect_determinants(Determinant::Completion, others - 1);
            while let Some((_, (numbers, _))) = wait_any(&mut receives)? {
                got.extend(numbers);
            }
        } else {
            let mut requests = RequestCollection::with_capacity(others);
            for receive in receives {
                requests.add(receive.map(|(numbers, _)| numbers[0]));
            }
            expect_determinants(Determinant::Completion, others);
            let mut some = Vec::new();
            while requests.incomplete() > 0 {
                match round {
                    1 => some = vec![requests.wait_any()?.unwrap()],
                    2 => some = requests.test_any()?.into_iter().collect(),
                    3 => requests.wait_some(&mut some)?,
                    _ => requests.test_some(&mut some)?,
                }
                assert!(some.iter().all(|(index, number)| *number == value(*index as u32 + 1, round)));
                got.extend(some.iter().map(|(_, number)| *number));
            }
            assert!(requests.wait_any()?.is_none() && requests.test_any()?.is_none());
            requests.wait_some(&mut some)?;
            assert!(some.is_empty());
        }
        got.sort_unstable();
        assert!(got.into_iter().eq((1..comm.size()).map(|rank| value(rank, round))));
        (1..comm.size()).try_for_each(|rank| comm.process_at_rank(rank)?.send_with_tag(&0_u8, 61))?;
    }
    Ok(())
}

/// Sends and receives in one collection.
fn mixed(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let mut numbers = [0; 2];
    let (first, second) = numbers.split_at_mut(1);
    multiple_scope(4, |scope, requests| {
        let mut ended = Vec::new();
        requests.add(from.immediate_receive_into_with_tag(scope, first, 62)?.map(|(numbers, _)| Some(numbers[0])));
        requests.add(from.immediate_receive_with_tag(1, 63)?.map(|(numbers, _)| Some(numbers[0])));
        assert!(!requests.test_all(&mut ended)? && ended.is_empty() && requests.incomplete() == 2);
        comm.barrier()?;
        requests.add(to.immediate_send_with_tag(&value(rank, 1), 63)?.map(|()| None));
        requests.add(to.immediate_send_with_tag(&value(rank, 0), 62)?.map(|()| None));
        requests.wait_all(&mut ended)?;
        let expected = [Some(value(from.rank(), 0)), Some(value(from.rank(), 1)), None, None];
        assert!(ended.into_iter().eq(expected.into_iter().enumerate()));
        requests.add(from.immediate_receive_into_with_tag(scope, second, 64)?.map(|(numbers, _)| Some(numbers[0])));
        to.send_with_tag(&value(rank, 2), 64)?;
        let mut ended = Vec::new();
        while !requests.test_all(&mut ended)? {}
        assert_eq!((ended, requests.incomplete()), (vec![(4, Some(value(from.rank(), 2)))], 0));
        Ok::<_, LoggedError>(())
    })?;
    assert_eq!(numbers, [value(from.rank(), 0), value(from.rank(), 2)]);
    Ok(())
}

/// Returns 1 if the message for the request with this index was truncated, and 0 for a success.
///
/// # Errors
/// Any other failure. After the end of the job every call fails at once, and a continued loop would never end.
fn count_truncated<T>(result: Result<T, LoggedError>, expected: usize) -> Result<usize, LoggedError> {
    match result {
        Ok(_) => Ok(0),
        Err(LoggedError::Request { index, error }) if index == expected && is_of_class(&error, "MPI_ERR_TRUNCATE") => {
            Ok(1)
        }
        Err(error) => Err(error),
    }
}

/// One of several messages is truncated, and the others are received.
fn failures(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    for round in 0..4 {
        let mut requests = RequestCollection::default();
        for tag in 65..68 {
            requests.add(from.immediate_receive_with_tag::<u64>(1, tag)?.map(|(numbers, _)| numbers[0]));
        }
        to.send_with_tag(&value(rank, 0), 65)?;
        to.send_with_tag(&[0_u64; 2], 66)?;
        to.send_with_tag(&value(rank, 2), 67)?;
        let (mut ended, mut some, mut failed) = (Vec::new(), Vec::new(), 0);
        match round {
            0 => {
                failed += count_truncated(requests.wait_all(&mut some), 1)?;
                ended.append(&mut some);
            }
            1 => loop {
                match requests.test_all(&mut some) {
                    Ok(false) => continue,
                    result => failed += count_truncated(result, 1)?,
                }
                ended.append(&mut some);
                break;
            },
            2 => {
                expect_determinants(Determinant::Completion, 3);
                while requests.incomplete() > 0 {
                    if let Err(error) = requests.wait_some(&mut some) {
                        failed += count_truncated::<()>(Err(error), 1)?;
                    }
                    ended.append(&mut some);
                }
            }
            _ => {
                expect_determinants(Determinant::Completion, 3);
                while requests.incomplete() > 0 {
                    match requests.wait_any() {
                        Ok(one) => ended.extend(one),
                        result => failed += count_truncated(result, 1)?,
                    }
                }
            }
        }
        ended.sort_unstable();
        assert_eq!((ended, failed), (vec![(0, value(from.rank(), 0)), (2, value(from.rank(), 2))], 1), "{round}");
        assert_eq!(requests.incomplete(), 0);
    }
    Ok(())
}
