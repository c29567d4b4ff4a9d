//! A program on a `LoggedCommunicator` under the library.

use super::build::built;
use super::launch::Run;
use super::{accounts, channels_agree};

#[test]
fn acknowledgements_of_a_program_that_logs_by_itself_are_not_logged_and_a_warning_says_that_it_is_logged_twice() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).once(built("examples/ring").to_str().unwrap(), 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("the program logs by itself (LoggedCommunicator)").count(), 1, "{stderr}");
    let accounts = accounts(folder.path(), 2, &stderr);
    channels_agree(&accounts, 0);
    // One message to the left and one to the right in each of 2,000 steps, and nothing else.
    assert!(accounts.iter().all(|account| account["messages_logged"] == 4000), "{accounts:?}");
}
