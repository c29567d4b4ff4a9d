//! Progress line for a running job.

use std::path::{Path, PathBuf};

use counterfoil_profile::{Channel, Live, Word, live};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

use super::launch::Watch;

/// Rewritten terminal line; hidden elsewhere.
pub(super) struct ProgressLine {
    line: ProgressBar,
    dir: PathBuf,
}

impl ProgressLine {
    /// Creates the line for ranks writing their live counters into `dir`; hidden unless `is_wanted`.
    pub(super) fn new(dir: &Path, is_wanted: bool) -> ProgressLine {
        let line = if is_wanted { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        // The template is valid.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_msg}") {
            line.set_style(style);
        }
        ProgressLine { line, dir: dir.to_owned() }
    }
}

impl Watch for ProgressLine {
    /// Shows messages and bytes logged, unacknowledged records, and memory and disk space used.
    fn update(&mut self) -> bool {
        if self.line.is_hidden() {
            return true;
        }
        let ranks = live::read_all(&self.dir);
        if ranks.is_empty() {
            return true;
        }
        let sum = |of: &dyn Fn(&Live) -> u64| -> u64 { ranks.iter().map(|(_, live)| of(live)).sum() };
        let logged = |of: fn(Channel) -> u64| sum(&|live| live.logged().map(of).sum());
        let contributed = match sum(&|live| live.word(Word::ContributedBytes)) {
            0 => String::new(),
            bytes => format!(", {} coll.", BinaryBytes(bytes)),
        };
        self.line.set_message(format!(
            "{} logged ({}){contributed}, {} unacked, mem {}, disk {}",
            logged(|channel| channel.messages),
            BinaryBytes(logged(|channel| channel.bytes)),
            sum(&Live::unacknowledged),
            BinaryBytes(sum(&|live| live.word(Word::Memory))),
            BinaryBytes(sum(&|live| live.word(Word::Spilled))),
        ));
        true
    }

    /// Removes the line.
    fn finish(&mut self) {
        self.line.finish_and_clear();
    }
}
