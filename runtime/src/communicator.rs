//! What a parallel program sees: ranks, messages, collectives, checkpoints.
//!
//! [`Communicator`] is the only door between a program and the runtime. It follows MPI's rules for matching and
//! for progress (progress is made inside calls), is object safe, and has a small required part (point to point,
//! checkpoints) and a provided part (blocking calls and collectives, in [`crate::collectives`]).
//!
//! # What a program must keep to, so that it can be replayed
//! Between two calls, what a rank does may depend only on its own state and on what earlier calls returned: no
//! clock, no random numbers from outside, no addresses, no order of a `HashMap`. Then a re-execution that is fed
//! the same outcomes sends the same messages (piecewise determinism; Guermouche 2011, section II).

mod call_error;

use bytes::Bytes;
use counterfoil::Epoch;

use crate::Error;
use crate::collectives;

pub use call_error::CallError;

#[cfg(not(target_endian = "little"))]
compile_error!("typed collectives put f64 and u64 on the wire in the host's byte order, which must be little-endian");

/// Matches a message of any rank, as MPI_ANY_SOURCE does.
pub const ANY_SOURCE: Option<u32> = None;

/// Matches any application tag, as MPI_ANY_TAG does. It never matches a message of a collective.
pub const ANY_TAG: Option<i32> = None;

/// The context number (`Envelope::comm`) of application messages.
pub const APPLICATION_CONTEXT: u32 = 0;

/// The context number (`Envelope::comm`) of the messages that collectives are made of.
///
/// A receive matches only messages of its own context, so an application receive with [`ANY_SOURCE`] and
/// [`ANY_TAG`] never takes a message of a collective.
pub const COLLECTIVE_CONTEXT: u32 = 1;

/// What is known of a message without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The rank that sent it. For a send: the rank that it went to.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Length of the payload in bytes.
    pub len: usize,
}

/// A send or receive that was started and must be waited for with [`Communicator::wait`].
///
/// It can be neither copied nor made up by a program, so nothing can be waited for twice. Numbers are given out
/// by the communicator, which alone knows what they mean.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a request must be waited for"]
pub struct Request(u64);

impl Request {
    /// For communicators: the request that `id` stands for.
    pub const fn new(id: u64) -> Request {
        Request(id)
    }

    /// For communicators: the number that this request was made from.
    pub const fn id(&self) -> u64 {
        self.0
    }
}

/// The tag of the messages of one collective call: the number of the call on this communicator, from 0.
///
/// All ranks call collectives in the same order, so the n-th call of one rank belongs to the n-th call of every
/// other. Messages of one channel and context don't overtake each other, so one tag serves a whole call and numbers
/// may wrap around (after 2^31 calls) without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InternalTag(u64);

impl InternalTag {
    /// The tag of collective call number `sequence`.
    pub const fn new(sequence: u64) -> InternalTag {
        InternalTag(sequence)
    }

    /// The number of the collective call.
    pub const fn sequence(self) -> u64 {
        self.0
    }

    /// The tag as it stands in an envelope: always negative, where application tags never are.
    pub const fn wire(self) -> i32 {
        // The mask leaves 31 bits, so the cast is exact and the result is in i32::MIN..=-1.
        -1 - (self.0 & 0x7fff_ffff) as i32
    }
}

/// How a reduction combines two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; of `u64` modulo 2^64.
    Sum,
    /// The smaller value; of `f64` in the total order of IEEE 754 (`f64::total_cmp`), so that -0.0 is below 0.0.
    Min,
    /// The larger value, in the same order.
    Max,
}

/// A group of ranks that exchange messages; this rank's end of it.
///
/// Matching follows MPI: a receive takes the first message, in the order in which its sender sent them, that fits its
/// source and tag; receives that fit the same message are served in the order in which they were posted. Sends to
/// oneself are allowed. A payload may be empty; the largest is set by the communicator.
///
/// Every call can fail with an [`Error`] of the communicator (a peer that cannot be recovered, a log that is full, a
/// launcher that is gone); a program hands it up and ends. Each method names only the errors that are its own.
pub trait Communicator {
    // ---- Required: who we are ---------------------------------------------------------------------------------

    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are; at least 1.
    fn size(&self) -> u32;

    // ---- Required: point to point -----------------------------------------------------------------------------

    /// Starts to send `payload` to rank `to`. The payload is copied: the buffer may be reused at once.
    ///
    /// Completes without the receiver's help, save that a full log may make it wait. The request must still be
    /// waited for.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error>;

    /// Posts a receive. `None` is a wildcard: [`ANY_SOURCE`], [`ANY_TAG`].
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error>;

    /// As [`isend`](Communicator::isend), in [`COLLECTIVE_CONTEXT`]. For collectives only.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`].
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error>;

    /// As [`irecv`](Communicator::irecv), in [`COLLECTIVE_CONTEXT`] and without wildcards. For collectives only.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`].
    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error>;

    /// Takes the number of the next collective call. For collectives only, which take one each.
    ///
    /// A checkpoint holds the counter, so that a re-execution goes on where the checkpoint was taken.
    fn begin_collective(&mut self) -> InternalTag;

    /// Waits until `request` is complete and gives what it received. For a send: the rank and tag that it went to,
    /// the length, and no bytes.
    ///
    /// # Errors
    /// [`CallError::UnknownRequest`] for a request of another communicator.
    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error>;

    /// Whether [`wait`](Communicator::wait) would return at once. The outcome depends on timing, so it is a
    /// determinant: a loop around `test` that never pauses fills the local log. Once true, it stays true.
    ///
    /// # Errors
    /// [`CallError::UnknownRequest`].
    fn test(&mut self, request: &Request) -> Result<bool, Error>;

    /// Waits for a message that a receive with this source and tag would take, and leaves it where it is.
    /// A receive from the status's source with its tag, called next, takes that message.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error>;

    /// As [`probe`](Communicator::probe), but doesn't wait: `None` if there is no such message. The outcome is a
    /// determinant, as that of [`test`](Communicator::test).
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`], [`CallError::NegativeTag`].
    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error>;

    // ---- Required: checkpoints and progress -------------------------------------------------------------------

    /// Saves `state` as this rank's checkpoint, waits until it is durable, and begins the next epoch, which is
    /// returned. Each rank decides by itself when to call it; no request may be pending.
    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error>;

    /// The state that this process restarted from; `None` at a fresh start or a restart from the beginning.
    /// To be called before anything else. The answer of later calls is the same.
    fn restore(&mut self) -> Result<Option<Bytes>, Error>;

    /// Says that iteration `n` (from 1) of the program's outer loop begins: shown as progress, and the point at
    /// which a planned kill strikes. After a restore `n` goes on from where the checkpoint was taken.
    fn iteration(&mut self, n: u64) -> Result<(), Error>;

    // ---- Provided: blocking point to point --------------------------------------------------------------------

    /// Sends `payload` to rank `to`: [`isend`](Communicator::isend) and [`wait`](Communicator::wait).
    ///
    /// # Errors
    /// As [`isend`](Communicator::isend).
    fn send(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<(), Error> {
        let request = self.isend(to, tag, payload)?;
        self.wait(request)?;
        Ok(())
    }

    /// Receives one message: [`irecv`](Communicator::irecv) and [`wait`](Communicator::wait).
    ///
    /// # Errors
    /// As [`irecv`](Communicator::irecv).
    fn recv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<(Status, Bytes), Error> {
        let request = self.irecv(source, tag)?;
        self.wait(request)
    }

    /// Sends and receives at the same time, so that two ranks can exchange without a deadlock.
    ///
    /// # Errors
    /// As [`isend`](Communicator::isend) and [`irecv`](Communicator::irecv).
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

    /// Waits for all of `requests`; the answers are in the same order.
    ///
    /// # Errors
    /// As [`wait`](Communicator::wait); the rest of the requests is then given up.
    fn waitall(&mut self, requests: Vec<Request>) -> Result<Vec<(Status, Bytes)>, Error> {
        requests.into_iter().map(|request| self.wait(request)).collect()
    }

    // ---- Provided: collectives --------------------------------------------------------------------------------
    // All ranks call the same collectives in the same order. See `collectives` for the algorithms.

    /// Returns once every rank has called it.
    fn barrier(&mut self) -> Result<(), Error> {
        collectives::barrier(self)
    }

    /// Gives every rank the `payload` of rank `root`; what the others pass is ignored.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root.
    fn bcast(&mut self, root: u32, payload: &[u8]) -> Result<Bytes, Error> {
        collectives::bcast(self, root, payload)
    }

    /// As [`bcast`](Communicator::bcast), into `values` of the same length everywhere.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root, [`CallError::LengthMismatch`].
    fn bcast_f64(&mut self, root: u32, values: &mut [f64]) -> Result<(), Error> {
        collectives::bcast_values(self, root, values)
    }

    /// As [`bcast_f64`](Communicator::bcast_f64).
    ///
    /// # Errors
    /// As [`bcast_f64`](Communicator::bcast_f64).
    fn bcast_u64(&mut self, root: u32, values: &mut [u64]) -> Result<(), Error> {
        collectives::bcast_values(self, root, values)
    }

    /// Combines the ranks' `values` element by element, into those of rank `root`; the others' stay as they are.
    ///
    /// Values are combined in rank order in a tree that depends on the number of ranks alone, so the result is the
    /// same, bit by bit, in every run and for every root.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root, [`CallError::LengthMismatch`].
    fn reduce_f64(&mut self, root: u32, values: &mut [f64], reduction: Reduction) -> Result<(), Error> {
        collectives::reduce(self, root, values, collectives::combine_f64(reduction))
    }

    /// As [`reduce_f64`](Communicator::reduce_f64).
    ///
    /// # Errors
    /// As [`reduce_f64`](Communicator::reduce_f64).
    fn reduce_u64(&mut self, root: u32, values: &mut [u64], reduction: Reduction) -> Result<(), Error> {
        collectives::reduce(self, root, values, collectives::combine_u64(reduction))
    }

    /// As [`reduce_f64`](Communicator::reduce_f64), with the result (the same bits) on every rank.
    ///
    /// # Errors
    /// [`CallError::LengthMismatch`].
    fn allreduce_f64(&mut self, values: &mut [f64], reduction: Reduction) -> Result<(), Error> {
        collectives::allreduce(self, values, collectives::combine_f64(reduction))
    }

    /// As [`allreduce_f64`](Communicator::allreduce_f64).
    ///
    /// # Errors
    /// [`CallError::LengthMismatch`].
    fn allreduce_u64(&mut self, values: &mut [u64], reduction: Reduction) -> Result<(), Error> {
        collectives::allreduce(self, values, collectives::combine_u64(reduction))
    }

    /// Gives rank `root` every rank's `block`, in rank order; the others get `None`. Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root.
    fn gather(&mut self, root: u32, block: &[u8]) -> Result<Option<Vec<Bytes>>, Error> {
        collectives::gather(self, root, block)
    }

    /// Gives each rank its block of those that rank `root` passes, one for each rank; what the others pass is
    /// ignored. Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::NoSuchRank`] for the root; [`CallError::BlockCount`] on the root.
    fn scatter(&mut self, root: u32, blocks: &[&[u8]]) -> Result<Bytes, Error> {
        collectives::scatter(self, root, blocks)
    }

    /// Gives every rank every rank's `block`, in rank order. Lengths may differ.
    fn allgather(&mut self, block: &[u8]) -> Result<Vec<Bytes>, Error> {
        collectives::allgather(self, block)
    }

    /// Cuts `blocks` into one equal block for each rank, sends each its own, and gives what came, in rank order.
    /// The length is the same on all ranks.
    ///
    /// # Errors
    /// [`CallError::UnequalBlocks`], [`CallError::LengthMismatch`].
    fn alltoall(&mut self, blocks: &[u8]) -> Result<Vec<u8>, Error> {
        collectives::alltoall(self, blocks)
    }

    /// Sends each rank its own block and gives what came, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// [`CallError::BlockCount`].
    fn alltoallv(&mut self, blocks: &[&[u8]]) -> Result<Vec<Bytes>, Error> {
        collectives::alltoallv(self, blocks)
    }
}
