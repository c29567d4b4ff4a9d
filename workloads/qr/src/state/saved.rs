//! A state as numbers and arrays, to be saved and loaded.

use std::collections::BTreeMap;

use super::{Applied, Slot, State, VectorSum};
use crate::layout::{Layout, Place};
use crate::matrix::Matrix;

impl State {
    /// Returns the state's numbers, and its values in arrays where they are: what [`State::from_parts`] needs.
    pub fn parts(&self) -> (Vec<u64>, Vec<&[f64]>) {
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
        let arrays = std::iter::once(&self.weights[..]).chain(matrices.iter().map(|matrix| matrix.values()));
        (numbers.into_iter().map(|number| number as u64).collect(), arrays.collect())
    }

    /// Makes a state of its [`parts`](State::parts). `read` fills the arrays, in the same order. Returns `None` if the
    /// numbers aren't those of a state of this layout.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn from_parts<E>(
        layout: &Layout,
        numbers: &[u64],
        mut read: impl FnMut(&mut [f64]) -> Result<(), E>,
    ) -> Result<Option<State>, E> {
        let Some(shape) = Shape::parse(layout, numbers) else { return Ok(None) };
        let mut weights = vec![0.0; layout.size().columns];
        read(&mut weights)?;
        let mut matrices = Vec::with_capacity(shape.sizes.len());
        for (rows, columns) in shape.sizes {
            let mut matrix = Matrix::zeros(rows, columns);
            read(matrix.values_mut())?;
            matrices.push(matrix);
        }
        let mut matrices = matrices.into_iter();
        let mut next = || matrices.next().unwrap_or_default();
        let mut state = State::empty(layout, shape.place, weights, BTreeMap::new(), shape.done);
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
}

/// Numbers of a state.
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
        // Below the limit, as are the numbers of blocks, panels and stripes.
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
