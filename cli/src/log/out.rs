//! Standard output, for what may be long.

use std::io::{self, BufWriter, Stdout, Write};

use serde_json::Value;

use crate::Failure;

/// Why nothing more is written.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody reads it any more, which is no error, or it can't be written.
    Output(io::Error),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// Buffered lines.
pub(super) struct Out {
    to: BufWriter<Stdout>,
}

impl Out {
    pub(super) fn new() -> Out {
        Out { to: BufWriter::new(io::stdout()) }
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Stop> {
        self.to.write_all(text.as_bytes()).map_err(Stop::Output)
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), Stop> {
        self.text(line)?;
        self.text("\n")
    }

    pub(super) fn json(&mut self, value: &Value) -> Result<(), Stop> {
        serde_json::to_writer(&mut self.to, value).map_err(|error| Stop::Output(error.into()))
    }

    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        self.to.flush().map_err(Stop::Output)
    }
}
