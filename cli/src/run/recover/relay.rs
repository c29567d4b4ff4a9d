//! Output of the ranks: each line once, whichever of the rank's processes has printed it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use counterfoil_settings::host_name;
use counterfoil_settings::recover::{
    Aborted, Begun, Ended, Exited, RecoverSettings, Recovered, Started, Stream, read_report,
};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{FallocateFlags, fallocate};

use super::deaths::Deaths;
use super::free_bytes;
use crate::run::launch::{Watch, is_alive};

/// Time for a job to end by itself after a process has died before its ranks have begun.
const START_GRACE: Duration = Duration::from_secs(3);
/// Maximum number of bytes read from a file at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes copied from a file before their memory is freed.
const FREED_BYTES: u64 = 1 << 20;
/// Minimum space for the ranks' output, in bytes: programs don't notice a lack.
const ROOM_BYTES_MIN: u64 = 1 << 20;

/// One stream of a rank.
#[derive(Debug, Default)]
struct Copied {
    /// Bytes read from the current process's file.
    read: u64,
    /// Printed bytes: a later process of the rank repeats them.
    printed: u64,
    /// Bytes read and not printed, since their line is not complete.
    rest: Vec<u8>,
    /// Bytes at the beginning of the current file whose memory was freed.
    freed: u64,
}

/// Output of a rank.
#[derive(Debug, Default)]
struct RankOutput {
    /// Processes of the rank, oldest first.
    processes: Vec<Begun>,
    /// Number of the process whose files are read.
    current: usize,
    streams: [Copied; 2],
}

/// Copies the output of a job's ranks, and keeps their reports.
#[derive(Debug)]
pub(super) struct Relay {
    settings: RecoverSettings,
    /// Number of processes in a start.
    processes: u32,
    /// Time of death of a process awaited by the ranks before they begin.
    dead_since: Option<Instant>,
    /// The job was killed because of that.
    is_start_lost: bool,
    /// The job was killed because there is no room for the ranks' output.
    has_no_room: bool,
    ranks: BTreeMap<u32, RankOutput>,
    deaths: Deaths,
    line: ProgressBar,
}

impl Relay {
    pub(super) fn new(settings: &RecoverSettings, processes: u32, has_progress: bool) -> Relay {
        let line = if has_progress { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        // The template is valid.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_msg}") {
            line.set_style(style);
        }
        Relay {
            settings: settings.clone(),
            processes,
            dead_since: None,
            is_start_lost: false,
            has_no_room: false,
            ranks: BTreeMap::new(),
            deaths: Deaths::new(),
            line,
        }
    }

    /// Expects the processes of another job start.
    pub(super) fn begin_start(&mut self, start: u32) {
        self.settings.start = start;
        (self.dead_since, self.is_start_lost) = (None, false);
    }

    /// Returns the path of a job file.
    fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.settings.report_dir.join(name)
    }

    /// Returns `true` once a process has become a rank.
    pub(super) fn has_ranks(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Returns the directory for the ranks' output, if there was no room in it.
    pub(super) fn full_dir(&self) -> Option<&Path> {
        self.has_no_room.then_some(&self.settings.report_dir)
    }

    /// Returns each rank's processes, oldest first.
    pub(super) fn processes(&self) -> impl Iterator<Item = (u32, &[Begun])> {
        self.ranks.iter().map(|(rank, output)| (*rank, output.processes.as_slice()))
    }

    /// Returns the report of a rank that has called `MPI_Finalize`.
    pub(super) fn ended(&self, rank: u32) -> Option<Ended> {
        read_report(&self.file(Ended::file(rank)))
    }

    /// Returns how a process has replaced another one, if it has caught up.
    pub(super) fn recovered(&self, rank: u32, incarnation: u32) -> Option<Recovered> {
        read_report(&self.file(Recovered::file(rank, incarnation)))
    }

    /// Returns a process's time of death, if on this host.
    pub(super) fn died(&self, process: &Begun) -> Option<SystemTime> {
        (process.host == host_name()).then(|| self.deaths.time(process.pid)).flatten()
    }

    /// Returns the exit code of a rank that has called `MPI_Finalize`.
    pub(super) fn exit_code(&self, rank: u32) -> Option<i32> {
        read_report::<Exited>(&self.file(Exited::file(rank))).map(|exited| exited.code)
    }

    /// Returns `true` if all ranks have called `MPI_Finalize`: no rank's call returns before.
    ///
    /// A rank killed in it has no report.
    pub(super) fn is_done(&self) -> bool {
        (0..self.settings.ranks).any(|rank| self.file(Ended::file(rank)).exists())
    }

    /// Returns the report of a process that has ended the job, by `MPI_Abort` or because it can't go on.
    pub(super) fn aborted(&self) -> Option<Aborted> {
        read_report(&self.file(Aborted::FILE))
    }

    /// Returns `true` if a rank has ended the job for a restart.
    ///
    /// Clears the flag.
    pub(super) fn take_lost(&self) -> bool {
        fs::remove_file(self.file(Aborted::LOST_FILE)).is_ok() || self.is_start_lost
    }

    /// Returns `true` if a process was killed before all ranks have begun.
    ///
    /// The MPI leaves the others in `MPI_Init`, where nothing tells them.
    fn has_lost_start(&mut self) -> bool {
        if !self.has_killed_start() {
            self.dead_since = None;
            return false;
        }
        self.dead_since.get_or_insert_with(Instant::now).elapsed() >= START_GRACE
    }

    /// Returns `true` if a process of this start was killed on this host before all ranks have begun.
    ///
    /// Doesn't count programs without MPI calls, or ending by themselves before.
    pub(super) fn has_killed_start(&self) -> bool {
        let has_begun = |rank: &&RankOutput| {
            let outputs = rank.processes.iter().filter_map(|begun| begun.output);
            outputs.into_iter().any(|output| self.settings.is_of_this_start(output))
        };
        if self.ranks.values().filter(has_begun).count() >= self.settings.ranks as usize {
            return false;
        }
        let outputs = (0..self.processes).map(|process| self.settings.output_of(process));
        let started: Vec<(u32, Started)> =
            outputs.filter_map(|output| Some((output, read_report(&self.file(Started::file(output)))?))).collect();
        let host = host_name();
        // A script may have exited while its program has called MPI_Init.
        let has_exited = |(output, process): &(u32, Started)| {
            let pid = fs::read_to_string(self.file(RecoverSettings::exit_file(*output))).unwrap_or_default();
            pid.parse() == Ok(process.pid)
        };
        !started.iter().any(has_exited)
            && started.iter().any(|(_, process)| process.has_called_init)
            && started.iter().any(|(_, process)| process.host == host && !is_alive(process.pid))
    }

    /// Records the processes that have become ranks.
    fn note_processes(&mut self) {
        let Ok(entries) = fs::read_dir(&self.settings.report_dir) else { return };
        let host = host_name();
        for name in entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            let Some((rank, incarnation)) = Begun::of_file(&name) else { continue };
            let output = self.ranks.entry(rank).or_default();
            if output.processes.iter().all(|begun| begun.incarnation != incarnation)
                && let Some(begun) = read_report::<Begun>(&self.settings.report_dir.join(name))
            {
                if begun.host == host {
                    self.deaths.watch(begun.pid);
                }
                let place = output.processes.partition_point(|other| other.incarnation < begun.incarnation);
                output.processes.insert(place, begun);
            }
        }
    }

    /// Prints new output; at the end of the job also incomplete lines.
    fn copy(&mut self, is_end: bool) {
        self.note_processes();
        let (dir, line) = (&self.settings.report_dir, &self.line);
        for output in self.ranks.values_mut() {
            while let Some(process) = output.processes.get(output.current).and_then(|begun| begun.output) {
                for (stream, copied) in Stream::ALL.into_iter().zip(&mut output.streams) {
                    copied.copy(&dir.join(stream.file(process)), stream, line);
                }
                if output.current + 1 >= output.processes.len() {
                    break;
                }
                // The process is dead, and its file is complete. The next one repeats an incomplete line.
                output.current += 1;
                output.streams.iter_mut().for_each(Copied::begin_next);
            }
            if is_end {
                for (stream, copied) in Stream::ALL.into_iter().zip(&mut output.streams) {
                    let rest = std::mem::take(&mut copied.rest);
                    copied.printed += rest.len() as u64;
                    print(stream, &rest, line);
                }
            }
        }
    }

    /// Prints why the job was ended, if by a process that was no rank yet: its output isn't copied.
    fn print_reason(&self) {
        let Some(aborted) = self.aborted() else { return };
        let mut outputs = self.ranks.values().flat_map(|rank| &rank.processes).map(|begun| begun.output);
        if outputs.all(|output| output != aborted.output) {
            print(Stream::Error, format!("counterfoil: {}\n", aborted.why).as_bytes(), &self.line);
        }
    }

    /// Prints the output of processes that ended before becoming ranks, if no process of the job became one.
    fn copy_failed(&self) {
        for process in 0..self.settings.ranks {
            for stream in Stream::ALL {
                if let Ok(text) = fs::read(self.file(stream.file(process))) {
                    print(stream, &text, &self.line);
                }
            }
        }
    }
}

impl Watch for Relay {
    fn update(&mut self) -> bool {
        self.copy(false);
        if !self.line.is_hidden() {
            let replaced: Vec<String> = self
                .processes()
                .filter(|(_, processes)| processes.len() > 1)
                .map(|(rank, processes)| format!("rank {rank} {} times", processes.len() - 1))
                .collect();
            let replaced = if replaced.is_empty() { "none replaced".to_owned() } else { replaced.join(", ") };
            self.line.set_message(format!("{} of {} ranks run; {replaced}", self.ranks.len(), self.settings.ranks));
        }
        self.is_start_lost = self.has_lost_start();
        self.has_no_room |= is_almost_full(&self.settings.report_dir);
        !self.is_start_lost && !self.has_no_room
    }

    fn finish(&mut self) {
        // A rank unable to print may have ended the job itself.
        self.has_no_room |= is_almost_full(&self.settings.report_dir);
        self.copy(true);
        if self.has_ranks() {
            self.print_reason();
        } else {
            self.copy_failed();
        }
        self.line.finish_and_clear();
    }
}

impl Copied {
    /// Prints a file's new complete lines.
    fn copy(&mut self, path: &Path, stream: Stream, line: &ProgressBar) {
        // A missing file is read later.
        while let Ok(bytes) = read_from(path, self.read)
            && !bytes.is_empty()
        {
            // Bytes up to here were printed by an earlier process, so they aren't in `rest`.
            let repeated = self.printed.saturating_sub(self.read).min(bytes.len() as u64) as usize;
            self.read += bytes.len() as u64;
            self.rest.extend_from_slice(&bytes[repeated..]);
            if let Some(last) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                let complete: Vec<u8> = self.rest.drain(..=last).collect();
                self.printed += complete.len() as u64;
                print(stream, &complete, line);
            }
        }
        self.free(path);
    }

    /// Frees the memory of copied output: the files are in shared memory, and a program may print for hours.
    fn free(&mut self, path: &Path) {
        let len = (self.read - self.freed) / FREED_BYTES * FREED_BYTES;
        if len > 0
            && let Ok(file) = File::options().write(true).open(path)
        {
            // Not all file systems support it.
            let _ = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, self.freed, len);
            self.freed += len;
        }
    }

    /// Begins with the next process's file.
    fn begin_next(&mut self) {
        self.rest.clear();
        (self.read, self.freed) = (0, 0);
    }
}

/// Returns `true` if a directory's file system has no room for job files.
pub(super) fn is_almost_full(dir: &Path) -> bool {
    free_bytes(dir).is_ok_and(|free| free < ROOM_BYTES_MIN)
}

/// Reads a part of a file, from an offset on.
fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Prints a rank's output.
///
/// If nobody reads it, the job goes on.
fn print(stream: Stream, bytes: &[u8], line: &ProgressBar) {
    if bytes.is_empty() {
        return;
    }
    line.suspend(|| {
        let _ = match stream {
            Stream::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Error => io::stderr().write_all(bytes),
        };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_done_if_one_rank_has_ended() {
        let reports = tempfile::tempdir().unwrap();
        let mut settings: RecoverSettings = serde_json::from_str(
            r#"{ "ranks": 3, "rule": "", "tier": "volatile", "log_bytes": 0, "local_log_bytes": 0, "disk_bytes": 0,
                 "tolerates_divergence": false, "start": 0, "kills": [], "keeps_logs": false, "report_dir": "" }"#,
        )
        .unwrap();
        settings.report_dir = reports.path().to_owned();
        let relay = Relay::new(&settings, 4, false);
        assert!(!relay.is_done());
        fs::write(reports.path().join(Ended::file(1)), "{}").unwrap();
        assert!(relay.is_done());
    }

    fn copied(dir: &Path, text: &str, state: &mut Copied) -> (u64, String) {
        let path = dir.join("file");
        fs::write(&path, text).unwrap();
        state.copy(&path, Stream::Output, &ProgressBar::hidden());
        (state.printed, String::from_utf8(state.rest.clone()).unwrap())
    }

    #[test]
    fn a_later_process_prints_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = Copied::default();
        assert_eq!(copied(dir.path(), "one\ntw", &mut state), (4, "tw".to_owned()));
        assert_eq!(copied(dir.path(), "one\ntwo\nth", &mut state), (8, "th".to_owned()));
        state.begin_next();
        assert_eq!(copied(dir.path(), "one\nt", &mut state), (8, String::new()));
        assert_eq!(copied(dir.path(), "one\ntwo\nthree\nfo", &mut state), (14, "fo".to_owned()));
    }
}
