//! Examples run by tests, and preloaded libraries.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Directory with this build's examples and libraries, if `cargo xtask test` has built them.
const BUILT: &str = "COUNTERFOIL_TEST_BUILD";

/// Returns the path of a file in this build: `examples/NAME`, or a library.
///
/// Cargo builds no cdylib for its own package's tests, and no example for another package's; it builds them here with
/// the tests' crates, profile and features.
pub(crate) fn built(file: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(BUILT) {
        return PathBuf::from(folder).join(file);
    }
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["build", "--workspace", "--profile", "test", "--lib", "--examples", "--message-format", "json"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let files = messages.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    let mut files = files.filter_map(|path| path.as_str().map(PathBuf::from));
    files.find(|path| path.ends_with(file)).unwrap()
}
