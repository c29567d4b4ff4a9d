//! The calls in a recovering job: in parts, with checkpoints between them.

use std::rc::Rc;

use counterfoil_mpi::Universe;
use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, LoggedUniverse, Source};
use counterfoil_mpi::recovery::{Options, run_logged};
use counterfoil_protocols::pessimistic;
use counterfoil_runtime::Tier;
use serde::{Deserialize, Serialize};

use crate::{collectives, communicators, immediate, messages, requests};

/// Parts of the program.
const PARTS: u32 = 22;
/// Upper bound of the number of ranks.
const RANKS_MAX: u32 = 1000;
/// Part beginning with the creation of communicators.
const CREATION: u32 = 13;

/// A rank's state.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Number of completed parts.
    done: u32,
    /// Numbers of created communicators still in use.
    created: Vec<u32>,
}

/// Runs the calls.
///
/// `arguments`: a rule, a tier or rank 2's action in part 3, and the job's name.
pub(crate) fn run(universe: &Rc<Universe>, ranks: u32, arguments: &[String]) {
    let setting = arguments.first().map(String::as_str);
    let mut options = Options::new(ranks);
    options.name = arguments.get(1).cloned();
    match setting {
        Some("pessimistic") => options.settings.rule = pessimistic::RULE,
        Some("node-local") => options.settings.tier = Tier::NodeLocal,
        _ => {}
    }
    let ran = run_logged(universe, &options, |logged| {
        let world = logged.world();
        println!("rank {} is process {}", world.rank(), std::process::id());
        let mut state = world.restore::<State>()?.unwrap_or_default();
        // A replacement looks communicators up by number, each time it needs them.
        let mut handles = Vec::new();
        while state.done < PARTS {
            if state.done == CREATION {
                handles = create(&world)?;
                state.created = handles.iter().map(LoggedCommunicator::number).collect();
            }
            if state.done == 3 && world.rank() == 2 {
                match setting {
                    Some("panics") => panic!("rank 2 gives up"),
                    Some("fails") => return world.process_at_rank(RANKS_MAX).map(drop),
                    _ => {}
                }
            }
            part(&world, logged, &state)?;
            state.done += 1;
            if (state.done + world.rank()) % 2 == 0 {
                world.checkpoint(&state)?;
            }
            if world.rank() == 0 {
                println!("step {} of {PARTS}", state.done);
            }
        }
        drop(handles);
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

/// Creates a copy of a communicator, and one with half of its ranks.
fn create(world: &LoggedCommunicator) -> Result<Vec<LoggedCommunicator>, LoggedError> {
    let copy = world.duplicate()?;
    let half = copy.split_by_color_with_key(Some(world.rank() % 2), -(world.rank() as i32))?.unwrap();
    half.set_name("half")?;
    Ok(vec![copy, half])
}

fn part(world: &LoggedCommunicator, logged: &LoggedUniverse, state: &State) -> Result<(), LoggedError> {
    let on_created = |part: fn(&LoggedCommunicator) -> Result<(), LoggedError>| {
        state.created.iter().try_for_each(|number| part(&logged.communicator(*number)?))
    };
    match state.done {
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
        CREATION | 14 => on_created(messages::ring),
        15 => on_created(collectives::run),
        16 => on_created(immediate::run),
        17 => communicators::groups(world, logged),
        18 => communicators::grids(world),
        19 => messages::synchronous(world),
        20 => on_created(messages::synchronous),
        _ => {
            assert_eq!(logged.communicator(state.created[1])?.get_name()?, "half");
            refused(world)?;
            messages::more_than_the_log_holds(world)
        }
    }
}

/// Calls unavailable in a recovering job.
fn refused(world: &LoggedCommunicator) -> Result<(), LoggedError> {
    assert!(matches!(world.split_shared(0), Err(LoggedError::NotRecoverable { call: "MPI_Comm_split_type" })));
    assert!(matches!(world.this_process().send_with_tag(&1, -5), Err(LoggedError::Recovery(_))));
    assert!(matches!(world.any_process().probe_with_tag(-5), Err(LoggedError::Recovery(_))));
    assert!(matches!(world.any_process().immediate_probe_with_tag(-5), Err(LoggedError::Recovery(_))));
    assert!(matches!(world.clone().into_cartesian(), Err(LoggedError::Mpi(_))));
    Ok(())
}
