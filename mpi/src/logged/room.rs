//! What is done where the log is full: others are asked for room, as in the library under unmodified programs ([`crate::room`]), and what
//! they ask is answered, also while the program waits in a call of MPI.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Instant;

use counterfoil::{AppendError, Keep, OnFull, Rank};
use counterfoil_profile::RecordTag;

use super::engine::Engine;
use super::error::LoggedError;
use crate::room::asking::Entries;
use crate::room::{Beat, Beside, Kind, Rounds, Step, Waiting, beside};

thread_local! {
    /// The engine of this thread: no other one may look after it.
    static ENGINE: RefCell<Weak<RefCell<Engine>>> = const { RefCell::new(Weak::new()) };
}

/// From now on the engine answers while the program waits in a call of MPI.
pub(super) fn begin(engine: &Rc<RefCell<Engine>>) {
    ENGINE.set(Rc::downgrade(engine));
    let mut engine = engine.borrow_mut();
    engine.beside = Some(Beside::begin(&engine.universe, look_beside));
}

/// Looks after the engine, where nobody is at work with it: this may be within any call of MPI.
fn look_beside() {
    let engine = ENGINE.try_with(|engine| engine.try_borrow().ok().and_then(|engine| engine.upgrade()));
    if let Ok(Some(engine)) = engine
        && let Ok(mut engine) = engine.try_borrow_mut()
    {
        engine.look_beside();
    }
}

impl Engine {
    /// Waits until a message of so many bytes can be claimed, if the log was told to.
    pub(super) fn make_room(&mut self, peer: u32, len: usize) -> Result<(), LoggedError> {
        let Some(mut refused) = self.refusal(peer, len)? else { return Ok(()) };
        let mut waiting = Waiting::begin(Instant::now());
        self.rounds.begin();
        self.waits = true;
        let made = loop {
            match self.look_for_room((peer, len), refused, &mut waiting) {
                Ok(Some(still)) => refused = still,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            std::thread::yield_now();
        };
        self.waits = false;
        made
    }

    /// Why a message can't be claimed; `None` if it can.
    fn refusal(&mut self, peer: u32, len: usize) -> Result<Option<Box<AppendError>>, LoggedError> {
        // The claim leaves no trace: it is made again when the message leaves.
        Ok(self.log()?.try_claim(Rank(peer), RecordTag::LEN, len).map(std::mem::forget).err())
    }

    /// Asks for room, and looks for it: why there is none, if so.
    fn look_for_room(
        &mut self,
        (peer, len): (u32, usize),
        refused: Box<AppendError>,
        waiting: &mut Waiting,
    ) -> Result<Option<Box<AppendError>>, LoggedError> {
        let options = self.log()?.options();
        let on_full = options.on_full;
        // What is acknowledged isn't let go either, and there is nowhere else to put it.
        let is_for_ever = options.keep != Keep::Acked && options.store.is_none() && on_full == OnFull::Block;
        match *refused {
            AppendError::Full(_) | AppendError::DiskRefused(_) if on_full == OnFull::Fail => return Err(refused.into()),
            AppendError::Full(_) if is_for_ever => return Err(refused.into()),
            AppendError::Full(_) | AppendError::DiskRefused(_) => self.ask()?,
            AppendError::SpillBehind(_) => {}
            _ => return Err(refused.into()),
        }
        self.look()?;
        let own = self.rank;
        self.acknowledge(own)?;
        self.go_on_reading()?;
        let Some(refused) = self.refusal(peer, len)? else { return Ok(None) };
        let is_full = matches!(*refused, AppendError::Full(_));
        if is_full && waiting.is_alone(self.asking.is_anybody_behind(self.log.as_ref())) {
            return Err(LoggedError::Alone { refused });
        }
        if is_full && waiting.is_long(Instant::now()) {
            match self.rounds.step(Instant::now(), self.beat()) {
                Step::Wait => {}
                Step::GiveUp(after) => return Err(LoggedError::Standstill { refused, after }),
                Step::Ask(question) => {
                    for other in (0..self.ranks() as u32).filter(|other| *other != own) {
                        self.control()?.send(other, Kind::Pulse, &question)?;
                    }
                }
            }
        }
        Ok(Some(refused))
    }

    /// Memory of what is released is there again when those who read the lanes have gone on to what was written behind it.
    fn go_on_reading(&mut self) -> Result<(), LoggedError> {
        let log = self.log.as_mut().ok_or(LoggedError::Finished)?;
        Ok(self.releasers.iter_mut().try_for_each(|releaser| releaser.take(log, &[]))?)
    }

    /// Asks everybody who could make room in the log, and isn't asked already.
    pub(super) fn ask(&mut self) -> Result<(), LoggedError> {
        let questions = self.asking.questions(self.log.as_ref(), self.contributed_bytes);
        self.send_questions(questions)
    }

    /// Asks how far others are in collective operations where so much was kept for them since it was last asked, so that it needn't be
    /// waited for room later, and the log stays in the cache.
    pub(super) fn ask_early(&mut self) -> Result<(), LoggedError> {
        let (kept, options) = (self.contributed_bytes, self.log()?.options());
        let (keep, budget) = (options.keep, options.memory_bytes_max);
        if keep != Keep::Acked || !self.asking.is_early(kept, budget) {
            return Ok(());
        }
        let questions = self.asking.questions(None, kept);
        self.send_questions(questions)
    }

    fn send_questions(&mut self, questions: Entries) -> Result<(), LoggedError> {
        questions.iter().try_for_each(|(of, entries)| Ok(self.control()?.send(*of, Kind::Ask, entries)?))
    }

    /// Something came that is no acknowledgement.
    pub(super) fn take_question(&mut self, kind: Kind, from: u32, bytes: &[u8]) -> Result<(), LoggedError> {
        match kind {
            Kind::Batch => {}
            Kind::Ask => {
                beside::be_eager();
                self.asking.asked(from, bytes);
            }
            Kind::Answer => {
                self.moves += 1;
                let over = self.asking.answered(from, bytes);
                self.are_over(&over)?;
            }
            Kind::Pulse => {
                beside::be_eager();
                if let Some(answer) = Rounds::answer(bytes, self.beat()) {
                    self.control()?.send(from, Kind::Beat, &answer)?;
                }
            }
            Kind::Beat => self.rounds.take(from, bytes, Instant::now()),
            Kind::Gone => self.rounds.leave(from, Instant::now()),
        }
        Ok(())
    }

    /// The others are told that this rank answers nothing any more.
    fn go_away(&mut self) -> Result<(), LoggedError> {
        let (own, goodbye) = (self.rank, [0; RecordTag::LEN]);
        let mut others = (0..self.ranks() as u32).filter(|other| *other != own);
        others.try_for_each(|other| Ok(self.control()?.send(other, Kind::Gone, &goodbye)?))
    }

    fn beat(&self) -> Beat {
        Beat { happened: self.moves, waits: self.waits, is_together: false }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Without `finish`, as a program does that ends with an error. Nobody is there to be told of another one.
        if self.control.is_some() {
            let _ = self.go_away();
        }
    }
}
