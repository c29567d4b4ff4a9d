//! Repair of the membership, and of connections with replaced ranks.

use std::time::{Duration, Instant};

use counterfoil_mpi_core::control::failures::outlives_failures;
use counterfoil_mpi_core::error::MpiError;
use counterfoil_runtime::transport::{Event, TransportError};

use super::idle::Idle;
use super::{MpiTransport, failed};
use crate::membership::{Membership, RepairError};

/// Longest time from an MPI error to the launcher's notice of the causing death.
const NOTICE_WAIT_MAX: Duration = Duration::from_secs(10);

impl MpiTransport {
    /// Gives dead ranks other processes, and begins the connections with them again.
    pub(super) fn repair(&mut self) -> Result<(), TransportError> {
        let replaced = match await_replacements(&mut self.membership, |waits| self.supervisor.report_repair(waits)) {
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
        }
        self.post_notices()
    }

    /// Removes a connection to `peer` from the events, with its frames: the endpoint has not seen it.
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

    /// Notes the dead ranks: nobody replaces them, and the whole job is started again.
    fn note_failures(&mut self) -> Result<(), TransportError> {
        for process in self.membership.failed().map_err(failed)? {
            let Some(peer) = self.membership.rank_of(process) else { continue };
            self.peers[peer as usize].abandon_sends();
            if self.peers[peer as usize].disconnect() {
                self.events.push_back(Event::Disconnected { peer });
            }
        }
        Ok(())
    }

    /// Returns a call's result, or, after a repair, `None` if it failed because a process is dead.
    pub(super) fn or_repair<T>(&mut self, called: Result<T, MpiError>) -> Result<Option<T>, TransportError> {
        match called {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_process_failure() && outlives_failures() => {
                if self.restarts_job { self.note_failures() } else { self.repair() }.map(|()| None)
            }
            Err(error) if self.restarts_job => {
                tracing::debug!(%error, "an MPI call has failed: waits for the launcher's notice of a death");
                self.failure.get_or_insert_with(|| (Instant::now(), failed(error)));
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns `true` after an MPI error under a rule that restarts the job: the call's message is lost, and no later
    /// one may take its place.
    ///
    /// The launcher may be about to report the causing death.
    ///
    /// # Errors
    /// The MPI error, if the launcher doesn't report in time.
    pub(super) fn has_failed(&mut self) -> Result<bool, TransportError> {
        match self.failure.take_if(|(since, _)| since.elapsed() >= NOTICE_WAIT_MAX) {
            Some((_, error)) => Err(error),
            None => Ok(self.failure.is_some()),
        }
    }
}

/// Repairs the membership after a call has failed because of a dead process: returns the replaced ranks, after all
/// living processes have called this.
///
/// `report` is called when the wait for them begins, and when it ends.
pub(super) fn await_replacements(
    membership: &mut Membership,
    mut report: impl FnMut(bool),
) -> Result<Vec<u32>, RepairError> {
    if !membership.begin_repair()? {
        return Ok(Vec::new());
    }
    report(true);
    let mut idle = Idle::default();
    let replaced = loop {
        match membership.poll_repair().transpose() {
            Some(replaced) => break replaced,
            None => idle.after_poll(false),
        }
    };
    report(false);
    replaced
}

pub(super) fn unrepaired(error: RepairError) -> TransportError {
    match error {
        RepairError::Mpi(error) => failed(error),
        error => TransportError::Other(error.into()),
    }
}
