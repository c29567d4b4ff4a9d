//! Program for the ranks between processes.
//!
//! Its state records exactly the progress made, so that a checkpoint can be taken while it waits.

use std::cell::RefCell;
use std::rc::Rc;

use counterfoil_runtime::{Communicator, Error, Reduction, Request};
use serde::{Deserialize, Serialize};

/// Steps of an iteration with an open receive.
const OPEN: std::ops::RangeInclusive<u64> = 2..=4;

/// Program parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Number of iterations.
    pub iterations: u64,
    /// Iterations between two checkpoint offers by the program; never if 0.
    pub checkpoint_every: u64,
    /// Makes calls with rank-dependent results, too.
    pub per_rank_results: bool,
    /// The only rank to offer checkpoints; all if `None`.
    pub offered_by: Option<u32>,
}

/// Rank state: everything needed for a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Present iteration, from 1.
    iteration: u64,
    /// Next step of the iteration.
    step: u64,
    /// Digest of everything received by the rank.
    digest: u64,
}

impl State {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
        }
    }
}

impl Program {
    /// Runs the program on one rank, and returns its digest.
    ///
    /// # Errors
    /// Errors of the communicator.
    pub fn run(self, comm: &mut impl Communicator) -> Result<Vec<u8>, Error> {
        let state = Rc::new(RefCell::new(State { iteration: 1, ..State::default() }));
        let shared = Rc::clone(&state);
        comm.provide_state(Box::new(move || postcard::to_stdvec(&*shared.borrow()).unwrap_or_default()));
        if let Some(restored) = comm.restore()? {
            *state.borrow_mut() = postcard::from_bytes(&restored)?;
        }
        let mut open = None;
        while state.borrow().iteration <= self.iterations {
            self.step(comm, &state, &mut open)?;
        }
        Ok(state.borrow().digest.to_le_bytes().to_vec())
    }

    /// Makes one call, then records it in the state.
    ///
    /// `open`: the receive open in the steps [`OPEN`].
    fn step(
        self,
        comm: &mut impl Communicator,
        state: &RefCell<State>,
        open: &mut Option<Request>,
    ) -> Result<(), Error> {
        let State { iteration, step, digest } = state.borrow().clone();
        let (rank, size) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        // Only this rank sends here, but a receive from any is a choice.
        let source = |names: bool| Some(previous).filter(|_| names);
        let is_even = iteration.is_multiple_of(2);
        if OPEN.contains(&step) && open.is_none() {
            *open = Some(comm.irecv(source(!is_even), Some(1))?);
        }
        let received = match step {
            0 => {
                comm.iteration(iteration)?;
                Vec::new()
            }
            1 => {
                comm.send(next, 0, &(digest ^ iteration).to_le_bytes())?;
                Vec::new()
            }
            // The other receive is open: a checkpoint requested now leaves it to the restored program.
            2 => comm.recv(source(is_even), Some(0))?.1.to_vec(),
            3 => {
                comm.send(next, 1, &(digest ^ !iteration).to_le_bytes())?;
                Vec::new()
            }
            4 => match open.take() {
                Some(open) => comm.wait(open)?.1.to_vec(),
                None => Vec::new(),
            },
            5 => self.collective(comm, iteration, digest)?,
            _ => {
                let offers = self.offered_by.is_none_or(|only| only == rank);
                if offers && self.checkpoint_every > 0 && iteration.is_multiple_of(self.checkpoint_every) {
                    let saved = State { iteration: iteration + 1, step: 0, digest };
                    comm.checkpoint(&postcard::to_stdvec(&saved)?)?;
                }
                *state.borrow_mut() = State { iteration: iteration + 1, step: 0, digest };
                return Ok(());
            }
        };
        let mut state = state.borrow_mut();
        state.add(&received);
        state.step += 1;
        Ok(())
    }

    /// Makes the collective call of an iteration, and returns its result.
    fn collective(self, comm: &mut impl Communicator, iteration: u64, digest: u64) -> Result<Vec<u8>, Error> {
        let calls = if self.per_rank_results { 9 } else { 5 };
        let (size, root) = (comm.size(), (iteration / calls) as u32 % comm.size());
        let block = digest.to_le_bytes();
        let blocks: Vec<[u8; 8]> = (0..u64::from(size)).map(|rank| (digest ^ rank).to_le_bytes()).collect();
        Ok(match iteration % calls {
            0 => {
                comm.barrier()?;
                Vec::new()
            }
            1 => {
                let mut values = [digest, iteration];
                comm.allreduce_u64(&mut values, Reduction::Sum)?;
                values.map(u64::to_le_bytes).concat()
            }
            2 => comm.allgather(&block)?.concat(),
            3 | 4 => comm.bcast(root, &block)?.to_vec(),
            5 => comm.scatter(root, &blocks.iter().map(|block| &block[..]).collect::<Vec<_>>())?.to_vec(),
            6 => comm.gather(root, &block)?.unwrap_or_default().concat(),
            7 => {
                let mut values = [digest, iteration];
                comm.reduce_u64(root, &mut values, Reduction::Sum)?;
                if comm.rank() == root { values.map(u64::to_le_bytes).concat() } else { Vec::new() }
            }
            _ => comm.alltoall(&blocks.concat())?,
        })
    }
}
