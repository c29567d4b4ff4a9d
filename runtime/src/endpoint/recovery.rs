//! How far a replacement has come.

use counterfoil::Ssn;
use counterfoil_protocols::frame::{Hello, Protocol};

use super::Endpoint;
use super::progress::Wait;
use crate::Error;
use crate::transport::{Report, Transport};

/// What a peer said about the dead incarnation, when it was met.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// The peer had sent up to here: to be received again.
    to_receive: Ssn,
    /// The peer had received up to here: to be sent again.
    to_send: Ssn,
}

/// A replacement that is not yet where its predecessor was.
#[derive(Debug)]
pub(super) struct Recovery {
    /// For each rank; `None` until it is met. This rank owes itself nothing.
    debts: Vec<Option<Debt>>,
    /// For each rank: all up to here came from it.
    received: Vec<Ssn>,
    /// Don't end before the launcher says so.
    held: bool,
    replayed: bool,
}

impl Recovery {
    /// A replacement of `rank` that has received what `received` says, by the checkpoint that it went on from.
    pub(super) fn new(rank: u32, received: Vec<Ssn>, held: bool) -> Recovery {
        let mut debts = vec![None; received.len()];
        debts[rank as usize] = Some(Debt { to_receive: Ssn::ZERO, to_send: Ssn::ZERO });
        Recovery { debts, received, held, replayed: false }
    }

    /// `peer` was met. Only the first time counts: a peer that is replaced later knows less, not more.
    pub(super) fn note_hello(&mut self, peer: u32, hello: &Hello) {
        let debt = Debt { to_receive: hello.sent, to_send: hello.received.highest() };
        self.debts[peer as usize].get_or_insert(debt);
    }

    /// A message of `peer` came, for the first time or again.
    pub(super) fn note_received(&mut self, peer: u32, ssn: Ssn) {
        let received = &mut self.received[peer as usize];
        *received = ssn.max(*received);
    }

    /// The launcher lets the recovery end.
    pub(super) fn resume(&mut self) {
        self.held = false;
    }

    fn is_replayed(&self) -> bool {
        let mut each = self.debts.iter().zip(&self.received);
        each.all(|(debt, received)| debt.is_some_and(|debt| *received >= debt.to_receive))
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Tells the launcher when the replay is complete, and when the re-execution has caught up unless the recovery is
    /// held. Doesn't wait.
    pub(super) fn check_recovery(&mut self) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        if !recovery.replayed && recovery.is_replayed() {
            recovery.replayed = true;
            self.transport.report(Report::ReplayComplete)?;
        }
        if self.has_caught_up() && self.recovery.as_ref().is_some_and(|recovery| !recovery.held) {
            self.recovery = None;
            self.transport.report(Report::CaughtUp)?;
        }
        Ok(())
    }

    /// Between two steps of the program: if the recovery would be over now but is held, waits for what holds it.
    pub(super) fn hold_recovery(&mut self) -> Result<(), Error> {
        if self.recovery.is_none() {
            return Ok(());
        }
        self.check_recovery()?;
        while self.has_caught_up() && !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// The program is at its end, and with it the re-execution: it needs nothing more.
    pub(super) fn end_recovery(&mut self) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        if !recovery.replayed {
            recovery.replayed = true;
            self.transport.report(Report::ReplayComplete)?;
        }
        while self.recovery.as_ref().is_some_and(|recovery| recovery.held) && !self.finish {
            self.progress(Wait::Forever)?;
        }
        if self.recovery.take().is_some() {
            self.transport.report(Report::CaughtUp)?;
        }
        Ok(())
    }

    /// Whether a replacement has received and sent all that its predecessor had, and has not said so.
    fn has_caught_up(&self) -> bool {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| recovery.replayed) else { return false };
        let mut debts = recovery.debts.iter().zip(&self.outlets);
        debts.all(|(debt, outlet)| debt.is_some_and(|debt| outlet.sent >= debt.to_send))
    }
}
