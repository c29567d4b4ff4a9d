//! Collective operations on bytes, and reductions. All ranks of a communicator call each of them, in the same order.

mod call;

use std::ffi::c_int;
use std::marker::PhantomData;

use mpi_sys as ffi;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::comm::Comm;
use crate::error::{MpiError, count};
use crate::operation::Operation;
use crate::request::Borrowed;

/// A reduction over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Everybody gets it.
    All,
    /// This rank gets it.
    To(u32),
    /// Every rank gets its part of it.
    Scattered,
    /// Every rank gets that of the ranks up to itself.
    UpToSelf,
    /// Every rank gets that of the ranks before itself; rank 0 gets nothing.
    BeforeSelf,
}

/// What ranks do together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Barrier,
    Broadcast { root: u32 },
    Gather { root: u32, in_parts: bool },
    Scatter { root: u32, in_parts: bool },
    AllGather,
    AllToAll,
    Reduce(Reduction, Elements),
}

/// What a reduction needs to know of its elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    operation: ffi::MPI_Op,
    datatype: ffi::MPI_Datatype,
    /// Of each.
    bytes: usize,
}

impl Elements {
    pub(crate) fn of<T>(operation: impl Operation<T>) -> Elements {
        let (operation, datatype) = operation.raw();
        Elements { operation, datatype, bytes: size_of::<T>().max(1) }
    }
}

/// Parts of some bytes, one for each rank.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    lens: Vec<c_int>,
    /// Where each begins.
    places: Vec<c_int>,
}

impl Parts {
    /// Of elements of `element` bytes.
    pub(crate) fn new(element: usize, counts: &[usize], places: &[usize]) -> Result<Parts, MpiError> {
        let bytes = |count: &usize| count_of_parts(count.saturating_mul(element));
        let lens = counts.iter().map(bytes).collect::<Result<_, _>>()?;
        Ok(Parts { lens, places: places.iter().map(bytes).collect::<Result<_, _>>()? })
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        self.places.iter().zip(&self.lens).map(|(place, len)| (*place as usize, *len as usize))
    }
}

fn count_of_parts(len: usize) -> Result<c_int, MpiError> {
    count("parts of a collective operation", len)
}

/// What a rank gives to an operation.
#[derive(Debug)]
pub(crate) struct Outgoing<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) parts: Option<Parts>,
}

impl<'b> Outgoing<'b> {
    pub(crate) const NOTHING: Outgoing<'static> = Outgoing { bytes: &[], parts: None };

    pub(crate) fn of<S: IntoBytes + Immutable + ?Sized>(send: &'b S) -> Outgoing<'b> {
        Outgoing { bytes: send.as_bytes(), parts: None }
    }
}

/// An operation whose memory fits, about to begin.
#[derive(Debug)]
pub(crate) struct Ready<'c, 'b, B: ?Sized> {
    comm: &'c Comm,
    what: What,
    rank: u32,
    /// Bytes that are read.
    from: (*const u8, usize),
    from_parts: Option<Parts>,
    /// Bytes that are written; of a broadcast, also read.
    into: (*mut u8, usize),
    into_parts: Option<Parts>,
    memory: *mut B,
    _memory: PhantomData<(&'b [u8], &'b mut B)>,
}

impl Comm {
    /// An operation in which this rank gets nothing.
    pub(crate) fn ready<'b>(&self, what: What, send: Outgoing<'b>) -> Result<Ready<'_, 'b, ()>, MpiError> {
        let memory = std::ptr::NonNull::<()>::dangling().as_ptr();
        self.ready_with(what, send, memory, (memory.cast(), 0), None)
    }

    /// An operation in which this rank gets what `memory` is for.
    pub(crate) fn ready_into<'b, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        what: What,
        send: Outgoing<'b>,
        memory: &'b mut B,
        parts: Option<Parts>,
    ) -> Result<Ready<'_, 'b, B>, MpiError> {
        let memory: *mut B = memory;
        // SAFETY: borrowed for `'b`, and used by nobody else from here on: the bytes are derived from the pointer that is kept.
        let bytes = unsafe { (*memory).as_mut_bytes() };
        let into = (bytes.as_mut_ptr(), bytes.len());
        self.ready_with(what, send, memory, into, parts)
    }

    fn ready_with<'b, B: ?Sized>(
        &self,
        what: What,
        send: Outgoing<'b>,
        memory: *mut B,
        into: (*mut u8, usize),
        into_parts: Option<Parts>,
    ) -> Result<Ready<'_, 'b, B>, MpiError> {
        let from = (send.bytes.as_ptr(), send.bytes.len());
        let (rank, from_parts) = (self.rank()?, send.parts);
        let ready = Ready { comm: self, what, rank, from, from_parts, into, into_parts, memory, _memory: PhantomData };
        ready.fits()?;
        Ok(ready)
    }

    /// Gives every rank what each rank has in `send`, one behind the other.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if `receive` isn't as long as that.
    pub fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        self.ready_into(What::AllGather, Outgoing::of(send), receive, None)?.now()
    }

    /// Gives each rank its part of `send`, and collects from each in `receive`: as many parts of the same length as there are ranks.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if the two aren't as long as each other, or can't be cut so.
    pub fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        self.ready_into(What::AllToAll, Outgoing::of(send), receive, None)?.now()
    }

    /// Reduces what the ranks have in `send`, element by element, into `receive` of every rank.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if the two aren't as long as each other.
    pub(crate) fn all_reduce<T>(
        &self,
        operation: impl Operation<T>,
        send: &[T],
        receive: &mut [T],
    ) -> Result<(), MpiError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let what = What::Reduce(Reduction::All, Elements::of(operation));
        self.ready_into(what, Outgoing::of(send), receive, None)?.now()
    }

    /// Begins to wait for all ranks.
    pub(crate) fn immediate_barrier(&self) -> Result<Borrowed<'static, ()>, MpiError> {
        self.ready(What::Barrier, Outgoing::NOTHING)?.begin()
    }
}

impl<'b, B: ?Sized> Ready<'_, 'b, B> {
    /// Whether all that MPI will read and write is there, by what this rank knows.
    fn fits(&self) -> Result<(), MpiError> {
        let (call, rank, ranks) = (self.name(), self.rank as usize, self.comm.size()? as usize);
        let (from, into) = (self.from.1, self.into.1);
        count(call, from)?;
        count(call, into)?;
        let is = |len: usize, needed: usize| {
            if len == needed { Ok(()) } else { Err(MpiError::Length { call, len, needed }) }
        };
        for (parts, len) in [(&self.from_parts, from), (&self.into_parts, into)] {
            let Some(parts) = parts else { continue };
            if parts.lens.len() != ranks || parts.places.len() != ranks {
                return Err(MpiError::Parts { call, parts: parts.lens.len(), ranks });
            }
            if let Some((place, part)) = parts.each().find(|(place, part)| place + part > len) {
                return Err(MpiError::Length { call, len, needed: place + part });
            }
        }
        let part = |parts: &Parts| parts.lens.get(rank).map_or(0, |len| *len as usize);
        match (self.what, &self.from_parts, &self.into_parts) {
            (What::Barrier | What::Broadcast { .. }, ..) => Ok(()),
            (What::Gather { root, .. } | What::Scatter { root, .. }, ..) if root != self.rank => Ok(()),
            (What::Gather { in_parts: true, .. } | What::AllGather, _, Some(parts)) => is(from, part(parts)),
            (What::Gather { in_parts: false, .. } | What::AllGather, _, None) => is(into, from * ranks),
            (What::Scatter { in_parts: true, .. }, Some(parts), _) => is(into, part(parts)),
            (What::Scatter { in_parts: false, .. }, None, _) => is(from, into * ranks),
            (What::AllToAll, Some(sent), Some(received)) => is(part(received), part(sent)),
            (What::AllToAll, None, None) => is(into, from).and(is(from, from / ranks * ranks)),
            // All ranks give and get parts, or nobody does.
            (What::Gather { .. } | What::Scatter { .. } | What::AllToAll, ..) => {
                Err(MpiError::Parts { call, parts: 0, ranks })
            }
            (What::Reduce(Reduction::To(root), _), ..) if root != self.rank => Ok(()),
            (What::Reduce(Reduction::Scattered, _), ..) => is(from, into * ranks),
            (What::Reduce(..), ..) => is(into, from),
        }
    }

    fn name(&self) -> &'static str {
        match self.what {
            What::Barrier => "MPI_Barrier",
            What::Broadcast { .. } => "MPI_Bcast",
            What::Gather { .. } => "MPI_Gather",
            What::Scatter { .. } => "MPI_Scatter",
            What::AllGather => "MPI_Allgather",
            What::AllToAll => "MPI_Alltoall",
            What::Reduce(Reduction::All, _) => "MPI_Allreduce",
            What::Reduce(Reduction::To(_), _) => "MPI_Reduce",
            What::Reduce(Reduction::Scattered, _) => "MPI_Reduce_scatter_block",
            What::Reduce(Reduction::UpToSelf, _) => "MPI_Scan",
            What::Reduce(Reduction::BeforeSelf, _) => "MPI_Exscan",
        }
    }

    /// What this rank gives, in the order of the ranks who get it; `None` where it gives nothing. Its own part of what the root gets comes
    /// from its own repetition.
    pub(crate) fn gives(&self) -> Option<Vec<&[u8]>> {
        let (at, len) = match self.what {
            What::Broadcast { .. } => (self.into.0.cast_const(), self.into.1),
            _ => self.from,
        };
        let gives = match self.what {
            What::Barrier => false,
            What::Broadcast { root } | What::Scatter { root, .. } => root == self.rank,
            What::Gather { root, .. } | What::Reduce(Reduction::To(root), _) => root != self.rank,
            What::AllGather | What::AllToAll | What::Reduce(..) => true,
        };
        // SAFETY: `len` bytes that are borrowed for `'b`, which nobody writes while `self` is borrowed.
        let bytes = unsafe { std::slice::from_raw_parts(at, len) };
        let pieces = match &self.from_parts {
            Some(parts) => parts.each().map(|(place, len)| &bytes[place..place + len]).collect(),
            None => vec![bytes],
        };
        gives.then_some(pieces)
    }

    /// Whether no rank ends it before all have begun it.
    pub(crate) fn synchronises(&self) -> bool {
        match self.what {
            What::Barrier => true,
            What::AllGather | What::AllToAll => self.into_parts.is_none() && self.into.1 > 0,
            What::Reduce(Reduction::All | Reduction::Scattered, _) => self.into.1 > 0,
            _ => false,
        }
    }
}
