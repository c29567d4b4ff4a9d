//! `counterfoil config`: the settings of a run over MPI, and where each comes from.

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
pub(crate) use settings::{Chosen, Settings};

/// Show the settings of `counterfoil run`, and where each comes from.
///
/// An option counts before the environment, that before the file, and that before the default. The file is counterfoil.toml in
/// the working directory, or the one that COUNTERFOIL_CONFIG names: lines such as keep = "all", with the options' names.
#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
    let settings = Settings::resolve(&arguments.chosen).map_err(Failure::refused)?;
    let text = if arguments.json { as_json(&settings).to_string() } else { as_text(&settings) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(settings: &Settings) -> Value {
    let mut values = Map::new();
    for key in Key::ALL {
        let found = settings.found(key);
        let value = json!({ "value": found.value, "source": found.source.kind(), "from": found.source.to_string() });
        values.insert(key.name().to_owned(), value);
    }
    json!({ "settings": values, "file": settings.file() })
}

fn as_text(settings: &Settings) -> String {
    let in_path = Mpi::in_path();
    let mut table = Table::new(&["<setting", "<value", "<from", "<environment", "<what it is"]);
    for key in Key::ALL {
        let found = settings.found(key);
        table.row([
            key.name().to_owned(),
            found.value.clone().unwrap_or_else(|| "-".to_owned()),
            match in_path.as_ref().filter(|_| key == Key::Mpi && found.value.is_none()) {
                Some(mpirun) => format!("{} ({})", mpirun.display(), found.source),
                None => found.source.to_string(),
            },
            key.variable().to_owned(),
            key.what().to_owned(),
        ]);
    }
    let file = settings.file().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    format!("{table}\n  file: {file}")
}
