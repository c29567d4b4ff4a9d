//! Heat along a rod distributed over the ranks: neighbours exchange the ends of their pieces, and every message is
//! logged.
//!
//! ```sh
//! cargo xtask mpi -- build --example ring
//! mpirun -n 4 target/mpi/build-debian/debug/examples/ring
//! ```

use counterfoil_mpi::logged::{CommunicatorCollectives, Destination, LoggedError, LoggedUniverse, Request, Source};
use counterfoil_mpi::{SystemOperation, Threads, Universe};

/// Cells on each rank, in addition to the two ghost cells.
const CELLS: usize = 1000;
const STEPS: usize = 2000;
const TO_THE_RIGHT: i32 = 1;
const TO_THE_LEFT: i32 = 2;

#[expect(clippy::print_stdout)]
fn main() -> Result<(), LoggedError> {
    // The log has 16 MiB; acknowledged records are released.
    let universe =
        LoggedUniverse::init(Universe::init(Threads::Single)?, |options| options.memory_bytes_max = 16 << 20)?;
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let left = world.process_at_rank((rank + size - 1) % size)?;
    let right = world.process_at_rank((rank + 1) % size)?;
    let mut rod = vec![0.0_f64; CELLS + 2];
    if rank == 0 {
        rod[CELLS / 2] = 1000.0;
    }
    for _ in 0..STEPS {
        let from_left = left.immediate_receive_with_tag::<f64>(1, TO_THE_RIGHT)?;
        let from_right = right.immediate_receive_with_tag::<f64>(1, TO_THE_LEFT)?;
        left.send_with_tag(&rod[1], TO_THE_LEFT)?;
        right.send_with_tag(&rod[CELLS], TO_THE_RIGHT)?;
        rod[0] = from_left.wait()?.0[0];
        rod[CELLS + 1] = from_right.wait()?.0[0];
        let before = rod.clone();
        for cell in 1..=CELLS {
            rod[cell] = before[cell] + 0.25 * (before[cell - 1] - 2.0 * before[cell] + before[cell + 1]);
        }
    }
    let mut heat = [0.0];
    world.all_reduce_into(&[rod[1..=CELLS].iter().sum::<f64>()], &mut heat, SystemOperation::Sum)?;
    let account = universe.finish()?;
    if rank == 0 {
        println!("heat {:.6} after {STEPS} steps; {} messages logged by rank 0", heat[0], account.messages_logged);
    }
    Ok(())
}
