//! Which living process of an MPI job is which rank, also after failures.
//!
//! A job is started with more processes than ranks: the others are spares. After a failure the living processes, spares included, shrink
//! their communicator, agree on the vacant ranks, and give them to spares, both in ascending order. A failure during that begins it again.

use crate::comm::Comm;
use crate::error::MpiError;
use crate::ulfm::{self, Meeting};

/// In place of a rank: the process is a spare.
const SPARE: u32 = u32::MAX;

/// Error of a membership.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// A call of MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// `mpirun` has started fewer processes than the job has ranks.
    #[error("the job has {ranks} ranks, and mpirun has started {started} processes: give it -n {ranks} or more")]
    TooFew {
        /// Number of ranks of the job.
        ranks: u32,
        /// Number of processes of `MPI_COMM_WORLD`.
        started: u32,
    },
    /// More ranks are dead than there are spares.
    #[error(
        "rank {rank} is dead and no spare process is left: a job with more spares (--spares) outlives more failures. The logs and \
         checkpoints of the other ranks are valid"
    )]
    NoSpare {
        /// Lowest rank without a process.
        rank: u32,
    },
}

/// The living processes of a job, seen from one of them.
#[derive(Debug)]
pub struct Membership {
    /// All living processes.
    all: Comm,
    /// All processes of the job, for the meeting at its end. Never revoked.
    started: Comm,
    /// For each process of `all`: its rank in the job, or [`SPARE`].
    places: Vec<u32>,
    ranks: u32,
    /// Rank of this process in the job; `None` for a spare.
    rank: Option<u32>,
}

/// Result of one attempt of a repair.
enum Attempt {
    /// The processes have their ranks. Communicator of the ranks; `None` for a spare.
    Done(Option<Comm>),
    /// Another process has failed meanwhile.
    Interrupted,
}

impl Membership {
    /// Makes the first processes of `world` the ranks of the job, and the others its spares. Returns the communicator of the ranks; `None`
    /// for a spare. Collective.
    ///
    /// # Errors
    /// [`MembershipError::TooFew`], [`MembershipError::Mpi`].
    pub fn new(world: &Comm, ranks: u32) -> Result<(Membership, Option<Comm>), MembershipError> {
        let (own, started) = (world.rank()?, world.size()?);
        if started < ranks {
            return Err(MembershipError::TooFew { ranks, started });
        }
        let all = world.dup()?;
        let rank = (own < ranks).then_some(own);
        let active = all.split(rank.map(|_| 0), own as i32)?;
        let places = (0..started).map(|process| if process < ranks { process } else { SPARE }).collect();
        let membership = Membership { all, started: world.dup()?, places, ranks, rank };
        if outlives_failures() {
            membership.await_creation()?;
        }
        Ok((membership, active))
    }

    /// Returns this process's rank in the job; `None` for a spare.
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Begins the meeting of all living processes, of which each calls this once, at the end of the job.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn meet(&self) -> Result<Meeting, MpiError> {
        self.started.meet()
    }

    /// Returns `true` if another process has begun a repair, which waits for this one. Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn is_awaited(&self) -> Result<bool, MpiError> {
        match self.all.iprobe(None, None) {
            Ok(_) => Ok(false),
            Err(error) if error.is_process_failure() => Ok(error.is_revoked()),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if this spare has to take part in a repair: a rank is dead, or another process has begun one. Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn needs_repair(&self) -> Result<bool, MpiError> {
        match self.all.iprobe(None, None) {
            Ok(_) => Ok(false),
            Err(error) if error.is_revoked() => Ok(true),
            Err(error) if error.is_process_failure() => {
                // Nobody needs a dead spare.
                let failed = self.all.failed_ranks()?;
                Ok(failed.into_iter().any(|process| self.places.get(process as usize) != Some(&SPARE)))
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces dead ranks by spares. Returns the new communicator of the ranks; `None` if this process is a spare still. Collective over
    /// the living processes, which learn of it because the communicator of all processes is revoked.
    ///
    /// The old communicator of the ranks is not revoked: survivors complete the transfers that they have begun on it.
    ///
    /// # Errors
    /// [`MembershipError::NoSpare`] on all processes, [`MembershipError::Mpi`].
    pub fn repair(&mut self) -> Result<Option<Comm>, MembershipError> {
        self.all.revoke()?;
        loop {
            let living = self.all.shrink()?;
            std::mem::replace(&mut self.all, living).abandon();
            self.await_creation()?;
            if let Attempt::Done(active) = self.assign_ranks()? {
                return Ok(active);
            }
        }
    }

    /// Waits until every living process has the communicator of all processes, and may therefore be told of its revocation: in Open MPI
    /// 5.0.11 a process crashes if that arrives earlier (in `ompi_comm_revoke_local`, whose communicator has no collectives yet).
    fn await_creation(&self) -> Result<(), MpiError> {
        match self.all.agree(true) {
            Err(error) if !error.is_process_failure() => Err(error),
            // Complete in spite of a failure, which the next call reports.
            _ => Ok(()),
        }
    }

    /// Gives the vacant ranks to spares, and creates the communicator of the ranks.
    fn assign_ranks(&mut self) -> Result<Attempt, MembershipError> {
        let own = self.all.rank()?;
        let gathered = self.or_revoke(self.all.all_gather_u32(self.rank.unwrap_or(SPARE)))?;
        let places = gathered.map(|places| assign(&places, self.ranks));
        let of_own = |places: &Vec<u32>| places.get(own as usize).copied().filter(|rank| *rank != SPARE);
        let rank = places.as_ref().and_then(|places| places.as_ref().ok().and_then(of_own));
        let active = match places {
            Some(_) => self.or_revoke(self.all.split(rank.map(|_| 0), rank.unwrap_or(0) as i32))?,
            None => None,
        };
        // Every living process gets here: a process that has noticed a failure has revoked the communicator.
        let is_done = self.or_revoke(self.all.agree(active.is_some()))?;
        match (places, active) {
            (Some(places), Some(active)) if is_done == Some(true) => {
                self.places = places.map_err(|rank| MembershipError::NoSpare { rank })?;
                self.rank = rank;
                Ok(Attempt::Done(active))
            }
            _ => Ok(Attempt::Interrupted),
        }
    }

    /// Revokes the communicator if a call on it has failed because of a dead process, so that no other process waits for this one in that
    /// call; returns `None` then.
    fn or_revoke<T>(&self, called: Result<T, MpiError>) -> Result<Option<T>, MpiError> {
        match called {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_process_failure() => self.all.revoke().map(|()| None),
            Err(error) => Err(error),
        }
    }
}

/// Gives the vacant ranks of a job to spares, both in ascending order. Returns the lowest rank that remains vacant as an error.
fn assign(places: &[u32], ranks: u32) -> Result<Vec<u32>, u32> {
    let mut vacant = (0..ranks).filter(|rank| !places.contains(rank));
    let assigned = places.iter().map(|place| match *place {
        SPARE => vacant.next().unwrap_or(SPARE),
        rank => rank,
    });
    let assigned = assigned.collect();
    vacant.next().map_or(Ok(assigned), Err)
}

/// Returns `true` if processes of this MPI job outlive the failure of another one.
pub fn outlives_failures() -> bool {
    ulfm::outlives_failures()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vacant_ranks_go_to_spares_in_ascending_order() {
        assert_eq!(assign(&[0, 3, SPARE, SPARE, SPARE], 4), Ok(vec![0, 3, 1, 2, SPARE]));
        assert_eq!(assign(&[2, 1, 0], 3), Ok(vec![2, 1, 0]));
        assert_eq!(assign(&[SPARE], 1), Ok(vec![0]));
    }

    #[test]
    fn a_rank_without_a_spare_is_named() {
        assert_eq!(assign(&[0, 3, SPARE], 4), Err(2));
        assert_eq!(assign(&[1], 2), Err(0));
    }
}
