//! Every call of a `LoggedCommunicator`, with values checked. Run by the tests:
//!
//! ```sh
//! mpirun -n 4 every_call all DIR      # everything is kept, in DIR
//! mpirun -n 4 every_call acked        # what is acknowledged is forgotten
//! mpirun -n 4 every_call leaks        # requests are leaked
//! mpirun -n 4 every_call abort        # a rank ends the job
//! mpirun -n 4 every_call panics       # a rank panics in a scope
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
mod requests;

use std::path::Path;

use counterfoil::{Keep, StoreOptions, Tier};
use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Process, Source};
use counterfoil_mpi::{MpiError, Threads, Universe};

pub(crate) fn value(from: u32, place: usize) -> u64 {
    u64::from(from) * 1_000_000 + place as u64
}

pub(crate) fn values(from: u32, count: usize) -> Vec<u64> {
    (0..count).map(|place| value(from, place)).collect()
}

/// Whether MPI failed with an error of this class.
pub(crate) fn is_class<T>(result: Result<T, LoggedError>, class: &str) -> bool {
    matches!(result, Err(LoggedError::Mpi(MpiError::Call { text, .. })) if text.contains(class))
}

/// The rank behind this one, and the one before it.
pub(crate) fn neighbours(comm: &LoggedCommunicator) -> Result<(Process<'_>, Process<'_>), LoggedError> {
    let (rank, size) = (comm.rank(), comm.size());
    Ok((comm.process_at_rank((rank + 1) % size)?, comm.process_at_rank((rank + size - 1) % size)?))
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
    if arguments[1] == "abort" && world.rank() == 1 {
        world.abort(7);
    } else if arguments[1] == "abort" {
        // Nobody sends it.
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
        // SAFETY: what is left of MPI is leaked.
        std::process::exit(unsafe { mpi_sys::MPI_Finalize() });
    }
    communicators::let_go(&world, &logged)?;
    messages::around(&world)?;
    messages::modes(&world, &logged)?;
    messages::exchanges(&world)?;
    messages::probes(&world)?;
    messages::any_tag(&world)?;
    messages::matched(&world)?;
    messages::from_anybody(&world)?;
    messages::mistakes(&world)?;
    requests::scopes(&world)?;
    requests::cancelled(&world)?;
    requests::collections(&world)?;
    collectives::together(&world)?;
    immediate::together(&world)?;
    let copy = world.duplicate()?;
    messages::around(&copy)?;
    let half = copy.split_by_color_with_key(Some(world.rank() % 2), -(world.rank() as i32))?.unwrap();
    assert_eq!(half.size(), world.size() / 2);
    messages::around(&half)?;
    collectives::together(&half)?;
    immediate::together(&half)?;
    assert!(world.split_by_color(if world.rank() == 0 { None } else { Some(0) })?.is_none() == (world.rank() == 0));
    communicators::groups(&world, &logged)?;
    communicators::grids(&world)?;
    messages::behind_an_open_receive(&world, &logged)?;
    messages::many(&world)?;
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
