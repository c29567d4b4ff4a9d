//! A test that is run in a process of its own.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::process::{Command, Output};

/// What a child is told: it does nothing but what this says.
pub(crate) const TOLD: &str = "COUNTERFOIL_TEST_CHILD";

/// Arguments of this test program that run one ignored test alone.
pub(crate) fn arguments(test: &str) -> [&str; 5] {
    ["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]
}

/// Runs the ignored test `test` of this program, which finds `told` in its environment.
pub(crate) fn run(test: &str, told: &str) {
    passed(
        &Command::new(std::env::current_exe().unwrap()).args(arguments(test)).env(TOLD, told).output().unwrap(),
        told,
    );
}

/// Fails with all that the child said where it did not pass.
pub(crate) fn passed(output: &Output, told: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    // No test of that name is a success, too.
    if !output.status.success() || !said.contains("1 passed") {
        panic!("{told}: {}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}

/// What this child was told.
pub(crate) fn told() -> String {
    std::env::var(TOLD).unwrap_or_else(|_| panic!("this test is run by others of this program, which set {TOLD}"))
}
