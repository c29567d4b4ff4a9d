//! Programs of a few lines.

use std::path::Path;
use std::process::Command;

/// Writes a shell script that can be run. Another process does it: one that a test beside this one starts meanwhile would inherit a
/// file that is written here, and what is open for writing can't be run.
pub(crate) fn write(path: &Path, lines: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", lines]).arg(path);
    assert!(write.status().unwrap().success());
}
