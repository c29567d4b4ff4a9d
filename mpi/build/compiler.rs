//! C compiler of the MPI, for the build scripts of this workspace.

use std::error::Error;

/// Returns the compiler of the MPI that `mpi-sys` is also built against.
pub(crate) fn compiler() -> Result<cc::Build, Box<dyn Error>> {
    let mpi = build_probe_mpi::probe().map_err(|errors| {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("no MPI was found: {}", reasons.join("; "))
    })?;
    let mut build = cc::Build::new();
    match mpi.mpicc {
        Some(mpicc) => build.compiler(mpicc),
        None => build.includes(&mpi.include_paths),
    };
    Ok(build)
}
