//! Collective operations on bytes, and reductions.
//!
//! All ranks of a communicator call them, in the same order.

mod call;

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use mpi_sys as ffi;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::comm::Comm;
use crate::error::{MpiError, count};
use crate::operation::{Operation, UserHandles};
use crate::reduction::Reducer;

/// Ranks receiving a reduction's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// All ranks receive the whole result.
    All,
    /// This rank receives the whole result.
    To(u32),
    /// Every rank receives its part of the result.
    Scattered,
    /// Every rank receives the result over ranks up to and including itself.
    UpToSelf,
    /// Every rank receives the result over ranks before itself; rank 0 receives nothing.
    BeforeSelf,
}

/// A collective operation.
///
/// Numbers are root ranks; the `Varcount` forms have parts with different lengths.
#[derive(Clone, Debug)]
pub enum Collective {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Broadcast(u32),
    /// `MPI_Gather`.
    Gather(u32),
    /// `MPI_Gatherv`.
    GatherVarcount(u32),
    /// `MPI_Scatter`.
    Scatter(u32),
    /// `MPI_Scatterv`.
    ScatterVarcount(u32),
    /// `MPI_Allgather`.
    AllGather,
    /// `MPI_Allgatherv`.
    AllGatherVarcount,
    /// `MPI_Alltoall`.
    AllToAll,
    /// `MPI_Alltoallv`.
    AllToAllVarcount,
    /// A reduction, with the ranks receiving its result.
    Reduce(Reduction, Elements),
}

/// A reduction's operation and elements.
#[derive(Clone, Debug)]
pub struct Elements {
    operation: ffi::MPI_Op,
    datatype: ffi::MPI_Datatype,
    /// Element size in bytes.
    bytes: usize,
    /// Keeps a program's operation for calls made after it was dropped.
    _handles: Option<Rc<UserHandles>>,
}

impl Elements {
    /// Returns a reduction's elements and operation.
    pub fn of<T>(of: impl Operation<T>) -> Elements {
        let (operation, datatype) = of.raw();
        Elements { operation, datatype, bytes: size_of::<T>().max(1), _handles: of.handles() }
    }

    /// Returns the element size in bytes.
    pub fn element_bytes(&self) -> usize {
        self.bytes
    }

    /// Combines as many elements of `lower` and `higher`, from lower and from higher ranks, in `lower`.
    ///
    /// # Errors
    /// [`MpiError`] if the operation is undefined for these elements.
    pub fn combine(&self, lower: &mut [u8], higher: &[u8]) -> Result<(), MpiError> {
        // SAFETY: the handles are valid: MPI's own, or kept by `_handles`. Elements have `self.bytes`, without gaps.
        unsafe { Reducer::new(self.operation, self.datatype)?.combine_dense(self.bytes, lower, higher) }
    }
}

/// Parts of a buffer, one for each rank: lengths and displacements in bytes.
#[derive(Clone, Debug)]
pub struct Parts {
    lens: Vec<c_int>,
    displacements: Vec<c_int>,
}

impl Parts {
    /// Converts `counts` and `displacements` in elements of `element` bytes.
    pub fn new(element: usize, counts: &[usize], displacements: &[usize]) -> Result<Parts, MpiError> {
        let bytes = |elements: &usize| count("parts of a collective operation", elements.saturating_mul(element));
        let lens = counts.iter().map(bytes).collect::<Result<_, _>>()?;
        Ok(Parts { lens, displacements: displacements.iter().map(bytes).collect::<Result<_, _>>()? })
    }

    /// Returns each part's displacement and length.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        self.displacements.iter().zip(&self.lens).map(|(at, len)| (*at as usize, *len as usize))
    }
}

/// Buffer that a rank sends.
#[derive(Debug)]
pub struct Outgoing<'b> {
    bytes: &'b [u8],
    parts: Option<Parts>,
}

impl<'b> Outgoing<'b> {
    /// No buffer.
    pub const NOTHING: Outgoing<'static> = Outgoing { bytes: &[], parts: None };

    /// Returns all of `send` as one buffer.
    pub fn of<S: IntoBytes + Immutable + ?Sized>(send: &'b S) -> Outgoing<'b> {
        Outgoing { bytes: send.as_bytes(), parts: None }
    }

    /// Returns `send` in parts.
    pub fn in_parts<S: IntoBytes + Immutable + ?Sized>(send: &'b S, parts: Parts) -> Outgoing<'b> {
        Outgoing { bytes: send.as_bytes(), parts: Some(parts) }
    }
}

/// Buffer that a rank receives into; for a broadcast, its root sends it.
#[derive(Debug)]
pub struct Incoming<'b, B: ?Sized = ()> {
    memory: *mut B,
    /// The bytes of `memory`.
    bytes: (*mut u8, usize),
    parts: Option<Parts>,
    _memory: PhantomData<&'b mut B>,
}

impl Incoming<'static> {
    /// No buffer.
    pub const NOTHING: Incoming<'static> = {
        let memory = NonNull::<()>::dangling().as_ptr();
        Incoming { memory, bytes: (memory.cast(), 0), parts: None, _memory: PhantomData }
    };
}

impl<'b, B: FromBytes + IntoBytes + ?Sized> Incoming<'b, B> {
    /// Returns all of `receive` as one buffer.
    pub fn of(receive: &'b mut B) -> Incoming<'b, B> {
        let memory: *mut B = receive;
        // SAFETY: borrowed for `'b`, and accessed only through `memory` from here on: the bytes are derived from that
        // pointer.
        let bytes = unsafe { (*memory).as_mut_bytes() };
        Incoming { memory, bytes: (bytes.as_mut_ptr(), bytes.len()), parts: None, _memory: PhantomData }
    }

    /// Returns `receive` in parts.
    pub fn in_parts(receive: &'b mut B, parts: Parts) -> Incoming<'b, B> {
        Incoming { parts: Some(parts), ..Incoming::of(receive) }
    }
}

impl<'b, B: ?Sized> Incoming<'b, B> {
    /// Returns the memory, borrowed for `'b`.
    pub fn memory(&self) -> *mut B {
        self.memory
    }

    /// Returns the same buffer without its memory's type.
    fn erased(self) -> Incoming<'b> {
        let Incoming { bytes, parts, .. } = self;
        Incoming { memory: bytes.0.cast(), bytes, parts, _memory: PhantomData }
    }
}

/// An operation with checked buffers, about to begin.
#[derive(Debug)]
pub struct Ready<'b> {
    operation: Collective,
    rank: u32,
    ranks: u32,
    send: Outgoing<'b>,
    receive: Incoming<'b>,
}

impl Comm {
    /// Prepares an operation.
    ///
    /// # Errors
    /// [`MpiError::Length`], [`MpiError::Parts`] or [`MpiError::TooLong`] if a buffer doesn't fit; [`MpiError::Call`].
    pub fn prepare<'b, B: ?Sized>(
        &self,
        operation: Collective,
        send: Outgoing<'b>,
        receive: Incoming<'b, B>,
    ) -> Result<Ready<'b>, MpiError> {
        Ready::new(operation, self.rank()?, self.size()?, send, receive)
    }

    /// Gathers every rank's `send` into every rank's `receive`, in rank order.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if `receive` isn't as long as all of them.
    pub fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        self.prepare(Collective::AllGather, Outgoing::of(send), Incoming::of(receive))?.run_on(self)
    }

    /// Sends each rank its part of `send`, and receives a part from each into `receive`.
    ///
    /// Both have one part per rank, all equally long.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if the two differ in length, or don't divide into such parts.
    pub fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), MpiError> {
        self.prepare(Collective::AllToAll, Outgoing::of(send), Incoming::of(receive))?.run_on(self)
    }

    /// Reduces all ranks' `send`, element by element, into every rank's `receive`.
    ///
    /// # Errors
    /// [`MpiError`]; [`MpiError::Length`] if the two differ in length.
    pub fn all_reduce<T>(&self, operation: impl Operation<T>, send: &[T], receive: &mut [T]) -> Result<(), MpiError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let reduce = Collective::Reduce(Reduction::All, Elements::of(operation));
        self.prepare(reduce, Outgoing::of(send), Incoming::of(receive))?.run_on(self)
    }
}

impl<'b> Ready<'b> {
    /// Checks the buffers of `rank` in a communicator with `ranks` ranks.
    pub fn new<B: ?Sized>(
        operation: Collective,
        rank: u32,
        ranks: u32,
        send: Outgoing<'b>,
        receive: Incoming<'b, B>,
    ) -> Result<Ready<'b>, MpiError> {
        let ready = Ready { operation, rank, ranks, send, receive: receive.erased() };
        ready.check_buffers()?;
        Ok(ready)
    }

    /// Returns the operation.
    pub fn operation(&self) -> &Collective {
        &self.operation
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the bytes that this rank sends, with their parts.
    pub fn sent(&self) -> (&'b [u8], Option<&Parts>) {
        (self.send.bytes, self.send.parts.as_ref())
    }

    /// Returns the memory that this rank receives into, with its parts.
    ///
    /// It is borrowed for `'b`.
    pub fn memory(&self) -> (*mut [u8], Option<&Parts>) {
        let (at, len) = self.receive.bytes;
        (std::ptr::slice_from_raw_parts_mut(at, len), self.receive.parts.as_ref())
    }

    /// Checks that the operation is defined for the elements.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn check_elements(&self) -> Result<(), MpiError> {
        match &self.operation {
            Collective::Reduce(_, elements) => elements.combine(&mut [], &[]),
            _ => Ok(()),
        }
    }

    /// Checks the buffers read and written by MPI, as far as this rank knows their lengths.
    fn check_buffers(&self) -> Result<(), MpiError> {
        use Collective::*;

        let (call, rank, ranks) = (self.name(), self.rank as usize, self.ranks as usize);
        let (sent, received) = (self.send.bytes.len(), self.receive.bytes.1);
        count(call, sent)?;
        count(call, received)?;
        let check_len = |len: usize, needed: usize| {
            if len == needed { Ok(()) } else { Err(MpiError::Length { call, len, needed }) }
        };
        for (parts, len) in [(&self.send.parts, sent), (&self.receive.parts, received)] {
            let Some(parts) = parts else { continue };
            if parts.lens.len() != ranks || parts.displacements.len() != ranks {
                return Err(MpiError::Parts { call, parts: parts.lens.len(), ranks });
            }
            if let Some((at, part)) = parts.each().find(|(at, part)| at + part > len) {
                return Err(MpiError::Length { call, len, needed: at + part });
            }
        }
        let part = |parts: &Parts| parts.lens.get(rank).map_or(0, |len| *len as usize);
        match (&self.operation, &self.send.parts, &self.receive.parts) {
            (Barrier | Broadcast(_), ..) => Ok(()),
            (Gather(root) | GatherVarcount(root) | Scatter(root) | ScatterVarcount(root), ..) if *root != self.rank => {
                Ok(())
            }
            (Gather(_) | AllGather, _, None) => check_len(received, sent * ranks),
            (GatherVarcount(_) | AllGatherVarcount, _, Some(parts)) => check_len(sent, part(parts)),
            (Scatter(_), None, _) => check_len(sent, received * ranks),
            (ScatterVarcount(_), Some(parts), _) => check_len(received, part(parts)),
            (AllToAll, None, None) => check_len(received, sent).and(check_len(sent, sent / ranks * ranks)),
            (AllToAllVarcount, Some(send), Some(receive)) => check_len(part(receive), part(send)),
            // The `Varcount` forms need parts, and the others must have none.
            (Gather(_) | GatherVarcount(_) | AllGather | AllGatherVarcount, ..)
            | (Scatter(_) | ScatterVarcount(_) | AllToAll | AllToAllVarcount, ..) => {
                Err(MpiError::Parts { call, parts: 0, ranks })
            }
            (Reduce(Reduction::To(root), _), ..) if *root != self.rank => Ok(()),
            (Reduce(Reduction::Scattered, _), ..) => check_len(sent, received * ranks),
            (Reduce(..), ..) => check_len(received, sent),
        }
    }

    /// Returns the MPI function's name.
    pub fn name(&self) -> &'static str {
        use Collective::*;

        match self.operation {
            Barrier => "MPI_Barrier",
            Broadcast(_) => "MPI_Bcast",
            Gather(_) => "MPI_Gather",
            GatherVarcount(_) => "MPI_Gatherv",
            Scatter(_) => "MPI_Scatter",
            ScatterVarcount(_) => "MPI_Scatterv",
            AllGather => "MPI_Allgather",
            AllGatherVarcount => "MPI_Allgatherv",
            AllToAll => "MPI_Alltoall",
            AllToAllVarcount => "MPI_Alltoallv",
            Reduce(Reduction::All, _) => "MPI_Allreduce",
            Reduce(Reduction::To(_), _) => "MPI_Reduce",
            Reduce(Reduction::Scattered, _) => "MPI_Reduce_scatter_block",
            Reduce(Reduction::UpToSelf, _) => "MPI_Scan",
            Reduce(Reduction::BeforeSelf, _) => "MPI_Exscan",
        }
    }

    /// Returns `true` if this rank contributes something.
    pub fn contributes(&self) -> bool {
        use Collective::*;

        match self.operation {
            Barrier => false,
            Broadcast(root) | Scatter(root) | ScatterVarcount(root) => root == self.rank,
            Gather(root) | GatherVarcount(root) | Reduce(Reduction::To(root), _) => root != self.rank,
            AllGather | AllGatherVarcount | AllToAll | AllToAllVarcount | Reduce(..) => true,
        }
    }

    /// Returns this rank's contribution, in the order of the receiving ranks; `None` if there is none.
    ///
    /// A root's part in its own result is excluded: a repetition of the root produces it again.
    pub fn contribution(&self) -> Option<Vec<&[u8]>> {
        if !self.contributes() {
            return None;
        }
        let bytes = match self.operation {
            Collective::Broadcast(_) => self.received(),
            _ => self.send.bytes,
        };
        Some(match &self.send.parts {
            Some(parts) => parts.each().map(|(at, len)| &bytes[at..at + len]).collect(),
            None => vec![bytes],
        })
    }

    /// Returns the bytes of this rank's receive memory.
    pub fn received(&self) -> &[u8] {
        let (at, len) = self.receive.bytes;
        // SAFETY: borrowed for `'b`, and nothing writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at.cast_const(), len) }
    }

    /// Returns `true` if the operation ends on no rank before all ranks have begun it.
    pub fn synchronises(&self) -> bool {
        use Collective::*;

        match self.operation {
            Barrier => true,
            AllGather | AllToAll | Reduce(Reduction::All | Reduction::Scattered, _) => self.receive.bytes.1 > 0,
            _ => false,
        }
    }
}
