//! Programs sending more than a small log holds, in cases (the first argument) without unasked acknowledgements.
//!
//! The tests run it:
//!
//! ```sh
//! mpirun -n 4 full_log world 1024     # a log of 1 MiB
//! ```
//!
//! Each message has 200 KiB. Every received value is checked.
#![expect(clippy::unwrap_used, reason = "a test's functions may")]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod account;

use std::rc::Rc;
use std::time::{Duration, Instant};

use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Request, RequestCollection,
    Root, Source, multiple_scope, scope, send_receive_into_with_tags,
};
use counterfoil_mpi::{SystemOperation, Threads, Universe};
use counterfoil_mpi_logger::SpaceError;

/// Numbers in a message.
const COUNT: usize = 50 << 10;
const TIMES: i32 = 40;

fn filled(with: i32) -> Vec<i32> {
    (0..COUNT as i32).map(|place| with.wrapping_mul(7919).wrapping_add(place)).collect()
}

fn holds(numbers: &[i32], with: i32) {
    assert!(numbers.len() <= COUNT && numbers == &filled(with)[..numbers.len()], "these are not the numbers of {with}");
}

/// Broadcasts from one rank.
fn broadcast(comm: &LoggedCommunicator, root: u32, times: i32) -> Result<(), LoggedError> {
    for i in 0..times {
        let mut numbers = if comm.rank() == root { filled(i) } else { vec![0; COUNT] };
        comm.process_at_rank(root)?.broadcast_into(&mut numbers[..])?;
        holds(&numbers, i);
    }
    Ok(())
}

/// Other operations with a root, and scans.
fn rooted(what: &str, comm: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (me, size, root) = (comm.rank() as i32, comm.size() as usize, comm.process_at_rank(0)?);
    for i in 0..TIMES {
        let (out, mut into) = (filled(i + me), vec![0; COUNT]);
        match what {
            "gather" if root.is_self() => {
                let mut all = vec![0; size * COUNT];
                root.gather_into_root(&out[..], &mut all[..])?;
                all.chunks(COUNT).zip(i..).for_each(|(part, with)| holds(part, with));
            }
            "gather" => root.gather_into(&out[..])?,
            "reduce" if root.is_self() => {
                root.reduce_into_root(&out, &mut into, SystemOperation::Max)?;
                holds(&into, i + size as i32 - 1);
            }
            "reduce" => root.reduce_into(&out, SystemOperation::Max)?,
            "scan" => {
                comm.scan_into(&out, &mut into, SystemOperation::Max)?;
                holds(&into, i + me);
            }
            "scatter" => {
                let part = &mut into[..COUNT / size];
                if root.is_self() {
                    let parts: Vec<i32> =
                        (i..).take(size).flat_map(|with| filled(with).into_iter().take(COUNT / size)).collect();
                    root.scatter_into_root(&parts[..], part)?;
                } else {
                    root.scatter_into(part)?;
                }
                holds(part, i + me);
            }
            what => panic!("there is no case {what}"),
        }
    }
    Ok(())
}

/// Immediate broadcasts, `at_once` of them concurrently.
fn immediate(comm: &LoggedCommunicator, at_once: i32) -> Result<(), LoggedError> {
    let root = comm.process_at_rank(0)?;
    for i in (0..TIMES).step_by(at_once as usize) {
        let begin = |i| if root.is_self() { filled(i) } else { vec![0; COUNT] };
        let mut numbers: Vec<_> = (i..i + at_once).map(begin).collect();
        multiple_scope(4, |scope, requests| {
            for numbers in &mut numbers {
                requests.add(root.immediate_broadcast_into(scope, &mut numbers[..])?);
            }
            requests.wait_all(&mut Vec::new())
        })?;
        numbers.iter().zip(i..).for_each(|(numbers, i)| holds(numbers, i));
    }
    Ok(())
}

/// Rows and columns of a square in turn, so that no rank's contributions are all on one communicator.
fn overlapping(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let row = world.split_by_color(Some(world.rank() / 2))?.unwrap();
    let column = world.split_by_color(Some(world.rank() % 2))?.unwrap();
    for i in 0..TIMES as u32 {
        broadcast(&row, i % 2, 1)?;
        broadcast(&column, i / 2 % 2, 1)?;
    }
    Ok(())
}

/// Communicators freed before any rank knows of their operations' end everywhere, followed by operations on another
/// one.
fn freed(half: &LoggedCommunicator) -> Result<(), LoggedError> {
    for _ in 0..4 {
        broadcast(&half.duplicate()?, 0, 4)?;
    }
    for i in 0..20 {
        let mut into = vec![0; COUNT];
        half.all_reduce_into(&filled(i + half.rank() as i32), &mut into, SystemOperation::Max)?;
        holds(&into, i + half.size() as i32 - 1);
    }
    Ok(())
}

/// Operations on separate communicators, none of them freed.
fn many(half: &LoggedCommunicator) -> Result<(), LoggedError> {
    let comms = (0..TIMES).map(|_| half.duplicate()).collect::<Result<Vec<_>, _>>()?;
    comms.iter().try_for_each(|comm| broadcast(comm, 0, 1))
}

fn send(comm: &LoggedCommunicator, rank: u32, with: i32) -> Result<(), LoggedError> {
    comm.process_at_rank(rank)?.send_with_tag(&filled(with)[..], with)
}

fn receive(comm: &LoggedCommunicator, rank: u32, with: i32) -> Result<(), LoggedError> {
    let mut into = vec![0; COUNT];
    comm.process_at_rank(rank)?.receive_into_with_tag(&mut into[..], with)?;
    holds(&into, with);
    Ok(())
}

/// Messages from one rank to each other one in turn, fewer than the receivers acknowledge unasked.
fn messages(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    for i in 0..TIMES {
        match world.rank() {
            0 => (1..world.size()).try_for_each(|rank| send(world, rank, i))?,
            _ => receive(world, 0, i)?,
        }
    }
    Ok(())
}

/// Rank 1 waits for rank 2, which waits for rank 0, which waits for rank 1's acknowledgements, while rank 1 is in a
/// receive, a synchronous send, an exchange or a probe.
fn cycle_of_three(what: &str, world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, mut into) = (world.rank(), vec![0; COUNT]);
    for i in 0..TIMES {
        match (what, rank) {
            (_, 0) => {
                send(world, 1, i)?;
                send(world, 2, i)?;
            }
            (_, 1 | 2) => receive(world, 0, i)?,
            _ => continue,
        }
        match (what, rank) {
            ("receives", 1) => receive(world, 2, i)?,
            ("receives", 2) => send(world, 1, i)?,
            ("sends", 1) => world.process_at_rank(2)?.synchronous_send_with_tag(&filled(i)[..], i)?,
            ("sends", 2) => receive(world, 1, i)?,
            ("exchanges", 1 | 2) => {
                let other = world.process_at_rank(3 - rank)?;
                send_receive_into_with_tags(&filled(i)[..], &other, i, &mut into[..], &other, i)?;
                holds(&into, i);
            }
            ("probes", 1) => {
                assert_eq!(world.process_at_rank(2)?.probe_with_tag(i)?.tag, i);
                receive(world, 2, i)?;
            }
            ("probes", 2) => send(world, 1, i)?,
            _ => {}
        }
    }
    Ok(())
}

/// Messages around a ring, from ranks sending before they receive.
fn ring(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (world.rank(), world.size());
    let next = world.process_at_rank((rank + 1) % size)?;
    for i in 0..TIMES {
        let sending = next.immediate_send_with_tag(&filled(i)[..], i)?;
        receive(world, (rank + size - 1) % size, i)?;
        sending.wait()?;
    }
    Ok(())
}

/// Messages from a rank to itself, and operations on a communicator with one rank.
fn to_self(own: &LoggedCommunicator) -> Result<(), LoggedError> {
    for i in 0..TIMES {
        let (numbers, this) = (filled(i), own.this_process());
        let mut into = vec![0; COUNT / 4];
        send_receive_into_with_tags(&numbers[..COUNT / 4], &this, 0, &mut into[..], &this, 0)?;
        holds(&into, i);
        broadcast(own, 0, 1)?;
    }
    Ok(())
}

/// Messages from a rank to itself before it receives any: no other rank can make room.
fn alone(world: &LoggedCommunicator, is_expected: fn(&LoggedError) -> bool) -> Result<(), LoggedError> {
    let (this, begun) = (world.this_process(), Instant::now());
    let mut sending = Vec::new();
    let refused = loop {
        match this.immediate_send_with_tag(&filled(0)[..], 0) {
            Ok(request) => sending.push(request),
            Err(refused) => break refused,
        }
    };
    assert!(is_expected(&refused), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{refused}");
    for _ in &sending {
        let mut into = vec![0; COUNT];
        this.receive_into_with_tag(&mut into[..], 0)?;
        holds(&into, 0);
    }
    sending.into_iter().try_for_each(Request::wait)?;
    // The log has room again.
    let sending = this.immediate_send_with_tag(&filled(1)[..], 1)?;
    receive(world, world.rank(), 1)?;
    sending.wait()
}

/// One rank computes, or probes for a message never sent, for longer than others wait before they test for a deadlock.
fn slow(what: &str, world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let until = Instant::now() + Duration::from_secs(14);
    while world.rank() == 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        if what == "polls" {
            assert_eq!(world.any_process().immediate_probe_with_tag(99)?, None);
        }
    }
    match world.rank() {
        0 => (0..8).try_for_each(|i| world.process_at_rank(1)?.immediate_send_with_tag(&filled(i)[..], i).map(drop)),
        1 => (0..8).try_for_each(|i| receive(world, 0, i)),
        _ => Ok(()),
    }
}

/// One rank is done and waits in `finish`, while rank 0 still has more messages for the others than its log holds.
fn done_early(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    broadcast(world, 0, 4)?;
    let last = world.rank() == world.size() - 1;
    let some = world.split_by_color((!last).then_some(0))?;
    let Some(some) = some else { return Ok(()) };
    std::thread::sleep(Duration::from_millis(300));
    broadcast(&some, 0, TIMES)
}

/// Rank 1 receives the first of several messages only after the last: if the log doesn't hold all of them, this is a
/// deadlock.
///
/// Rank 0 gets an error, and tells rank 1 the number of messages sent.
fn backwards(what: &str, world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let half = world.split_by_color(Some(world.rank() / 2))?.unwrap();
    // Every rank waits; the other half waits for rank 0.
    let mut sent = 8;
    let (first, second) = (world.process_at_rank(0)?, world.process_at_rank(1)?);
    if world.rank() > 1 {
        first.receive_with_tag::<i32>(9)?;
        return Ok(());
    }
    if what == "backwards" {
        let mut sending = RequestCollection::default();
        for i in 0..8 {
            match second.immediate_send_with_tag(&filled(i)[..], i) {
                _ if world.rank() == 1 => break,
                Ok(request) => {
                    sending.add(request);
                }
                Err(error) => {
                    expect_deadlock(&error);
                    sent = i;
                    break;
                }
            }
        }
        if world.rank() == 1 {
            sent = first.receive_with_tag::<i32>(8)?.0;
            (0..sent).try_for_each(|i| receive(world, 0, i))?;
        } else {
            // A log without room for a message still has room for a few bytes.
            second.send_with_tag(&sent, 8)?;
        }
        sending.wait_all(&mut Vec::new())?;
    } else {
        // Rank 1 begins as many operations as rank 0 has begun.
        let mut all: Vec<_> = (0..8).map(|i| if half.rank() == 0 { filled(i) } else { vec![0; COUNT] }).collect();
        if half.rank() == 1 {
            sent = first.receive_with_tag::<i32>(8)?.0;
        }
        scope(|scope| {
            let mut requests = RequestCollection::default();
            for (numbers, i) in all.iter_mut().zip(0..sent) {
                match half.process_at_rank(0)?.immediate_broadcast_into(scope, &mut numbers[..]) {
                    Ok(request) => {
                        requests.add(request);
                    }
                    Err(error) => {
                        expect_deadlock(&error);
                        sent = i;
                        break;
                    }
                }
            }
            if half.rank() == 0 {
                second.send_with_tag(&sent, 8)?;
            }
            requests.wait_all(&mut Vec::new())
        })?;
        all.iter().zip(0..sent).for_each(|(numbers, i)| holds(numbers, i));
    }
    assert!(sent < 8);
    if world.rank() == 0 {
        (2..world.size()).try_for_each(|rank| world.process_at_rank(rank)?.send_with_tag(&0, 9))?;
    }
    Ok(())
}

fn expect_deadlock(error: &LoggedError) {
    assert!(matches!(error, LoggedError::Space(SpaceError::Deadlock { .. })), "{error}");
    println!("{error}");
}

/// One rank has left with an error, and the others wait for room only it could make.
fn gone(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let last = world.size() - 1;
    if world.rank() < last {
        let mut sending = RequestCollection::default();
        let error = loop {
            match world.process_at_rank(last)?.immediate_send(&filled(0)[..512]) {
                Ok(request) => sending.add(request),
                Err(error) => break error,
            };
        };
        expect_deadlock(&error);
    }
    Ok(())
}

/// An operation larger than the log.
fn huge(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let mut numbers = vec![1; 8 * COUNT];
    if world.rank() == 0 {
        let refused = world.process_at_rank(0)?.broadcast_into(&mut numbers[..]).unwrap_err();
        assert!(matches!(refused, LoggedError::Append(_)), "{refused}");
        println!("{refused}");
    }
    Ok(())
}

fn main() -> Result<(), LoggedError> {
    let universe = Universe::init(Threads::Single)?;
    let comm = universe.world();
    run(universe).inspect_err(|error| {
        // Other ranks may wait for this one.
        eprintln!("{error}");
        comm.abort(1);
    })
}

fn run(universe: Rc<Universe>) -> Result<(), LoggedError> {
    let arguments: Vec<String> = std::env::args().collect();
    let (case, kib) = (arguments[1].as_str(), arguments[2].parse::<usize>().unwrap());
    let logged = LoggedUniverse::init(universe, |options| {
        options.memory_bytes_max = kib << 10;
    })?;
    let world = logged.world();
    let half = world.split_by_color(Some(u32::from(world.rank() < world.size() / 2)))?.unwrap();
    match case {
        "world" => broadcast(&world, 0, TIMES)?,
        "halves" => broadcast(&half, 0, TIMES)?,
        "dup" => broadcast(&half.duplicate()?, 0, TIMES)?,
        "overlapping" => overlapping(&world)?,
        "freed" => freed(&half)?,
        "many" => many(&half)?,
        "immediate" => immediate(&half, 1)?,
        "at-once" => immediate(&half, 4)?,
        "messages" => messages(&world)?,
        "receives" | "sends" | "exchanges" | "probes" => cycle_of_three(case, &world)?,
        "ring" => ring(&world)?,
        "itself" => to_self(&logged.self_comm())?,
        "alone" => alone(&world, |refused| matches!(refused, LoggedError::Space(SpaceError::Alone { .. })))?,
        "no-wait" => {
            logged.set_deadlock_after(Duration::ZERO);
            alone(&world, |refused| matches!(refused, LoggedError::Append(_)))?;
        }
        "sleeps" | "polls" => slow(case, &world)?,
        "done-early" => done_early(&world)?,
        "backwards" | "backwards-collective" => backwards(case, &world)?,
        "huge" => huge(&world)?,
        "gone" => {
            logged.set_deadlock_after(Duration::from_secs(3));
            return gone(&world);
        }
        what => rooted(what, &half)?,
    }
    drop(half);
    let account = logged.finish()?;
    account::print(world.rank(), account);
    Ok(())
}
