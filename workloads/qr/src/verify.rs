//! Factorization residuals.

use crate::layout::Layout;
use crate::matrix::{Matrix, add_product};
use crate::state::{Slot, State};

/// Backward errors in units of the number of columns times the spacing of numbers at 1; about one if all is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residuals {
    /// |A - Q R| / |A|.
    pub factorization: f64,
    /// |Q' Q - I|.
    pub orthogonality: f64,
    /// Largest |a - Q r| / |a| over the columns.
    pub column: f64,
}

/// Returns the norm of a column, even if its squares overflow.
fn norm(values: &[f64]) -> f64 {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    largest * values.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
}

/// Computes the residuals for a factorization of `matrix`, with `states` from all processes.
pub fn residuals(layout: &Layout, matrix: &Matrix, states: &[&State]) -> Residuals {
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

/// Estimates the residuals of a distributed factorization.
///
/// It uses products with vectors of 1 and -1, with an error near the matrix's: |E x| is |E| on average. `element`
/// returns a matrix element by row and column; `sum` sums up over all processes, which all call this.
///
/// # Errors
/// Errors from `sum`.
pub fn probe<E>(
    layout: &Layout,
    state: &State,
    element: impl Fn(usize, usize) -> f64,
    mut sum: impl FnMut(&mut [f64]) -> Result<(), E>,
) -> Result<Residuals, E> {
    let size = layout.size();
    // The bits of a linear congruence are random enough, and the same everywhere.
    let sign = |at: usize| if (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 1.0 } else { -1.0 };
    let rows: Vec<usize> = layout.rows_of(state.place().row).collect();
    // A x, R x, and the squares of A's columns.
    let mut sums = vec![0.0; 2 * size.rows + 1];
    for block in layout.blocks_of(state.place().column) {
        let Some(values) = state.get(Slot::Data(block)) else { continue };
        for (at, column) in layout.columns(block).enumerate() {
            let (sign, is_factored) = (sign(column), block < layout.panels());
            for (row, value) in rows.iter().zip(values.column(at)) {
                let exact = element(*row, column);
                sums[*row] += exact * sign;
                sums[2 * size.rows] += exact * exact;
                if !is_factored || *row <= column {
                    sums[size.rows + row] += value * sign;
                }
            }
        }
    }
    sum(&mut sums)?;
    let norm_of_all = sums[2 * size.rows].sqrt();
    let (exact, rest) = sums.split_at(size.rows);
    let mut product = rest[..size.rows].to_vec();
    let mut other: Vec<f64> = (0..size.rows).map(sign).collect();
    for panel in (0..layout.panels()).rev() {
        reflect(layout, state, panel, false, &mut [&mut product, &mut other], &mut sum)?;
    }
    for panel in 0..layout.panels() {
        reflect(layout, state, panel, true, &mut [&mut other], &mut sum)?;
    }
    let difference: Vec<f64> = product.iter().zip(exact).map(|(value, exact)| value - exact).collect();
    let turned: Vec<f64> = other.iter().enumerate().map(|(at, value)| value - sign(at)).collect();
    let unit = size.columns.max(size.rows) as f64 * f64::EPSILON;
    let factorization = norm(&difference) / (norm_of_all.max(f64::MIN_POSITIVE) * unit);
    Ok(Residuals { factorization, orthogonality: norm(&turned) / unit, column: factorization })
}

/// Applies a panel's reflectors, or their transpose, to vectors present on all processes.
fn reflect<E>(
    layout: &Layout,
    state: &State,
    panel: usize,
    is_transposed: bool,
    vectors: &mut [&mut Vec<f64>],
    sum: &mut impl FnMut(&mut [f64]) -> Result<(), E>,
) -> Result<(), E> {
    let (rows, count) = (layout.size().rows, layout.reflectors(panel));
    let local_rows: Vec<usize> = layout.rows_of(state.place().row).collect();
    let reflectors = (layout.column_of(panel) == state.place().column).then(|| reflectors_of(layout, state, panel));
    let mut products = vec![0.0; count * vectors.len()];
    if let Some(reflectors) = &reflectors {
        for (vector, products) in vectors.iter().zip(products.chunks_mut(count)) {
            let local: Vec<f64> = local_rows.iter().map(|row| vector[*row]).collect();
            for (at, product) in products.iter_mut().enumerate() {
                *product = reflectors.column(at).iter().zip(&local).map(|(value, of_vector)| value * of_vector).sum();
            }
        }
    }
    sum(&mut products)?;
    let mut changes = vec![0.0; rows * vectors.len()];
    if let (Some(reflectors), Some(factor)) = (&reflectors, state.factors().get(&panel)) {
        for (products, changes) in products.chunks(count).zip(changes.chunks_mut(rows)) {
            for at in 0..count {
                let entry = |of: usize| if is_transposed { factor.column(at)[of] } else { factor.column(of)[at] };
                let factored: f64 = (0..count).map(|of| entry(of) * products[of]).sum();
                for (row, value) in local_rows.iter().zip(reflectors.column(at)) {
                    changes[*row] -= value * factored;
                }
            }
        }
    }
    sum(&mut changes)?;
    for (vector, changes) in vectors.iter_mut().zip(changes.chunks(rows)) {
        vector.iter_mut().zip(changes).for_each(|(value, change)| *value += change);
    }
    Ok(())
}

/// Returns a process's rows of a panel's reflectors.
fn reflectors_of(layout: &Layout, state: &State, panel: usize) -> Matrix {
    let process_row = state.place().row;
    let mut reflectors = Matrix::zeros(layout.local_rows(process_row), layout.reflectors(panel));
    let Some(values) = state.get(Slot::Data(panel)) else { return reflectors };
    for at in 0..reflectors.columns() {
        let (diagonal, from) = (panel * layout.size().block + at, values.column(at));
        // The unit diagonal is in another process row, if it has none.
        let (above, below) = (layout.rows_above(process_row, diagonal), layout.rows_above(process_row, diagonal + 1));
        let into = reflectors.column_mut(at);
        into[above..below].fill(1.0);
        into[below..].copy_from_slice(&from[below..]);
    }
    reflectors
}
