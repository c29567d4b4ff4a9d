//! CG: conjugate gradients with a sparse matrix divided into a 2-D block grid.
//!
//! Process (row, column) is rank = row * `columns` + column; there are as many columns as rows, or twice as many. An
//! iteration solves for a vector in 25 steps. Each step has one matrix-vector product, with parts summed up along the
//! process row in log2 `columns` exchanges and then swapped across the diagonal (the transpose), and two scalar
//! products with log2 `columns` one-number exchanges each. One scalar product precedes the first step. After the last
//! step follow another matrix-vector product for the residual, its norm, and a common sum of two norms.

use super::Message;
use super::blocks::block_len;
use super::sends::Sends;

/// Class D iterations.
pub(super) const ITERATIONS: u32 = 100;
/// Valid numbers of ranks, with at least 300 matrix rows for each process row.
pub(super) const RANKS: (u32, u32) = (2, 1 << 24);

/// Matrix order.
const ORDER: u64 = 1_500_000;
/// Steps in one solution.
const STEPS: u32 = 25;
const DOUBLE_BYTES: u64 = 8;

/// Returns the messages sent by `rank` in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    let mut process = Process::new(rank, ranks);
    process.sum(DOUBLE_BYTES);
    for _ in 0..STEPS {
        process.product();
        process.sum(DOUBLE_BYTES);
        process.sum(DOUBLE_BYTES);
    }
    process.product();
    process.sum(DOUBLE_BYTES);
    process.sum(2 * DOUBLE_BYTES);
    process.sends.finish()
}

struct Process {
    sends: Sends,
    rows: u32,
    columns: u32,
    row: u32,
    column: u32,
}

impl Process {
    fn new(rank: u32, ranks: u32) -> Process {
        let rows = 1 << (ranks.ilog2() / 2);
        let columns = ranks / rows;
        Process { sends: Sends::new(rank), rows, columns, row: rank / columns, column: rank % columns }
    }

    /// Sums up `bytes` over the row, by swaps with nearer and nearer processes.
    fn sum(&mut self, bytes: u64) {
        for bit in (0..self.columns.ilog2()).rev() {
            self.swap(bit, bytes);
        }
    }

    /// Sums up a product along the row, nearest process first, and sends it to the process using it as the next vector.
    ///
    /// With twice as many columns, two neighbours share the block: the first exchange gives each its half's sum, the
    /// others and the transpose transfer this half.
    fn product(&mut self) {
        let block = block_len(ORDER, self.rows, self.row);
        let halved = self.columns != self.rows;
        let mine = if halved { block_len(block, 2, self.column % 2) } else { block };
        for bit in 0..self.columns.ilog2() {
            let len = if halved && bit == 0 { block - mine } else { mine };
            self.swap(bit, len * DOUBLE_BYTES);
        }
        self.sends.send(self.transposed(), mine * DOUBLE_BYTES);
        self.sends.next_step();
    }

    fn swap(&mut self, bit: u32, bytes: u64) {
        self.sends.send(self.row * self.columns + (self.column ^ (1 << bit)), bytes);
        self.sends.next_step();
    }

    /// Returns the process across the diagonal; on the diagonal, this one.
    fn transposed(&self) -> u32 {
        if self.columns == self.rows {
            self.column * self.columns + self.row
        } else {
            self.column / 2 * self.columns + 2 * self.row + self.column % 2
        }
    }
}
