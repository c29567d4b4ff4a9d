//! The interface of a parallel program: ranks, messages, collectives, checkpoints.
//!
//! [`Communicator`] is the only interface between a program and the runtime. It follows MPI's rules for matching and
//! for progress (progress is made inside calls), is dyn-compatible, and has a small required part (point to point,
//! checkpoints) and a provided part: blocking calls, and collectives. Collectives are built from messages
//! ([`crate::collectives`]) over a [`CollectiveSubstrate`] hidden from programs.
//!
//! # Requirements for replay
//! Between two calls, a rank's actions may depend only on its own state and on the results of earlier calls: no clock,
//! no random numbers from outside, no addresses, no `HashMap` order. Then a re-execution with the same outcomes sends
//! the same messages (piecewise determinism; Guermouche 2011, section II).

mod call_error;
mod fail_stop;
mod substrate;

use bytes::Bytes;
use counterfoil::Epoch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::collectives;
use crate::saved::{SavedState, StatePlace};

pub use call_error::CallError;
pub use fail_stop::{FailStop, FirstFailure};
pub use substrate::{CollectiveRun, CollectiveSubstrate, InternalTag};

#[cfg(not(target_endian = "little"))]
compile_error!("typed collectives put f64 and u64 on the wire in the host's byte order, which must be little-endian");

/// Matches a message from any rank, as MPI_ANY_SOURCE does.
pub const ANY_SOURCE: Option<u32> = None;

/// Matches any application tag, as MPI_ANY_TAG does.
///
/// It never matches a collective's message.
pub const ANY_TAG: Option<i32> = None;

/// Context number (`Envelope::comm`) of application messages.
///
/// A layer with several communicators gives each two context numbers: an even one for its application messages, and the
/// next one for its collectives.
pub const APPLICATION_CONTEXT: u32 = 0;

/// Context number (`Envelope::comm`) of messages within collectives.
///
/// A receive matches only messages in its own context, so an application receive with [`ANY_SOURCE`] and [`ANY_TAG`]
/// never takes a collective's message.
pub const COLLECTIVE_CONTEXT: u32 = 1;

/// Returns `true` for a collective's context.
pub const fn is_collective(context: u32) -> bool {
    context % 2 == 1
}

/// Source, tag and length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Sending rank.
    ///
    /// For a send: the destination.
    pub source: u32,
    /// Message tag.
    pub tag: i32,
    /// Payload length in bytes.
    pub len: usize,
}

/// A started send or receive, to be completed with [`Communicator::wait`].
///
/// A program can neither copy nor construct one, so it can't wait for a request twice. The communicator assigns the
/// numbers and alone interprets them.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a request must be waited for"]
pub struct Request(u64);

impl Request {
    /// Makes the request with number `id`.
    ///
    /// For implementations of [`Communicator`].
    pub const fn new(id: u64) -> Request {
        Request(id)
    }

    /// Returns the number of this request.
    ///
    /// For implementations of [`Communicator`].
    pub const fn id(&self) -> u64 {
        self.0
    }
}

/// Source of a program's state ([`Communicator::provide_state`]).
pub type StateProvider = Box<dyn FnMut() -> Vec<u8>>;

/// Continuation of a rank after the job was started again ([`Communicator::restart`]).
#[derive(Debug)]
pub struct Restart {
    /// Number of job restarts.
    pub generation: u32,
    /// Ranks with lost states, ascending.
    pub lost: Vec<u32>,
    /// State saved by this rank; `None` if it is lost, or [in memory](Communicator::state_place).
    pub state: Option<SavedState>,
}

/// Reduction operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; of `u64` modulo 2^64.
    Sum,
    /// The smaller value; of `f64` in the total order of IEEE 754 (`f64::total_cmp`), so that -0.0 is below 0.0.
    Min,
    /// The larger value, in the same order.
    Max,
}

/// One rank's end in a group of ranks exchanging messages.
///
/// Matching follows MPI: a receive takes the first message, in its sender's send order, that fits its source and tag;
/// receives fitting the same message are served in post order. A rank may send to itself. A payload may be empty; the
/// communicator limits its length.
///
/// Every call can fail with a communicator [`Error`] (an unrecoverable peer, a full log, a dead launcher); the program
/// returns it and ends. Each method documents only its additional errors.
pub trait Communicator {
    // ---- Required: rank and size ------------------------------------------------------------------------------

    /// Returns this rank, from 0.
    fn rank(&self) -> u32;

    /// Returns the number of ranks; at least 1.
    fn size(&self) -> u32;

    // ---- Required: point to point -----------------------------------------------------------------------------

    /// Starts to send `payload` to rank `to`.
    ///
    /// The payload is copied: the buffer may be reused at once.
    ///
    /// Completes without the receiver, but may wait while the log is full. The program must still wait for the
    /// request.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error>;

    /// Posts a receive.
    ///
    /// `None` is a wildcard: [`ANY_SOURCE`], [`ANY_TAG`].
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error>;

    /// Waits until `request` is complete and returns the received message.
    ///
    /// For a send: its destination, tag and length, and no bytes.
    ///
    /// # Errors
    /// [`CallError::UnknownRequest`] for another communicator's request.
    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error>;

    /// Returns `true` if [`wait`](Communicator::wait) would return at once; it stays true.
    ///
    /// The outcome depends on timing, so it is a determinant; a run of `false` outcomes is one entry in the local log.
    ///
    /// # Errors
    /// [`CallError::UnknownRequest`].
    fn test(&mut self, request: &Request) -> Result<bool, Error>;

    /// Waits for a message matching a receive with this source and tag, without receiving it.
    ///
    /// A receive with the returned status's source and tag, called next, takes that message.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error>;

    /// Like [`probe`](Communicator::probe), but returns `None` instead of waiting.
    ///
    /// The outcome is a determinant, as for [`test`](Communicator::test).
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error>;

    // ---- Required: checkpoints and progress -------------------------------------------------------------------

    /// Saves `state` as this rank's checkpoint, waits until it is durable, and returns the epoch that it begins.
    ///
    /// Each rank may call it at any time; no request may be pending. While the process repeats the record of a dead
    /// incarnation, it may take none, and returns the current epoch.
    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error>;

    /// Returns `false` if a [`checkpoint`](Communicator::checkpoint) offered now would be skipped, because too little
    /// time has passed since the last ([`RankSettings::mtbf`](crate::RankSettings::mtbf)).
    ///
    /// A program needn't encode its state then. Depends on the clock, so nothing but the checkpoint may depend on it.
    /// By default, always `true`.
    fn is_checkpoint_due(&self) -> bool {
        true
    }

    /// Returns the state from which this process restarted; `None` at a fresh start or a restart from the beginning.
    ///
    /// To be called before anything else. Later calls return the same.
    fn restore(&mut self) -> Result<Option<Bytes>, Error>;

    /// Reports the begin of iteration `n` (from 1) in the program's outer loop, for progress output.
    ///
    /// After a restore, `n` continues from the checkpoint's iteration.
    fn iteration(&mut self, n: u64) -> Result<(), Error>;

    /// Returns this rank's continuation if the job was started again after the loss of ranks, under a rule that does
    /// so; `None` at a fresh start.
    ///
    /// To be called before anything else, and once. The program rebuilds what the lost ranks had, from the others'
    /// states, and then calls [`rebuilt`](Communicator::rebuilt).
    ///
    /// # Errors
    /// [`Error::Saved`], [`Error::NoSavedState`].
    fn restart(&mut self) -> Result<Option<Restart>, Error> {
        Ok(None)
    }

    /// Returns the place where this rank's state outlives its process, under a rule that keeps states in memory; `None`
    /// under others.
    ///
    /// The program opens the existing state, or makes memory for one, and its state is there before it calls
    /// [`rebuilt`](Communicator::rebuilt). By default `None`.
    fn state_place(&self) -> Option<StatePlace> {
        None
    }

    /// Reports that this rank's state is complete: rebuilt after a [`restart`](Communicator::restart), or made at a
    /// fresh start.
    ///
    /// Once all ranks have reported, earlier saved states are removed, and states are saved from then on. All ranks
    /// call it. By default it does nothing.
    fn rebuilt(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Registers the source of the program's state, for checkpoints requested by the rule while the program waits in a
    /// call.
    ///
    /// The source is called within a communicator call. A program restored from its result makes that call again, after
    /// reposting the receives that were open. Without one, such a checkpoint waits for the next
    /// [`checkpoint`](Communicator::checkpoint). By default it is never called.
    fn provide_state(&mut self, provider: StateProvider) {
        drop(provider);
    }

    // ---- Provided: blocking point to point --------------------------------------------------------------------

    /// Sends `payload` to rank `to`: [`isend`](Communicator::isend) and [`wait`](Communicator::wait).
    ///
    /// # Errors
    /// See [`isend`](Communicator::isend).
    fn send(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<(), Error> {
        let request = self.isend(to, tag, payload)?;
        self.wait(request)?;
        Ok(())
    }

    /// Receives one message: [`irecv`](Communicator::irecv) and [`wait`](Communicator::wait).
    ///
    /// # Errors
    /// See [`irecv`](Communicator::irecv).
    fn recv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<(Status, Bytes), Error> {
        let request = self.irecv(source, tag)?;
        self.wait(request)
    }

    /// Sends and receives at the same time, so two ranks can exchange without a deadlock.
    ///
    /// # Errors
    /// See [`isend`](Communicator::isend) and [`irecv`](Communicator::irecv).
    fn sendrecv(
        &mut self,
        to: u32,
        send_tag: i32,
        payload: &[u8],
        source: Option<u32>,
        receive_tag: Option<i32>,
    ) -> Result<(Status, Bytes), Error> {
        let receive = self.irecv(source, receive_tag)?;
        let send = self.isend(to, send_tag, payload)?;
        self.wait(send)?;
        self.wait(receive)
    }

    /// Waits for all `requests`; the results are in the same order.
    ///
    /// # Errors
    /// See [`wait`](Communicator::wait); the remaining requests are then dropped.
    fn waitall(&mut self, requests: Vec<Request>) -> Result<Vec<(Status, Bytes)>, Error> {
        requests.into_iter().map(|request| self.wait(request)).collect()
    }

    // ---- Collectives ------------------------------------------------------------------------------------------

    /// Returns the calls underlying collectives.
    ///
    /// Programs don't need it.
    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate;

    // Provided. All ranks call the same collectives in the same order. See `collectives` for the algorithms.

    /// Returns once every rank has called it.
    fn barrier(&mut self) -> Result<(), Error> {
        collectives::barrier(self.substrate())
    }

    /// Returns the root's `payload` on every rank; the others' payloads are ignored.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root.
    fn bcast(&mut self, root: u32, payload: &[u8]) -> Result<Bytes, Error> {
        collectives::bcast(self.substrate(), root, payload)
    }

    /// Like [`bcast`](Communicator::bcast), into `values` of the same length on all ranks.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root, [`CallError::LengthMismatch`].
    fn bcast_f64(&mut self, root: u32, values: &mut [f64]) -> Result<(), Error> {
        collectives::bcast_values(self.substrate(), root, values)
    }

    /// Like [`bcast_f64`](Communicator::bcast_f64).
    ///
    /// # Errors
    /// See [`bcast_f64`](Communicator::bcast_f64).
    fn bcast_u64(&mut self, root: u32, values: &mut [u64]) -> Result<(), Error> {
        collectives::bcast_values(self.substrate(), root, values)
    }

    /// Combines all ranks' `values` element by element, into those on rank `root`; the others' don't change.
    ///
    /// Values are combined in rank order in a tree that depends on the number of ranks alone, so the result is the
    /// same, bit by bit, in every run and for every root.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root, [`CallError::LengthMismatch`].
    fn reduce_f64(&mut self, root: u32, values: &mut [f64], reduction: Reduction) -> Result<(), Error> {
        collectives::reduce(self.substrate(), root, values, collectives::combine_f64(reduction))
    }

    /// Like [`reduce_f64`](Communicator::reduce_f64).
    ///
    /// # Errors
    /// See [`reduce_f64`](Communicator::reduce_f64).
    fn reduce_u64(&mut self, root: u32, values: &mut [u64], reduction: Reduction) -> Result<(), Error> {
        collectives::reduce(self.substrate(), root, values, collectives::combine_u64(reduction))
    }

    /// Like [`reduce_f64`](Communicator::reduce_f64), with the result (the same bits) on every rank.
    ///
    /// # Errors
    /// [`CallError::LengthMismatch`].
    fn allreduce_f64(&mut self, values: &mut [f64], reduction: Reduction) -> Result<(), Error> {
        collectives::allreduce(self.substrate(), values, collectives::combine_f64(reduction))
    }

    /// Like [`allreduce_f64`](Communicator::allreduce_f64).
    ///
    /// # Errors
    /// [`CallError::LengthMismatch`].
    fn allreduce_u64(&mut self, values: &mut [u64], reduction: Reduction) -> Result<(), Error> {
        collectives::allreduce(self.substrate(), values, collectives::combine_u64(reduction))
    }

    /// Returns every rank's `block` on rank `root`, in rank order; `None` on others.
    ///
    /// Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root.
    fn gather(&mut self, root: u32, block: &[u8]) -> Result<Option<Vec<Bytes>>, Error> {
        collectives::gather(self.substrate(), root, block)
    }

    /// Distributes the root's `blocks`, one for each rank, and returns this rank's block; the blocks on others are
    /// ignored.
    ///
    /// Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root; [`CallError::BlockCount`] on the root.
    fn scatter(&mut self, root: u32, blocks: &[&[u8]]) -> Result<Bytes, Error> {
        collectives::scatter(self.substrate(), root, blocks)
    }

    /// Returns every rank's `block` on every rank, in rank order.
    ///
    /// Lengths may differ.
    fn allgather(&mut self, block: &[u8]) -> Result<Vec<Bytes>, Error> {
        collectives::allgather(self.substrate(), block)
    }

    /// Cuts `blocks` into one equal block for each rank, sends each rank its own, and returns the received blocks in
    /// rank order.
    ///
    /// The length is the same on all ranks.
    ///
    /// # Errors
    /// [`CallError::UnequalBlocks`], [`CallError::LengthMismatch`].
    fn alltoall(&mut self, blocks: &[u8]) -> Result<Vec<u8>, Error> {
        collectives::alltoall(self.substrate(), blocks)
    }

    /// Sends each rank its own block and returns the received blocks in rank order.
    ///
    /// Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::BlockCount`].
    fn alltoallv(&mut self, blocks: &[&[u8]]) -> Result<Vec<Bytes>, Error> {
        collectives::alltoallv(self.substrate(), blocks)
    }
}

/// Checkpoints for values instead of bytes, encoded by `postcard`.
pub trait CheckpointValue: Communicator {
    /// Like [`checkpoint`](Communicator::checkpoint), for a value.
    ///
    /// # Errors
    /// [`Error::Encode`] for a value that can't be encoded.
    fn checkpoint_value(&mut self, state: &impl Serialize) -> Result<Epoch, Error> {
        self.checkpoint(&postcard::to_stdvec(state)?)
    }

    /// Like [`restore`](Communicator::restore), for a value.
    ///
    /// # Errors
    /// [`Error::Encode`] for a checkpoint with another type.
    fn restore_value<S: DeserializeOwned>(&mut self) -> Result<Option<S>, Error> {
        Ok(self.restore()?.map(|bytes| postcard::from_bytes(&bytes)).transpose()?)
    }
}

impl<C: Communicator + ?Sized> CheckpointValue for C {}
