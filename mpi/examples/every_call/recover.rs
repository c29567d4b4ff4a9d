//! The calls in a job that recovers: in parts, with checkpoints between them.

use std::rc::Rc;

use counterfoil_mpi::Universe;
use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, LoggedUniverse};
use counterfoil_mpi::recovery::{Options, run_logged};
use serde::{Deserialize, Serialize};

use crate::{collectives, communicators, immediate, messages, requests};

/// Parts of the program.
const PARTS: u32 = 20;

/// State of a rank.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Number of parts that are done.
    done: u32,
    /// Numbers of the communicators that were created and are still used.
    created: Vec<u32>,
}

pub(crate) fn run(universe: &Rc<Universe>, ranks: u32) {
    let ran = run_logged(universe, &Options::new(ranks), |logged| {
        let world = logged.world();
        println!("rank {} is process {}", world.rank(), std::process::id());
        let mut state = world.restore::<State>()?.unwrap_or_default();
        let created = state.created.iter().map(|number| logged.communicator(*number));
        let mut created = created.collect::<Result<Vec<_>, _>>()?;
        while state.done < PARTS {
            part(state.done, &world, logged, &mut created)?;
            state.done += 1;
            state.created = created.iter().map(LoggedCommunicator::number).collect();
            if (state.done + world.rank()) % 2 == 0 {
                world.checkpoint(&state)?;
            }
            if world.rank() == 0 {
                println!("step {} of {PARTS}", state.done);
            }
        }
        if world.rank() == 0 {
            println!("every call has returned its value");
        }
        Ok::<_, LoggedError>(())
    });
    if let Err(error) = ran {
        eprintln!("error: {error}");
        universe.world().abort(1);
    }
}

fn part(
    part: u32,
    world: &LoggedCommunicator,
    logged: &LoggedUniverse,
    created: &mut Vec<LoggedCommunicator>,
) -> Result<(), LoggedError> {
    match part {
        0 => messages::ring(world),
        1 => messages::modes(world, logged),
        2 => messages::exchanges(world),
        3 => messages::probes(world),
        4 => messages::any_tag(world),
        5 => messages::matched(world),
        6 => messages::any_source(world),
        7 => messages::invalid_calls(world),
        8 => requests::scopes(world),
        9 => requests::cancelled(world),
        10 => requests::collections(world),
        11 => collectives::run(world),
        12 => immediate::run(world),
        13 => {
            let copy = world.duplicate()?;
            let half = copy.split_by_color_with_key(Some(world.rank() % 2), -(world.rank() as i32))?.unwrap();
            created.extend([copy, half]);
            created.iter().try_for_each(messages::ring)
        }
        14 => created.iter().try_for_each(messages::ring),
        15 => created.iter().try_for_each(collectives::run),
        16 => created.iter().try_for_each(immediate::run),
        17 => communicators::groups(world, logged),
        18 => communicators::grids(world),
        _ => {
            refused(world)?;
            messages::more_than_the_log_holds(world)
        }
    }
}

/// Calls that such a job doesn't have.
fn refused(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    let sent = world.this_process().synchronous_send(&0_u8);
    assert!(matches!(sent, Err(LoggedError::NotRecoverable { call: "MPI_Ssend" })));
    assert!(matches!(world.split_shared(0), Err(LoggedError::NotRecoverable { call: "MPI_Comm_split_type" })));
    assert!(matches!(world.this_process().send_with_tag(&1, -5), Err(LoggedError::Recovery(_))));
    Ok(())
}
