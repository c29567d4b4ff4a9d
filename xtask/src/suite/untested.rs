//! Notes from tests that pass without testing something impossible on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable that names the notes file to the tests: `note_untested` in crate `counterfoil-test-support`.
const VARIABLE: &str = "COUNTERFOIL_UNTESTED";

/// Notes from one command's tests.
pub(super) struct Notes {
    path: PathBuf,
}

impl Notes {
    /// Starts without any notes, and lets the tests run by `command` add some.
    pub(super) fn begin(command: &mut Command, target: &Path) -> Notes {
        let path = target.join("untested");
        // Without an earlier run there is none.
        let _ = fs::remove_file(&path);
        command.env(VARIABLE, &path);
        Notes { path }
    }

    /// Returns the notes, each once.
    pub(super) fn take(self) -> BTreeSet<String> {
        let notes = fs::read_to_string(self.path).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_note_of_this_run_is_returned_once() {
        let target = std::env::temp_dir().join(format!("counterfoil-untested-{}", std::process::id()));
        fs::create_dir_all(&target).unwrap();
        let notes_of = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let notes = Notes::begin(&mut command, &target);
            assert!(command.status().unwrap().success());
            notes.take()
        };
        let script = "for what in syncs writes syncs; do echo $what: refused >> $COUNTERFOIL_UNTESTED; done";
        assert!(notes_of(script).into_iter().eq(["syncs: refused", "writes: refused"]));
        assert!(notes_of("true").is_empty());
        fs::remove_dir_all(&target).unwrap();
    }
}
