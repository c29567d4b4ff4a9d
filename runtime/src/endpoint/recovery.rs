//! Progress of a replacement until it has caught up with its predecessor.

use counterfoil::Ssn;
use counterfoil_protocols::api::{Hello, Protocol};

use super::Endpoint;
use super::wait::Wait;
use crate::Error;
use crate::transport::{Report, Step, Transport};

/// SSNs of the dead incarnation, from a peer's hello.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// Last message sent by the peer: must be received again.
    to_receive: Ssn,
    /// Last message received by the peer: must be sent again.
    to_send: Ssn,
}

/// Recovery of a replacement that has not caught up with its predecessor.
#[derive(Debug)]
pub(super) struct Recovery {
    /// For each rank; `None` until it is connected.
    ///
    /// Zero for this rank itself.
    outstanding: Vec<Option<Outstanding>>,
    /// For each rank: highest SSN received from it.
    received: Vec<Ssn>,
    replayed: bool,
}

impl Recovery {
    /// Begins the recovery of `rank`.
    ///
    /// `received`: the SSNs received according to its checkpoint.
    pub(super) fn new(rank: u32, received: Vec<Ssn>) -> Recovery {
        let mut outstanding = vec![None; received.len()];
        outstanding[rank as usize] = Some(Outstanding { to_receive: Ssn::ZERO, to_send: Ssn::ZERO });
        Recovery { outstanding, received, replayed: false }
    }

    /// Records the hello from `peer`.
    ///
    /// Only the first counts: a peer replaced later knows less, not more.
    pub(super) fn note_hello(&mut self, peer: u32, hello: &Hello) {
        let outstanding = Outstanding { to_receive: hello.sent, to_send: hello.received.highest() };
        self.outstanding[peer as usize].get_or_insert(outstanding);
    }

    /// Records the arrival of a message from `peer`, for the first time or again.
    pub(super) fn note_received(&mut self, peer: u32, ssn: Ssn) {
        let received = &mut self.received[peer as usize];
        *received = ssn.max(*received);
    }

    fn is_replayed(&self) -> bool {
        let mut each = self.outstanding.iter().zip(&self.received);
        each.all(|(outstanding, received)| outstanding.is_some_and(|outstanding| *received >= outstanding.to_receive))
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Reports to the launcher when the replay is complete, and when the re-execution has caught up, unless the
    /// transport holds the rank there.
    ///
    /// Doesn't wait.
    pub(super) fn check_recovery(&mut self) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        if !recovery.replayed && recovery.is_replayed() {
            recovery.replayed = true;
            self.transport.report(Report::ReplayComplete)?;
        }
        if self.has_caught_up() && !self.transport.holds_after(Step::CaughtUp, self.iteration)? {
            self.recovery = None;
            self.transport.report(Report::CaughtUp)?;
        }
        Ok(())
    }

    /// Advances the recovery between two steps of the program: waits while it has caught up, and the transport holds
    /// the rank there.
    pub(super) fn advance_recovery(&mut self) -> Result<(), Error> {
        if self.recovery.is_none() {
            return Ok(());
        }
        self.check_recovery()?;
        while self.has_caught_up() && !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// Ends the recovery at the program's end.
    pub(super) fn end_recovery(&mut self) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        if !recovery.replayed {
            recovery.replayed = true;
            self.transport.report(Report::ReplayComplete)?;
        }
        self.end_step(Step::CaughtUp)?;
        if self.recovery.take().is_some() {
            self.transport.report(Report::CaughtUp)?;
        }
        Ok(())
    }

    /// Returns `true` if a replacement has received and sent everything its predecessor had, but not reported it.
    fn has_caught_up(&self) -> bool {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| recovery.replayed) else { return false };
        let mut outstanding = recovery.outstanding.iter().zip(&self.outbound);
        outstanding
            .all(|(outstanding, outbound)| outstanding.is_some_and(|outstanding| outbound.sent >= outstanding.to_send))
    }
}
