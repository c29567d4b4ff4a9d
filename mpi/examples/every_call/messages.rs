//! Point-to-point messages.

use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Request, Source,
    send_receive, send_receive_into, send_receive_into_with_tags, send_receive_replace_into,
    send_receive_replace_into_with_tags, send_receive_with_tags,
};
use counterfoil_mpi::{BUFFER_OVERHEAD, MpiError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::expected::{Determinant, expect_determinants};
use crate::{is_class, neighbours, value, values};

/// A struct to send, as in an application.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    at: [f64; 3],
    of: u64,
}

/// Messages around a ring, by each kind of call.
pub(crate) fn ring(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let before = from.rank();
    let mut got = vec![0; 1000];
    expect_determinants(Determinant::Receive, 2);
    let envelope = send_receive_into(values(rank, 1000).as_slice(), &to, got.as_mut_slice(), &from)?;
    assert_eq!((got, envelope.source, envelope.tag, envelope.len), (values(before, 1000), before, 0, 8000));
    // Requests on one stream, waited for in reverse order.
    let receives: Vec<_> = (0..8).map(|_| from.immediate_receive_with_tag::<u64>(4, 5)).collect::<Result<_, _>>()?;
    let sends: Vec<_> =
        (0..8).map(|i| to.immediate_send_with_tag(&[value(rank, i); 3], 5)).collect::<Result<_, _>>()?;
    for (i, receive) in receives.into_iter().enumerate().rev() {
        let (numbers, envelope) = receive.wait()?;
        assert_eq!((numbers, envelope.tag), (vec![value(before, i); 3], 5));
    }
    for mut send in sends {
        while let Err(pending) = send.test()? {
            send = pending;
        }
    }
    let receive = comm.any_process().immediate_receive::<Particle>(1)?;
    to.send(&Particle { at: [0.5, 1.5, rank.into()], of: rank.into() })?;
    while !receive.is_ready()? {}
    assert_eq!(receive.wait()?.0, [Particle { at: [0.5, 1.5, before.into()], of: before.into() }]);
    // A dropped receive takes no message.
    drop(from.immediate_receive_with_tag::<u64>(1, 99)?);
    let me = comm.this_process();
    me.send_with_tag(&[1_u8, 2, 3], 7)?;
    assert_eq!(me.receive_vec_with_tag::<u8>(7)?.0, [1, 2, 3]);
    comm.barrier()
}

/// Bytes of a message in need of a buffer.
const LONG: usize = 1 << 20;

/// Without an attached buffer, nothing is sent and nothing is logged.
pub(crate) fn full_buffers(comm: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    // In Open MPI, short messages need no buffer, and after a rejected message no other one reaches that rank, so a
    // separate communicator is used here.
    let (before, long, apart) = (logged.account(), vec![1_u8; LONG], comm.duplicate()?);
    let nowhere = neighbours(&apart)?.0;
    assert!(is_class(nowhere.buffered_send(&long[..]), "MPI_ERR_BUFFER"));
    assert!(is_class(nowhere.immediate_buffered_send(&long[..]), "MPI_ERR_BUFFER"));
    assert_eq!((logged.buffer_size(), logged.account()), (0, before));
    logged.set_buffer_size(LONG)?;
    logged.detach_buffer()?;
    assert!(is_class(nowhere.buffered_send(&long[..]), "MPI_ERR_BUFFER"));
    comm.barrier()
}

/// Synchronous sends.
pub(crate) fn synchronous(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    if rank % 2 == 0 {
        to.synchronous_send_with_tag(&7_u32, 6)?;
        assert_eq!(from.receive_with_tag::<u32>(6)?.0, 7);
    } else {
        assert_eq!(from.receive_with_tag::<u32>(6)?.0, 7);
        to.synchronous_send_with_tag(&7_u32, 6)?;
    }
    let receives: Vec<_> =
        [0, 41].into_iter().map(|tag| from.immediate_receive_with_tag::<u64>(1, tag)).collect::<Result<_, _>>()?;
    to.synchronous_send(&value(rank, 4))?;
    to.synchronous_send_with_tag(&value(rank, 5), 41)?;
    for (receive, place) in receives.into_iter().zip(4..) {
        assert_eq!(receive.wait()?.0, [value(from.rank(), place)]);
    }
    let mut later = vec![to.immediate_synchronous_send(&value(rank, 6))?];
    later.push(to.immediate_synchronous_send_with_tag(&value(rank, 7), 41)?);
    comm.barrier()?;
    // Their receives have not started.
    assert!(!later[0].is_ready()? && !later[1].is_ready()?);
    comm.barrier()?;
    assert_eq!(from.receive_with_tag::<u64>(0)?.0, value(from.rank(), 6));
    assert_eq!(from.receive_with_tag::<u64>(41)?.0, value(from.rank(), 7));
    later.into_iter().try_for_each(Request::wait)?;
    // A dropped send continues.
    drop(to.immediate_synchronous_send(&value(rank, 8))?);
    comm.barrier()?;
    assert_eq!(from.receive_with_tag::<u64>(0)?.0, value(from.rank(), 8));
    comm.barrier()
}

/// Standard, buffered and ready mode, blocking and immediate, with and without a tag.
pub(crate) fn modes(comm: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let long = vec![1_u8; LONG];
    // Room for two messages.
    logged.set_buffer_size(2 * (8 + BUFFER_OVERHEAD))?;
    to.buffered_send(&value(rank, 0))?;
    to.buffered_send_with_tag(&value(rank, 1), 40)?;
    assert_eq!(from.receive_with_tag::<u64>(0)?.0, value(from.rank(), 0));
    assert_eq!(from.receive_with_tag::<u64>(40)?.0, value(from.rank(), 1));
    // This drains the old buffer.
    logged.set_buffer_size(4 * (8 + BUFFER_OVERHEAD))?;
    assert_eq!(logged.buffer_size(), 4 * (8 + BUFFER_OVERHEAD));
    to.immediate_buffered_send(&value(rank, 2))?.wait()?;
    to.immediate_buffered_send_with_tag(&value(rank, 3), 40)?.wait()?;
    assert_eq!(from.receive_with_tag::<u64>(0)?.0, value(from.rank(), 2));
    assert_eq!(from.receive_with_tag::<u64>(40)?.0, value(from.rank(), 3));
    // A long message: its send returns before its receive has started.
    logged.set_buffer_size(long.len() + BUFFER_OVERHEAD)?;
    to.buffered_send_with_tag(&long[..], 40)?;
    comm.barrier()?;
    assert_eq!(from.receive_vec_with_tag::<u8>(40)?.0, long);
    logged.detach_buffer()?;
    let tags = [0, 42, 0, 42];
    let receives: Vec<_> =
        tags.into_iter().map(|tag| from.immediate_receive_with_tag::<u64>(1, tag)).collect::<Result<_, _>>()?;
    comm.barrier()?;
    // SAFETY: all ranks have posted the four receives before the barrier.
    unsafe {
        to.ready_send(&value(rank, 8))?;
        to.ready_send_with_tag(&value(rank, 9), 42)?;
        to.immediate_ready_send(&value(rank, 10))?.wait()?;
        to.immediate_ready_send_with_tag(&value(rank, 11), 42)?.wait()?;
    }
    for (receive, place) in receives.into_iter().zip(8..) {
        assert_eq!(receive.wait()?.0, [value(from.rank(), place)]);
    }
    comm.barrier()
}

/// Combined sends and receives around a ring.
pub(crate) fn exchanges(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let before = from.rank();
    expect_determinants(Determinant::Receive, 4);
    assert_eq!(send_receive::<u64, _>(&value(rank, 0), &to, &from)?.0, value(before, 0));
    let (number, envelope) = send_receive_with_tags::<u64, _>(&value(rank, 1), &to, 43, &from, 43)?;
    assert_eq!((number, envelope.tag, envelope.source), (value(before, 1), 43, before));
    let mut numbers = [7; 4];
    let envelope = send_receive_into_with_tags(&values(rank, 3)[..], &to, 44, &mut numbers, &comm.any_process(), None)?;
    assert_eq!((envelope.len, envelope.tag, numbers[3]), (24, 44, 7));
    assert_eq!(numbers[..3], values(before, 3));
    assert_eq!(send_receive_into(&values(rank, 4)[..], &to, &mut numbers, &from)?.len, 32);
    send_receive_replace_into(&mut numbers, &to, &from)?;
    // Twice around.
    let two_before = (rank + 2 * comm.size() - 2) % comm.size();
    assert_eq!(numbers[..], values(two_before, 4));
    send_receive_replace_into_with_tags(&mut numbers, &to, 45, &from, 45)?;
    let three_before = (rank + 3 * comm.size() - 3) % comm.size();
    assert_eq!(numbers[..], values(three_before, 4));
    // A truncated message counts as received, as does the neighbour's.
    let mut small = [0_u8; 4];
    let result = send_receive_into_with_tags(&[1_u8; 5], &to, 46, &mut small, &from, 46);
    assert!(is_class(result, "MPI_ERR_TRUNCATE"));
    comm.barrier()
}

pub(crate) fn probes(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    to.send_with_tag(&values(rank, 3)[..], 8)?;
    let envelope = from.probe_with_tag(8)?;
    assert_eq!((envelope.tag, envelope.len), (8, 24));
    expect_determinants(Determinant::Probe, 1);
    expect_determinants(Determinant::Receive, 1);
    while comm.any_process().immediate_probe()?.is_none() {}
    let mut got = [9; 5];
    assert_eq!(from.receive_into(&mut got)?.len, 24);
    assert_eq!(got[..], [&values(from.rank(), 3)[..], &[9, 9]].concat());
    for i in 0..3_u16 {
        to.send_with_tag(&i, 9)?;
    }
    let messages: Vec<_> = (0..3).map(|_| from.matched_probe_with_tag(9)).collect::<Result<_, _>>()?;
    for (i, message) in messages.into_iter().enumerate().rev() {
        assert_eq!(message.envelope().len, 2);
        assert_eq!(message.matched_receive_vec::<u16>()?.0, [i as u16]);
    }
    comm.barrier()
}

/// Receives and probes with a wildcard tag.
pub(crate) fn any_tag(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    assert_eq!(from.immediate_probe_with_tag(48)?, None);
    comm.barrier()?;
    to.immediate_send(&value(rank, 0))?.wait()?;
    to.send_with_tag(&values(rank, 2)[..], 48)?;
    expect_determinants(Determinant::Probe, 2);
    expect_determinants(Determinant::Receive, 1);
    assert_eq!(from.probe()?.tag, 0);
    assert_eq!(from.receive::<u64>()?.0, value(from.rank(), 0));
    while from.immediate_probe_with_tag(48)?.is_none() {}
    assert_eq!(from.receive_vec::<u64>()?.0, values(from.rank(), 2));
    comm.barrier()
}

/// Matched probes.
pub(crate) fn matched(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    assert!(from.immediate_matched_probe_with_tag(47)?.is_none());
    comm.barrier()?;
    for i in 0..6 {
        to.send_with_tag(&value(rank, i), 47)?;
    }
    expect_determinants(Determinant::Probe, 2);
    let expected = |place| value(from.rank(), place);
    assert_eq!(from.matched_probe()?.matched_receive::<u64>()?.0, expected(0));
    let second = loop {
        if let Some(message) = comm.any_process().immediate_matched_probe()? {
            break message;
        }
    };
    let third = from.matched_probe_with_tag(47)?;
    let mut numbers = [3; 2];
    assert_eq!(third.matched_receive_into(&mut numbers)?.len, 8);
    assert_eq!((numbers, second.envelope().tag), ([expected(2), 3], 47));
    assert_eq!(second.matched_receive_vec::<u64>()?.0, [expected(1)]);
    // Dropping a matched message receives it, and loses it.
    drop(from.matched_probe_with_tag(47)?);
    let message = from.matched_probe_with_tag(47)?;
    assert!(is_class(message.matched_receive::<u32>(), "MPI_ERR_TRUNCATE"));
    let message = from.matched_probe_with_tag(47)?;
    assert!(matches!(message.matched_receive::<[u64; 2]>(), Err(LoggedError::Elements { len: 8, element: 16, .. })));
    comm.barrier()
}

/// Rank 0 receives from any source.
pub(crate) fn any_source(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    if comm.rank() > 0 {
        for i in 0..50 {
            comm.process_at_rank(0)?.send_with_tag(&value(comm.rank(), i), 11)?;
        }
    } else {
        let mut counts = vec![0; comm.size() as usize];
        expect_determinants(Determinant::Receive, 50 * (comm.size() as usize - 1));
        for _ in 0..50 * (comm.size() - 1) {
            let (number, envelope) = comm.any_process().receive_with_tag::<u64>(11)?;
            let count = &mut counts[envelope.source as usize];
            assert_eq!(number, value(envelope.source, *count));
            *count += 1;
        }
        assert!(counts[1..].iter().all(|count| *count == 50));
    }
    comm.barrier()
}

pub(crate) fn negative_tag(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    assert!(matches!(comm.this_process().send_with_tag(&1, -5), Err(LoggedError::Mpi(_))));
    Ok(())
}

pub(crate) fn invalid_calls(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let size = comm.size();
    assert!(matches!(comm.process_at_rank(size), Err(LoggedError::NoSuchRank { .. })));
    let (to, from) = neighbours(comm)?;
    // Too long, for a blocking and an immediate receive; not a whole number of elements; too short.
    for tag in 12..16 {
        to.send_with_tag(&[1_u8; 12], tag)?;
    }
    assert!(is_class(from.receive_with_tag::<u64>(12), "MPI_ERR_TRUNCATE"));
    assert!(is_class(from.immediate_receive_with_tag::<u64>(1, 13)?.wait(), "MPI_ERR_TRUNCATE"));
    assert!(matches!(from.receive_vec_with_tag::<u64>(14), Err(LoggedError::Elements { len: 12, element: 8, .. })));
    assert!(matches!(from.receive_with_tag::<[u64; 2]>(15), Err(LoggedError::Elements { len: 12, element: 16, .. })));
    let mut wrong = [0_u8; 3];
    let result = comm.all_gather_into(&[1_u8, 2], &mut wrong);
    assert!(matches!(result, Err(LoggedError::Mpi(MpiError::Length { len: 3, .. }))));
    comm.barrier()
}

/// While a stream's first receive is pending, none of its later messages is acknowledged.
pub(crate) fn pending_wildcard_receive(comm: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    const MANY: u32 = 640;
    let (to, from) = neighbours(comm)?;
    expect_determinants(Determinant::Receive, 1);
    let first = comm.any_process().immediate_receive_with_tag::<u32>(1, 30)?;
    for i in 0..=MANY {
        to.send_with_tag(&i, 30)?;
    }
    for i in 1..=MANY {
        assert_eq!(from.receive_with_tag::<u32>(30)?.0, i);
    }
    comm.barrier()?;
    let before = logged.unacknowledged()?;
    assert!(before > u64::from(MANY), "{before} records are not acknowledged");
    comm.barrier()?;
    assert_eq!(first.wait()?.0, [0]);
    while logged.unacknowledged()? > before - u64::from(MANY) / 2 {}
    comm.barrier()
}

/// Far more messages than the log has room for.
pub(crate) fn more_than_the_log_holds(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, (to, from)) = (comm.rank(), neighbours(comm)?);
    let mut got = [0_u64; 128];
    for i in 0..20_000 {
        to.send_with_tag(&[value(rank, i); 128], 20)?;
        from.receive_into_with_tag(&mut got, 20)?;
        assert_eq!(got, [value(from.rank(), i); 128]);
    }
    comm.barrier()
}
