//! The collective operations, built on messages.
//!
//! A rank sends its whole contribution when it begins an operation, so no other rank waits until this one waits, and a
//! repetition sends the same messages in the same order. Results are combined in rank order, with the same bits in
//! every run. Blocking barriers, broadcasts and reductions use the runtime's trees instead.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands, until the call, or the request made by it, has ended.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi_core::arguments::Side;
use counterfoil_runtime::collectives;
use counterfoil_runtime::communicator::{Communicator, InternalTag, Request};
use mpi_sys as ffi;

use crate::Operation;
use crate::comms::{Comm, Edge};
use crate::failure::Failure;
use crate::front::Front;
use crate::memory::{Keep, Kept, Layout, Memory};
use crate::message::Collective;
use crate::reduction::{Combination, counterfoil_recover_op_null};
use crate::requests::{Finish, Pending, State};

unsafe extern "C" {
    static counterfoil_recover_in_place: *mut c_void;
    static counterfoil_recover_root: c_int;
}

/// An operation's root, as this rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// This rank.
    This,
    /// A peer.
    Peer(u32),
    /// In an intercommunicator: another rank in this one's group, and this one takes no part.
    Elsewhere,
}

/// A collective operation with all its arguments, which the program may reuse.
struct Described {
    operation: Operation,
    comm: Rc<Comm>,
    root: Root,
    /// Send memory: one part, or one for each destination.
    send: Vec<Kept>,
    /// Receive memory: one part, or one for each source.
    receive: Vec<Kept>,
    reducer: Option<Combination>,
    /// True if the contribution is in the result's memory.
    is_in_place: bool,
}

/// Returns `true` for `MPI_IN_PLACE`.
fn is_in_place(buf: *const c_void) -> bool {
    // SAFETY: a constant from this library's C file.
    buf == unsafe { counterfoil_recover_in_place }.cast_const()
}

/// Returns the memory of a side's `parts` parts.
///
/// # Safety
/// The side's arrays have that many parts.
unsafe fn parts_of(front: &Front, side: &Side, parts: usize, keep: Keep) -> Result<Vec<Kept>, Failure> {
    let mut kept = Vec::with_capacity(parts);
    let missing = || Failure::class(ffi::MPI_ERR_ARG);
    for part in 0..parts {
        // SAFETY: the caller's promise.
        let (count, datatype) = unsafe { (side.count(part).ok_or_else(missing)?, side.datatype(part)) };
        if count < 0 {
            return Err(Failure::class(ffi::MPI_ERR_COUNT));
        }
        let datatype = datatype.ok_or_else(|| Failure::class(ffi::MPI_ERR_TYPE))?;
        let extent = Layout::of(datatype)?.extent;
        // SAFETY: the caller's promise.
        let offset = unsafe { side.offset(part, extent) }.ok_or_else(missing)?;
        let at = side.buf.cast_mut().wrapping_byte_offset(offset);
        kept.push(keep.memory(Memory { at, count, datatype }, front.private)?);
    }
    Ok(kept)
}

impl Described {
    /// Describes a call's operation.
    ///
    /// # Safety
    /// The program's arguments.
    unsafe fn of(front: &Front, of: &Collective, keep: Keep) -> Result<Described, Failure> {
        let comm = front.comm(of.comm)?;
        let root = root_of(&comm, of.root)?;
        let mut described = Described {
            operation: of.operation,
            root,
            send: Vec::new(),
            receive: Vec::new(),
            reducer: None,
            is_in_place: of.send.as_ref().is_some_and(|side| is_in_place(side.buf)),
            comm,
        };
        let (sources, destinations) = described.numbers_of_parts();
        described.check_in_place(of)?;
        // A root receiving in place in a scatter gives no memory for it.
        let receive = of.receive.as_ref().filter(|side| !is_in_place(side.buf));
        described.is_in_place |= of.receive.is_some() && receive.is_none();
        let send = of.send.as_ref().filter(|side| !is_in_place(side.buf));
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(side) = receive {
                described.receive = parts_of(front, side, sources, keep)?;
            }
            if let Some(side) = send {
                described.send = parts_of(front, side, destinations, keep)?;
            }
        }
        if let Some(op) = of.op {
            // SAFETY: a constant from this library's C file.
            if op == unsafe { counterfoil_recover_op_null } {
                return Err(Failure::class(ffi::MPI_ERR_OP));
            }
            // The program's handle: the kept one may differ.
            // SAFETY: the caller's promise.
            let datatype = send.or(receive).and_then(|side| unsafe { side.datatype(0) });
            let datatype = datatype.unwrap_or_else(|| Memory::none().datatype);
            described.reducer = Some(Combination::new(front, op, datatype, keep)?);
        }
        Ok(described)
    }

    /// Checks that a rank contributing in place may do so.
    fn check_in_place(&self, of: &Collective) -> Result<(), Failure> {
        use Operation::*;

        let receives = of.receive.as_ref().is_some_and(|side| is_in_place(side.buf));
        let sends = of.send.as_ref().is_some_and(|side| is_in_place(side.buf));
        let is_root = self.root == Root::This;
        let may_receive = matches!(self.operation, Scatter | Scatterv) && is_root;
        let may_send = match self.operation {
            Scatter | Scatterv => !is_root,
            Gather | Gatherv | Reduce => is_root,
            _ => true,
        };
        let is_inter = self.comm.context.is_inter() && (receives || sends);
        if is_inter || (receives && !may_receive) || (sends && !may_send) {
            return Err(Failure::class(ffi::MPI_ERR_ARG));
        }
        Ok(())
    }

    /// Returns the numbers of receive and send parts, as far as this rank has to know them.
    fn numbers_of_parts(&self) -> (usize, usize) {
        use Operation::*;

        let (peers, is_root) = (self.comm.context.peers().len(), self.root == Root::This);
        let takes_part = self.root != Root::Elsewhere;
        let one = usize::from(takes_part);
        match self.operation {
            Barrier => (0, 0),
            Bcast => (one, 0),
            Scatter | Scatterv => (usize::from(takes_part), if is_root { peers } else { 0 }),
            Gather | Gatherv => (if is_root { peers } else { 0 }, one),
            Reduce => (usize::from(is_root), one),
            Allgather | Allgatherv => (peers, 1),
            Alltoall | Alltoallv | Alltoallw => (peers, peers),
            Allreduce | Scan | Exscan => (1, 1),
            ReduceScatter | ReduceScatterBlock => {
                let members = self.comm.context.size() as usize;
                (members, members)
            }
            NeighborAllgather | NeighborAllgatherv => (self.comm.sources().len(), 1),
            NeighborAlltoall | NeighborAlltoallv | NeighborAlltoallw => {
                (self.comm.sources().len(), self.comm.destinations().len())
            }
        }
    }

    /// Returns this rank's number among the peers; `None` in an intercommunicator.
    fn own(&self) -> Option<u32> {
        (!self.comm.context.is_inter()).then(|| self.comm.context.rank())
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.own();
        (0..self.comm.context.peers().len() as u32).filter(move |peer| Some(*peer) != own)
    }

    /// Draws tags for the operation's messages.
    ///
    /// All ranks draw them in the same order: persistent operations when they are made, since each rank starts them in
    /// its own order.
    fn draw_tags(&self) -> Vec<InternalTag> {
        // A tag for each slot: two neighbours may be one rank, and in a grid its messages cross.
        let count = if self.is_of_neighbours() { self.comm.slots() } else { 1 };
        (0..count).map(|_| self.comm.context.begin_collective()).collect()
    }

    /// Begins the operation with its tags: sends this rank's contribution, and posts its receives.
    ///
    /// # Safety
    /// The program's memory, until the operation is complete.
    unsafe fn begin(self: &Rc<Self>, front: &Front, tags: &[InternalTag]) -> Result<Pending, Failure> {
        let comm = &self.comm;
        if self.is_of_neighbours() {
            // SAFETY: the caller's promise.
            return unsafe { self.begin_with_neighbours(front, tags) };
        }
        let tag = tags[0];
        let requests = self
            .sources()
            .into_iter()
            .map(|from| Ok(comm.context.post_internal(from, tag)?))
            .collect::<Result<Vec<Request>, Failure>>()?;
        let own = match self.own() {
            // SAFETY: the caller's promise.
            Some(own) if self.has_message(own, own) => Some(unsafe { self.contribution(front, own) }?),
            _ => None,
        };
        for to in self.receivers() {
            // SAFETY: the caller's promise.
            let message = unsafe { self.contribution(front, to) }?;
            send(comm, to, tag, &message)?;
        }
        let described = Rc::clone(self);
        let store = move |front: &Front, messages: &[Bytes]| {
            // SAFETY: the program's memory, owned by the operation until now.
            unsafe { described.store(front, messages, own) }
        };
        Ok(Pending { requests, finish: Finish::Collective(Box::new(store)) })
    }

    /// Returns the ranks sending a message to this one, ascending.
    fn sources(&self) -> Vec<u32> {
        self.others().filter(|from| self.has_message(*from, self.own().unwrap_or(u32::MAX))).collect()
    }

    /// Returns the ranks receiving a message from this one, ascending.
    fn receivers(&self) -> Vec<u32> {
        self.others().filter(|to| self.sends_to(*to)).collect()
    }

    /// Returns `true` if this rank's result depends on the contribution of `from`.
    ///
    /// `to` is this rank, or `u32::MAX` in an intercommunicator.
    fn has_message(&self, from: u32, to: u32) -> bool {
        use Operation::*;

        match self.operation {
            Bcast | Scatter | Scatterv => match self.root {
                // Its own part in a scatter.
                Root::This => from == to && self.operation != Bcast && !self.is_in_place,
                Root::Peer(root) => from == root,
                Root::Elsewhere => false,
            },
            Gather | Gatherv | Reduce => self.root == Root::This,
            Scan => from <= to,
            Exscan => from < to,
            _ => true,
        }
    }

    fn sends_to(&self, to: u32) -> bool {
        use Operation::*;

        let own = self.own().unwrap_or_default();
        match self.operation {
            Bcast | Scatter | Scatterv => self.root == Root::This,
            Gather | Gatherv | Reduce => self.root == Root::Peer(to),
            Scan | Exscan => to > own,
            _ => true,
        }
    }

    /// Returns this rank's contribution to a peer's result.
    ///
    /// # Safety
    /// The program's memory.
    unsafe fn contribution(&self, front: &Front, to: u32) -> Result<Bytes, Failure> {
        use Operation::*;

        let own = self.own().unwrap_or_default() as usize;
        let sent = if self.is_in_place { &self.receive } else { &self.send };
        let part = match self.operation {
            Barrier => return Ok(Bytes::new()),
            Bcast => self.receive.first(),
            Scatter | Scatterv => self.send.get(to as usize),
            Gather | Gatherv | Allgather | Allgatherv if self.is_in_place => self.receive.get(own),
            Alltoall | Alltoallv | Alltoallw => sent.get(to as usize),
            ReduceScatter | ReduceScatterBlock if !self.comm.context.is_inter() => sent.get(to as usize),
            ReduceScatter | ReduceScatterBlock => {
                // The other group has other parts: each of its ranks gets all.
                let mut all = Vec::new();
                for part in sent {
                    // SAFETY: the caller's promise.
                    all.extend_from_slice(&unsafe { part.memory.pack(front.private) }?);
                }
                return Ok(all.into());
            }
            _ => sent.first(),
        };
        let Some(part) = part else { return Ok(Bytes::new()) };
        // SAFETY: the caller's promise.
        Ok(Bytes::from(unsafe { part.memory.pack(front.private) }?.into_owned()))
    }

    /// Stores the sources' messages, and this rank's own part.
    ///
    /// # Safety
    /// The program's memory.
    unsafe fn store(&self, front: &Front, messages: &[Bytes], own: Option<Bytes>) -> Result<(), Failure> {
        use Operation::*;

        let mut parts: Vec<(u32, Bytes)> = self.sources().into_iter().zip(messages.iter().cloned()).collect();
        if let (Some(rank), Some(own)) = (self.own(), own) {
            parts.insert(parts.partition_point(|(from, _)| *from < rank), (rank, own));
        }
        if let Some(reducer) = &self.reducer {
            let is_split = matches!(self.operation, ReduceScatter | ReduceScatterBlock);
            let place = if is_split { self.comm.context.rank() as usize } else { 0 };
            let Some(kept) = self.receive.get(place) else { return Ok(()) };
            if is_split && self.comm.context.is_inter() {
                let before = self.receive[..place].iter().map(|part| part.memory.len()).sum::<Result<usize, _>>()?;
                let len = kept.memory.len()?;
                for (_, part) in &mut parts {
                    *part = part.slice(before.min(part.len())..(before + len).min(part.len()));
                }
            }
            let mut combined: Option<Vec<u8>> = None;
            for (_, part) in parts {
                match &mut combined {
                    None => combined = Some(part.to_vec()),
                    Some(lower) => reducer.combine(lower, &part, front.private)?,
                }
            }
            let Some(combined) = combined else { return Ok(()) };
            // A scattered reduction's result is at the beginning of the memory.
            let first = self.receive.first().map_or(kept.memory.at, |first| first.memory.at);
            // SAFETY: the caller's promise.
            return unsafe { Memory { at: first, ..kept.memory }.unpack(&combined, front.private) }.map(drop);
        }
        let is_of_root = matches!(self.operation, Bcast | Scatter | Scatterv);
        for (from, part) in parts {
            let place = if is_of_root { 0 } else { from as usize };
            let is_there = Some(from) == self.own() && self.is_in_place;
            if let Some(kept) = self.receive.get(place).filter(|_| !is_there) {
                // SAFETY: the caller's promise.
                unsafe { kept.memory.unpack_whole(&part, front.private) }?;
            }
        }
        Ok(())
    }

    fn is_of_neighbours(&self) -> bool {
        use Operation::*;
        matches!(
            self.operation,
            NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv | NeighborAlltoallw
        )
    }

    /// # Safety
    /// Same as [`begin`](Self::begin).
    unsafe fn begin_with_neighbours(self: &Rc<Self>, front: &Front, tags: &[InternalTag]) -> Result<Pending, Failure> {
        let comm = &self.comm;
        let (sources, destinations) = (comm.sources(), comm.destinations());
        if !comm.has_topology() {
            return Err(Failure::class(ffi::MPI_ERR_TOPOLOGY));
        }
        let mut requests = Vec::new();
        let mut places = Vec::new();
        for (place, Edge { peer, slot }) in sources.iter().enumerate() {
            if let Some(peer) = peer {
                requests.push(comm.context.post_internal(*peer, tags[*slot])?);
                places.push(place);
            }
        }
        for (place, Edge { peer, slot }) in destinations.iter().enumerate() {
            let part = if self.send.len() == 1 { self.send.first() } else { self.send.get(place) };
            if let (Some(peer), Some(part)) = (peer, part) {
                // SAFETY: the caller's promise.
                let message = unsafe { part.memory.pack(front.private) }?;
                send(comm, *peer, tags[*slot], &message)?;
            }
        }
        let described = Rc::clone(self);
        let store = move |front: &Front, messages: &[Bytes]| {
            for (place, message) in places.iter().zip(messages) {
                let Some(kept) = described.receive.get(*place) else { continue };
                // SAFETY: the program's memory, owned by the operation until now.
                unsafe { kept.memory.unpack_whole(message, front.private) }?;
            }
            Ok(())
        };
        Ok(Pending { requests, finish: Finish::Collective(Box::new(store)) })
    }

    /// Runs the operation to its end.
    ///
    /// # Safety
    /// The program's memory.
    unsafe fn run(self: &Rc<Self>, front: &Front) -> Result<(), Failure> {
        let context = &self.comm.context;
        let is_inter = context.is_inter();
        // SAFETY: the caller's promise, here and below.
        unsafe {
            match self.operation {
                Operation::Barrier if !is_inter => Ok(context.with_view(|view| view.barrier())?),
                Operation::Bcast if !is_inter => {
                    let Some(kept) = self.receive.first() else { return Ok(()) };
                    let (root, own) = match self.root {
                        Root::This => (context.rank(), kept.memory.pack(front.private)?),
                        Root::Peer(root) => (root, Default::default()),
                        Root::Elsewhere => return Ok(()),
                    };
                    let message = context.with_view(|view| collectives::bcast(view, root, &own))?;
                    if self.root == Root::This {
                        return Ok(());
                    }
                    kept.memory.unpack_whole(&message, front.private)
                }
                Operation::Allreduce | Operation::Reduce if !is_inter => self.reduce(front),
                _ => {
                    let pending = self.begin(front, &self.draw_tags())?;
                    Failure::check(front.complete(pending)?.code)
                }
            }
        }
    }

    /// Reduces over the runtime's tree.
    ///
    /// # Safety
    /// The program's memory.
    unsafe fn reduce(self: &Rc<Self>, front: &Front) -> Result<(), Failure> {
        let (context, rank) = (&self.comm.context, self.comm.context.rank());
        let Some(reducer) = &self.reducer else { return Ok(()) };
        let root = match self.root {
            Root::This if self.operation == Operation::Reduce => Some(rank),
            Root::Peer(root) => Some(root),
            _ => None,
        };
        let result = self.receive.first().filter(|_| root.is_none_or(|root| root == rank));
        // SAFETY: the caller's promise.
        let mut values = unsafe { self.contributed_values(front, result) }?;
        let mut combined = Ok(());
        let combine = |lower: &mut [u8], higher: &[u8]| {
            if combined.is_ok() {
                combined = reducer.combine(lower, higher, front.private);
            }
        };
        let bytes = values.bytes_mut();
        context.with_view(|view| match root {
            Some(root) => collectives::reduce_bytes(view, root, bytes, combine).map(drop),
            None => collectives::allreduce_bytes(view, bytes, reducer.layout.size, combine).map(drop),
        })?;
        combined?;
        match (result, values) {
            // SAFETY: the caller's promise.
            (Some(kept), Values::Copy(values)) => unsafe { kept.memory.unpack(&values, front.private) }.map(drop),
            _ => Ok(()),
        }
    }

    /// Returns this rank's contribution to a reduction, directly in the `result`'s memory if that has no gaps.
    ///
    /// # Safety
    /// The program's memory.
    unsafe fn contributed_values<'m>(&self, front: &Front, result: Option<&Kept>) -> Result<Values<'m>, Failure> {
        // SAFETY: the caller's promise.
        let place = result.map(|kept| unsafe { kept.memory.plain_bytes() }).transpose()?.flatten();
        let Some(place) = place else {
            // SAFETY: the caller's promise.
            return Ok(Values::Copy(unsafe { self.contribution(front, self.comm.context.rank()) }?.into()));
        };
        if let (false, Some(sent)) = (self.is_in_place, self.send.first()) {
            sent.memory.check(Layout::of(sent.memory.datatype)?)?;
            // SAFETY: a contribution has the result's datatype and number of elements. It may be the same memory in an
            // erroneous program.
            unsafe { std::ptr::copy(sent.memory.at.cast(), place.as_mut_ptr(), place.len()) };
        }
        Ok(Values::InPlace(place))
    }
}

/// Elements to combine.
enum Values<'m> {
    /// In the program's memory.
    InPlace(&'m mut [u8]),
    Copy(Vec<u8>),
}

impl Values<'_> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Values::InPlace(bytes) => bytes,
            Values::Copy(bytes) => bytes,
        }
    }
}

/// Sends a message in a collective operation.
fn send(comm: &Comm, to: u32, tag: InternalTag, message: &[u8]) -> Result<(), Failure> {
    Ok(comm.context.with_view(|view| collectives::send_internal(view, to, tag, message))?)
}

/// Returns an operation's root, as this rank sees it.
fn root_of(comm: &Comm, root: Option<c_int>) -> Result<Root, Failure> {
    let Some(root) = root else { return Ok(Root::This) };
    if comm.context.is_inter() {
        // SAFETY: constants from the shim and from this library's C file.
        let (this, elsewhere) = unsafe { (counterfoil_recover_root, ffi::RSMPI_PROC_NULL) };
        if root == this {
            return Ok(Root::This);
        }
        if root == elsewhere {
            return Ok(Root::Elsewhere);
        }
    }
    let peer = comm.peer(root).map_err(|_| Failure::class(ffi::MPI_ERR_ROOT))?;
    let is_this = !comm.context.is_inter() && peer == comm.context.rank();
    Ok(if is_this { Root::This } else { Root::Peer(peer) })
}

/// Implements call class `collective`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn collective(front: &Front, of: &Collective) -> Result<(), Failure> {
    // SAFETY: the program's arguments.
    unsafe { Rc::new(Described::of(front, of, Keep::InCall)?).run(front) }
}

/// Implements call class `collective_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn collective_immediate(
    front: &Front,
    of: &Collective,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's arguments.
    unsafe {
        let described = Rc::new(Described::of(front, of, Keep::UntilComplete)?);
        let pending = described.begin(front, &described.draw_tags())?;
        *request = front.add_request(of.comm, State::Pending(pending));
    }
    Ok(())
}

/// Implements call class `collective_persistent`.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Bcast_init")]
pub(crate) unsafe fn collective_persistent(
    front: &Front,
    of: &Collective,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's arguments.
    unsafe {
        let described = Rc::new(Described::of(front, of, Keep::UntilComplete)?);
        let tags = described.draw_tags();
        let begin = move |front: &Front| Ok(State::Pending(described.begin(front, &tags)?));
        *request = front.add_persistent(of.comm, Rc::new(begin));
    }
    Ok(())
}
