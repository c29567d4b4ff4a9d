//! LU: sweeps over a 3-D grid that is cut along two axes into pencils.
//!
//! Process (row, column) of a grid of `rows` x `columns` is rank = row + `rows` * column; `rows` is `columns` or twice
//! as much. The lower sweep goes plane by plane from the first corner to the last: a process needs the borders of the
//! row and the column before it to work on a plane, and hands its own on. The upper sweep goes the other way. Then the
//! right-hand side is formed, for which each process gets two layers from each neighbour. There is nothing beyond the
//! edge of the grid.

use super::Message;
use super::blocks::block_len;
use super::sends::Sends;

/// Iterations of class D.
pub(super) const ITERATIONS: u32 = 300;
/// Four points for each process along each axis.
pub(super) const RANKS: (u32, u32) = (2, 4_096);

/// Points along each axis.
const POINTS: u64 = 408;
/// Planes of a sweep: all but the two on the boundary.
const PLANES: u32 = 406;
/// Five unknowns of double precision at each point.
const POINT_BYTES: u64 = 5 * 8;

/// What `rank` sends in one iteration.
pub(super) fn sends(rank: u32, ranks: u32) -> Vec<Message> {
    let place = Place::new(rank, ranks);
    let Place { rows, columns, row, column } = place;
    let mut sends = Sends::new(rank);
    // Steps that a wave needs from one corner to the other.
    let across = rows - 1 + columns - 1;
    let before = row + column;

    for (direction, waits) in [(Direction::Onward, before), (Direction::Back, across - before)] {
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
    for direction in [Direction::Onward, Direction::Back] {
        if let Some(to) = place.along_rows(direction) {
            sends.send(to, layer(block_len(POINTS, columns, column)));
        }
    }
    sends.next_step();
    for direction in [Direction::Onward, Direction::Back] {
        if let Some(to) = place.along_columns(direction) {
            sends.send(to, layer(block_len(POINTS, rows, row)));
        }
    }
    sends.finish()
}

/// Points of a border that a sweep works on: not those on the boundary of the grid.
fn inner(blocks: u32, index: u32) -> u64 {
    block_len(POINTS, blocks, index) - u64::from(index == 0) - u64::from(index + 1 == blocks)
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Onward,
    Back,
}

/// One process's place in the grid.
#[derive(Clone, Copy, Debug)]
struct Place {
    rows: u32,
    columns: u32,
    row: u32,
    column: u32,
}

impl Place {
    fn new(rank: u32, ranks: u32) -> Place {
        let columns = 1 << (ranks.ilog2() / 2);
        let rows = ranks / columns;
        Place { rows, columns, row: rank % rows, column: rank / rows }
    }

    /// The process in the next or previous row.
    fn along_rows(&self, direction: Direction) -> Option<u32> {
        Some(moved(self.row, self.rows, direction)? + self.rows * self.column)
    }

    /// The process in the next or previous column.
    fn along_columns(&self, direction: Direction) -> Option<u32> {
        Some(self.row + self.rows * moved(self.column, self.columns, direction)?)
    }
}

fn moved(index: u32, extent: u32, direction: Direction) -> Option<u32> {
    match direction {
        Direction::Onward => Some(index + 1).filter(|&index| index < extent),
        Direction::Back => index.checked_sub(1),
    }
}
