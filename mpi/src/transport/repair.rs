//! Repair of the membership, and of the connections with ranks that have other processes.

use counterfoil_runtime::transport::{Event, TransportError};

use super::idle::Idle;
use super::{MpiTransport, failed};
use crate::control::failures::outlives_failures;
use crate::error::MpiError;
use crate::membership::{Membership, RepairError};

impl MpiTransport {
    /// Gives dead ranks other processes, and begins the connections with them again.
    pub(super) fn repair(&mut self) -> Result<(), TransportError> {
        let replaced = match repair(&mut self.membership, |waits| self.supervisor.report_repair(waits)) {
            // All ranks are done, so nobody needs a replacement: the vote is repeated.
            Err(RepairError::NoSpare { vacant, .. }) if self.supervisor.are_all_done() => {
                vacant.into_iter().for_each(|rank| self.peers[rank as usize].abandon_sends());
                return Ok(());
            }
            repaired => repaired.map_err(unrepaired)?,
        };
        for peer in replaced {
            let state = &mut self.peers[peer as usize];
            state.abandon_sends();
            let (incarnation, was_connected) = (state.incarnation, state.disconnect());
            self.remove_new_connection(peer);
            if was_connected {
                self.events.push_back(Event::Disconnected { peer });
            }
            self.events.push_back(Event::Reachable { peer, incarnation });
            self.supervisor.handle_replaced(peer);
            if self.supervisor.is_done(self.rank) {
                self.post_done(peer)?;
            }
        }
        Ok(())
    }

    /// Removes a connection to `peer` from the events, with the frames that it has brought: the endpoint has not seen it.
    fn remove_new_connection(&mut self, peer: u32) {
        let mut is_new = false;
        self.events.retain(|event| match event {
            Event::Connected { peer: of, .. } | Event::Reachable { peer: of, .. } if *of == peer => {
                is_new = true;
                false
            }
            Event::Frame { peer: of, .. } if *of == peer => !is_new,
            _ => true,
        });
    }

    /// Returns what a call has returned, or, after a repair, `None` if it failed because a process is dead.
    pub(super) fn or_repair<T>(&mut self, called: Result<T, MpiError>) -> Result<Option<T>, TransportError> {
        match called {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_process_failure() && outlives_failures() => self.repair().map(|()| None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Repairs the membership after a call has failed because of a dead process: returns the ranks that have other processes now, after all
/// living processes have called this. `report` is told when the wait for them begins, and when it ends.
pub(super) fn repair(membership: &mut Membership, mut report: impl FnMut(bool)) -> Result<Vec<u32>, RepairError> {
    if !membership.begin_repair()? {
        return Ok(Vec::new());
    }
    report(true);
    let repaired = wait_for_repair(membership);
    report(false);
    repaired
}

fn wait_for_repair(membership: &mut Membership) -> Result<Vec<u32>, RepairError> {
    let mut idle = Idle::default();
    loop {
        if let Some(replaced) = membership.poll_repair()? {
            return Ok(replaced);
        }
        idle.after_poll(false);
    }
}

pub(super) fn unrepaired(error: RepairError) -> TransportError {
    match error {
        RepairError::Mpi(error) => failed(error),
        RepairError::Aborted => TransportError::Aborted,
        RepairError::Orphaned => TransportError::Orphaned,
        RepairError::Untold { process } => TransportError::Untold { process },
        RepairError::AgreementLost => TransportError::AgreementLost,
        RepairError::NoSpare { rank, .. } => TransportError::NoSpare { rank },
    }
}
