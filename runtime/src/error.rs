//! Communicator errors.

use std::time::Duration;

use counterfoil::{
    AckError, AppendError, CheckpointError, Envelope, LocalLogError, OpenError, RepeatError, ReplayError, TruncateError,
};
use counterfoil_protocols::api::{ChoiceError, HelloError, ProtocolError, RestoreError};

use crate::checkpoint::TableError;
use crate::communicator::CallError;
use crate::damage::{Damage, DamageLocation};
use crate::history::HistoryError;
use crate::saved::{SavedError, StateMemoryError};
use crate::trace::TraceError;
use crate::transport::TransportError;

/// Reason why a communicator call failed.
///
/// After a [fatal](Error::is_fatal) error this rank can't continue: the program returns it and ends, and the job ends
/// with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call was invalid.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The rank's history can't be recorded in a replay.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The recovery of another rank rolls this one back to an earlier checkpoint.
    ///
    /// The launcher has been told: this process must end, and its replacement continues from there.
    #[error("this rank rolls back to the checkpoint that began epoch {epoch}")]
    RollsBack {
        /// Epoch that the checkpoint began.
        epoch: u32,
    },
    /// A rank was lost, and the job is started again.
    ///
    /// Every later call fails, too: the program saves its state
    /// ([`Endpoint::save_and_exit`](crate::endpoint::Endpoint::save_and_exit)), and the process exits.
    #[error("a rank was lost: the job is started again")]
    JobFailed,
    /// A rank's saved state is gone.
    #[error("the saved state of rank {rank} for generation {generation} is gone: start the job again")]
    NoSavedState {
        /// The rank.
        rank: u32,
        /// Generation for which it was saved.
        generation: u32,
    },
    /// A saved state can't be read.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Memory outliving the process can't be used for the state.
    #[error(transparent)]
    StateMemory(#[from] StateMemoryError),
    /// The log refused to drop messages sent by a dead incarnation after its checkpoint.
    #[error("cannot drop the messages that a dead incarnation had sent to rank {peer} after its checkpoint: {source}")]
    Truncate {
        /// The messages' destination.
        peer: u32,
        /// Reason given by the log.
        source: TruncateError,
    },
    /// A checkpoint was requested while requests are pending: a replacement could not wait for them.
    #[error("checkpoint: {open} requests are pending; wait for them first")]
    RequestsOpen {
        /// Number of pending requests.
        open: usize,
    },
    /// Too many requests are open.
    #[error("{max} requests are open, which is the limit (requests_max): wait for some first")]
    RequestsMax {
        /// Limit on open requests.
        max: usize,
    },
    /// The log refused a message.
    #[error("cannot log a message to rank {to}: {source}")]
    Append {
        /// The message's destination.
        to: u32,
        /// Reason given by the log.
        source: AppendError,
    },
    /// The log stayed full for longer than `full_wait_max`.
    #[error("no room in the log for a message to rank {to} for {waited:?} (full_wait_max): {source}")]
    StillFull {
        /// The message's destination.
        to: u32,
        /// Time waited by the sender.
        waited: Duration,
        /// Error naming the ranks that hold the memory.
        source: AppendError,
    },
    /// A peer has sent too far ahead of the message awaited by this rank.
    #[error(
        "{bytes} bytes from rank {peer} wait to be received, and the limit is {max} (unexpected_bytes_limit): \
         the message that is waited for was sent after all of them"
    )]
    Unexpected {
        /// Sender.
        peer: u32,
        /// Payload bytes not taken by a receive.
        bytes: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// A re-execution sent other bytes than the previous incarnation.
    #[error("the re-execution of this rank diverged: {0}")]
    Diverged(#[from] RepeatError),
    /// A re-execution sent the same bytes as the previous incarnation, with another tag or context.
    #[error(
        "the re-execution of this rank diverged: message {ssn} to rank {to} has the tag {} in context {}, and had the \
         tag {} in context {}", now.tag, now.comm, before.tag, before.comm
    )]
    DivergedEnvelope {
        /// The message's destination.
        to: u32,
        /// The message's SSN.
        ssn: u64,
        /// Envelope in the log.
        before: Envelope,
        /// Envelope sent now.
        now: Envelope,
    },
    /// A re-execution waits for a receive cancelled by the previous incarnation.
    #[error("the re-execution of this rank diverged: it waits for receive {request}, which was cancelled before")]
    DivergedCancel {
        /// Request number.
        request: u64,
    },
    /// A rank can't be replayed alone from such a job's logs.
    #[error("a rank can't be replayed alone from {what}")]
    NoReplay {
        /// Obstacle to the replay.
        what: String,
    },
    /// An earlier call failed for good, but the program went on.
    #[error("an earlier call failed: {earlier}")]
    Failed {
        /// The earlier call's error.
        earlier: String,
    },
    /// The log no longer has messages needed by a replacement.
    #[error("rank {peer} cannot be replayed: {source}")]
    Replay {
        /// The replacement's rank.
        peer: u32,
        /// Reason given by the log.
        source: ReplayError,
    },
    /// A peer acknowledged a message missing in the log.
    #[error("rank {peer} acknowledged something that was not sent: {source}")]
    Acknowledge {
        /// Peer rank.
        peer: u32,
        /// Reason given by the log.
        source: AckError,
    },
    /// A message differs from what was sent: memory failed, or another program overwrote it.
    ///
    /// It was not delivered. There is no other copy to continue from: start the job again.
    #[error(
        "message {ssn} from rank {from} to rank {to} is damaged {location}: {source}; start the job again, and look for \
         failing memory"
    )]
    Damaged {
        /// Sender.
        from: u32,
        /// Destination.
        to: u32,
        /// SSN: from its position in the log or, on arrival, from its header.
        ssn: u64,
        /// Location where it was found.
        location: DamageLocation,
        /// Kind of damage.
        source: Damage,
    },
    /// The log cannot be created or recovered.
    #[error("cannot open the log: {0}")]
    Open(#[from] OpenError),
    /// A non-deterministic outcome cannot be recorded.
    #[error("cannot record a non-deterministic outcome: {0}")]
    Local(#[from] LocalLogError),
    /// A recorded outcome contradicts the current execution.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The protocol refused an event.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The protocol requested an effect unsupported by this runtime.
    #[error("the protocol requested an effect that this runtime does not support: {effect}")]
    Unsupported {
        /// The effect.
        effect: String,
    },
    /// A native collective has to be planned again: a participant was lost, or its result has come from elsewhere.
    ///
    /// The functions in [`collectives`](crate::collectives) do that; a program never gets this.
    #[error("the collective has to be planned again")]
    CallAgain,
    /// The rule asks for a local log entry that isn't kept or can't be decoded.
    #[error("the entry {entry} of the local log is missing or can't be decoded")]
    NoEntry {
        /// Entry key.
        entry: String,
    },
    /// A collective's result in the local log can't be used.
    #[error("the result of collective {number} in the local log is missing or can't be decoded")]
    NoResult {
        /// Number of the call on its communicator.
        number: u64,
    },
    /// The protocol's tables in a checkpoint cannot be restored.
    #[error("cannot restore the protocol from the checkpoint: {0}")]
    Restore(#[from] RestoreError),
    /// A hello cannot be encoded or decoded.
    #[error("the hello of rank {peer}: {source}")]
    Hello {
        /// Peer rank.
        peer: u32,
        /// Reason.
        source: HelloError,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The runtime's tables in a checkpoint cannot be decoded.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The runtime's tables or a program's value cannot be encoded for a checkpoint, or decoded.
    #[error("cannot encode or decode a checkpoint: {0}")]
    Encode(#[from] postcard::Error),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The connection to a peer or to the launcher failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl Error {
    /// Returns `true` if a re-execution diverged from the previous incarnation.
    pub fn is_divergence(&self) -> bool {
        matches!(
            self,
            Error::Diverged(_) | Error::DivergedEnvelope { .. } | Error::DivergedCancel { .. } | Error::Choice(_)
        )
    }

    /// Returns `false` if the call has left the state unchanged ([`Error::Call`], [`Error::RequestsOpen`],
    /// [`Error::RequestsMax`]), or is to be repeated ([`Error::CallAgain`]).
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Error::Call(_) | Error::RequestsOpen { .. } | Error::RequestsMax { .. } | Error::CallAgain)
    }
}
