//! Table calls declared by the MPI at hand.

use std::collections::{BTreeSet, HashSet};
use std::error::Error;

use counterfoil_mpi_calls::Call;

use super::compiler::compiler;
use super::fortran::Bindings;

/// A file with the headers of extensions, too.
const EXTENDED: &str = "../core/src/control/failures.c";

/// The table's calls, by whether the MPI declares them.
pub(crate) struct Declared {
    pub(crate) present: Vec<Call>,
    pub(crate) absent: Vec<Call>,
    /// Fortran bindings not available in C.
    pub(crate) bindings: Bindings,
}

impl Declared {
    /// Compares the table calls selected by `knows` with the MPI's headers.
    pub(crate) fn find(knows: fn(&Call) -> bool) -> Result<Declared, Box<dyn Error>> {
        for path in [EXTENDED, "../core/build", "../calls/build"] {
            println!("cargo:rerun-if-changed={path}");
        }
        println!("cargo:rerun-if-env-changed=MPICC");
        let expanded = compiler()?.file(EXTENDED).try_expand()?;
        let expanded = String::from_utf8_lossy(&expanded);
        let has = prototypes(&expanded);
        let (present, absent): (Vec<Call>, Vec<Call>) = counterfoil_mpi_calls::table()?
            .into_iter()
            .filter(knows)
            .partition(|call| has.contains(call.symbol().as_str()));
        if present.is_empty() {
            return Err("the MPI's header declares none of the calls that are known".into());
        }
        let is_open_mpi = expanded.contains("ompi_mpi_comm_world");
        let bindings = if is_open_mpi { Bindings::OpenMpi } else { Bindings::Mpich };
        Ok(Declared { present, absent, bindings })
    }

    /// Sets a `cfg` with a name for each call declared by the MPI: an older MPI has fewer calls.
    pub(crate) fn configure(&self, cfg: &str, name: fn(&Call) -> &str) {
        let all: BTreeSet<&str> = self.present.iter().chain(&self.absent).map(name).collect();
        let values: Vec<String> = all.into_iter().map(|name| format!("\"{name}\"")).collect();
        println!("cargo:rustc-check-cfg=cfg({cfg}, values({}))", values.join(", "));
        for name in self.present.iter().map(name).collect::<BTreeSet<_>>() {
            println!("cargo:rustc-cfg={cfg}=\"{name}\"");
        }
    }
}

/// Returns the MPI calls declared in preprocessed C.
fn prototypes(text: &str) -> HashSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("MPI_") || word.starts_with("MPIX_")).collect()
}
