//! Collective operations made of messages, for recovering ranks.
//!
//! A rank sends all its contributions when it begins an operation. No other rank depends on this one's wait, and a
//! repetition of this rank sends its messages in the same order. Blocking barriers, broadcasts and reductions use the
//! runtime's trees instead.

use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi_core::collective::{Collective, Elements, Parts, Ready, Reduction};
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::request::Kind;
use counterfoil_runtime::collectives;
use counterfoil_runtime::communicator::{Communicator, Status};

use super::{Context, EndpointOperation};
use crate::error::{OperationError, Outcome};
use crate::immediate::ImmediateOperation;

/// Carries the operation out.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn run(mut ready: Ready<'_>, context: &Rc<Context>) -> Result<(), OperationError> {
    count_contribution(&ready, context);
    ready.check_elements()?;
    let mut combined = Ok(());
    match ready.operation().clone() {
        Collective::Barrier => context.with_view(|view| view.barrier())?,
        Collective::Broadcast(root) => {
            context.with_view(|view| collectives::bcast_values(view, root, memory(&mut ready)))?;
        }
        Collective::Reduce(Reduction::All, elements) => {
            let mut values = ready.sent().0.to_vec();
            context.with_view(|view| {
                let combine = combine_all(&elements, &mut combined);
                collectives::allreduce_bytes(view, &mut values, elements.element_bytes(), combine)
            })?;
            combined?;
            memory(&mut ready).copy_from_slice(&values);
        }
        Collective::Reduce(Reduction::To(root), elements) => {
            let mut values = ready.sent().0.to_vec();
            context.with_view(|view| {
                collectives::reduce_bytes(view, root, &mut values, combine_all(&elements, &mut combined))
            })?;
            combined?;
            if root == ready.rank() {
                memory(&mut ready).copy_from_slice(&values);
            }
        }
        // SAFETY: `ready` has the borrows of the memory, and the operation has ended when the call returns.
        _ => unsafe { start(ready, context)?.wait().result? },
    }
    Ok(())
}

/// Begins the operation.
///
/// # Errors
/// [`OperationError`].
///
/// # Safety
/// The memory stays borrowed until the operation is complete.
pub(crate) unsafe fn begin(ready: Ready<'_>, context: &Rc<Context>) -> Result<EndpointOperation, OperationError> {
    count_contribution(&ready, context);
    ready.check_elements()?;
    // SAFETY: the caller's promise.
    unsafe { start(ready, context) }
}

fn count_contribution(ready: &Ready<'_>, context: &Context) {
    if ready.contributes() {
        context.process.count_contribution();
    }
}

/// Sends this rank's contribution, and posts its receives.
///
/// # Safety
/// Same as [`begin`].
unsafe fn start(ready: Ready<'_>, context: &Rc<Context>) -> Result<EndpointOperation, OperationError> {
    let (rank, ranks, tag) = (ready.rank(), ready.ranks(), context.begin_collective());
    let operation = ready.operation().clone();
    let peers = || (0..ranks).filter(|peer| *peer != rank);
    for to in peers().filter(|to| has_message(&operation, rank, *to)) {
        context.with_view(|view| collectives::send_internal(view, to, tag, contribution_to(&ready, to)))?;
    }
    let own = has_message(&operation, rank, rank);
    let own = own.then(|| (rank, Bytes::copy_from_slice(contribution_to(&ready, rank))));
    let sources: Vec<u32> = peers().filter(|from| has_message(&operation, *from, rank)).collect();
    let requests = sources.iter().map(|from| context.post_internal(*from, tag)).collect::<Result<_, _>>()?;
    let (memory, parts) = ready.memory();
    let incoming = Contributions { operation, name: ready.name(), ranks, parts: parts.cloned() };
    let handle = Box::new(move |messages: Vec<(Status, Bytes)>, _: &mut _| {
        let mut contributions: Vec<(u32, Bytes)> =
            sources.into_iter().zip(messages.into_iter().map(|one| one.1)).collect();
        contributions.extend(own);
        contributions.sort_by_key(|(from, _)| *from);
        // SAFETY: by the caller's promise, the memory is borrowed for this operation, which is not complete yet.
        let memory = unsafe { &mut *memory };
        Outcome { envelope: None, result: incoming.store(&contributions, memory).map_err(MpiError::into) }
    });
    Ok(EndpointOperation::new(context, requests, Kind::Collective, handle))
}

/// Returns this rank's contribution to rank `to`'s result.
fn contribution_to<'r>(ready: &'r Ready<'_>, to: u32) -> &'r [u8] {
    let ((bytes, parts), ranks) = (ready.sent(), ready.ranks() as usize);
    if let Some(parts) = parts {
        return parts.each().nth(to as usize).map_or(&[], |(at, len)| &bytes[at..at + len]);
    }
    match ready.operation() {
        Collective::Barrier => &[],
        Collective::Broadcast(_) => ready.received(),
        Collective::Scatter(_) | Collective::AllToAll | Collective::Reduce(Reduction::Scattered, _) => {
            let len = bytes.len() / ranks;
            &bytes[to as usize * len..][..len]
        }
        _ => bytes,
    }
}

/// Returns this rank's receive memory.
fn memory<'r>(ready: &'r mut Ready<'_>) -> &'r mut [u8] {
    // SAFETY: `ready` borrows the memory mutably, it is accessed only through `ready`, and `ready` is borrowed mutably.
    unsafe { &mut *ready.memory().0 }
}

/// Returns `true` if rank `to`'s result depends on rank `from`'s contribution, except for a broadcast's root.
fn has_message(operation: &Collective, from: u32, to: u32) -> bool {
    use Collective::*;

    match *operation {
        Broadcast(root) => from == root && to != root,
        Scatter(root) | ScatterVarcount(root) => from == root,
        Gather(root) | GatherVarcount(root) | Reduce(Reduction::To(root), _) => to == root,
        Reduce(Reduction::UpToSelf, _) => from <= to,
        Reduce(Reduction::BeforeSelf, _) => from < to,
        Barrier | AllGather | AllGatherVarcount | AllToAll | AllToAllVarcount => true,
        Reduce(Reduction::All | Reduction::Scattered, _) => true,
    }
}

/// Returns a function that combines elements and leaves the first error in `outcome`.
fn combine_all(elements: &Elements, outcome: &mut Result<(), MpiError>) -> impl FnMut(&mut [u8], &[u8]) {
    |lower, higher| {
        if outcome.is_ok() {
            *outcome = elements.combine(lower, higher);
        }
    }
}

/// Handling of the contributions received by a rank.
struct Contributions {
    operation: Collective,
    /// MPI function name.
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
