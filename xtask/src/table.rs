//! Plain-text tables: a heading, a rule and rows.
//!
//! Text is left-aligned, numbers are right-aligned.

use std::fmt;

/// A table with text cells.
///
/// `Display` lays it out.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new<H: Into<String>>(heading: impl IntoIterator<Item = H>) -> Self {
        Self { heading: heading.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// Missing cells are empty; surplus cells are dropped.
    pub(crate) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.heading.len(), String::new());
        self.rows.push(row);
    }

    /// Returns a column's width in characters.
    fn width(&self, column: usize) -> usize {
        std::iter::once(&self.heading).chain(&self.rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
    }

    /// Returns `true` if each non-empty cell of the column starts like a number.
    fn is_numeric(&self, column: usize) -> bool {
        self.rows
            .iter()
            .map(|row| row[column].as_str())
            .filter(|cell| !cell.is_empty())
            .all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, bool)> =
            (0..self.heading.len()).map(|column| (self.width(column), self.is_numeric(column))).collect();
        let rule: Vec<String> = columns.iter().map(|(width, _)| "-".repeat(*width)).collect();
        for row in [&self.heading, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (cell, (width, numeric)) in row.iter().zip(&columns) {
                let pad = " ".repeat(width - cell.chars().count());
                let (before, after) = if *numeric { (pad.as_str(), "") } else { ("", pad.as_str()) };
                line.push_str(before);
                line.push_str(cell);
                line.push_str(after);
                line.push_str("  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn text_is_left_aligned_and_numbers_are_right_aligned() {
        let mut table = Table::new(["tier", "ns"]);
        table.row(["volatile", "9.5"]);
        table.row(["x", "120.0"]);
        table.row(["short"]);
        assert_eq!(
            table.to_string(),
            "tier         ns\n\
             --------  -----\n\
             volatile    9.5\n\
             x         120.0\n\
             short\n"
        );
    }
}
