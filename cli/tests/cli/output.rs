//! A program's exit code and output.

use std::process::Output;

/// Exit code and output of a program with output.
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> ProgramOutput {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        ProgramOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
