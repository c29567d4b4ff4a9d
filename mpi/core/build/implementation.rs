//! The MPI's implementation, for code that only one of them needs.

use std::error::Error;

use crate::compiler::compiler;

/// Sets `open_mpi` for an Open MPI; `source` includes mpi.h.
pub(crate) fn configure(source: &str) -> Result<(), Box<dyn Error>> {
    let expanded = compiler()?.file(source).try_expand()?;
    println!("cargo:rustc-check-cfg=cfg(open_mpi)");
    if String::from_utf8_lossy(&expanded).contains("ompi_mpi_comm_world") {
        println!("cargo:rustc-cfg=open_mpi");
    }
    Ok(())
}
