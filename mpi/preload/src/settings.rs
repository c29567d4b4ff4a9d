//! Settings of the user: variables named COUNTERFOIL_..., which `counterfoil run` sets.

use std::env::var_os;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil::{Keep, OnFull, Options, Rank, StoreOptions, Tier};
use counterfoil_mpi_logger::DEADLOCK_AFTER;

const SUMMARY_DIR: &str = "COUNTERFOIL_SUMMARY_DIR";

/// The settings of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// True if messages are logged.
    pub(crate) is_on: bool,
    /// Bytes of memory for the log.
    pub(crate) budget: usize,
    /// Bytes of them that are prefaulted in MPI_Init, if not those that suit the budget.
    pub(crate) prefault: Option<usize>,
    /// Processor time of the thread that spills, in percent of a core.
    pub(crate) spill_cpu: u8,
    pub(crate) keep: Keep,
    pub(crate) on_full: OnFull,
    /// Time without any activity in the job after which a wait for space is given up.
    pub(crate) deadlock_after: Duration,
    pub(crate) tier: Tier,
    /// Directory of shared-memory files.
    pub(crate) shm_dir: Option<PathBuf>,
    /// Directory of logs that are kept after the job, and of spilled records.
    pub(crate) log_dir: Option<PathBuf>,
    /// Directory of spilled records, where no log is kept.
    pub(crate) spill_dir: Option<PathBuf>,
    /// Directory of each rank's counters (`rank-N.live`), its summary at the end (`rank-N.json`), or the reason why it can't log
    /// (`rank-N.refused`).
    pub(crate) summary_dir: Option<PathBuf>,
}

/// A variable with an invalid value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is `{value}`: it must be {must}")]
pub(crate) struct SettingError {
    name: &'static str,
    value: String,
    must: &'static str,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            is_on: true,
            budget: 64 << 20,
            prefault: None,
            spill_cpu: 100,
            keep: Keep::Acked,
            on_full: OnFull::Block,
            deadlock_after: DEADLOCK_AFTER,
            tier: Tier::Volatile,
            shm_dir: None,
            log_dir: None,
            spill_dir: None,
            summary_dir: None,
        }
    }
}

impl Settings {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// The first invalid variable.
    pub(crate) fn from_environment() -> Result<Settings, SettingError> {
        Settings::from(|name| var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        settings.shm_dir = path("COUNTERFOIL_SHM_DIR");
        settings.log_dir = path("COUNTERFOIL_LOG_DIR");
        settings.spill_dir = path("COUNTERFOIL_SPILL_DIR");
        settings.summary_dir = path(SUMMARY_DIR);
        let chosen = |name: &'static str, must, choose: &mut dyn FnMut(&str) -> bool| match variable(name) {
            Some(value) if !choose(&value) => Err(SettingError { name, value, must }),
            _ => Ok(()),
        };
        chosen("COUNTERFOIL_PROTOCOL", "`sender-based`: over MPI there is no other", &mut |value| {
            value == "sender-based"
        })?;
        chosen("COUNTERFOIL_LOGGING", "`on` or `off`", &mut |value| {
            settings.is_on = value == "on";
            matches!(value, "on" | "off")
        })?;
        let least = Options::new(Rank(0), 1).chunk_bytes;
        let must = "a number of bytes, or one followed by KiB, MiB or GiB, and one chunk (64 KiB) at least";
        chosen("COUNTERFOIL_BUDGET", must, &mut |value| {
            let bytes = bytes(value).filter(|bytes| *bytes >= least);
            bytes.map(|bytes| settings.budget = bytes).is_some()
        })?;
        let must = "a number of bytes, or one followed by KiB, MiB or GiB, at most the budget";
        let budget = settings.budget;
        chosen("COUNTERFOIL_PREFAULT", must, &mut |value| {
            settings.prefault = bytes(value).filter(|bytes| *bytes <= budget);
            settings.prefault.is_some() || value.is_empty()
        })?;
        chosen("COUNTERFOIL_SPILL_CPU", "a whole number of percent, from 1 to 100", &mut |value| {
            let percent = value.parse().ok().filter(|percent| (1..=100).contains(percent));
            percent.map(|percent| settings.spill_cpu = percent).is_some()
        })?;
        chosen("COUNTERFOIL_KEEP", "`acked`, `checkpoint` or `all`", &mut |value| {
            let keep = match value {
                "acked" => Keep::Acked,
                "checkpoint" => Keep::Checkpoint,
                "all" => Keep::All,
                _ => return false,
            };
            settings.keep = keep;
            true
        })?;
        chosen("COUNTERFOIL_ON_FULL", "`block`, `stop-logging` or `fail`", &mut |value| {
            let on_full = match value {
                "block" => OnFull::Block,
                "stop-logging" => OnFull::StopLogging,
                "fail" => OnFull::Fail,
                _ => return false,
            };
            settings.on_full = on_full;
            true
        })?;
        chosen("COUNTERFOIL_DEADLOCK_AFTER", "a whole number of seconds, at least 1", &mut |value| {
            let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
            seconds.map(|seconds| settings.deadlock_after = Duration::from_secs(seconds.into())).is_some()
        })?;
        chosen("COUNTERFOIL_TIER", "`volatile`, `process-crash-safe` or `node-local`", &mut |value| {
            let tier = match value {
                "volatile" => Tier::Volatile,
                "process-crash-safe" => Tier::ProcessCrashSafe,
                "node-local" => Tier::NodeLocal,
                _ => return false,
            };
            settings.tier = tier;
            true
        })?;
        Ok(settings)
    }

    /// Returns the options of a rank's log.
    pub(crate) fn options(&self, rank: u32, ranks: u32) -> Options {
        let mut options = Options::new(Rank(rank), ranks);
        options.tier = self.tier;
        options.retain(self.keep, self.budget);
        options.prefault_bytes = self.prefault.unwrap_or(options.prefault_bytes);
        options.on_full = self.on_full;
        options.dir.clone_from(&self.shm_dir);
        let dir = self.log_dir.as_ref().or(self.spill_dir.as_ref());
        options.store = dir.map(|dir| StoreOptions { cpu_percent_max: self.spill_cpu, ..StoreOptions::new(dir) });
        options
    }
}

/// Returns the directory of the summary, whatever the other settings are.
pub(crate) fn summary_dir() -> Option<PathBuf> {
    var_os(SUMMARY_DIR).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Parses a number of bytes such as `64MiB`.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::from(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn without_variables_settings_are_the_defaults() {
        assert_eq!(with(&[]), Ok(Settings::default()));
    }

    #[test]
    fn each_variable_is_read() {
        let settings = with(&[
            ("COUNTERFOIL_PROTOCOL", "sender-based"),
            ("COUNTERFOIL_LOGGING", "off"),
            ("COUNTERFOIL_BUDGET", "3MiB"),
            ("COUNTERFOIL_PREFAULT", "1MiB"),
            ("COUNTERFOIL_SPILL_CPU", "25"),
            ("COUNTERFOIL_KEEP", "all"),
            ("COUNTERFOIL_ON_FULL", "stop-logging"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "90"),
            ("COUNTERFOIL_TIER", "node-local"),
            ("COUNTERFOIL_SHM_DIR", "/dev/shm/x"),
            ("COUNTERFOIL_LOG_DIR", "/var/tmp/x"),
            ("COUNTERFOIL_SPILL_DIR", "/var/tmp/y"),
            ("COUNTERFOIL_SUMMARY_DIR", ""),
        ]);
        let right = Settings {
            is_on: false,
            budget: 3 << 20,
            prefault: Some(1 << 20),
            spill_cpu: 25,
            keep: Keep::All,
            on_full: OnFull::StopLogging,
            deadlock_after: Duration::from_secs(90),
            tier: Tier::NodeLocal,
            shm_dir: Some("/dev/shm/x".into()),
            log_dir: Some("/var/tmp/x".into()),
            spill_dir: Some("/var/tmp/y".into()),
            summary_dir: None,
        };
        assert_eq!(settings, Ok(right));
    }

    #[test]
    fn an_invalid_variable_is_named() {
        for (name, value) in [
            ("COUNTERFOIL_PROTOCOL", "hydee"),
            ("COUNTERFOIL_LOGGING", "yes"),
            ("COUNTERFOIL_BUDGET", "65535"),
            ("COUNTERFOIL_BUDGET", "64 MB"),
            ("COUNTERFOIL_BUDGET", "99999999999999999999"),
            ("COUNTERFOIL_BUDGET", "18014398509481984KiB"),
            ("COUNTERFOIL_PREFAULT", "65MiB"),
            ("COUNTERFOIL_PREFAULT", "all"),
            ("COUNTERFOIL_SPILL_CPU", "0"),
            ("COUNTERFOIL_SPILL_CPU", "101"),
            ("COUNTERFOIL_KEEP", "some"),
            ("COUNTERFOIL_ON_FULL", ""),
            ("COUNTERFOIL_DEADLOCK_AFTER", "0"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "never"),
            ("COUNTERFOIL_TIER", "disk"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name} is `{value}`: it must be ")), "{error}");
        }
    }
}
