//! BT: line solves along three axes, with a grid divided into q^3 cells for q^2 processes.
//!
//! Process (i, j) is rank = i + q * j. It has q cells, one in each layer z: cell (i + z, j - z, z), modulo q. So along
//! each axis every slice has one cell per process, all processes work all the time, and the next cell along an axis
//! always belongs to the same process: (i + 1, j), (i, j + 1) and (i - 1, j + 1). Each iteration exchanges two border
//! layers with all six neighbours. Then, for each axis, an elimination passes through the q slices, with q - 1 messages
//! to the next process, and a substitution returns the same way.

use super::Message;
use super::blocks::block_len;
use super::sends::Sends;

/// Class D iterations.
pub(super) const ITERATIONS: u32 = 250;
/// Valid numbers of ranks, with at least three points for each cell along each axis.
pub(super) const RANKS: (u32, u32) = (4, 136 * 136);

/// Points along each axis.
const POINTS: u64 = 408;
const DOUBLE_BYTES: u64 = 8;
/// Unknowns at each point.
const UNKNOWNS: u64 = 5;

/// Returns the messages sent by `rank` in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    let q = ranks.isqrt();
    let neighbours = neighbours(rank, q);
    let mut sends = Sends::new(rank);

    for (axis, [next, previous]) in neighbours.into_iter().enumerate() {
        sends.send(next, border_bytes(rank, q, axis, q - 1));
        sends.send(previous, border_bytes(rank, q, axis, 0));
    }
    sends.next_step();

    // The benchmark always sends whole buffers, sized for the largest cell.
    let face = (POINTS / u64::from(q) + 1).pow(2);
    for [next, previous] in neighbours {
        for (to, doubles) in [(next, UNKNOWNS * UNKNOWNS + UNKNOWNS), (previous, UNKNOWNS)] {
            for _ in 1..q {
                sends.send(to, face * doubles * DOUBLE_BYTES);
                sends.next_step();
            }
        }
    }
    sends.finish()
}

/// Returns, for each axis, the processes with the next and the previous cells.
fn neighbours(rank: u32, q: u32) -> [[u32; 2]; 3] {
    let (i, j) = (rank % q, rank / q);
    let at = |i: u32, j: u32| i % q + q * (j % q);
    [[at(i + 1, j), at(i + q - 1, j)], [at(i, j + 1), at(i, j + q - 1)], [at(i + q - 1, j + 1), at(i + 1, j + q - 1)]]
}

/// Returns the bytes in two layers on the faces across `axis`, for all cells except the one in slice `edge` at the
/// grid's end.
fn border_bytes(rank: u32, q: u32, axis: usize, edge: u32) -> u64 {
    let (i, j) = (rank % q, rank / q);
    let cells = (0..q).map(|z| [(i + z) % q, (j + q - z) % q, z]);
    let face = |cell: [u32; 3]| {
        let lens = cell.iter().enumerate().filter(|&(other, _)| other != axis);
        lens.map(|(_, &slice)| block_len(POINTS, q, slice)).product::<u64>()
    };
    let points: u64 = cells.filter(|cell| cell[axis] != edge).map(face).sum();
    2 * UNKNOWNS * DOUBLE_BYTES * points
}
