//! Programs in `examples` of `counterfoil-mpi`.

use std::path::PathBuf;
use std::process::Command;

/// Builds an example and returns its path. All its crates are those that the tests use: of their profile, and with the features that the whole
/// workspace needs.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["build", "--workspace", "--profile", "test", "--example", name, "--message-format", "json"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.find(|path| path.file_name().is_some_and(|file| file == name)).unwrap()
}
