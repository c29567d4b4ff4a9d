//! The settings of a run over MPI: from where they come, what counts before what, and the defaults.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::file::File;
use super::key::Key;

/// Variables that are read elsewhere: by this command, by the library that logs, by the project's own tests.
const NO_SETTINGS: [&str; 8] = [
    "COUNTERFOIL_CONFIG",
    "COUNTERFOIL_LOG",
    "COUNTERFOIL_MPI_BUILD",
    "COUNTERFOIL_MPIRUN",
    "COUNTERFOIL_SEED",
    "COUNTERFOIL_SHM_DIR",
    "COUNTERFOIL_SPILL_DIR",
    "COUNTERFOIL_SUMMARY_DIR",
];

/// Settings as options of a command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Chosen {
    /// Which MPI: wheel (Open MPI from PyPI, as `cargo xtask preload` installs it), debian, or the folder in which an Open MPI
    /// is installed [default: the mpirun in PATH]
    #[arg(long, value_name = "wheel|debian|PREFIX")]
    pub(super) mpi: Option<String>,
    /// The library that logs [default: as `cargo xtask preload` has built it for that MPI]
    #[arg(long, value_name = "FILE")]
    pub(super) mpi_library: Option<String>,
    /// The rule by which is logged: sender-based [default: sender-based]
    #[arg(long, value_name = "PROTOCOL")]
    pub(super) protocol: Option<String>,
    /// on, or off: the library is loaded and does nothing [default: on]
    #[arg(long, value_name = "on|off")]
    pub(super) logging: Option<String>,
    /// How long a message is kept: acked (until it is received), checkpoint, or all [default: acked; with --log-dir all]
    #[arg(long, value_name = "KEEP")]
    pub(super) keep: Option<String>,
    /// What a send does where the log is full: block, stop-logging, or fail [default: block]
    #[arg(long, value_name = "ON-FULL")]
    pub(super) on_full: Option<String>,
    /// Memory of each rank's log, as in 64MiB [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    pub(super) budget: Option<String>,
    /// How many seconds nothing may happen to any rank before a wait for room in a full log is given up: longer than any one message or
    /// collective operation takes [default: 10; six times as long where threads call MPI at once]
    #[arg(long, value_name = "SECONDS")]
    pub(super) standstill: Option<String>,
    /// Where the log is: volatile (memory), process-crash-safe (shared memory), or node-local (memory and, where that is not
    /// enough, disk) [default: volatile; where more is kept than what is not received yet, node-local]
    #[arg(long, value_name = "TIER")]
    pub(super) tier: Option<String>,
    /// Where the ranks' logs are afterwards, for `counterfoil log`: a directory of this machine that has none yet, and is made if it
    /// isn't there
    #[arg(long, value_name = "DIR")]
    pub(super) log_dir: Option<String>,
    /// Write what the ranks did to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) summary: Option<String>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option(&'static str),
    Environment(&'static str),
    File(PathBuf),
    Default,
    /// The default that goes with another setting.
    With(&'static str),
}

impl Source {
    /// One word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Source::Option(_) => "option",
            Source::Environment(_) => "environment",
            Source::File(_) => "file",
            Source::Default | Source::With(_) => "default",
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
            Source::With(name) => write!(f, "default with {name}"),
        }
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{} is `{value}`: {must}", named(*key, place))]
    Value { key: Key, value: String, place: Source, must: String },
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
}

/// A setting as it is called where it stands: the names of options and variables are its own.
fn named(key: Key, place: &Source) -> String {
    match place {
        Source::Option(_) | Source::Environment(_) => place.to_string(),
        _ => format!("{place}: {}", key.name()),
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: Option<String>,
    pub(crate) source: Source,
}

/// All settings.
#[derive(Debug)]
pub(crate) struct Settings {
    found: Vec<Found>,
    file: Option<PathBuf>,
}

impl Settings {
    /// From options, the environment of this process, and the file.
    ///
    /// # Errors
    /// A value that is not possible, or a file that can't be read.
    pub(crate) fn resolve(chosen: &Chosen) -> Result<Settings, ConfigError> {
        let file = File::find()?;
        for name in unknown(std::env::vars_os()) {
            eprintln!("warning: {name} is no setting, and is ignored: `counterfoil config` has their names");
        }
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Settings::from(chosen, variable, file.as_ref())
    }

    /// The same, from what is given.
    pub(crate) fn from(
        chosen: &Chosen,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<&File>,
    ) -> Result<Settings, ConfigError> {
        let mut settings = Settings { found: Vec::new(), file: file.map(|file| file.path.clone()) };
        for key in Key::ALL {
            let option = chosen.get(key).map(|value| (value, Source::Option(key.name())));
            let environment = || {
                let value = variable(key.variable()).filter(|value| !value.is_empty())?;
                Some((value, Source::Environment(key.variable())))
            };
            let in_file = || Some((file?.get(key)?, Source::File(file?.path.clone())));
            let found = match option.or_else(environment).or_else(in_file) {
                Some((value, source)) => {
                    if let Some(must) = key.refuse(&value) {
                        return Err(ConfigError::Value { key, value, place: source, must });
                    }
                    Found { value: Some(value), source }
                }
                None => Found { value: None, source: Source::Default },
            };
            settings.found.push(found);
        }
        settings.fill_in();
        Ok(settings)
    }

    /// Defaults: some go with other settings.
    fn fill_in(&mut self) {
        let has_log = self.value(Key::LogDir).is_some();
        let keep = if has_log { ("all", Source::With("log-dir")) } else { ("acked", Source::Default) };
        self.default_to(Key::Keep, keep);
        // What is kept for ever is more than memory can hold.
        let tier = match (has_log, self.value(Key::Keep)) {
            (true, _) => ("node-local", Source::With("log-dir")),
            (false, Some("acked")) => ("volatile", Source::Default),
            (false, _) => ("node-local", Source::With("keep")),
        };
        self.default_to(Key::Tier, tier);
        self.default_to(Key::Protocol, ("sender-based", Source::Default));
        self.default_to(Key::Logging, ("on", Source::Default));
        self.default_to(Key::OnFull, ("block", Source::Default));
        self.default_to(Key::Budget, ("64MiB", Source::Default));
        self.default_to(Key::Standstill, ("10", Source::Default));
    }

    fn default_to(&mut self, key: Key, (value, source): (&str, Source)) {
        let found = &mut self.found[key as usize];
        if found.value.is_none() {
            *found = Found { value: Some(value.to_owned()), source };
        }
    }

    /// A setting and where it comes from.
    pub(crate) fn found(&self, key: Key) -> &Found {
        &self.found[key as usize]
    }

    /// A setting's value; `None` where nothing was said and there is no default.
    pub(crate) fn value(&self, key: Key) -> Option<&str> {
        self.found(key).value.as_deref()
    }

    /// The file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Names of variables that look like settings and are none.
fn unknown(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &str| NO_SETTINGS.contains(&name) || Key::ALL.iter().any(|key| key.variable() == name);
    let mut names: Vec<String> = names.filter(|name| name.starts_with("COUNTERFOIL_") && !is_known(name)).collect();
    names.sort();
    names
}

impl Chosen {
    fn get(&self, key: Key) -> Option<String> {
        let of = match key {
            Key::Mpi => &self.mpi,
            Key::MpiLibrary => &self.mpi_library,
            Key::Protocol => &self.protocol,
            Key::Logging => &self.logging,
            Key::Keep => &self.keep,
            Key::OnFull => &self.on_full,
            Key::Budget => &self.budget,
            Key::Standstill => &self.standstill,
            Key::Tier => &self.tier,
            Key::LogDir => &self.log_dir,
            Key::Summary => &self.summary,
        };
        of.clone()
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
    fn an_option_counts_before_the_environment_that_before_the_file_and_that_before_the_default() {
        let file = parse("keep = \"all\"\nbudget = 1000000\non-full = \"fail\"\n").unwrap();
        let chosen = Chosen { keep: Some("acked".to_owned()), ..Chosen::default() };
        let variable = |name: &str| match name {
            "COUNTERFOIL_KEEP" => Some("checkpoint".to_owned()),
            "COUNTERFOIL_BUDGET" => Some("2MiB".to_owned()),
            "COUNTERFOIL_TIER" => Some(String::new()),
            _ => None,
        };
        let settings = Settings::from(&chosen, variable, Some(&file)).unwrap();
        let is = |key, value: &str, kind: &str| {
            let found = settings.found(key);
            assert_eq!((found.value.as_deref(), found.source.kind()), (Some(value), kind), "{}", key.name());
        };
        is(Key::Keep, "acked", "option");
        is(Key::Budget, "2MiB", "environment");
        is(Key::OnFull, "fail", "file");
        is(Key::Tier, "volatile", "default");
        is(Key::Protocol, "sender-based", "default");
    }

    #[test]
    fn what_is_kept_goes_to_disk_unless_something_else_is_said() {
        let with = |log_dir: Option<&str>, keep: Option<&str>, tier: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let chosen = Chosen { log_dir: text(log_dir), keep: text(keep), tier: text(tier), ..Chosen::default() };
            let settings = Settings::from(&chosen, none, None).unwrap();
            (settings.value(Key::Keep).unwrap().to_owned(), settings.value(Key::Tier).unwrap().to_owned())
        };
        let are = |keep: &str, tier: &str| (keep.to_owned(), tier.to_owned());
        assert_eq!(with(None, None, None), are("acked", "volatile"));
        assert_eq!(with(Some("/l"), None, None), are("all", "node-local"));
        assert_eq!(with(None, Some("all"), None), are("all", "node-local"));
        assert_eq!(with(Some("/l"), Some("acked"), Some("volatile")), are("acked", "volatile"));
    }

    #[test]
    fn a_variable_that_is_misspelt_is_named() {
        let names = ["COUNTERFOIL_KEPE", "COUNTERFOIL_KEEP", "COUNTERFOIL_LOG", "PATH", "COUNTERFOIL_BUGDET"];
        let variables = names.map(|name| (name.into(), "all".into()));
        assert_eq!(unknown(variables.into_iter()), ["COUNTERFOIL_BUGDET", "COUNTERFOIL_KEPE"]);
    }

    #[test]
    fn paths_of_a_file_begin_at_its_folder() {
        let file = parse("log-dir = \"logs\"\nsummary = \"/tmp/s.json\"\nmpi = \"wheel\"\n").unwrap();
        let settings = Settings::from(&Chosen::default(), none, Some(&file)).unwrap();
        assert_eq!(settings.value(Key::LogDir), Some("/etc/x/logs"));
        assert_eq!(settings.value(Key::Summary), Some("/tmp/s.json"));
        assert_eq!(settings.value(Key::Mpi), Some("wheel"));
    }

    #[test]
    fn what_is_not_possible_is_named_with_the_place_where_it_stands() {
        let refused = |name: &str, value: &str| {
            let variable = |of: &str| (of == name).then(|| value.to_owned());
            Settings::from(&Chosen::default(), variable, None).unwrap_err().to_string()
        };
        let protocol = refused("COUNTERFOIL_PROTOCOL", "hydee");
        assert_eq!(protocol, "COUNTERFOIL_PROTOCOL is `hydee`: over MPI there is only `sender-based`");
        for (name, value, must) in [
            ("COUNTERFOIL_KEEP", "some", "acked, checkpoint, all"),
            ("COUNTERFOIL_BUDGET", "64 MB", "number of bytes"),
            ("COUNTERFOIL_BUDGET", "1", "at least 256KiB"),
            ("COUNTERFOIL_BUDGET", "255KiB", "at least 256KiB"),
            ("COUNTERFOIL_BUDGET", "257GiB", "at most 256 GiB"),
            ("COUNTERFOIL_BUDGET", "99999999999GiB", "number of bytes"),
            ("COUNTERFOIL_STANDSTILL", "0", "whole number of seconds"),
            ("COUNTERFOIL_STANDSTILL", "10s", "whole number of seconds"),
            ("COUNTERFOIL_TIER", "disk", "node-local"),
        ] {
            let text = refused(name, value);
            assert!(text.starts_with(name) && text.contains(value) && text.contains(must), "{text}");
        }
        let in_file =
            Settings::from(&Chosen::default(), none, Some(&parse("budget = 1").unwrap())).unwrap_err().to_string();
        assert!(in_file.starts_with("/etc/x/counterfoil.toml: budget is `1`: "), "{in_file}");
        for (text, what) in [("kepe = 1", "no setting `kepe`"), ("keep = [1]", "must be a string"), ("keep", "keep")] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("/etc/x/counterfoil.toml") && error.contains(what), "{error}");
        }
    }
}
