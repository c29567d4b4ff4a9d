//! Makes the wrappers: of the calls in the table, those that the MPI at hand has.

// Cargo is told by printing.
#![expect(clippy::print_stdout)]

#[path = "../../build/compiler.rs"]
mod compiler;
mod render;

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use compiler::compiler;
use counterfoil_mpi_calls::Call;

/// A file that has the headers of extensions, too.
const EXTENDED: &str = "../src/room/failures.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=../build/compiler.rs");
    println!("cargo:rerun-if-changed=src/constants.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed={EXTENDED}");
    compiler()?.file("src/constants.c").try_compile("counterfoil_constants")?;
    let expanded = compiler()?.file(EXTENDED).try_expand()?;
    let expanded = String::from_utf8_lossy(&expanded);
    let has = prototypes(&expanded);
    let table = counterfoil_mpi_calls::table()?;
    let (present, absent): (Vec<Call>, Vec<Call>) =
        table.into_iter().partition(|call| has.contains(call.symbol().as_str()));
    if present.is_empty() {
        return Err("the MPI's header declares none of the calls that are known".into());
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    write(&out.join("calls.rs"), &render::library(&present))?;
    let names = |calls: &[Call]| calls.iter().map(|call| call.symbol() + "\n").collect::<String>();
    write(&out.join("wrapped.txt"), &names(&present))?;
    write(&out.join("absent.txt"), &names(&absent))?;
    compare_extensions(&present, &out.join("extensions.c"))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The bindings know `mpi.h` alone: that calls of extensions have the prototypes of the table, the C compiler says.
fn compare_extensions(calls: &[Call], path: &Path) -> Result<(), Box<dyn Error>> {
    let declared: String =
        calls.iter().filter(|call| call.is_extension()).map(|call| call.prototype() + ";\n").collect();
    if !declared.is_empty() {
        write(path, &format!("#include <mpi.h>\n#include <mpi-ext.h>\n{declared}"))?;
        compiler()?.file(path).try_compile("counterfoil_extensions")?;
    }
    Ok(())
}

/// The MPI calls that are declared in preprocessed C.
fn prototypes(text: &str) -> HashSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("MPI_") || word.starts_with("MPIX_")).collect()
}
