//! `counterfoil config`: the settings of `counterfoil run` and the origin of each.

mod file;
mod key;
mod settings;

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::run::mpi::Mpi;
use crate::table::Table;
use crate::{Failure, print};
pub(crate) use key::{Key, bytes};
pub(crate) use settings::{SettingOptions, Settings};

/// Show the settings of `counterfoil run` and the origin of each.
///
/// Options override environment variables, those override the file, and the file overrides the defaults. The file is
/// counterfoil.toml in the working directory, or the one named by COUNTERFOIL_CONFIG. Its keys are the options' names, as in
/// keep = "all".
#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    options: SettingOptions,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
    let settings = Settings::resolve(&arguments.options).map_err(Failure::refused)?;
    let text = if arguments.json { as_json(&settings).to_string() } else { as_text(&settings) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(settings: &Settings) -> Value {
    let mut values = Map::new();
    for key in Key::ALL {
        let setting = settings.setting(key);
        let value =
            json!({ "value": setting.value, "source": setting.source.kind(), "from": setting.source.to_string() });
        values.insert(key.name().to_owned(), value);
    }
    json!({ "settings": values, "file": settings.file() })
}

fn as_text(settings: &Settings) -> String {
    let in_path = Mpi::in_path();
    let mut table = Table::new(&["<setting", "<value", "<from", "<environment", "<meaning"]);
    for key in Key::ALL {
        let setting = settings.setting(key);
        table.row([
            key.name().to_owned(),
            setting.value.clone().unwrap_or_else(|| "-".to_owned()),
            match in_path.as_ref().filter(|_| key == Key::Mpi && setting.value.is_none()) {
                Some(mpirun) => format!("{} ({})", mpirun.display(), setting.source),
                None => setting.source.to_string(),
            },
            key.variable().to_owned(),
            key.description().to_owned(),
        ]);
    }
    let file = settings.file().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    format!("{table}\n  file: {file}")
}
