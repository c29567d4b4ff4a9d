//! Settings of `counterfoil run`: their names, their limits, and their way through the ranks' environment.
//!
//! The command resolves [`RunSettings`] from options, environment and a file, and passes them to the ranks in variables
//! ([`RunSettings::to_env`]), where the logging library reads them ([`RunSettings::from_env`]). Both create and take
//! over a rank's log with the same [`log_options`](RunSettings::log_options).
//!
//! A new setting is a field in [`RunSettings`] and a row in [`Key::ALL`]; option, variable, file entry and
//! `counterfoil config` follow from the row.
//!
//! ```
//! use counterfoil::Keep;
//! use counterfoil_settings::RunSettings;
//!
//! let variable = |name: &str| (name == "COUNTERFOIL_KEEP").then(|| "all".into());
//! let settings = RunSettings::from_env(variable)?;
//! assert_eq!((settings.keep, settings.budget), (Keep::All, 64 << 20));
//! # Ok::<(), counterfoil_settings::SettingError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod host;
#[cfg(feature = "recover")]
pub mod recover;
mod run;
mod units;

pub use host::host_name;
pub use run::{Key, RunSettings, SUMMARY_DIR, Scope, SettingError, Violation};
pub use units::{ByteSize, Seconds, SecondsError, SizeError};
