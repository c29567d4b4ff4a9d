//! The log of a rank, and what it takes to fill and to free it.

use counterfoil::{AppendError, Contents, Epoch, Keep, Log, OnFull, Options, Rank};
use rustc_hash::FxHashMap;

use super::choices::Choice;
use super::communicator::Shared;
use super::contributions::Asked;
use super::control::{Came, Control};
use super::error::LoggedError;
use crate::acks::{BatchLimits, Batcher, RecordTag, Releaser};
use crate::comm::Comm;
use crate::matching::{Posted, Taken};
use crate::operation::SystemOperation;
use crate::point_to_point::Envelope;
use crate::stream::{Stream, Streams};

/// How many messages are logged and received between two looks at the acknowledgements.
const LOOK_EVERY: u32 = 32;
/// Of MPI_COMM_WORLD and MPI_COMM_SELF, and the first of others.
pub(super) const WORLD: u32 = 0;
pub(super) const ITSELF: u32 = 1;
const FIRST_FREE: u32 = 2;
/// What the checkpoint at the end begins: nothing comes behind it.
const LAST_EPOCH: Epoch = Epoch(2);
/// What a rank has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Messages that were sent, all of them logged.
    pub messages_logged: u64,
    /// Their bytes.
    pub bytes_logged: u64,
    /// Messages that were received.
    pub messages_received: u64,
    /// Collective operations that this rank gave something to.
    pub contributions: u64,
    /// Outcomes that were left to MPI and recorded; none under `Keep::Acked`.
    pub determinants: u64,
}

/// The log, the counts, and the acknowledgements.
#[derive(Debug)]
pub struct Engine {
    /// `None` behind `finish`.
    log: Option<Log>,
    pub(super) rank: u32,
    /// The lowest number that no communicator of this process has.
    next: u32,
    sent: Streams,
    batcher: Batcher,
    releasers: Vec<Releaser>,
    control: Control,
    /// Of each communicator, by its number: the last operation that something is kept of.
    pub(super) contributed: FxHashMap<u32, u64>,
    pub(super) asked: Vec<Asked>,
    numbered: Vec<Taken>,
    since_look: u32,
    /// How often the program asked since the last outcome, and the answer was no.
    pub(super) misses: u32,
    pub(super) account: Account,
}

impl Engine {
    /// All ranks do this together: all have a log, or none.
    pub(super) fn begin(world: &Comm, set: impl FnOnce(&mut Options)) -> Result<Engine, LoggedError> {
        let (rank, ranks) = (world.rank()?, world.size()?);
        let control = Control::new(world)?;
        let mut options = Options::new(Rank(rank), ranks);
        options.keep = Keep::Acked;
        set(&mut options);
        let made = Log::create(options);
        let mut failed = [0];
        let mine = [u32::from(made.is_err())];
        control.comm().all_reduce(SystemOperation::Sum, &mine, &mut failed)?;
        let log = made?;
        if failed != [0] {
            return Err(LoggedError::Others { ranks: failed[0] });
        }
        Ok(Engine {
            log: Some(log),
            rank,
            next: FIRST_FREE,
            sent: Streams::default(),
            batcher: Batcher::new(ranks, BatchLimits::default()),
            releasers: (0..ranks).map(Releaser::new).collect(),
            control,
            contributed: FxHashMap::default(),
            asked: Vec::new(),
            numbered: Vec::new(),
            since_look: 0,
            misses: 0,
            account: Account::default(),
        })
    }

    pub(super) fn account(&self) -> Account {
        self.account
    }

    /// How many ranks the job has.
    pub(super) fn ranks(&self) -> usize {
        self.releasers.len()
    }

    pub(super) fn log(&mut self) -> Result<&mut Log, LoggedError> {
        self.log.as_mut().ok_or(LoggedError::Finished)
    }

    /// A number for a communicator that was made just now, and whose ranks all do this.
    pub(super) fn number(&mut self, comm: &Comm) -> Result<u32, LoggedError> {
        let mut number = [0];
        comm.all_reduce(SystemOperation::Max, &[self.next], &mut number)?;
        self.next = number[0] + 1;
        Ok(number[0])
    }

    /// Sends a message with `send`, which is given what writes the record, for while the message is under way.
    pub(super) fn send<T>(
        &mut self,
        to: Stream,
        bytes: &[u8],
        send: impl FnOnce(&mut dyn FnMut()) -> Result<T, LoggedError>,
    ) -> Result<T, LoggedError> {
        self.make_room(to.peer, bytes.len())?;
        let tag = RecordTag { comm: to.comm, tag: to.tag, number: self.sent.count(to) + 1 };
        let mut claim = Some(self.log()?.claim(Rank(to.peer), RecordTag::LEN, bytes.len())?);
        let result = send(&mut || {
            if let Some(mut claim) = claim.take() {
                let (prefix, payload) = claim.parts_mut();
                prefix.copy_from_slice(&tag.encode());
                payload.copy_from_slice(bytes);
                claim.commit();
            }
        });
        let is_begun = claim.is_none();
        // What was not begun is not logged either: its place is skipped.
        drop(claim);
        if is_begun {
            self.sent.next(to);
            self.account.messages_logged += 1;
            self.account.bytes_logged += bytes.len() as u64;
        }
        let result = result?;
        self.look_now_and_then()?;
        Ok(result)
    }

    /// Waits until a message of so many bytes can be claimed, if the log was told to.
    pub(super) fn make_room(&mut self, peer: u32, len: usize) -> Result<(), LoggedError> {
        let mut has_asked = false;
        loop {
            // The claim leaves no trace: it is made again when the message leaves.
            let claim = self.log()?.claim(Rank(peer), RecordTag::LEN, len);
            let refused = match claim.map(std::mem::forget) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let is_full = matches!(*refused, AppendError::Full(_) | AppendError::DiskRefused(_));
            if !is_full || self.log()?.options().on_full == OnFull::Fail {
                return Err(refused.into());
            }
            if !has_asked {
                has_asked = true;
                let others = (0..self.releasers.len() as u32).filter(|other| *other != self.rank);
                for other in others {
                    self.control.ask(other)?;
                }
            }
            self.look()?;
            std::thread::yield_now();
        }
    }

    /// A receive has ended with a message, or with none.
    pub(super) fn end_receive(
        &mut self,
        comm: &Shared,
        posted: Posted,
        taken: Option<Envelope>,
        is_open: bool,
    ) -> Result<(), LoggedError> {
        let message = taken.map(|of| Taken { source: of.source as i32, tag: of.tag, bytes: of.len });
        comm.matching.borrow_mut().end(posted, message, &mut self.numbered);
        if let Some(Envelope { source, tag, .. }) = taken {
            self.account.messages_received += 1;
            if is_open {
                self.decide(Choice::Receive { source: comm.world(source)?, tag })?;
            }
        }
        let mut numbered = std::mem::take(&mut self.numbered);
        for Taken { source, tag, bytes } in numbered.drain(..) {
            let peer = comm.world(source.unsigned_abs())?;
            let is_due = self.batcher.note(Stream { peer, comm: comm.number, tag }, bytes);
            // To tell oneself takes no message, and what is kept of collective operations is behind it in the same lane.
            if is_due || peer == self.rank {
                self.acknowledge(peer)?;
            }
        }
        self.numbered = numbered;
        self.look_now_and_then()
    }

    fn acknowledge(&mut self, peer: u32) -> Result<(), LoggedError> {
        let batch = self.batcher.take(peer);
        if batch.is_empty() {
            Ok(())
        } else if peer == self.rank {
            self.take_batch(peer, &batch)
        } else {
            Ok(self.control.send_batch(peer, batch)?)
        }
    }

    pub(super) fn take_batch(&mut self, peer: u32, batch: &[u8]) -> Result<(), LoggedError> {
        let (Some(log), Some(releaser)) = (&mut self.log, self.releasers.get_mut(peer as usize)) else {
            return Err(LoggedError::Finished);
        };
        Ok(releaser.take(log, batch)?)
    }

    pub(super) fn look_now_and_then(&mut self) -> Result<(), LoggedError> {
        self.since_look += 1;
        if self.since_look < LOOK_EVERY { Ok(()) } else { self.look() }
    }

    /// Takes the acknowledgements that have come.
    fn look(&mut self) -> Result<(), LoggedError> {
        self.since_look = 0;
        while let Some(came) = self.control.poll()? {
            self.take(came)?;
        }
        self.look_at_asked()
    }

    fn take(&mut self, came: Came) -> Result<(), LoggedError> {
        match came {
            Came::Batch(from, batch) => self.take_batch(from, &batch),
            Came::Ask(from) => self.acknowledge(from),
        }
    }

    /// The last acknowledgements; and what is in the log is there afterwards, if it has a store. All ranks do this together.
    pub(super) fn finish(&mut self) -> Result<Account, LoggedError> {
        self.wait_for_asked()?;
        for peer in 0..self.releasers.len() as u32 {
            self.acknowledge(peer)?;
        }
        // All ranks do this together: behind it, everything that they did before is over.
        let mut outstanding = self.control.outstanding()?;
        self.all_is_over()?;
        while outstanding > 0 {
            match self.control.poll()? {
                // Who asks has been told everything.
                Some(Came::Ask(_)) => outstanding -= 1,
                Some(came) => {
                    self.take(came)?;
                    outstanding -= 1;
                }
                None => std::thread::yield_now(),
            }
        }
        self.control.finish()?;
        let mut log = self.log.take().ok_or(LoggedError::Finished)?;
        if log.options().store.is_some() {
            log.checkpoint(LAST_EPOCH, Contents::default())?;
        }
        Ok(self.account)
    }

    /// Records of this rank that nobody has acknowledged.
    pub(super) fn unacknowledged(&mut self) -> Result<u64, LoggedError> {
        self.look()?;
        let peers = self.releasers.len() as u32;
        let log = self.log()?;
        let of = |peer| log.next_ssn(peer).0.saturating_sub(1).saturating_sub(log.acked(peer).0);
        Ok((0..peers).map(Rank).map(of).sum())
    }
}
