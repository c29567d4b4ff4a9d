//! MG: V-cycles on grids with 1024^3, 512^3, ..., 2^3 points.
//!
//! Processes form a torus, x fastest, with a power of two along each axis, z being the longest. Each sweep over a level
//! ends with a border exchange with both neighbours, axis by axis. On a level with fewer points than processes along an
//! axis, only every second process (then every fourth, ...) is active, and neighbours' distance grows accordingly. On
//! the way up, active processes send their values to the inactive ones between them.
//!
//! One cycle: on the way down, each of the nine coarser levels is computed from the finer one (one exchange); the
//! coarsest is solved (one); on the way up each level gets its correction, its residual and its smoothing (an exchange
//! for each of the last two); at the end the finest level's residual is computed once more.

use super::Message;
use super::sends::Sends;

/// Class D iterations.
pub(super) const ITERATIONS: u32 = 50;
/// Valid numbers of ranks: from two processes along each axis to one level 6 point for each process.
pub(super) const RANKS: (u32, u32) = (8, 1 << 18);

/// Number of levels; level k has 2^k points along each axis.
const LEVELS: u32 = 10;
const DOUBLE_BYTES: u64 = 8;

/// Returns the messages sent by `rank` in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    // From the finest (index 0) to the coarsest.
    let levels = levels(rank, ranks);
    let mut sends = Sends::new(rank);
    for coarser in levels.iter().skip(1) {
        exchange(&mut sends, coarser);
    }
    if let Some(coarsest) = levels.last() {
        exchange(&mut sends, coarsest);
    }
    for finer in levels.iter().rev().skip(1) {
        activate(&mut sends, finer);
        exchange(&mut sends, finer);
        exchange(&mut sends, finer);
    }
    if let Some(finest) = levels.first() {
        exchange(&mut sends, finest);
    }
    sends.finish()
}

/// One process's part of one level.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Its points along each axis; it is active if none is 0.
    points: [u64; 3],
    /// The next and the previous active process along each axis.
    neighbours: [[u32; 2]; 3],
    /// `true` along the axes on which it is active on the next coarser level but its neighbours aren't.
    activates: [bool; 3],
}

/// Returns the processes along each axis: a third of the bits for x, half of the others for y, the rest for z.
fn extents(ranks: u32) -> [u32; 3] {
    let bits = ranks.ilog2();
    let x = bits / 3;
    let y = (bits - x) / 2;
    [1 << x, 1 << y, 1 << (bits - x - y)]
}

fn levels(rank: u32, ranks: u32) -> Vec<Level> {
    let extents = extents(ranks);
    let strides = [1, extents[0], extents[0] * extents[1]];
    let mut distance = [1; 3];
    let mut levels: Vec<Level> = Vec::new();
    for points in (1..=LEVELS).rev().map(|level| 1_u64 << level) {
        let mut level = Level::default();
        for axis in 0..3 {
            let (extent, stride) = (extents[axis], strides[axis]);
            let at = rank / stride % extent;
            let own = points_at(points, extent, at);
            let next = points_at(points, extent, (at + distance[axis]) % extent);
            level.points[axis] = own;
            if own == 0 || next == 0 {
                distance[axis] = (distance[axis] * 2).min(extent);
            }
            if let Some(finer) = levels.last_mut() {
                finer.activates[axis] = own > 0 && next == 0;
            }
            let to = |at: u32| rank / stride / extent * stride * extent + at % extent * stride + rank % stride;
            level.neighbours[axis] = [to(at + distance[axis]), to(at + extent - distance[axis])];
        }
        levels.push(level);
    }
    levels
}

/// Returns the points on process `at` of `extent`: with fewer points than processes, the last in each group has one.
fn points_at(points: u64, extent: u32, at: u32) -> u64 {
    let before = |at: u32| u64::from(at) * points / u64::from(extent);
    before(at + 1) - before(at)
}

/// Adds one sweep's border exchange, axis by axis: later axes include the borders received along earlier ones.
fn exchange(sends: &mut Sends, level: &Level) {
    let [x, y, z] = level.points;
    let is_active = level.points.iter().all(|&points| points > 0);
    let faces = [y * z, (x + 2) * z, (x + 2) * (y + 2)];
    for (face, neighbours) in faces.into_iter().zip(level.neighbours) {
        for neighbour in neighbours.into_iter().filter(|_| is_active) {
            sends.send(neighbour, face * DOUBLE_BYTES);
        }
        sends.next_step();
    }
}

/// Adds the values for processes inactive on the next coarser level: two layers for the next process, one for the
/// previous.
fn activate(sends: &mut Sends, level: &Level) {
    let [x, y, z] = level.points.map(|points| points + 2);
    let faces = [y * z, x * z, x * y];
    for ((face, neighbours), activates) in faces.into_iter().zip(level.neighbours).zip(level.activates) {
        if activates {
            let [next, previous] = neighbours;
            sends.send(next, 2 * face * DOUBLE_BYTES);
            sends.send(previous, face * DOUBLE_BYTES);
        }
        sends.next_step();
    }
}
