//! A process's state in a factorization: everything a replacement must be given.

mod saved;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use counterfoil_log_core::{StateMemory, StateMemoryError};

use crate::layout::{Layout, Place};
use crate::matrix::{Matrix, add_product};
use crate::memory::Values;
use crate::panel::Reflectors;

/// A process's block column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// Matrix block column, by its number.
    Data(usize),
    /// Checksum block column.
    Checksum {
        /// Its stripe.
        stripe: usize,
        /// Index in the stripe.
        copy: usize,
    },
}

/// Sum of the stripe members' V parts: a checksum's own rows say zero there.
#[derive(Clone, Debug, PartialEq)]
enum VectorSum {
    /// All rows.
    Whole(Matrix),
    /// Rows in the stripe's diagonal blocks: below, the sum has replaced the checksum.
    Diagonal(Matrix),
}

/// Undoable iteration.
#[derive(Clone, Debug, PartialEq)]
struct Applied {
    panel: usize,
    vectors: Matrix,
    /// T' V' X for the updated block columns.
    products: Matrix,
}

/// A process's state.
#[derive(Debug)]
pub struct State {
    place: Place,
    /// Data block columns ascending, and then checksums by descending stripe: an iteration updates adjacent ones.
    slots: Vec<Slot>,
    /// First column of each slot, and the end of the last one.
    offsets: Vec<usize>,
    values: Matrix,
    /// V sums for its checksums.
    vector_sums: BTreeMap<Slot, VectorSum>,
    /// Checksums that aren't updated: each stripe's sums before some iterations.
    sums: BTreeMap<usize, BTreeMap<usize, Matrix>>,
    /// Iteration of the newest sums.
    summed: usize,
    /// Power of two for each matrix column, near 1 / its norm, which a factorization keeps: a small column isn't lost
    /// in the rounding of a large one.
    weights: Values,
    /// T for the panels.
    factors: BTreeMap<usize, Matrix>,
    /// Next iteration.
    ///
    /// Where checksums are updated, it is the number of panels if the process has no more work.
    done: usize,
    /// The last iterations, oldest first.
    applied: VecDeque<Applied>,
    /// Own panels before their factorization.
    before: BTreeMap<usize, Matrix>,
    /// Memory for all values, if they outlive the process.
    memory: Option<StateMemory>,
}

/// Returns the weight of a column with the largest absolute value `largest`: 0 for one that is zero and stays so.
pub fn weight(largest: f64) -> f64 {
    if largest == 0.0 {
        0.0
    } else if largest.is_finite() {
        // Both the weight and its reciprocal are normal numbers.
        (-largest.log2().round()).clamp(-1022.0, 1022.0).exp2()
    } else {
        1.0
    }
}

impl State {
    /// Returns a process's state without values, before iteration `done`.
    pub(crate) fn empty(
        layout: &Layout,
        place: Place,
        weights: Vec<f64>,
        factors: BTreeMap<usize, Matrix>,
        done: usize,
    ) -> State {
        let mut slots = slots(layout, place);
        slots.retain(|slot| layout.updates_checksums() || matches!(slot, Slot::Data(_)));
        let mut offsets = vec![0];
        for slot in &slots {
            let width = match slot {
                Slot::Data(block) => layout.columns(*block).len(),
                Slot::Checksum { .. } => layout.size().block,
            };
            offsets.push(offsets[offsets.len() - 1] + width);
        }
        let values = Matrix::zeros(layout.local_rows(place.row), offsets[slots.len()]);
        let mut state = State {
            place,
            slots,
            offsets,
            values,
            vector_sums: BTreeMap::new(),
            sums: BTreeMap::new(),
            summed: done,
            weights: weights.into(),
            factors,
            done: 0,
            applied: VecDeque::new(),
            before: BTreeMap::new(),
            memory: None,
        };
        state.set_done(layout, done);
        state
    }

    /// Returns the state before the first iteration, for the matrix `value(row, column)` with these weights.
    pub fn new(layout: &Layout, place: Place, weights: Vec<f64>, value: impl Fn(usize, usize) -> f64) -> State {
        let mut state = State::empty(layout, place, weights, BTreeMap::new(), 0);
        for slot in slots(layout, place) {
            let (members, width) = match slot {
                Slot::Data(block) => (block..block + 1, layout.columns(block).len()),
                Slot::Checksum { stripe, .. } => (layout.stripes()[stripe].members.clone(), layout.size().block),
            };
            let mut sum = Matrix::zeros(state.values.rows(), width);
            for (at, column) in members.flat_map(|block| layout.columns(block).enumerate()) {
                let weight = if let Slot::Data(_) = slot { 1.0 } else { state.weights[column] };
                for (row, target) in layout.rows_of(place.row).zip(sum.column_mut(at)) {
                    *target += weight * value(row, column);
                }
            }
            state.put(slot, sum);
        }
        state
    }

    /// Returns the process's place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the next iteration.
    ///
    /// Where checksums are updated, it is the number of panels for a process without more work.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the iteration before which this process knows its checksums.
    pub fn protected(&self, layout: &Layout) -> usize {
        if layout.updates_checksums() { self.done } else { self.summed }
    }

    /// Returns the matrix columns' weights.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns T for the panels in whose iterations this process has taken part.
    pub fn factors(&self) -> &BTreeMap<usize, Matrix> {
        &self.factors
    }

    fn position(&self, slot: Slot) -> Option<usize> {
        self.slots.iter().position(|own| *own == slot)
    }

    /// Returns the values of a block column, or of an updated checksum, if this process has it.
    pub fn get(&self, slot: Slot) -> Option<Matrix> {
        let at = self.position(slot)?;
        Some(self.values.copy(self.offsets[at]..self.offsets[at + 1]))
    }

    /// Returns a data block column's columns, if this process has it.
    pub(crate) fn data_columns(&self, block: usize) -> Option<impl Iterator<Item = &[f64]>> {
        let at = self.position(Slot::Data(block))?;
        Some((self.offsets[at]..self.offsets[at + 1]).map(|column| self.values.column(column)))
    }

    pub(crate) fn put(&mut self, slot: Slot, values: Matrix) {
        match (self.position(slot), slot) {
            (Some(at), _) => self.values.put(self.offsets[at], &values),
            (None, Slot::Checksum { stripe, .. }) => self.store_sum(stripe, self.summed, values),
            (None, Slot::Data(_)) => {}
        }
    }

    pub(crate) fn set_done(&mut self, layout: &Layout, done: usize) {
        let has_work = !layout.updates_checksums() || layout.takes_part(self.place.column, done);
        self.done = if has_work { done } else { layout.panels() };
    }

    /// Ends an iteration without work for the process.
    pub(crate) fn skip(&mut self, layout: &Layout) -> Result<(), StateMemoryError> {
        self.set_done(layout, self.done + 1);
        self.publish()
    }

    /// Stores the sum of a stripe's block columns before an iteration.
    pub(crate) fn store_sum(&mut self, stripe: usize, panel: usize, sum: Matrix) {
        self.sums.entry(stripe).or_default().insert(panel, sum);
    }

    /// Ends the summation before an iteration.
    pub(crate) fn end_sums(&mut self, layout: &Layout, panel: usize) -> Result<(), StateMemoryError> {
        self.summed = panel;
        if let Some(oldest) = panel.checked_sub(layout.sums_window()) {
            for sums in self.sums.values_mut() {
                // One sum of a complete stripe stays.
                while sums.len() > 1 && sums.first_key_value().is_some_and(|(at, _)| *at <= oldest) {
                    sums.pop_first();
                }
            }
        }
        self.publish()
    }

    /// Returns the slots updated in an iteration: data to the right, and checksums of incomplete stripes.
    ///
    /// The panel's own checksum is among them: it protects the panel's R.
    fn updated(&self, layout: &Layout, panel: usize) -> Range<usize> {
        let is_before = |slot: &&Slot| matches!(slot, Slot::Data(block) if *block <= panel);
        let is_complete =
            |slot: &&Slot| matches!(slot, Slot::Checksum { stripe, .. } if layout.stripes()[*stripe].last() < panel);
        let first = self.slots.iter().take_while(is_before).count();
        first..self.slots.len() - self.slots.iter().rev().take_while(is_complete).count()
    }

    /// Returns the columns updated in an iteration.
    pub(crate) fn updated_columns(&self, layout: &Layout, panel: usize) -> Range<usize> {
        let slots = self.updated(layout, panel);
        self.offsets[slots.start]..self.offsets[slots.end]
    }

    /// Registers an own panel before its first change, and returns a copy to factor.
    pub(crate) fn begin_panel(&mut self, panel: usize) -> Matrix {
        let values = self.get(Slot::Data(panel)).expect("the process column of the panel");
        self.before.insert(panel, values.clone());
        values
    }

    /// Stores a factored own panel.
    pub(crate) fn end_panel(&mut self, panel: usize, values: Matrix) -> Result<(), StateMemoryError> {
        self.begin_change();
        self.put(Slot::Data(panel), values);
        self.publish()
    }

    /// Returns this process's summand for V' X.
    pub(crate) fn products(&self, layout: &Layout, panel: usize, vectors: &Matrix) -> Matrix {
        let first = self.values.rows() - vectors.rows();
        let updated = self.values.part(first, self.updated_columns(layout, panel));
        Matrix::product(vectors.whole().transpose(), updated)
    }

    /// Ends an iteration: X - V T' (V' X), after summing up the summands of V' X.
    pub(crate) fn apply(
        &mut self,
        layout: &Layout,
        panel: usize,
        reflectors: Reflectors,
        sums: &Matrix,
    ) -> Result<(), StateMemoryError> {
        self.begin_change();
        let Reflectors { vectors, factor } = reflectors;
        let products = Matrix::product(factor.whole().transpose(), sums.whole());
        let applied = Applied { panel, vectors, products };
        self.update(layout, &applied, -1.0);
        self.applied.push_back(applied);
        self.factors.insert(panel, factor);
        self.set_done(layout, panel + 1);
        let oldest = panel.saturating_sub(layout.window());
        while self.applied.front().is_some_and(|applied| applied.panel < oldest) {
            self.applied.pop_front();
        }
        self.before = self.before.split_off(&oldest);
        if let Some(complete) = panel.checked_sub(layout.window()) {
            self.retire(layout, complete);
        }
        self.publish()
    }

    /// Applies an iteration, or with the sign +1 undoes it.
    fn update(&mut self, layout: &Layout, applied: &Applied, sign: f64) {
        let Applied { panel, vectors, products } = applied;
        let first = self.values.rows() - vectors.rows();
        let columns = self.updated_columns(layout, *panel);
        add_product(self.values.part_mut(first, columns), sign, vectors.whole(), products.whole());
        let (stripe, top) = (layout.stripe_of(*panel), panel * layout.size().block);
        let (rows, block) = (self.values.rows(), layout.size().block);
        for slot in held(layout, self.place.column) {
            if !matches!(slot, Slot::Checksum { stripe: of, .. } if of == stripe) {
                continue;
            }
            let empty = || VectorSum::Whole(Matrix::zeros(rows, block));
            let VectorSum::Whole(sum) = self.vector_sums.entry(slot).or_insert_with(empty) else { continue };
            for column in 0..vectors.columns() {
                let below = layout.rows_above(self.place.row, top + column + 1);
                let (from, into) = (vectors.column(column), sum.column_mut(column));
                into[below..].iter_mut().zip(&from[below - first..]).for_each(|(into, from)| *into -= sign * from);
            }
        }
    }

    /// Goes back to the state before iteration `to`.
    ///
    /// # Errors
    /// See [`settle`](State::settle).
    pub fn undo(&mut self, layout: &Layout, to: usize) -> Result<(), StateMemoryError> {
        // From the first publication on: between two sums nothing protects the state.
        self.summed = self.summed.min(to);
        loop {
            let applied = self.applied.back().map(|applied| applied.panel).filter(|panel| *panel >= to);
            let begun = self.before.last_key_value().map(|(panel, _)| *panel).filter(|panel| *panel >= to);
            let Some(panel) = applied.max(begun) else { break };
            self.begin_change();
            // A panel was begun after the iterations before it, and before its own, which doesn't update it.
            if begun >= applied {
                let (panel, values) = self.before.pop_last().expect("a panel that was begun");
                self.put(Slot::Data(panel), values);
            }
            if applied >= begun {
                let applied = self.applied.pop_back().expect("an iteration that was applied");
                self.update(layout, &applied, 1.0);
            }
            self.forget(layout, panel);
            self.publish()?;
        }
        self.forget(layout, to);
        self.publish()
    }

    /// Forgets data added by iterations from `to` on, after they are undone.
    fn forget(&mut self, layout: &Layout, to: usize) {
        self.factors.split_off(&to);
        self.sums.values_mut().for_each(|sums| drop(sums.split_off(&(to + 1))));
        self.summed = self.summed.min(to);
        self.set_done(layout, to);
    }

    /// Stores the V sums in the checksum rows that have become noise, for stripes no undo changes any more.
    ///
    /// The rows in the stripe's own diagonal blocks keep both sums: V is of order one, and R of the matrix's order.
    pub(crate) fn retire(&mut self, layout: &Layout, complete: usize) {
        for (slot, sum) in &mut self.vector_sums {
            let Some(at) = self.slots.iter().position(|own| own == slot) else { continue };
            let (Slot::Checksum { stripe, .. }, VectorSum::Whole(whole)) = (*slot, &*sum) else { continue };
            if layout.stripes()[stripe].last() > complete {
                continue;
            }
            let diagonal = diagonal_rows(layout, self.place.row, stripe);
            let mut kept = Matrix::zeros(diagonal.len(), whole.columns());
            for column in 0..whole.columns() {
                let from = whole.column(column);
                kept.column_mut(column).copy_from_slice(&from[diagonal.clone()]);
                let target = self.values.column_mut(self.offsets[at] + column);
                target[diagonal.end..].copy_from_slice(&from[diagonal.end..]);
            }
            *sum = VectorSum::Diagonal(kept);
        }
    }

    pub(crate) fn set_vector_sum(&mut self, slot: Slot, sum: Matrix) {
        self.vector_sums.insert(slot, VectorSum::Whole(sum));
    }

    /// Returns a checksum's two sums: R parts, or whole unfactored block columns, and V parts.
    pub(crate) fn sums(&self, layout: &Layout, slot: Slot) -> Option<(Matrix, Matrix)> {
        let Slot::Checksum { stripe, .. } = slot else { return None };
        let newest = || Some(self.sums.get(&stripe)?.last_key_value()?.1.clone());
        let upper = self.get(slot).or_else(newest)?;
        let vectors = match self.vector_sums.get(&slot) {
            None => Matrix::zeros(upper.rows(), upper.columns()),
            Some(VectorSum::Whole(sum)) => sum.clone(),
            Some(VectorSum::Diagonal(sum)) => {
                let diagonal = diagonal_rows(layout, self.place.row, stripe);
                let mut vectors = Matrix::zeros(upper.rows(), upper.columns());
                for column in 0..vectors.columns() {
                    let into = vectors.column_mut(column);
                    // Below, no member has a part of R.
                    into[diagonal.end..].copy_from_slice(&upper.column(column)[diagonal.end..]);
                    into[diagonal.clone()].copy_from_slice(sum.column(column));
                }
                vectors
            }
        };
        Some((upper, vectors))
    }
}

/// Returns a process's block columns and checksums, data first.
pub fn slots(layout: &Layout, place: Place) -> Vec<Slot> {
    layout.blocks_of(place.column).map(Slot::Data).chain(held(layout, place.column)).collect()
}

/// Returns a process column's checksums, by descending stripe.
fn held(layout: &Layout, column: usize) -> impl Iterator<Item = Slot> {
    layout.stripes().iter().enumerate().rev().flat_map(move |(stripe, of)| {
        let copies = of.holders.iter().enumerate().filter(move |(_, holder)| **holder == column);
        copies.map(move |(copy, _)| Slot::Checksum { stripe, copy })
    })
}

/// Returns a process row's rows in a stripe's diagonal blocks.
fn diagonal_rows(layout: &Layout, process_row: usize, stripe: usize) -> Range<usize> {
    let members = &layout.stripes()[stripe].members;
    let first = members.start * layout.size().block;
    let end = layout.columns(members.end - 1).end;
    layout.rows_above(process_row, first)..layout.rows_above(process_row, end)
}
