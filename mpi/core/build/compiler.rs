//! The MPI's C compiler, for the build scripts of crates over it.

use std::error::Error;

use crate::run_path::probe;

/// Returns the compiler for the MPI that `mpi-sys` is also built against.
pub(crate) fn compiler() -> Result<cc::Build, Box<dyn Error>> {
    let mpi = probe()?;
    let mut build = cc::Build::new();
    match mpi.mpicc {
        Some(mpicc) => build.compiler(mpicc),
        None => build.includes(&mpi.include_paths),
    };
    Ok(build)
}
