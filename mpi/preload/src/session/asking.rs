//! Asks others for room where this rank's log is full, answers what they ask, and asks whether anybody gets on.

use std::time::{Duration, Instant};

use counterfoil::Keep;
use counterfoil_mpi::room::asking::Entries;
use counterfoil_mpi::room::{Beat, Kind, Rounds, Step, beside};
use counterfoil_profile::RecordTag;

use super::choices::misses;
use super::ledger::Traffic;
use super::slot::enter_if_free;
use super::{Session, is_together, put_off};

/// Why a rank doesn't wait any longer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRoom {
    /// All ranks wait, for each other or for this one.
    #[error(
        "{refused}, and nobody will make room: for {} s all ranks have been waiting in calls of MPI or for room in their logs. \
         COUNTERFOIL_BUDGET gives it more, COUNTERFOIL_STANDSTILL gives the others more time",
        after.as_secs()
    )]
    Standstill {
        /// What the log said.
        refused: String,
        /// How long nothing has happened.
        after: Duration,
    },
    /// Everybody else has received what was sent, and has come as far.
    #[error("{refused}, and only the program itself could make room. COUNTERFOIL_BUDGET gives it more")]
    Alone {
        /// What the log said.
        refused: String,
    },
}

/// MPI is up: a rank answers from now on while it waits in a call of MPI.
pub(super) fn begin() {
    // SAFETY: MPI is up; this library was loaded before the program, and nobody unloads it.
    unsafe { beside::begin(look_beside) };
}

fn look_beside() {
    enter_if_free(Session::look_beside);
}

/// MPI is about to end.
pub(super) fn end() {
    // SAFETY: MPI is still up.
    unsafe { beside::end() };
}

impl Session {
    /// Asks everybody who could make room in the log, and isn't asked already.
    pub(super) fn ask(&mut self) {
        self.see_what_is_open();
        let questions = self.asking.questions(self.log.as_ref(), self.ledger.contributions.bytes);
        self.send_all(Kind::Ask, questions);
    }

    /// Asks how far others are in collective operations where so much was kept for them since it was last asked, so that it needn't be
    /// waited for room later, and the log stays in the cache.
    pub(super) fn ask_early(&mut self) {
        let kept = self.ledger.contributions.bytes;
        if self.settings.keep == Keep::Acked && self.asking.is_early(kept, self.settings.budget) {
            self.see_what_is_open();
            let questions = self.asking.questions(None, kept);
            self.send_all(Kind::Ask, questions);
        }
    }

    fn send_all(&mut self, kind: Kind, entries: Entries) {
        for (to, entries) in entries {
            let sent = self.control.send(to, kind, &entries);
            self.check(sent);
        }
    }

    /// Whom else this rank waits for if it waits for room.
    pub(super) fn is_anybody_behind(&mut self) -> bool {
        self.see_what_is_open();
        self.asking.is_anybody_behind(self.log.as_ref())
    }

    /// Communicators that something is kept for. Operations of which nobody else is a part are over when they have ended here.
    fn see_what_is_open(&mut self) {
        let mut over = Vec::new();
        for info in self.comms.open() {
            if !self.asking.keep(info.number, info.kept, info.others(self.rank)) {
                over.push((info.number, info.ended));
            }
        }
        self.are_over(&over);
    }

    /// A communicator is given up: those who are in it may be asked later. Says how many there are of the kind.
    pub(super) fn leave_open(&mut self, comm: u32) -> usize {
        self.see_what_is_open();
        self.asking.leave(comm)
    }

    /// Answers what there is news of.
    pub(super) fn answer(&mut self) {
        let (batcher, comms) = (&self.batcher, &self.comms);
        let answers = self.asking.answers(|by| batcher.has(by), |comm| comms.ended(comm));
        for to in answers.keys() {
            // Before it says that these are all.
            self.acknowledge(*to);
        }
        self.send_all(Kind::Answer, answers);
    }

    /// A rank has answered.
    pub(super) fn answered(&mut self, from: u32, entries: &[u8]) {
        let over = self.asking.answered(from, entries);
        self.are_over(&over);
    }

    /// How this rank is: the number is another one after whatever it was that MPI did for it.
    fn own_beat(&self) -> Beat {
        let [logged, received] =
            [self.ledger.all_logged(), self.ledger.all_received()].map(|of| Traffic::sum(of).messages);
        let happened = logged + received + self.ledger.all_collectives() + self.moves + misses();
        Beat { happened, waits: self.waiting.is_some(), is_together: is_together() }
    }

    /// Asks all others where they are, if that is due. Says for how long nobody has got any further, if it is long enough and this
    /// rank's turn to give up.
    pub(super) fn stands_still(&mut self) -> Option<Duration> {
        let own = self.own_beat();
        match self.rounds.step(Instant::now(), own) {
            Step::Wait => None,
            Step::GiveUp(after) => Some(after),
            Step::Ask(question) => {
                self.pulse(&question);
                None
            }
        }
    }

    fn pulse(&mut self, question: &[u8; RecordTag::LEN]) {
        let own = self.rank;
        for peer in (0..self.ranks).filter(|peer| *peer != own) {
            let asked = self.control.send(peer, Kind::Pulse, question);
            self.check(asked);
        }
    }

    /// A rank wants to know how much has happened here.
    pub(super) fn beat(&mut self, to: u32, question: &[u8]) {
        if let Some(answer) = Rounds::answer(question, self.own_beat()) {
            let sent = self.control.send(to, Kind::Beat, &answer);
            self.check(sent);
            // A program that polls is not waiting: from here its next call counts.
            put_off::be_due();
        }
    }
}
