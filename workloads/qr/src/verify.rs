//! Residuals of a factorization.

use crate::layout::Layout;
use crate::matrix::{Matrix, add_product};
use crate::state::{Slot, State};

/// Backward errors in units of the number of columns times the spacing of numbers at 1; of order one if all is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residuals {
    /// |A - Q R| / |A|.
    pub factorization: f64,
    /// |Q' Q - I|.
    pub orthogonality: f64,
    /// The largest |a - Q r| / |a| of a column.
    pub column: f64,
}

/// Returns the norm of a column, whose squares may overflow.
fn norm(values: &[f64]) -> f64 {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    largest * values.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
}

/// Computes the residuals of a factorization of `matrix`, of which `states` are all processes.
pub fn residuals(layout: &Layout, matrix: &Matrix, states: &[State]) -> Residuals {
    let size = layout.size();
    let (mut difference, mut orthogonal) =
        (Matrix::zeros(size.rows, size.columns), Matrix::zeros(size.rows, size.rows));
    let mut panels = Vec::new();
    for block in 0..layout.blocks() {
        let count = if block < layout.panels() { layout.reflectors(block) } else { 0 };
        let mut vectors = Matrix::zeros(size.rows, count);
        for state in states {
            let Some(values) = state.get(Slot::Data(block)) else { continue };
            for (at, column) in layout.columns(block).enumerate() {
                for (place, value) in values.column(at).iter().enumerate() {
                    let row = layout.row_at(state.place().row, place);
                    if block < layout.panels() && row > column {
                        vectors.column_mut(at)[row] = *value;
                    } else {
                        difference.column_mut(column)[row] = *value;
                    }
                }
            }
        }
        (0..count).for_each(|at| vectors.column_mut(at)[block * size.block + at] = 1.0);
        panels.push(vectors);
    }
    (0..size.rows).for_each(|row| orthogonal.column_mut(row)[row] = 1.0);
    let factor_of = |panel: usize| states.iter().find_map(|state| state.factors().get(&panel));
    // Q R and Q: the reflectors of each panel, the last one first.
    for (panel, vectors) in panels.iter().enumerate().rev() {
        let Some(factor) = factor_of(panel) else { continue };
        for target in [&mut difference, &mut orthogonal] {
            let products = Matrix::product(vectors.whole().transpose(), target.whole());
            let products = Matrix::product(factor.whole(), products.whole());
            let columns = 0..target.columns();
            add_product(target.part_mut(0, columns), -1.0, vectors.whole(), products.whole());
        }
    }
    difference.values_mut().iter_mut().zip(matrix.values()).for_each(|(value, exact)| *value -= exact);
    let mut gram = Matrix::product(orthogonal.whole().transpose(), orthogonal.whole());
    (0..size.rows).for_each(|row| gram.column_mut(row)[row] -= 1.0);

    let unit = size.columns.max(size.rows) as f64 * f64::EPSILON;
    let ratio = |error: f64, of: f64| if of > 0.0 { error / (of * unit) } else { error / f64::MIN_POSITIVE };
    let columns = (0..size.columns).map(|column| ratio(norm(difference.column(column)), norm(matrix.column(column))));
    Residuals {
        factorization: ratio(norm(difference.values()), norm(matrix.values())),
        orthogonality: norm(gram.values()) / unit,
        column: columns.fold(0.0, f64::max),
    }
}
