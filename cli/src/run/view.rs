//! The line that says how the job is doing.

use std::path::{Path, PathBuf};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use serde_json::Value;

use super::account::{contributed, files};

/// On a terminal, one line that is rewritten; elsewhere nothing.
pub(super) struct View {
    line: ProgressBar,
    dir: PathBuf,
}

impl View {
    /// With what the ranks leave in a directory.
    pub(super) fn new(dir: &Path) -> View {
        let line = ProgressBar::new_spinner();
        // A template that is given here, and right.
        if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_msg}") {
            line.set_style(style);
        }
        View { line, dir: dir.to_owned() }
    }

    /// Says how it is now: messages and bytes logged, messages that nobody has said to have received, memory and disk.
    pub(super) fn look(&self) {
        if self.line.is_hidden() {
            return;
        }
        let ranks = files(&self.dir, ".live");
        if ranks.is_empty() {
            return;
        }
        let sum = |name: &str| -> u64 {
            ranks.iter().filter_map(|(_, figures)| figures.get(name).and_then(Value::as_u64)).sum()
        };
        let given: u64 = ranks.iter().map(|(_, figures)| contributed(figures)).sum();
        let given = if given > 0 { format!(", {} for collectives", BinaryBytes(given)) } else { String::new() };
        self.line.set_message(format!(
            "{} logged ({}){given}, {} unacknowledged, memory {}, spilled {}",
            sum("messages_logged"),
            BinaryBytes(sum("bytes_logged")),
            sum("unacknowledged"),
            BinaryBytes(sum("memory_bytes")),
            BinaryBytes(sum("spilled_bytes")),
        ));
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        self.line.finish_and_clear();
    }
}
