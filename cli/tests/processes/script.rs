//! Shell scripts.

use std::path::Path;
use std::process::Command;

/// Writes an executable shell script, in a child process.
///
/// A process forked meanwhile by another test would inherit a file descriptor opened here, and a file open for writing
/// can't be executed.
pub(crate) fn write(path: &Path, lines: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", lines]).arg(path);
    assert!(write.status().unwrap().success());
}
