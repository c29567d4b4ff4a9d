//! LU: sweeps over a 3-D grid divided along two axes into pencils.
//!
//! Process (row, column) in a `rows` x `columns` grid is rank = row + `rows` * column; `rows` is `columns` or twice as
//! much. The lower sweep proceeds plane by plane from the first corner to the last: for each plane a process needs the
//! previous row's and column's borders, and sends its own to the next ones. The upper sweep proceeds the other way.
//! Then, for the right-hand side, each process receives two layers from each neighbour. The grid isn't periodic.

use super::Message;
use super::blocks::block_len;
use super::sends::Sends;

/// Class D iterations.
pub(super) const ITERATIONS: u32 = 300;
/// Valid numbers of ranks, with at least four points for each process along each axis.
pub(super) const RANKS: (u32, u32) = (2, 4_096);

/// Points along each axis.
const POINTS: u64 = 408;
/// Planes in a sweep: all except the two on the boundary.
const PLANES: u32 = 406;
/// Bytes for five double-precision unknowns at each point.
const POINT_BYTES: u64 = 5 * 8;

/// Returns the messages sent by `rank` in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    let place = GridPosition::new(rank, ranks);
    let GridPosition { rows, columns, row, column } = place;
    let mut sends = Sends::new(rank);
    // Steps a wave needs from one corner to the other.
    let across = rows - 1 + columns - 1;
    let before = row + column;

    for (direction, waits) in [(Direction::Forward, before), (Direction::Backward, across - before)] {
        sends.skip(waits);
        for _ in 0..PLANES {
            if let Some(to) = place.along_rows(direction) {
                sends.send(to, POINT_BYTES * inner(columns, column));
            }
            if let Some(to) = place.along_columns(direction) {
                sends.send(to, POINT_BYTES * inner(rows, row));
            }
            sends.next_step();
        }
        sends.skip(across - waits);
    }

    let layer = |len: u64| 2 * POINT_BYTES * len * POINTS;
    for direction in [Direction::Forward, Direction::Backward] {
        if let Some(to) = place.along_rows(direction) {
            sends.send(to, layer(block_len(POINTS, columns, column)));
        }
    }
    sends.next_step();
    for direction in [Direction::Forward, Direction::Backward] {
        if let Some(to) = place.along_columns(direction) {
            sends.send(to, layer(block_len(POINTS, rows, row)));
        }
    }
    sends.finish()
}

/// Returns a border's points without the ones on the grid's boundary, which a sweep skips.
fn inner(blocks: u32, index: u32) -> u64 {
    block_len(POINTS, blocks, index) - u64::from(index == 0) - u64::from(index + 1 == blocks)
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// One process's place in the grid.
#[derive(Clone, Copy, Debug)]
struct GridPosition {
    rows: u32,
    columns: u32,
    row: u32,
    column: u32,
}

impl GridPosition {
    fn new(rank: u32, ranks: u32) -> GridPosition {
        let columns = 1 << (ranks.ilog2() / 2);
        let rows = ranks / columns;
        GridPosition { rows, columns, row: rank % rows, column: rank / rows }
    }

    /// Returns the process in the next or previous row.
    fn along_rows(&self, direction: Direction) -> Option<u32> {
        Some(moved(self.row, self.rows, direction)? + self.rows * self.column)
    }

    /// Returns the process in the next or previous column.
    fn along_columns(&self, direction: Direction) -> Option<u32> {
        Some(self.row + self.rows * moved(self.column, self.columns, direction)?)
    }
}

fn moved(index: u32, extent: u32, direction: Direction) -> Option<u32> {
    match direction {
        Direction::Forward => Some(index + 1).filter(|&index| index < extent),
        Direction::Backward => index.checked_sub(1),
    }
}
