//! The runtime's [`Communicator`] on plain MPI: nothing is logged, no process may die.
//!
//! The baseline for measuring the rules.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::thread;

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_mpi_core::comm::{Comm, Matched, Sending};
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::{CallError, CollectiveSubstrate, Communicator, InternalTag, Request, Status};
use counterfoil_runtime::transport::TransportError;

/// Failed probes after which the thread yields the processor between two: there may be more ranks than processors.
const PROBES_BEFORE_YIELD: u32 = 10_000;
/// Upper bound of collectives' tags: every MPI has as many.
const COLLECTIVE_TAGS: u64 = 1 << 15;

/// A communicator with all processes, without a log.
#[derive(Debug)]
pub struct NativeCommunicator {
    rank: u32,
    size: u32,
    application: Comm,
    collective: Comm,
    collectives: u64,
    next_request: u64,
    /// Requests by number, hence in the order of their start.
    requests: BTreeMap<u64, State>,
    /// Sends the program has waited for: they complete without the receiver, so their bytes are copies.
    in_flight: Vec<Sending>,
}

#[derive(Debug)]
enum State {
    Sending(Sending, Status),
    Posted(Pattern),
    Received(Status, Bytes),
}

/// Source and tag pattern of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pattern {
    source: Option<u32>,
    tag: Option<i32>,
    is_collective: bool,
}

impl Pattern {
    /// Returns `true` if a message may fit both.
    fn overlaps(&self, other: &Pattern) -> bool {
        fn may_equal<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.is_collective == other.is_collective
            && may_equal(self.source, other.source)
            && may_equal(self.tag, other.tag)
    }
}

impl NativeCommunicator {
    /// Makes a communicator with all processes.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn new(universe: &Rc<Universe>) -> Result<NativeCommunicator, MpiError> {
        let world = universe.world();
        Ok(NativeCommunicator {
            rank: world.rank()?,
            size: world.size()?,
            application: world.dup()?,
            collective: world.dup()?,
            collectives: 0,
            next_request: 0,
            requests: BTreeMap::new(),
            in_flight: Vec::new(),
        })
    }

    fn comm(&self, is_collective: bool) -> &Comm {
        if is_collective { &self.collective } else { &self.application }
    }

    fn add(&mut self, state: State) -> Request {
        let id = self.next_request;
        self.next_request += 1;
        self.requests.insert(id, state);
        Request::new(id)
    }

    fn begin_send(&mut self, to: u32, tag: i32, is_collective: bool, payload: &[u8]) -> Result<Request, Error> {
        let sending = self.comm(is_collective).isend(payload.to_vec(), to, tag).map_err(failed)?;
        Ok(self.add(State::Sending(sending, Status { source: to, tag, len: payload.len() })))
    }

    fn begin_receive(&mut self, pattern: Pattern) -> Request {
        self.add(State::Posted(pattern))
    }

    /// Drops the copies of sent messages.
    fn drop_sent(&mut self) -> Result<(), Error> {
        let mut at = 0;
        while let Some(sending) = self.in_flight.get_mut(at) {
            if sending.test().map_err(failed)? {
                self.in_flight.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Receives an arrived message fitting a pattern.
    fn receive(&self, pattern: Pattern) -> Result<Option<(Status, Bytes)>, MpiError> {
        let message = self.comm(pattern.is_collective).improbe(pattern.source, pattern.tag)?;
        message.map(take).transpose()
    }

    /// Receives the next message fitting a pattern.
    fn receive_waiting(&self, pattern: Pattern) -> Result<(Status, Bytes), MpiError> {
        take(self.comm(pattern.is_collective).mprobe(pattern.source, pattern.tag)?)
    }

    /// Waits until MPI no longer needs any send's bytes.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn finish(self) -> Result<(), MpiError> {
        self.in_flight.into_iter().try_for_each(Sending::wait)
    }

    /// Receives a message fitting a posted receive, unless an earlier one may take it.
    ///
    /// Returns `true` if the request is complete.
    fn advance(&mut self, call: &'static str, id: u64) -> Result<bool, Error> {
        let pattern = match self.requests.get(&id) {
            None => return Err(CallError::UnknownRequest { call, id }.into()),
            Some(State::Received(..)) => return Ok(true),
            Some(State::Sending(..)) => return Ok(true),
            Some(State::Posted(pattern)) => *pattern,
        };
        let is_before = |state: &State| matches!(state, State::Posted(earlier) if earlier.overlaps(&pattern));
        while let Some((&earlier, _)) = self.requests.range(..id).find(|(_, state)| is_before(state)) {
            if !self.advance(call, earlier)? {
                return Ok(false);
            }
        }
        let Some((status, payload)) = self.receive(pattern).map_err(failed)? else { return Ok(false) };
        self.requests.insert(id, State::Received(status, payload));
        Ok(true)
    }
}

impl Communicator for NativeCommunicator {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_rank("isend", to, self.size)?;
        CallError::check_tag("isend", tag)?;
        self.begin_send(to, tag, false, payload)
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        Ok(self.begin_receive(Pattern { source, tag, is_collective: false }))
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        let mut probes = 0_u32;
        while !self.advance("wait", request.id())? {
            probes = probes.saturating_add(1);
            if probes > PROBES_BEFORE_YIELD {
                thread::yield_now();
            }
        }
        match self.requests.remove(&request.id()) {
            Some(State::Sending(sending, status)) => {
                self.in_flight.push(sending);
                self.drop_sent()?;
                Ok((status, Bytes::new()))
            }
            Some(State::Received(status, payload)) => Ok((status, payload)),
            Some(State::Posted(_)) | None => Err(CallError::UnknownRequest { call: "wait", id: request.id() }.into()),
        }
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        self.advance("test", request.id())
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        let Envelope { source, tag, len } = self.application.probe(source, tag).map_err(failed)?;
        Ok(Status { source, tag, len })
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        let found = self.application.immediate_probe(source, tag).map_err(failed)?;
        Ok(found.map(|Envelope { source, tag, len }| Status { source, tag, len }))
    }

    /// Takes no checkpoint, since nothing is kept.
    fn checkpoint(&mut self, _state: &[u8]) -> Result<Epoch, Error> {
        Ok(Epoch::FIRST)
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(None)
    }

    fn iteration(&mut self, _n: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Sends from the program's bytes, and receives meanwhile.
    fn sendrecv(
        &mut self,
        to: u32,
        send_tag: i32,
        payload: &[u8],
        source: Option<u32>,
        receive_tag: Option<i32>,
    ) -> Result<(Status, Bytes), Error> {
        CallError::check_rank("sendrecv", to, self.size)?;
        CallError::check_tag("sendrecv", send_tag)?;
        let pattern = Pattern { source, tag: receive_tag, is_collective: false };
        if self.requests.values().any(|state| matches!(state, State::Posted(posted) if posted.overlaps(&pattern))) {
            let receive = self.begin_receive(pattern);
            self.send(to, send_tag, payload)?;
            return self.wait(receive);
        }
        let received =
            self.application.send_while(payload, to, send_tag, || self.receive_waiting(pattern)).map_err(failed)?;
        received.map_err(failed)
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl CollectiveSubstrate for NativeCommunicator {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        self.begin_send(to, collective_tag(tag), true, payload)
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        Ok(self.begin_receive(Pattern { source: Some(source), tag: Some(collective_tag(tag)), is_collective: true }))
    }

    fn begin_collective(&mut self) -> InternalTag {
        let tag = InternalTag::new(self.collectives);
        self.collectives += 1;
        tag
    }
}

/// Receives a matched message.
fn take(message: Matched) -> Result<(Status, Bytes), MpiError> {
    let status = Status { source: message.source, tag: message.tag, len: message.len };
    Ok((status, Bytes::from(message.receive()?)))
}

fn collective_tag(tag: InternalTag) -> i32 {
    (tag.sequence() % COLLECTIVE_TAGS) as i32
}

fn failed(error: MpiError) -> Error {
    TransportError::Io { action: "communicate over MPI", source: io::Error::other(error) }.into()
}

#[cfg(test)]
mod tests {
    use counterfoil_mpi_core::Threads;

    use super::*;

    /// One process: MPI starts without `mpirun`, and the rank sends to itself.
    #[test]
    fn receives_are_served_in_the_order_in_which_they_were_posted() {
        let universe = Universe::init(Threads::Single).unwrap();
        let mut comm = NativeCommunicator::new(&universe).unwrap();
        let mut posted = [Some(1), None, Some(1), Some(2)].map(|tag| Some(comm.irecv(None, tag).unwrap()));
        for (number, tag) in [(10, 1), (11, 1), (12, 1), (13, 2)] {
            comm.send(0, tag, &[number]).unwrap();
        }
        let mut received = [0; 4];
        for place in [2, 3, 1, 0] {
            let (status, payload) = comm.wait(posted[place].take().unwrap()).unwrap();
            assert_eq!((status.source, status.len), (0, 1));
            received[place] = payload[0];
        }
        assert_eq!(received, [10, 11, 12, 13]);
        assert!(matches!(comm.iprobe(None, None), Ok(None)));
        comm.finish().unwrap();
    }
}
