//! The collective operations made of messages, for ranks that recover.
//!
//! A rank sends all that it contributes when it begins an operation. No other rank has to wait until this one waits, and a repetition of this
//! rank sends its messages in the same order. Barriers, broadcasts and reductions that block use the runtime's trees instead.

use std::rc::Rc;

use bytes::Bytes;
use counterfoil_runtime::collectives;
use counterfoil_runtime::communicator::{Communicator, Status};

use super::{Collective, Elements, Parts, Ready, Reduction};
use crate::error::{MpiError, OperationError};
use crate::recovering::{Completion, Context, EndpointOperation};
use crate::request::{Borrowed, Kind, LocalScope};

impl<'b, B: ?Sized> Ready<'b, B> {
    /// Carries the operation out.
    ///
    /// # Errors
    /// [`OperationError`].
    pub(crate) fn run_in(mut self, context: &Rc<Context>) -> Result<(), OperationError> {
        self.check_elements()?;
        let mut combined = Ok(());
        match self.operation.clone() {
            Collective::Barrier => context.with_view(|view| view.barrier())?,
            Collective::Broadcast(root) => {
                context.with_view(|view| collectives::bcast_values(view, root, self.memory()))?;
            }
            Collective::Reduce(Reduction::All, elements) => {
                let mut values = self.send.bytes.to_vec();
                context.with_view(|view| {
                    collectives::allreduce_bytes(view, &mut values, elements.combine_all(&mut combined))
                })?;
                combined?;
                self.memory().copy_from_slice(&values);
            }
            Collective::Reduce(Reduction::To(root), elements) => {
                let mut values = self.send.bytes.to_vec();
                context.with_view(|view| {
                    collectives::reduce_bytes(view, root, &mut values, elements.combine_all(&mut combined))
                })?;
                combined?;
                if root == self.rank {
                    self.memory().copy_from_slice(&values);
                }
            }
            // SAFETY: `self` has the borrows of the memory, and the operation has ended when the call returns.
            _ => unsafe { self.start_in(context)?.0.wait().result? },
        }
        Ok(())
    }

    /// Begins the operation, which ends before `scope` does.
    ///
    /// # Errors
    /// [`OperationError`].
    pub(crate) fn begin_in(
        self,
        context: &Rc<Context>,
        scope: &LocalScope<'b>,
    ) -> Result<Borrowed<'b, B>, OperationError> {
        // SAFETY: the scope, which ends before `'b`, ends the operation; the memory is given back once, after that.
        unsafe {
            let (operation, memory) = self.start_in(context)?;
            Ok(Borrowed::new(scope.register(operation), memory))
        }
    }

    /// Counts this rank's contribution, if it makes one.
    pub(crate) fn count_in(&self, context: &Context) {
        if self.contributes() {
            context.process.count_contribution();
        }
    }

    /// Sends this rank's contribution, and posts the receives of what it gets.
    ///
    /// # Safety
    /// The operation ends before `'b` does, and nothing else uses the memory before that.
    unsafe fn start_in(self, context: &Rc<Context>) -> Result<(EndpointOperation, *mut B), OperationError> {
        self.check_elements()?;
        let (rank, ranks, tag) = (self.rank, self.ranks, context.begin_collective());
        let peers = || (0..ranks).filter(|peer| *peer != rank);
        for to in peers().filter(|to| self.operation.has_message(rank, *to)) {
            context.with_view(|view| collectives::send_internal(view, to, tag, self.contribution_to(to)))?;
        }
        let own = self.operation.has_message(rank, rank);
        let own = own.then(|| (rank, Bytes::copy_from_slice(self.contribution_to(rank))));
        let sources: Vec<u32> = peers().filter(|from| self.operation.has_message(*from, rank)).collect();
        let requests = sources.iter().map(|from| context.post_internal(*from, tag)).collect::<Result<_, _>>()?;
        let (memory, name) = (self.receive.memory, self.name());
        let (at, len) = self.receive.bytes;
        let incoming = Contributions { operation: self.operation, name, ranks, parts: self.receive.parts };
        let handle = Box::new(move |messages: Vec<(Status, Bytes)>, _: &mut _| {
            let mut contributions: Vec<(u32, Bytes)> =
                sources.into_iter().zip(messages.into_iter().map(|one| one.1)).collect();
            contributions.extend(own);
            contributions.sort_by_key(|(from, _)| *from);
            // SAFETY: by the caller's promise, the memory is borrowed for this operation, which is not complete yet.
            let memory = unsafe { std::slice::from_raw_parts_mut(at, len) };
            Completion { envelope: None, result: incoming.store(&contributions, memory).map_err(MpiError::into) }
        });
        Ok((EndpointOperation::new(context, requests, Kind::Collective, handle), memory))
    }

    /// Returns what this rank contributes to the result of rank `to`.
    fn contribution_to(&self, to: u32) -> &[u8] {
        let (bytes, ranks) = (self.send.bytes, self.ranks as usize);
        if let Some(parts) = &self.send.parts {
            return parts.each().nth(to as usize).map_or(&[], |(at, len)| &bytes[at..at + len]);
        }
        match self.operation {
            Collective::Barrier => &[],
            Collective::Broadcast(_) => self.received(),
            Collective::Scatter(_) | Collective::AllToAll | Collective::Reduce(Reduction::Scattered, _) => {
                let len = bytes.len() / ranks;
                &bytes[to as usize * len..][..len]
            }
            _ => bytes,
        }
    }

    /// Returns the memory that this rank receives into.
    fn memory(&mut self) -> &mut [u8] {
        let (at, len) = self.receive.bytes;
        // SAFETY: borrowed mutably for `'b`, and accessed only through `self`, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }

    /// Checks that the operation is one for the elements.
    fn check_elements(&self) -> Result<(), MpiError> {
        match &self.operation {
            Collective::Reduce(_, elements) => elements.combine(&mut [], &[]),
            _ => Ok(()),
        }
    }
}

impl Ready<'static, ()> {
    /// Begins an operation that borrows nothing, or only static memory.
    ///
    /// # Errors
    /// [`OperationError`].
    pub(crate) fn begin_unscoped_in(self, context: &Rc<Context>) -> Result<Borrowed<'static, ()>, OperationError> {
        // SAFETY: `'static` never ends, and there is no memory to give back.
        unsafe {
            let (operation, memory) = self.start_in(context)?;
            Ok(Borrowed::new(Rc::new(operation.into()), memory))
        }
    }
}

impl Collective {
    /// Returns `true` if the result of rank `to` depends on what rank `from` contributes, except for the root of a broadcast.
    fn has_message(&self, from: u32, to: u32) -> bool {
        use Collective::*;

        match *self {
            Broadcast(root) => from == root && to != root,
            Scatter(root) | ScatterVarcount(root) => from == root,
            Gather(root) | GatherVarcount(root) | Reduce(Reduction::To(root), _) => to == root,
            Reduce(Reduction::UpToSelf, _) => from <= to,
            Reduce(Reduction::BeforeSelf, _) => from < to,
            Barrier | AllGather | AllGatherVarcount | AllToAll | AllToAllVarcount => true,
            Reduce(Reduction::All | Reduction::Scattered, _) => true,
        }
    }
}

/// What becomes of the contributions that a rank receives.
struct Contributions {
    operation: Collective,
    /// Name of the MPI function.
    name: &'static str,
    ranks: u32,
    parts: Option<Parts>,
}

impl Contributions {
    /// Stores the contributions, by rank, in `memory`.
    fn store(&self, contributions: &[(u32, Bytes)], memory: &mut [u8]) -> Result<(), MpiError> {
        use Collective::*;

        match &self.operation {
            Barrier => Ok(()),
            Reduce(_, elements) => {
                let Some(((_, first), others)) = contributions.split_first() else { return Ok(()) };
                let mut combined = first.to_vec();
                for (_, other) in others {
                    self.check_len(other.len(), combined.len())?;
                    elements.combine(&mut combined, other)?;
                }
                self.copy(&combined, memory)
            }
            Broadcast(_) | Scatter(_) | ScatterVarcount(_) => {
                contributions.iter().try_for_each(|(_, bytes)| self.copy(bytes, memory))
            }
            Gather(_) | GatherVarcount(_) | AllGather | AllGatherVarcount | AllToAll | AllToAllVarcount => {
                let part = memory.len() / self.ranks as usize;
                for (from, bytes) in contributions {
                    let from = *from as usize;
                    let place = self.parts.as_ref().map_or(Some((from * part, part)), |parts| parts.each().nth(from));
                    let (at, len) = place.unwrap_or_default();
                    self.copy(bytes, &mut memory[at..at + len])?;
                }
                Ok(())
            }
        }
    }

    fn copy(&self, bytes: &[u8], into: &mut [u8]) -> Result<(), MpiError> {
        self.check_len(bytes.len(), into.len())?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn check_len(&self, len: usize, needed: usize) -> Result<(), MpiError> {
        if len == needed { Ok(()) } else { Err(MpiError::Length { call: self.name, len, needed }) }
    }
}

impl Elements {
    /// Returns a function that combines, as [`combine`](Self::combine) does, and leaves the first error in `outcome`.
    fn combine_all(&self, outcome: &mut Result<(), MpiError>) -> impl FnMut(&mut [u8], &[u8]) {
        |lower, higher| {
            if outcome.is_ok() {
                *outcome = self.combine(lower, higher);
            }
        }
    }
}
