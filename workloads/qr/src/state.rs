//! What a process has of a factorization: all that a replacement must be given.

mod saved;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use counterfoil_log_core::{StateMemory, StateMemoryError};

use crate::layout::{Layout, Place};
use crate::matrix::{Matrix, add_product};
use crate::memory::Values;
use crate::panel::Reflectors;

/// A block column of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// A block column of the matrix, by its number.
    Data(usize),
    /// A checksum.
    Checksum {
        /// Its stripe.
        stripe: usize,
        /// Which one of the stripe.
        copy: usize,
    },
}

/// Sum of the V parts of a stripe's members: a checksum's own rows say zero where they are.
#[derive(Clone, Debug, PartialEq)]
enum VectorSum {
    /// Of all rows.
    Whole(Matrix),
    /// Of the rows of the stripe's diagonal blocks: below, the checksum has been replaced by it.
    Diagonal(Matrix),
}

/// An iteration that can be undone.
#[derive(Clone, Debug, PartialEq)]
struct Applied {
    panel: usize,
    vectors: Matrix,
    /// T' V' X of the block columns that were updated.
    products: Matrix,
}

/// State of a process.
#[derive(Debug)]
pub struct State {
    place: Place,
    /// Data block columns ascending, and then checksums by descending stripe: an iteration updates adjacent ones.
    slots: Vec<Slot>,
    /// First column of each slot, and the end of the last one.
    offsets: Vec<usize>,
    values: Matrix,
    /// Of the checksums that it has.
    vector_sums: BTreeMap<Slot, VectorSum>,
    /// Checksums that aren't updated: of each stripe, the sums before some iterations.
    sums: BTreeMap<usize, BTreeMap<usize, Matrix>>,
    /// Iteration of the newest sums.
    summed: usize,
    /// Power of two of each matrix column, near 1 / its norm, which a factorization keeps: a small column isn't lost in
    /// the rounding of a large one.
    weights: Values,
    /// T of the panels.
    factors: BTreeMap<usize, Matrix>,
    /// Next iteration. Where checksums are updated, it is the number of panels if the process has no more work.
    done: usize,
    /// The last iterations, oldest first.
    applied: VecDeque<Applied>,
    /// Own panels as they were before their factorization.
    before: BTreeMap<usize, Matrix>,
    /// Where all values are, if they outlive the process.
    memory: Option<StateMemory>,
}

/// Returns the weight of a column whose largest absolute value is `largest`: 0 of one that is zero and stays so.
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
    /// Returns the state of a process without values, before iteration `done`.
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

    /// Returns the state before the first iteration, of the matrix `value(row, column)` with these weights.
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

    /// Returns the next iteration. Where checksums are updated, that of a process without more work is the number of
    /// panels.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the iteration before which this process knows its checksums.
    pub fn protected(&self, layout: &Layout) -> usize {
        if layout.updates_checksums() { self.done } else { self.summed }
    }

    /// Returns the weights of the matrix columns.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Returns T of the panels in whose iterations this process has taken part.
    pub fn factors(&self) -> &BTreeMap<usize, Matrix> {
        &self.factors
    }

    fn position(&self, slot: Slot) -> Option<usize> {
        self.slots.iter().position(|own| *own == slot)
    }

    /// Returns the values of a block column, or of a checksum that is updated, if this process has it.
    pub fn get(&self, slot: Slot) -> Option<Matrix> {
        let at = self.position(slot)?;
        Some(self.values.copy(self.offsets[at]..self.offsets[at + 1]))
    }

    /// Returns the columns of a data block column, if this process has it.
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

    /// Ends an iteration in which the process has no work.
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
                // One of a complete stripe stays.
                while sums.len() > 1 && sums.first_key_value().is_some_and(|(at, _)| *at <= oldest) {
                    sums.pop_first();
                }
            }
        }
        self.publish()
    }

    /// Returns the slots that an iteration updates: data to the right, and checksums of stripes that aren't complete.
    /// The one of the panel itself is among them: it protects the panel's R.
    fn updated(&self, layout: &Layout, panel: usize) -> Range<usize> {
        let is_before = |slot: &&Slot| matches!(slot, Slot::Data(block) if *block <= panel);
        let is_complete =
            |slot: &&Slot| matches!(slot, Slot::Checksum { stripe, .. } if layout.stripes()[*stripe].last() < panel);
        let first = self.slots.iter().take_while(is_before).count();
        first..self.slots.len() - self.slots.iter().rev().take_while(is_complete).count()
    }

    /// Returns the columns that an iteration updates.
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

    /// Stores an own panel that is factored.
    pub(crate) fn end_panel(&mut self, panel: usize, values: Matrix) -> Result<(), StateMemoryError> {
        self.begin_change();
        self.put(Slot::Data(panel), values);
        self.publish()
    }

    /// Returns this process's summand of V' X.
    pub(crate) fn products(&self, layout: &Layout, panel: usize, vectors: &Matrix) -> Matrix {
        let first = self.values.rows() - vectors.rows();
        let updated = self.values.part(first, self.updated_columns(layout, panel));
        Matrix::product(vectors.whole().transpose(), updated)
    }

    /// Ends an iteration: X - V T' (V' X), where the summands of V' X have been summed up.
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
    /// As of [`settle`](State::settle).
    pub fn undo(&mut self, layout: &Layout, to: usize) -> Result<(), StateMemoryError> {
        // From the first publication on: between two sums there is nothing that protects the state.
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

    /// Forgets what iterations from `to` on have added, after they are undone.
    fn forget(&mut self, layout: &Layout, to: usize) {
        self.factors.split_off(&to);
        self.sums.values_mut().for_each(|sums| drop(sums.split_off(&(to + 1))));
        self.summed = self.summed.min(to);
        self.set_done(layout, to);
    }

    /// Stores the sums of V parts in the rows of checksums that have become noise, of stripes that no undo changes any
    /// more. The rows of the stripe's own diagonal blocks keep both sums: V is of order one, and R of the order of the
    /// matrix.
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

    /// Returns the two sums of a checksum: of R parts, or whole block columns that aren't factored, and of V parts.
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

/// Returns the block columns and checksums of a process, data first.
pub fn slots(layout: &Layout, place: Place) -> Vec<Slot> {
    layout.blocks_of(place.column).map(Slot::Data).chain(held(layout, place.column)).collect()
}

/// Returns the checksums of a process column, by descending stripe.
fn held(layout: &Layout, column: usize) -> impl Iterator<Item = Slot> {
    layout.stripes().iter().enumerate().rev().flat_map(move |(stripe, of)| {
        let copies = of.holders.iter().enumerate().filter(move |(_, holder)| **holder == column);
        copies.map(move |(copy, _)| Slot::Checksum { stripe, copy })
    })
}

/// Returns a process row's rows of a stripe's diagonal blocks.
fn diagonal_rows(layout: &Layout, process_row: usize, stripe: usize) -> Range<usize> {
    let members = &layout.stripes()[stripe].members;
    let first = members.start * layout.size().block;
    let end = layout.columns(members.end - 1).end;
    layout.rows_above(process_row, first)..layout.rows_above(process_row, end)
}
