//! Call failures: MPI errors, which the program may handle, and failures ending the job.

use std::ffi::{CStr, c_char, c_int};

use counterfoil::AppendError;
use counterfoil_mpi::error::OperationError;
use counterfoil_mpi::recovery::{is_ended_elsewhere, needs_new_start};
use counterfoil_mpi_core::MpiError;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::CallError;
use mpi_sys as ffi;

use crate::replay::Reason;

/// Failure of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error for a communicator's error handler; `None` for the call's own communicator.
    Mpi { code: c_int, comm: Option<ffi::MPI_Comm> },
    /// The job ends.
    Fatal(String),
    /// A replay ends, or a repetition diverges.
    Replay { reason: Reason, why: String },
    /// A dead rank can't be replaced: the job is to be started again.
    Lost(String),
    /// Another process has ended the job.
    Ended,
}

impl Failure {
    /// Returns an error in a class: `MPI_ERR_*`.
    pub(crate) fn class(class: u32) -> Failure {
        Failure::Mpi { code: class as c_int, comm: None }
    }

    /// Returns the error for a call unsupported by recovery.
    pub(crate) fn refused(call: &str) -> Failure {
        Failure::Fatal(refusal(call))
    }

    /// Returns the error from one of the MPI's own calls.
    pub(crate) fn check(code: c_int) -> Result<(), Failure> {
        if code == 0 { Ok(()) } else { Err(Failure::Mpi { code, comm: None }) }
    }

    /// Names the communicator whose handler is called.
    pub(crate) fn on(self, on: ffi::MPI_Comm) -> Failure {
        match self {
            Failure::Mpi { code, comm } => Failure::Mpi { code, comm: comm.or(Some(on)) },
            other => other,
        }
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Failure {
        match error {
            OperationError::Mpi(MpiError::Call { code, .. }) => Failure::Mpi { code, comm: None },
            OperationError::Mpi(MpiError::TooLong { .. }) => Failure::class(ffi::MPI_ERR_COUNT),
            OperationError::Endpoint(Error::Call(CallError::NoSuchRank { .. })) => Failure::class(ffi::MPI_ERR_RANK),
            OperationError::Endpoint(Error::Call(CallError::NegativeTag { .. })) => Failure::class(ffi::MPI_ERR_TAG),
            OperationError::Endpoint(error) if let Some(reason) = Reason::of(&error) => {
                Failure::Replay { reason, why: error.to_string() }
            }
            other if is_ended_elsewhere(&other) => Failure::Ended,
            other if needs_new_start(&other) => Failure::Lost(other.to_string()),
            OperationError::Endpoint(error) if is_full(&error) => {
                Failure::Fatal(format!("{error}; --budget gives the log of each rank more memory"))
            }
            other => Failure::Fatal(other.to_string()),
        }
    }
}

/// Returns `true` if this rank's log is full.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Append { source: AppendError::Full(_), .. } | Error::StillFull { .. })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        OperationError::from(error).into()
    }
}

/// Returns the text about a call unsupported by recovery.
pub(crate) fn refusal(call: &str) -> String {
    format!("{call} is not available to a program that recovers: run it without --recover, which logs its messages")
}

/// Returns MPI's text for an error code.
pub(crate) fn text_of(code: c_int) -> String {
    let mut text = [0 as c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the length required by MPI, and a zero at its end.
    unsafe {
        ffi::PMPI_Error_string(code, text.as_mut_ptr(), &raw mut len);
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}
