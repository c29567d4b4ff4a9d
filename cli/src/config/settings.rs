//! Resolution of the settings of `counterfoil run`: sources, their precedence, and the defaults.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::file::File;
use super::key::{Key, bytes};

/// Variables with our prefix that aren't settings: read by this command, by the logging library or by the project's own tests.
const OTHER_VARIABLES: [&str; 8] = [
    "COUNTERFOIL_CONFIG",
    "COUNTERFOIL_LOG",
    "COUNTERFOIL_MPI_BUILD",
    "COUNTERFOIL_MPIRUN",
    "COUNTERFOIL_SEED",
    "COUNTERFOIL_SHM_DIR",
    "COUNTERFOIL_SPILL_DIR",
    "COUNTERFOIL_SUMMARY_DIR",
];

/// The settings as command-line options.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingOptions {
    /// MPI to run under: wheel (PyPI's Open MPI, as installed by `cargo xtask preload`), debian, or the installation prefix of an
    /// Open MPI [default: the mpirun in PATH]
    #[arg(long, value_name = "wheel|debian|PREFIX")]
    pub(super) mpi: Option<String>,
    /// Logging library to preload [default: the one that `cargo xtask preload` built for the MPI]
    #[arg(long, value_name = "FILE")]
    pub(super) mpi_library: Option<String>,
    /// Logging protocol: sender-based [default: sender-based]
    #[arg(long, value_name = "PROTOCOL")]
    pub(super) protocol: Option<String>,
    /// Log messages: on, or off (the library is preloaded but idle) [default: on]
    #[arg(long, value_name = "on|off")]
    pub(super) logging: Option<String>,
    /// How long messages are kept: acked (until acknowledged), checkpoint, or all [default: acked; with --log-dir all]
    #[arg(long, value_name = "KEEP")]
    pub(super) keep: Option<String>,
    /// What a send does when the log is full: block, stop-logging, or fail [default: block]
    #[arg(long, value_name = "ON-FULL")]
    pub(super) on_full: Option<String>,
    /// Memory of each rank's log, such as 64MiB [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    pub(super) budget: Option<String>,
    /// Part of that memory that is committed in MPI_Init: what is committed later delays sends, by up to a millisecond for each 4 MiB
    /// [default: 256KiB; up to 16MiB if more than unacknowledged messages is kept]
    #[arg(long, value_name = "BYTES")]
    pub(super) prefault: Option<String>,
    /// Processor time of each rank's thread that spills to disk, in percent of a core: it rests for the remainder while no send waits for it
    /// [default: 100, no limit]
    #[arg(long, value_name = "PERCENT")]
    pub(super) spill_cpu: Option<String>,
    /// Seconds without activity on any rank after which a wait for space in a full log is given up; must exceed the duration of
    /// any single message or collective operation [default: 10; six times as long if several threads call MPI concurrently]
    #[arg(long, value_name = "SECONDS")]
    pub(super) deadlock_after: Option<String>,
    /// Storage of the log: volatile (memory), process-crash-safe (shared memory), or node-local (memory, then disk)
    /// [default: volatile; node-local if more than unacknowledged messages is kept]
    #[arg(long, value_name = "TIER")]
    pub(super) tier: Option<String>,
    /// Directory on this machine that keeps the ranks' logs after the run, for `counterfoil log`; it must not contain logs yet,
    /// and is created if missing
    #[arg(long, value_name = "DIR")]
    pub(super) log_dir: Option<String>,
    /// Write a summary of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) summary: Option<String>,
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option(&'static str),
    Environment(&'static str),
    File(PathBuf),
    Default,
    /// Default that follows from another setting.
    DefaultWith(&'static str),
}

impl Source {
    /// Name of the kind of origin, as used in JSON.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Source::Option(_) => "option",
            Source::Environment(_) => "environment",
            Source::File(_) => "file",
            Source::Default | Source::DefaultWith(_) => "default",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Option(name) => write!(f, "--{name}"),
            Source::Environment(variable) => f.write_str(variable),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Default => f.write_str("default"),
            Source::DefaultWith(name) => write!(f, "default with {name}"),
        }
    }
}

/// Error while resolving the settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{} is `{value}`: {requirement}", qualified_name(*key, place))]
    Value { key: Key, value: String, place: Source, requirement: String },
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
}

/// Name of a setting in an error message. Options and variables have a name of their own; a file's entry is `file: name`.
fn qualified_name(key: Key, place: &Source) -> String {
    match place {
        Source::Option(_) | Source::Environment(_) => place.to_string(),
        _ => format!("{place}: {}", key.name()),
    }
}

/// The value of a setting and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: Option<String>,
    pub(crate) source: Source,
}

/// The resolved settings.
#[derive(Debug)]
pub(crate) struct Settings {
    values: Vec<Setting>,
    file: Option<PathBuf>,
}

impl Settings {
    /// Resolves the settings from options, the environment of this process, and the file.
    ///
    /// # Errors
    /// A value is invalid, or the file can't be read.
    pub(crate) fn resolve(options: &SettingOptions) -> Result<Settings, ConfigError> {
        let file = File::find()?;
        for name in unknown_variables(std::env::vars_os()) {
            eprintln!("warning: unknown variable {name} is ignored; `counterfoil config` lists the known ones");
        }
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Settings::from(options, variable, file.as_ref())
    }

    /// Resolves the settings from the given sources.
    pub(crate) fn from(
        options: &SettingOptions,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<&File>,
    ) -> Result<Settings, ConfigError> {
        let mut settings = Settings { values: Vec::new(), file: file.map(|file| file.path.clone()) };
        for key in Key::ALL {
            let option = options.get(key).map(|value| (value, Source::Option(key.name())));
            let environment = || {
                let value = variable(key.variable()).filter(|value| !value.is_empty())?;
                Some((value, Source::Environment(key.variable())))
            };
            let in_file = || Some((file?.get(key)?, Source::File(file?.path.clone())));
            let setting = match option.or_else(environment).or_else(in_file) {
                Some((value, source)) => {
                    if let Some(requirement) = key.violation(&value) {
                        return Err(ConfigError::Value { key, value, place: source, requirement });
                    }
                    Setting { value: Some(value), source }
                }
                None => Setting { value: None, source: Source::Default },
            };
            settings.values.push(setting);
        }
        settings.apply_defaults();
        settings.check_prefault()?;
        Ok(settings)
    }

    /// Checks that no more memory is to be prefaulted than there is.
    fn check_prefault(&self) -> Result<(), ConfigError> {
        let (prefault, budget) = (self.setting(Key::Prefault), self.value(Key::Budget).unwrap_or_default());
        match &prefault.value {
            Some(value) if bytes(value) > bytes(budget) => Err(ConfigError::Value {
                key: Key::Prefault,
                value: value.clone(),
                place: prefault.source.clone(),
                requirement: format!("must be at most the budget, {budget}"),
            }),
            _ => Ok(()),
        }
    }

    /// Fills in the defaults, some of which depend on other settings.
    fn apply_defaults(&mut self) {
        let has_log = self.value(Key::LogDir).is_some();
        let keep = if has_log { ("all", Source::DefaultWith("log-dir")) } else { ("acked", Source::Default) };
        self.default_to(Key::Keep, keep);
        // Messages that are kept forever exceed any memory.
        let tier = match (has_log, self.value(Key::Keep)) {
            (true, _) => ("node-local", Source::DefaultWith("log-dir")),
            (false, Some("acked")) => ("volatile", Source::Default),
            (false, _) => ("node-local", Source::DefaultWith("keep")),
        };
        self.default_to(Key::Tier, tier);
        self.default_to(Key::Protocol, ("sender-based", Source::Default));
        self.default_to(Key::Logging, ("on", Source::Default));
        self.default_to(Key::OnFull, ("block", Source::Default));
        self.default_to(Key::Budget, ("64MiB", Source::Default));
        self.default_to(Key::SpillCpu, ("100", Source::Default));
        self.default_to(Key::DeadlockAfter, ("10", Source::Default));
    }

    fn default_to(&mut self, key: Key, (value, source): (&str, Source)) {
        let setting = &mut self.values[key as usize];
        if setting.value.is_none() {
            *setting = Setting { value: Some(value.to_owned()), source };
        }
    }

    /// Returns the value of a setting and its origin.
    pub(crate) fn setting(&self, key: Key) -> &Setting {
        &self.values[key as usize]
    }

    /// Returns the value of a setting; `None` if it is unset and has no default.
    pub(crate) fn value(&self, key: Key) -> Option<&str> {
        self.setting(key).value.as_deref()
    }

    /// Path of the settings file, if one was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Returns the names of variables that have our prefix but aren't known.
fn unknown_variables(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &str| OTHER_VARIABLES.contains(&name) || Key::ALL.iter().any(|key| key.variable() == name);
    let mut names: Vec<String> = names.filter(|name| name.starts_with("COUNTERFOIL_") && !is_known(name)).collect();
    names.sort();
    names
}

impl SettingOptions {
    fn get(&self, key: Key) -> Option<String> {
        let value = match key {
            Key::Mpi => &self.mpi,
            Key::MpiLibrary => &self.mpi_library,
            Key::Protocol => &self.protocol,
            Key::Logging => &self.logging,
            Key::Keep => &self.keep,
            Key::OnFull => &self.on_full,
            Key::Budget => &self.budget,
            Key::Prefault => &self.prefault,
            Key::SpillCpu => &self.spill_cpu,
            Key::DeadlockAfter => &self.deadlock_after,
            Key::Tier => &self.tier,
            Key::LogDir => &self.log_dir,
            Key::Summary => &self.summary,
        };
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn parse(text: &str) -> Result<File, ConfigError> {
        File::parse(Path::new("/etc/x/counterfoil.toml"), text)
    }

    #[test]
    fn options_override_the_environment_which_overrides_the_file_which_overrides_defaults() {
        let file = parse("keep = \"all\"\nbudget = 1000000\non-full = \"fail\"\n").unwrap();
        let options = SettingOptions { keep: Some("acked".to_owned()), ..SettingOptions::default() };
        let variable = |name: &str| match name {
            "COUNTERFOIL_KEEP" => Some("checkpoint".to_owned()),
            "COUNTERFOIL_BUDGET" => Some("2MiB".to_owned()),
            "COUNTERFOIL_TIER" => Some(String::new()),
            _ => None,
        };
        let settings = Settings::from(&options, variable, Some(&file)).unwrap();
        let is = |key, value: &str, kind: &str| {
            let setting = settings.setting(key);
            assert_eq!((setting.value.as_deref(), setting.source.kind()), (Some(value), kind), "{}", key.name());
        };
        is(Key::Keep, "acked", "option");
        is(Key::Budget, "2MiB", "environment");
        is(Key::OnFull, "fail", "file");
        is(Key::Tier, "volatile", "default");
        is(Key::Protocol, "sender-based", "default");
    }

    #[test]
    fn kept_messages_go_to_disk_by_default() {
        let with = |log_dir: Option<&str>, keep: Option<&str>, tier: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let (log_dir, keep, tier) = (text(log_dir), text(keep), text(tier));
            let options = SettingOptions { log_dir, keep, tier, ..SettingOptions::default() };
            let settings = Settings::from(&options, none, None).unwrap();
            (settings.value(Key::Keep).unwrap().to_owned(), settings.value(Key::Tier).unwrap().to_owned())
        };
        let are = |keep: &str, tier: &str| (keep.to_owned(), tier.to_owned());
        assert_eq!(with(None, None, None), are("acked", "volatile"));
        assert_eq!(with(Some("/l"), None, None), are("all", "node-local"));
        assert_eq!(with(None, Some("all"), None), are("all", "node-local"));
        assert_eq!(with(Some("/l"), Some("acked"), Some("volatile")), are("acked", "volatile"));
    }

    #[test]
    fn misspelt_variables_are_reported() {
        let names = ["COUNTERFOIL_KEPE", "COUNTERFOIL_KEEP", "COUNTERFOIL_LOG", "PATH", "COUNTERFOIL_BUGDET"];
        let variables = names.map(|name| (name.into(), "all".into()));
        assert_eq!(unknown_variables(variables.into_iter()), ["COUNTERFOIL_BUGDET", "COUNTERFOIL_KEPE"]);
    }

    #[test]
    fn paths_in_the_file_are_relative_to_its_folder() {
        let file = parse("log-dir = \"logs\"\nsummary = \"/tmp/s.json\"\nmpi = \"wheel\"\n").unwrap();
        let settings = Settings::from(&SettingOptions::default(), none, Some(&file)).unwrap();
        assert_eq!(settings.value(Key::LogDir), Some("/etc/x/logs"));
        assert_eq!(settings.value(Key::Summary), Some("/tmp/s.json"));
        assert_eq!(settings.value(Key::Mpi), Some("wheel"));
    }

    #[test]
    fn invalid_values_are_reported_with_their_origin() {
        let refused = |name: &str, value: &str| {
            let variable = |of: &str| (of == name).then(|| value.to_owned());
            Settings::from(&SettingOptions::default(), variable, None).unwrap_err().to_string()
        };
        let protocol = refused("COUNTERFOIL_PROTOCOL", "hydee");
        assert_eq!(protocol, "COUNTERFOIL_PROTOCOL is `hydee`: only `sender-based` is available over MPI");
        for (name, value, requirement) in [
            ("COUNTERFOIL_KEEP", "some", "acked, checkpoint, all"),
            ("COUNTERFOIL_BUDGET", "64 MB", "number of bytes"),
            ("COUNTERFOIL_BUDGET", "1", "at least 256KiB"),
            ("COUNTERFOIL_BUDGET", "255KiB", "at least 256KiB"),
            ("COUNTERFOIL_BUDGET", "257GiB", "at most 256 GiB"),
            ("COUNTERFOIL_PREFAULT", "half", "number of bytes"),
            ("COUNTERFOIL_PREFAULT", "65MiB", "at most the budget, 64MiB"),
            ("COUNTERFOIL_BUDGET", "99999999999GiB", "number of bytes"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "0", "whole number of seconds"),
            ("COUNTERFOIL_SPILL_CPU", "0", "from 1 to 100"),
            ("COUNTERFOIL_SPILL_CPU", "101", "from 1 to 100"),
            ("COUNTERFOIL_DEADLOCK_AFTER", "10s", "whole number of seconds"),
            ("COUNTERFOIL_TIER", "disk", "node-local"),
        ] {
            let text = refused(name, value);
            assert!(text.starts_with(name) && text.contains(value) && text.contains(requirement), "{text}");
        }
        let in_file = Settings::from(&SettingOptions::default(), none, Some(&parse("budget = 1").unwrap()));
        let in_file = in_file.unwrap_err().to_string();
        assert!(in_file.starts_with("/etc/x/counterfoil.toml: budget is `1`: "), "{in_file}");
        for (text, what) in
            [("kepe = 1", "unknown setting `kepe`"), ("keep = [1]", "must be a string"), ("keep", "keep")]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("/etc/x/counterfoil.toml") && error.contains(what), "{error}");
        }
    }
}
