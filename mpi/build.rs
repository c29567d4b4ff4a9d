//! Compiles what the C preprocessor alone can find out about an MPI: whether processes may fail while others live.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src/room/failures.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    let mpi = build_probe_mpi::probe().map_err(|errors| {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("no MPI was found: {}", reasons.join("; "))
    })?;
    let mut build = cc::Build::new();
    match mpi.mpicc {
        Some(mpicc) => build.compiler(mpicc),
        None => build.includes(&mpi.include_paths),
    };
    build.file("src/room/failures.c").try_compile("counterfoil_failures")?;
    Ok(())
}
