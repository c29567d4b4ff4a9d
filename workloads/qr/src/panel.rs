//! Factorization of a panel with rows distributed over a process column.

use crate::layout::Layout;
use crate::matrix::Matrix;

/// A panel's reflectors, H = I - V T V'; a process has the rows from the panel's first block on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reflectors {
    /// Reflector vectors: a column each.
    pub vectors: Matrix,
    /// Upper triangular factor, the same on all processes.
    pub factor: Matrix,
}

/// Factors a panel in place: R above and on the diagonal, the vectors below, with 1 as diagonal entries.
///
/// `block` has this process row's rows; `weights` are the panel columns' weights, `sum` sums up over the process
/// column.
///
/// One sum for each column: the norm below the diagonal, the diagonal, and the products with the columns to the right
/// (as LAPACK's dgeqr2, dlarft), in units of the column's weight, so squares neither overflow nor underflow.
///
/// # Errors
/// Errors from `sum`. The panel has been changed in part.
pub(crate) fn factor<E>(
    layout: &Layout,
    (process_row, panel): (usize, usize),
    block: &mut Matrix,
    weights: &[f64],
    mut sum: impl FnMut(&mut [f64]) -> Result<(), E>,
) -> Result<Reflectors, E> {
    let (first, reflectors) = (panel * layout.size().block, layout.reflectors(panel));
    let top = layout.rows_above(process_row, first);
    let mut factors = vec![0.0; reflectors];
    let mut vectors = Matrix::zeros(block.rows() - top, reflectors);
    for column in 0..reflectors {
        let row = first + column;
        let below = layout.rows_above(process_row, row + 1);
        // The diagonal's row is on one process.
        let diagonal = (below > layout.rows_above(process_row, row)).then(|| below - 1);
        let at_diagonal = |column: &[f64]| diagonal.map_or(0.0, |at| column[at]);

        let (own, weight) = (block.column(column), weights[column]);
        let mut vector = Matrix::zeros(own.len() - below, 1);
        vector.values_mut().iter_mut().zip(&own[below..]).for_each(|(scaled, value)| *scaled = value * weight);
        // With this column and those to the right.
        let products = Matrix::product(block.part(below, column..block.columns()).transpose(), vector.whole());
        let mut sums = products.values().to_vec();
        let products = sums.len();
        sums.extend((column..block.columns()).map(|column| at_diagonal(block.column(column))));
        sum(&mut sums)?;

        let (products, diagonals) = sums.split_at(products);
        let (square, alpha) = (products[0] * weight, diagonals[0] * weight);
        if square == 0.0 {
            // The identity.
            vector.values_mut().fill(0.0);
        } else {
            let beta = -alpha.hypot(square.sqrt()).copysign(alpha);
            factors[column] = (beta - alpha) / beta;
            vector.values_mut().iter_mut().for_each(|value| *value /= alpha - beta);
            if let Some(at) = diagonal {
                block.column_mut(column)[at] = beta / weight;
            }
            let others = (column + 1..block.columns()).zip(products.iter().zip(diagonals).skip(1));
            for (other, (product, diagonal_value)) in others {
                let product = factors[column] * (product / (alpha - beta) + diagonal_value);
                let other = block.column_mut(other);
                other[below..].iter_mut().zip(vector.values()).for_each(|(value, vector)| *value -= product * vector);
                if let Some(at) = diagonal {
                    other[at] -= product;
                }
            }
        }
        block.column_mut(column)[below..].copy_from_slice(vector.values());
        let whole = vectors.column_mut(column);
        whole[below - top..].copy_from_slice(vector.values());
        if let Some(at) = diagonal {
            whole[at - top] = 1.0;
        }
    }
    let mut gram = Matrix::product(vectors.whole().transpose(), vectors.whole());
    sum(gram.values_mut())?;
    Ok(Reflectors { vectors, factor: triangular_factor(&gram, &factors) })
}

/// Returns T for the reflectors with these products V' V and factors.
fn triangular_factor(gram: &Matrix, factors: &[f64]) -> Matrix {
    let mut triangle = Matrix::zeros(factors.len(), factors.len());
    for (column, factor) in factors.iter().enumerate() {
        let products: Vec<f64> = (0..column)
            .map(|row| (row..column).map(|inner| triangle.column(inner)[row] * gram.column(column)[inner]).sum())
            .collect();
        let target = triangle.column_mut(column);
        for (value, product) in target.iter_mut().zip(products) {
            *value = -factor * product;
        }
        target[column] = *factor;
    }
    triangle
}
