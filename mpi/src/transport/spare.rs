//! Spare processes of an MPI job.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use counterfoil_mpi_core::control::failures::outlives_failures;
use counterfoil_runtime::local::{ControlError, LauncherConnection, Welcome};
use counterfoil_runtime::transport::{Event, Report, TransportError};

use super::repair::{await_replacements, unrepaired};
use super::supervisor::Supervisor;
use super::{MpiTransport, VOTE, check_aborted, failed};
use crate::membership::{Membership, RepairError, needs_new_job};

/// Time between two polls of a spare.
const SPARE_NAP: Duration = Duration::from_millis(1);

/// A process in an MPI job without a rank.
#[derive(Debug)]
pub struct SpareProcess {
    launcher: LauncherConnection,
    membership: Membership,
}

impl SpareProcess {
    /// Tells the launcher of this spare.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn new(mut launcher: LauncherConnection, membership: Membership) -> Result<SpareProcess, ControlError> {
        launcher.wait_as_spare()?;
        Ok(SpareProcess { launcher, membership })
    }

    /// Sleeps until this process becomes a rank; returns its transport and the launcher's welcome.
    ///
    /// Returns `None` when the job has ended, after all processes have met.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn wait(mut self) -> Result<Option<(MpiTransport, Welcome)>, TransportError> {
        match self.wait_for_a_rank() {
            Ok(true) => MpiTransport::join(self.launcher, self.membership),
            Ok(false) => Ok(None),
            Err(error) => {
                // If the launcher is gone, nobody needs to know.
                let _ = self.launcher.report(match error {
                    _ if needs_new_job(&error) => Report::NoSpare,
                    _ => Report::Failed { error: error.to_string() },
                });
                Err(error)
            }
        }
    }

    /// Returns `true` once this process is a rank; `false` at the end of the job.
    fn wait_for_a_rank(&mut self) -> Result<bool, TransportError> {
        let mut events = VecDeque::new();
        loop {
            self.launcher.poll(&mut events)?;
            if events.drain(..).any(|event| matches!(event, Event::Finish)) {
                return meet_at_the_end(&mut self.membership).map(|()| false);
            }
            if self.membership.has_failure().map_err(failed)? {
                let report = |waits| self.launcher.report_repair(waits);
                await_replacements(&mut self.membership, report).map_err(unrepaired)?;
                if self.membership.rank().is_some() {
                    return Ok(true);
                }
            }
            thread::sleep(SPARE_NAP);
        }
    }
}

/// Sleeps until this spare of a job without a launcher becomes a rank: returns `true` then, and `false` at the end of
/// the job, after all processes have met.
///
/// # Errors
/// [`TransportError`].
pub(crate) fn wait_without_launcher(membership: &mut Membership) -> Result<bool, TransportError> {
    // Number of votes begun by the ranks, as far as this process knows.
    let mut votes = 0;
    while membership.rank().is_none() {
        check_aborted(membership)?;
        if membership.has_failure().map_err(failed)? {
            repair_for_vote(membership, votes)?;
            // A rank's messages are its endpoint's.
            continue;
        }
        let called = match membership.all().improbe(None, None) {
            Ok(Some(message)) => {
                let is_vote = message.tag == VOTE;
                message.receive().map(|bytes| is_vote.then_some(bytes))
            }
            Ok(None) => {
                thread::sleep(SPARE_NAP);
                Ok(None)
            }
            Err(error) => Err(error),
        };
        match called {
            Ok(Some(bytes)) => {
                let number = bytes.first_chunk::<4>().map_or(0, |number| u32::from_le_bytes(*number));
                votes = number.max(votes);
            }
            Ok(None) => {}
            Err(error) if error.is_process_failure() && outlives_failures() => repair_for_vote(membership, votes)?,
            Err(error) => return Err(failed(error)),
        }
        if votes > membership.votes() && !membership.is_voting() && !membership.begin_vote().map_err(failed)? {
            repair_for_vote(membership, votes)?;
        }
        if membership.poll_vote().map_err(failed)? == Some(true) {
            return meet_at_the_end(membership).map(|()| false);
        }
    }
    Ok(true)
}

/// Repairs the membership.
///
/// Missing spares are an error only before the ranks have voted to end the job.
fn repair_for_vote(membership: &mut Membership, votes: u32) -> Result<(), TransportError> {
    match await_replacements(membership, |_| {}) {
        Err(RepairError::NoSpare { .. }) if votes > 0 => Ok(()),
        repaired => repaired.map(drop).map_err(unrepaired),
    }
}

/// Waits for all other processes at the end of the job, in a process without traffic.
fn meet_at_the_end(membership: &mut Membership) -> Result<(), TransportError> {
    let mut meeting = membership.meet().map_err(failed)?;
    while meeting.poll().map_err(failed)?.is_none() {
        check_aborted(membership)?;
        // A process not here yet needs this one for a repair.
        let has_failure = membership.has_failure().map_err(failed)?;
        membership.serve_repair(has_failure).map_err(failed)?;
        thread::sleep(SPARE_NAP);
    }
    membership.all().universe().note_met();
    Ok(())
}
