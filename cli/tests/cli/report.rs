//! End-to-end tests of `counterfoil report` on generated directories; no MPI needed.

mod errors;
pub(crate) mod job_dir;
mod log_only;
mod page;
