//! What programs have in common that measure ping-pong between two ranks.

use std::fmt::Display;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::{Comm, MpiError, Threads, Universe};

/// Both ranks of a job do this under MPI: `play` is given the world and this rank, 0 or 1. Where one fails, or `limit` has passed,
/// it says so on standard error in the name of `program` and takes the other with it, which would wait for ever.
pub fn run<E: Display>(
    program: &'static str,
    limit: Duration,
    play: impl FnOnce(&Rc<Universe>, &Comm, u32) -> Result<(), E>,
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
        (Ok(rank), Ok(2)) => match play(&universe, &world, rank) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        (Ok(_), Ok(ranks)) => failed(&format_args!("ping-pong takes two ranks (mpirun -n 2), not {ranks}")),
        (Err(error), _) | (_, Err(error)) => failed(&error),
    };
    world.abort(1);
    code
}

/// As many round trips as fill a batch of the length `batch` by `play`, on both ranks the same: `least`, doubled as often as needed.
///
/// # Errors
/// What `play` says, and [`MpiError`].
pub fn trips_of_a_batch<E: From<MpiError>>(
    world: &Comm,
    least: u64,
    batch: Duration,
    mut play: impl FnMut(u64) -> Result<Duration, E>,
) -> Result<u64, E> {
    let mut trips = least;
    loop {
        let mut is_enough = [u8::from(play(trips)? >= batch || trips >= 1 << 24)];
        world.bcast(0, &mut is_enough)?;
        if is_enough[0] != 0 {
            return Ok(trips);
        }
        trips *= 2;
    }
}

/// Nanoseconds of one way, half a round trip, where `trips` of these took so long.
pub fn one_way_ns(took: Duration, trips: u64) -> f64 {
    took.as_secs_f64() * 1e9 / (2 * trips) as f64
}

/// What a measurement comes to.
#[derive(Debug, Serialize)]
pub struct Report<'a, Row> {
    mpi: String,
    transport: &'a str,
    rounds: u32,
    tags: u32,
    rows: Vec<Row>,
}

impl<'a, Row: Serialize> Report<'a, Row> {
    /// Of so many rounds for each row, over so many tags in turn; `transport` is what the way of the bytes is called.
    ///
    /// # Errors
    /// [`MpiError::Call`].
    pub fn new(transport: &'a str, rounds: u32, tags: u32, rows: Vec<Row>) -> Result<Self, MpiError> {
        Ok(Report { mpi: Universe::library_name()?, transport, rounds, tags, rows })
    }

    /// As one JSON object.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// As a table, with this line above and a line for each row.
    pub fn table(&self, head: &str, line: impl Fn(&Row) -> String) -> String {
        let above = format!("{}, {}, {} rounds, {} tags", self.mpi, self.transport, self.rounds, self.tags);
        let lines = self.rows.iter().map(line);
        [above, head.to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}
