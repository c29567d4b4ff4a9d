//! The state machine for logging an MPI program's messages, without MPI.
//!
//! A [`Logger`] holds a rank's knowledge of its program's traffic: the log, stream counts, pending receives, collective
//! operations, and the other ranks' acknowledgements. Like a protocol in `quinn-proto`, it does no I/O: a driver
//! reports events (`handle_*` methods) and carries the messages to send ([`Logger::poll_control`]). Two drivers exist:
//! the library under unmodified programs (`mpi/preload`) and `LoggedCommunicator` (`mpi/src/logged`); they share
//! [`Driver`]. Nothing is added to the program's messages; see `docs/book/src/explanation/counting.md` for why counting
//! suffices.
//!
//! ```
//! use counterfoil::{Keep, Log, Options, Rank};
//! use counterfoil_mpi_logger::{Logger, LoggerOptions, Members, Stream, WORLD};
//! use counterfoil_profile::RecordTag;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let logger = |rank| -> Result<Logger, Box<dyn std::error::Error>> {
//!     let mut options = Options::new(Rank(rank), 2);
//!     options.keep = Keep::Acked;
//!     let mut logger = Logger::new(Log::create(options)?, &LoggerOptions::default());
//!     logger.comms.add(WORLD, Members { world: [0, 1].into(), rank: rank as i32, is_inter: false })?;
//!     Ok(logger)
//! };
//! let (mut sender, mut receiver) = (logger(0)?, logger(1)?);
//!
//! // Rank 0 logs a message to rank 1.
//! let stream = Stream::new(1, WORLD, 5);
//! let number = sender.sent().next(stream);
//! let log = sender.log_mut().ok_or("logging is on")?;
//! let mut claim = log.try_claim(Rank(1), RecordTag::LEN, 3)?;
//! claim.prefix_mut().copy_from_slice(&stream.record_tag(number).encode());
//! claim.payload_mut().copy_from_slice(b"abc");
//! claim.commit();
//!
//! // Rank 1 receives it, and acknowledges it before a batch is due.
//! let id = receiver.received_id(Stream { peer: 0, ..stream });
//! receiver.handle_received(id, 3);
//! receiver.acknowledge(0)?;
//! let message = receiver.poll_control().ok_or("an acknowledgement")?;
//! sender.handle_control(1, message.kind, &message.bytes, std::time::Instant::now())?;
//! sender.release_all(|_, _| ())?;
//! assert_eq!(sender.unacknowledged(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `logger` | [`Logger`], joining the parts |
//! | `stream`, `matching`, `acks` | stream counts, numbers of received messages, acknowledgements |
//! | `sender` | the log and the releases in it |
//! | `comms` | communicators: numbers, members, collective operation counts |
//! | `determinant` | outcomes left to MPI by the program |
//! | `backpressure`, `deadlock` | space in a full log: queries, waits, and when a wait is given up |
//! | `control` | messages between loggers |
//! | `driver` | [`Driver`]: steps common to both drivers |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acks;
mod backpressure;
mod comms;
mod control;
mod deadlock;
mod determinant;
mod driver;
mod logger;
mod matching;
mod sender;
mod stream;

pub use acks::{AckBatcher, BatchLimits, ReleaseError, Releaser, unacknowledged};
pub use backpressure::ProgressQueries;
pub use comms::{CommId, CommState, CommTable, Members, NumberTaken, SELF, WORLD};
pub use control::{ControlKind, ControlMessage, ReceivedControl};
pub use deadlock::{DEADLOCK_AFTER, DeadlockDetector, DeadlockStep, ProgressReply, ProgressRequest};
pub use determinant::{DETERMINANT_ENTRY, Determinant};
pub use driver::{ControlChannel, Driver, DriverError, PROGRESS_EVERY, SpaceAttempt, progress_weight};
pub use logger::{Logger, LoggerOptions, SpaceError, SpacePoll, SpaceRefusal};
pub use matching::{Arrival, Matching, PostedReceive};
pub use stream::{Stream, StreamCounts, StreamId};
