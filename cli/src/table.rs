//! Text tables.

use std::fmt;

/// Table with columns as wide as their widest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Per column, whether it is left-aligned.
    left: Vec<bool>,
}

impl Table {
    /// Creates a table with the given headings.
    ///
    /// A `<` before a heading left-aligns its column.
    pub(crate) fn new(headings: &[&str]) -> Table {
        let left = headings.iter().map(|heading| heading.starts_with('<')).collect();
        let heading = headings.iter().map(|heading| heading.trim_start_matches('<').to_owned()).collect();
        Table { rows: vec![heading], left }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    /// Writes each row on its own line, indented by four spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.left.len();
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = " ".repeat(2);
            for ((cell, width), is_left) in row.iter().zip(&widths).zip(&self.left) {
                line += "  ";
                line += &if *is_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            }
            if index > 0 {
                writeln!(f)?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["<name", "bytes"]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["longer".to_owned(), "1234567".to_owned()]);
        assert_eq!(table.to_string(), "    name      bytes\n    a             1\n    longer  1234567");
    }
}
