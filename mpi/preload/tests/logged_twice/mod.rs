//! A program on a `LoggedCommunicator` under the library.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::launch::{Run, variable};
use super::{accounts, channels_agree};

/// Builds `examples/ring.rs` of `counterfoil-mpi` and returns its path. Its crates are those that the tests use.
fn ring() -> PathBuf {
    let mut command = Command::new(variable("CARGO", "cargo"));
    command.args(["build", "--workspace", "--profile", "test", "--example", "ring", "--message-format", "json"]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().map(PathBuf::from)).unwrap()
}

#[test]
fn acknowledgements_of_a_program_that_logs_by_itself_are_not_logged_and_a_warning_says_that_it_is_logged_twice() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).once(ring().to_str().unwrap(), 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("the program logs by itself (LoggedCommunicator)").count(), 1, "{stderr}");
    let accounts = accounts(folder.path(), 2, &stderr);
    channels_agree(&accounts, 0);
    // One message to the left and one to the right in each of 2,000 steps, and nothing else.
    assert!(accounts.iter().all(|account| account["messages_logged"] == 4000), "{accounts:?}");
}
