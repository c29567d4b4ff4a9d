//! `counterfoil config`: the settings for `counterfoil run` and their origins.

use std::process::ExitCode;

use clap::Args;
use counterfoil_settings::Key;
use serde_json::{Map, Value, json};

use crate::run::mpi::Mpi;
use crate::settings::{SettingOptions, Settings};
use crate::table::Table;
use crate::{Failure, print};

/// Show the settings for `counterfoil run` and their origins.
///
/// Options override environment variables, those override the file, and the file overrides the defaults. The file is
/// counterfoil.toml in the working directory, or the one named by COUNTERFOIL_CONFIG. Its keys are the options' names,
/// as in keep = "all".
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
        let source = settings.source(key.name);
        let value = json!({ "value": key.get(&settings.run), "source": source.kind(), "from": source.to_string() });
        values.insert(key.name.to_owned(), value);
    }
    json!({ "settings": values, "file": settings.file() })
}

fn as_text(settings: &Settings) -> String {
    let in_path = Mpi::in_path();
    let mut table = Table::new(&["<setting", "<value", "<from", "<environment", "<meaning"]);
    for key in Key::ALL {
        let (value, source) = (key.get(&settings.run), settings.source(key.name));
        table.row([
            key.name.to_owned(),
            value.clone().unwrap_or_else(|| "-".to_owned()),
            match in_path.as_ref().filter(|_| key.name == "mpi" && value.is_none()) {
                Some(mpirun) => format!("{} ({source})", mpirun.display()),
                None => source.to_string(),
            },
            key.variable.to_owned(),
            key.meaning.to_owned(),
        ]);
    }
    let file = settings.file().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    format!("{table}\n  file: {file}")
}
