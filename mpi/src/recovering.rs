//! A recovering rank and its communicators: messages and matching are the runtime's, over the MPI transport.
//!
//! | file | contents |
//! |---|---|
//! | `collective` | collective operations, made of messages |
//! | `context` | a communicator: its messages, and the communicators created from it |
//! | `grid` | Cartesian grids |
//! | `lull` | time in which a repeated test polls nothing |
//! | `operation` | a nonblocking operation |
//! | `transport` | its connections: over MPI, or in a replay to logs |
//! | `view` | a communicator as seen by the runtime's collectives |

pub(crate) mod collective;
mod context;
mod grid;
mod lull;
mod operation;
mod transport;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_runtime::communicator::{Communicator, FirstFailure};
use counterfoil_runtime::local;
use counterfoil_runtime::prologue::{Prologue, PrologueRecorder};
use counterfoil_runtime::replay::start_prologue;
use counterfoil_runtime::transport::TransportError;
use counterfoil_runtime::{Error, RankSettings, Tally};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::OperationError;
pub use context::Context;
pub(crate) use context::Description;
pub use grid::Grid;
use lull::Lull;
pub(crate) use operation::{EndpointOperation, StoreMessage, all, any, some, taken};
pub use transport::RankTransport;
pub use view::View;

/// A rank's endpoint.
pub type RankEndpoint = local::RankEndpoint<RankTransport>;

/// Number of the communicator with all ranks.
const WORLD: u32 = 0;
/// Number of the communicator with this rank alone.
const SELF: u32 = 1;

/// Bits of the rank, and of the count, in a communicator number chosen by one rank.
const LED_RANK_BITS: u32 = 12;
const LED_BITS: u32 = 18;

/// A communicator in a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedContext {
    description: Description,
    /// Number of collective operations begun.
    collectives: u64,
    name: String,
}

/// Beginning of a checkpoint, before the program's state.
#[derive(Serialize, Deserialize)]
struct SavedContexts {
    /// Next communicator's number.
    next: u32,
    contexts: Vec<SavedContext>,
}

/// Beginning of a checkpoint, for a program that restarts at its first line.
///
/// The prologue and the program's state follow.
#[derive(Serialize, Deserialize)]
struct SavedProgram {
    contexts: SavedContexts,
    /// Count of communicator numbers chosen by the rank.
    led: u32,
    /// Prologue length in bytes.
    prologue: u64,
}

/// Phase of a rank that keeps its prologue with its checkpoints.
#[derive(Default)]
enum ProloguePhase {
    /// Keeps no prologue, and takes no such checkpoint.
    #[default]
    None,
    /// In the prologue for the first time, or without a checkpoint: received messages are kept.
    Recorded,
    /// In the prologue once more: another endpoint goes on from the checkpoint after it.
    Repeated(Box<RankEndpoint>),
    /// After it.
    Over {
        /// The prologue; `None` if it was too long.
        kept: Option<Bytes>,
        /// Communicators at its end.
        contexts: BTreeSet<u32>,
    },
}

/// Reason for not taking a checkpoint of a program that restarts at its first line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The program has not ended its prologue, or its job keeps no prologues.
    #[error("the program has not called counterfoil_restarted")]
    NoPrologue,
    /// The prologue was too long to be kept.
    #[error("it received more than its budget has room for before it called counterfoil_restarted")]
    PrologueTooLong,
    /// Operations are under way.
    #[error("{open} requests are not complete")]
    RequestsOpen {
        /// Number of operations under way.
        open: usize,
    },
    /// A communicator exists that a replacement would lack.
    #[error("a communicator exists that was made after counterfoil_restarted")]
    MadeSince,
    /// The checkpoint can't be written.
    #[error(transparent)]
    Operation(#[from] OperationError),
}

/// This rank, shared by its communicators and their operations.
pub struct Recovering {
    /// `None` once the rank has ended.
    endpoint: RefCell<Option<RankEndpoint>>,
    failure: RefCell<FirstFailure>,
    rank: u32,
    /// Next communicator's number.
    next: Cell<u32>,
    /// Count of communicator numbers chosen by this rank.
    led: Cell<u32>,
    /// Communicators by number.
    ///
    /// They exist as long as the program has handles to them.
    contexts: RefCell<BTreeMap<u32, Weak<Context>>>,
    /// Communicators in the checkpoint this process restarted from; they exist up to its end.
    restored: RefCell<Vec<Rc<Context>>>,
    /// State in that checkpoint.
    state: Option<Bytes>,
    prologue: RefCell<ProloguePhase>,
    /// Number of collective operations with a contribution from this rank.
    contributions: Cell<u64>,
    lull: Lull,
    universe: Rc<Universe>,
}

impl Recovering {
    /// Begins with an endpoint, which may have restarted from a checkpoint.
    ///
    /// # Errors
    /// [`Error::Encode`] for a checkpoint from another kind of program.
    pub(crate) fn new(universe: &Rc<Universe>, mut endpoint: RankEndpoint) -> Result<Rc<Recovering>, Error> {
        let restored = endpoint.restore()?;
        let (saved, state) = match &restored {
            Some(bytes) => {
                let (saved, state) = postcard::take_from_bytes::<SavedContexts>(bytes)?;
                (saved, Some(bytes.slice_ref(state)))
            }
            None => (SavedContexts { next: SELF + 1, contexts: Vec::new() }, None),
        };
        let recovering = Rc::new(Recovering {
            rank: endpoint.rank(),
            endpoint: RefCell::new(Some(endpoint)),
            failure: RefCell::default(),
            next: Cell::new(saved.next),
            led: Cell::new(0),
            contexts: RefCell::default(),
            restored: RefCell::default(),
            state,
            prologue: RefCell::default(),
            contributions: Cell::new(0),
            lull: Lull::default(),
            universe: Rc::clone(universe),
        });
        let restored = saved.contexts.into_iter().map(|saved| recovering.add(saved)).collect();
        recovering.restored.replace(restored);
        Ok(recovering)
    }

    /// Begins with an endpoint, for a program that begins at its first line and ends its prologue with
    /// [`end_prologue`](Self::end_prologue).
    ///
    /// If there is a checkpoint, the program repeats its prologue first.
    ///
    /// # Errors
    /// [`Error`] if the checkpoint can't be used.
    pub(crate) fn with_prologue(
        universe: &Rc<Universe>,
        mut endpoint: RankEndpoint,
        settings: &RankSettings,
    ) -> Result<Rc<Recovering>, Error> {
        let Some(bytes) = endpoint.checkpointed_state().cloned() else {
            let recorder = PrologueRecorder::new(settings.ranks, settings.log_bytes_max);
            endpoint.transport_mut().record_prologue(recorder);
            let recovering = Recovering::new(universe, endpoint)?;
            recovering.prologue.replace(ProloguePhase::Recorded);
            return Ok(recovering);
        };
        let (_, prologue, _) = SavedProgram::split(&bytes)?;
        let prologue = Prologue::decode(prologue).map_err(|error| TransportError::Other(error.into()))?;
        let repeats = start_prologue((endpoint.rank(), settings), &prologue, RankTransport::from)?;
        let recovering = Recovering::new(universe, repeats)?;
        recovering.prologue.replace(ProloguePhase::Repeated(Box::new(endpoint)));
        Ok(recovering)
    }

    /// Ends the prologue.
    ///
    /// Returns the program's state in the checkpoint this rank continues from; `None` without one.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn end_prologue(self: &Rc<Self>) -> Result<Option<Bytes>, OperationError> {
        let contexts = || self.contexts.borrow().keys().copied().collect();
        match self.prologue.take() {
            ProloguePhase::Recorded => {
                let kept = self.call(|endpoint| {
                    let recorder = endpoint.transport_mut().end_prologue();
                    let entries = endpoint.local_entries()?;
                    Ok(recorder.map(|recorder| Bytes::from(recorder.end(entries).encode())))
                })?;
                self.prologue.replace(ProloguePhase::Over { kept, contexts: contexts() });
                Ok(None)
            }
            ProloguePhase::Repeated(mut endpoint) => {
                let bytes = endpoint.restore()?.unwrap_or_default();
                let (saved, prologue, state) = SavedProgram::split(&bytes)?;
                for SavedContext { description, collectives, .. } in saved.contexts.contexts {
                    if let Some(context) = self.communicator(description.number) {
                        context.resume(collectives);
                    }
                }
                self.next.set(saved.contexts.next);
                self.led.set(saved.led);
                self.endpoint.replace(Some(*endpoint));
                self.prologue.replace(ProloguePhase::Over { kept: Some(prologue), contexts: contexts() });
                Ok(Some(state))
            }
            other => {
                self.prologue.replace(other);
                Ok(None)
            }
        }
    }

    /// Returns the number of times the rank was replaced; 0 in a replay.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn incarnation(&self) -> Result<u32, OperationError> {
        match &mut *self.prologue.borrow_mut() {
            ProloguePhase::Repeated(endpoint) => Ok(endpoint.transport_mut().incarnation()),
            _ => self.call(|endpoint| Ok(endpoint.transport_mut().incarnation())),
        }
    }

    /// Returns `true` while the program repeats its prologue.
    pub fn repeats_prologue(&self) -> bool {
        matches!(&*self.prologue.borrow(), ProloguePhase::Repeated(_))
    }

    /// Saves the program's state as this rank's checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError`]; the previous checkpoint is unaffected.
    pub fn checkpoint_program(&self, state: &[u8]) -> Result<(), CheckpointError> {
        let phase = self.prologue.borrow();
        let ProloguePhase::Over { kept, contexts } = &*phase else { return Err(CheckpointError::NoPrologue) };
        let prologue = kept.as_ref().ok_or(CheckpointError::PrologueTooLong)?;
        let saved = self.saved_contexts();
        if saved.contexts.iter().any(|context| !contexts.contains(&context.description.number)) {
            return Err(CheckpointError::MadeSince);
        }
        let saved = SavedProgram { contexts: saved, led: self.led.get(), prologue: prologue.len() as u64 };
        let mut bytes = postcard::to_stdvec(&saved).map_err(|error| OperationError::from(Error::from(error)))?;
        bytes.extend_from_slice(prologue);
        bytes.extend_from_slice(state);
        match self.call(|endpoint| match endpoint.checkpoint(&bytes) {
            Err(Error::RequestsOpen { open }) => Ok(Err(CheckpointError::RequestsOpen { open })),
            other => other.map(|_| Ok(())),
        }) {
            Ok(checked) => checked,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the endpoint; `None` if that was done before.
    ///
    /// Calls on the communicators fail from here on.
    pub(crate) fn take_endpoint(&self) -> Option<RankEndpoint> {
        self.restored.take();
        let endpoint = self.endpoint.borrow_mut().take();
        match self.prologue.take() {
            ProloguePhase::Repeated(endpoint) => Some(*endpoint),
            _ => endpoint,
        }
    }

    /// Returns the MPI of the rank's process.
    pub fn universe(&self) -> &Rc<Universe> {
        &self.universe
    }

    /// Runs a call on the endpoint; none after a permanently failed one.
    ///
    /// A program's actions while it ends, such as cancelling dropped receives, are no outcome for a repeated execution.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn call<T>(&self, call: impl FnOnce(&mut RankEndpoint) -> Result<T, Error>) -> Result<T, OperationError> {
        self.lull.note_call();
        let mut endpoint = self.endpoint.borrow_mut();
        let endpoint = endpoint.as_mut().ok_or(OperationError::Ended)?;
        self.check_calls()?;
        let called = call(endpoint);
        self.failure.borrow_mut().note(&called);
        Ok(called?)
    }

    /// Records that the last [`call`](Self::call) was a test or a probe that found nothing.
    pub fn note_nothing_found(&self) {
        self.lull.begin();
    }

    /// Repeats that test or probe without a poll, as far as the record is concerned: it finds nothing again.
    ///
    /// Returns `false` if the call itself has to be made, since a poll is due.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn repeat_nothing_found(&self) -> Result<bool, OperationError> {
        if !self.lull.goes_on() {
            return Ok(false);
        }
        match &mut *self.endpoint.borrow_mut() {
            Some(endpoint) => Ok(endpoint.repeat_nothing_found()?),
            None => Ok(false),
        }
    }

    /// Checks that no call has failed permanently.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub(crate) fn check_calls(&self) -> Result<(), Error> {
        self.failure.borrow().check()
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the communicator with all ranks.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn world(self: &Rc<Self>) -> Result<Rc<Context>, OperationError> {
        let ranks = self.call(|endpoint| Ok(endpoint.size()))?;
        Ok(self.predefined(WORLD, (0..ranks).collect(), "MPI_COMM_WORLD"))
    }

    /// Returns the communicator with this rank alone.
    pub fn itself(self: &Rc<Self>) -> Rc<Context> {
        self.predefined(SELF, vec![self.rank], "MPI_COMM_SELF")
    }

    fn predefined(self: &Rc<Self>, number: u32, members: Vec<u32>, name: &str) -> Rc<Context> {
        self.communicator(number).unwrap_or_else(|| {
            self.add(SavedContext {
                description: Description { number, members, remote: None, grid: None },
                collectives: 0,
                name: name.to_owned(),
            })
        })
    }

    /// Returns a communicator that exists, or existed at the checkpoint this process restarted from.
    pub(crate) fn communicator(self: &Rc<Self>, number: u32) -> Option<Rc<Context>> {
        self.contexts.borrow().get(&number).and_then(Weak::upgrade)
    }

    /// Adds a new communicator with this rank among its members.
    fn add_new(self: &Rc<Self>, description: Description) -> Rc<Context> {
        self.add(SavedContext { description, collectives: 0, name: String::new() })
    }

    fn add(self: &Rc<Self>, saved: SavedContext) -> Rc<Context> {
        let number = saved.description.number;
        let context = Rc::new(Context::new(Rc::clone(self), saved));
        let mut contexts = self.contexts.borrow_mut();
        contexts.retain(|_, context| context.strong_count() > 0);
        contexts.insert(number, Rc::downgrade(&context));
        context
    }

    /// Saves the state as this rank's checkpoint.
    pub(crate) fn checkpoint(&self, state: &impl Serialize) -> Result<(), OperationError> {
        let saved = self.saved_contexts();
        let bytes = postcard::to_stdvec(&saved).and_then(|bytes| postcard::to_extend(state, bytes));
        let bytes = bytes.map_err(Error::from)?;
        self.call(|endpoint| endpoint.checkpoint(&bytes)).map(drop)
    }

    fn saved_contexts(&self) -> SavedContexts {
        let contexts =
            self.contexts.borrow().values().filter_map(Weak::upgrade).map(|context| context.save()).collect();
        SavedContexts { next: self.next.get(), contexts }
    }

    /// Returns the state in the checkpoint this process restarted from.
    pub(crate) fn restore<S: DeserializeOwned>(&self) -> Result<Option<S>, OperationError> {
        let state = self.state.as_deref().map(postcard::from_bytes).transpose();
        Ok(state.map_err(Error::from)?)
    }

    /// Chooses a number for a new communicator; this rank tells it to the members.
    ///
    /// Such numbers are above all agreed ones. `None` once they are used up.
    pub fn lead_number(&self) -> Option<u32> {
        let led = self.led.get();
        self.led.set(led + 1);
        let is_free = self.rank < 1 << LED_RANK_BITS && led < 1 << LED_BITS;
        is_free.then_some(1 << (LED_RANK_BITS + LED_BITS) | self.rank << LED_BITS | led)
    }

    pub(crate) fn count_contribution(&self) {
        self.contributions.set(self.contributions.get() + 1);
    }

    /// Returns the endpoint's counters, and the number of this rank's contributions to collective operations.
    ///
    /// The counters are 0 within a call, such as in a user-defined reduction.
    pub fn counts(&self) -> (Tally, u64) {
        let endpoint = self.endpoint.try_borrow().ok();
        let tally = endpoint.and_then(|endpoint| endpoint.as_ref().map(RankEndpoint::tally));
        (tally.unwrap_or_default(), self.contributions.get())
    }

    /// Sets the longest wait for room in the log.
    pub(crate) fn set_full_wait_max(&self, max: Duration) {
        if let Some(endpoint) = self.endpoint.borrow_mut().as_mut() {
            endpoint.set_full_wait_max(max);
        }
    }
}

impl SavedProgram {
    /// Splits a checkpoint: the beginning, the prologue, the program's state.
    fn split(bytes: &Bytes) -> Result<(SavedProgram, Bytes, Bytes), Error> {
        let (saved, rest) = postcard::take_from_bytes::<SavedProgram>(bytes)?;
        let prologue = usize::try_from(saved.prologue).unwrap_or(usize::MAX);
        let (prologue, state) = rest.split_at_checked(prologue).ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        Ok((saved, bytes.slice_ref(prologue), bytes.slice_ref(state)))
    }
}

impl std::fmt::Debug for Recovering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recovering").field("rank", &self.rank).finish_non_exhaustive()
    }
}
