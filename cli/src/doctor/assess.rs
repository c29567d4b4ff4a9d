//! Assessment of [`super::probe`]'s results; doesn't access the machine.

use std::io;
use std::path::Path;

use counterfoil_mpi_discovery::Implementation;
use indicatif::BinaryBytes;
use serde_json::json;

use super::disk::Rate;
use super::finding::{Finding, State};
use super::probe::{Backend, FoundMpi, Machine, Mpis, SharedMemory};

/// Locked memory for a store's buffers: ten of 256 KiB, and room for others.
const MEMLOCK_BYTES_MIN: u64 = 8 << 20;
/// Shared memory for a few ranks' logs at the default budget.
const SHM_BYTES_MIN: u64 = 1 << 30;
/// Write speed below which a disk can't keep up with one rank's sends.
const DISK_BYTES_PER_S_MIN: f64 = 100e6;

/// Assesses every feature.
pub(super) fn all(machine: &Machine) -> Vec<Finding> {
    let mut findings = mpis(&machine.mpis);
    findings.extend([
        io_uring(&machine.backend),
        memlock(machine.memlock),
        shared_memory(&machine.shared),
        disk(&machine.dir, &machine.disk),
    ]);
    findings
}

/// Returns `true` if a job can be logged on this machine.
pub(super) fn is_usable(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Missing)
}

fn mpis(mpis: &Mpis) -> Vec<Finding> {
    let mut findings = Vec::new();
    for found in &mpis.found {
        match found {
            Ok(found) => findings.extend([library(found), ulfm(found), languages(found)]),
            Err(error) => findings.push(
                Finding::new("MPI", error.to_string(), json!({})).with_advice(State::Lacking, "choose another one"),
            ),
        }
    }
    let Some(none) = &mpis.default_error else { return findings };
    if mpis.found.iter().any(Result::is_ok) {
        let advice = format!("counterfoil run: {none}");
        findings.push(Finding::new("MPI", "none in PATH", json!({})).with_advice(State::Lacking, advice));
    } else {
        findings.insert(0, Finding::new("MPI", "none", json!({})).with_advice(State::Missing, none.to_string()));
    }
    findings
}

fn library(FoundMpi { mpi, library, .. }: &FoundMpi) -> Finding {
    let figures = json!({
        "name": mpi.name, "version": mpi.version, "mpirun": mpi.mpirun, "library": library.as_ref().ok(),
    });
    let text = format!("{mpi}, {}", mpi.mpirun.display());
    let kind = match mpi.implementation {
        Implementation::OpenMpi => "logging library",
        Implementation::Mpich => "recovery library",
    };
    match library {
        Ok(library) => Finding::new("MPI", format!("{text}; {kind} {}", library.display()), figures),
        Err(why) => {
            Finding::new("MPI", format!("{text}; no {kind}"), figures).with_advice(State::Lacking, why.as_str())
        }
    }
}

fn ulfm(FoundMpi { mpi, ulfm, .. }: &FoundMpi) -> Finding {
    let figures = json!({ "name": mpi.name, "ulfm": ulfm });
    match ulfm {
        Some(true) => Finding::new("ULFM", format!("supported by {mpi} (mpirun --with-ft ulfm)"), figures),
        Some(false) => Finding::new("ULFM", format!("not supported by {mpi}"), figures).with_advice(
            State::Lacking,
            "not needed for logging; for ranks that are replaced while the others go on, use Open MPI 5, as installed by `cargo xtask preload --mpi wheel`",
        ),
        None => Finding::new("ULFM", format!("unknown for {mpi}"), figures)
            .with_advice(State::Lacking, "ompi_info is missing; test with mpirun --with-ft ulfm"),
    }
}

/// Assesses the bindings; existing ones are covered.
fn languages(FoundMpi { mpi, bindings, .. }: &FoundMpi) -> Finding {
    let figures = json!({ "name": mpi.name, "fortran": bindings });
    if bindings.is_empty() {
        let text = format!("C, C++ and Python with {mpi}; it has no Fortran bindings");
        return Finding::new("languages", text, figures)
            .with_advice(State::Lacking, "programs in Fortran need an MPI with bindings, as Debian's libopenmpi-dev");
    }
    Finding::new("languages", format!("C, C++, Python and Fortran ({}) with {mpi}", bindings.join(", ")), figures)
}

fn io_uring(backend: &Result<Backend, String>) -> Finding {
    match backend {
        Ok(backend) => {
            let figures = json!({ "io_uring": backend.is_io_uring, "registered_buffers": backend.registered });
            let finding = Finding::new("io_uring", backend.description.as_str(), figures);
            if backend.is_io_uring {
                finding
            } else {
                finding.with_advice(
                    State::Lacking,
                    "threads write spilled records instead; io_uring would use less of a core",
                )
            }
        }
        Err(error) => Finding::new("io_uring", "unknown", json!({ "error": error }))
            .with_advice(State::Missing, format!("{error}; choose a writable directory with --dir")),
    }
}

fn memlock(limit: Option<u64>) -> Finding {
    let text = limit.map_or_else(|| "no limit".to_owned(), |limit| BinaryBytes(limit).to_string());
    let finding = Finding::new("locked memory", text, json!({ "memlock_bytes": limit }));
    match limit {
        Some(limit) if limit < MEMLOCK_BYTES_MIN => finding.with_advice(
            State::Lacking,
            format!(
                "disk buffers need {}: see `ulimit -l`, or memlock in /etc/security/limits.conf",
                BinaryBytes(MEMLOCK_BYTES_MIN)
            ),
        ),
        _ => finding,
    }
}

fn shared_memory(SharedMemory { root, bytes }: &SharedMemory) -> Finding {
    let Some((size, free)) = *bytes else {
        return Finding::new("shared memory", format!("{} can't be examined", root.display()), json!({}))
            .with_advice(State::Lacking, "the process-crash-safe tier needs /dev/shm");
    };
    let text = format!("{}: {}, {} free", root.display(), BinaryBytes(size), BinaryBytes(free));
    let finding = Finding::new("shared memory", text, json!({ "shm_bytes": size, "shm_free_bytes": free }));
    if root != Path::new("/dev/shm") {
        return finding.with_advice(State::Lacking, "/dev/shm isn't writable: shared-memory files would be on a disk");
    }
    if free < SHM_BYTES_MIN {
        return finding.with_advice(
            State::Lacking,
            "the process-crash-safe tier needs the budget of each rank there: enlarge /dev/shm (containers: --shm-size), or reduce \
             --budget",
        );
    }
    finding
}

fn disk(dir: &Path, rate: &io::Result<Rate>) -> Finding {
    match rate {
        Ok(rate) => {
            let how = if rate.is_direct { "bypassing the page cache" } else { "through the page cache, then synced" };
            let text = format!(
                "{}: {:.0} MB/s ({} written {how})",
                dir.display(),
                rate.bytes_per_s / 1e6,
                BinaryBytes(rate.bytes)
            );
            let figures = json!({ "dir": dir, "disk_bytes_per_s": rate.bytes_per_s, "direct": rate.is_direct });
            let finding = Finding::new("disk", text, figures);
            if rate.bytes_per_s < DISK_BYTES_PER_S_MIN {
                finding.with_advice(
                    State::Lacking,
                    "spilling will delay senders: choose another directory (--log-dir, TMPDIR), or a larger --budget",
                )
            } else {
                finding
            }
        }
        Err(error) => Finding::new("disk", format!("{}: {error}", dir.display()), json!({ "dir": dir }))
            .with_advice(State::Missing, "choose a writable directory with --dir"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::run::mpi::{Mpi, MpiError};

    /// Checks a finding's state and printed text.
    #[track_caller]
    fn assert_finding(finding: &Finding, state: State, words: &[&str]) {
        let text = finding.to_string();
        assert_eq!(finding.state, state, "{text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
        // The advice is on a second line.
        assert_eq!(text.lines().count(), if state == State::Good { 1 } else { 2 }, "{text}");
    }

    fn figures(finding: &Finding) -> Value {
        serde_json::to_value(finding).unwrap()
    }

    fn found() -> FoundMpi {
        FoundMpi {
            mpi: Mpi::example(),
            library: Ok("/opt/libcounterfoil_mpi.so".into()),
            ulfm: Some(true),
            bindings: vec!["mpif.h", "use mpi_f08"],
        }
    }

    fn none() -> MpiError {
        MpiError::None { installed: Vec::new() }
    }

    /// A machine with everything installed.
    fn machine() -> Machine {
        Machine {
            mpis: Mpis { found: vec![Ok(found())], default_error: None },
            backend: Ok(Backend {
                is_io_uring: true,
                registered: 10,
                description: "io_uring, 10 registered buffers".to_owned(),
            }),
            memlock: None,
            shared: SharedMemory { root: "/dev/shm".into(), bytes: Some((2 << 30, 2 << 30)) },
            dir: "/fast".into(),
            disk: Ok(Rate { bytes: 128 << 20, bytes_per_s: 1e9, is_direct: true }),
        }
    }

    #[test]
    fn a_machine_that_lacks_nothing_gets_no_advice() {
        let findings = all(&machine());
        let whats = ["MPI", "ULFM", "languages", "io_uring", "locked memory", "shared memory", "disk"];
        assert_eq!(findings.len(), whats.len());
        for (finding, what) in findings.iter().zip(whats) {
            assert_finding(finding, State::Good, &[what, "good"]);
        }
        assert!(is_usable(&findings));
        assert_eq!(figures(&findings[0])["library"], "/opt/libcounterfoil_mpi.so");
        assert!(findings[2].to_string().contains("Fortran (mpif.h, use mpi_f08)"), "{}", findings[2]);
    }

    #[test]
    fn only_missing_features_make_a_machine_unusable() {
        let lacking = Machine {
            mpis: Mpis {
                found: vec![Ok(FoundMpi {
                    library: Err("not built".to_owned()),
                    ulfm: None,
                    bindings: Vec::new(),
                    ..found()
                })],
                default_error: Some(none()),
            },
            backend: Ok(Backend { is_io_uring: false, registered: 0, description: "pwrite".to_owned() }),
            memlock: Some(0),
            shared: SharedMemory { root: "/tmp".into(), bytes: None },
            disk: Ok(Rate { bytes: 1, bytes_per_s: 1.0, is_direct: false }),
            ..machine()
        };
        let findings = all(&lacking);
        assert!(findings.iter().all(|finding| finding.state == State::Lacking), "{findings:?}");
        assert!(is_usable(&findings));
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        for missing in [
            Machine { mpis: Mpis { found: Vec::new(), default_error: Some(none()) }, ..machine() },
            Machine { backend: Err("no".to_owned()), ..machine() },
            Machine { disk: Err(refused()), ..machine() },
        ] {
            assert!(!is_usable(&all(&missing)), "{missing:?}");
        }
    }

    #[test]
    fn without_an_mpi_the_advice_names_ways_to_install_one() {
        let unsuitable = || MpiError::Unsuitable { mpirun: "/usr/bin/mpirun".into(), output: "HYDRA".to_owned() };
        let findings = mpis(&Mpis { found: vec![Err(unsuitable())], default_error: Some(none()) });
        let [first, second] = &findings[..] else { panic!("{findings:?}") };
        assert_finding(
            first,
            State::Missing,
            &["none", "apt-get install openmpi-bin", "cargo xtask preload --mpi wheel"],
        );
        assert_finding(
            second,
            State::Lacking,
            &["/usr/bin/mpirun is not Open MPI or MPICH, 4 or 5 (`HYDRA`)", "choose another one"],
        );
    }

    #[test]
    fn an_mpi_outside_path_or_without_library_gets_advice() {
        let installed = MpiError::None { installed: vec!["debian"] };
        let findings = mpis(&Mpis { found: vec![Ok(found())], default_error: Some(installed) });
        let [_, _, _, in_path] = &findings[..] else { panic!("{findings:?}") };
        assert_finding(
            in_path,
            State::Lacking,
            &["none in PATH", "counterfoil run: no MPI", "--mpi debian selects the one"],
        );
        let without = FoundMpi { library: Err("it is not built".to_owned()), ulfm: Some(false), ..found() };
        assert_finding(
            &library(&without),
            State::Lacking,
            &["/opt/x/bin/mpirun; no logging library", "it is not built"],
        );
        assert_eq!(figures(&library(&without))["library"], Value::Null);
        assert_finding(
            &ulfm(&without),
            State::Lacking,
            &["not supported by Open MPI 5.0.0 (x)", "not needed for logging"],
        );
        assert_finding(
            &ulfm(&FoundMpi { ulfm: None, ..found() }),
            State::Lacking,
            &["unknown for", "ompi_info is missing"],
        );
    }

    #[test]
    fn without_io_uring_threads_write_and_the_reason_is_named() {
        let why = "pwrite (io_uring is not permitted (EPERM): kernel.io_uring_disabled)";
        let finding = io_uring(&Ok(Backend { is_io_uring: false, registered: 0, description: why.to_owned() }));
        assert_finding(&finding, State::Lacking, &[why, "threads write spilled records"]);
        assert_eq!(figures(&finding)["io_uring"], false);
        let unwritable = io_uring(&Err("/none: No such file".to_owned()));
        assert_finding(&unwritable, State::Missing, &["unknown", "/none: No such file; choose a writable directory"]);
    }

    #[test]
    fn locked_memory_must_suffice_for_the_buffers() {
        assert_finding(&memlock(None), State::Good, &["no limit"]);
        assert_finding(&memlock(Some(MEMLOCK_BYTES_MIN)), State::Good, &["8.00 MiB"]);
        assert_finding(&memlock(Some(MEMLOCK_BYTES_MIN - 1)), State::Lacking, &["8.00 MiB"]);
        assert_finding(&memlock(Some(64 << 10)), State::Lacking, &["64.00 KiB", "need 8.00 MiB: see `ulimit -l`"]);
        assert_eq!(figures(&memlock(Some(1)))["memlock_bytes"], 1);
        assert_eq!(figures(&memlock(None))["memlock_bytes"], Value::Null);
    }

    #[test]
    fn shared_memory_must_be_writable_and_large_enough() {
        let shared = |root: &str, bytes| shared_memory(&SharedMemory { root: root.into(), bytes });
        assert_finding(
            &shared("/dev/shm", Some((SHM_BYTES_MIN, SHM_BYTES_MIN))),
            State::Good,
            &["/dev/shm: 1.00 GiB, 1.00 GiB free"],
        );
        // A container's default.
        assert_finding(
            &shared("/dev/shm", Some((64 << 20, 64 << 20))),
            State::Lacking,
            &["64.00 MiB free", "--shm-size"],
        );
        assert_finding(
            &shared("/dev/shm", Some((4 << 30, SHM_BYTES_MIN - 1))),
            State::Lacking,
            &["or reduce --budget"],
        );
        assert_finding(
            &shared("/tmp", Some((4 << 30, 4 << 30))),
            State::Lacking,
            &["/tmp: ", "/dev/shm isn't writable"],
        );
        assert_finding(&shared("/tmp", None), State::Lacking, &["/tmp can't be examined", "needs /dev/shm"]);
    }

    #[test]
    fn a_disk_must_be_writable_and_fast_enough() {
        let disk = |bytes_per_s, is_direct| disk(Path::new("/d"), &Ok(Rate { bytes: 1 << 20, bytes_per_s, is_direct }));
        assert_finding(
            &disk(DISK_BYTES_PER_S_MIN, true),
            State::Good,
            &["/d: 100 MB/s (1.00 MiB written bypassing the page cache)"],
        );
        assert_finding(&disk(99e6, false), State::Lacking, &["/d: 99 MB/s", "then synced", "delay senders"]);
        let refused = super::disk(Path::new("/d"), &Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem)));
        assert_finding(&refused, State::Missing, &["/d: read-only filesystem", "choose a writable directory"]);
    }
}
