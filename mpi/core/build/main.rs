//! Compiles the C files: MPI's macros as functions, and whether this MPI's processes may fail while others continue.

// Build scripts talk to cargo on standard output.
#![expect(clippy::print_stdout)]

mod compiler;
mod run_path;

use std::error::Error;

use compiler::compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    for file in ["src/control/failures.c", "src/fortran.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=MPICC");
    compiler()?.file("src/control/failures.c").try_compile("counterfoil_failures")?;
    compiler()?.file("src/fortran.c").try_compile("counterfoil_fortran")?;
    let expanded = compiler()?.file("src/fortran.c").try_expand()?;
    println!("cargo:rustc-check-cfg=cfg(open_mpi)");
    if String::from_utf8_lossy(&expanded).contains("ompi_mpi_comm_world") {
        println!("cargo:rustc-cfg=open_mpi");
    }
    run_path::set_run_path()
}
