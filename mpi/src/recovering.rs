//! A rank that recovers, and its communicators: messages and matching are the runtime's, over the transport of MPI.
//!
//! | file | contents |
//! |---|---|
//! | `collective` | the collective operations, made of messages |
//! | `context` | a communicator: its messages, and the communicators that it creates |
//! | `grid` | Cartesian grids |
//! | `operation` | an operation that is waited for later |
//! | `transport` | its connections: over MPI, or in a replay to logs |
//! | `view` | a communicator as the runtime's collectives see it |

pub(crate) mod collective;
mod context;
mod grid;
mod operation;
mod transport;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_runtime::communicator::{Communicator, FirstFailure};
use counterfoil_runtime::local;
use counterfoil_runtime::{Error, Tally};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::OperationError;
pub use context::Context;
pub(crate) use context::Description;
pub use grid::Grid;
pub(crate) use operation::{EndpointOperation, StoreMessage, all, any, some, taken};
pub use transport::RankTransport;
pub use view::View;

/// Endpoint of a rank.
pub type RankEndpoint = local::RankEndpoint<RankTransport>;

/// Number of the communicator of all ranks.
const WORLD: u32 = 0;
/// Number of the communicator of this rank alone.
const SELF: u32 = 1;

/// Bits of the rank, and of the count, in the number of a communicator that one rank decides on.
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
    /// Number of the next communicator.
    next: u32,
    contexts: Vec<SavedContext>,
}

/// This rank, shared by its communicators and their operations.
pub struct Recovering {
    /// `None` once the rank has ended.
    endpoint: RefCell<Option<RankEndpoint>>,
    failure: RefCell<FirstFailure>,
    rank: u32,
    /// Number of the next communicator.
    next: Cell<u32>,
    /// Numbers of communicators that this rank has decided on.
    led: Cell<u32>,
    /// Communicators by number. They exist as long as the program has handles of them.
    contexts: RefCell<BTreeMap<u32, Weak<Context>>>,
    /// Communicators of the checkpoint from which this process restarted, which exist up to its end.
    restored: RefCell<Vec<Rc<Context>>>,
    /// State in that checkpoint.
    state: Option<Bytes>,
    /// Collective operations with a contribution of this rank.
    contributions: Cell<u64>,
    universe: Rc<Universe>,
}

impl Recovering {
    /// Begins with an endpoint, which may have restarted from a checkpoint.
    ///
    /// # Errors
    /// [`Error::Encode`] for a checkpoint of another kind of program.
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
            contributions: Cell::new(0),
            universe: Rc::clone(universe),
        });
        let restored = saved.contexts.into_iter().map(|saved| recovering.add(saved)).collect();
        recovering.restored.replace(restored);
        Ok(recovering)
    }

    /// Returns the endpoint; `None` if that was done before. Calls on the communicators fail from here on.
    pub(crate) fn take_endpoint(&self) -> Option<RankEndpoint> {
        self.restored.take();
        self.endpoint.borrow_mut().take()
    }

    /// Returns the MPI that the rank's process runs on.
    pub fn universe(&self) -> &Rc<Universe> {
        &self.universe
    }

    /// Runs a call on the endpoint; none after one that has failed for good. What a program does as it ends, as
    /// cancelling the receives that it drops, is no outcome for the execution that repeats it.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn call<T>(&self, call: impl FnOnce(&mut RankEndpoint) -> Result<T, Error>) -> Result<T, OperationError> {
        let mut endpoint = self.endpoint.borrow_mut();
        let endpoint = endpoint.as_mut().ok_or(OperationError::Ended)?;
        self.check_calls()?;
        let called = call(endpoint);
        self.failure.borrow_mut().note(&called);
        Ok(called?)
    }

    /// Checks that no call has failed for good.
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

    /// Returns the communicator of all ranks.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn world(self: &Rc<Self>) -> Result<Rc<Context>, OperationError> {
        let ranks = self.call(|endpoint| Ok(endpoint.size()))?;
        Ok(self.predefined(WORLD, (0..ranks).collect(), "MPI_COMM_WORLD"))
    }

    /// Returns the communicator of this rank alone.
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

    /// Returns a communicator that exists, or that existed at the checkpoint from which this process restarted.
    pub(crate) fn communicator(self: &Rc<Self>, number: u32) -> Option<Rc<Context>> {
        self.contexts.borrow().get(&number).and_then(Weak::upgrade)
    }

    /// Adds a new communicator, of which this rank is a member.
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
        let contexts =
            self.contexts.borrow().values().filter_map(Weak::upgrade).map(|context| context.save()).collect();
        let saved = SavedContexts { next: self.next.get(), contexts };
        let bytes = postcard::to_stdvec(&saved).and_then(|bytes| postcard::to_extend(state, bytes));
        let bytes = bytes.map_err(Error::from)?;
        self.call(|endpoint| endpoint.checkpoint(&bytes)).map(drop)
    }

    /// Returns the state of the checkpoint from which this process restarted.
    pub(crate) fn restore<S: DeserializeOwned>(&self) -> Result<Option<S>, OperationError> {
        let state = self.state.as_deref().map(postcard::from_bytes).transpose();
        Ok(state.map_err(Error::from)?)
    }

    /// Takes a number for a new communicator, which this rank alone decides on and tells its members. Such numbers are
    /// above all that members agree on. `None` once there are none.
    pub fn lead_number(&self) -> Option<u32> {
        let led = self.led.get();
        self.led.set(led + 1);
        let is_free = self.rank < 1 << LED_RANK_BITS && led < 1 << LED_BITS;
        is_free.then_some(1 << (LED_RANK_BITS + LED_BITS) | self.rank << LED_BITS | led)
    }

    pub(crate) fn count_contribution(&self) {
        self.contributions.set(self.contributions.get() + 1);
    }

    /// Returns the endpoint's counters, and the number of this rank's contributions to collective operations. The
    /// counters are 0 within a call, as in an operation of the program's.
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

impl std::fmt::Debug for Recovering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recovering").field("rank", &self.rank).finish_non_exhaustive()
    }
}
