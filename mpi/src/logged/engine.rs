//! The log of a rank, and what it takes to fill and to free it.

use std::rc::{Rc, Weak};

use counterfoil::{Contents, Epoch, Keep, Log, Options, Rank};
use counterfoil_profile::RecordTag;
use rustc_hash::FxHashMap;

use super::choices::Choice;
use super::communicator::Shared;
use super::contributions::Barrier;
use super::error::LoggedError;
use crate::acks::{BatchLimits, Batcher, Releaser, unacknowledged};
use crate::comm::Comm;
use crate::matching::{Posted, Taken};
use crate::operation::SystemOperation;
use crate::point_to_point::Envelope;
use crate::room::standstill::STANDSTILL;
use crate::room::{Asking, Beside, Control, Kind, Rounds};
use crate::stream::{Stream, Streams};
use crate::universe::Universe;

/// How many messages are logged and received between two looks at the acknowledgements.
const LOOK_EVERY: u32 = 32;
/// When something is kept of so many communicators that were given up, ranks are asked.
const LEFT_MAX: usize = 64;
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
    pub(super) log: Option<Log>,
    pub(super) rank: u32,
    /// The lowest number that no communicator of this process has.
    next: u32,
    sent: Streams,
    batcher: Batcher,
    pub(super) releasers: Vec<Releaser>,
    /// `None` behind `finish`.
    pub(super) control: Option<Control>,
    /// By their numbers.
    pub(super) comms: FxHashMap<u32, Weak<Shared>>,
    /// Synchronisations of our own that are under way.
    pub(super) barriers: Vec<Barrier>,
    /// What ranks ask each other where a log is full.
    pub(super) asking: Asking,
    pub(super) rounds: Rounds,
    /// Whether this rank waits for room in its log.
    pub(super) waits: bool,
    /// Bytes that were ever kept of collective operations.
    pub(super) contributed_bytes: u64,
    /// How much has happened to the program.
    pub(super) moves: u64,
    /// What went wrong while the program waited in a call of MPI: the next call says so.
    failed: Option<LoggedError>,
    numbered: Vec<Taken>,
    since_look: u32,
    /// How often the program asked since the last outcome, and the answer was no.
    pub(super) misses: u32,
    pub(super) account: Account,
    /// `None` before the engine has its place, and behind `finish`.
    pub(super) beside: Option<Beside>,
    pub(super) universe: Rc<Universe>,
}

impl Engine {
    /// All ranks do this together: all have a log, or none.
    pub(super) fn begin(world: &Comm, set: impl FnOnce(&mut Options)) -> Result<Engine, LoggedError> {
        let (rank, ranks) = (world.rank()?, world.size()?);
        let control = Control::of(world)?;
        let mut options = Options::new(Rank(rank), ranks);
        options.keep = Keep::Acked;
        set(&mut options);
        let made = Log::create(options);
        let failed = control.how_many(made.is_err())?;
        let log = made?;
        if failed > 0 {
            return Err(LoggedError::Others { ranks: failed });
        }
        Ok(Engine {
            log: Some(log),
            rank,
            next: FIRST_FREE,
            sent: Streams::default(),
            batcher: Batcher::new(ranks, BatchLimits::default()),
            releasers: (0..ranks).map(Releaser::new).collect(),
            control: Some(control),
            comms: FxHashMap::default(),
            barriers: Vec::new(),
            asking: Asking::new(rank, ranks),
            rounds: Rounds::new(rank, ranks, STANDSTILL),
            waits: false,
            contributed_bytes: 0,
            moves: 0,
            failed: None,
            numbered: Vec::new(),
            since_look: 0,
            misses: 0,
            account: Account::default(),
            beside: None,
            universe: Rc::clone(&world.universe),
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

    pub(super) fn control(&mut self) -> Result<&mut Control, LoggedError> {
        self.control.as_mut().ok_or(LoggedError::Finished)
    }

    /// A number for a communicator that was made just now, and whose ranks all do this.
    pub(super) fn number(&mut self, comm: &Comm) -> Result<u32, LoggedError> {
        let mut number = [0];
        comm.all_reduce(SystemOperation::Max, &[self.next], &mut number)?;
        Ok(number[0])
    }

    /// Knows a communicator.
    pub(super) fn learn(&mut self, comm: &Rc<Shared>) -> Result<(), LoggedError> {
        self.moves += 1;
        self.next = self.next.max(comm.number + 1);
        // Those that the program has given up are not found any more.
        self.comms.retain(|_, known| known.strong_count() > 0);
        self.comms.insert(comm.number, Rc::downgrade(comm));
        let left = self.asking.open().filter(|(comm, _)| !self.comms.contains_key(comm)).count();
        if left > LEFT_MAX { self.ask() } else { Ok(()) }
    }

    /// How many operations this rank has ended on a communicator that it is a member of: all of one that it has given up, none of one
    /// that it doesn't know yet. Numbers grow.
    pub(super) fn ended(comms: &FxHashMap<u32, Weak<Shared>>, next: u32, comm: u32) -> u64 {
        match comms.get(&comm).and_then(Weak::upgrade) {
            Some(known) => known.ended.get(),
            None if comm < next => u64::MAX,
            None => 0,
        }
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
            self.moves += 1;
            self.account.messages_logged += 1;
            self.account.bytes_logged += bytes.len() as u64;
        }
        let result = result?;
        self.look_now_and_then()?;
        Ok(result)
    }

    /// A receive has ended with a message, or with none.
    pub(super) fn end_receive(
        &mut self,
        comm: &Shared,
        posted: Posted,
        taken: Option<Envelope>,
        is_open: bool,
    ) -> Result<(), LoggedError> {
        self.moves += 1;
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

    pub(super) fn acknowledge(&mut self, peer: u32) -> Result<(), LoggedError> {
        let batch = self.batcher.take(peer);
        if batch.is_empty() {
            Ok(())
        } else if peer == self.rank {
            self.take_batch(peer, &batch)
        } else {
            Ok(self.control()?.send(peer, Kind::Batch, &batch)?)
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

    /// Looks after everything that has come, and at the log.
    pub(super) fn look(&mut self) -> Result<(), LoggedError> {
        self.since_look = 0;
        self.see_to_others()?;
        self.look_at_barriers()?;
        self.ask_early()?;
        // Who waits for news is told at once.
        if self.asking.has_questions() {
            self.since_look = LOOK_EVERY;
        }
        Ok(())
    }

    /// The same, where the program waits in a call of MPI.
    pub(super) fn look_beside(&mut self) {
        if self.failed.is_none() && self.control.is_some() {
            self.failed = self.see_to_others().err();
        }
    }

    /// Takes the acknowledgements that have come, and answers what others ask.
    fn see_to_others(&mut self) -> Result<(), LoggedError> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        while let Some((kind, from, bytes)) = self.take_one()? {
            match kind {
                Kind::Batch => {
                    self.moves += 1;
                    self.take_batch(from, &bytes)?;
                }
                _ => self.take_question(kind, from, &bytes)?,
            }
        }
        if self.asking.has_questions() { self.answer() } else { Ok(()) }
    }

    /// A message that has come, if one has.
    fn take_one(&mut self) -> Result<Option<(Kind, u32, Vec<u8>)>, LoggedError> {
        let control = self.control()?;
        let Some(came) = control.poll()? else { return Ok(None) };
        let bytes = control.bytes(came.len);
        control.go_on()?;
        Ok(Some((came.kind, came.from, bytes)))
    }

    pub(super) fn answer(&mut self) -> Result<(), LoggedError> {
        let (batcher, comms, next) = (&self.batcher, &self.comms, self.next);
        let answers = self.asking.answers(|by| batcher.has(by), |comm| Engine::ended(comms, next, comm));
        for (to, entries) in answers {
            // Before it says that these are all.
            self.acknowledge(to)?;
            self.control()?.send(to, Kind::Answer, &entries)?;
        }
        Ok(())
    }

    /// The last acknowledgements; and what is in the log is there afterwards, if it has a store. All ranks do this together.
    pub(super) fn finish(&mut self) -> Result<Account, LoggedError> {
        for peer in 0..self.releasers.len() as u32 {
            self.acknowledge(peer)?;
        }
        let mut all_here = self.control()?.meet()?;
        while !self.control()?.is_over(&mut all_here)? {
            self.look()?;
            if let Some(rank) = self.rounds.gone().next() {
                return Err(LoggedError::Gone { rank });
            }
            std::thread::yield_now();
        }
        // They have been begun by everybody.
        while !self.barriers.is_empty() {
            self.look_at_barriers()?;
        }
        self.control()?.tell_counts()?;
        self.all_is_over()?;
        while self.control()?.has_outstanding() {
            let Some((kind, from, bytes)) = self.take_one()? else {
                std::thread::yield_now();
                continue;
            };
            // Who asks has been told everything.
            if kind == Kind::Batch {
                self.take_batch(from, &bytes)?;
            }
        }
        self.beside = None;
        self.control.take().map_or(Ok(()), Control::end)?;
        let mut log = self.log.take().ok_or(LoggedError::Finished)?;
        if log.options().store.is_some() {
            log.checkpoint(LAST_EPOCH, Contents::default())?;
        }
        Ok(self.account)
    }

    /// Records of this rank that nobody has acknowledged.
    pub(super) fn unacknowledged(&mut self) -> Result<u64, LoggedError> {
        self.look()?;
        Ok(unacknowledged(self.log()?))
    }
}
