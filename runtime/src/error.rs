//! What can go wrong in a call of the communicator.

use std::time::Duration;

use counterfoil::{
    AckError, AppendError, CheckpointError, Envelope, LocalLogError, OpenError, RepeatError, ReplayError, TruncateError,
};
use counterfoil_protocols::frame::{ChoiceError, HelloError, ProtocolError, RestoreError};

use crate::checkpoint::TableError;
use crate::communicator::CallError;
use crate::damage::{Damage, Place};
use crate::trace::TraceError;
use crate::transport::TransportError;

/// Why a call failed.
///
/// Except for [`Error::Call`], [`Error::RequestsOpen`] and [`Error::RequestsMax`], which leave everything as it was, an
/// error means that this rank can't go on: the program hands it up and ends, and the job with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call cannot be carried out as it was made.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another rank's recovery takes this one back to an earlier checkpoint. The launcher knows: this process is to end, and its
    /// replacement goes on from there.
    #[error("this rank goes back to the checkpoint that began epoch {epoch}")]
    GoesBack {
        /// The epoch.
        epoch: u32,
    },
    /// What a dead incarnation had sent after its checkpoint can't be dropped.
    #[error("what a dead incarnation had sent to rank {peer} after its checkpoint can't be dropped: {source}")]
    Truncate {
        /// The destination.
        peer: u32,
        /// Why.
        source: TruncateError,
    },
    /// A checkpoint while requests are pending: a replacement could not wait for them. Wait for them first.
    #[error("checkpoint: {open} requests are pending; wait for them first")]
    RequestsOpen {
        /// How many.
        open: usize,
    },
    /// Too many requests that were not waited for.
    #[error("{max} requests are open, which is the limit (requests_max): wait for some first")]
    RequestsMax {
        /// The limit.
        max: usize,
    },
    /// The log refused a message.
    #[error("cannot log a message to rank {to}: {source}")]
    Append {
        /// The destination.
        to: u32,
        /// Why.
        source: AppendError,
    },
    /// The log stayed full for too long.
    #[error("no room in the log for a message to rank {to} for {waited:?} (full_wait_max): {source}")]
    StillFull {
        /// The destination.
        to: u32,
        /// How long the sender waited.
        waited: Duration,
        /// Who holds the memory.
        source: AppendError,
    },
    /// A peer sends faster than this rank receives, and the receive that it waits for is for a later message.
    #[error(
        "{bytes} bytes from rank {peer} wait to be received, and the limit is {max} (unexpected_bytes_limit): \
         the message that is waited for was sent after all of them"
    )]
    Unexpected {
        /// Who sends.
        peer: u32,
        /// How many bytes wait.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A re-execution did something else than the incarnation before it.
    #[error("the re-execution of this rank diverged: {0}")]
    Diverged(#[from] RepeatError),
    /// A re-execution sent the same bytes as the incarnation before it, but as another message.
    #[error(
        "the re-execution of this rank diverged: message {ssn} to rank {to} has the tag {} in context {}, and had the \
         tag {} in context {}", now.tag, now.comm, before.tag, before.comm
    )]
    DivergedEnvelope {
        /// The destination.
        to: u32,
        /// The message.
        ssn: u64,
        /// As it was logged.
        before: Envelope,
        /// As it is sent now.
        now: Envelope,
    },
    /// Messages that a replacement needs are not kept any more.
    #[error("rank {peer} cannot be replayed: {source}")]
    Replay {
        /// The replacement.
        peer: u32,
        /// Why.
        source: ReplayError,
    },
    /// A peer acknowledged what the log doesn't have.
    #[error("rank {peer} acknowledged something that was not sent: {source}")]
    Acknowledge {
        /// Who.
        peer: u32,
        /// What.
        source: AckError,
    },
    /// A message is not what was sent: memory failed, or another program wrote there. Nobody has received it. There is
    /// no other copy to go on from: start the job again.
    #[error(
        "message {ssn} from rank {from} to rank {to} is damaged {place}: {source}; start the job again, and look for \
         failing memory"
    )]
    Damaged {
        /// Who sent it.
        from: u32,
        /// Who is to receive it.
        to: u32,
        /// Its number: by its place in the log or, as it arrived, by its header.
        ssn: u64,
        /// Where it was found to be damaged.
        place: Place,
        /// What is wrong with it.
        source: Damage,
    },
    /// The log cannot be set up or recovered.
    #[error("cannot open the log: {0}")]
    Open(#[from] OpenError),
    /// A non-deterministic outcome cannot be recorded.
    #[error("cannot record a non-deterministic outcome: {0}")]
    Local(#[from] LocalLogError),
    /// A recorded outcome and what happened don't fit each other.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The protocol refused an event.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The protocol asks for something that this runtime doesn't do.
    #[error("the protocol asks for something that this runtime does not do: {effect}")]
    Unsupported {
        /// What.
        effect: String,
    },
    /// A checkpoint's tables cannot be put back.
    #[error("cannot restore the protocol from the checkpoint: {0}")]
    Restore(#[from] RestoreError),
    /// What a peer says of itself cannot be read or written.
    #[error("the hello of rank {peer}: {source}")]
    Hello {
        /// The peer.
        peer: u32,
        /// What is wrong.
        source: HelloError,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// What the runtime keeps in a checkpoint cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// What the runtime keeps in a checkpoint cannot be written down.
    #[error("cannot encode a checkpoint: {0}")]
    Encode(#[from] postcard::Error),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The connection with peers or with the launcher.
    #[error(transparent)]
    Transport(#[from] TransportError),
}
