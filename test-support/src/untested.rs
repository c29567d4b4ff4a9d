//! Properties that this machine can't test.

use std::fs::OpenOptions;
use std::io::Write;

/// Names a file that gets a line for each; `cargo xtask test` sets it, and repeats the lines in its summary.
const VARIABLE: &str = "COUNTERFOIL_UNTESTED";

/// Notes what a test that passes has not tested, and why: on stderr, and in the summary of `cargo xtask test`, since
/// the output of a test that passes isn't shown.
///
/// # Panics
/// If the file of these notes can't be written.
pub fn note_untested(what: &str) {
    eprintln!("NOT TESTED: {what}");
    if let Some(path) = std::env::var_os(VARIABLE) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file for notes");
        // One write: other tests may append at the same time.
        file.write_all(format!("{what}\n").as_bytes()).expect("a note");
    }
}
