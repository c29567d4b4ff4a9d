//! List of the ways that are compared.

use std::path::Path;
use std::rc::Rc;

use counterfoil_mpi::Universe;

use crate::logged::{Contiguous, Copy, Counted, Logged, Memory, SpikeError};
use crate::measure::Batch;
use crate::ways::{Interposed, Native, SecondMessage, StructType};

/// A way of sending, and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// The native calls, against themselves: the control.
    Native,
    /// One more function call, which does nothing.
    Interposed,
    /// Messages are counted within streams; nothing is logged.
    Counted,
    /// A header message of 16 bytes precedes the payload; nothing is logged.
    SecondMessage,
    /// A struct datatype joins 16 bytes and the payload; nothing is logged.
    StructType,
    /// 16 bytes and the payload are sent as one message from the log.
    Contiguous,
    /// Messages are counted and logged. The receiver acknowledges every `acks` messages; with `None`, the sender releases by itself.
    Logged { name: &'static str, copy: Copy, memory: Memory<'a>, acks: Option<u32> },
}

impl<'a> Kind<'a> {
    /// Returns all ways; those with a log in shared memory only if `dir` is given.
    pub(crate) fn every(dir: Option<&'a Path>) -> impl Iterator<Item = Kind<'a>> {
        let logged = |name, copy, acks| Kind::Logged { name, copy, memory: Memory::Volatile, acks };
        let unlogged =
            [Kind::Native, Kind::Interposed, Kind::Counted, Kind::SecondMessage, Kind::StructType, Kind::Contiguous];
        let volatile = [
            logged("copy before", Copy::Before, None),
            logged("copy after", Copy::After, None),
            logged("before + acks 16", Copy::Before, Some(16)),
            logged("before + acks 64", Copy::Before, Some(64)),
            logged("before + acks 256", Copy::Before, Some(256)),
            logged("after + acks 64", Copy::After, Some(64)),
        ];
        let shared = dir.into_iter().flat_map(|dir| {
            let memory = Memory::Shared(dir);
            [("shm before + acks 64", Copy::Before), ("shm after + acks 64", Copy::After)]
                .map(|(name, copy)| Kind::Logged { name, copy, memory, acks: Some(64) })
        });
        unlogged.into_iter().chain(volatile).chain(shared)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Interposed => "interposed",
            Kind::Counted => "counted",
            Kind::SecondMessage => "second message",
            Kind::StructType => "struct datatype",
            Kind::Contiguous => "contiguous",
            Kind::Logged { name, .. } => name,
        }
    }

    /// Sets the way up for messages of `size` bytes. Collective, because some ways duplicate the communicator.
    pub(crate) fn build(&self, universe: &Rc<Universe>, size: usize) -> Result<Box<dyn Batch>, SpikeError> {
        let world = universe.world();
        let rank = world.rank()?;
        Ok(match *self {
            Kind::Native => Box::new(Native(world)),
            Kind::Interposed => Box::new(Interposed(world)),
            Kind::Counted => Box::new(Counted::new(world)),
            Kind::SecondMessage => {
                let headers = world.dup()?;
                Box::new(SecondMessage::new(world, headers))
            }
            Kind::StructType => Box::new(StructType::new(world)),
            Kind::Contiguous => Box::new(Contiguous::new(world, rank, size)?),
            Kind::Logged { copy, memory, acks, .. } => {
                let acks = acks.map(|messages| Ok::<_, SpikeError>((world.dup()?, messages))).transpose()?;
                Box::new(Logged::new(world, rank, copy, memory, acks)?)
            }
        })
    }
}
