//! Makes the wrappers: of the calls in the table, those that the MPI at hand has.

// Cargo is told by printing.
#![expect(clippy::print_stdout)]

#[path = "../../build/compiler.rs"]
mod compiler;
mod render;

use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use compiler::compiler;
use counterfoil_mpi_calls::Call;

/// A file that has the headers of extensions, too.
const EXTENDED: &str = "../src/control/failures.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=../build/compiler.rs");
    println!("cargo:rerun-if-changed=src/constants.c");
    println!("cargo:rerun-if-changed=src/handlers.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed={EXTENDED}");
    compiler()?.file("src/constants.c").try_compile("counterfoil_constants")?;
    // A handler may unwind through its caller.
    compiler()?.file("src/handlers.c").flag("-fexceptions").try_compile("counterfoil_handlers")?;
    let expanded = compiler()?.file(EXTENDED).try_expand()?;
    let expanded = String::from_utf8_lossy(&expanded);
    let has = prototypes(&expanded);
    let all = counterfoil_mpi_calls::table()?;
    let (present, absent): (Vec<Call>, Vec<Call>) =
        all.iter().cloned().partition(|call| has.contains(call.symbol().as_str()));
    if present.is_empty() {
        return Err("the MPI's header declares none of the calls that are known".into());
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let library = render::library(&present);
    configure(&library, &render::library(&all));
    write(&out.join("calls.rs"), &library)?;
    let names = |calls: &[Call]| calls.iter().map(|call| call.symbol() + "\n").collect::<String>();
    write(&out.join("wrapped.txt"), &names(&present))?;
    write(&out.join("absent.txt"), &names(&absent))?;
    compare_extensions(&present, &out.join("extensions.c"))?;
    Ok(())
}

/// Sets `cfg(wraps = "NAME")` for each function of `wrap` that the library's calls need, and `cfg(wraps = "large_counts")` if some have arrays
/// of `MPI_Count`: an older MPI has fewer calls.
fn configure(library: &str, all: &str) {
    let names = |text: &str| -> BTreeSet<String> {
        let called =
            text.split("wrap::").skip(1).filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned()));
        let large = text.contains("Counts::ManyLarge").then(|| "large_counts".to_owned());
        called.chain(large).filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect()
    };
    let values: Vec<String> = names(all).into_iter().map(|name| format!("\"{name}\"")).collect();
    println!("cargo:rustc-check-cfg=cfg(wraps, values({}))", values.join(", "));
    for name in names(library) {
        println!("cargo:rustc-cfg=wraps=\"{name}\"");
    }
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
