//! Compiles the C files: MPI's macros as functions, and whether this MPI's processes may fail while others continue.

// Build scripts talk to cargo on standard output.
#![expect(clippy::print_stdout)]

mod compiler;
mod implementation;
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
    implementation::configure("src/fortran.c")?;
    run_path::set_run_path()
}
