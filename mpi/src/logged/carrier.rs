//! Carriers of a communicator's messages.
//!
//! A [`LoggedCommunicator`](super::LoggedCommunicator) calls its carrier: MPI, with its calls logged here
//! ([`MpiCarrier`](super::mpi_carrier::MpiCarrier)), or a recovering rank's endpoint, logging by itself
//! ([`EndpointCarrier`](super::endpoint_carrier::EndpointCarrier)). Programs name neither, so it is a trait object.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use counterfoil_mpi_core::collective::Ready;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::point_to_point::Mode;
use counterfoil_mpi_core::topology::{CartesianLayout, CommunicatorRelation};
use counterfoil_mpi_core::universe::Universe;
use counterfoil_mpi_logger::{Determinant, PostedReceive};

use super::error::LoggedError;
use crate::error::{OperationError, Outcome};
use crate::immediate::ImmediateOperation;
use crate::recovering::Recovering;

/// A communicator created by a carrier; `None` if this rank isn't in it.
pub(super) type Created = Result<Option<Rc<dyn Carrier>>, LoggedError>;

/// A message matched by a probe, with its envelope.
pub(super) type Probed = (Box<dyn MatchedMessage>, Envelope);

/// A matched message: no other call can receive it.
pub(super) trait MatchedMessage: fmt::Debug {
    /// Receives the message into `bytes`.
    ///
    /// # Errors
    /// [`LoggedError`]: no message was received.
    fn receive(self: Box<Self>, bytes: &mut [u8]) -> Result<Outcome, LoggedError>;

    /// Begins to receive the message into `memory`.
    ///
    /// # Errors
    /// [`LoggedError`].
    ///
    /// # Safety
    /// Same as [`Carrier::begin_receive_into`].
    unsafe fn begin_receive_into(
        self: Box<Self>,
        memory: *mut [u8],
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError>;

    /// Receives the message and drops it.
    ///
    /// There is no place for an error; the next call on the communicator reports it.
    fn discard(self: Box<Self>);
}

/// Carrier of one communicator's messages.
///
/// Ranks are the communicator's; `None` as source or tag is a wildcard.
pub(super) trait Carrier: fmt::Debug {
    /// Returns the carrier's own type.
    fn as_any(&self) -> &dyn Any;

    fn universe(&self) -> &Rc<Universe>;

    /// Returns this process, if it recovers.
    fn recovering(&self) -> Option<&Recovering>;

    // The communicator.

    fn rank(&self) -> u32;

    /// Returns the ranks in MPI_COMM_WORLD, by rank in the communicator.
    fn world(&self) -> &[u32];

    /// Returns the communicator's number, the same on all its ranks.
    fn number(&self) -> u32;

    /// # Errors
    /// [`OperationError::Mixed`] for another carrier's communicator; [`LoggedError::Mpi`].
    fn compare(&self, other: &dyn Carrier) -> Result<CommunicatorRelation, LoggedError>;

    fn name(&self) -> Result<String, LoggedError>;

    fn set_name(&self, name: &str) -> Result<(), LoggedError>;

    // Derived communicators.

    fn duplicate(&self) -> Result<Rc<dyn Carrier>, LoggedError>;

    fn split(&self, color: Option<u32>, key: i32) -> Created;

    fn split_shared(&self, key: i32) -> Created;

    fn create(&self, ranks: &[u32]) -> Created;

    fn create_group(&self, ranks: &[u32], tag: i32) -> Created;

    // Grids.

    fn create_grid(&self, dims: &[u32], periods: &[bool], may_reorder: bool) -> Created;

    /// Returns this process's rank in such a grid; `None` if the grid has no place for it.
    fn place_in(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError>;

    fn layout(&self) -> Result<CartesianLayout, LoggedError>;

    /// Returns the rank at coordinates inside the grid, or in a periodic dimension.
    fn rank_at(&self, coords: &[i32]) -> Result<u32, LoggedError>;

    fn coords_of(&self, rank: u32, dims: usize) -> Result<Vec<u32>, LoggedError>;

    fn shift(&self, dimension: usize, by: i32) -> Result<(Option<u32>, Option<u32>), LoggedError>;

    fn sub_grid(&self, retain: &[bool]) -> Created;

    // Messages.

    /// Sends a message, and runs `work` before waiting for the end of the send.
    ///
    /// # Errors
    /// [`LoggedError`]. `work` doesn't run if the message has not left.
    fn send_while(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
        work: &mut dyn FnMut(),
    ) -> Result<(), LoggedError>;

    fn begin_send(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError>;

    fn receive(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError>;

    /// Begins to receive a message with at most `len` bytes, owned by the operation.
    fn begin_receive(
        &self,
        len: usize,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError>;

    /// Begins to receive a message into `memory`.
    ///
    /// # Safety
    /// `memory` can be written, and stays exclusive to the operation until it is complete.
    unsafe fn begin_receive_into(
        &self,
        memory: *mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError>;

    fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError>;

    fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, LoggedError>;

    fn matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Probed, LoggedError>;

    fn immediate_matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Probed>, LoggedError>;

    // Nonblocking operations.

    /// See [`completion::any`](super::completion::any).
    fn complete_any(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<(usize, Outcome)>, OperationError>;

    /// See [`completion::some`](super::completion::some).
    fn complete_some(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Vec<(usize, Outcome)>, OperationError>;

    /// See [`completion::all`](super::completion::all).
    fn complete_all(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<Vec<Option<Outcome>>>, OperationError>;

    // Collective operations.

    /// Logs this rank's contribution, then carries the operation out.
    fn run(&self, ready: Ready<'_>) -> Result<(), LoggedError>;

    /// Logs this rank's contribution, then begins the operation.
    ///
    /// Returns it with its number in the logger's count.
    ///
    /// # Safety
    /// The operation's memory stays borrowed until it is complete.
    unsafe fn begin(&self, ready: Ready<'_>) -> Result<(Box<dyn ImmediateOperation>, u64), LoggedError>;

    /// Notes the end of the program's wait for an operation.
    fn collective_waited(&self, number: u64);

    // The logger, if this carrier has one: an endpoint logs by itself.

    /// Tells the logger of a posted receive.
    fn post(&self, source: Option<u32>, tag: Option<i32>) -> Option<PostedReceive>;

    /// Tells the logger of a posted receive's end.
    ///
    /// `is_open`: the program has left its source or tag to MPI.
    fn end_receive(&self, posted: PostedReceive, received: Option<Envelope>, is_open: bool) -> Result<(), LoggedError>;

    /// Records a determinant.
    fn record(&self, determinant: Determinant);

    /// Counts a failed test or probe.
    fn count_failed_poll(&self);

    /// Notes activity not covered by another call.
    fn note_activity(&self);
}
