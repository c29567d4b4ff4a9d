//! The settings file.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil_settings::{Key, Scope};
use toml::{Table, Value};

/// Default file, in the working directory.
const NAME: &str = "counterfoil.toml";
/// Environment variable naming another file.
const VARIABLE: &str = "COUNTERFOIL_CONFIG";

/// Error of the settings file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
}

/// A parsed settings file.
///
/// Every key is a known setting, every value a string, an integer or a boolean.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    table: Table,
}

impl File {
    /// Reads the file named by the environment, else the default one if it exists.
    pub(super) fn find() -> Result<Option<File>, FileError> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = named.clone().unwrap_or_else(|| NAME.into());
        match std::fs::read_to_string(&path) {
            Ok(text) => File::parse(&path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
            Err(source) => Err(FileError::Unreadable { path, source }),
        }
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<File, FileError> {
        let malformed = |reason: String| FileError::Malformed { path: path.to_owned(), reason };
        let table: Table = text.parse().map_err(|error: toml::de::Error| malformed(error.to_string()))?;
        for (name, value) in &table {
            if Key::ALL.iter().all(|key| key.name != name) {
                let known: Vec<&str> = Key::ALL.iter().map(|key| key.name).collect();
                return Err(malformed(format!("unknown setting `{name}`; the settings are {}", known.join(", "))));
            }
            if as_text(value).is_none() {
                return Err(malformed(format!("`{name}` must be a string or a number")));
            }
        }
        Ok(File { path: path.to_owned(), table })
    }

    /// Returns a setting's value.
    ///
    /// Relative paths in the file are relative to its folder.
    pub(super) fn get(&self, key: &Key) -> Option<String> {
        let text = as_text(self.table.get(key.name)?)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder {
            Some(folder) if key.scope == Scope::CommandPath => Some(folder.join(text).to_string_lossy().into_owned()),
            _ => Some(text),
        }
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(is_on) => Some(if *is_on { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}
