//! The rule: attempt after attempt, each from the start, until one completes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use counterfoil_ack_piggyback::{Flags, Origin, ReceivedSet, Stamp, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceError, ChoiceRecord, Coordinator, CoordinatorError, DiscardReason, Effect, Hello, Incoming, Kept, NextChoice,
    Outgoing, Party, Properties, Protocol, ProtocolError, Repetition, RestoreError, Rule, RuleOptions, Snapshot,
    Transmission,
};

/// Planted mistakes in the rule.
#[derive(Debug)]
pub(crate) struct Mistake;

impl Mistake {
    pub(crate) const NONE: u8 = 0;
    /// A message from an earlier attempt is delivered.
    pub(crate) const TAKE_UNDONE: u8 = 1;
    /// A message from an attempt still being prepared here is dropped, not held.
    pub(crate) const DO_NOT_HOLD: u8 = 2;
    /// Ranks answer `GO`, and the coordinator answers them.
    pub(crate) const DO_NOT_REST: u8 = 3;
}

/// The rule with one mistake.
#[derive(Debug)]
pub(crate) struct Global<const MISTAKE: u8>;

#[derive(Debug)]
pub(crate) struct Member<const MISTAKE: u8> {
    rank: Rank,
    /// Number of replacements in the upper half, and of rollbacks in the lower.
    incarnation: Incarnation,
    /// Number of the attempt; 0 before any.
    attempt: u32,
    running: bool,
    /// `true` if a rollback was requested.
    rolls_back: bool,
    epoch: Epoch,
    sent: BTreeMap<Rank, u64>,
    /// Connected peers, with their incarnations.
    met: BTreeMap<Rank, Incarnation>,
    effects: VecDeque<Effect>,
}

#[derive(Debug)]
pub(crate) struct Initiator<const MISTAKE: u8> {
    ranks: u32,
    /// Number of the attempt, higher than those of any earlier coordinator.
    attempt: u32,
    ready: BTreeSet<Rank>,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

/// Kinds of control messages; the number of the attempt follows.
const PREPARE: u8 = 1;
const READY: u8 = 2;
const GO: u8 = 3;
/// A replacement has started.
const JOIN: u8 = 4;

fn notice(what: u8, attempt: u32) -> Vec<u8> {
    [&[what][..], &attempt.to_le_bytes()].concat()
}

fn parse(bytes: &[u8]) -> Option<(u8, u32)> {
    let (&what, attempt) = bytes.split_first()?;
    Some((what, u32::from_le_bytes(attempt.try_into().ok()?)))
}

impl<const MISTAKE: u8> Member<MISTAKE> {
    fn origin(&self) -> Origin {
        Origin { incarnation: self.incarnation, epoch: self.epoch, phase: Phase(self.attempt) }
    }

    fn say(&mut self, what: u8) {
        let body = notice(what, self.attempt);
        let header = WireHeader::control(self.rank, self.rank, self.origin(), 0, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Coordinator, header, body });
    }

    fn roll_back(&mut self) {
        self.rolls_back = true;
        self.effects.push_back(Effect::RollBack { epoch: Epoch::FIRST });
    }
}

impl<const MISTAKE: u8> Protocol for Member<MISTAKE> {
    fn properties(&self) -> Properties {
        Global::<MISTAKE>::RULE.properties
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let sent = self.sent.entry(envelope.destination).or_default();
        *sent += 1;
        let stamp = Stamp { ssn: Ssn(*sent), flags: Flags::NONE };
        let header = WireHeader::message(envelope, stamp, self.origin(), None);
        Ok(Outgoing { header, keep_record: false, transmission: Transmission::Now })
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        assert_eq!((header.source(), header.phase().0), (self.rank, self.attempt), "a record of an undone attempt");
        Ok(())
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        let attempt = header.phase().0;
        let undone = DiscardReason::DeadIncarnation { sent_by: Incarnation(attempt), now: Incarnation(self.attempt) };
        if attempt > self.attempt || (attempt == self.attempt && !self.running) {
            return Ok(if MISTAKE == Mistake::DO_NOT_HOLD { Incoming::Discard(undone) } else { Incoming::Hold });
        }
        if attempt < self.attempt && MISTAKE != Mistake::TAKE_UNDONE {
            return Ok(Incoming::Discard(undone));
        }
        Ok(Incoming::Deliver { keep: None })
    }

    fn handle_control(&mut self, _: Party, _: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        match parse(body) {
            Some((PREPARE, attempt)) if attempt > self.attempt => {
                (self.attempt, self.running) = (attempt, false);
                self.roll_back();
                self.say(READY);
            }
            Some((GO, attempt)) if attempt == self.attempt => {
                if MISTAKE == Mistake::DO_NOT_REST {
                    self.say(READY);
                }
                if !std::mem::replace(&mut self.running, true) {
                    self.effects.push_back(Effect::Resume);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn next_choice(&mut self) -> NextChoice {
        NextChoice { sequence: 0, forced: None }
    }

    fn handle_choice(&mut self, _: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        Ok(None)
    }

    fn handle_recovered_choice(&mut self, _: &[u8]) -> Result<(), ChoiceError> {
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.running
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(Snapshot { epoch: Epoch::FIRST, tables: Epoch::FIRST.0.to_le_bytes().to_vec() })
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        self.epoch = Epoch(self.epoch.0 + 1);
        Ok(Snapshot { epoch: self.epoch, tables: self.epoch.0.to_le_bytes().to_vec() })
    }

    fn handle_checkpoint_durable(&mut self, _: Epoch) -> Result<(), ProtocolError> {
        self.effects.push_back(Effect::KeepCheckpoints { first: Epoch::FIRST, last: Epoch::FIRST });
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], _: Epoch) -> Result<(), RestoreError> {
        self.epoch = Epoch(u32::from_le_bytes(
            tables.try_into().map_err(|_| RestoreError::Contradiction { what: "its length" })?,
        ));
        self.sent.clear();
        if std::mem::replace(&mut self.rolls_back, false) {
            self.incarnation.0 += 1;
            return Ok(());
        }
        if self.epoch > Epoch::FIRST {
            // The process died when a checkpoint was durable and not yet discarded.
            self.effects.push_back(Effect::KeepCheckpoints { first: Epoch::FIRST, last: Epoch::FIRST });
            self.roll_back();
        }
        self.say(JOIN);
        Ok(())
    }

    fn handle_peer_lost(&mut self, _: Rank) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn hello(&self, _: Rank) -> Result<Hello, ProtocolError> {
        Ok(Hello {
            rank: self.rank,
            incarnation: self.incarnation,
            epoch: self.epoch,
            received: ReceivedSet::new(),
            covered: (Epoch::FIRST, Ssn::ZERO),
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            opaque: Vec::new(),
        })
    }

    /// Each rank sends all messages of its attempt to any connecting peer.
    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        let incarnation = hello.incarnation;
        let met = self.met.entry(peer).or_default();
        if incarnation < *met {
            return Err(ProtocolError::DeadHello { peer, incarnation, now: *met });
        }
        *met = incarnation;
        self.effects.push_back(Effect::Replay { peer, incarnation, after: Ssn::ZERO, upto: Ssn::MAX });
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

impl<const MISTAKE: u8> Initiator<MISTAKE> {
    fn broadcast(&mut self, what: u8) {
        let body = notice(what, self.attempt);
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }

    fn prepare(&mut self) {
        self.attempt += 1;
        self.ready.clear();
        self.broadcast(PREPARE);
    }
}

impl<const MISTAKE: u8> Coordinator for Initiator<MISTAKE> {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        match parse(body) {
            Some((JOIN, _)) => self.prepare(),
            Some((READY, attempt)) if attempt == self.attempt => {
                if MISTAKE == Mistake::DO_NOT_REST && self.ready.contains(&from) {
                    self.messages.push_back((from, notice(GO, attempt)));
                }
                if self.ready.insert(from) && self.ready.len() == self.ranks as usize {
                    self.broadcast(GO);
                }
            }
            Some(_) => {}
            None => return Err(CoordinatorError::Malformed { from, len: body.len() }),
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }
}

impl<const MISTAKE: u8> Global<MISTAKE> {
    pub(crate) const RULE: Rule = Rule {
        name: "global",
        paper: "none",
        summary: "Roll back all ranks to the start when any process dies",
        properties: Properties {
            repeats: Repetition::Nothing,
            keeps: Kept::Nothing,
            rolls_back_survivors: true,
            has_coordinator: true,
            collects: true,
            ..Properties::LOGGED_BY_SENDERS
        },
        takes: &[],
        options: RuleOptions::DEFAULT,
        make_rank: &|rank, incarnation, _| {
            Ok(Box::new(Member::<MISTAKE> {
                rank,
                incarnation: Incarnation(incarnation.0 << 16),
                attempt: 0,
                running: false,
                rolls_back: false,
                epoch: Epoch::FIRST,
                sent: BTreeMap::new(),
                met: BTreeMap::new(),
                effects: VecDeque::new(),
            }))
        },
        make_coordinator: Some(&|replaced, settings| {
            let (attempt, ready, messages) = (replaced << 16, BTreeSet::new(), VecDeque::new());
            let mut initiator = Initiator::<MISTAKE> { ranks: settings.ranks, attempt, ready, messages };
            initiator.prepare();
            Box::new(initiator)
        }),
    };
}
