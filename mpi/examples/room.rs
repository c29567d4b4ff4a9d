//! More than a small log holds, in cases (the first argument) in which nobody says by itself that it is over. Run by the tests:
//!
//! ```sh
//! mpirun -n 4 room world 1024         # a log of 1 MiB
//! ```
//!
//! Each message has 200 KiB. Every value that arrives is looked at.
#![expect(clippy::unwrap_used, reason = "a test's functions may")]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod account;

use std::rc::Rc;
use std::time::{Duration, Instant};

use counterfoil::OnFull;
use counterfoil_mpi::logged::{
    CommunicatorCollectives, Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Request, RequestCollection,
    Root, Source, multiple_scope, scope, send_receive_into_with_tags,
};
use counterfoil_mpi::{SystemOperation, Threads, Universe};

/// Numbers of a message.
const COUNT: usize = 50 << 10;
const TIMES: i32 = 40;

fn filled(with: i32) -> Vec<i32> {
    (0..COUNT as i32).map(|place| with.wrapping_mul(7919).wrapping_add(place)).collect()
}

fn holds(numbers: &[i32], with: i32) {
    assert!(numbers.len() <= COUNT && numbers == &filled(with)[..numbers.len()], "not the numbers of {with}");
}

/// Something of one rank to all of a communicator.
fn broadcast(comm: &LoggedCommunicator, root: u32, times: i32) -> Result<(), LoggedError> {
    for i in 0..times {
        let mut numbers = if comm.rank() == root { filled(i) } else { vec![0; COUNT] };
        comm.process_at_rank(root)?.broadcast_into(&mut numbers[..])?;
        holds(&numbers, i);
    }
    Ok(())
}

/// What one rank gives to, or gets from, all of a communicator.
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

/// Operations that are begun, each waited for; or four at once.
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

/// Rows and columns of a square, in turn, so that nobody's contributions are all for one communicator.
fn overlapping(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let row = world.split_by_color(Some(world.rank() / 2))?.unwrap();
    let column = world.split_by_color(Some(world.rank() % 2))?.unwrap();
    for i in 0..TIMES as u32 {
        broadcast(&row, i % 2, 1)?;
        broadcast(&column, i / 2 % 2, 1)?;
    }
    Ok(())
}

/// A communicator that is given up with operations of which nobody knows that they are over, and what comes behind on another one.
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

/// A few operations, each on a communicator of its own that nobody gives up.
fn many(half: &LoggedCommunicator) -> Result<(), LoggedError> {
    let comms = (0..TIMES).map(|_| half.duplicate()).collect::<Result<Vec<_>, _>>()?;
    comms.iter().try_for_each(|comm| broadcast(comm, 0, 1))
}

/// A message, received or sent.
fn to(comm: &LoggedCommunicator, rank: u32, with: i32) -> Result<(), LoggedError> {
    comm.process_at_rank(rank)?.send_with_tag(&filled(with)[..], with)
}

fn from(comm: &LoggedCommunicator, rank: u32, with: i32) -> Result<(), LoggedError> {
    let mut into = vec![0; COUNT];
    comm.process_at_rank(rank)?.receive_into_with_tag(&mut into[..], with)?;
    holds(&into, with);
    Ok(())
}

/// Messages of one rank to each other one in turn, each below what is acknowledged without being asked for.
fn messages(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    for i in 0..TIMES {
        match world.rank() {
            0 => (1..world.size()).try_for_each(|rank| to(world, rank, i))?,
            _ => from(world, 0, i)?,
        }
    }
    Ok(())
}

/// Rank 1 waits for rank 2, which waits for rank 0, which waits for rank 1's acknowledgements: where rank 1 receives, sends so that the
/// receiver has to be there, exchanges messages, or looks for one.
fn third(what: &str, world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, mut into) = (world.rank(), vec![0; COUNT]);
    for i in 0..TIMES {
        match (what, rank) {
            (_, 0) => {
                to(world, 1, i)?;
                to(world, 2, i)?;
            }
            (_, 1 | 2) => from(world, 0, i)?,
            _ => continue,
        }
        match (what, rank) {
            ("receives", 1) => from(world, 2, i)?,
            ("receives", 2) => to(world, 1, i)?,
            ("sends", 1) => world.process_at_rank(2)?.synchronous_send_with_tag(&filled(i)[..], i)?,
            ("sends", 2) => from(world, 1, i)?,
            ("exchanges", 1 | 2) => {
                let other = world.process_at_rank(3 - rank)?;
                send_receive_into_with_tags(&filled(i)[..], &other, i, &mut into[..], &other, i)?;
                holds(&into, i);
            }
            ("probes", 1) => {
                assert_eq!(world.process_at_rank(2)?.probe_with_tag(i)?.tag, i);
                from(world, 2, i)?;
            }
            ("probes", 2) => to(world, 1, i)?,
            _ => {}
        }
    }
    Ok(())
}

/// Around, by ranks that send before they receive.
fn ring(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (rank, size) = (world.rank(), world.size());
    let next = world.process_at_rank((rank + 1) % size)?;
    for i in 0..TIMES {
        let sending = next.immediate_send_with_tag(&filled(i)[..], i)?;
        from(world, (rank + size - 1) % size, i)?;
        sending.wait()?;
    }
    Ok(())
}

/// Messages that a rank sends to itself, and operations of which nobody else is a part.
fn itself(own: &LoggedCommunicator) -> Result<(), LoggedError> {
    for i in 0..TIMES {
        let (numbers, this) = (filled(i), own.this_process());
        let mut into = vec![0; COUNT / 4];
        send_receive_into_with_tags(&numbers[..COUNT / 4], &this, 0, &mut into[..], &this, 0)?;
        holds(&into, i);
        broadcast(own, 0, 1)?;
    }
    Ok(())
}

/// Messages that a rank sends to itself before it receives any: nobody else can help.
fn alone(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let (this, begun) = (world.this_process(), Instant::now());
    let mut sending = Vec::new();
    let refused = loop {
        match this.immediate_send_with_tag(&filled(0)[..], 0) {
            Ok(request) => sending.push(request),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, LoggedError::Alone { .. }), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{refused}");
    for _ in &sending {
        let mut into = vec![0; COUNT];
        this.receive_into_with_tag(&mut into[..], 0)?;
        holds(&into, 0);
    }
    sending.into_iter().try_for_each(Request::wait)?;
    // There is room again.
    let sending = this.immediate_send_with_tag(&filled(1)[..], 1)?;
    from(world, world.rank(), 1)?;
    sending.wait()
}

/// One rank computes, or looks for a message that nobody sends, for longer than others wait before they ask whether anybody gets on.
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
        1 => (0..8).try_for_each(|i| from(world, 0, i)),
        _ => Ok(()),
    }
}

/// One rank is done, and waits for the others at the end, while rank 0 still has much to say to the others.
fn done_early(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    broadcast(world, 0, 4)?;
    let last = world.rank() == world.size() - 1;
    let some = world.split_by_color((!last).then_some(0))?;
    let Some(some) = some else { return Ok(()) };
    std::thread::sleep(Duration::from_millis(300));
    broadcast(&some, 0, TIMES)
}

/// The first of many messages is received when the last has come: with less room than for all of them nobody can go on. Rank 0 is told so,
/// and says to rank 1 what it couldn't send.
fn backwards(what: &str, world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let half = world.split_by_color(Some(world.rank() / 2))?.unwrap();
    // Every rank waits: those of the other half for rank 0.
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
                    is_a_standstill(&error);
                    sent = i;
                    break;
                }
            }
        }
        if world.rank() == 1 {
            sent = first.receive_with_tag::<i32>(8)?.0;
            (0..sent).try_for_each(|i| from(world, 0, i))?;
        } else {
            // What the log has no room for is room for a few bytes.
            second.send_with_tag(&sent, 8)?;
        }
        sending.wait_all(&mut Vec::new())?;
    } else {
        // Rank 1 begins what rank 0 has begun.
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
                        is_a_standstill(&error);
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

fn is_a_standstill(error: &LoggedError) {
    assert!(matches!(error, LoggedError::Standstill { .. }), "{error}");
    println!("{error}");
}

/// One rank has gone away, and the others wait for room that only it could make.
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
        is_a_standstill(&error);
    }
    Ok(())
}

/// One operation that is larger than the log.
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
        // The others may wait for this rank.
        eprintln!("{error}");
        comm.abort(1);
    })
}

fn run(universe: Rc<Universe>) -> Result<(), LoggedError> {
    let arguments: Vec<String> = std::env::args().collect();
    let (case, kib) = (arguments[1].as_str(), arguments[2].parse::<usize>().unwrap());
    let logged = LoggedUniverse::init(universe, |options| {
        options.memory_bytes_max = kib << 10;
        options.on_full = OnFull::Block;
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
        "receives" | "sends" | "exchanges" | "probes" => third(case, &world)?,
        "ring" => ring(&world)?,
        "itself" => itself(&logged.self_comm())?,
        "alone" => alone(&world)?,
        "sleeps" | "polls" => slow(case, &world)?,
        "done-early" => done_early(&world)?,
        "backwards" | "backwards-collective" => backwards(case, &world)?,
        "huge" => huge(&world)?,
        "gone" => {
            logged.set_standstill(Duration::from_secs(3));
            return gone(&world);
        }
        what => rooted(what, &half)?,
    }
    drop(half);
    let account = logged.finish()?;
    account::print(world.rank(), account);
    Ok(())
}
