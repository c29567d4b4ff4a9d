//! Start, calibration and report of a ping-pong benchmark between two ranks.

use std::fmt::Display;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use counterfoil_mpi_core::{Comm, MpiError, Threads, Universe};
use serde::Serialize;

/// Runs `measure` under MPI on both ranks of a job, with the world and this rank, 0 or 1.
///
/// If a rank fails, or is not done after `limit`, it reports this on standard error as `program` and ends the job: the
/// other rank would wait for ever.
pub fn run<E: Display>(
    program: &'static str,
    limit: Duration,
    measure: impl FnOnce(&Rc<Universe>, &Comm, u32) -> Result<(), E>,
) -> ExitCode {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("{program}: not done after {limit:?}");
        std::process::abort();
    });
    let failed = |error: &dyn Display| {
        eprintln!("{program}: {error}");
        ExitCode::FAILURE
    };
    let universe = match Universe::init(Threads::Single) {
        Ok(universe) => universe,
        Err(error) => return failed(&error),
    };
    let world = universe.world();
    let code = match (world.rank(), world.size()) {
        (Ok(rank), Ok(2)) => match measure(&universe, &world, rank) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        (Ok(_), Ok(ranks)) => failed(&format_args!("ping-pong takes two ranks (mpirun -n 2), not {ranks}")),
        (Err(error), _) | (_, Err(error)) => failed(&error),
    };
    world.abort(1);
    code
}

/// Returns the number of round trips to make `run` take at least `batch`, the same on both ranks: `trips_min`, doubled
/// as often as needed, up to 2^24.
///
/// # Errors
/// Any error from `run`, and [`MpiError`].
pub fn calibrate_trips<E: From<MpiError>>(
    world: &Comm,
    trips_min: u64,
    batch: Duration,
    mut run: impl FnMut(u64) -> Result<Duration, E>,
) -> Result<u64, E> {
    let mut trips = trips_min;
    loop {
        let mut is_enough = [u8::from(run(trips)? >= batch || trips >= 1 << 24)];
        world.bcast(0, &mut is_enough)?;
        if is_enough[0] != 0 {
            return Ok(trips);
        }
        trips *= 2;
    }
}

/// Benchmark result, with its conditions.
#[derive(Debug, Serialize)]
pub struct Report<'a, Row> {
    mpi: String,
    transport: &'a str,
    rounds: u32,
    tags: u32,
    rows: Vec<Row>,
}

impl<'a, Row: Serialize> Report<'a, Row> {
    /// Creates a report on `rounds` pairs for each row, over `tags` tags in turn; `transport` names the transport in
    /// the output.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    pub fn new(transport: &'a str, rounds: u32, tags: u32, rows: Vec<Row>) -> Result<Self, MpiError> {
        Ok(Report { mpi: Universe::library_name()?, transport, rounds, tags, rows })
    }

    /// Returns the report as one JSON object.
    ///
    /// # Errors
    /// Any error from the serialiser.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Returns the report as a table: the conditions, `head`, and `line` for each row.
    pub fn table(&self, head: &str, line: impl Fn(&Row) -> String) -> String {
        let above = format!("{}, {}, {} rounds, {} tags", self.mpi, self.transport, self.rounds, self.tags);
        let lines = self.rows.iter().map(line);
        [above, head.to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}
