//! Settings passed to a job's processes by `counterfoil run --recover`, and the processes' reports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use counterfoil::Tier;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host_name;

/// Variable with the settings, as JSON.
const VARIABLE: &str = "COUNTERFOIL_RECOVER";
/// Variable with the number of a process's output files.
pub const OUTPUT: &str = "COUNTERFOIL_RECOVER_OUTPUT";

/// Open MPI 4's parameter for the directory of its files.
const SESSIONS: &str = "OMPI_MCA_orte_tmpdir_base";

/// Output file numbers reserved for each start of a job.
const PROCESSES_PER_START: u32 = 1 << 20;

/// Settings of a job that replaces dead ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverSettings {
    /// Number of ranks.
    ///
    /// The job's other processes are spares.
    pub ranks: u32,
    /// Name of the recovery rule.
    pub rule: String,
    /// Log storage.
    pub tier: Tier,
    /// Memory for one rank's log, in bytes.
    pub log_bytes: usize,
    /// Memory for one rank's recorded outcomes, in bytes.
    pub local_log_bytes: usize,
    /// Disk space for one rank, in bytes.
    pub disk_bytes: u64,
    /// A re-execution continues even if it sends other bytes than recorded.
    pub tolerates_divergence: bool,
    /// Number of earlier starts of the job.
    pub start: u32,
    /// Name under which the job is started again after losing its processes.
    pub job: Option<String>,
    /// Directory for logs in shared memory; `None` for the default.
    pub shm_root: Option<PathBuf>,
    /// Directory for logs on disk; `None` for the default.
    pub checkpoint_root: Option<PathBuf>,
    /// Directory for the processes' output and reports, on a file system shared by all hosts.
    pub report_dir: PathBuf,
    /// Calls before which ranks kill themselves.
    ///
    /// A rank's first is for its first process, and so on.
    pub kills: Vec<KillAtCall>,
    /// The logs are kept after the job, and each rank counts its calls in a file: [`CallMark`].
    pub keeps_logs: bool,
    /// The program takes checkpoints.
    #[serde(default)]
    pub checkpoints: bool,
    /// This process is a rank replayed alone, in place of a job's rank.
    pub replay: Option<ReplaySettings>,
}

/// Settings of a rank replayed alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaySettings {
    /// The rank.
    pub rank: u32,
    /// Directory with all ranks' logs.
    pub log_directory: PathBuf,
    /// The rank's report, if it had called `MPI_Finalize`.
    pub ended: Option<Ended>,
    /// Number of the last call begun, if known and if the rank had not ended: it died in that call or after it.
    pub died_in: Option<u64>,
    /// Call before which the replay stops.
    pub until: Option<u64>,
    /// A debugger gets a signal (SIGTRAP) where the replay stops.
    pub is_debugged: bool,
    /// File for the rank's history.
    pub history: Option<PathBuf>,
}

/// File with a rank's call count, 8 bytes, little-endian: the most calls begun by one of its processes.
#[derive(Clone, Copy, Debug)]
pub struct CallMark;

impl CallMark {
    /// File length in bytes.
    pub const BYTES: usize = 8;

    /// Returns the file name.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.calls")
    }

    /// Parses the number from such a file.
    pub fn parse(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Replay report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Reason for the end of the replay.
    pub end: ReplayEnd,
    /// Number of calls begun by the rank.
    pub calls: u64,
    /// MPI's name for the last call.
    pub call: String,
    /// Error in that call; empty if there was none.
    pub why: String,
    /// The program's stack in that call; empty at the end of the program.
    pub stack: String,
    /// Messages sent as before.
    pub messages_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
}

impl Replayed {
    /// Report file name.
    pub const FILE: &str = "replayed.json";
}

/// End of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayEnd {
    /// The program has ended as before.
    Same,
    /// The program has ended the job, or has left it without `MPI_Finalize`.
    Aborted,
    /// The call is the last one begun by the rank: it died in it or after it.
    Died,
    /// The rank's record ends in the call.
    RecordEnds,
    /// The call is the one before which the replay was to stop.
    Until,
    /// The call or its outcome differs.
    Differs,
    /// The logs can't be replayed, or the call failed.
    Failed,
}

/// Description of a job with kept logs, in their directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDescription {
    /// Description version.
    pub version: u32,
    /// Job settings.
    pub settings: RecoverSettings,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// MPI used by the job.
    pub mpi: String,
}

/// Fields present in all versions.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl JobDescription {
    /// Current version.
    pub const VERSION: u32 = 2;
    /// File name.
    pub const FILE: &str = "recover.json";

    /// Writes the description of the job with these logs.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn write(&self, directory: &Path) -> Result<(), DescriptionError> {
        let path = directory.join(JobDescription::FILE);
        let text = serde_json::to_vec_pretty(self).expect("settings are text, numbers and lists");
        fs::write(&path, text).map_err(|source| DescriptionError::Io { path, source })
    }

    /// Reads the description of the job with these logs.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn read(directory: &Path) -> Result<JobDescription, DescriptionError> {
        let path = directory.join(JobDescription::FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DescriptionError::None { directory: directory.to_owned() });
            }
            read => read.map_err(|source| DescriptionError::Io { path: path.clone(), source })?,
        };
        // Other versions have other fields.
        let version: Result<Versioned, _> = serde_json::from_slice(&text);
        match version {
            Ok(Versioned { version }) if version != JobDescription::VERSION => {
                Err(DescriptionError::Version { path, version })
            }
            _ => serde_json::from_slice(&text).map_err(|source| DescriptionError::Malformed { path, source }),
        }
    }
}

/// Failure to write or to read a job description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The directory has no description.
    #[error(
        "{} has no {}: it must be the directory that `counterfoil run --recover --log-dir` was given",
        directory.display(),
        JobDescription::FILE
    )]
    None {
        /// The directory.
        directory: PathBuf,
    },
    /// The file can't be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Operating system error.
        source: io::Error,
    },
    /// The file was written by another version of this program.
    #[error("{} has version {version}, and this program reads version {}", path.display(), JobDescription::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file isn't a description.
    #[error("{} is damaged: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The first error.
        source: serde_json::Error,
    },
}

/// A rank and the call before which one of its processes kills itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillAtCall {
    /// The rank.
    pub rank: u32,
    /// Call number, from 1, counting the rank's calls after `MPI_Init`.
    pub call: u64,
}

/// Error for a variable without valid settings.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}: {0}; `counterfoil run --recover` sets it")]
pub struct RecoverSettingsError(#[source] serde_json::Error);

impl RecoverSettings {
    /// Returns the settings of this process's job; `None` outside such a job.
    ///
    /// # Errors
    /// [`RecoverSettingsError`].
    pub fn from_env() -> Result<Option<RecoverSettings>, RecoverSettingsError> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        serde_json::from_str(&text.to_string_lossy()).map(Some).map_err(RecoverSettingsError)
    }

    /// Returns the call before which a process of a rank kills itself, after `earlier` others did.
    pub fn kill_of(&self, rank: u32, earlier: usize) -> Option<u64> {
        self.kills.iter().filter(|kill| kill.rank == rank).nth(earlier).map(|kill| kill.call)
    }

    /// Returns the number of a process's output files: distinct from those in earlier starts.
    pub fn output_of(&self, process: u32) -> u32 {
        self.start * PROCESSES_PER_START + process
    }

    /// Returns `true` for output files from this start of the job.
    pub fn is_of_this_start(&self, output: u32) -> bool {
        output / PROCESSES_PER_START == self.start
    }

    /// Returns the name of the file, with the process id, left by a process that exits before calling `MPI_Init`.
    pub fn exit_file(output: u32) -> String {
        format!("process-{output}.exited")
    }

    /// Returns the variable for a job's processes, and its value.
    pub fn to_env(&self) -> (&'static str, String) {
        (VARIABLE, serde_json::to_string(self).expect("settings are text, numbers and lists"))
    }

    /// Returns the variables for a replay's process.
    ///
    /// Without `mpirun`, processes of Open MPI 4 make and remove one directory for all, and fail when one does so while
    /// another begins. So each has its reports' directory for it, unless the user names another one.
    pub fn to_replay_env(&self) -> Vec<(&'static str, OsString)> {
        let (name, value) = self.to_env();
        let sessions = std::env::var_os(SESSIONS).unwrap_or_else(|| self.report_dir.clone().into());
        vec![(name, value.into()), (SESSIONS, sessions)]
    }
}

/// Report of a process started by the launcher.
///
/// Without it the command can't see that a process was killed before becoming a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Host name.
    pub host: String,
    /// Process id on the host.
    pub pid: u32,
    /// The process has called `MPI_Init`.
    pub has_called_init: bool,
}

impl Started {
    /// Returns this process's report.
    pub fn own(has_called_init: bool) -> Started {
        Started { host: host_name(), pid: std::process::id(), has_called_init }
    }

    /// Returns the report file name for a process's output number.
    pub fn file(output: u32) -> String {
        format!("process-{output}.json")
    }
}

/// Report of a process that has become a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The rank.
    pub rank: u32,
    /// Number of the rank's earlier processes.
    pub incarnation: u32,
    /// Name of the process's host.
    pub host: String,
    /// Process id on the host.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Number of the process's output files.
    pub output: Option<u32>,
}

impl Begun {
    /// Returns the report file name.
    pub fn file(rank: u32, incarnation: u32) -> String {
        format!("rank-{rank}.{incarnation}.json")
    }

    /// Returns the processes that have become a rank, in any order.
    pub fn of_rank(reports: &Path, rank: u32) -> Vec<Begun> {
        let names = fs::read_dir(reports).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let of_rank = names.filter(|name| Begun::of_file(&name.to_string_lossy()).is_some_and(|(of, _)| of == rank));
        of_rank.filter_map(|name| read_report(&reports.join(name))).collect()
    }

    /// Parses rank and incarnation from a file name, if it names such a report.
    pub fn of_file(name: &str) -> Option<(u32, u32)> {
        let (rank, incarnation) = name.strip_prefix("rank-")?.strip_suffix(".json")?.split_once('.')?;
        Some((rank.parse().ok()?, incarnation.parse().ok()?))
    }
}

/// Report of a replacement that has caught up with its predecessor: durations of the steps, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// Microseconds since 1970 at the failure's detection.
    pub noticed_at_us: u64,
    /// From the failure's detection until all processes had agreed on it; `None` if the job was started again.
    pub repair: Option<f64>,
    /// Until the process had its predecessor's log.
    pub start: Option<f64>,
    /// Until the process had received all messages sent to its predecessor.
    pub replay: Option<f64>,
    /// Until the process had sent all messages others had received from its predecessor.
    pub catch_up: Option<f64>,
}

impl Recovered {
    /// Returns the report file name.
    pub fn file(rank: u32, incarnation: u32) -> String {
        format!("rank-{rank}.{incarnation}.recovered.json")
    }
}

/// Exit report of a rank that had called `MPI_Finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// The program's exit code.
    pub code: i32,
}

impl Exited {
    /// Returns the report file name.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.exit.json")
    }
}

/// Report of a process that has ended the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    /// Reason.
    pub why: String,
    /// The job's exit code.
    pub code: i32,
    /// Number of the process's output files, if it has any.
    pub output: Option<u32>,
}

impl Aborted {
    /// Report file name.
    pub const FILE: &str = "aborted.json";
    /// Report file name for a job that continues if it is started again.
    pub const LOST_FILE: &str = "lost.json";
}

/// Report of a rank that has called `MPI_Finalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The rank.
    pub rank: u32,
    /// MPI calls made by its last process.
    pub calls: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Messages in its log.
    pub messages_logged: u64,
    /// Their bytes.
    pub bytes_logged: u64,
    /// Recorded outcomes.
    pub outcomes: u64,
    /// Messages sent by its last process with other bytes than recorded.
    pub sends_diverged: u64,
}

impl Ended {
    /// Returns the report file name.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.end.json")
    }
}

/// Output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl Stream {
    /// Both streams.
    pub const ALL: [Stream; 2] = [Stream::Output, Stream::Error];

    /// Returns the stream's descriptor.
    pub fn descriptor(self) -> i32 {
        match self {
            Stream::Output => 1,
            Stream::Error => 2,
        }
    }

    /// Returns the name of the file with this number.
    pub fn file(self, number: u32) -> String {
        match self {
            Stream::Output => format!("process-{number}.out"),
            Stream::Error => format!("process-{number}.err"),
        }
    }
}

/// Reads a report; `None` if it doesn't exist or is invalid.
pub fn read_report<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_process_names_rank_and_incarnation() {
        assert_eq!(Begun::of_file(&Begun::file(3, 65536)), Some((3, 65536)));
        let others = [
            Ended::file(3),
            Exited::file(3),
            Recovered::file(3, 1),
            CallMark::file(3),
            Aborted::FILE.to_owned(),
            Stream::Output.file(3),
        ];
        for other in others {
            assert_eq!(Begun::of_file(&other), None, "{other}");
        }
    }
    #[test]
    fn a_description_of_another_version_or_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let read = || JobDescription::read(folder.path()).unwrap_err().to_string();
        assert!(read().contains("has no recover.json"), "{}", read());
        for (text, what) in
            [("", "is damaged"), ("{\"version\": 7}", "has version 7"), ("{\"version\": 2}", "is damaged")]
        {
            fs::write(folder.path().join(JobDescription::FILE), text).unwrap();
            assert!(read().contains(what), "{}", read());
        }
    }
}
