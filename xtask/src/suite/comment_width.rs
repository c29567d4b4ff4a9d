//! Checks comment widths, which rustfmt doesn't wrap.

use std::fs;

use super::files::find_files;
use crate::workspace::Workspace;

/// Maximum comment line width, in characters: `max_width` of `rustfmt.toml`.
const COLUMNS_MAX: usize = 120;

/// Checks all Rust files in the tree, including `mpi/`.
///
/// # Errors
/// Each line that is too wide, or a directory or file that cannot be read.
pub(super) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut files = Vec::new();
    find_files(workspace.root(), "rs", &mut files)?;
    let mut wide = Vec::new();
    for file in &files {
        let shown = file.strip_prefix(workspace.root()).unwrap_or(file);
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", shown.display()))?;
        wide.extend(
            wide_comments(&text).map(|(line, columns)| format!("{}:{line}: {columns} columns", shown.display())),
        );
    }
    println!("checked {} files", files.len());
    if wide.is_empty() { Ok(()) } else { Err(wide.join("\n")) }
}

/// Returns each overlong comment line's number and width.
fn wide_comments(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
    lines.map(|(index, line)| (index + 1, line.chars().count())).filter(|(_, columns)| *columns > COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_of_121_characters_is_too_wide() {
        let line = |columns: usize| format!("    /// {}\n", "é".repeat(columns - 8));
        assert_eq!(wide_comments(&line(120)).next(), None);
        assert_eq!(wide_comments(&format!("fn f() {{}}\n{}", line(121))).next(), Some((2, 121)));
    }

    #[test]
    fn only_comments_count() {
        assert_eq!(wide_comments(&format!("let text = \"{}\";\n", "x".repeat(150))).next(), None);
    }
}
