//! Communicators that record a rank's calls with their outcomes, or replay them.

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::{CollectiveSubstrate, Communicator, InternalTag, Request, Status};

/// Communicator call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Send { to: u32, tag: i32, payload: Bytes },
    SendInternal { to: u32, tag: InternalTag, payload: Bytes },
    Receive { source: Option<u32>, tag: Option<i32> },
    ReceiveInternal { source: u32, tag: InternalTag },
    BeginCollective,
    Wait(u64),
    Test(u64),
    Probe { source: Option<u32>, tag: Option<i32>, waits: bool },
    Checkpoint(Bytes),
    Iteration(u64),
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Request(u64),
    Collective(InternalTag),
    Received(Status, Bytes),
    Complete(bool),
    Found(Option<Status>),
    Durable(Epoch),
    Nothing,
}

pub(crate) type Event = (Call, Outcome);

/// Outcome source.
pub(crate) trait Source {
    fn rank(&self) -> u32;
    fn size(&self) -> u32;
    fn restore(&mut self) -> Option<Bytes>;
    fn outcome(&mut self, call: Call) -> Outcome;
}

/// Forwards calls to another communicator and records them.
pub(crate) struct Recorder<'a> {
    inner: &'a mut dyn Communicator,
    pub(crate) events: Vec<Event>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(inner: &'a mut dyn Communicator) -> SourceCommunicator<Recorder<'a>> {
        SourceCommunicator(Recorder { inner, events: Vec::new() })
    }
}

/// Source for a re-execution, which must make the recorded calls and gets their outcomes.
pub(crate) struct Replayer<'a> {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) state: Option<Bytes>,
    pub(crate) events: std::slice::Iter<'a, Event>,
}

impl Source for Recorder<'_> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn restore(&mut self) -> Option<Bytes> {
        None
    }

    fn outcome(&mut self, call: Call) -> Outcome {
        let comm = &mut *self.inner;
        let outcome = match call.clone() {
            Call::Send { to, tag, payload } => Outcome::Request(comm.isend(to, tag, &payload).unwrap().id()),
            Call::SendInternal { to, tag, payload } => {
                Outcome::Request(comm.substrate().isend_internal(to, tag, &payload).unwrap().id())
            }
            Call::Receive { source, tag } => Outcome::Request(comm.irecv(source, tag).unwrap().id()),
            Call::ReceiveInternal { source, tag } => {
                Outcome::Request(comm.substrate().irecv_internal(source, tag).unwrap().id())
            }
            Call::BeginCollective => Outcome::Collective(comm.substrate().begin_collective()),
            Call::Wait(id) => {
                let (status, payload) = comm.wait(Request::new(id)).unwrap();
                Outcome::Received(status, payload)
            }
            Call::Test(id) => Outcome::Complete(comm.test(&Request::new(id)).unwrap()),
            Call::Probe { source, tag, waits: true } => Outcome::Found(Some(comm.probe(source, tag).unwrap())),
            Call::Probe { source, tag, waits: false } => Outcome::Found(comm.iprobe(source, tag).unwrap()),
            Call::Checkpoint(state) => Outcome::Durable(comm.checkpoint(&state).unwrap()),
            Call::Iteration(n) => {
                comm.iteration(n).unwrap();
                Outcome::Nothing
            }
        };
        self.events.push((call, outcome.clone()));
        outcome
    }
}

impl Source for Replayer<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn restore(&mut self) -> Option<Bytes> {
        self.state.clone()
    }

    fn outcome(&mut self, call: Call) -> Outcome {
        let Some((expected, outcome)) = self.events.next() else {
            panic!("rank {} made an additional call: {call:?}", self.rank);
        };
        assert!(call == *expected, "rank {} called {call:?} instead of {expected:?}", self.rank);
        outcome.clone()
    }
}

/// A communicator over a source of outcomes.
pub(crate) struct SourceCommunicator<S>(pub(crate) S);

impl<S: Source> SourceCommunicator<S> {
    fn request(&mut self, call: Call) -> Result<Request, Error> {
        match self.0.outcome(call) {
            Outcome::Request(id) => Ok(Request::new(id)),
            other => panic!("{other:?}"),
        }
    }

    fn find(&mut self, source: Option<u32>, tag: Option<i32>, waits: bool) -> Option<Status> {
        match self.0.outcome(Call::Probe { source, tag, waits }) {
            Outcome::Found(found) => found,
            other => panic!("{other:?}"),
        }
    }
}

impl<S: Source> Communicator for SourceCommunicator<S> {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        self.request(Call::Send { to, tag, payload: Bytes::copy_from_slice(payload) })
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        self.request(Call::Receive { source, tag })
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        match self.0.outcome(Call::Wait(request.id())) {
            Outcome::Received(status, payload) => Ok((status, payload)),
            other => panic!("{other:?}"),
        }
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        match self.0.outcome(Call::Test(request.id())) {
            Outcome::Complete(complete) => Ok(complete),
            other => panic!("{other:?}"),
        }
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        Ok(self.find(source, tag, true).expect("a probe waits for a message"))
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        Ok(self.find(source, tag, false))
    }

    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        match self.0.outcome(Call::Checkpoint(Bytes::copy_from_slice(state))) {
            Outcome::Durable(epoch) => Ok(epoch),
            other => panic!("{other:?}"),
        }
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.restore())
    }

    fn iteration(&mut self, n: u64) -> Result<(), Error> {
        self.0.outcome(Call::Iteration(n));
        Ok(())
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl<S: Source> CollectiveSubstrate for SourceCommunicator<S> {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        self.request(Call::SendInternal { to, tag, payload: Bytes::copy_from_slice(payload) })
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        self.request(Call::ReceiveInternal { source, tag })
    }

    fn begin_collective(&mut self) -> InternalTag {
        match self.0.outcome(Call::BeginCollective) {
            Outcome::Collective(tag) => tag,
            other => panic!("{other:?}"),
        }
    }
}
