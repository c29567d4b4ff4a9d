//! Acknowledgements: those of others for what this rank sent, and its own for what it received.

use std::time::Instant;

use counterfoil::{OnFull, Rank};
use counterfoil_mpi::MpiError;
use counterfoil_mpi::acks::Releaser;
use counterfoil_mpi::room::{Kind, beside};
use counterfoil_profile::RecordTag;

use super::{LOOK_EVERY, LOOK_EVERY_BYTES, Lane, RELEASE_AT_ONCE, Route, Session};

impl Session {
    /// A stream has been received up to a number, as this rank knows by itself.
    pub(crate) fn release(&mut self, of: Lane, number: u64) {
        self.take_batch(of.peer, &RecordTag { comm: of.comm, tag: of.tag, number }.encode());
    }

    /// A message was received, and has the next number of its stream.
    #[inline(always)]
    pub(crate) fn received(&mut self, from: Route, bytes: usize) {
        self.ledger.received(from.lane.peer, bytes);
        if self.batcher.note_at(from.counted, bytes) {
            self.acknowledge(from.lane.peer);
        }
    }

    /// A message that was received has the next number of its stream.
    #[inline]
    pub(crate) fn moved(&mut self, from: Lane, bytes: usize) {
        if self.batcher.note(from.stream(), bytes) {
            self.acknowledge(from.peer);
        }
    }

    /// Sends what there is to be acknowledged to one rank.
    pub(super) fn acknowledge(&mut self, peer: u32) {
        let batch = self.batcher.take(peer);
        if batch.is_empty() {
            return;
        }
        if peer == self.rank {
            self.take_batch(peer, &batch);
        } else {
            let sent = self.control.send(peer, Kind::Batch, &batch);
            self.check(sent);
        }
    }

    /// A rank has said how far it has received. What is released by that is [released bit by bit](Self::look_and_release), where a full log waits
    /// for it and neither refuses a send nor ends.
    fn take_batch(&mut self, peer: u32, batch: &[u8]) {
        if self.log.is_none() {
            return;
        }
        let Some(place) = self.releasers.get_mut(peer as usize) else { return };
        let heard = place.get_or_insert_with(|| Releaser::new(peer)).hear(batch);
        self.check(heard);
        if self.settings.on_full != OnFull::Block {
            self.release_of(peer, usize::MAX);
        } else if !self.releasing.contains(&peer) {
            self.releasing.push(peer);
        }
    }

    /// Releases what a rank has said to have received, so many records at most; whether there may be more.
    fn release_of(&mut self, peer: u32, records_max: usize) -> bool {
        let Some(log) = &mut self.log else { return false };
        let Some(Some(releaser)) = self.releasers.get_mut(peer as usize) else { return false };
        let before = log.acked(Rank(peer));
        let is_more = match releaser.release(log, records_max) {
            Ok(is_more) => is_more,
            Err(error) => {
                self.give_up(&error);
                return false;
            }
        };
        self.ledger.acknowledged(log.acked(Rank(peer)).0 - before.0);
        self.watch.heard(peer, log);
        is_more
    }

    /// Releases a few records that are known to have been received, and looks after everything that has come if it is time. Whoever
    /// waits for an answer of this rank waits for all that is done at once here, and not for a little beside each message.
    #[inline(never)]
    fn look_and_release(&mut self) {
        if let Some(&peer) = self.releasing.last()
            && !self.release_of(peer, RELEASE_AT_ONCE)
        {
            self.releasing.pop();
        }
        if self.since_look >= LOOK_EVERY {
            self.look();
        }
    }

    /// Releases all that is known to have been received. A small message leaves before it is logged, and the batch that names it may be
    /// here before its record is: otherwise the next batch does it, but who waits for room may be who all others wait for.
    pub(super) fn release_what_is_known(&mut self) {
        for peer in 0..self.ranks {
            self.release_of(peer, usize::MAX);
        }
        self.releasing.clear();
    }

    #[inline(always)]
    pub(crate) fn look_now_and_then(&mut self, bytes: usize) {
        let more = u32::try_from(bytes / LOOK_EVERY_BYTES).unwrap_or(LOOK_EVERY);
        self.since_look = self.since_look.saturating_add(1 + more.min(LOOK_EVERY));
        if !self.releasing.is_empty() || self.since_look >= LOOK_EVERY {
            self.look_and_release();
        }
    }

    /// Looks after everything that has come, and at the log.
    pub(crate) fn look(&mut self) {
        self.since_look = 0;
        self.see_to_others();
        if !self.given_up.is_empty() {
            self.sweep_given_up();
        }
        if !self.barriers.is_empty() {
            self.sweep_barriers();
        }
        self.observe();
        self.ask_early();
        // Who waits for news is told at once.
        if self.asking.has_questions() {
            self.since_look = LOOK_EVERY;
        }
    }

    /// Takes the acknowledgements that have come, and answers what others ask.
    pub(super) fn see_to_others(&mut self) {
        loop {
            let came = match self.control.poll() {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(error) => {
                    self.give_up(&error);
                    return;
                }
            };
            let bytes = self.control.bytes(came.len);
            match came.kind {
                Kind::Batch => self.take_batch(came.from, &bytes),
                Kind::Ask => self.asking.asked(came.from, &bytes),
                Kind::Answer => self.answered(came.from, &bytes),
                Kind::Pulse => self.beat(came.from, &bytes),
                Kind::Beat => self.rounds.take(came.from, &bytes, Instant::now()),
                // Nobody says so here: a session is there up to MPI_Finalize.
                Kind::Gone => {}
            }
            match came.kind {
                Kind::Batch | Kind::Answer => self.moves += 1,
                Kind::Ask | Kind::Pulse => beside::be_eager(),
                Kind::Beat | Kind::Gone => {}
            }
            let again = self.control.go_on();
            self.check(again);
        }
        self.see_to_failures();
        if self.asking.has_questions() {
            self.answer();
        }
    }

    /// The program waits in a call of MPI: there is time.
    pub(super) fn look_beside(&mut self) {
        self.see_to_others();
        self.release_what_is_known();
    }

    /// Waits until all ranks that live have come here, and sees to those that have not.
    pub(super) fn meet(&mut self) -> Result<(), MpiError> {
        let mut all_here = self.control.meet()?;
        while !self.control.is_over(&mut all_here)? {
            self.look();
            std::thread::yield_now();
        }
        // They have been begun by everybody who lives.
        while !self.barriers.is_empty() {
            self.sweep_barriers();
            self.see_to_others();
        }
        Ok(())
    }

    pub(super) fn settle(&mut self) -> Result<(), MpiError> {
        self.control.tell_counts()?;
        while self.control.has_outstanding() {
            let Some(came) = self.control.poll()? else {
                std::thread::yield_now();
                continue;
            };
            if came.kind == Kind::Batch {
                let batch = self.control.bytes(came.len);
                self.take_batch(came.from, &batch);
            }
            self.control.go_on()?;
        }
        Ok(())
    }
}
