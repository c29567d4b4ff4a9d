//! MPI as carrier: the engine records sent messages.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use counterfoil_mpi_core::collective::Ready;
use counterfoil_mpi_core::comm::{Comm, Matched};
use counterfoil_mpi_core::completion;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::point_to_point::Mode;
use counterfoil_mpi_core::request::Completion;
use counterfoil_mpi_core::topology::{CartesianLayout, CommunicatorRelation};
use counterfoil_mpi_core::universe::Universe;
use counterfoil_mpi_logger::{CommId, Determinant, Members, PostedReceive, Stream};

use super::carrier::{Carrier, Created, MatchedMessage, Probed};
use super::engine::{Dropped, Engine};
use super::error::LoggedError;
use crate::error::{OperationError, Outcome};
use crate::immediate::{ImmediateOperation, of_one_carrier};
use crate::recovering::Recovering;

/// An MPI communicator, registered with the logger.
#[derive(Debug)]
pub(super) struct MpiCarrier {
    comm: Comm,
    id: CommId,
    engine: Rc<RefCell<Engine>>,
    rank: u32,
    /// Ranks in MPI_COMM_WORLD, by rank in this communicator.
    world: Vec<u32>,
    /// List of dropped communicators for the engine to free.
    dropped: Dropped,
}

impl MpiCarrier {
    /// Registers a communicator with these members, given by their ranks in MPI_COMM_WORLD.
    pub(super) fn registered(
        comm: Comm,
        number: u32,
        world: Vec<u32>,
        engine: &Rc<RefCell<Engine>>,
    ) -> Result<Rc<dyn Carrier>, LoggedError> {
        let rank = comm.rank()?;
        let members = Members { world: world.as_slice().into(), rank: rank as i32, is_inter: false };
        let (id, dropped) = engine.borrow_mut().add_comm(number, members)?;
        Ok(Rc::new(MpiCarrier { comm, id, engine: Rc::clone(engine), rank, world, dropped }))
    }

    /// Agrees on a new communicator's number and registers it.
    ///
    /// Collective over the new communicator.
    fn register(&self, comm: Comm) -> Result<Rc<dyn Carrier>, LoggedError> {
        let own = self.world_rank(self.rank)?;
        let number = self.engine.borrow_mut().agree_on_number(&comm)?;
        let mut bytes = vec![0; 4 * comm.size()? as usize];
        comm.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let world = bytes.chunks_exact(4).filter_map(|rank| rank.try_into().ok().map(u32::from_le_bytes)).collect();
        MpiCarrier::registered(comm, number, world, &self.engine)
    }

    fn created(&self, comm: Option<Comm>) -> Created {
        comm.map(|comm| self.register(comm)).transpose()
    }

    /// Translates a rank in this communicator to its rank in MPI_COMM_WORLD.
    fn world_rank(&self, rank: u32) -> Result<u32, LoggedError> {
        let size = self.world.len() as u32;
        self.world.get(rank as usize).copied().ok_or(LoggedError::NoSuchRank { rank, size })
    }

    fn stream(&self, to: u32, tag: i32) -> Result<Stream, LoggedError> {
        Ok(Stream::new(self.world_rank(to)?, self.id.number(), tag))
    }

    /// Tells the logger of a probe's result.
    fn handle_probe(&self, source: Option<u32>, tag: Option<i32>, found: Option<Envelope>) -> Result<(), LoggedError> {
        let mut engine = self.engine.borrow_mut();
        engine.note_activity();
        match found {
            None => engine.count_failed_poll(),
            Some(found) if source.is_none() || tag.is_none() => {
                engine.record(Determinant::Probe { source: self.world_rank(found.source)?, tag: found.tag });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Logs this rank's contribution to an operation, then calls MPI by `call`.
    ///
    /// Returns the result with the operation's number.
    fn contribute<'b, T>(
        &self,
        ready: Ready<'b>,
        call: impl FnOnce(Ready<'b>) -> Result<T, MpiError>,
    ) -> Result<(T, u64), LoggedError> {
        let contribution = ready.contribution();
        let number = self.engine.borrow_mut().begin_collective(self.id, contribution.as_deref())?;
        drop(contribution);
        let called = call(ready);
        if called.is_err() {
            self.engine.borrow_mut().collective_refused(self.id, number);
        }
        Ok((called?, number))
    }
}

impl Drop for MpiCarrier {
    fn drop(&mut self) {
        // The engine may be borrowed here; it frees the communicator at its next poll.
        self.dropped.borrow_mut().push(self.id);
    }
}

fn envelope_of(matched: &Matched) -> Envelope {
    Envelope { source: matched.source, tag: matched.tag, len: matched.len }
}

impl MatchedMessage for Matched {
    fn receive(self: Box<Self>, bytes: &mut [u8]) -> Result<Outcome, LoggedError> {
        Ok(self.receive_into(bytes)?.convert())
    }

    unsafe fn begin_receive_into(
        self: Box<Self>,
        memory: *mut [u8],
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        // SAFETY: the caller's promise.
        Ok(Box::new(unsafe { Matched::begin_receive_into(*self, memory)? }))
    }

    fn discard(self: Box<Self>) {
        drop(Matched::receive(*self));
    }
}

impl Carrier for MpiCarrier {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn universe(&self) -> &Rc<Universe> {
        self.comm.universe()
    }

    fn recovering(&self) -> Option<&Recovering> {
        None
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> &[u32] {
        &self.world
    }

    fn number(&self) -> u32 {
        self.id.number()
    }

    fn compare(&self, other: &dyn Carrier) -> Result<CommunicatorRelation, LoggedError> {
        let other = other.as_any().downcast_ref::<MpiCarrier>().ok_or(OperationError::Mixed)?;
        Ok(self.comm.compare(&other.comm)?)
    }

    fn name(&self) -> Result<String, LoggedError> {
        Ok(self.comm.name()?)
    }

    fn set_name(&self, name: &str) -> Result<(), LoggedError> {
        Ok(self.comm.set_name(name)?)
    }

    fn duplicate(&self) -> Result<Rc<dyn Carrier>, LoggedError> {
        self.register(self.comm.dup()?)
    }

    fn split(&self, color: Option<u32>, key: i32) -> Created {
        self.created(self.comm.split(color, key)?)
    }

    fn split_shared(&self, key: i32) -> Created {
        self.created(self.comm.split_shared(key)?)
    }

    fn create(&self, ranks: &[u32]) -> Created {
        self.created(self.comm.create(ranks)?)
    }

    fn create_group(&self, ranks: &[u32], tag: i32) -> Created {
        self.created(self.comm.create_group(ranks, tag)?)
    }

    fn create_grid(&self, dims: &[u32], periods: &[bool], may_reorder: bool) -> Created {
        self.created(self.comm.cart_create(dims, periods, may_reorder)?)
    }

    fn place_in(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError> {
        Ok(self.comm.cart_map(dims, periods)?)
    }

    fn layout(&self) -> Result<CartesianLayout, LoggedError> {
        Ok(self.comm.cart_get()?)
    }

    fn rank_at(&self, coords: &[i32]) -> Result<u32, LoggedError> {
        Ok(self.comm.cart_rank(coords)?)
    }

    fn coords_of(&self, rank: u32, dims: usize) -> Result<Vec<u32>, LoggedError> {
        Ok(self.comm.cart_coords(rank, dims)?)
    }

    fn shift(&self, dimension: usize, by: i32) -> Result<(Option<u32>, Option<u32>), LoggedError> {
        Ok(self.comm.cart_shift(dimension as u32, by)?)
    }

    fn sub_grid(&self, retain: &[bool]) -> Created {
        self.created(self.comm.cart_sub(retain)?)
    }

    fn send_while(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
        work: &mut dyn FnMut(),
    ) -> Result<(), LoggedError> {
        let stream = self.stream(to, tag)?;
        // The record is written while the message is in transit. The engine is not borrowed during the wait, so that
        // control messages are answered.
        self.comm.send_within(mode, bytes, to, tag, |begin| {
            self.engine.borrow_mut().send(stream, bytes, |record| {
                begin()?;
                record();
                Ok(())
            })?;
            work();
            Ok(())
        })
    }

    fn begin_send(
        &self,
        mode: Mode,
        bytes: &[u8],
        to: u32,
        tag: i32,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        self.engine.borrow_mut().send(self.stream(to, tag)?, bytes, |record| {
            let operation = self.comm.begin_send(mode, bytes.to_vec(), to, tag)?;
            record();
            Ok(Box::new(operation) as Box<dyn ImmediateOperation>)
        })
    }

    fn receive(&self, bytes: &mut [u8], source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError> {
        let Completion { envelope, result } = self.comm.receive(bytes, source, tag)?;
        let envelope = envelope.ok_or(LoggedError::Cancelled)?;
        let is_open = source.is_none() || tag.is_none();
        if let Some(posted) = self.post(Some(envelope.source), Some(envelope.tag)) {
            self.end_receive(posted, Some(envelope), is_open)?;
        }
        result?;
        Ok(envelope)
    }

    fn begin_receive(
        &self,
        len: usize,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        Ok(Box::new(self.comm.irecv(len, source, tag)?))
    }

    unsafe fn begin_receive_into(
        &self,
        memory: *mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Box<dyn ImmediateOperation>, LoggedError> {
        // SAFETY: the caller's promise.
        Ok(Box::new(unsafe { self.comm.irecv_into(memory, source, tag)? }))
    }

    fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, LoggedError> {
        let envelope = self.comm.probe(source, tag)?;
        self.handle_probe(source, tag, Some(envelope))?;
        Ok(envelope)
    }

    fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, LoggedError> {
        let envelope = self.comm.immediate_probe(source, tag)?;
        self.handle_probe(source, tag, envelope)?;
        Ok(envelope)
    }

    fn matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Probed, LoggedError> {
        let matched = self.comm.mprobe(source, tag)?;
        let envelope = envelope_of(&matched);
        self.handle_probe(source, tag, Some(envelope))?;
        Ok((Box::new(matched), envelope))
    }

    fn immediate_matched_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Probed>, LoggedError> {
        let matched = self.comm.improbe(source, tag)?;
        let envelope = matched.as_ref().map(envelope_of);
        self.handle_probe(source, tag, envelope)?;
        Ok(matched.map(|matched| Box::new(matched) as Box<dyn MatchedMessage>).zip(envelope))
    }

    fn complete_any(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<(usize, Outcome)>, OperationError> {
        let found = completion::any(&of_one_carrier(operations)?, wait)?;
        Ok(found.map(|(index, completion)| (index, completion.convert())))
    }

    fn complete_some(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Vec<(usize, Outcome)>, OperationError> {
        let found = completion::some(&of_one_carrier(operations)?, wait)?;
        Ok(found.into_iter().map(|(index, completion)| (index, completion.convert())).collect())
    }

    fn complete_all(
        &self,
        operations: &[&dyn ImmediateOperation],
        wait: bool,
    ) -> Result<Option<Vec<Option<Outcome>>>, OperationError> {
        let completed = completion::all(&of_one_carrier(operations)?, wait)?;
        let converted = |completed: Vec<Option<Completion>>| {
            completed.into_iter().map(|completion| completion.map(Completion::convert)).collect()
        };
        Ok(completed.map(converted))
    }

    fn run(&self, ready: Ready<'_>) -> Result<(), LoggedError> {
        // A synchronising operation ends on no rank before all ranks have begun it.
        let synchronises = ready.synchronises();
        self.contribute(ready, |ready| ready.run_on(&self.comm))?;
        self.engine.borrow_mut().collective_ended(self.id, synchronises)
    }

    unsafe fn begin(&self, ready: Ready<'_>) -> Result<(Box<dyn ImmediateOperation>, u64), LoggedError> {
        // SAFETY: the caller's promise.
        let (operation, number) = self.contribute(ready, |ready| unsafe { ready.begin_on(&self.comm) })?;
        self.engine.borrow_mut().collective_started(self.id, number)?;
        Ok((Box::new(operation), number))
    }

    fn collective_waited(&self, number: u64) {
        self.engine.borrow_mut().collective_waited(self.id, number);
    }

    fn post(&self, source: Option<u32>, tag: Option<i32>) -> Option<PostedReceive> {
        self.engine.borrow_mut().post(self.id, source, tag)
    }

    fn end_receive(&self, posted: PostedReceive, received: Option<Envelope>, is_open: bool) -> Result<(), LoggedError> {
        let source = received.filter(|_| is_open).map(|envelope| self.world_rank(envelope.source)).transpose()?;
        self.engine.borrow_mut().end_receive(self.id, posted, received, source)
    }

    fn record(&self, determinant: Determinant) {
        self.engine.borrow_mut().record(determinant);
    }

    fn count_failed_poll(&self) {
        self.engine.borrow_mut().count_failed_poll();
    }

    fn note_activity(&self) {
        self.engine.borrow_mut().note_activity();
    }
}
