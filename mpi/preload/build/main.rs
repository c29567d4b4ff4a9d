//! Makes the wrappers for those table calls that the MPI at hand has.

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
mod render;
#[path = "../../core/build/run_path.rs"]
mod run_path;

use std::error::Error;
use std::path::{Path, PathBuf};

use compiler::compiler;
use counterfoil_mpi_calls::{Call, Class};
use declared::Declared;

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build", "src/constants.c", "src/handlers.c"] {
        println!("cargo:rerun-if-changed={path}");
    }
    compiler()?.file("src/constants.c").try_compile("counterfoil_constants")?;
    // A handler may unwind through its caller.
    compiler()?.file("src/handlers.c").flag("-fexceptions").try_compile("counterfoil_handlers")?;
    let declared = Declared::find(|call| call.class != Class::Answered)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // `wrap` has a function for each.
    declared.configure("wraps", Call::wrapper);
    write(&out.join("calls.rs"), &render::library(&declared.present, declared.bindings))?;
    let names = |calls: &[Call]| calls.iter().map(|call| call.symbol() + "\n").collect::<String>();
    write(&out.join("wrapped.txt"), &names(&declared.present))?;
    write(&out.join("absent.txt"), &names(&declared.absent))?;
    compare_extensions(&declared.present, &out.join("extensions.c"))?;
    // A preloaded library uses the program's MPI; only its tests need a path.
    if std::env::var("PROFILE")? == "debug" { run_path::set_run_path() } else { Ok(()) }
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Compiles the prototypes of extensions' calls: the bindings know `mpi.h` alone, so the C compiler compares them.
fn compare_extensions(calls: &[Call], path: &Path) -> Result<(), Box<dyn Error>> {
    let declared: String =
        calls.iter().filter(|call| call.is_extension()).map(|call| call.prototype() + ";\n").collect();
    if !declared.is_empty() {
        write(path, &format!("#include <mpi.h>\n#include <mpi-ext.h>\n{declared}"))?;
        compiler()?.file(path).try_compile("counterfoil_extensions")?;
    }
    Ok(())
}
