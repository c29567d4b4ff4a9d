//! Makes the exported functions for the calls in the table supported by the MPI at hand.

// Cargo is told by printing.
#![expect(clippy::print_stdout)]

#[path = "../../calls/build/arguments.rs"]
mod arguments;
#[path = "../../core/build/compiler.rs"]
mod compiler;
#[path = "../../calls/build/declared.rs"]
mod declared;
#[path = "../../calls/build/fortran.rs"]
mod fortran;
#[path = "../../core/build/implementation.rs"]
mod implementation;
mod render;
#[path = "../../core/build/run_path.rs"]
mod run_path;

use std::error::Error;
use std::path::PathBuf;

use compiler::compiler;
use declared::Declared;

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build", "src/mpi.c"] {
        println!("cargo:rerun-if-changed={path}");
    }
    compiler()?.file("src/mpi.c").try_compile("counterfoil_recover_c")?;
    implementation::configure("src/mpi.c")?;
    let declared = Declared::find(|_| true)?;
    declared.configure("has", |call| &call.name);
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("calls.rs");
    std::fs::write(&out, render::library(&declared.present, declared.bindings))
        .map_err(|error| format!("{}: {error}", out.display()))?;
    if std::env::var("PROFILE")? == "debug" { run_path::set_run_path() } else { Ok(()) }
}
