//! What is forgotten of ranks that have failed while this one lives on ([`counterfoil_mpi::room::failures`]).

use std::time::Instant;

use counterfoil::ack::Ack;
use counterfoil::{Epoch, Keep, Phase, Rank};
use counterfoil_mpi::room::is_failure;

use super::Session;
use super::ask::Refused;
use crate::say::say;

impl Session {
    /// Forgets those who have failed since this was last done.
    pub(super) fn see_to_failures(&mut self) {
        for gone in self.control.failures.news() {
            self.rounds.leave(gone, Instant::now());
            self.leave_barriers_of(gone);
            let over = self.asking.forget(gone);
            self.are_over(&over);
            // One for all.
            if (0..self.rank).all(|rank| self.control.failures.is_gone(rank)) {
                say(format_args!(
                    "rank {gone} has failed, as MPI says; the others go on being logged and acknowledged"
                ));
            }
        }
    }

    /// Lets go of what was sent to ranks that have failed, which will acknowledge nothing more: somebody waits for room.
    pub(super) fn release_what_nobody_takes(&mut self) {
        if self.control.failures.count() == 0 || self.settings.keep != Keep::Acked {
            return;
        }
        let Some(log) = &mut self.log else { return };
        let gone = (0..self.ranks).filter(|rank| self.control.failures.is_gone(*rank));
        let failed = gone.map(Rank).find_map(|rank| {
            let last = counterfoil::Ssn(log.next_ssn(rank).0.saturating_sub(1));
            let ack = Ack { ssn: last, epoch: Epoch::FIRST };
            // Its cursor is behind.
            self.releasers[rank.0 as usize] = None;
            (last > log.acked(rank)).then(|| log.acknowledge(rank, ack, Phase::default()).err()).flatten()
        });
        if let Some(error) = failed {
            self.give_up(&error);
        }
    }

    /// A communicator was made: notes what came of it. Where its members could not agree on a number because one of them failed
    /// meanwhile, the program can do nothing with it either but give it up.
    pub(crate) fn check_made(&mut self, known: Result<(), Refused>) {
        match known {
            Err(refused) if is_failure(refused.code) => {
                say(format_args!("a process failed while a communicator was made: what is sent on it is not logged"));
            }
            known => self.check(known),
        }
    }
}
