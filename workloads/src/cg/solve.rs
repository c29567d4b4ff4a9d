//! Conjugate gradients on the process grid (RNR-94-007, figure 2.1).

use counterfoil_runtime::communicator::Communicator;
use zerocopy::IntoBytes;

use super::grid::Grid;
use super::matrix::Matrix;
use crate::{Error, MessageError};

/// Steps in one solve, which doesn't test for convergence.
const STEPS: u32 = 25;

/// Maximum number of dot products in one exchange.
const DOTS_MAX: usize = 2;

const TAG_SUM: i32 = 1;
const TAG_TRANSPOSE: i32 = 2;
const TAG_DOT: i32 = 3;

/// One process's part of all solves.
///
/// All processes in a process column have bitwise the same part of each vector: sums are exchanged in pairs, and
/// floating-point addition is commutative.
pub(super) struct Solver<'a> {
    comm: &'a mut dyn Communicator,
    grid: &'a Grid,
    matrix: &'a Matrix,
    /// The block's product, then the sum over the process row.
    product: Vec<f64>,
    received: Vec<f64>,
}

/// Approximate solution to A z = x.
pub(super) struct Solution {
    /// This process's part of z.
    pub(super) z: Vec<f64>,
    /// |x - A z|.
    pub(super) residual: f64,
}

impl<'a> Solver<'a> {
    pub(super) fn new(comm: &'a mut dyn Communicator, grid: &'a Grid, matrix: &'a Matrix) -> Solver<'a> {
        let product = vec![0.0; grid.rows().len()];
        Solver { comm, grid, matrix, received: product.clone(), product }
    }

    /// Solves A z = x, starting from z = 0.
    pub(super) fn solve(&mut self, x: &[f64]) -> Result<Solution, Error> {
        let mut z = vec![0.0; x.len()];
        let mut q = vec![0.0; x.len()];
        let mut r = x.to_vec();
        let mut p = x.to_vec();
        let [mut rho] = self.dots([(&r, &r)])?;
        for _ in 0..STEPS {
            self.multiply(&p, &mut q)?;
            let [pq] = self.dots([(&p, &q)])?;
            let alpha = rho / pq;
            add_scaled(&mut z, alpha, &p);
            add_scaled(&mut r, -alpha, &q);
            let rho_before = rho;
            [rho] = self.dots([(&r, &r)])?;
            let beta = rho / rho_before;
            p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + beta * *p);
        }
        self.multiply(&z, &mut q)?;
        r.iter_mut().zip(x.iter().zip(&q)).for_each(|(r, (x, q))| *r = x - q);
        let [square] = self.dots([(&r, &r)])?;
        Ok(Solution { z, residual: square.sqrt() })
    }

    /// Computes several dot products in one exchange.
    pub(super) fn dots<const N: usize>(&mut self, pairs: [(&[f64], &[f64]); N]) -> Result<[f64; N], Error> {
        const { assert!(N <= DOTS_MAX) };
        let mut sums = pairs.map(|(left, right)| left.iter().zip(right).map(|(left, right)| left * right).sum());
        for peer in self.grid.dot_peers() {
            let mut received = [0.0; N];
            exchange(self.comm, peer, TAG_DOT, &sums, &mut received)?;
            add_scaled(&mut sums, 1.0, &received);
        }
        Ok(sums)
    }

    /// Computes `result` = A times `vector`, for this process's parts.
    fn multiply(&mut self, vector: &[f64], result: &mut [f64]) -> Result<(), Error> {
        self.matrix.multiply(vector, &mut self.product);
        let summed = self.grid.summed();
        let (first, second) = self.product.split_at_mut(if summed.start == 0 { summed.end } else { summed.start });
        let (own, other) = if summed.start == 0 { (first, second) } else { (second, first) };
        let received = &mut self.received[..own.len()];
        if let Some(neighbour) = self.grid.neighbour() {
            exchange(self.comm, neighbour, TAG_SUM, other, received)?;
            add_scaled(own, 1.0, received);
        }
        for peer in self.grid.sum_peers() {
            exchange(self.comm, peer, TAG_SUM, own, received)?;
            add_scaled(own, 1.0, received);
        }
        if self.grid.partner() == self.comm.rank() {
            result.copy_from_slice(own);
            return Ok(());
        }
        exchange(self.comm, self.grid.partner(), TAG_TRANSPOSE, own, result)
    }
}

/// Returns the largest payload in bytes sent by `rank`, at this place, in a solve or in the dot products after it.
pub(super) fn message_bytes_max(grid: &Grid, rank: u32) -> usize {
    let (all, own) = (grid.rows().len(), grid.summed().len());
    let exchanges = [
        (grid.neighbour().is_some(), all - own),
        (!grid.sum_peers().is_empty() || grid.partner() != rank, own),
        (!grid.dot_peers().is_empty(), DOTS_MAX),
    ];
    let numbers = exchanges.into_iter().filter_map(|(is_sent, numbers)| is_sent.then_some(numbers));
    numbers.max().unwrap_or(0) * size_of::<f64>()
}

/// Computes `left` += `scale` * `right`.
fn add_scaled(left: &mut [f64], scale: f64, right: &[f64]) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += scale * right);
}

/// Sends `sent` to `peer` and receives its numbers into `received`.
fn exchange(comm: &mut dyn Communicator, peer: u32, tag: i32, sent: &[f64], received: &mut [f64]) -> Result<(), Error> {
    // f64 as in memory: the runtime only builds on little-endian targets.
    let (status, payload) = comm.sendrecv(peer, tag, sent.as_bytes(), Some(peer), Some(tag))?;
    let bytes = received.as_mut_bytes();
    if payload.len() != bytes.len() {
        let expected = "one number for each of its rows or columns";
        return Err(MessageError { rank: comm.rank(), source_rank: peer, tag, len: status.len, expected }.into());
    }
    bytes.copy_from_slice(&payload);
    Ok(())
}
