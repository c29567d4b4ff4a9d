//! Dense matrices, column by column.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::memory::Values;

/// Matrix with columns contiguous in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Values,
}

impl Matrix {
    /// Returns a zero matrix.
    pub fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, values: vec![0.0; rows * columns].into() }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns all values, column by column.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns all values, column by column.
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// Creates a matrix from its values, column by column.
    ///
    /// Returns `None` if their number differs.
    pub(crate) fn from_values(rows: usize, columns: usize, values: Values) -> Option<Matrix> {
        (rows.checked_mul(columns)? == values.len()).then_some(Matrix { rows, columns, values })
    }

    /// Returns the values with their memory.
    pub(crate) fn memory(&self) -> &Values {
        &self.values
    }

    /// Returns the values with their memory.
    pub(crate) fn memory_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    /// Returns a column.
    pub fn column(&self, column: usize) -> &[f64] {
        &self.values[column * self.rows..][..self.rows]
    }

    /// Returns a column.
    pub fn column_mut(&mut self, column: usize) -> &mut [f64] {
        &mut self.values[column * self.rows..][..self.rows]
    }

    /// Returns a copy of some columns.
    pub fn copy(&self, columns: Range<usize>) -> Matrix {
        let values = self.values[columns.start * self.rows..columns.end * self.rows].to_vec();
        Matrix { rows: self.rows, columns: columns.len(), values: values.into() }
    }

    /// Replaces columns, from column `at` on.
    pub fn put(&mut self, at: usize, columns: &Matrix) {
        self.values[at * self.rows..][..columns.values.len()].copy_from_slice(&columns.values);
    }

    /// Adds `factor` times another matrix of this size.
    pub(crate) fn add(&mut self, factor: f64, other: &Matrix) {
        self.values.iter_mut().zip(&other.values[..]).for_each(|(sum, value)| *sum += factor * value);
    }

    /// Returns some columns' rows from `first` on.
    pub(crate) fn part(&self, first: usize, columns: Range<usize>) -> MatRef<'_, f64> {
        let values = &self.values[columns.start * self.rows..columns.end * self.rows];
        MatRef::from_column_major_slice(values, self.rows, columns.len()).subrows(first, self.rows - first)
    }

    /// Returns some columns' rows from `first` on.
    pub(crate) fn part_mut(&mut self, first: usize, columns: Range<usize>) -> MatMut<'_, f64> {
        let rows = self.rows;
        let values = &mut self.values[columns.start * rows..columns.end * rows];
        MatMut::from_column_major_slice_mut(values, rows, columns.len()).subrows_mut(first, rows - first)
    }

    /// Returns the whole matrix.
    pub(crate) fn whole(&self) -> MatRef<'_, f64> {
        self.part(0, 0..self.columns())
    }

    /// Multiplies two matrices.
    pub(crate) fn product(left: MatRef<'_, f64>, right: MatRef<'_, f64>) -> Matrix {
        let mut result = Matrix::zeros(left.nrows(), right.ncols());
        let columns = 0..result.columns();
        matmul(result.part_mut(0, columns), Accum::Replace, left, right, 1.0, Par::Seq);
        result
    }
}

/// Adds `factor` times the product of two matrices to `sum`.
pub(crate) fn add_product(sum: MatMut<'_, f64>, factor: f64, left: MatRef<'_, f64>, right: MatRef<'_, f64>) {
    matmul(sum, Accum::Add, left, right, factor, Par::Seq);
}
