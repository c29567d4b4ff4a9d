//! Matrix, grid and checksums for a factorization.

use std::str::FromStr;

use counterfoil_qr::{Grid, Layout, Protection, Size};

use super::NAME;
use crate::{Class, RanksError};

/// Matrix, grid and checksums for a factorization.
///
/// As a workload name: `qr`, or with all numbers `qr:2x3:rotating:512x512:16`, and `:hilbert` or another kind of
/// [`Elements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The matrix.
    pub size: Size,
    /// Process rows and columns; `None`: as the number of ranks permits.
    pub grid: Option<(usize, usize)>,
    /// Checksums.
    pub protection: Protection,
    /// Matrix elements.
    pub elements: Elements,
}

/// Kind of matrix elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Elements {
    /// Random numbers from -1 to 1.
    #[default]
    Random,
    /// Random numbers in columns with sizes ranging over 16 decades.
    Graded,
    /// 1 / (row + column + 1), the numbers counted from 0.
    Hilbert,
    /// Matrix with rank 5.
    Singular,
    /// Zeros.
    Zero,
}

impl Elements {
    /// All kinds, with their names.
    const ALL: [(&str, Elements); 5] = [
        ("random", Elements::Random),
        ("graded", Elements::Graded),
        ("hilbert", Elements::Hilbert),
        ("singular", Elements::Singular),
        ("zero", Elements::Zero),
    ];

    /// Returns a matrix element.
    pub(super) fn at(self, row: usize, column: usize) -> f64 {
        match self {
            Elements::Random => random(row, column),
            Elements::Graded => random(row, column) * 10_f64.powi((7 * column % 17) as i32 - 8),
            Elements::Hilbert => 1.0 / (row + column + 1) as f64,
            // Rows and columns outside the matrix.
            Elements::Singular => {
                (1..=5).map(|of| random(row, usize::MAX - of) * random(usize::MAX - of, column)).sum()
            }
            Elements::Zero => 0.0,
        }
    }
}

/// Returns a number from -1 to 1 (the finalizer of SplitMix64).
fn random(row: usize, column: usize) -> f64 {
    let mut bits = ((row as u64) << 32 | column as u64 & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Not a factorization's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no factorization: qr:GRID:PROTECTION:MATRIX:BLOCK, such as qr:2x3:rotating:512x512:16, with none, duplicated, rotating, or a period; \
     and :graded, :hilbert, :singular or :zero"
)]
pub struct ParseShapeError {
    name: String,
}

impl Shape {
    /// Returns a square matrix's shape, with rotating checksums.
    pub fn square(order: usize, block: usize) -> Shape {
        Shape {
            size: Size { rows: order, columns: order, block },
            grid: None,
            protection: Protection::Rotating,
            elements: Elements::Random,
        }
    }

    /// Returns the workload name.
    pub(super) fn to_name(self) -> String {
        let Size { rows, columns, block } = self.size;
        let Some((process_rows, process_columns)) = self.grid else { return NAME.to_owned() };
        let protection = match self.protection {
            Protection::Unprotected => "none".to_owned(),
            Protection::Duplicated => "duplicated".to_owned(),
            Protection::Rotating => "rotating".to_owned(),
            Protection::Periodic(period) => period.to_string(),
        };
        let kind = Elements::ALL.iter().find(|(_, kind)| *kind == self.elements && *kind != Elements::Random);
        let kind = kind.map_or(String::new(), |(name, _)| format!(":{name}"));
        format!("{NAME}:{process_rows}x{process_columns}:{protection}:{rows}x{columns}:{block}{kind}")
    }

    /// Lays the matrix out on so many ranks.
    pub(super) fn layout(&self, ranks: u32) -> Result<Layout, RanksError> {
        let workload = NAME;
        if ranks == 0 {
            return Err(RanksError::TooFew { workload, ranks, at_least: 1 });
        }
        let ranks_wide = ranks as usize;
        let process_rows = if ranks_wide >= 6 && ranks_wide.is_multiple_of(2) { 2 } else { 1 };
        let (rows, columns) = self.grid.unwrap_or((process_rows, ranks_wide / process_rows));
        if rows * columns != ranks_wide {
            return Err(RanksError::OtherGrid { workload, ranks, rows, columns });
        }
        let at_most = self.size.columns.div_ceil(self.size.block);
        if columns > at_most {
            let at_most = (at_most * rows) as u32;
            return Err(RanksError::TooMany { workload, class: Class::default(), ranks, at_most });
        }
        // A lone rank has no other to keep its checksums.
        let protection = if columns == 1 { Protection::Unprotected } else { self.protection };
        // Only a zero is refused, and names have none.
        let laid = Layout::new(self.size, Grid { rows, columns }, protection);
        laid.map_err(|_| RanksError::OtherGrid { workload, ranks, rows, columns })
    }
}

impl FromStr for Shape {
    type Err = ParseShapeError;

    fn from_str(name: &str) -> Result<Shape, ParseShapeError> {
        parse(name).ok_or_else(|| ParseShapeError { name: name.to_owned() })
    }
}

fn parse(name: &str) -> Option<Shape> {
    let pair = |text: &str| {
        let (one, other) = text.split_once('x')?;
        let (one, other): (usize, usize) = (one.parse().ok()?, other.parse().ok()?);
        (one > 0 && other > 0).then_some((one, other))
    };
    let mut parts = name.strip_prefix(NAME)?.strip_prefix(':')?.split(':');
    let grid = pair(parts.next()?)?;
    let protection = match parts.next()? {
        "none" => Protection::Unprotected,
        "duplicated" => Protection::Duplicated,
        "rotating" => Protection::Rotating,
        period => Protection::Periodic(period.parse().ok().filter(|period| *period > 0)?),
    };
    let (rows, columns) = pair(parts.next()?)?;
    let block = parts.next()?.parse().ok().filter(|block| *block > 0)?;
    let elements = match parts.next() {
        None => Elements::Random,
        Some(name) => Elements::ALL.iter().find(|(of, _)| *of == name)?.1,
    };
    let shape = Shape { size: Size { rows, columns, block }, grid: Some(grid), protection, elements };
    parts.next().is_none().then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_from_its_name() {
        for name in [
            "qr:2x3:rotating:512x256:16",
            "qr:1x4:8:100x100:7",
            "qr:1x1:none:1x1:1",
            "qr:2x2:duplicated:9x9:3",
            "qr:1x2:rotating:9x9:3:hilbert",
        ] {
            assert_eq!(name.parse::<Shape>().unwrap().to_name(), name);
        }
        for other in ["qr", "qr:", "qr:2:rotating:9x9:3", "qr:0x1:none:9x9:3", "qr:1x1:0:9x9:3", "qr:1x1:none:9x9:0"] {
            assert!(other.parse::<Shape>().is_err(), "{other}");
        }
        for other in ["qr:1x1:none:9x9:3:1", "qr:1x1:none:9x9:3:zero:zero"] {
            assert!(other.parse::<Shape>().is_err(), "{other}");
        }
        assert_eq!(Shape::square(9, 3).to_name(), "qr");
    }

    #[test]
    fn ranks_are_process_columns_or_two_rows_of_them() {
        let grid = |ranks| {
            let Grid { rows, columns } = Shape::square(64, 4).layout(ranks).unwrap().grid();
            (rows, columns)
        };
        assert_eq!([1, 2, 4, 5, 6, 8].map(grid), [(1, 1), (1, 2), (1, 4), (1, 5), (2, 3), (2, 4)]);
        assert!(Shape::square(64, 4).layout(0).is_err() && Shape::square(64, 4).layout(100).is_err());
        let fixed = Shape { grid: Some((2, 2)), ..Shape::square(64, 4) };
        assert!(fixed.layout(4).is_ok() && fixed.layout(5).is_err());
    }
}
