//! State as numbers and arrays, to be saved and loaded, or kept in memory outliving the process.

use std::collections::BTreeMap;

use counterfoil_log_core::{FoundState, StateMemory, StateMemoryError};

use super::{Applied, Slot, State, VectorSum};
use crate::layout::{Layout, Place};
use crate::matrix::Matrix;
use crate::memory::Values;

impl State {
    /// Returns the state's numbers, and its values in their arrays, as needed by [`State::from_parts`].
    pub fn parts(&self) -> (Vec<u64>, Vec<&Values>) {
        let mut numbers = vec![self.place.row, self.place.column, self.done, self.summed];
        let mut matrices = vec![&self.values];
        numbers.push(self.vector_sums.len());
        for (slot, sum) in &self.vector_sums {
            let Slot::Checksum { stripe, copy } = *slot else { continue };
            let (is_whole, matrix) = match sum {
                VectorSum::Whole(matrix) => (1, matrix),
                VectorSum::Diagonal(matrix) => (0, matrix),
            };
            numbers.extend([stripe, copy, is_whole]);
            matrices.push(matrix);
        }
        let sums =
            || self.sums.iter().flat_map(|(stripe, sums)| sums.iter().map(|(panel, sum)| (*stripe, *panel, sum)));
        numbers.push(sums().count());
        for (stripe, panel, sum) in sums() {
            numbers.extend([stripe, panel]);
            matrices.push(sum);
        }
        for by_panel in [&self.factors, &self.before] {
            numbers.push(by_panel.len());
            numbers.extend(by_panel.keys());
            matrices.extend(by_panel.values());
        }
        numbers.push(self.applied.len());
        for Applied { panel, vectors, products } in &self.applied {
            numbers.push(*panel);
            matrices.extend([vectors, products]);
        }
        numbers.extend(matrices.iter().flat_map(|matrix| [matrix.rows(), matrix.columns()]));
        let arrays = std::iter::once(&self.weights).chain(matrices.iter().map(|matrix| matrix.memory()));
        (numbers.into_iter().map(|number| number as u64).collect(), arrays.collect())
    }

    /// Creates a state from its [`parts`](State::parts).
    ///
    /// `next` returns the arrays with these lengths, in the same order. Returns `None` if the numbers don't describe a
    /// state with this layout, or an array has another length.
    ///
    /// # Errors
    /// Errors from `next`.
    pub fn from_parts<E>(
        layout: &Layout,
        numbers: &[u64],
        mut next: impl FnMut(usize) -> Result<Values, E>,
    ) -> Result<Option<State>, E> {
        let Some(shape) = Shape::parse(layout, numbers) else { return Ok(None) };
        let weights = next(layout.size().columns)?;
        if weights.len() != layout.size().columns {
            return Ok(None);
        }
        let mut matrices = Vec::with_capacity(shape.sizes.len());
        for (rows, columns) in shape.sizes {
            // Each is below its limit, and these count blocks and rows.
            let Some(matrix) = Matrix::from_values(rows, columns, next(rows * columns)?) else { return Ok(None) };
            matrices.push(matrix);
        }
        let mut matrices = matrices.into_iter();
        let mut next = || matrices.next().unwrap_or_default();
        let mut state = State::empty(layout, shape.place, Vec::new(), BTreeMap::new(), shape.done);
        state.weights = weights;
        state.values = next();
        for (slot, is_whole) in shape.vector_sums {
            let sum = if is_whole { VectorSum::Whole(next()) } else { VectorSum::Diagonal(next()) };
            state.vector_sums.insert(slot, sum);
        }
        for (stripe, panel) in shape.sums {
            state.store_sum(stripe, panel, next());
        }
        state.factors = shape.factors.into_iter().map(|panel| (panel, next())).collect();
        state.before = shape.before.into_iter().map(|panel| (panel, next())).collect();
        state.applied = shape
            .applied
            .into_iter()
            .map(|panel| {
                let vectors = next();
                Applied { panel, vectors, products: next() }
            })
            .collect();
        (state.done, state.summed) = (shape.done, shape.summed);
        Ok(Some(state))
    }

    /// Moves all values to memory outliving the process: each change to the state is published there from now on.
    ///
    /// # Errors
    /// [`StateMemoryError`] if the memory is full, as for each later change.
    pub fn settle(&mut self, memory: StateMemory) -> Result<(), StateMemoryError> {
        self.memory = Some(memory);
        self.publish()
    }

    /// Returns the state left by another process.
    ///
    /// Returns `None` if it doesn't have this layout.
    pub fn found(layout: &Layout, found: FoundState<f64>) -> Option<State> {
        let mut arrays = found.arrays.into_iter();
        let next = |_| Ok::<_, std::convert::Infallible>(arrays.next().map_or_else(Values::default, Values::Shared));
        let Ok(state) = State::from_parts(layout, &found.words, next);
        let memory = Some(found.memory);
        state.filter(|_| arrays.next().is_none()).map(|state| State { memory, ..state })
    }

    /// Returns the largest number of bytes of [memory](State::settle) needed by a process.
    pub fn memory_bytes_max(layout: &Layout, place: Place) -> usize {
        let (block, rows, kept) = (layout.size().block, layout.local_rows(place.row), layout.window() + 1);
        let held = super::held(layout, place.column).count();
        let columns = (layout.blocks_of(place.column).count() + held) * block;
        let of_checksums = held * block * rows * (1 + layout.sums_max());
        let of_iterations = kept * (block * rows * 2 + block * columns) + layout.panels() * block * block;
        let numbers = layout.size().columns + rows * columns + of_checksums + of_iterations;
        // Twice: ranges between arrays can be too short for others.
        2 * 8 * numbers + (1 << 20)
    }

    /// Marks the state as being changed, in memory outliving the process.
    pub(super) fn begin_change(&self) {
        if let Some(memory) = &self.memory {
            memory.begin_change();
        }
    }

    /// Publishes the state in memory outliving the process.
    pub(super) fn publish(&mut self) -> Result<(), StateMemoryError> {
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        self.weights.settle(&memory)?;
        self.matrices_mut().try_for_each(|matrix| matrix.memory_mut().settle(&memory))?;
        let (numbers, arrays) = self.parts();
        let arrays: Vec<_> = arrays.into_iter().filter_map(Values::shared).collect();
        memory.publish(&numbers, arrays.into_iter())
    }

    fn matrices_mut(&mut self) -> impl Iterator<Item = &mut Matrix> {
        let vector_sums = self.vector_sums.values_mut().map(|sum| match sum {
            VectorSum::Whole(matrix) | VectorSum::Diagonal(matrix) => matrix,
        });
        std::iter::once(&mut self.values)
            .chain(vector_sums)
            .chain(self.sums.values_mut().flat_map(BTreeMap::values_mut))
            .chain(self.factors.values_mut())
            .chain(self.before.values_mut())
            .chain(self.applied.iter_mut().flat_map(|applied| [&mut applied.vectors, &mut applied.products]))
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.parts() == other.parts()
    }
}

/// A state's numbers.
struct Shape {
    place: Place,
    done: usize,
    summed: usize,
    vector_sums: Vec<(Slot, bool)>,
    sums: Vec<(usize, usize)>,
    factors: Vec<usize>,
    before: Vec<usize>,
    applied: Vec<usize>,
    /// Rows and columns of each matrix.
    sizes: Vec<(usize, usize)>,
}

impl Shape {
    fn parse(layout: &Layout, numbers: &[u64]) -> Option<Shape> {
        let mut numbers = numbers.iter().map(|number| usize::try_from(*number).unwrap_or(usize::MAX));
        let (grid, most) = (layout.grid(), layout.blocks().max(layout.panels()));
        // Below the limit, like the numbers of blocks, panels and stripes.
        let mut next = |limit: usize| numbers.next().filter(|number| *number <= limit);
        let place = Place { row: next(grid.rows - 1)?, column: next(grid.columns - 1)? };
        let (done, summed) = (next(most)?, next(most)?);
        let stripes = layout.stripes().len();
        let count = next(2 * stripes)?;
        let mut vector_sums = Vec::new();
        for _ in 0..count {
            let slot = Slot::Checksum { stripe: next(stripes - 1)?, copy: next(1)? };
            vector_sums.push((slot, next(1)? == 1));
        }
        let count = next(stripes * (most + 1))?;
        let mut sums = Vec::new();
        for _ in 0..count {
            sums.push((next(stripes - 1)?, next(most)?));
        }
        let mut panels = || {
            let count = next(most)?;
            (0..count).map(|_| next(most)).collect::<Option<Vec<usize>>>()
        };
        let (factors, before, applied) = (panels()?, panels()?, panels()?);
        let matrices = 1 + vector_sums.len() + sums.len() + factors.len() + before.len() + 2 * applied.len();
        let largest = layout.size().rows.max(layout.size().columns + 2 * layout.stripes().len() * layout.size().block);
        let sizes = (0..matrices).map(|_| Some((next(largest)?, next(largest)?))).collect::<Option<Vec<_>>>()?;
        let shape = Shape { place, done, summed, vector_sums, sums, factors, before, applied, sizes };
        let empty = State::empty(layout, place, vec![0.0; layout.size().columns], BTreeMap::new(), 0);
        let is_whole = shape.sizes.first() == Some(&(empty.values.rows(), empty.values.columns()));
        (is_whole && numbers.next().is_none()).then_some(shape)
    }
}
