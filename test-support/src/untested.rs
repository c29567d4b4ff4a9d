//! Properties not testable on this machine.

use std::fs::OpenOptions;
use std::io::Write;

/// Names a file for these notes, a line each; `cargo xtask test` sets it, and repeats the lines in its summary.
const VARIABLE: &str = "COUNTERFOIL_UNTESTED";

/// Notes properties not tested by a passing test, with the reason: on stderr, and in the summary of `cargo xtask test`,
/// since the output of a passing test isn't shown.
///
/// # Panics
/// If the file for the notes can't be written.
pub fn note_untested(what: &str) {
    eprintln!("NOT TESTED: {what}");
    if let Some(path) = std::env::var_os(VARIABLE) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file for notes");
        // One write: other tests may append at the same time.
        file.write_all(format!("{what}\n").as_bytes()).expect("a note");
    }
}
