//! Settings for `counterfoil run`: sources, their precedence, and the defaults.

mod file;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use counterfoil::{Keep, Tier};
use counterfoil_settings::{Key, RunSettings, SettingError};

use file::{File, FileError};

/// Variables with our prefix that aren't settings: read by this command or the project's own tests.
const OTHER_VARIABLES: [&str; 5] =
    ["COUNTERFOIL_CONFIG", "COUNTERFOIL_LOG", "COUNTERFOIL_MPI_BUILD", "COUNTERFOIL_MPIRUN", "COUNTERFOIL_SEED"];

/// The settings given as command-line options, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingOptions(BTreeMap<&'static str, String>);

impl SettingOptions {
    /// Returns only these options, for a command without others; `None`: not given.
    pub(crate) fn of<const N: usize>(given: [(&'static str, Option<&str>); N]) -> SettingOptions {
        SettingOptions(given.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))).collect())
    }
}

impl Args for SettingOptions {
    fn augment_args(command: Command) -> Command {
        command.args(
            Key::ALL.iter().map(|key| Arg::new(key.name).long(key.name).value_name(key.value_name).help(key.help)),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingOptions::augment_args(command)
    }
}

impl FromArgMatches for SettingOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingOptions, clap::Error> {
        let given = |key: &Key| Some((key.name, matches.get_one::<String>(key.name)?.clone()));
        Ok(SettingOptions(Key::ALL.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(SettingOptions::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option(&'static str),
    Environment(&'static str),
    File(PathBuf),
    Default,
    /// Default determined by another setting.
    DefaultWith(&'static str),
}

impl Source {
    /// Names a setting in an error message.
    ///
    /// Options and variables have their own name; a file's entry is `file: name`.
    fn place_of(&self, key: &Key) -> String {
        match self {
            Source::Option(_) | Source::Environment(_) => self.to_string(),
            _ => format!("{self}: {}", key.name),
        }
    }

    /// Name for the kind of origin, as used in JSON.
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
pub(crate) enum SettingsError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The resolved settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) run: RunSettings,
    /// Origins of settings without their plain default, by name.
    sources: BTreeMap<&'static str, Source>,
    file: Option<PathBuf>,
}

impl Settings {
    /// Resolves the settings from options, this process's environment, and the file.
    ///
    /// # Errors
    /// A value is invalid, or the file can't be read.
    pub(crate) fn resolve(options: &SettingOptions) -> Result<Settings, SettingsError> {
        let file = File::find()?;
        for name in unknown_variables(std::env::vars_os()) {
            eprintln!("warning: unknown variable {name} is ignored; `counterfoil config` lists the known ones");
        }
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Ok(Settings::from(options, variable, file.as_ref())?)
    }

    /// Resolves the settings from the given sources.
    pub(crate) fn from(
        options: &SettingOptions,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<&File>,
    ) -> Result<Settings, SettingError> {
        let (mut run, mut sources) = (RunSettings::default(), BTreeMap::new());
        for key in Key::ALL {
            let option = options.0.get(key.name).map(|value| (value.clone(), Source::Option(key.name)));
            let environment = || {
                let value = variable(key.variable).filter(|value| !value.is_empty())?;
                Some((value, Source::Environment(key.variable)))
            };
            let in_file = || Some((file?.get(key)?, Source::File(file?.path.clone())));
            if let Some((value, source)) = option.or_else(environment).or_else(in_file) {
                let place = source.place_of(key);
                key.set(&mut run, &value).map_err(|violation| SettingError { place, value, violation })?;
                sources.insert(key.name, source);
            }
        }
        let mut settings = Settings { run, sources, file: file.map(|file| file.path.clone()) };
        settings.apply_defaults();
        Ok(settings)
    }

    /// Sets the defaults determined by other settings.
    fn apply_defaults(&mut self) {
        let has_log = self.run.log_dir.is_some();
        if has_log && !self.sources.contains_key("keep") {
            self.run.keep = Keep::All;
            self.sources.insert("keep", Source::DefaultWith("log-dir"));
        }
        // Messages kept forever exceed any memory.
        if (has_log || self.run.keep != Keep::Acked) && !self.sources.contains_key("tier") {
            self.run.tier = Tier::NodeLocal;
            self.sources.insert("tier", Source::DefaultWith(if has_log { "log-dir" } else { "keep" }));
        }
    }

    /// Returns a setting's origin.
    pub(crate) fn source(&self, name: &str) -> &Source {
        self.sources.get(name).unwrap_or(&Source::Default)
    }

    /// Path of the settings file, if one was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Returns the names of unknown variables with our prefix.
fn unknown_variables(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &str| OTHER_VARIABLES.contains(&name) || RunSettings::is_variable(name);
    let mut names: Vec<String> = names.filter(|name| name.starts_with("COUNTERFOIL_") && !is_known(name)).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use counterfoil::OnFull;

    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn parse(text: &str) -> Result<File, FileError> {
        File::parse(Path::new("/etc/x/counterfoil.toml"), text)
    }

    fn options<const N: usize>(options: [(&'static str, &str); N]) -> SettingOptions {
        SettingOptions(options.map(|(name, value)| (name, value.to_owned())).into())
    }

    #[test]
    fn options_override_the_environment_which_overrides_the_file_which_overrides_defaults() {
        let file = parse("keep = \"all\"\nbudget = 1000000\non-full = \"fail\"\n").unwrap();
        let variable = |name: &str| match name {
            "COUNTERFOIL_KEEP" => Some("checkpoint".to_owned()),
            "COUNTERFOIL_BUDGET" => Some("2MiB".to_owned()),
            "COUNTERFOIL_TIER" => Some(String::new()),
            _ => None,
        };
        let settings = Settings::from(&options([("keep", "acked")]), variable, Some(&file)).unwrap();
        let RunSettings { keep, budget, on_full, tier, .. } = settings.run;
        assert_eq!((keep, budget, on_full, tier), (Keep::Acked, 2 << 20, OnFull::Fail, Tier::Volatile));
        let kinds = ["keep", "budget", "on-full", "tier", "logging"].map(|name| settings.source(name).kind());
        assert_eq!(kinds, ["option", "environment", "file", "default", "default"]);
    }

    #[test]
    fn kept_messages_go_to_disk_by_default() {
        let with = |given: &SettingOptions| {
            let run = Settings::from(given, none, None).unwrap().run;
            (run.keep, run.tier)
        };
        assert_eq!(with(&options([])), (Keep::Acked, Tier::Volatile));
        assert_eq!(with(&options([("log-dir", "/l")])), (Keep::All, Tier::NodeLocal));
        assert_eq!(with(&options([("keep", "all")])), (Keep::All, Tier::NodeLocal));
        let given = options([("log-dir", "/l"), ("keep", "acked"), ("tier", "volatile")]);
        assert_eq!(with(&given), (Keep::Acked, Tier::Volatile));
    }

    #[test]
    fn misspelt_variables_are_reported() {
        let names = ["KEPE", "KEEP", "LOG", "SPILL_DIR", "MPI_LIBRARY", "BUGDET"];
        let variables = names.map(|name| (format!("COUNTERFOIL_{name}").into(), "all".into()));
        let variables = variables.into_iter().chain([("PATH".into(), "/".into())]);
        assert_eq!(unknown_variables(variables), ["COUNTERFOIL_BUGDET", "COUNTERFOIL_KEPE"]);
    }

    #[test]
    fn paths_in_the_file_are_relative_to_its_folder() {
        let file = parse("log-dir = \"logs\"\nsummary = \"/tmp/s.json\"\nmpi = \"wheel\"\n").unwrap();
        let run = Settings::from(&SettingOptions::default(), none, Some(&file)).unwrap().run;
        assert_eq!(run.log_dir.as_deref(), Some(Path::new("/etc/x/logs")));
        assert_eq!(run.summary.as_deref(), Some(Path::new("/tmp/s.json")));
        assert_eq!(run.mpi.as_deref(), Some("wheel"));
    }

    #[test]
    fn invalid_values_are_reported_with_their_origin() {
        let refused = |given, variable: &dyn Fn(&str) -> Option<String>, file: &str| {
            Settings::from(&given, variable, Some(&parse(file).unwrap())).unwrap_err().to_string()
        };
        let option = refused(options([("keep", "")]), &none, "");
        assert_eq!(option, "--keep is ``: must be one of acked, checkpoint, all");
        let variable = |name: &str| (name == "COUNTERFOIL_PREFAULT").then(|| "65MiB".to_owned());
        let in_environment = refused(options([]), &variable, "");
        assert_eq!(in_environment, "COUNTERFOIL_PREFAULT is `65MiB`: must be at most the budget, 64MiB");
        let in_file = refused(options([]), &none, "budget = 1");
        assert_eq!(in_file, "/etc/x/counterfoil.toml: budget is `1`: a log needs at least 64KiB");
        for (text, what) in [
            ("kepe = 1", "unknown setting `kepe`"),
            ("protocol = \"sender-based\"", "unknown setting `protocol`; the settings are mpi, "),
            ("keep = [1]", "must be a string"),
            ("keep", "keep"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("/etc/x/counterfoil.toml") && error.contains(what), "{error}");
        }
    }
}
