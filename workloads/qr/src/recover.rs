//! Recovery of lost processes from checksums.
//!
//! 1. All agree on the state to go back to: the earliest one with checksums known to a survivor ([`State::protected`]).
//!    A survivor without work delays no one.
//! 2. Each survivor undoes its iterations from there on, without a message ([`State::undo`]).
//! 3. In each process row with a lost process, the survivors sum up their parts of each of its block columns
//!    ([`add_contribution`]), and the replacement makes its state from the sums ([`Replacement`]).

use std::collections::BTreeMap;

use crate::layout::{Layout, Place};
use crate::matrix::Matrix;
use crate::state::{Slot, State};

/// Process row with more than one lost process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checksums survive one lost process in each process row: {} are lost in row {row}", columns.len())]
pub struct Unrecoverable {
    /// The first such process row.
    pub row: usize,
    /// Its lost processes' columns, ascending.
    pub columns: Vec<usize>,
}

/// Checks that lost processes can be replaced.
///
/// # Errors
/// [`Unrecoverable`].
pub fn check(layout: &Layout, lost: &[Place]) -> Result<(), Unrecoverable> {
    let is_protected = layout.stripes().iter().all(|stripe| !stripe.holders.is_empty());
    for row in 0..layout.grid().rows {
        let mut columns: Vec<usize> = lost.iter().filter(|place| place.row == row).map(|place| place.column).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.len() > usize::from(is_protected) {
            return Err(Unrecoverable { row, columns });
        }
    }
    Ok(())
}

/// Known parts of a block column: its R part, or all of it if it isn't factored, and its V part.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// R part, in weighted full-width columns.
    pub upper: Matrix,
    /// V part.
    pub vectors: Matrix,
}

impl Parts {
    /// Returns an empty sum.
    pub fn zeros(layout: &Layout, process_row: usize) -> Parts {
        let none = || Matrix::zeros(layout.local_rows(process_row), layout.size().block);
        Parts { upper: none(), vectors: none() }
    }

    /// Clears the sum.
    pub fn clear(&mut self) {
        self.upper.values_mut().fill(0.0);
        self.vectors.values_mut().fill(0.0);
    }

    /// Adds another summand.
    pub fn add(&mut self, other: &Parts) {
        self.upper.add(1.0, &other.upper);
        self.vectors.add(1.0, &other.vectors);
    }

    /// Adds `factor` times a data block column's parts, as in its checksum before iteration `to`, if the process has
    /// it.
    fn add_data(&mut self, factor: f64, layout: &Layout, state: &State, block: usize, to: usize) {
        let Some(columns) = state.data_columns(block) else { return };
        for (at, (column, values)) in layout.columns(block).zip(columns).enumerate() {
            let below = if block < to { layout.rows_above(state.place().row, column + 1) } else { values.len() };
            let weight = factor * state.weights()[column];
            let upper = self.upper.column_mut(at).iter_mut().zip(&values[..below]);
            upper.for_each(|(sum, value)| *sum += weight * value);
            let vectors = self.vectors.column_mut(at)[below..].iter_mut().zip(&values[below..]);
            vectors.for_each(|(sum, value)| *sum += factor * value);
        }
    }
}

/// Writes a data block column's R part, or all of it if it isn't factored before iteration `to`, in weighted full-width
/// columns.
///
/// Returns `false` if the process doesn't have it.
pub(crate) fn write_upper(into: &mut Matrix, layout: &Layout, state: &State, block: usize, to: usize) -> bool {
    let Some(columns) = state.data_columns(block) else { return false };
    let mut written = 0;
    for (at, (column, values)) in layout.columns(block).zip(columns).enumerate() {
        let below = if block < to { layout.rows_above(state.place().row, column + 1) } else { values.len() };
        let weight = state.weights()[column];
        let (target, rest) = into.column_mut(at).split_at_mut(below);
        target.iter_mut().zip(values).for_each(|(into, from)| *into = weight * from);
        rest.fill(0.0);
        written = at + 1;
    }
    (written..into.columns()).for_each(|at| into.column_mut(at).fill(0.0));
    true
}

/// Adds a survivor's summand for a block column lost in its process row, before iteration `to`, to which it has gone
/// back.
///
/// The sum of the row's summands, in any fixed order, gives the block column's parts.
pub fn add_contribution(sum: &mut Parts, layout: &Layout, state: &State, lost: Slot, to: usize) {
    match lost {
        Slot::Data(block) => {
            let (number, column) = (layout.stripe_of(block), layout.column_of(block));
            let stripe = &layout.stripes()[number];
            // One of its checksums, on another process column.
            let copy = stripe.holders.iter().position(|holder| *holder != column);
            let slot = copy.map(|copy| Slot::Checksum { stripe: number, copy });
            if let Some((upper, vectors)) = slot.and_then(|slot| state.sums(layout, slot)) {
                sum.add(&Parts { upper, vectors });
            }
            for other in stripe.members.clone().filter(|other| *other != block) {
                sum.add_data(-1.0, layout, state, other, to);
            }
        }
        Slot::Checksum { stripe, .. } => {
            for block in layout.stripes()[stripe].members.clone() {
                sum.add_data(1.0, layout, state, block, to);
            }
        }
    }
}

/// State of a process replacing a lost one.
#[derive(Debug)]
pub struct Replacement<'l> {
    layout: &'l Layout,
    state: State,
    to: usize,
}

impl<'l> Replacement<'l> {
    /// Begins with data common to all survivors: the column weights, and T for the panels before iteration `to`.
    pub fn new(
        layout: &'l Layout,
        place: Place,
        weights: Vec<f64>,
        factors: BTreeMap<usize, Matrix>,
        to: usize,
    ) -> Self {
        Replacement { layout, state: State::empty(layout, place, weights, factors, to), to }
    }

    /// Stores a block column, given in `sum` as the sum of the process row's contributions.
    ///
    /// Call it for each of the process's [`slots`](crate::state::slots), in order.
    pub fn store(&mut self, slot: Slot, sum: &mut Parts) {
        match slot {
            Slot::Data(block) => {
                let row = self.state.place().row;
                let columns = self.layout.columns(block);
                let mut values = Matrix::zeros(sum.upper.rows(), columns.len());
                for (at, column) in columns.enumerate() {
                    let weight = self.state.weights()[column];
                    let target = values.column_mut(at);
                    let below = if block < self.to { self.layout.rows_above(row, column + 1) } else { target.len() };
                    let (upper, vectors) = (sum.upper.column(at), sum.vectors.column(at));
                    let restore = |value: &f64| if weight == 0.0 { 0.0 } else { value / weight };
                    target[..below].iter_mut().zip(upper).for_each(|(into, from)| *into = restore(from));
                    target[below..].copy_from_slice(&vectors[below..]);
                }
                self.state.put(slot, values);
            }
            Slot::Checksum { .. } => {
                // A member may be on the same process.
                add_contribution(sum, self.layout, &self.state, slot, self.to);
                self.state.put(slot, sum.upper.clone());
                self.state.set_vector_sum(slot, sum.vectors.clone());
            }
        }
    }

    /// Returns the state, when all are stored.
    pub fn finish(mut self) -> State {
        // No process goes back to an earlier state.
        if let Some(last) = self.to.checked_sub(1) {
            self.state.retire(self.layout, last);
        }
        self.state
    }
}
