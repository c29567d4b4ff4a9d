//! Search for the MPI, and the path to its library for programs.

use std::error::Error;

/// Lets the built package's programs, examples and tests find their MPI without `mpirun`.
///
/// The path is an argument of their link step alone: in `RUSTFLAGS` it would have all crates compiled anew.
pub(crate) fn set_run_path() -> Result<(), Box<dyn Error>> {
    for folder in probe()?.lib_paths {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
    Ok(())
}

/// Finds the MPI that `mpi-sys` is also built against.
pub(crate) fn probe() -> Result<build_probe_mpi::Library, Box<dyn Error>> {
    build_probe_mpi::probe().map_err(|errors| {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("no MPI was found: {}", reasons.join("; ")).into()
    })
}
