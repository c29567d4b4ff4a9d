//! The line that says how the job is doing.

use std::path::{Path, PathBuf};

use counterfoil_profile::{Channel, Live, Word};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

use super::account::live;

/// On a terminal, one line that is rewritten; elsewhere nothing.
pub(super) struct View {
    line: ProgressBar,
    dir: PathBuf,
}

impl View {
    /// With what the ranks leave in a directory; `is_wanted` where the user didn't turn it off.
    pub(super) fn new(dir: &Path, is_wanted: bool) -> View {
        let line = if is_wanted { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        // A template that is given here, and right.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_msg}") {
            line.set_style(style);
        }
        View { line, dir: dir.to_owned() }
    }

    /// Says how it is now: messages and bytes logged, messages that nobody has said to have received, memory and disk.
    pub(super) fn look(&self) {
        if self.line.is_hidden() {
            return;
        }
        let ranks = live(&self.dir);
        if ranks.is_empty() {
            return;
        }
        let sum = |of: &dyn Fn(&Live) -> u64| -> u64 { ranks.iter().map(|(_, live)| of(live)).sum() };
        let logged = |of: fn(Channel) -> u64| sum(&|live| live.logged().map(of).sum());
        let given = match sum(&|live| live.word(Word::ContributedBytes)) {
            0 => String::new(),
            bytes => format!(", {} for collectives", BinaryBytes(bytes)),
        };
        self.line.set_message(format!(
            "{} logged ({}){given}, {} unacknowledged, memory {}, spilled {}",
            logged(|channel| channel.messages),
            BinaryBytes(logged(|channel| channel.bytes)),
            sum(&Live::unacknowledged),
            BinaryBytes(sum(&|live| live.word(Word::Memory))),
            BinaryBytes(sum(&|live| live.word(Word::Spilled))),
        ));
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        self.line.finish_and_clear();
    }
}
