//! Buffered standard output, for long dumps.

use std::io::{self, BufWriter, Stdout, Write};

use serde_json::Value;

use crate::Failure;

/// Error ending a dump.
#[derive(Debug)]
pub(super) enum DumpError {
    /// Standard output is closed, which is not an error, or can't be written.
    Output(io::Error),
    Failed(Failure),
}

impl From<Failure> for DumpError {
    fn from(failure: Failure) -> DumpError {
        DumpError::Failed(failure)
    }
}

/// Buffered writer to standard output.
pub(super) struct Output {
    to: BufWriter<Stdout>,
}

impl Output {
    pub(super) fn new() -> Output {
        Output { to: BufWriter::new(io::stdout()) }
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), DumpError> {
        self.to.write_all(text.as_bytes()).map_err(DumpError::Output)
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), DumpError> {
        self.text(line)?;
        self.text("\n")
    }

    pub(super) fn json(&mut self, value: &Value) -> Result<(), DumpError> {
        serde_json::to_writer(&mut self.to, value).map_err(|error| DumpError::Output(error.into()))
    }

    pub(super) fn flush(&mut self) -> Result<(), DumpError> {
        self.to.flush().map_err(DumpError::Output)
    }
}
