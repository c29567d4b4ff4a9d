//! Compiles what the C preprocessor alone can find out about an MPI: whether processes may fail while others live.

// Cargo is told by printing.
#![expect(clippy::print_stdout)]

mod compiler;

use std::error::Error;

use compiler::compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/room/failures.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    compiler()?.file("src/room/failures.c").try_compile("counterfoil_failures")?;
    Ok(())
}
