//! Acknowledgements: those of others for what this rank sent, and its own for what it received.

use counterfoil_mpi::acks::{RecordTag, Releaser};

use super::ask::Refused;
use super::control::Came;
use super::{LOOK_EVERY, LOOK_EVERY_BYTES, Lane, Session};

impl Session {
    /// A stream has been received up to a number, as this rank knows by itself.
    pub(crate) fn release(&mut self, of: Lane, number: u64) {
        self.take_batch(of.peer, &RecordTag { comm: of.comm, tag: of.tag, number }.encode());
    }

    pub(super) fn ask_for_acknowledgements(&mut self) {
        for peer in 0..self.ranks {
            if peer != self.rank && self.ledger.has_logged(peer) {
                let asked = self.control.ask(peer);
                self.check(asked);
            }
        }
    }

    /// A message was received, and has the next number of its stream.
    #[inline]
    pub(crate) fn received(&mut self, from: Lane, bytes: usize) {
        self.ledger.received(from.peer, bytes);
        self.moved(from, bytes);
        self.look_now_and_then(bytes);
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
            let sent = self.control.send_batch(peer, batch);
            self.check(sent);
        }
    }

    pub(super) fn take_batch(&mut self, peer: u32, batch: &[u8]) {
        let Some(log) = &mut self.log else { return };
        let Some(place) = self.releasers.get_mut(peer as usize) else { return };
        let releaser = place.get_or_insert_with(|| Releaser::new(peer));
        if let Err(error) = releaser.take(log, batch) {
            self.give_up(&error);
            return;
        }
        self.watch.heard(peer, log);
    }

    /// Releases what was acknowledged before it was logged: a small message leaves first, and the batch that names it may be here before its
    /// record is. Otherwise the next batch does it, but who waits for room may be who all others wait for.
    pub(super) fn release_what_is_known(&mut self) {
        let Some(log) = &mut self.log else { return };
        let failed = self.releasers.iter_mut().flatten().find_map(|releaser| releaser.take(log, &[]).err());
        if let Some(error) = failed {
            self.give_up(&error);
        }
    }

    #[inline]
    pub(crate) fn look_now_and_then(&mut self, bytes: usize) {
        let more = u32::try_from(bytes / LOOK_EVERY_BYTES).unwrap_or(LOOK_EVERY);
        self.since_look = self.since_look.saturating_add(1 + more.min(LOOK_EVERY));
        if self.since_look >= LOOK_EVERY {
            self.look();
        }
    }

    /// Takes the acknowledgements that have come.
    pub(crate) fn look(&mut self) {
        self.since_look = 0;
        loop {
            let came = match self.control.poll() {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(error) => {
                    self.give_up(&error);
                    return;
                }
            };
            match came {
                Came::Batch(from, len) => {
                    let batch = self.control.bytes(len);
                    self.take_batch(from, &batch);
                }
                Came::Ask(from) => self.acknowledge(from),
            }
            let again = self.control.go_on();
            self.check(again);
        }
        if !self.given_up.is_empty() {
            self.sweep_given_up();
        }
        if !self.barriers.is_empty() {
            self.sweep_barriers();
        }
        self.observe();
    }

    pub(super) fn settle(&mut self) -> Result<(), Refused> {
        let mut outstanding = self.control.outstanding()?;
        while outstanding > 0 {
            let Some(came) = self.control.poll()? else {
                std::thread::yield_now();
                continue;
            };
            outstanding -= 1;
            if let Came::Batch(from, len) = came {
                let batch = self.control.bytes(len);
                self.take_batch(from, &batch);
            }
            self.control.go_on()?;
        }
        Ok(())
    }
}
