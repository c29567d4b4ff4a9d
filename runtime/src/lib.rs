//! Runs parallel programs whose ranks are processes of one machine, and keeps them running when one is killed.
//!
//! A program is written against [`Communicator`]. Under it, [`endpoint`] joins the log (crate `counterfoil`), a protocol
//! (crate `counterfoil-protocols`), [`matching`] and a [`transport`]; [`local`] is the transport between processes of one
//! machine, with the launcher that starts, kills and replaces them. [`trace`] and [`oracle`] prove, without asking the
//! log, that no message was lost, duplicated or reordered. [`sim`] runs the same protocols with virtual ranks, network and time: one seed
//! replays a run, faults strike at any event, and oracles of its own judge what comes out.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod collectives;
pub mod communicator;
mod damage;
pub mod endpoint;
mod error;
pub mod local;
pub mod matching;
pub mod measure;
pub mod oracle;
mod random;
pub mod settings;
pub mod sim;
mod tally;
pub mod trace;
pub mod transport;

pub use communicator::{ANY_SOURCE, ANY_TAG, CallError, Communicator, InternalTag, Reduction, Request, Status};
pub use damage::{Damage, Place};
pub use error::Error;
pub use settings::{LogKeep, LogOnFull, LogTier, RankSettings, Rule};
pub use tally::Tally;
