//! Every call of a `LoggedCommunicator`, with values checked. Run by the tests:
//!
//! ```sh
//! mpirun -n 4 every_call all DIR      # everything is kept, in DIR
//! mpirun -n 4 every_call acked        # what is acknowledged is forgotten
//! ```
#![expect(clippy::unwrap_used, reason = "a test's functions may")]
#![expect(clippy::print_stdout)]

use counterfoil::{Keep, StoreOptions, Tier};
use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Root, Source,
    send_receive_into,
};
use counterfoil_mpi::{MpiError, SystemOperation, Threads, Universe};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What an application sends that isn't a number.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    at: [f64; 3],
    of: u64,
}

fn value(from: u32, place: usize) -> u64 {
    u64::from(from) * 1_000_000 + place as u64
}

fn values(from: u32, count: usize) -> Vec<u64> {
    (0..count).map(|place| value(from, place)).collect()
}

fn is_truncation<T>(result: Result<T, LoggedError>) -> bool {
    matches!(result, Err(LoggedError::Mpi(MpiError::Call { text, .. })) if text.contains("TRUNCATE"))
}

/// One message around a communicator, in each way.
fn around(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let (to, from) = (comm.process_at_rank(next)?, comm.process_at_rank(before)?);
    let mut got = vec![0; 1000];
    let envelope = send_receive_into(values(rank, 1000).as_slice(), &to, got.as_mut_slice(), &from)?;
    assert_eq!((got, envelope.source, envelope.tag, envelope.len), (values(before, 1000), before, 0, 8000));
    // Of one stream, waited for backwards.
    let receives: Vec<_> = (0..8).map(|_| from.immediate_receive_with_tag::<u64>(4, 5)).collect::<Result<_, _>>()?;
    let sends: Vec<_> =
        (0..8).map(|i| to.immediate_send_with_tag(&[value(rank, i); 3], 5)).collect::<Result<_, _>>()?;
    for (i, receive) in receives.into_iter().enumerate().rev() {
        let (numbers, envelope) = receive.wait()?;
        assert_eq!((numbers, envelope.tag), (vec![value(before, i); 3], 5));
    }
    for mut send in sends {
        send.test()?;
        send.wait()?;
    }
    let receive = comm.any_process().immediate_receive::<Particle>(1)?;
    to.send(&Particle { at: [0.5, 1.5, rank.into()], of: rank.into() })?;
    while !receive.is_ready()? {}
    assert_eq!(receive.wait()?.0, [Particle { at: [0.5, 1.5, before.into()], of: before.into() }]);
    // One that is given up takes nothing.
    drop(from.immediate_receive_with_tag::<u64>(1, 99)?);
    if rank % 2 == 0 {
        to.synchronous_send_with_tag(&7_u32, 6)?;
        assert_eq!(from.receive_with_tag::<u32>(6)?.0, 7);
    } else {
        assert_eq!(from.receive_with_tag::<u32>(6)?.0, 7);
        to.synchronous_send_with_tag(&7_u32, 6)?;
    }
    let me = comm.this_process();
    me.send_with_tag(&[1_u8, 2, 3], 7)?;
    assert_eq!(me.receive_vec_with_tag::<u8>(7)?.0, [1, 2, 3]);
    comm.barrier()
}

fn probes(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (to, from) = (comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?);
    to.send_with_tag(&values(rank, 3)[..], 8)?;
    let envelope = from.probe_with_tag(8)?;
    assert_eq!((envelope.tag, envelope.len), (8, 24));
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
        assert_eq!(message.matched_receive_vec::<u16>()?, [i as u16]);
    }
    comm.barrier()
}

/// All send to rank 0, which receives from anybody.
fn from_anybody(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    if comm.rank() > 0 {
        for i in 0..50 {
            comm.process_at_rank(0)?.send_with_tag(&value(comm.rank(), i), 11)?;
        }
    } else {
        let mut counts = vec![0; comm.size() as usize];
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

fn mistakes(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    assert!(matches!(comm.process_at_rank(size), Err(LoggedError::NoSuchRank { .. })));
    assert!(matches!(comm.this_process().send_with_tag(&1, -5), Err(LoggedError::Mpi(_))));
    let (to, from) = (comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?);
    // Too long, for a blocking receive and for a request; not a whole number; too short.
    for tag in 12..16 {
        to.send_with_tag(&[1_u8; 12], tag)?;
    }
    assert!(is_truncation(from.receive_with_tag::<u64>(12)));
    assert!(is_truncation(from.immediate_receive_with_tag::<u64>(1, 13)?.wait()));
    assert!(matches!(from.receive_vec_with_tag::<u64>(14), Err(LoggedError::Elements { len: 12, element: 8, .. })));
    assert!(matches!(from.receive_with_tag::<[u64; 2]>(15), Err(LoggedError::Elements { len: 12, element: 16, .. })));
    let mut wrong = [0_u8; 3];
    let result = comm.all_gather_into(&[1_u8, 2], &mut wrong);
    assert!(matches!(result, Err(LoggedError::Mpi(MpiError::Length { len: 3, .. }))));
    comm.barrier()
}

fn together(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let ranks: Vec<u32> = (0..size).collect();
    let count = size as usize;
    for root in 0..size {
        let process = comm.process_at_rank(root)?;
        let mut numbers = if rank == root { values(root, 10) } else { vec![0; 10] };
        process.broadcast_into(numbers.as_mut_slice())?;
        assert_eq!(numbers, values(root, 10));
        let mut mine = 0_u32;
        if rank == root {
            let mut all = vec![0_u32; count];
            process.gather_into_root(&rank, all.as_mut_slice())?;
            assert_eq!(all, ranks);
            process.scatter_into_root(all.as_slice(), &mut mine)?;
            let mut sum = [0_i64];
            process.reduce_into_root(&[i64::from(rank)], &mut sum, SystemOperation::Sum)?;
            assert_eq!(sum[0], ranks.iter().map(|rank| i64::from(*rank)).sum::<i64>());
        } else {
            process.gather_into(&rank)?;
            process.scatter_into(&mut mine)?;
            process.reduce_into(&[i64::from(rank)], SystemOperation::Sum)?;
        }
        assert_eq!(mine, rank);
    }
    let mut all = vec![0_u32; count];
    comm.all_gather_into(&rank, all.as_mut_slice())?;
    assert_eq!(all, ranks);
    let mut parts = vec![0_u64; count];
    let mine: Vec<u64> = (0..count).map(|to| value(rank, to)).collect();
    comm.all_to_all_into(mine.as_slice(), parts.as_mut_slice())?;
    assert_eq!(parts, ranks.iter().map(|from| value(*from, rank as usize)).collect::<Vec<_>>());
    let (mut greatest, mut up_to, mut below) = ([0.0_f32], [0_u8], [77_i16]);
    comm.all_reduce_into(&[rank as f32 + 0.5], &mut greatest, SystemOperation::Max)?;
    comm.scan_into(&[1_u8], &mut up_to, SystemOperation::Sum)?;
    comm.exclusive_scan_into(&[1_i16], &mut below, SystemOperation::Sum)?;
    let expected = if rank == 0 { 77 } else { rank as i16 };
    assert_eq!((greatest, up_to, below), ([size as f32 - 0.5], [rank as u8 + 1], [expected]));
    // Operations of which nobody knows who has come how far.
    for i in 0..200_u32 {
        let mut number = if rank == 1 { i } else { 0 };
        comm.process_at_rank(1)?.broadcast_into(&mut number)?;
        assert_eq!(number, i);
    }
    Ok(())
}

/// The first of many receives of a stream is open: nothing behind it is acknowledged before.
fn behind_an_open_receive(comm: &LoggedCommunicator, logged: &LoggedUniverse) -> Result<(), LoggedError> {
    const MANY: u32 = 640;
    let (rank, size) = (comm.rank(), comm.size());
    let (to, from) = (comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?);
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

/// Far more than the log has room for.
fn many(comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (to, from) = (comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?);
    let mut got = [0_u64; 128];
    for i in 0..20_000 {
        to.send_with_tag(&[value(rank, i); 128], 20)?;
        from.receive_into_with_tag(&mut got, 20)?;
        assert_eq!(got, [value(from.rank(), i); 128]);
    }
    comm.barrier()
}

fn main() -> Result<(), LoggedError> {
    let arguments: Vec<String> = std::env::args().collect();
    let universe = Universe::init(Threads::Single)?;
    let logged = LoggedUniverse::init(universe, |options| {
        options.memory_bytes_max = 8 << 20;
        if arguments[1] == "all" {
            options.keep = Keep::All;
            options.tier = Tier::NodeLocal;
            options.store = Some(StoreOptions::new(&arguments[2]));
        }
    })?;
    let world = logged.world();
    around(&world)?;
    probes(&world)?;
    from_anybody(&world)?;
    mistakes(&world)?;
    together(&world)?;
    let copy = world.duplicate()?;
    around(&copy)?;
    let half = copy.split_by_color_with_key(Some(world.rank() % 2), -(world.rank() as i32))?.unwrap();
    assert_eq!(half.size(), world.size() / 2);
    around(&half)?;
    together(&half)?;
    assert!(world.split_by_color(if world.rank() == 0 { None } else { Some(0) })?.is_none() == (world.rank() == 0));
    behind_an_open_receive(&world, &logged)?;
    many(&world)?;
    let unacknowledged = logged.unacknowledged()?;
    assert!(unacknowledged < 1000, "{unacknowledged} records are not acknowledged");
    let account = logged.finish()?;
    assert!(matches!(world.this_process().send(&0_u8), Err(LoggedError::Finished)));
    println!(
        "rank {} {} {} {} {}",
        world.rank(),
        account.messages_logged,
        account.bytes_logged,
        account.contributions,
        account.determinants
    );
    Ok(())
}
