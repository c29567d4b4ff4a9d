//! How long messages were.

use super::{DrawError, bars::Columns, units};
use crate::report::figures::Figures;

/// A column for each power of two, also for those between that no message has; `None` where there are no messages.
pub(super) fn draw(figures: &Figures) -> Result<Option<String>, DrawError> {
    let classes: Vec<(u64, u64, u64)> = figures.sizes.classes().collect();
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else { return Ok(None) };
    let bits = |bytes: u64| u64::BITS - bytes.leading_zeros();
    let columns = (bits(first.0)..=bits(last.0)).map(|class| {
        let from = if class == 0 { 0 } else { 1 << (class - 1) };
        let messages = classes.iter().find(|one| one.0 == from).map_or(0, |one| one.2);
        (units::bytes(from), messages)
    });
    let x = "bytes: from the number below up to twice as many";
    Columns { title: "Lengths of messages", x, columns: columns.collect() }.draw().map(Some)
}
