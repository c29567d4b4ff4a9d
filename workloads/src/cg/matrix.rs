//! Random sparse matrix for the CG kernel (RNR-94-007, section 2.4.3).
//!
//! A = sum over i of w_i x_i x_i^T + (rcond - shift) I, where the x_i are sparse random vectors with 0.5 at place i and
//! the weights w_i decrease geometrically from 1 to rcond, so the largest eigenvalue is well separated.

use std::ops::Range;

use crate::random::Random;

/// Weight of the last outer product; also added to the diagonal before the shift is subtracted.
const RECIPROCAL_CONDITION: f64 = 0.1;

/// A random vector's element at its own place.
const OWN_ELEMENT: f64 = 0.5;

/// Matrix block, in compressed rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    /// Start of each row in `columns` and `values`, and the end of the last row.
    row_starts: Vec<usize>,
    /// Columns relative to the block's first one; ascending within a row.
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// Matrix parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) order: usize,
    /// Elements in each random vector, without its own.
    pub(super) nonzeros: usize,
    pub(super) shift: f64,
}

struct Entry {
    column: u32,
    value: f64,
}

impl Matrix {
    /// Generates the block with `rows` and `columns`.
    ///
    /// Every process generates all random vectors and keeps its block's elements, so no message is needed, and a
    /// replacement generates the same block again.
    pub(super) fn generate(shape: &Shape, rows: Range<usize>, columns: Range<usize>) -> Matrix {
        let mut entries: Vec<Vec<Entry>> = rows.clone().map(|_| Vec::new()).collect();
        let mut add = |row: usize, column: usize, value: f64| {
            if rows.contains(&row) && columns.contains(&column) {
                // Orders are far below 2^32.
                entries[row - rows.start].push(Entry { column: (column - columns.start) as u32, value });
            }
        };
        let ratio = RECIPROCAL_CONDITION.powf(1.0 / shape.order as f64);
        let mut weight = 1.0;
        let mut random = Random::seeded();
        random.next_fraction(); // The benchmark draws one number before the matrix.
        let mut vector = SparseVector::new(shape.order);
        for place in 0..shape.order {
            vector.draw(&mut random, shape.nonzeros);
            vector.set(place, OWN_ELEMENT);
            for &(column, factor) in &vector.elements {
                let scale = weight * factor;
                for &(row, value) in &vector.elements {
                    add(row, column, value * scale);
                }
            }
            weight *= ratio;
        }
        for place in 0..shape.order {
            add(place, place, RECIPROCAL_CONDITION - shape.shift);
        }
        Matrix::assemble(entries)
    }

    /// Adds up the entries at each place, in generation order.
    fn assemble(entries: Vec<Vec<Entry>>) -> Matrix {
        let mut matrix = Matrix { row_starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for mut row in entries {
            row.sort_by_key(|entry| entry.column); // Stable: the order within a place stays.
            for place in row.chunk_by(|left, right| left.column == right.column) {
                matrix.columns.push(place[0].column);
                matrix.values.push(place.iter().map(|entry| entry.value).sum());
            }
            matrix.row_starts.push(matrix.columns.len());
        }
        matrix
    }

    /// Computes `product` = this block times `vector`.
    pub(super) fn multiply(&self, vector: &[f64], product: &mut [f64]) {
        for (bounds, sum) in self.row_starts.windows(2).zip(product) {
            let row = bounds[0]..bounds[1];
            let terms = self.columns[row.clone()].iter().zip(&self.values[row]);
            *sum = terms.map(|(&column, value)| value * vector[column as usize]).sum();
        }
    }
}

/// Random vector under construction.
struct SparseVector {
    elements: Vec<(usize, f64)>,
    /// True for occupied places.
    taken: Vec<bool>,
    /// Indices are drawn below this power of two and rejected beyond the order.
    index_bits: u32,
}

impl SparseVector {
    fn new(order: usize) -> SparseVector {
        let index_bits = order.next_power_of_two().ilog2();
        SparseVector { elements: Vec::new(), taken: vec![false; order], index_bits }
    }

    /// Draws `count` elements at different places.
    fn draw(&mut self, random: &mut Random, count: usize) {
        for (place, _) in self.elements.drain(..) {
            self.taken[place] = false;
        }
        while self.elements.len() < count.min(self.taken.len()) {
            let value = random.next_fraction();
            let place = random.next_index(self.index_bits) as usize;
            if self.taken.get(place) == Some(&false) {
                self.taken[place] = true;
                self.elements.push((place, value));
            }
        }
    }

    /// Sets the element at `place`, new or existing.
    fn set(&mut self, place: usize, value: f64) {
        match self.elements.iter_mut().find(|element| element.0 == place) {
            Some(element) => element.1 = value,
            None => {
                self.taken[place] = true;
                self.elements.push((place, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { order: 60, nonzeros: 4, shift: 10.0 };

    fn dense(matrix: &Matrix, columns: usize) -> Vec<Vec<f64>> {
        let row = |bounds: &[usize]| {
            let mut row = vec![0.0; columns];
            for at in bounds[0]..bounds[1] {
                row[matrix.columns[at] as usize] = matrix.values[at];
            }
            row
        };
        matrix.row_starts.windows(2).map(row).collect()
    }

    #[test]
    fn the_matrix_is_symmetric() {
        let matrix = dense(&Matrix::generate(&SHAPE, 0..60, 0..60), 60);
        for (row, column) in (0..60).flat_map(|row| (0..row).map(move |column| (row, column))) {
            assert!((matrix[row][column] - matrix[column][row]).abs() < 1e-15);
        }
    }

    #[test]
    fn blocks_equal_the_whole_matrix_bit_by_bit() {
        let whole = dense(&Matrix::generate(&SHAPE, 0..60, 0..60), 60);
        let block = dense(&Matrix::generate(&SHAPE, 7..31, 20..60), 40);
        for (row, line) in block.iter().enumerate() {
            assert_eq!(line[..], whole[row + 7][20..]);
        }
    }

    #[test]
    fn a_product_is_that_of_the_dense_matrix() {
        let matrix = Matrix::generate(&SHAPE, 0..60, 10..30);
        let vector: Vec<f64> = (0..20).map(|at| f64::from(at) - 7.5).collect();
        let mut product = vec![f64::NAN; 60];
        matrix.multiply(&vector, &mut product);
        for (row, line) in dense(&matrix, 20).iter().enumerate() {
            let expected: f64 = line.iter().zip(&vector).map(|(value, x)| value * x).sum();
            assert!((product[row] - expected).abs() < 1e-12);
        }
    }
}
