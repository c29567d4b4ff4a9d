//! For authors of MPI applications: communicators with logged messages, under rsmpi's names.
//!
//! A rank's messages are in its log ([`counterfoil::Log`]) before the sending call returns, received messages are
//! acknowledged to the senders in batches, and contributions to collective operations are kept: see
//! `docs/book/src/explanation/counting.md` and `docs/book/src/explanation/collectives.md`. Nothing is added to
//! messages. The methods have rsmpi's names; unlike there, each returns the error from MPI or the log, and elements
//! have any plain-bytes type ([`zerocopy`]).
//!
//! ```no_run
//! use counterfoil::Keep;
//! use counterfoil_mpi::logged::{CommunicatorCollectives, Destination, LoggedError, LoggedUniverse, Source};
//! use counterfoil_mpi::{SystemOperation, Threads, Universe};
//!
//! fn main() -> Result<(), LoggedError> {
//!     let universe = LoggedUniverse::init(Universe::init(Threads::Single)?, |options| options.keep = Keep::Acked)?;
//!     let world = universe.world();
//!     if world.rank() == 0 {
//!         world.process_at_rank(1)?.send(&[1.5_f64, 2.5])?;
//!     } else if world.rank() == 1 {
//!         let (numbers, envelope) = world.any_process().receive_vec::<f64>()?;
//!         assert_eq!((numbers, envelope.source), (vec![1.5, 2.5], 0));
//!     }
//!     let mut ranks = [0_u32];
//!     world.all_reduce_into(&[1_u32], &mut ranks, SystemOperation::Sum)?;
//!     assert_eq!(ranks, [world.size()]);
//!     universe.finish()?;
//!     Ok(())
//! }
//! ```
//!
//! Nonblocking operations are [`Request`]s. They borrow memory up to the end of a [`scope`].
//!
//! To have killed processes replaced, a program gets its communicators from
//! [`run_logged`](crate::recovery::run_logged): there, messages are the runtime's (`recovering`); see
//! `docs/book/src/explanation/recovery.md` for the differences.
//!
//! The module is frozen at its present calls: see `docs/book/src/reference/limits.md` for its purpose.
//!
//! | file | contents |
//! |---|---|
//! | `universe.rs` | start and end |
//! | `communicator.rs`, `group.rs`, `cartesian.rs` | communicators and their parts |
//! | `carrier.rs`, `{mpi,endpoint}_carrier.rs` | carriers of their messages: MPI, or a rank's endpoint |
//! | `destination.rs`, `source.rs`, `exchange.rs`, `message.rs`, `elements.rs` | messages |
//! | `collective.rs`, `root.rs`, `partition.rs`, `user.rs` | collective operations |
//! | `request.rs`, `collection.rs`, `pending.rs`, `completion.rs` | requests and their completion |
//! | `engine.rs` | the logger's driver ([`counterfoil_mpi_logger`]) |
//! | `hook.rs` | control messages while the program waits in an MPI call |

mod carrier;
mod cartesian;
mod collection;
mod collective;
mod communicator;
mod completion;
mod destination;
mod elements;
mod endpoint_carrier;
mod engine;
mod error;
mod exchange;
mod group;
mod hook;
mod message;
mod mpi_carrier;
mod partition;
mod pending;
mod request;
mod root;
mod source;
mod universe;
mod user;

pub use cartesian::CartesianCommunicator;
pub use collection::{RequestCollection, multiple_scope, wait_any};
pub use collective::CommunicatorCollectives;
pub use communicator::{AnyProcess, LoggedCommunicator, Process};
pub use destination::Destination;
pub use engine::Account;
pub use error::LoggedError;
pub use exchange::{
    send_receive, send_receive_into, send_receive_into_with_tags, send_receive_replace_into,
    send_receive_replace_into_with_tags, send_receive_with_tags,
};
pub use group::{Group, GroupRelation};
pub use message::LoggedMessage;
pub use partition::{Partition, PartitionMut};
pub use pending::{LocalScope, scope};
pub use request::{CollectiveRequest, Mapped, ReceiveIntoRequest, ReceiveRequest, Request, SendRequest, WaitGuard};
pub use root::Root;
pub use source::Source;
pub use universe::LoggedUniverse;
