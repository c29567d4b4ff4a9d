//! Transport of a rank that recovers.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_runtime::local::RecoveryTimes;
use counterfoil_runtime::replay::ReplayTransport;
use counterfoil_runtime::transport::{Event, Interest, Report, Step, Transport, TransportError};

use crate::transport::MpiTransport;

/// Connections of a rank to its peers: over MPI, or in a replay to their logs.
#[derive(Debug)]
pub enum RankTransport {
    /// Over MPI.
    Mpi(Box<MpiTransport>),
    /// From the logs of a job that has ended.
    Replay(ReplayTransport),
}

impl RankTransport {
    /// Returns the durations of the steps by which this process has replaced another one, so far; none in a replay.
    pub fn recovery_times(&self) -> RecoveryTimes {
        match self {
            RankTransport::Mpi(transport) => transport.recovery_times(),
            RankTransport::Replay(_) => RecoveryTimes::default(),
        }
    }

    /// Returns the number of times that the rank has been replaced; 0 in a replay.
    pub fn incarnation(&self) -> u32 {
        match self {
            RankTransport::Mpi(transport) => transport.incarnation(),
            RankTransport::Replay(_) => 0,
        }
    }
}

/// Calls a method of either.
macro_rules! call {
    ($transport:expr, $method:ident($($argument:expr),*)) => {
        match $transport {
            RankTransport::Mpi(transport) => transport.$method($($argument),*),
            RankTransport::Replay(transport) => transport.$method($($argument),*),
        }
    };
}

impl Transport for RankTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        call!(self, poll(interest))
    }

    fn next_event(&mut self) -> Option<Event> {
        call!(self, next_event())
    }

    fn is_connected(&self, peer: u32) -> bool {
        call!(self, is_connected(peer))
    }

    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        call!(self, greet(peer, incarnation, hello))
    }

    fn disconnect(&mut self, peer: u32) {
        call!(self, disconnect(peer));
    }

    fn has_room(&self, peer: u32) -> bool {
        call!(self, has_room(peer))
    }

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        call!(self, send_control(peer, header, body))
    }

    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError> {
        call!(self, send_record(peer, header, payload, offset))
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        call!(self, report(report))
    }

    fn holds_after(&mut self, step: Step, iteration: u64) -> Result<bool, TransportError> {
        call!(self, holds_after(step, iteration))
    }

    fn repeats_only(&self) -> bool {
        call!(self, repeats_only())
    }
}
