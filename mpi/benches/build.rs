//! Sets the benchmark programs' path to their MPI.

#[path = "../core/build/run_path.rs"]
mod run_path;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../core/build/run_path.rs");
    println!("cargo:rerun-if-env-changed=MPICC");
    run_path::set_run_path()
}
