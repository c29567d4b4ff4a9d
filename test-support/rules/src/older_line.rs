//! Two-rank program: rank 1 begins its checkpoint of a line only after rank 0's is durable.
//!
//! If rank 1 is killed during this checkpoint, rank 0 has one newer than the committed line.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use counterfoil_runtime::{Communicator, Error};
use serde::{Deserialize, Serialize};

/// In each iteration divisible by this, rank 0 waits until the rule requests a checkpoint; it takes those requested in
/// between, too.
const LINE_EVERY: u64 = 10;

/// Program parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderLine {
    /// Number of iterations.
    pub iterations: u64,
    /// File to which rank 0 appends the iterations of checkpoints made durable and restored: `durable 9`, `restored 4`,
    /// a line each.
    pub notes: PathBuf,
}

/// Rank state: everything needed for a restart.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct State {
    /// Present iteration, from 1.
    iteration: u64,
    /// On rank 1: the newest epoch told by rank 0.
    epoch: u32,
    digest: u64,
}

impl OlderLine {
    /// Runs the program on one rank, and returns its digest.
    ///
    /// # Errors
    /// Errors of the communicator.
    pub fn run(&self, comm: &mut impl Communicator) -> Result<Vec<u8>, Error> {
        let mut state = State { iteration: 1, epoch: 0, digest: 0 };
        if let Some(restored) = comm.restore()? {
            state = postcard::from_bytes(&restored)?;
            if comm.rank() == 0 {
                self.note("restored", state.iteration);
            }
        }
        if comm.rank() == 0 {
            self.run_first(comm, &mut state)?
        } else {
            self.run_second(comm, &mut state)?
        }
        Ok(state.digest.to_le_bytes().to_vec())
    }

    fn run_first(&self, comm: &mut impl Communicator, state: &mut State) -> Result<(), Error> {
        let began = state.iteration;
        let mut known = comm.checkpoint(&postcard::to_stdvec(state)?)?;
        while state.iteration <= self.iterations {
            comm.iteration(state.iteration)?;
            let saved = postcard::to_stdvec(state)?;
            let mut epoch = comm.checkpoint(&saved)?;
            // Checkpoints wait until everything already sent by a restored rank is repeated.
            let waits = state.iteration > began && state.iteration.is_multiple_of(LINE_EVERY);
            while waits && epoch == known {
                comm.iteration(state.iteration)?;
                epoch = comm.checkpoint(&saved)?;
            }
            if known < epoch {
                self.note("durable", state.iteration);
                known = epoch;
            }
            comm.send(1, 0, &postcard::to_stdvec(&epoch.0)?)?;
            let digest: u64 = postcard::from_bytes(&comm.recv(Some(1), Some(0))?.1)?;
            state.digest = state.digest.rotate_left(5) ^ digest;
            state.iteration += 1;
        }
        Ok(())
    }

    fn run_second(&self, comm: &mut impl Communicator, state: &mut State) -> Result<(), Error> {
        while state.iteration <= self.iterations {
            comm.iteration(state.iteration)?;
            let epoch = postcard::from_bytes(&comm.recv(Some(0), Some(0))?.1)?;
            state.digest = state.digest.rotate_left(7) ^ state.iteration;
            comm.send(0, 0, &postcard::to_stdvec(&state.digest)?)?;
            state.iteration += 1;
            // The order for the line may be on its way.
            while epoch > state.epoch {
                state.epoch = comm.checkpoint(&postcard::to_stdvec(&State { epoch, ..*state })?)?.0;
                comm.iteration(state.iteration)?;
            }
        }
        Ok(())
    }

    fn note(&self, what: &str, iteration: u64) {
        let line = format!("{what} {iteration}\n");
        let file = OpenOptions::new().create(true).append(true).open(&self.notes);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", self.notes.display()));
    }
}
