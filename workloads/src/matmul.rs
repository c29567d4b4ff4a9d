//! Powers of a matrix times another one, in one dimension: each rank has rows of both, and the rows of the second go around the ring in
//! each multiplication.
//!
//! The elements are integers modulo 2^32, so the result is exact, and known without another multiplication of matrices: times a vector it is
//! that of matrix-vector products (Freivalds).

use counterfoil_runtime::communicator::{Communicator, Reduction};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::IntoBytes;

use crate::state::{Owner, decode};
use crate::values::{digest, from_message, part, save, words};
use crate::{Class, Error, Iterations, Outcome, RanksError, Value, Workload, checkpoint_due};

/// Name of this workload.
pub const NAME: &str = "matmul";

const STATE_ID: u32 = 7;
const TAG: i32 = 1;

/// Matrices; class S, W, A have 64, 192, 512 rows, and 8, 12, 16 multiplications. An iteration of every rank is one multiplication.
///
/// Runs on any number of ranks up to the rows.
#[derive(Clone, Debug)]
pub struct Matmul {
    class: Class,
    order: usize,
    multiplications: u64,
}

/// Element of the fixed matrix (`which` 0), of the first right one (1), or of the vector of the test (2, with `column` 0).
fn element(which: u64, row: usize, column: usize) -> u32 {
    xxh3_64_with_seed(&[row as u64, column as u64].map(u64::to_le_bytes).concat(), which) as u32
}

fn rows(which: u64, order: usize, rows: std::ops::Range<usize>) -> Vec<u32> {
    rows.flat_map(|row| (0..order).map(move |column| element(which, row, column))).collect()
}

/// Adds the product of some columns of `left`, from `first` on, and as many rows of the right matrix.
fn multiply(product: &mut [u32], left: &[u32], first: usize, right: &[u32], order: usize) {
    for (product, left) in product.chunks_exact_mut(order).zip(left.chunks_exact(order)) {
        for (factor, right) in left[first..].iter().zip(right.chunks_exact(order)) {
            product.iter_mut().zip(right).for_each(|(sum, value)| *sum = sum.wrapping_add(factor.wrapping_mul(*value)));
        }
    }
}

/// Returns the product of some rows and a vector.
fn times(rows: &[u32], vector: &[u32]) -> Vec<u32> {
    let dot = |row: &[u32]| row.iter().zip(vector).fold(0u32, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)));
    rows.chunks_exact(vector.len()).map(dot).collect()
}

impl Matmul {
    /// Creates the program of size `class`.
    pub fn new(class: Class) -> Matmul {
        let (order, multiplications) = match class {
            Class::S => (64, 8),
            Class::W => (192, 12),
            Class::A => (512, 16),
        };
        Matmul { class, order, multiplications }
    }

    /// Computes the result times the vector of the test, without messages.
    fn known_product(&self) -> Vec<u32> {
        let vector: Vec<u32> = (0..self.order).map(|row| element(2, row, 0)).collect();
        let fixed = rows(0, self.order, 0..self.order);
        let mut product = times(&rows(1, self.order, 0..self.order), &vector);
        for _ in 0..self.multiplications {
            product = times(&fixed, &product);
        }
        product
    }

    /// Multiplies once: the rows of the right matrix go around the ring.
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

impl Workload for Matmul {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        RanksError::check(self, ranks, 1..=self.order as u32)
    }

    fn iterations(&self, _rank: u32, _ranks: u32) -> Iterations {
        Iterations::exactly(self.multiplications)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        part(self.order, 0, ranks).len() * self.order * size_of::<u32>()
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.validate(ranks)?;
        let owner = Owner { workload: STATE_ID, class: self.class, rank, ranks };
        let range = part(self.order, rank, ranks);
        let (left, mut right) = (rows(0, self.order, range.clone()), rows(1, self.order, range.clone()));
        let mut done = 0;
        if let Some(bytes) = comm.restore()? {
            let (iteration, body) = decode(&owner, self.iterations(rank, ranks), &bytes)?;
            (done, right) = (iteration, words(body, right.len())?);
        }
        while done < self.multiplications {
            done += 1;
            comm.iteration(done)?;
            right = self.multiply(comm, &left, right)?;
            if checkpoint_due(done, checkpoint_every) {
                save(comm, &owner, done, &right)?;
            }
        }
        let vector: Vec<u32> = (0..self.order).map(|row| element(2, row, 0)).collect();
        let mut wrong = [u64::from(times(&right, &vector) != self.known_product()[range])];
        comm.allreduce_u64(&mut wrong, Reduction::Sum)?;
        let mut sum = [crate::values::place_sum(part(self.order, rank, ranks).start * self.order, &right)];
        comm.allreduce_u64(&mut sum, Reduction::Sum)?;
        Ok(Outcome {
            verified: Some(wrong[0] == 0),
            value: Value::Text(format!("{:016x}", sum[0])),
            digest: digest(&right),
        })
    }
}
