//! What `counterfoil run --recover` tells the processes of a job, and what they report.

use std::path::{Path, PathBuf};
use std::{fs, io};

use counterfoil::Tier;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host_name;

/// Variable with the settings, as JSON.
const VARIABLE: &str = "COUNTERFOIL_RECOVER";
/// Variable with the number of the files that a process writes its output to.
pub const OUTPUT: &str = "COUNTERFOIL_RECOVER_OUTPUT";

/// Numbers of output files for each start of a job.
const PROCESSES_PER_START: u32 = 1 << 20;

/// Settings of a job whose ranks are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverSettings {
    /// Number of ranks. The other processes of the job are spares.
    pub ranks: u32,
    /// Name of the rule of recovery.
    pub rule: String,
    /// Storage of the logs.
    pub tier: Tier,
    /// Memory for the log of one rank, in bytes.
    pub log_bytes: usize,
    /// Memory for the recorded outcomes of one rank, in bytes.
    pub local_log_bytes: usize,
    /// Disk space of one rank, in bytes.
    pub disk_bytes: u64,
    /// A repetition that sends other bytes than are on record goes on.
    pub tolerates_divergence: bool,
    /// Number of times that the job was started before.
    pub start: u32,
    /// Name under which the job is started again after its processes were lost.
    pub job: Option<String>,
    /// Directory for logs in shared memory; `None` for the default.
    pub shm_root: Option<PathBuf>,
    /// Directory for logs on disk; `None` for the default.
    pub checkpoint_root: Option<PathBuf>,
    /// Directory for the processes' output and reports, on a file system that all hosts share.
    pub report_dir: PathBuf,
    /// Calls before which ranks kill themselves. The first of a rank is for its first process, and so on.
    pub kills: Vec<KillAtCall>,
    /// The logs stay when the job has ended, and each rank counts its calls in a file: [`CallMark`].
    pub keeps_logs: bool,
    /// The program takes checkpoints.
    #[serde(default)]
    pub checkpoints: bool,
    /// This process is a rank that is replayed alone, in place of one of a job.
    pub replay: Option<ReplaySettings>,
}

/// Settings of a rank that is replayed alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaySettings {
    /// The rank.
    pub rank: u32,
    /// Directory with the logs of all ranks.
    pub log_directory: PathBuf,
    /// Report of the rank, if it had called `MPI_Finalize`.
    pub ended: Option<Ended>,
    /// Number of the last call that it had begun, if it had not and if that is known: it died in that call or after it.
    pub died_in: Option<u64>,
    /// Call before which the replay stops.
    pub until: Option<u64>,
    /// Where the replay stops, a debugger gets a signal (SIGTRAP).
    pub is_debugged: bool,
    /// File for what the rank does.
    pub history: Option<PathBuf>,
}

/// File in which a rank counts its calls, as 8 bytes, little-endian: the most that one of its processes has begun.
#[derive(Clone, Copy, Debug)]
pub struct CallMark;

impl CallMark {
    /// Bytes of the file.
    pub const BYTES: usize = 8;

    /// Returns the name of the file.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.calls")
    }

    /// Returns the number in such a file.
    pub fn parse(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Report of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Why the replay has ended.
    pub end: ReplayEnd,
    /// Number of calls that the rank has begun.
    pub calls: u64,
    /// MPI's name of the last one.
    pub call: String,
    /// What was wrong in it; empty if nothing was.
    pub why: String,
    /// Stack of the program in that call; empty at the end of the program.
    pub stack: String,
    /// Messages that the rank has sent as it had before.
    pub messages_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Messages that it has received.
    pub messages_received: u64,
}

impl Replayed {
    /// Name of the report's file.
    pub const FILE: &str = "replayed.json";
}

/// End of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayEnd {
    /// The program has ended as it had.
    Same,
    /// The program has ended the job, or has left it without `MPI_Finalize`.
    Aborted,
    /// The call is the last one that the rank had begun: it died in it or after it.
    Died,
    /// The record of the rank ends in the call.
    RecordEnds,
    /// The call is the one before which the replay was to stop.
    Until,
    /// The call isn't what it was, or has another outcome.
    Differs,
    /// The logs can't be replayed, or the call failed.
    Failed,
}

/// Description of a job whose logs are kept, in their directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDescription {
    /// Version of this description.
    pub version: u32,
    /// Settings of the job.
    pub settings: RecoverSettings,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The MPI that it ran on.
    pub mpi: String,
}

/// What descriptions of all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl JobDescription {
    /// Present version.
    pub const VERSION: u32 = 2;
    /// Name of the file.
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

/// Failure to write or to read the description of a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The directory has none.
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
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is of another version of this program.
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
    /// Number of the call, from 1, among those that the rank makes after `MPI_Init`.
    pub call: u64,
}

/// The variable doesn't have settings.
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

    /// Returns the call before which a process of a rank kills itself: the one after `earlier` others.
    pub fn kill_of(&self, rank: u32, earlier: usize) -> Option<u64> {
        self.kills.iter().filter(|kill| kill.rank == rank).nth(earlier).map(|kill| kill.call)
    }

    /// Returns the number of the output files of a process: others than those of an earlier start.
    pub fn output_of(&self, process: u32) -> u32 {
        self.start * PROCESSES_PER_START + process
    }

    /// Returns `true` for output files of a process of this start of the job.
    pub fn is_of_this_start(&self, output: u32) -> bool {
        output / PROCESSES_PER_START == self.start
    }

    /// Returns the name of the file, with its id, that a process leaves that exits before it has called `MPI_Init`.
    pub fn exit_file(output: u32) -> String {
        format!("process-{output}.exited")
    }

    /// Returns the variable for the processes of a job, and its value.
    pub fn to_env(&self) -> (&'static str, String) {
        (VARIABLE, serde_json::to_string(self).expect("settings are text, numbers and lists"))
    }
}

/// Report of a process that the launcher has started. Without it the command doesn't see that the process was killed
/// before it was a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Name of its host.
    pub host: String,
    /// Id of the process there.
    pub pid: u32,
    /// It has called `MPI_Init`.
    pub has_called_init: bool,
}

impl Started {
    /// Returns the report of this process.
    pub fn own(has_called_init: bool) -> Started {
        Started { host: host_name(), pid: std::process::id(), has_called_init }
    }

    /// Returns the name of the report's file, by the number of the process's output files.
    pub fn file(output: u32) -> String {
        format!("process-{output}.json")
    }
}

/// Report of a process that has become a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The rank.
    pub rank: u32,
    /// Number of times that the rank has been replaced.
    pub incarnation: u32,
    /// Name of the process's host.
    pub host: String,
    /// Id of the process there.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Number of the process's output files.
    pub output: Option<u32>,
}

impl Begun {
    /// Returns the name of the report's file.
    pub fn file(rank: u32, incarnation: u32) -> String {
        format!("rank-{rank}.{incarnation}.json")
    }

    /// Returns the processes that have become a rank, in any order.
    pub fn of_rank(reports: &Path, rank: u32) -> Vec<Begun> {
        let names = fs::read_dir(reports).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let of_rank = names.filter(|name| Begun::of_file(&name.to_string_lossy()).is_some_and(|(of, _)| of == rank));
        of_rank.filter_map(|name| read_report(&reports.join(name))).collect()
    }

    /// Returns rank and incarnation of a file with this name, if it is such a report.
    pub fn of_file(name: &str) -> Option<(u32, u32)> {
        let (rank, incarnation) = name.strip_prefix("rank-")?.strip_suffix(".json")?.split_once('.')?;
        Some((rank.parse().ok()?, incarnation.parse().ok()?))
    }
}

/// Report of a process that has replaced another one, once it has caught up with it: durations of the steps, in
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// Microseconds since 1970 at which the failure was noticed.
    pub noticed_at_us: u64,
    /// From the notice of the failure until all processes had agreed on it; `None` where the job was started again.
    pub repair: Option<f64>,
    /// Until the process had its predecessor's log.
    pub start: Option<f64>,
    /// Until it had received all that others had sent to its predecessor.
    pub replay: Option<f64>,
    /// Until it had sent all that others had received from its predecessor.
    pub catch_up: Option<f64>,
}

impl Recovered {
    /// Returns the name of the report's file.
    pub fn file(rank: u32, incarnation: u32) -> String {
        format!("rank-{rank}.{incarnation}.recovered.json")
    }
}

/// Report of the exit of a rank that had called `MPI_Finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// Exit code of the program.
    pub code: i32,
}

impl Exited {
    /// Returns the name of the report's file.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.exit.json")
    }
}

/// Report of a process that has ended the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    /// Reason.
    pub why: String,
    /// Exit code of the job.
    pub code: i32,
    /// Number of the output of its process, if it writes to files.
    pub output: Option<u32>,
}

impl Aborted {
    /// Name of the report's file.
    pub const FILE: &str = "aborted.json";
    /// The same of a job that goes on if it is started again.
    pub const LOST_FILE: &str = "lost.json";
}

/// Report of a rank that has called `MPI_Finalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The rank.
    pub rank: u32,
    /// Calls of MPI of its last process.
    pub calls: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Messages in its log.
    pub messages_logged: u64,
    /// Bytes of these messages.
    pub bytes_logged: u64,
    /// Recorded outcomes.
    pub outcomes: u64,
    /// Messages that its last process has sent with other bytes than are on record.
    pub sends_diverged: u64,
}

impl Ended {
    /// Returns the name of the report's file.
    pub fn file(rank: u32) -> String {
        format!("rank-{rank}.end.json")
    }
}

/// What a process writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl Stream {
    /// Both.
    pub const ALL: [Stream; 2] = [Stream::Output, Stream::Error];

    /// Returns its descriptor.
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

/// Reads a report; `None` if there is none, or if it isn't one.
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
