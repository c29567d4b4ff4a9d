//! A recovering rank's communicator.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::error::check;
use counterfoil_mpi_core::point_to_point::Mode;
use counterfoil_mpi_core::request::Kind;
use counterfoil_mpi_core::topology::{CartesianLayout, CommunicatorRelation};
use counterfoil_runtime::communicator::{CallError, CollectiveSubstrate, Communicator, InternalTag, Request, Status};
use counterfoil_runtime::{Error, collectives};
use mpi_sys as ffi;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::grid::places;
use super::operation::envelope_of;
use super::{EndpointOperation, Grid, Recovering, SavedContext, View, taken};
use crate::error::{OperationError, Outcome};

/// Communicator description.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Number, the same on all its ranks and unique on each rank.
    pub(crate) number: u32,
    /// Ranks in the job, by rank in the communicator.
    pub(crate) members: Vec<u32>,
    /// Remote group's ranks in the job, for an intercommunicator.
    pub(crate) remote: Option<Vec<u32>>,
    pub(crate) grid: Option<Grid>,
}

/// A communicator.
#[derive(Debug)]
pub struct Context {
    pub(crate) process: Rc<Recovering>,
    description: Description,
    rank: u32,
    /// For each rank of the job, its rank among the [`peers`](Self::peers).
    ranks: FxHashMap<u32, u32>,
    /// Number of collective operations begun.
    collectives: Cell<u64>,
    name: RefCell<String>,
}

/// A rank's entry in an agreement on new communicators.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Entry {
    /// `None` for a rank without a new communicator.
    color: Option<u32>,
    key: i32,
    /// Lowest free number on the rank.
    free: u32,
}

impl Context {
    pub(super) fn new(process: Rc<Recovering>, saved: SavedContext) -> Context {
        let SavedContext { description, collectives, name } = saved;
        let peers = description.remote.as_ref().unwrap_or(&description.members);
        let ranks = peers.iter().copied().zip(0..).collect();
        let rank = description.members.iter().position(|member| *member == process.rank).unwrap_or_default() as u32;
        Context { process, description, rank, ranks, collectives: Cell::new(collectives), name: RefCell::new(name) }
    }

    pub(super) fn save(&self) -> SavedContext {
        SavedContext { description: self.description.clone(), collectives: self.collectives.get(), name: self.name() }
    }

    /// Continues after `collectives` collective operations.
    pub(super) fn resume(&self, collectives: u64) {
        self.collectives.set(collectives);
    }

    pub(crate) fn number(&self) -> u32 {
        self.description.number
    }

    /// Returns the ranks in the job, by rank in the communicator.
    pub fn members(&self) -> &[u32] {
        &self.description.members
    }

    /// Returns the peers' ranks in the job: the members, or an intercommunicator's remote group.
    pub fn peers(&self) -> &[u32] {
        self.description.remote.as_ref().unwrap_or(&self.description.members)
    }

    /// Returns `true` for an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.description.remote.is_some()
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of members.
    pub fn size(&self) -> u32 {
        self.members().len() as u32
    }

    pub(crate) fn name(&self) -> String {
        self.name.borrow().clone()
    }

    pub(crate) fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.borrow_mut());
    }

    /// Context number of the application's messages.
    pub(super) fn messages(&self) -> u32 {
        2 * self.number()
    }

    /// Context number of messages within collectives.
    pub(super) fn collectives(&self) -> u32 {
        2 * self.number() + 1
    }

    /// Counts a collective operation and returns its tag.
    pub fn begin_collective(&self) -> InternalTag {
        let sequence = self.collectives.get();
        self.collectives.set(sequence + 1);
        InternalTag::new(sequence)
    }

    pub(super) fn rank_in_job(&self, call: &'static str, rank: u32) -> Result<u32, CallError> {
        let no_such_rank = CallError::NoSuchRank { call, rank, size: self.peers().len() as u32 };
        self.peers().get(rank as usize).copied().ok_or(no_such_rank)
    }

    /// Translates a sender's rank in the job to its rank among the peers.
    pub fn rank_of(&self, rank: u32) -> u32 {
        self.ranks.get(&rank).copied().unwrap_or_default()
    }

    /// Runs calls on the runtime's communicator.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn with_view<T>(&self, run: impl FnOnce(&mut View<'_>) -> Result<T, Error>) -> Result<T, OperationError> {
        self.process.call(|endpoint| run(&mut View { endpoint, context: self }))
    }

    // Messages.

    /// Sends a message.
    ///
    /// The bytes may be reused when this returns.
    pub(crate) fn send(&self, mode: Mode, bytes: &[u8], to: u32, tag: i32) -> Result<(), OperationError> {
        match self.begin_send(mode, bytes, to, tag)? {
            Some(pending) => self.with_view(|view| view.wait(pending)).map(drop),
            None => Ok(()),
        }
    }

    /// Begins to send a message, and returns the request in synchronous mode.
    ///
    /// In the other modes the send is complete.
    pub fn begin_send(&self, mode: Mode, bytes: &[u8], to: u32, tag: i32) -> Result<Option<Request>, OperationError> {
        self.with_view(|view| match mode {
            Mode::Synchronous => view.issend(to, tag, bytes).map(Some),
            Mode::Standard | Mode::Buffered | Mode::Ready(_) => view.send(to, tag, bytes).map(|()| None),
        })
    }

    /// Posts the receive of a collective's message.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn post_internal(&self, source: u32, tag: InternalTag) -> Result<Request, OperationError> {
        self.with_view(|view| view.irecv_internal(source, tag))
    }

    fn post(&self, source: Option<u32>, tag: Option<i32>) -> Result<Request, OperationError> {
        self.with_view(|view| view.irecv(source, tag))
    }

    /// Waits for a receive.
    pub(crate) fn take(&self, request: Request, into: &mut [u8]) -> Result<Outcome, OperationError> {
        let (status, message) = self.with_view(|view| view.wait(request))?;
        Ok(taken(status, &message, into))
    }

    /// Receives a message into `into`.
    ///
    /// `None` is a wildcard.
    pub(crate) fn receive(
        &self,
        into: &mut [u8],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Outcome, OperationError> {
        let request = self.post(source, tag)?;
        self.take(request, into)
    }

    /// Begins to receive a message with at most `len` bytes, owned by the operation.
    pub(crate) fn begin_receive(
        self: &Rc<Self>,
        len: usize,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<EndpointOperation, OperationError> {
        let handle = Box::new(move |messages: Vec<(Status, Bytes)>, bytes: &mut Vec<u8>| {
            handle_one(&messages, |status, message| {
                bytes.resize(message.len().min(len), 0);
                taken(status, message, bytes)
            })
        });
        Ok(EndpointOperation::new(self, vec![self.post(source, tag)?], Kind::Receive, handle))
    }

    /// Begins to receive a message, passed to `handle`.
    pub(crate) fn begin_receive_by(
        self: &Rc<Self>,
        source: Option<u32>,
        tag: Option<i32>,
        handle: impl FnOnce(Status, &[u8]) -> Outcome + 'static,
    ) -> Result<EndpointOperation, OperationError> {
        Ok(self.operation_of(self.post(source, tag)?, handle))
    }

    /// Makes an operation from a receive; its message is passed to `handle`.
    pub(crate) fn operation_of(
        self: &Rc<Self>,
        request: Request,
        handle: impl FnOnce(Status, &[u8]) -> Outcome + 'static,
    ) -> EndpointOperation {
        let handle = Box::new(move |messages: Vec<(Status, Bytes)>, _: &mut _| handle_one(&messages, handle));
        EndpointOperation::new(self, vec![request], Kind::Receive, handle)
    }

    /// Waits for a message without receiving it.
    ///
    /// `None` is a wildcard.
    pub fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Envelope, OperationError> {
        Ok(envelope_of(self.with_view(|view| view.probe(source, tag))?))
    }

    /// Returns an arrived message's envelope, if any.
    pub fn immediate_probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Envelope>, OperationError> {
        Ok(self.with_view(|view| view.iprobe(source, tag))?.map(envelope_of))
    }

    /// Matches a probed message: no other call can receive it.
    pub fn match_probed(&self, found: Envelope) -> Result<Request, OperationError> {
        // It is the first one with its source and tag.
        self.post(Some(found.source), Some(found.tag))
    }

    /// Drops a matched message.
    pub(crate) fn discard_matched(&self, request: Request) {
        // Without an endpoint there is nothing to drop.
        let _ = self.with_view(|view| view.wait(request));
    }

    // Communicators.

    /// Sends a message of neither the program nor a collective operation, with a tag from 0.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn send_aside(&self, to: u32, tag: i32, bytes: &[u8]) -> Result<(), OperationError> {
        let (context, to) = (self.collectives(), self.rank_in_job("send_aside", to)?);
        self.process.call(|endpoint| {
            let sent = endpoint.isend_in(context, to, tag, bytes)?;
            endpoint.wait(sent).map(drop)
        })
    }

    /// Posts the receive for a message from [`send_aside`](Self::send_aside).
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn post_aside(&self, from: u32, tag: i32) -> Result<Request, OperationError> {
        let (context, from) = (self.collectives(), self.rank_in_job("post_aside", from)?);
        self.process.call(|endpoint| endpoint.irecv_in(context, Some(from), Some(tag)))
    }

    /// Returns all ranks' entries, by rank, and a new communicator's number.
    ///
    /// Collective.
    fn agree(&self, color: Option<u32>, key: i32) -> Result<(Vec<Entry>, u32), OperationError> {
        let own = Entry { color, key, free: self.process.next.get() };
        let entries: Vec<Entry> = self.with_view(|view| {
            let entries = collectives::allgather(view, &postcard::to_stdvec(&own)?)?;
            entries.iter().map(|entry| Ok(postcard::from_bytes(entry)?)).collect()
        })?;
        let number = self.take_number(entries.iter().map(|entry| entry.free));
        Ok((entries, number))
    }

    /// Returns the lowest free communicator number on this rank.
    pub fn free_number(&self) -> u32 {
        self.process.next.get()
    }

    /// Makes a communicator from these ranks in the job, including this one, with a number known to and
    /// [taken](Self::take_number) by all of them.
    ///
    /// `remote`: an intercommunicator's remote group.
    pub fn create_of_job(&self, number: u32, members: Vec<u32>, remote: Option<Vec<u32>>) -> Rc<Context> {
        self.process.add_new(Description { number, members, remote, grid: None })
    }

    /// Takes a new communicator's number: the highest of its ranks' free numbers.
    pub fn take_number(&self, free: impl Iterator<Item = u32>) -> u32 {
        let number = free.fold(self.process.next.get(), u32::max);
        self.process.next.set(number + 1);
        number
    }

    /// Adds a communicator from these ranks of this one; `None` if this rank isn't among them.
    fn create(&self, ranks: &[u32], number: u32, grid: Option<Grid>) -> Option<Rc<Context>> {
        let members: Vec<u32> = ranks.iter().map(|rank| self.members()[*rank as usize]).collect();
        let is_member = members.contains(&self.process.rank);
        is_member.then(|| self.process.add_new(Description { number, members, remote: None, grid }))
    }

    /// Creates a communicator from the ranks with the same `color`, ordered by `key`.
    ///
    /// Collective.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        grid: Option<Grid>,
    ) -> Result<Option<Rc<Context>>, OperationError> {
        let (entries, number) = self.agree(color, key)?;
        let mut ranks: Vec<u32> = (0..self.size()).filter(|rank| entries[*rank as usize].color == color).collect();
        ranks.sort_by_key(|rank| entries[*rank as usize].key);
        let ranks = if color.is_none() { Vec::new() } else { ranks };
        Ok(self.create(&ranks, number, grid))
    }

    /// Duplicates the communicator.
    ///
    /// Collective.
    pub fn duplicate(&self) -> Result<Rc<Context>, OperationError> {
        let (_, number) = self.agree(None, 0)?;
        Ok(self.process.add_new(Description { number, ..self.description.clone() }))
    }

    /// Creates a communicator from these ranks; `None` for any other rank.
    ///
    /// Collective: all ranks give the same ones, or disjoint ones.
    pub fn create_of(&self, ranks: &[u32]) -> Result<Option<Rc<Context>>, OperationError> {
        let (_, number) = self.agree(None, 0)?;
        Ok(self.create(ranks, number, None))
    }

    /// Same as [`create_of`](Self::create_of), collective over these ranks only.
    ///
    /// Concurrent calls have different tags, from 0.
    pub fn create_group(&self, ranks: &[u32], tag: i32) -> Result<Option<Rc<Context>>, OperationError> {
        CallError::check_tag("MPI_Comm_create_group", tag)?;
        let (context, own) = (self.collectives(), self.process.next.get());
        let others = || ranks.iter().copied().filter(|rank| *rank != self.rank);
        let peers =
            others().map(|rank| self.rank_in_job("MPI_Comm_create_group", rank)).collect::<Result<Vec<_>, _>>()?;
        // Tags of collectives are negative.
        let free = self.process.call(|endpoint| {
            for peer in &peers {
                let sent = endpoint.isend_in(context, *peer, tag, &own.to_le_bytes())?;
                endpoint.wait(sent)?;
            }
            let receive = |peer: &u32| -> Result<u32, Error> {
                let request = endpoint.irecv_in(context, Some(*peer), Some(tag))?;
                let (_, free) = endpoint.wait(request)?;
                Ok(<[u8; 4]>::try_from(&free[..]).map_or(0, u32::from_le_bytes))
            };
            peers.iter().map(receive).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(self.create(ranks, self.take_number(free.into_iter()), None))
    }

    /// Creates a communicator with a grid; `None` if the grid has no place for this rank.
    ///
    /// Collective.
    pub fn create_grid(&self, grid: Grid) -> Result<Option<Rc<Context>>, OperationError> {
        if places(&grid.dims) > u64::from(self.size()) || grid.dims.contains(&0) {
            check("MPI_Cart_create", ffi::MPI_ERR_DIMS as i32)?;
        }
        let color = self.place_in(&grid.dims).map(|_| 0);
        self.split(color, 0, Some(grid))
    }

    /// Returns this process's rank in a grid with these dimensions; `None` if the grid has no place for it.
    pub fn place_in(&self, dims: &[u32]) -> Option<u32> {
        Some(self.rank).filter(|rank| u64::from(*rank) < places(dims))
    }

    /// Returns the grid.
    pub(crate) fn grid(&self) -> Result<&Grid, OperationError> {
        if self.description.grid.is_none() {
            check("MPI_Cart_get", ffi::MPI_ERR_TOPOLOGY as i32)?;
        }
        self.description.grid.as_ref().ok_or(OperationError::Ended)
    }

    pub(crate) fn layout(&self) -> Result<CartesianLayout, OperationError> {
        let grid = self.grid()?;
        Ok(CartesianLayout {
            dims: grid.dims.clone(),
            periods: grid.periods.clone(),
            coords: grid.coords_of(self.rank),
        })
    }

    /// Splits the grid into subgrids with the dimensions marked in `retain`.
    ///
    /// Collective.
    pub fn sub_grid(&self, retain: &[bool]) -> Result<Option<Rc<Context>>, OperationError> {
        let (grid, number) = self.grid()?.sub(self.rank, retain);
        self.split(Some(number), 0, Some(grid))
    }

    pub(crate) fn compare(&self, other: &Context) -> CommunicatorRelation {
        let (own, others) = (self.members(), other.members());
        if self.number() == other.number() {
            CommunicatorRelation::Identical
        } else if own == others {
            CommunicatorRelation::Congruent
        } else if own.len() == others.len() && own.iter().all(|rank| other.ranks.contains_key(rank)) {
            CommunicatorRelation::Similar
        } else {
            CommunicatorRelation::Unequal
        }
    }
}

/// Passes an operation's only message to `handle`.
fn handle_one(messages: &[(Status, Bytes)], handle: impl FnOnce(Status, &[u8]) -> Outcome) -> Outcome {
    messages.first().map_or(Outcome::DONE, |(status, message)| handle(*status, message))
}
