//! Message size distribution.

use super::{DrawError, bars::Columns};
use crate::report::figures::Figures;
use crate::units;

/// Draws a column per power of two, including empty ones in between; `None` without messages.
pub(super) fn draw(figures: &Figures) -> Result<Option<String>, DrawError> {
    let classes: Vec<(u64, u64, u64)> = figures.sizes.classes().collect();
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else { return Ok(None) };
    let bits = |bytes: u64| u64::BITS - bytes.leading_zeros();
    let columns = (bits(first.0)..=bits(last.0)).map(|class| {
        let from = if class == 0 { 0 } else { 1 << (class - 1) };
        let messages = classes.iter().find(|one| one.0 == from).map_or(0, |one| one.2);
        (units::bytes(from), messages)
    });
    let x = "bytes, lower bound of the class";
    Columns { title: "Message sizes", x, columns: columns.collect() }.draw().map(Some)
}
