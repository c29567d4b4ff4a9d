//! Runs parallel programs with ranks as processes on one machine, and recovers killed ranks.
//!
//! A program calls [`Communicator`]. Below it, [`endpoint`] joins the log (crate `counterfoil`), a protocol (crate
//! `counterfoil-protocols`), [`matching`] and a [`transport`]; [`local`] is the transport between processes on one
//! machine, with the launcher that starts, kills and replaces them. [`trace`] and [`oracle`] prove, independently of
//! the log, that no message was lost, duplicated or reordered. [`replay`] runs one rank alone, from a job's logs;
//! [`races`] finds, from all ranks' replays, where a receive had a choice. With a [`prologue`], a program that begins
//! at its first line continues from a checkpoint.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod collectives;
pub mod communicator;
mod damage;
pub mod endpoint;
mod error;
pub mod history;
mod interval;
pub mod local;
pub mod matching;
pub mod oracle;
pub mod prologue;
pub mod races;
pub mod replay;
pub mod saved;
pub mod settings;
mod tally;
pub mod trace;
pub mod transport;

// Setting types.
pub use counterfoil::{Keep, OnFull, Tier};

pub use communicator::{ANY_SOURCE, ANY_TAG, CallError, Communicator, InternalTag, Reduction, Request, Status};
pub use counterfoil_protocols::api::Rule;
pub use damage::{Damage, DamageLocation};
pub use error::Error;
pub use settings::RankSettings;
pub use tally::Tally;
