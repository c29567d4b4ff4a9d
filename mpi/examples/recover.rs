//! Heat along a rod distributed over the ranks.
//!
//! Kill some of its processes: the printed bits stay the same.
//!
//! ```sh
//! cargo xtask mpi --mpi wheel -- build --release --example recover
//! mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 6 recover 4 100000    # 4 ranks and 2 spares, 100,000 steps
//! ```
//!
//! With a third argument, `node-local`, and a directory for temporary files shared by all hosts, it outlives the loss
//! of hosts, too. With a fourth argument, the job's name, a failed job goes on from its last checkpoints when it is
//! started again.

use std::error::Error;
use std::time::Duration;

use counterfoil_mpi::logged::{CommunicatorCollectives, LoggedCommunicator, LoggedError, send_receive};
use counterfoil_mpi::recovery::{Options, run_logged};
use counterfoil_mpi::{SystemOperation, Threads, Universe};
use counterfoil_runtime::Tier;
use serde::{Deserialize, Serialize};

const USAGE: &str = "usage: recover RANKS STEPS [process-crash-safe|node-local [NAME]]";
/// Cells on each rank.
const CELLS: usize = 1000;
/// Checkpoints per rank.
const CHECKPOINTS: u64 = 10;

/// A rank's state.
#[derive(Serialize, Deserialize)]
struct Rod {
    step: u64,
    cells: Vec<f64>,
}

#[expect(clippy::print_stderr, clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ranks, steps, optional @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let steps = steps.parse()?;
    let mut options = Options::new(ranks.parse()?);
    match optional.first().map(String::as_str) {
        None => {}
        // A dead process's locks on this host are released at once.
        Some("process-crash-safe") => options.locks_wait_max = Duration::from_secs(5),
        Some("node-local") => options.settings.tier = Tier::NodeLocal,
        Some(_) => return Err(USAGE.into()),
    }
    options.name = optional.get(1).cloned();
    let universe = Universe::init(Threads::Single)?;
    let heat = run_logged(&universe, &options, |logged| {
        let world = logged.world();
        println!("rank {} is process {}", world.rank(), std::process::id());
        heat_of_the_rod(&world, steps)
    });
    match heat {
        Ok(Some((0, heat))) => println!("heat {heat} ({:016x}) after {steps} steps", heat.to_bits()),
        Ok(_) => {}
        Err(error) => {
            eprintln!("error: {error}");
            universe.world().abort(1);
        }
    }
    Ok(())
}

/// Returns the rank, and the sum over all ranks.
#[expect(clippy::print_stdout)]
fn heat_of_the_rod(world: &LoggedCommunicator, steps: u64) -> Result<(u32, f64), LoggedError> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = (world.process_at_rank((rank + size - 1) % size)?, world.process_at_rank((rank + 1) % size)?);
    let fresh = || Rod { step: 0, cells: (0..CELLS).map(|cell| (cell * (rank as usize + 1)) as f64).collect() };
    let mut rod = world.restore()?.unwrap_or_else(fresh);
    while rod.step < steps {
        let (mut last, _) = send_receive::<f64, _>(&rod.cells[CELLS - 1], &right, &left)?;
        let (end, _) = send_receive::<f64, _>(&rod.cells[0], &left, &right)?;
        for cell in 0..CELLS {
            let next = rod.cells.get(cell + 1).copied().unwrap_or(end);
            let own = rod.cells[cell];
            rod.cells[cell] = own + 0.25 * (last - 2.0 * own + next);
            last = own;
        }
        rod.step += 1;
        if rod.step.is_multiple_of(steps.div_ceil(CHECKPOINTS)) {
            world.checkpoint(&rod)?;
            if rank == 0 {
                println!("step {} of {steps}", rod.step);
            }
        }
    }
    let mut heat = [0.0];
    world.all_reduce_into(&[rod.cells.iter().sum::<f64>()], &mut heat, SystemOperation::Sum)?;
    Ok((rank, heat[0]))
}
