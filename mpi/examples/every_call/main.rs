//! Calls every method of a `LoggedCommunicator` and checks the values.
//!
//! The tests run it:
//!
//! ```sh
//! mpirun -n 4 every_call all DIR      # keeps all records, in DIR
//! mpirun -n 4 every_call acked        # releases acknowledged records
//! mpirun -n 4 every_call leaks        # leaks requests
//! mpirun -n 4 every_call abort        # a rank ends the job
//! mpirun -n 4 every_call panics       # a rank panics in a scope
//! mpirun -n 6 every_call recover 4    # 4 ranks of a job that recovers, and 2 spares; also with
//!                                     # `pessimistic` or `node-local`, and a name
//! ```
#![expect(clippy::unwrap_used, reason = "a test's functions may")]
#![allow(clippy::print_stdout)]

#[path = "../account/mod.rs"]
mod account;
mod collectives;
mod communicators;
mod expected;
mod immediate;
mod messages;
mod recover;
mod requests;

use std::path::Path;

use counterfoil::{Keep, StoreOptions, Tier};
use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Process, Source};
use counterfoil_mpi::{MpiError, Threads, Universe};

pub(crate) fn value(from: u32, index: usize) -> u64 {
    u64::from(from) * 1_000_000 + index as u64
}

pub(crate) fn values(from: u32, count: usize) -> Vec<u64> {
    (0..count).map(|index| value(from, index)).collect()
}

/// Returns `true` if MPI failed with this error class.
pub(crate) fn is_class<T>(result: Result<T, LoggedError>, class: &str) -> bool {
    result.is_err_and(|error| is_of_class(&error, class))
}

/// Returns `true` for an MPI error with this class.
pub(crate) fn is_of_class(error: &LoggedError, class: &str) -> bool {
    matches!(error, LoggedError::Mpi(MpiError::Call { text, .. }) if text.contains(class))
}

/// Returns the next rank on the ring, and the previous one.
pub(crate) fn neighbours(comm: &LoggedCommunicator) -> Result<(Process<'_>, Process<'_>), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    Ok((comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?))
}

fn main() -> Result<(), LoggedError> {
    let arguments: Vec<String> = std::env::args().collect();
    let universe = Universe::init(Threads::Single)?;
    if arguments[1] == "recover" {
        recover::run(&universe, arguments[2].parse().unwrap(), &arguments[3..]);
        return Ok(());
    }
    let logged = LoggedUniverse::init(universe, |options| {
        options.memory_bytes_max = 8 << 20;
        if arguments[1] == "all" {
            options.keep = Keep::All;
            options.tier = Tier::NodeLocal;
            options.store = Some(StoreOptions::new(&arguments[2]));
        }
    })?;
    let world = logged.world();
    if arguments[1] == "abort" && world.rank() == 1 {
        world.abort(7);
    } else if arguments[1] == "abort" {
        // No rank sends it.
        world.any_process().receive::<u8>()?;
    }
    if arguments[1] == "panics" {
        immediate::panics(&world)?;
        return world.any_process().receive::<u8>().map(drop);
    }
    if arguments[1] == "leaks" {
        requests::leaked(&world)?;
        immediate::leaked(&world)?;
        logged.finish()?;
        println!("rank {} has leaked", world.rank());
        // SAFETY: MPI is initialised, and all its later users are leaked.
        std::process::exit(unsafe { mpi_sys::MPI_Finalize() });
    }
    communicators::released_contributions(&world, &logged)?;
    messages::ring(&world)?;
    messages::full_buffers(&world, &logged)?;
    messages::modes(&world, &logged)?;
    messages::synchronous(&world)?;
    messages::negative_tag(&world)?;
    messages::exchanges(&world)?;
    messages::probes(&world)?;
    messages::any_tag(&world)?;
    messages::matched(&world)?;
    messages::any_source(&world)?;
    messages::invalid_calls(&world)?;
    requests::scopes(&world)?;
    requests::cancelled(&world)?;
    requests::collections(&world)?;
    collectives::run(&world)?;
    immediate::run(&world)?;
    let copy = world.duplicate()?;
    messages::ring(&copy)?;
    let half = copy.split_by_color_with_key(Some(world.rank() % 2), -(world.rank() as i32))?.unwrap();
    assert_eq!(half.size(), world.size() / 2);
    messages::ring(&half)?;
    collectives::run(&half)?;
    immediate::run(&half)?;
    assert!(world.split_by_color(if world.rank() == 0 { None } else { Some(0) })?.is_none() == (world.rank() == 0));
    communicators::groups(&world, &logged)?;
    communicators::of_one_host(&world)?;
    communicators::grids(&world)?;
    messages::pending_wildcard_receive(&world, &logged)?;
    messages::more_than_the_log_holds(&world)?;
    if arguments[1] == "all" {
        expected::write(Path::new(&arguments[2]), world.rank()).unwrap();
    }
    let unacknowledged = logged.unacknowledged()?;
    assert!(unacknowledged < 1000, "{unacknowledged} records are not acknowledged");
    let account = logged.finish()?;
    assert!(matches!(world.this_process().send(&0_u8), Err(LoggedError::Finished)));
    account::print(world.rank(), account);
    Ok(())
}
