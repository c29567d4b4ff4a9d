//! Dense QR factorization with lost ranks rebuilt (Checkpoint-on-Failure; crate `counterfoil-qr`).

mod rebuild;
mod shape;

use counterfoil_qr::{Communication, Layout, Place, State, factor, verify, weight};
use counterfoil_runtime::communicator::{Communicator, Reduction};
use zerocopy::IntoBytes;

use crate::state::{Owner, decode, encode};
use crate::values::{digest, fill_from_message, long_words, numbers};
use crate::{Class, Error, Iterations, Outcome, RanksError, Resilient, StateError, Value, Workload, checkpoint_due};

pub use shape::{Elements, ParseShapeError, Shape};

/// Name of this workload.
pub const NAME: &str = "qr";
/// The program's number in its saved states.
const STATE_ID: u32 = 10;

/// Tag for sums over a process column.
const SUM: i32 = 1;
/// Tag for panels, and for block columns in checksums.
const ROW: i32 = 2;
/// Residual limit for a correct factorization, in units of the order times the spacing of numbers at 1.
const RESIDUAL_MAX: f64 = 10.0;

/// Factorization of a random matrix; class S, W, A have 256, 768, 2048 rows and columns, in blocks of 16, 32, 64.
///
/// An iteration is a panel; a rank without more work makes no further one. Ranks are process columns, from six on in
/// two process rows if their number is even. Rank 0 to Q - 1 are the first process row.
#[derive(Clone, Debug)]
pub struct Qr {
    class: Class,
    shape: Shape,
}

impl Qr {
    /// Creates the program with size `class`.
    pub fn new(class: Class) -> Qr {
        let (order, block) = match class {
            Class::S => (256, 16),
            Class::W => (768, 32),
            Class::A => (2048, 64),
        };
        Qr { class, shape: Shape::square(order, block) }
    }

    /// Creates the program for another matrix or grid.
    pub fn with_shape(shape: Shape) -> Qr {
        Qr { class: Class::default(), shape }
    }

    fn layout(&self, ranks: u32) -> Result<Layout, RanksError> {
        self.shape.layout(ranks)
    }

    fn owner(&self, rank: u32, ranks: u32) -> Owner {
        Owner { workload: STATE_ID, class: self.class, rank, ranks }
    }
}

/// Returns a rank's place.
fn place_of(layout: &Layout, rank: u32) -> Place {
    let columns = layout.grid().columns;
    Place { row: rank as usize / columns, column: rank as usize % columns }
}

/// Returns the rank at a place.
fn rank_of(layout: &Layout, place: Place) -> u32 {
    (place.row * layout.grid().columns + place.column) as u32
}

/// Sends numbers; they may be overwritten at once.
fn send(comm: &mut dyn Communicator, to: u32, tag: i32, values: &[f64]) -> Result<(), Error> {
    Ok(comm.send(to, tag, values.as_bytes())?)
}

/// Receives as many numbers as there are in `values`.
fn receive(comm: &mut dyn Communicator, from: u32, tag: i32, values: &mut [f64]) -> Result<(), Error> {
    let (status, bytes) = comm.recv(Some(from), Some(tag))?;
    Ok(fill_from_message(comm, (status.source, tag), &bytes, values, "a part of the matrix")?)
}

/// A rank's communication in a factorization.
struct Ranks<'a> {
    comm: &'a mut dyn Communicator,
    layout: &'a Layout,
    place: Place,
    owner: Owner,
    checkpoint_every: Option<u64>,
    /// This process's first iteration.
    begun: u64,
}

impl Ranks<'_> {
    fn rank_at(&self, row: usize, column: usize) -> u32 {
        rank_of(self.layout, Place { row, column })
    }
}

impl Communication for Ranks<'_> {
    type Error = Error;

    fn begin_iteration(&mut self, state: &State) -> Result<(), Error> {
        let done = state.done() as u64;
        if done > self.begun && checkpoint_due(self.comm, done, self.checkpoint_every) {
            self.comm.checkpoint(&encode(&self.owner, done, &body(state)))?;
        }
        Ok(self.comm.iteration(done + 1)?)
    }

    /// Sums up in process row order.
    fn sum_column(&mut self, values: &mut [f64]) -> Result<(), Error> {
        let (rows, Place { row, column }) = (self.layout.grid().rows, self.place);
        if rows == 1 {
            return Ok(());
        }
        let first = self.rank_at(0, column);
        if row > 0 {
            send(self.comm, first, SUM, values)?;
            return receive(self.comm, first, SUM, values);
        }
        let mut other = vec![0.0; values.len()];
        for row in 1..rows {
            let from = self.rank_at(row, column);
            receive(self.comm, from, SUM, &mut other)?;
            values.iter_mut().zip(&other).for_each(|(sum, other)| *sum += other);
        }
        for row in 1..rows {
            let to = self.rank_at(row, column);
            send(self.comm, to, SUM, values)?;
        }
        Ok(())
    }

    fn send_in_row(&mut self, column: usize, values: &[f64]) -> Result<(), Error> {
        let to = self.rank_at(self.place.row, column);
        send(self.comm, to, ROW, values)
    }

    fn receive_in_row(&mut self, column: usize, values: &mut [f64]) -> Result<(), Error> {
        let from = self.rank_at(self.place.row, column);
        receive(self.comm, from, ROW, values)
    }
}

/// Encodes a state: the length of its numbers, its numbers, and its values.
fn body(state: &State) -> Vec<u8> {
    let (shape, arrays) = state.parts();
    let mut body = (shape.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(shape.as_bytes());
    arrays.iter().for_each(|array| body.extend_from_slice((***array).as_bytes()));
    body
}

/// Decodes a state.
fn state_of_body(layout: &Layout, body: &[u8]) -> Result<State, StateError> {
    let short = || StateError::NotAState { len: body.len() };
    let (len, rest) = body.split_first_chunk::<8>().ok_or_else(short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok().and_then(|len| len.checked_mul(8)).ok_or_else(short)?;
    let (shape, mut rest) = rest.split_at_checked(len).ok_or_else(short)?;
    let state = State::from_parts(layout, &long_words(shape), |len| {
        let (bytes, after) = len.checked_mul(8).and_then(|len| rest.split_at_checked(len)).ok_or_else(short)?;
        rest = after;
        Ok::<_, StateError>(numbers(bytes, len)?.into())
    })?;
    state.filter(|_| rest.is_empty()).ok_or_else(short)
}

/// One rank's program, with its state.
#[derive(Debug)]
struct Factorization {
    program: Qr,
    checkpoint_every: Option<u64>,
    state: Option<State>,
    /// The state's numbers, while it is saved.
    numbers: Vec<u64>,
}

impl Factorization {
    fn new(program: &Qr, checkpoint_every: Option<u64>) -> Factorization {
        Factorization { program: program.clone(), checkpoint_every, state: None, numbers: Vec::new() }
    }

    /// Returns the state before the first iteration.
    fn start(&self, layout: &Layout, comm: &mut dyn Communicator) -> Result<State, Error> {
        let (place, elements) = (place_of(layout, comm.rank()), self.program.shape.elements);
        let mut largest = vec![0.0_f64; layout.size().columns];
        for block in layout.blocks_of(place.column) {
            for column in layout.columns(block) {
                largest[column] =
                    layout.rows_of(place.row).map(|row| elements.at(row, column).abs()).fold(0.0, f64::max);
            }
        }
        comm.allreduce_f64(&mut largest, Reduction::Max)?;
        let weights = largest.into_iter().map(weight).collect();
        Ok(State::new(layout, place, weights, |row, column| elements.at(row, column)))
    }

    /// Returns this rank's state to continue from, in memory outliving the process under a rule that keeps states
    /// there.
    fn begin_in_place(&self, layout: &Layout, comm: &mut dyn Communicator) -> Result<State, Error> {
        let place = comm.state_place();
        let mut state = match comm.restart()? {
            Some(restart) => rebuild::rebuild(layout, comm, restart, place.as_ref())?,
            None => self.begin(layout, comm)?,
        };
        if let Some(place) = place.filter(|place| !place.has_state()) {
            state.settle(place.create(State::memory_bytes_max(layout, state.place()))?)?;
        }
        Ok(state)
    }

    /// Returns this rank's state at its beginning.
    fn begin(&self, layout: &Layout, comm: &mut dyn Communicator) -> Result<State, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let Some(saved) = comm.restore()? else { return self.start(layout, comm) };
        let owner = self.program.owner(rank, ranks);
        let (_, body) = decode(&owner, self.program.iterations(rank, ranks), &saved)?;
        Ok(state_of_body(layout, body)?)
    }
}

impl Resilient for Factorization {
    fn run(&mut self, comm: &mut dyn Communicator) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let layout = self.program.layout(ranks)?;
        let begun = self.begin_in_place(&layout, comm)?;
        let state = self.state.insert(begun);
        comm.rebuilt()?;
        let owner = self.program.owner(rank, ranks);
        let place = place_of(&layout, rank);
        let (begun, checkpoint_every) = (state.done() as u64, self.checkpoint_every);
        let mut all = Ranks { comm, layout: &layout, place, owner, checkpoint_every, begun };
        factor(&layout, state, &mut all)?;
        let sum = |values: &mut [f64]| comm.allreduce_f64(values, Reduction::Sum);
        let elements = self.program.shape.elements;
        let found = verify::probe(&layout, state, |row, column| elements.at(row, column), sum)?;
        let (_, arrays) = state.parts();
        Ok(Outcome {
            verified: Some(found.factorization < RESIDUAL_MAX && found.orthogonality < RESIDUAL_MAX),
            value: Value::Text(format!("residuals {:.3}, {:.3}", found.factorization, found.orthogonality)),
            digest: digest(arrays[1]),
        })
    }

    fn regions(&mut self) -> Vec<&[u8]> {
        let Some(state) = &self.state else { return Vec::new() };
        let (shape, arrays) = state.parts();
        self.numbers = shape;
        std::iter::once(self.numbers.as_bytes()).chain(arrays.into_iter().map(|array| (**array).as_bytes())).collect()
    }
}

impl Workload for Qr {
    fn name(&self) -> &'static str {
        NAME
    }

    fn full_name(&self) -> String {
        self.shape.to_name()
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        self.layout(ranks).map(drop)
    }

    fn iterations(&self, rank: u32, ranks: u32) -> Iterations {
        let Ok(layout) = self.layout(ranks) else { return Iterations::exactly(0) };
        let column = place_of(&layout, rank).column;
        let works = |panel: &usize| !layout.updates_checksums() || layout.takes_part(column, *panel);
        Iterations::exactly((0..layout.panels()).filter(works).count() as u64)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        let Ok(layout) = self.layout(ranks) else { return 0 };
        let block = layout.size().block;
        // A block column; a panel's products with all columns; the verification sums.
        let held = layout.size().columns + 2 * layout.stripes().len() * block;
        let numbers = [layout.local_rows(0) * block, held * block, 2 * layout.size().rows + 1];
        8 * numbers.into_iter().max().unwrap_or_default()
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        Factorization::new(self, checkpoint_every).run(comm)
    }

    fn resilient(&self) -> Option<Box<dyn Resilient>> {
        Some(Box::new(Factorization::new(self, None)))
    }
}
