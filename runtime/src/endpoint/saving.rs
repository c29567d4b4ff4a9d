//! Exit of a rank whose job is started again, and its next beginning.

use std::path::PathBuf;
use std::time::Instant;

use counterfoil_protocols::api::Protocol;
use serde::{Deserialize, Serialize};

use super::Endpoint;
use crate::Error;
use crate::communicator::Restart;
use crate::saved::{self, SavedState, StatePlace};
use crate::transport::{Report, Save, Transport};

/// Places for a rank's state, and the beginning of this job generation.
#[derive(Clone, Debug, Default)]
pub struct Saves {
    /// Directories on this host, in the order of attempts.
    pub directories: Vec<PathBuf>,
    /// Place of the rank's state, if it is in memory outliving the process.
    pub place: Option<StatePlace>,
    /// `None` if the program begins anew.
    pub begun_with: Option<BegunWith>,
}

/// Beginning of a job generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunWith {
    /// Generation for which the states were saved.
    pub generation: u32,
    /// Ranks without a saved state, ascending.
    pub lost: Vec<u32>,
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Begins to exit: no call continues.
    pub(super) fn begin_exit(&mut self, saves: bool) -> Result<(), Error> {
        self.exits = Some(saves);
        Err(Error::JobFailed)
    }

    /// Checks that the rank doesn't exit.
    pub(super) fn check_goes_on(&self) -> Result<(), Error> {
        if self.exits.is_some() { Err(Error::JobFailed) } else { Ok(()) }
    }

    pub(super) fn take_restart(&mut self) -> Result<Option<Restart>, Error> {
        let Some(BegunWith { generation, lost }) = self.saves.begun_with.take() else { return Ok(None) };
        let rank = self.rank;
        let state = if lost.contains(&rank) || self.saves.place.is_some() {
            None
        } else {
            let saved = SavedState::open(&self.saves.directories, rank, generation)?;
            Some(saved.ok_or(Error::NoSavedState { rank, generation })?)
        };
        Ok(Some(Restart { generation: self.protocol.incarnation().0, lost, state }))
    }

    pub(super) fn place_of_state(&self) -> Option<StatePlace> {
        self.saves.place.clone()
    }

    /// Reports that the rank's state is rebuilt.
    pub(super) fn end_rebuilding(&mut self) -> Result<(), Error> {
        self.protocol.handle_rebuilt()?;
        self.carry_out_effects()
    }

    /// Saves the program's state after a call has failed with [`Error::JobFailed`], and reports it.
    ///
    /// This process must exit then, with status 0 and, over MPI, without `MPI_Finalize`. `regions` are the parts of the
    /// state, in the order in which the next process reads them; they are written in place. They are skipped if the
    /// state isn't rebuilt, since the earlier one is loaded again then, and if it is in memory outliving this process.
    /// Without regions the rank has no state, and if no rank has, the program begins anew.
    ///
    /// A state that can't be saved is lost, like a killed rank's: the launcher is told why.
    ///
    /// # Errors
    /// [`Error::Transport`] if the launcher is gone.
    pub fn save_and_exit(&mut self, regions: &[&[u8]]) -> Result<(), Error> {
        let save = if self.exits == Some(true) && !regions.is_empty() {
            let generation = self.protocol.incarnation().0 + 1;
            save(&self.saves.directories, self.rank, generation, regions)
        } else {
            Save::NotWanted
        };
        Ok(self.transport.report(Report::Exits { save, tally: self.tally })?)
    }

    /// Returns `true` if the rule starts the job again after a rank is lost.
    pub fn restarts_job(&self) -> bool {
        self.properties.restarts_job
    }

    /// Returns `true` if this process exits because the job is started again: [`Error::JobFailed`].
    pub fn is_exiting(&self) -> bool {
        self.exits.is_some()
    }
}

/// Saves a state in the first usable directory.
fn save(directories: &[PathBuf], rank: u32, generation: u32, regions: &[&[u8]]) -> Save {
    let began = Instant::now();
    let mut failures = Vec::new();
    for directory in directories {
        match saved::write(directory, rank, generation, regions) {
            Ok(bytes) => return Save::Done { bytes, took: began.elapsed() },
            Err(error) => failures.push(error.to_string()),
        }
    }
    Save::Failed { error: failures.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_directory_refuses_is_saved_in_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let directories = [folder.path().join("missing"), folder.path().to_owned()];
        assert!(matches!(save(&directories, 3, 1, &[b"state"]), Save::Done { bytes: 45, .. }));
        assert!(SavedState::open(&directories, 3, 1).unwrap().is_some());
        let Save::Failed { error } = save(&directories[..1], 3, 1, &[b"state"]) else { panic!("saved nowhere") };
        assert!(error.contains("missing") && error.contains("No such file"), "{error}");
    }
}
