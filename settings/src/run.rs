//! Run settings, their names, and their variables.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use counterfoil::{Keep, OnFull, Options, Rank, StoreOptions, Tier, UnknownWord};

use crate::{ByteSize, Seconds, SecondsError, SizeError};

/// Settings of `counterfoil run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// MPI to run under, for the command alone; `None` for the mpirun in `PATH`.
    pub mpi: Option<String>,
    /// Logging library, for the command alone; `None` for the one built for the MPI.
    pub mpi_library: Option<PathBuf>,
    /// Log messages.
    ///
    /// Otherwise the library is preloaded, but idle.
    pub logging: bool,
    /// Retention of acknowledged messages.
    pub keep: Keep,
    /// Behaviour when the log is full.
    pub on_full: OnFull,
    /// Memory for a rank's log, in bytes.
    pub budget: usize,
    /// Disk space for a rank's log, in bytes.
    pub disk_budget: u64,
    /// Bytes to prefault from the budget in MPI_Init; `None` for an amount that suits the budget.
    pub prefault: Option<usize>,
    /// Processor time for the spilling thread, in percent of a core: 1 to 100.
    pub spill_cpu: u8,
    /// Time without any activity in the job until a wait for log space is given up: at least a second.
    pub deadlock_after: Duration,
    /// Log storage.
    pub tier: Tier,
    /// Directory for logs kept after the job, and for spilled records.
    pub log_dir: Option<PathBuf>,
    /// File for the run's summary, for the command alone.
    pub summary: Option<PathBuf>,
    /// Directory for shared-memory files.
    pub shm_dir: Option<PathBuf>,
    /// Directory for spilled records, if no log is kept.
    pub spill_dir: Option<PathBuf>,
    /// Directory for each rank's counters (`rank-N.live`), its summary at the end (`rank-N.json`), or the reason why it
    /// can't log (`rank-N.refused`).
    pub summary_dir: Option<PathBuf>,
}

impl Default for RunSettings {
    fn default() -> RunSettings {
        RunSettings {
            mpi: None,
            mpi_library: None,
            logging: true,
            keep: Keep::Acked,
            on_full: OnFull::Block,
            budget: 64 << 20,
            disk_budget: 4 << 30,
            prefault: None,
            spill_cpu: 100,
            deadlock_after: Duration::from_secs(10),
            tier: Tier::Volatile,
            log_dir: None,
            summary: None,
            shm_dir: None,
            spill_dir: None,
            summary_dir: None,
        }
    }
}

/// Name, meaning and text form of a setting.
#[derive(Debug)]
pub struct Key {
    /// Name in the settings file; the option is the same with `--` before it.
    pub name: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Value placeholder, for the option's help.
    pub value_name: &'static str,
    /// One line for `counterfoil config`.
    pub meaning: &'static str,
    /// Help text for the option.
    pub help: &'static str,
    /// Recipient of the value.
    pub scope: Scope,
    set: fn(&mut RunSettings, &str) -> Result<(), Violation>,
    get: fn(&RunSettings) -> Option<String>,
}

/// Recipient of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The command alone.
    Command,
    /// The command alone; the value is a file or folder.
    CommandPath,
    /// The ranks, in their environment; a report shows it.
    Ranks,
}

impl Key {
    /// All settings, in the order in which they are set: the limit of one may depend on an earlier one.
    pub const ALL: &'static [Key] = &[
        Key {
            name: "mpi",
            variable: "COUNTERFOIL_MPI",
            value_name: "wheel|debian|mpich|PREFIX",
            meaning: "MPI to run under; by default the mpirun in PATH",
            help: "MPI to run under: wheel (PyPI's Open MPI, as installed by `cargo xtask preload`), debian, the \
                   installation prefix of an Open MPI, or with --recover mpich (PyPI's) or the prefix of an MPICH \
                   [default: the mpirun in PATH]",
            scope: Scope::Command,
            set: |settings, text| set_option(&mut settings.mpi, text),
            get: |settings| settings.mpi.clone(),
        },
        Key {
            name: "mpi-library",
            variable: "COUNTERFOIL_MPI_LIBRARY",
            value_name: "FILE",
            meaning: "logging library; by default the one built for the MPI",
            help: "Logging library to preload [default: the one that `cargo xtask preload` built for the MPI]",
            scope: Scope::CommandPath,
            set: |settings, text| set_option(&mut settings.mpi_library, text),
            get: |settings| path(&settings.mpi_library),
        },
        Key {
            name: "logging",
            variable: "COUNTERFOIL_LOGGING",
            value_name: "on|off",
            meaning: "whether messages are logged",
            help: "Log messages: on, or off (the library is preloaded but idle) [default: on]",
            scope: Scope::Ranks,
            set: |settings, text| {
                settings.logging = match text {
                    "on" => true,
                    "off" => false,
                    _ => return Err(Violation::Word(UnknownWord { words: &["on", "off"] })),
                };
                Ok(())
            },
            get: |settings| Some(if settings.logging { "on" } else { "off" }.to_owned()),
        },
        Key {
            name: "keep",
            variable: "COUNTERFOIL_KEEP",
            value_name: "KEEP",
            meaning: "how long messages are kept",
            help: "How long messages are kept: acked (until acknowledged), checkpoint, or all [default: acked; with \
                   --log-dir all]",
            scope: Scope::Ranks,
            set: |settings, text| set(&mut settings.keep, text),
            get: |settings| Some(settings.keep.to_string()),
        },
        Key {
            name: "on-full",
            variable: "COUNTERFOIL_ON_FULL",
            value_name: "ON-FULL",
            meaning: "effect of a full log on a send",
            help: "What a send does when the log is full: block, stop-logging, or fail [default: block]",
            scope: Scope::Ranks,
            set: |settings, text| set(&mut settings.on_full, text),
            get: |settings| Some(settings.on_full.to_string()),
        },
        Key {
            name: "budget",
            variable: "COUNTERFOIL_BUDGET",
            value_name: "BYTES",
            meaning: "memory of each rank's log",
            help: "Memory of each rank's log, such as 64MiB [default: 64MiB; with --recover a \
                   share of half the free shared memory, at least 256MiB]",
            scope: Scope::Ranks,
            set: |settings, text| {
                settings.budget = text.parse::<ByteSize>()?.0;
                settings.check_budget()
            },
            get: |settings| Some(ByteSize(settings.budget).to_string()),
        },
        Key {
            name: "disk-budget",
            variable: "COUNTERFOIL_DISK_BUDGET",
            value_name: "BYTES",
            meaning: "disk space of each rank's log",
            help: "Disk space of each rank's log in the node-local tier, such as 16GiB [default: 4GiB]",
            scope: Scope::Ranks,
            set: |settings, text| {
                settings.disk_budget = text.parse::<ByteSize>()?.0 as u64;
                settings.check_disk_budget()
            },
            get: |settings| Some(ByteSize(settings.disk_budget as usize).to_string()),
        },
        Key {
            name: "prefault",
            variable: "COUNTERFOIL_PREFAULT",
            value_name: "BYTES",
            meaning: "part of that memory that is committed at the start",
            help: "Part of that memory that is committed in MPI_Init: what is committed later delays sends, by up to a \
                   millisecond for each 4 MiB [default: 256KiB; up to 16MiB if more than unacknowledged messages is \
                   kept]",
            scope: Scope::Ranks,
            set: |settings, text| {
                settings.prefault = Some(text.parse::<ByteSize>()?.0);
                settings.check_prefault()
            },
            get: |settings| settings.prefault.map(|bytes| ByteSize(bytes).to_string()),
        },
        Key {
            name: "spill-cpu",
            variable: "COUNTERFOIL_SPILL_CPU",
            value_name: "PERCENT",
            meaning: "processor time of the thread that spills, in percent of a core",
            help: "Processor time of each rank's thread that spills to disk, in percent of a core: it rests for the \
                   remainder while no send waits for it [default: 100, no limit]",
            scope: Scope::Ranks,
            set: |settings, text| {
                let percent = text.parse().ok().filter(|percent| (1..=100).contains(percent));
                settings.spill_cpu = percent.ok_or(Violation::Percent)?;
                Ok(())
            },
            get: |settings| Some(settings.spill_cpu.to_string()),
        },
        Key {
            name: "deadlock-after",
            variable: "COUNTERFOIL_DEADLOCK_AFTER",
            value_name: "SECONDS",
            meaning: "seconds without activity before a wait for log space is given up",
            help: "Seconds without activity on any rank after which a wait for space in a full log is given up; must \
                   exceed the duration of any single message or collective operation [default: 10; six times as long \
                   if several threads call MPI concurrently]",
            scope: Scope::Ranks,
            set: |settings, text| {
                settings.deadlock_after = text.parse::<Seconds>()?.0;
                if settings.deadlock_after < Duration::from_secs(1) { Err(Violation::TooShort) } else { Ok(()) }
            },
            get: |settings| Some(Seconds(settings.deadlock_after).to_string()),
        },
        Key {
            name: "tier",
            variable: "COUNTERFOIL_TIER",
            value_name: "TIER",
            meaning: "storage of the log",
            help: "Storage of the log: volatile (memory), process-crash-safe (shared memory), or node-local (memory, \
                   then disk) [default: volatile; node-local if more than unacknowledged messages is kept; with \
                   --recover process-crash-safe]",
            scope: Scope::Ranks,
            set: |settings, text| set(&mut settings.tier, text),
            get: |settings| Some(settings.tier.to_string()),
        },
        Key {
            name: "log-dir",
            variable: LOG_DIR,
            value_name: "DIR",
            meaning: "directory that keeps the logs after the run",
            help: "Directory that keeps the ranks' logs after the run, for `counterfoil log`, or with --recover for \
                   `counterfoil replay`; on each host, or with --recover shared by all hosts. It must not contain \
                   logs yet, and is created if missing",
            scope: Scope::CommandPath,
            set: |settings, text| set_option(&mut settings.log_dir, text),
            get: |settings| path(&settings.log_dir),
        },
        Key {
            name: "summary",
            variable: "COUNTERFOIL_SUMMARY",
            value_name: "FILE",
            meaning: "file for the summary of the run",
            help: "Write a summary of the run to this file, as JSON",
            scope: Scope::CommandPath,
            set: |settings, text| set_option(&mut settings.summary, text),
            get: |settings| path(&settings.summary),
        },
    ];

    /// Returns the settings passed to the ranks in their environment.
    pub fn of_ranks() -> impl Iterator<Item = &'static Key> {
        Key::ALL.iter().filter(|key| key.scope == Scope::Ranks)
    }

    /// Sets this setting from its text.
    ///
    /// # Errors
    /// The requirement violated by the text.
    pub fn set(&self, settings: &mut RunSettings, text: &str) -> Result<(), Violation> {
        (self.set)(settings, text)
    }

    /// Returns this setting as text; `None` if it is unset.
    pub fn get(&self, settings: &RunSettings) -> Option<String> {
        (self.get)(settings)
    }
}

/// Requirement violated by a setting's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The text is none of the permitted words.
    #[error(transparent)]
    Word(#[from] UnknownWord),
    /// The text is no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The text is no duration.
    #[error(transparent)]
    Seconds(#[from] SecondsError),
    /// The duration is too short.
    #[error("must be at least 1 second")]
    TooShort,
    /// The text is no percentage.
    #[error("must be a whole number of percent, from 1 to 100")]
    Percent,
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// A log needs more memory.
    #[error("a log needs at least {least}")]
    SmallBudget {
        /// Minimum budget: one chunk.
        least: ByteSize,
    },
    /// The log can't have this memory limit.
    #[error("{0}")]
    Budget(Cow<'static, str>),
    /// The prefault exceeds the budget.
    #[error("must be at most the budget, {budget}")]
    Prefault {
        /// The budget.
        budget: ByteSize,
    },
}

/// A setting with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} is `{value}`: {violation}")]
pub struct SettingError {
    /// The option, variable or file entry.
    pub place: String,
    /// Its value.
    pub value: String,
    /// The violated requirement.
    #[source]
    pub violation: Violation,
}

const LOG_DIR: &str = "COUNTERFOIL_LOG_DIR";
const SHM_DIR: &str = "COUNTERFOIL_SHM_DIR";
const SPILL_DIR: &str = "COUNTERFOIL_SPILL_DIR";
/// Variable for [`RunSettings::summary_dir`].
pub const SUMMARY_DIR: &str = "COUNTERFOIL_SUMMARY_DIR";

impl RunSettings {
    /// Reads a rank's settings from its environment.
    ///
    /// An empty variable counts as unset.
    ///
    /// # Errors
    /// The first invalid variable.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<RunSettings, SettingError> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let directory = |name: &str| given(name).map(PathBuf::from);
        let mut settings = RunSettings {
            log_dir: directory(LOG_DIR),
            shm_dir: directory(SHM_DIR),
            spill_dir: directory(SPILL_DIR),
            summary_dir: directory(SUMMARY_DIR),
            ..RunSettings::default()
        };
        for key in Key::of_ranks() {
            let Some(value) = given(key.variable) else { continue };
            let value = value.to_string_lossy().into_owned();
            key.set(&mut settings, &value).map_err(|violation| SettingError {
                place: key.variable.to_owned(),
                value,
                violation,
            })?;
        }
        Ok(settings)
    }

    /// Returns the variables from which [`from_env`](Self::from_env) reads these settings.
    ///
    /// An unset setting's variable is empty, so a rank doesn't inherit another value.
    pub fn to_env(&self) -> Vec<(&'static str, OsString)> {
        let directory = |directory: &Option<PathBuf>| directory.clone().unwrap_or_default().into_os_string();
        let values = Key::of_ranks().map(|key| (key.variable, key.get(self).unwrap_or_default().into()));
        let directories = [
            (LOG_DIR, directory(&self.log_dir)),
            (SHM_DIR, directory(&self.shm_dir)),
            (SPILL_DIR, directory(&self.spill_dir)),
            (SUMMARY_DIR, directory(&self.summary_dir)),
        ];
        values.chain(directories).collect()
    }

    /// Returns `true` for a setting's or a job directory's variable.
    pub fn is_variable(name: &str) -> bool {
        [SHM_DIR, SPILL_DIR, SUMMARY_DIR].contains(&name) || Key::ALL.iter().any(|key| key.variable == name)
    }

    /// Returns the options for a rank's log.
    pub fn log_options(&self, rank: u32, ranks: u32) -> Options {
        let mut options = Options::new(Rank(rank), ranks);
        options.tier = self.tier;
        options.retain(self.keep, self.budget);
        options.prefault_bytes = self.prefault.unwrap_or(options.prefault_bytes);
        options.stops_logging = self.on_full == OnFull::StopLogging;
        options.dir.clone_from(&self.shm_dir);
        let dir = self.log_dir.as_ref().or(self.spill_dir.as_ref());
        options.store = dir.map(|dir| StoreOptions {
            cpu_percent_max: self.spill_cpu,
            disk_bytes_max: self.disk_budget,
            ..StoreOptions::new(dir)
        });
        options
    }

    /// Checks the budget as a memory limit for a rank's log: from one chunk to the log's largest address space.
    fn check_budget(&self) -> Result<(), Violation> {
        let mut options = Options::new(Rank(0), 1);
        options.retain(Keep::Acked, self.budget);
        if self.budget < options.chunk_bytes {
            return Err(Violation::SmallBudget { least: ByteSize(options.chunk_bytes) });
        }
        options.validate().map_err(|error| Violation::Budget(error.rule))
    }

    /// Checks the disk budget: a store has segments of a fixed size.
    fn check_disk_budget(&self) -> Result<(), Violation> {
        let mut options = Options::new(Rank(0), 1);
        options.store = Some(StoreOptions { disk_bytes_max: self.disk_budget, ..StoreOptions::new("") });
        options.validate().map_err(|error| Violation::Budget(error.rule))
    }

    /// Checks the prefault against the budget.
    fn check_prefault(&self) -> Result<(), Violation> {
        match self.prefault {
            Some(prefault) if prefault > self.budget => Err(Violation::Prefault { budget: ByteSize(self.budget) }),
            _ => Ok(()),
        }
    }
}

/// Parses and sets a value.
fn set<T: FromStr>(value: &mut T, text: &str) -> Result<(), Violation>
where
    Violation: From<T::Err>,
{
    *value = text.parse()?;
    Ok(())
}

/// Sets a value from any non-empty text.
fn set_option<T: From<String>>(value: &mut Option<T>, text: &str) -> Result<(), Violation> {
    if text.is_empty() {
        return Err(Violation::Empty);
    }
    *value = Some(text.to_owned().into());
    Ok(())
}

fn path(path: &Option<PathBuf>) -> Option<String> {
    path.as_ref().map(|path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<RunSettings, SettingError> {
        RunSettings::from_env(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    /// Returns settings that all differ from the defaults.
    fn unusual() -> RunSettings {
        RunSettings {
            logging: false,
            keep: Keep::All,
            on_full: OnFull::StopLogging,
            budget: 3 << 20,
            disk_budget: 1 << 30,
            prefault: Some(1 << 20),
            spill_cpu: 25,
            deadlock_after: Duration::from_millis(90_500),
            tier: Tier::NodeLocal,
            log_dir: Some("/var/tmp/x".into()),
            shm_dir: Some("/dev/shm/x".into()),
            spill_dir: Some("/var/tmp/y".into()),
            summary_dir: Some("/dev/shm/z".into()),
            ..RunSettings::default()
        }
    }

    #[test]
    fn settings_return_from_the_environment_as_they_went_in() {
        for settings in [RunSettings::default(), unusual()] {
            let variables = settings.to_env();
            let variable = |name: &str| variables.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone());
            assert_eq!(RunSettings::from_env(variable), Ok(settings));
        }
        assert_eq!(from(&[]), Ok(RunSettings::default()));
    }

    #[test]
    fn every_setting_of_the_ranks_is_among_their_variables() {
        let variables = unusual().to_env();
        for (name, value) in [
            ("COUNTERFOIL_LOGGING", "off"),
            ("COUNTERFOIL_KEEP", "all"),
            ("COUNTERFOIL_ON_FULL", "stop-logging"),
            ("COUNTERFOIL_BUDGET", "3MiB"),
            ("COUNTERFOIL_DISK_BUDGET", "1GiB"),
            ("COUNTERFOIL_PREFAULT", "1MiB"),
            ("COUNTERFOIL_SPILL_CPU", "25"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "90.5"),
            ("COUNTERFOIL_TIER", "node-local"),
            ("COUNTERFOIL_LOG_DIR", "/var/tmp/x"),
            ("COUNTERFOIL_SHM_DIR", "/dev/shm/x"),
            ("COUNTERFOIL_SPILL_DIR", "/var/tmp/y"),
            ("COUNTERFOIL_SUMMARY_DIR", "/dev/shm/z"),
        ] {
            assert!(variables.contains(&(name, value.into())) && RunSettings::is_variable(name), "{name}");
        }
        assert_eq!(variables.len(), 13);
        assert!(RunSettings::is_variable("COUNTERFOIL_MPI") && !RunSettings::is_variable("COUNTERFOIL_PROTOCOL"));
    }

    #[test]
    fn a_wait_for_space_ends_by_default_when_the_logger_would_end_it() {
        assert_eq!(RunSettings::default().deadlock_after, counterfoil_mpi_logger::DEADLOCK_AFTER);
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        for key in Key::ALL {
            assert_eq!(from(&[(key.variable, "")]), Ok(RunSettings::default()), "{}", key.variable);
        }
    }

    #[test]
    fn the_least_budget_is_a_chunk() {
        assert_eq!(from(&[("COUNTERFOIL_BUDGET", "64 KiB")]).map(|settings| settings.budget), Ok(64 << 10));
        let refused = from(&[("COUNTERFOIL_BUDGET", "65535")]).unwrap_err();
        assert_eq!(refused.to_string(), "COUNTERFOIL_BUDGET is `65535`: a log needs at least 64KiB");
        let largest = from(&[("COUNTERFOIL_BUDGET", "256GiB")]);
        assert!(largest.is_ok(), "{largest:?}");
    }

    #[test]
    fn a_log_can_be_made_with_any_permitted_budget() {
        for budget in ["64KiB", "65537", "1MiB", "256GiB"] {
            for keep in ["acked", "checkpoint", "all"] {
                let settings = from(&[("COUNTERFOIL_BUDGET", budget), ("COUNTERFOIL_KEEP", keep)]).unwrap();
                assert_eq!(settings.log_options(0, 4).validate(), Ok(()), "{budget} {keep}");
            }
        }
    }

    #[test]
    fn an_invalid_variable_is_named_with_its_requirement() {
        for (name, value, requirement) in [
            ("COUNTERFOIL_LOGGING", "yes", "must be one of on, off"),
            (
                "COUNTERFOIL_BUDGET",
                "64 MB",
                "must be a whole number of bytes, optionally with the unit KiB, MiB or GiB",
            ),
            ("COUNTERFOIL_BUDGET", "18014398509481984KiB", "must be a whole number of bytes"),
            ("COUNTERFOIL_BUDGET", "257GiB", "must be at most 256 GiB"),
            ("COUNTERFOIL_DISK_BUDGET", "1MiB", "options of the store: disk_bytes_max is 1048576, less than"),
            ("COUNTERFOIL_PREFAULT", "65MiB", "must be at most the budget, 64MiB"),
            ("COUNTERFOIL_PREFAULT", "all", "must be a whole number of bytes"),
            ("COUNTERFOIL_SPILL_CPU", "0", "must be a whole number of percent, from 1 to 100"),
            ("COUNTERFOIL_SPILL_CPU", "101", "must be a whole number of percent, from 1 to 100"),
            ("COUNTERFOIL_KEEP", "some", "must be one of acked, checkpoint, all"),
            ("COUNTERFOIL_ON_FULL", "wait", "must be one of block, stop-logging, fail"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "0", "must be a positive number of seconds"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "0.9", "must be at least 1 second"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "10s", "must be a positive number of seconds"),
            ("COUNTERFOIL_TIER", "disk", "must be one of volatile, process-crash-safe, node-local"),
        ] {
            let error = from(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is `{value}`: {requirement}")), "{error}");
        }
    }
}
