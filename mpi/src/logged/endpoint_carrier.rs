//! A recovering rank's endpoint, as carrier: it logs by itself.

use std::any::Any;
use std::rc::Rc;

use counterfoil_mpi_core::collective::Ready;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::point_to_point::Mode;
use counterfoil_mpi_core::topology::{CartesianLayout, CommunicatorRelation};
use counterfoil_mpi_core::universe::Universe;
use counterfoil_mpi_logger::{Determinant, PostedReceive};
use counterfoil_runtime::communicator::Request;

use super::carrier::{Carrier, Created, MatchedMessage, Probed};
use super::error::LoggedError;
use crate::error::{OperationError, Outcome};
use crate::immediate::{ImmediateOperation, of_one_carrier};
use crate::recovering::{self, Context, EndpointOperation, Grid, Recovering, collective, taken};

/// A recovering rank's communicator.
#[derive(Debug)]
pub(super) struct EndpointCarrier {
    context: Rc<Context>,
}

impl EndpointCarrier {
    pub(super) fn of(context: Rc<Context>) -> Rc<dyn Carrier> {
        Rc::new(EndpointCarrier { context })
    }

    fn match_probed(&self, found: Envelope) -> Result<Probed, LoggedError> {
        let request = self.context.match_probed(found)?;
        Ok((Box::new(Matched { context: Rc::clone(&self.context), request }), found))
    }
}

fn created(context: Option<Rc<Context>>) -> Created {
    Ok(context.map(EndpointCarrier::of))
}

/// A message with a posted receive.
#[derive(Debug)]
struct Matched {
    context: Rc<Context>,
    request: Request,
}

/// Begins to receive a message into `memory` by calling `begin` with a function to store the message.
///
/// # Safety
/// Same as [`Carrier::begin_receive_into`].
unsafe fn receive_into(
    memory: *mut [u8],
    begin: impl FnOnce(recovering::StoreMessage) -> Result<EndpointOperation, OperationError>,
) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
    // SAFETY: the caller's promise. An operation ended by its scope drops the function.
    let store: recovering::StoreMessage =
        Box::new(move |status, message| taken(status, message, unsafe { &mut *memory }));
    Ok(Box::new(begin(store)?))
}

impl MatchedMessage for Matched {
    fn receive(self: Box<Self>, bytes: &mut [u8]) -> Result<Outcome, LoggedError> {
        Ok(self.context.take(self.request, bytes)?)
    }

    unsafe fn begin_receive_into(
        self: Box<Self>,
        memory: *mut [u8],
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        let Matched { context, request } = *self;
        // SAFETY: the caller's promise.
        unsafe { receive_into(memory, |store| Ok(context.operation_of(request, store))) }
    }

    fn discard(self: Box<Self>) {
        self.context.discard_matched(self.request);
    }
}

impl Carrier for EndpointCarrier {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn universe(&self) -> &Rc<Universe> {
        self.context.process.universe()
    }

    fn recovering(&self) -> Option<&Recovering> {
        Some(&self.context.process)
    }

    fn rank(&self) -> u32 {
        self.context.rank()
    }

    fn world(&self) -> &[u32] {
        self.context.members()
    }

    fn number(&self) -> u32 {
        self.context.number()
    }

    fn compare(&self, other: &dyn Carrier) -> Result<CommunicatorRelation, LoggedError> {
        let other = other.as_any().downcast_ref::<EndpointCarrier>().ok_or(OperationError::Mixed)?;
        Ok(self.context.compare(&other.context))
    }

    fn name(&self) -> Result<String, LoggedError> {
        Ok(self.context.name())
    }

    fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        self.context.set_name(name);
        Ok(())
    }

    fn duplicate(&self) -> Result<Rc<dyn Carrier>, LoggedError> {
        Ok(EndpointCarrier::of(self.context.duplicate()?))
    }

    fn split(&self, color: Option<u32>, key: i32) -> Created {
        created(self.context.split(color, key, None)?)
    }

    fn split_shared(&self, _: i32) -> Created {
        // A rank's replacement may run on another host.
        Err(OperationError::NotRecoverable { call: "MPI_Comm_split_type" }.into())
    }

    fn create(&self, ranks: &[u32]) -> Created {
        created(self.context.create_of(ranks)?)
    }

    fn create_group(&self, ranks: &[u32], tag: i32) -> Created {
        created(self.context.create_group(ranks, tag)?)
    }

    fn create_grid(&self, dims: &[u32], periods: &[bool], _: bool) -> Created {
        created(self.context.create_grid(Grid { dims: dims.to_vec(), periods: periods.to_vec() })?)
    }

    fn place_in(&self, dims: &[u32], _: &[bool]) -> Result<Option<u32>, LoggedError> {
        Ok(self.context.place_in(dims))
    }

    fn layout(&self) -> Result<CartesianLayout, LoggedError> {
        Ok(self.context.layout()?)
    }

    fn rank_at(&self, coords: &[i32]) -> Result<u32, LoggedError> {
        let coords: Vec<i64> = coords.iter().copied().map(i64::from).collect();
        // The coordinates are in the grid.
        Ok(self.context.grid()?.rank_at(&coords).unwrap_or_default())
    }

    fn coords_of(&self, rank: u32, _: usize) -> Result<Vec<u32>, LoggedError> {
        Ok(self.context.grid()?.coords_of(rank))
    }

    fn shift(&self, dimension: usize, by: i32) -> Result<(Option<u32>, Option<u32>), LoggedError> {
        Ok(self.context.grid()?.shift(self.rank(), dimension, by))
    }

    fn sub_grid(&self, retain: &[bool]) -> Created {
        created(self.context.sub_grid(retain)?)
    }

    fn send_while(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
        work: &mut dyn FnMut(),
    ) -> Result<(), LoggedError> {
        self.context.send(mode, bytes, to, tag)?;
        work();
        Ok(())
    }

    fn begin_send(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        let pending = self.context.begin_send(mode, bytes, to, tag)?;
        Ok(Box::new(EndpointOperation::of_send(&self.context, pending)))
    }

    fn receive(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError> {
        let Outcome { envelope, result } = self.context.receive(bytes, source, tag)?;
        result?;
        Ok(envelope.ok_or(OperationError::Ended)?)
    }

    fn begin_receive(
        &self,
        len: usize,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        Ok(Box::new(self.context.begin_receive(len, source, tag)?))
    }

    unsafe fn begin_receive_into(
        &self,
        memory: *mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        // SAFETY: the caller's promise.
        unsafe { receive_into(memory, |store| self.context.begin_receive_by(source, tag, store)) }
    }

    fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError> {
        Ok(self.context.probe(source, tag)?)
    }

    fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, LoggedError> {
        Ok(self.context.immediate_probe(source, tag)?)
    }

    fn matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Probed, LoggedError> {
        self.match_probed(self.context.probe(source, tag)?)
    }

    fn immediate_matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Probed>, LoggedError> {
        let found = self.context.immediate_probe(source, tag)?;
        found.map(|found| self.match_probed(found)).transpose()
    }

    fn complete_any(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<(usize, Outcome)>, OperationError> {
        recovering::any(&of_one_carrier(operations)?, wait)
    }

    fn complete_some(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Vec<(usize, Outcome)>, OperationError> {
        recovering::some(&of_one_carrier(operations)?, wait)
    }

    fn complete_all(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<Vec<Option<Outcome>>>, OperationError> {
        let completed = recovering::all(&of_one_carrier(operations)?, wait)?;
        Ok(completed.map(|completed| completed.into_iter().map(Some).collect()))
    }

    fn run(&self, ready: Ready<'_>) -> Result<(), LoggedError> {
        Ok(collective::run(ready, &self.context)?)
    }

    unsafe fn begin(&self, ready: Ready<'_>) -> Result<(Box<dyn ImmediateOperation>, u64), LoggedError> {
        // SAFETY: the caller's promise.
        let operation = unsafe { collective::begin(ready, &self.context)? };
        Ok((Box::new(operation), 0))
    }

    fn collective_waited(&self, _: u64) {}

    fn post(&self, _: Option<u32>, _: Option<i32>) -> Option<PostedReceive> {
        None
    }

    fn end_receive(&self, _: PostedReceive, _: Option<Envelope>, _: bool) -> Result<(), LoggedError> {
        Ok(())
    }

    fn record(&self, _: Determinant) {}

    fn count_failed_poll(&self) {}

    fn note_activity(&self) {}
}
