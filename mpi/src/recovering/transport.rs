//! A recovering rank's transport.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_runtime::local::RecoveryTimes;
use counterfoil_runtime::prologue::PrologueRecorder;
use counterfoil_runtime::replay::ReplayTransport;
use counterfoil_runtime::transport::{Event, Interest, Report, Step, Transport, TransportError};

use crate::transport::MpiTransport;

/// A rank's connections to its peers.
#[derive(Debug)]
pub struct RankTransport {
    connections: Connections,
    /// Recorder of received messages during the prologue.
    recorder: Option<PrologueRecorder>,
    /// True if the recorder had no room left.
    is_full: bool,
}

#[derive(Debug)]
enum Connections {
    /// Over MPI.
    Mpi(Box<MpiTransport>),
    /// From logs, or from a prologue.
    Replay(ReplayTransport),
}

impl From<MpiTransport> for RankTransport {
    fn from(transport: MpiTransport) -> RankTransport {
        RankTransport { connections: Connections::Mpi(Box::new(transport)), recorder: None, is_full: false }
    }
}

impl From<ReplayTransport> for RankTransport {
    fn from(transport: ReplayTransport) -> RankTransport {
        RankTransport { connections: Connections::Replay(transport), recorder: None, is_full: false }
    }
}

impl RankTransport {
    /// Returns the transport over MPI; `None` in a replay.
    pub(crate) fn into_mpi(self) -> Option<Box<MpiTransport>> {
        match self.connections {
            Connections::Mpi(transport) => Some(transport),
            Connections::Replay(_) => None,
        }
    }

    /// Same, borrowed.
    pub(crate) fn as_mpi(&mut self) -> Option<&mut MpiTransport> {
        match &mut self.connections {
            Connections::Mpi(transport) => Some(transport),
            Connections::Replay(_) => None,
        }
    }

    /// Records received messages from now on.
    pub(crate) fn record_prologue(&mut self, recorder: PrologueRecorder) {
        self.recorder = Some(recorder);
    }

    /// Ends the recording and returns it; `None` if there was no room for it.
    pub(crate) fn end_prologue(&mut self) -> Option<PrologueRecorder> {
        self.recorder.take().filter(|_| !self.is_full)
    }

    /// Returns the step durations so far of this process's replacement of another one; none in a replay.
    pub fn recovery_times(&self) -> RecoveryTimes {
        match &self.connections {
            Connections::Mpi(transport) => transport.recovery_times(),
            Connections::Replay(_) => RecoveryTimes::default(),
        }
    }

    /// Returns the number of times the rank was replaced; 0 in a replay.
    pub fn incarnation(&self) -> u32 {
        match &self.connections {
            Connections::Mpi(transport) => transport.incarnation(),
            Connections::Replay(_) => 0,
        }
    }
}

/// Calls a method of either.
macro_rules! call {
    ($transport:expr, $method:ident($($argument:expr),*)) => {
        match &mut $transport.connections {
            Connections::Mpi(transport) => transport.$method($($argument),*),
            Connections::Replay(transport) => transport.$method($($argument),*),
        }
    };
    (ref $transport:expr, $method:ident($($argument:expr),*)) => {
        match &$transport.connections {
            Connections::Mpi(transport) => transport.$method($($argument),*),
            Connections::Replay(transport) => transport.$method($($argument),*),
        }
    };
}

impl Transport for RankTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        call!(self, poll(interest))
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = call!(self, next_event())?;
        if let (Some(recorder), Event::Frame { peer, header, body }) = (&mut self.recorder, &event)
            && !recorder.note(*peer, header, body)
        {
            (self.recorder, self.is_full) = (None, true);
        }
        Some(event)
    }

    fn is_connected(&self, peer: u32) -> bool {
        call!(ref self, is_connected(peer))
    }

    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        call!(self, greet(peer, incarnation, hello))
    }

    fn disconnect(&mut self, peer: u32) {
        call!(self, disconnect(peer));
    }

    fn has_room(&self, peer: u32) -> bool {
        call!(ref self, has_room(peer))
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
        call!(ref self, repeats_only())
    }
}
