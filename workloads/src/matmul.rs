//! Powers of a matrix times another one, in one dimension: each rank has rows of both, and the second matrix's rows go
//! around the ring in each multiplication.
//!
//! The elements are integers modulo 2^32, so the result is exact, and known without another matrix multiplication:
//! times a vector it equals matrix-vector products (Freivalds).

use std::ops::{Range, RangeInclusive};

use counterfoil_runtime::communicator::{Communicator, Reduction};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::IntoBytes;

use crate::steps::Steps;
use crate::values::{digest, from_message, part, place_sum, words};
use crate::{Class, Error, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "matmul";

const TAG: i32 = 1;

/// Matrices; class S, W, A have 64, 192, 512 rows, and 8, 12, 16 multiplications.
///
/// Every rank's iteration is one multiplication. Runs on any number of ranks up to the rows.
#[derive(Clone, Debug)]
pub struct Matmul {
    class: Class,
    order: usize,
    multiplications: u64,
}

/// A rank's rows in the fixed matrix and the right one.
#[derive(Debug)]
pub(crate) struct Rows {
    left: Vec<u32>,
    right: Vec<u32>,
}

/// Element of the fixed matrix (`which` 0), of the first right one (1), or of the test vector (2, with `column` 0).
pub(crate) fn element(which: u64, row: usize, column: usize) -> u32 {
    xxh3_64_with_seed(&[row as u64, column as u64].map(u64::to_le_bytes).concat(), which) as u32
}

fn rows(which: u64, order: usize, rows: Range<usize>) -> Vec<u32> {
    rows.flat_map(|row| (0..order).map(move |column| element(which, row, column))).collect()
}

/// Adds the product of some columns in `left`, from `first` on, and as many right matrix rows.
pub(crate) fn multiply(product: &mut [u32], left: &[u32], first: usize, right: &[u32], order: usize) {
    for (product, left) in product.chunks_exact_mut(order).zip(left.chunks_exact(order)) {
        for (factor, right) in left[first..].iter().zip(right.chunks_exact(order)) {
            product.iter_mut().zip(right).for_each(|(sum, value)| *sum = sum.wrapping_add(factor.wrapping_mul(*value)));
        }
    }
}

/// Multiplies some rows by a vector.
fn times(rows: &[u32], vector: &[u32]) -> Vec<u32> {
    let dot = |row: &[u32]| row.iter().zip(vector).fold(0u32, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)));
    rows.chunks_exact(vector.len()).map(dot).collect()
}

/// Computes the result times the test vector, without messages.
fn known_product(order: usize, multiplications: u64, vector: &[u32]) -> Vec<u32> {
    let fixed = rows(0, order, 0..order);
    let mut product = times(&rows(1, order, 0..order), vector);
    for _ in 0..multiplications {
        product = times(&fixed, &product);
    }
    product
}

/// Verifies a rank's rows of the result after so many multiplications.
///
/// Collective.
pub(crate) fn verify(
    comm: &mut dyn Communicator,
    (order, multiplications): (usize, u64),
    range: Range<usize>,
    own: &[u32],
) -> Result<Outcome, Error> {
    let vector: Vec<u32> = (0..order).map(|row| element(2, row, 0)).collect();
    let is_wrong = times(own, &vector) != known_product(order, multiplications, &vector)[range.clone()];
    let mut sums = [u64::from(is_wrong), place_sum(range.start * order, own)];
    comm.allreduce_u64(&mut sums, Reduction::Sum)?;
    Ok(Outcome { verified: Some(sums[0] == 0), value: Value::Text(format!("{:016x}", sums[1])), digest: digest(own) })
}

impl Matmul {
    /// Creates the program with size `class`.
    pub fn new(class: Class) -> Matmul {
        let (order, multiplications) = match class {
            Class::S => (64, 8),
            Class::W => (192, 12),
            Class::A => (512, 16),
        };
        Matmul { class, order, multiplications }
    }

    /// Multiplies once: the right matrix's rows go around the ring.
    fn multiply(&self, comm: &mut dyn Communicator, left: &[u32], right: Vec<u32>) -> Result<Vec<u32>, Error> {
        let (rank, ranks, order) = (comm.rank(), comm.size(), self.order);
        let mut product = vec![0; right.len()];
        let (mut owner, mut block) = (rank, right);
        for step in 0..ranks {
            let next = (owner + 1) % ranks;
            let receive = (step + 1 < ranks).then(|| comm.irecv(Some((rank + 1) % ranks), Some(TAG))).transpose()?;
            if receive.is_some() {
                comm.send((rank + ranks - 1) % ranks, TAG, block.as_bytes())?;
            }
            multiply(&mut product, left, part(order, owner, ranks).start, &block, order);
            if let Some(receive) = receive {
                let (status, bytes) = comm.wait(receive)?;
                let len = part(order, next, ranks).len() * order;
                block = from_message(comm, (status.source, status.tag), &bytes, len, "rows of the right matrix")?;
                owner = next;
            }
        }
        Ok(product)
    }
}

impl Steps for Matmul {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 7;

    type Part = Rows;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=self.order as u32
    }

    fn steps(&self) -> u64 {
        self.multiplications
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        part(self.order, 0, ranks).len() * self.order * size_of::<u32>()
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Rows, RanksError> {
        let range = part(self.order, rank, ranks);
        Ok(Rows { left: rows(0, self.order, range.clone()), right: rows(1, self.order, range) })
    }

    fn restore(&self, rows: &mut Rows, _done: u64, body: &[u8]) -> Result<(), StateError> {
        rows.right = words(body, rows.right.len())?;
        Ok(())
    }

    fn encode(&self, rows: &Rows) -> Vec<u8> {
        rows.right.as_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, _step: u64, rows: &mut Rows) -> Result<(), Error> {
        rows.right = self.multiply(comm, &rows.left, std::mem::take(&mut rows.right))?;
        Ok(())
    }

    fn finish(&self, comm: &mut dyn Communicator, rows: Rows) -> Result<Outcome, Error> {
        let range = part(self.order, comm.rank(), comm.size());
        verify(comm, (self.order, self.multiplications), range, &rows.right)
    }
}
