//! Powers of a matrix times another one, with row block checksums (Huang and Abraham 1984): a lost rank is rebuilt bit
//! by bit.
//!
//! Each rank but the last has a row block from both matrices, and the last has the sums of these blocks, which are
//! padded to one height. The product with the left blocks' sum is the sum of the products, so the last rank does the
//! same as the others. Elements are integers modulo 2^32, as in [`matmul`](crate::matmul).

use std::ops::Range;

use counterfoil_runtime::communicator::{Communicator, Reduction, Restart};
use counterfoil_runtime::saved::{FoundState, SavedState, SharedArray, StateMemory};
use zerocopy::IntoBytes;

use crate::matmul::{element, multiply, verify};
use crate::state::{Owner, decode, encode};
use crate::values::{digest, from_message, part, words};
use crate::{
    Class, Error, Iterations, Outcome, RanksError, Resilient, StateError, UnrecoverableError, Workload, checkpoint_due,
};

/// Name of this workload.
pub const NAME: &str = "checked-matmul";
const STATE_ID: u32 = 11;
/// Tag for a lost rank's data.
const TAG: i32 = 1;

/// Matrices; class S, W, A have 64, 192, 512 rows, and 12, 16, 24 multiplications.
///
/// Every rank's iteration is one multiplication. Runs on 2 ranks or more, up to the rows and one.
#[derive(Clone, Debug)]
pub struct CheckedMatmul {
    class: Class,
    order: usize,
    multiplications: u64,
}

impl CheckedMatmul {
    /// Creates the program with size `class`.
    pub fn new(class: Class) -> CheckedMatmul {
        let (order, multiplications) = match class {
            Class::S => (64, 12),
            Class::W => (192, 16),
            Class::A => (512, 24),
        };
        CheckedMatmul { class, order, multiplications }
    }

    /// Returns a padded block's number of rows.
    fn height(&self, ranks: u32) -> usize {
        self.order.div_ceil(ranks as usize - 1)
    }

    /// Returns a rank's rows; none for the last one.
    fn rows(&self, rank: u32, ranks: u32) -> Range<usize> {
        if rank + 1 == ranks { 0..0 } else { part(self.order, rank, ranks - 1) }
    }

    /// Returns a rank's block of the left (0) or the first right (1) matrix.
    fn block(&self, which: u64, rank: u32, ranks: u32) -> Vec<u32> {
        let mut block = vec![0_u32; self.height(ranks) * self.order];
        let of: Vec<u32> = if rank + 1 == ranks { (0..rank).collect() } else { vec![rank] };
        for rank in of {
            for (row, values) in self.rows(rank, ranks).zip(block.chunks_exact_mut(self.order)) {
                for (column, value) in values.iter_mut().enumerate() {
                    *value = value.wrapping_add(element(which, row, column));
                }
            }
        }
        block
    }

    fn owner(&self, rank: u32, ranks: u32) -> Owner {
        Owner { workload: STATE_ID, class: self.class, rank, ranks }
    }

    /// Multiplies once.
    fn multiply(&self, comm: &mut dyn Communicator, left: &[u32], right: &[u32]) -> Result<Vec<u32>, Error> {
        let ranks = comm.size();
        let blocks = comm.allgather(right.as_bytes())?;
        let mut product = vec![0; right.len()];
        for (rank, bytes) in (0..ranks - 1).zip(&blocks) {
            let block = from_message(comm, (rank, 0), bytes, right.len(), "rows of the right matrix")?;
            let rows = self.rows(rank, ranks);
            multiply(&mut product, left, rows.start, &block[..rows.len() * self.order], self.order);
        }
        Ok(product)
    }
}

/// A rank's state.
#[derive(Debug)]
struct State {
    done: u64,
    right: Vec<u32>,
    /// Block before the last multiplication: no rank is ahead of another one by more than one.
    before: Vec<u32>,
}

/// Copy of a state in memory outliving the process.
///
/// It isn't changed: the next one takes its place.
#[derive(Debug)]
struct Kept {
    memory: StateMemory,
    arrays: Vec<SharedArray<u32>>,
}

impl Kept {
    fn keep(&mut self, state: &State) -> Result<(), Error> {
        let copies = [&state.right, &state.before].map(|values| self.memory.copy_of(values));
        self.arrays = copies.into_iter().collect::<Result<_, _>>()?;
        Ok(self.memory.publish(&[state.done], self.arrays.iter())?)
    }
}

/// One rank's program, with its state.
#[derive(Debug)]
struct Multiplication {
    program: CheckedMatmul,
    checkpoint_every: Option<u64>,
    state: Option<State>,
    /// Present under a rule keeping states in memory.
    kept: Option<Kept>,
}

impl Multiplication {
    fn new(program: &CheckedMatmul, checkpoint_every: Option<u64>) -> Multiplication {
        Multiplication { program: program.clone(), checkpoint_every, state: None, kept: None }
    }

    /// Returns the state left in memory by this rank, and creates memory for later ones.
    fn take_kept(&mut self, comm: &mut dyn Communicator) -> Result<Option<State>, Error> {
        let Some(place) = comm.state_place() else { return Ok(None) };
        if place.has_state() {
            let FoundState { memory, words, arrays } = place.open::<u32>()?;
            let [right, before] = &arrays[..] else { return Err(StateError::NotAState { len: arrays.len() }.into()) };
            let state = State {
                done: words.first().copied().unwrap_or_default(),
                right: right.to_vec(),
                before: before.to_vec(),
            };
            self.kept = Some(Kept { memory, arrays });
            return Ok(Some(state));
        }
        let block = self.program.height(comm.size()) * self.program.order * size_of::<u32>();
        // The state, the next one, and the space between them.
        self.kept = Some(Kept { memory: place.create(6 * block + (64 << 10))?, arrays: Vec::new() });
        Ok(None)
    }

    fn begin(&mut self, comm: &mut dyn Communicator) -> Result<State, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let kept = self.take_kept(comm)?;
        let program = &self.program;
        let len = program.height(ranks) * program.order;
        if let Some(restart) = comm.restart()? {
            return rebuild(comm, len, restart, kept);
        }
        let Some(saved) = comm.restore()? else {
            return Ok(State { done: 0, right: program.block(1, rank, ranks), before: vec![0; len] });
        };
        let (done, body) = decode(&program.owner(rank, ranks), program.iterations(rank, ranks), &saved)?;
        Ok(State { done, right: words(body, len)?, before: vec![0; len] })
    }
}

/// Reads a saved state.
fn load(len: usize, mut saved: SavedState) -> Result<State, counterfoil_runtime::Error> {
    let mut state = State { done: 0, right: vec![0; len], before: vec![0; len] };
    saved.read_into(state.done.as_mut_bytes())?;
    saved.read_into(state.right.as_mut_bytes())?;
    saved.read_into(state.before.as_mut_bytes())?;
    Ok(state)
}

/// Returns this rank's state after the last multiplication done by all survivors.
///
/// Collective. `kept`: the state left in memory by the rank.
fn rebuild(comm: &mut dyn Communicator, len: usize, restart: Restart, kept: Option<State>) -> Result<State, Error> {
    let (rank, ranks) = (comm.rank(), comm.size());
    if restart.lost.len() > 1 {
        return Err(UnrecoverableError { ranks: restart.lost, row: 0 }.into());
    }
    let saved = restart.state.map(|saved| load(len, saved)).transpose()?;
    let mut state = kept.or(saved);
    let mut least = [state.as_ref().map_or(u64::MAX, |state| state.done)];
    comm.allreduce_u64(&mut least, Reduction::Min)?;
    if let Some(state) = state.as_mut().filter(|state| state.done > least[0]) {
        (state.done, state.right) = (least[0], std::mem::take(&mut state.before));
        state.before = vec![0; len];
    }
    let Some(&lost) = restart.lost.first() else { return state.ok_or_else(|| StateError::NotAState { len: 0 }.into()) };
    if let Some(state) = state {
        comm.send(lost, TAG, state.right.as_bytes())?;
        return Ok(state);
    }
    // A block is the sum of all without the others, and the sum is the total of all blocks.
    let mut right = vec![0_u32; len];
    for other in (0..ranks).filter(|other| *other != rank) {
        let (status, bytes) = comm.recv(Some(other), Some(TAG))?;
        let block = from_message::<u32>(comm, (status.source, TAG), &bytes, len, "a block of rows")?;
        let is_added = rank + 1 == ranks || other + 1 == ranks;
        for (value, of_block) in right.iter_mut().zip(block) {
            *value = if is_added { value.wrapping_add(of_block) } else { value.wrapping_sub(of_block) };
        }
    }
    Ok(State { done: least[0], right, before: vec![0; len] })
}

impl Resilient for Multiplication {
    fn run(&mut self, comm: &mut dyn Communicator) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.program.validate(ranks)?;
        let begun = self.begin(comm)?;
        let state = self.state.insert(begun);
        if let Some(kept) = &mut self.kept {
            kept.keep(state)?;
        }
        comm.rebuilt()?;
        let program = &self.program;
        let left = program.block(0, rank, ranks);
        while state.done < program.multiplications {
            comm.iteration(state.done + 1)?;
            let product = program.multiply(comm, &left, &state.right)?;
            state.before = std::mem::replace(&mut state.right, product);
            state.done += 1;
            if let Some(kept) = &mut self.kept {
                kept.keep(state)?;
            }
            if checkpoint_due(comm, state.done, self.checkpoint_every) {
                comm.checkpoint(&encode(&program.owner(rank, ranks), state.done, state.right.as_bytes()))?;
            }
        }
        let rows = program.rows(rank, ranks);
        let own = &state.right[..rows.len() * program.order];
        let verified = verify(comm, (program.order, program.multiplications), rows, own)?;
        // The last rank's sums as well.
        Ok(Outcome { digest: digest(&state.right), ..verified })
    }

    fn regions(&mut self) -> Vec<&[u8]> {
        let Some(State { done, right, before }) = &self.state else { return Vec::new() };
        vec![done.as_bytes(), right.as_bytes(), before.as_bytes()]
    }
}

impl Workload for CheckedMatmul {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        let (workload, class, at_most) = (NAME, self.class, self.order as u32 + 1);
        match ranks {
            ..2 => Err(RanksError::TooFew { workload, ranks, at_least: 2 }),
            _ if ranks > at_most => Err(RanksError::TooMany { workload, class, ranks, at_most }),
            _ => Ok(()),
        }
    }

    fn iterations(&self, _rank: u32, _ranks: u32) -> Iterations {
        Iterations::exactly(self.multiplications)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        // An allgather sends each block by itself, or several at once.
        ranks as usize * (self.height(ranks.max(2)) * self.order * size_of::<u32>() + 16)
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        Multiplication::new(self, checkpoint_every).run(comm)
    }

    fn resilient(&self) -> Option<Box<dyn Resilient>> {
        Some(Box::new(Multiplication::new(self, None)))
    }
}
