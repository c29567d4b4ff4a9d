//! What the user asked for: variables named COUNTERFOIL_..., which `counterfoil run` sets.

use std::env::var_os;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil::{Keep, OnFull, Options, Rank, StoreOptions, Tier};
use counterfoil_mpi::room::standstill::STANDSTILL;

const SUMMARY_DIR: &str = "COUNTERFOIL_SUMMARY_DIR";

/// The settings of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Whether anything is logged.
    pub(crate) is_on: bool,
    /// Bytes of memory for the log.
    pub(crate) budget: usize,
    pub(crate) keep: Keep,
    pub(crate) on_full: OnFull,
    /// How long nothing may happen to any rank before a wait for room is given up.
    pub(crate) standstill: Duration,
    pub(crate) tier: Tier,
    /// Where shared-memory files go.
    pub(crate) shm_dir: Option<PathBuf>,
    /// Where logs go that are there afterwards, and what is spilled.
    pub(crate) log_dir: Option<PathBuf>,
    /// Where that goes which is spilled, where no log is to be there afterwards.
    pub(crate) spill_dir: Option<PathBuf>,
    /// Where each rank writes how it is doing, as `rank-N.live`, and at the end what it did, as `rank-N.json`; or why it can't log, as
    /// `rank-N.refused`.
    pub(crate) summary_dir: Option<PathBuf>,
}

/// A variable that says nothing that can be used.
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
            keep: Keep::Acked,
            on_full: OnFull::Block,
            standstill: STANDSTILL,
            tier: Tier::Volatile,
            shm_dir: None,
            log_dir: None,
            spill_dir: None,
            summary_dir: None,
        }
    }
}

impl Settings {
    /// From the environment of this process.
    ///
    /// # Errors
    /// The first variable that can't be understood.
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
        let must = "a number of bytes, or one with KiB, MiB or GiB behind, and one chunk (64 KiB) at least";
        chosen("COUNTERFOIL_BUDGET", must, &mut |value| {
            let bytes = bytes(value).filter(|bytes| *bytes >= least);
            bytes.map(|bytes| settings.budget = bytes).is_some()
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
        chosen("COUNTERFOIL_STANDSTILL", "a whole number of seconds, at least 1", &mut |value| {
            let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
            seconds.map(|seconds| settings.standstill = Duration::from_secs(seconds.into())).is_some()
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

    /// Whether records that are acknowledged stay in memory for ever.
    pub(crate) fn keeps_all_in_memory(&self) -> bool {
        self.keep != Keep::Acked && self.log_dir.is_none() && self.spill_dir.is_none()
    }

    /// The options of a rank's log.
    pub(crate) fn options(&self, rank: u32, ranks: u32) -> Options {
        let mut options = Options::new(Rank(rank), ranks);
        options.tier = self.tier;
        options.keep = self.keep;
        options.on_full = self.on_full;
        options.memory_bytes_max = self.budget;
        options.dir.clone_from(&self.shm_dir);
        options.store = self.log_dir.as_ref().or(self.spill_dir.as_ref()).map(StoreOptions::new);
        options
    }
}

/// Where this process is to write what it did, whatever the other settings say.
pub(crate) fn summary_dir() -> Option<PathBuf> {
    var_os(SUMMARY_DIR).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// `64MiB` as a number.
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
    fn without_variables_the_defaults_hold() {
        assert_eq!(with(&[]), Ok(Settings::default()));
    }

    #[test]
    fn each_variable_is_read() {
        let settings = with(&[
            ("COUNTERFOIL_PROTOCOL", "sender-based"),
            ("COUNTERFOIL_LOGGING", "off"),
            ("COUNTERFOIL_BUDGET", "3MiB"),
            ("COUNTERFOIL_KEEP", "all"),
            ("COUNTERFOIL_ON_FULL", "stop-logging"),
            ("COUNTERFOIL_STANDSTILL", "90"),
            ("COUNTERFOIL_TIER", "node-local"),
            ("COUNTERFOIL_SHM_DIR", "/dev/shm/x"),
            ("COUNTERFOIL_LOG_DIR", "/var/tmp/x"),
            ("COUNTERFOIL_SPILL_DIR", "/var/tmp/y"),
            ("COUNTERFOIL_SUMMARY_DIR", ""),
        ]);
        let right = Settings {
            is_on: false,
            budget: 3 << 20,
            keep: Keep::All,
            on_full: OnFull::StopLogging,
            standstill: Duration::from_secs(90),
            tier: Tier::NodeLocal,
            shm_dir: Some("/dev/shm/x".into()),
            log_dir: Some("/var/tmp/x".into()),
            spill_dir: Some("/var/tmp/y".into()),
            summary_dir: None,
        };
        assert_eq!(settings, Ok(right));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (name, value) in [
            ("COUNTERFOIL_PROTOCOL", "hydee"),
            ("COUNTERFOIL_LOGGING", "yes"),
            ("COUNTERFOIL_BUDGET", "65535"),
            ("COUNTERFOIL_BUDGET", "64 MB"),
            ("COUNTERFOIL_BUDGET", "99999999999999999999"),
            ("COUNTERFOIL_BUDGET", "18014398509481984KiB"),
            ("COUNTERFOIL_KEEP", "some"),
            ("COUNTERFOIL_ON_FULL", ""),
            ("COUNTERFOIL_STANDSTILL", "0"),
            ("COUNTERFOIL_STANDSTILL", "never"),
            ("COUNTERFOIL_TIER", "disk"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name} is `{value}`: it must be ")), "{error}");
        }
    }
}
