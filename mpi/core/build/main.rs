//! Compiles a C file that detects, through the preprocessor, if processes of this MPI may fail while others continue.

// Build scripts talk to cargo on standard output.
#![expect(clippy::print_stdout)]

mod compiler;
mod run_path;

use std::error::Error;

use compiler::compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/control/failures.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    compiler()?.file("src/control/failures.c").try_compile("counterfoil_failures")?;
    run_path::set_run_path()
}
