//! End-to-end tests of `counterfoil run`, `config` and `doctor`.
//!
//! Tests that need an MPI and a library built for it are skipped, with a message, if there is none.

mod cannot_log;
mod full_log;
#[path = "../../../mpi/tests/support/holder.rs"]
mod holder;
mod hosts;
mod kept_logs;
mod programs;
mod python;
mod recover;
mod report;
mod ring;
pub(crate) mod sandbox;
mod settings;
mod tutorials;
mod usage_errors;
mod without_mpirun;
