//! Unmodified C programs under the recovery library: the same output and exit code as without it, also when a rank is
//! killed; and each rank alone, replayed.
//!
//! `cargo xtask mpi -- test` sets the path of `mpirun`. With an MPI that doesn't outlive failures (Open MPI 4), only
//! runs without failures are tested.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../../../tests/support/as_fortran.rs"]
mod as_fortran;
#[path = "../../../tests/support/random.rs"]
mod batch;
#[path = "../../../tests/support/build.rs"]
mod build;
mod checkpoints;
#[path = "../../../tests/support/compilers.rs"]
mod compilers;
#[path = "../../../tests/support/mpirun.rs"]
mod mpirun;
#[path = "../../../tests/support/output.rs"]
mod output;
mod program;
mod random;
mod recovers;
mod replays;
#[path = "../../../tests/support/ulfm.rs"]
mod ulfm;
