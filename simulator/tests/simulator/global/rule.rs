//! The rule: attempt after attempt, each from the start, until one completes.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_ack_piggyback::{Flags, Origin, Stamp, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use counterfoil_protocols::api::{DiscardReason, Incoming, Outgoing, Party, Snapshot, Transmission};
use counterfoil_simulator::{
    Action, Actions, HelloOutcome, ProcessSettings, Refusal, Retention, SimProtocol, StableStorage,
};

/// Planted mistakes of the rule.
#[derive(Debug)]
pub(crate) struct Mistake;

impl Mistake {
    pub(crate) const NONE: u8 = 0;
    /// A message of an earlier attempt is delivered.
    pub(crate) const TAKE_UNDONE: u8 = 1;
    /// A message of an attempt that is still being prepared here is dropped, not held.
    pub(crate) const DO_NOT_HOLD: u8 = 2;
    /// Ranks answer `GO`, and the coordinator answers that.
    pub(crate) const DO_NOT_REST: u8 = 3;
}

/// A rank or the coordinator.
#[derive(Debug)]
pub(crate) enum Global<const MISTAKE: u8> {
    Rank(Member),
    Coordinator(Coordinator),
}

#[derive(Debug)]
pub(crate) struct Member {
    settings: ProcessSettings,
    rank: Rank,
    /// Number of the attempt; 0 before any.
    attempt: u32,
    running: bool,
    epoch: Epoch,
    sent: BTreeMap<Rank, u64>,
    received: BTreeMap<Rank, u64>,
    /// Connected peers, with their incarnations.
    met: BTreeMap<Rank, Incarnation>,
}

#[derive(Debug)]
pub(crate) struct Coordinator {
    ranks: u32,
    /// Number of the attempt, higher than those of any earlier coordinator.
    attempt: u32,
    present: BTreeSet<Rank>,
    ready: BTreeSet<Rank>,
}

/// Kinds of control messages; the number of the attempt follows.
const PREPARE: u8 = 1;
const READY: u8 = 2;
const GO: u8 = 3;

fn say(to: Party, what: u8, attempt: u32) -> Action {
    Action::Control { to, bytes: [&[what][..], &attempt.to_le_bytes()].concat() }
}

fn heard(bytes: &[u8]) -> Result<(u8, u32), Refusal> {
    let malformed = || Refusal("a malformed notice".into());
    let (&what, attempt) = bytes.split_first().ok_or_else(malformed)?;
    Ok((what, u32::from_le_bytes(attempt.try_into()?)))
}

impl Member {
    fn prepare(&mut self, attempt: u32, actions: &mut Actions) {
        self.attempt = attempt;
        self.running = false;
        actions.push(Action::RollBack { epoch: Epoch::FIRST });
        actions.push(say(Party::Coordinator, READY, attempt));
    }

    fn go(&mut self, mistake: u8, actions: &mut Actions) {
        if mistake == Mistake::DO_NOT_REST {
            actions.push(say(Party::Coordinator, READY, self.attempt));
        }
        self.running = true;
        for (&peer, &incarnation) in &self.met {
            actions.push(Action::Replay { peer, incarnation, after: Ssn::ZERO, upto: Ssn::MAX });
        }
        actions.push(Action::Resume);
    }

    fn judge(&mut self, header: &WireHeader, mistake: u8) -> Incoming {
        let (from, attempt) = (header.source(), header.phase().0);
        let (sent_by, now) = (Incarnation(attempt), Incarnation(self.attempt));
        let undone = Incoming::Discard(DiscardReason::DeadIncarnation { sent_by, now });
        if attempt > self.attempt || (attempt == self.attempt && !self.running) {
            return if mistake == Mistake::DO_NOT_HOLD { undone } else { Incoming::Hold };
        }
        if attempt < self.attempt && mistake != Mistake::TAKE_UNDONE {
            return undone;
        }
        let received = self.received.entry(from).or_default();
        *received += 1;
        Incoming::Deliver { keep: None }
    }
}

impl Coordinator {
    fn prepare(&mut self, actions: &mut Actions) {
        if self.present.len() == self.ranks as usize {
            self.attempt += 1;
            self.ready.clear();
            let all = self.present.iter();
            actions.extend(all.map(|&rank| say(rank.into(), PREPARE, self.attempt)));
        }
    }

    fn note_ready(&mut self, rank: Rank, attempt: u32, actions: &mut Actions) {
        if attempt == self.attempt && self.ready.insert(rank) && self.ready.len() == self.ranks as usize {
            let all = self.present.iter();
            actions.extend(all.map(|&rank| say(rank.into(), GO, attempt)));
        }
    }
}

/// Refuses an event that only ranks have.
fn not_a_rank<T>() -> Result<T, Refusal> {
    Err(Refusal("the coordinator has no program".into()))
}

impl<const MISTAKE: u8> SimProtocol for Global<MISTAKE> {
    const COORDINATOR: bool = true;
    const RETENTION: Retention = Retention::AllSent;

    fn start(settings: ProcessSettings) -> Result<Self, Refusal> {
        let ProcessSettings { party, ranks, incarnation, .. } = settings;
        Ok(match party {
            Party::Rank(rank) => Global::Rank(Member {
                settings,
                rank,
                attempt: 0,
                running: false,
                epoch: Epoch::FIRST,
                sent: BTreeMap::new(),
                received: BTreeMap::new(),
                met: BTreeMap::new(),
            }),
            Party::Coordinator => Global::Coordinator(Coordinator {
                ranks,
                attempt: incarnation.0 << 16,
                present: BTreeSet::new(),
                ready: BTreeSet::new(),
            }),
        })
    }

    fn on_restart(&mut self, storage: StableStorage<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        if storage.tables.is_some() {
            // The process died when a checkpoint was durable and not yet discarded.
            actions.push(Action::KeepCheckpoints { first: Epoch::FIRST, last: Epoch::FIRST });
            actions.push(Action::RollBack { epoch: Epoch::FIRST });
        }
        Ok(()) // The coordinator will begin a new attempt.
    }

    fn on_connect(&mut self, _: Party) -> Result<Vec<u8>, Refusal> {
        let incarnation = match self {
            Global::Rank(member) => member.settings.incarnation,
            Global::Coordinator(_) => Incarnation(0),
        };
        Ok(incarnation.0.to_le_bytes().to_vec())
    }

    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal> {
        let incarnation = Incarnation(u32::from_le_bytes(hello.try_into()?));
        match (self, peer) {
            (Global::Rank(member), Party::Rank(peer)) => {
                if member.met.get(&peer).is_some_and(|&met| met > incarnation) {
                    return Ok(HelloOutcome::Dead);
                }
                member.met.insert(peer, incarnation);
                if member.running {
                    actions.push(Action::Replay { peer, incarnation, after: Ssn::ZERO, upto: Ssn::MAX });
                }
            }
            (Global::Coordinator(coordinator), Party::Rank(peer)) => {
                coordinator.present.insert(peer);
                coordinator.prepare(actions);
            }
            _ => {}
        }
        Ok(HelloOutcome::Accepted)
    }

    fn on_send(&mut self, envelope: &Envelope, _: &mut Actions) -> Result<Outgoing, Refusal> {
        let Global::Rank(member) = self else { return not_a_rank() };
        let sent = member.sent.entry(envelope.destination).or_default();
        *sent += 1;
        let stamp = Stamp { ssn: Ssn(*sent), flags: Flags::NONE };
        let origin =
            Origin { incarnation: member.settings.incarnation, epoch: member.epoch, phase: Phase(member.attempt) };
        let transmission = if member.running { Transmission::Now } else { Transmission::Hold };
        Ok(Outgoing { header: WireHeader::message(envelope, stamp, origin, None), keep_record: true, transmission })
    }

    fn on_transmit(&mut self, header: &mut WireHeader, _: &mut Actions) -> Result<(), Refusal> {
        let Global::Rank(member) = self else { return not_a_rank() };
        if (header.source(), header.phase().0) != (member.rank, member.attempt) {
            return Err(Refusal(format!("{header:?} is not of attempt {}", member.attempt)));
        }
        Ok(())
    }

    fn on_arrival(&mut self, header: &WireHeader, _: &mut Actions) -> Result<Incoming, Refusal> {
        let Global::Rank(member) = self else { return not_a_rank() };
        Ok(member.judge(header, MISTAKE))
    }

    fn on_control(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        let (what, attempt) = heard(bytes)?;
        match (self, from, what) {
            (Global::Rank(member), _, PREPARE) if attempt > member.attempt => member.prepare(attempt, actions),
            (Global::Rank(member), _, GO) if attempt == member.attempt && !member.running => {
                member.go(MISTAKE, actions);
            }
            (Global::Rank(_), _, GO) if MISTAKE == Mistake::DO_NOT_REST => {
                actions.push(say(Party::Coordinator, READY, attempt));
            }
            (Global::Coordinator(coordinator), Party::Rank(rank), READY) => {
                if MISTAKE == Mistake::DO_NOT_REST && coordinator.ready.contains(&rank) {
                    actions.push(say(rank.into(), GO, attempt));
                }
                coordinator.note_ready(rank, attempt, actions);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &mut Actions) -> Result<Snapshot, Refusal> {
        let Global::Rank(member) = self else { return not_a_rank() };
        member.epoch = Epoch(member.epoch.0 + 1);
        Ok(Snapshot { epoch: member.epoch, tables: Vec::new() })
    }

    fn on_durable(&mut self, _: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        actions.push(Action::KeepCheckpoints { first: Epoch::FIRST, last: Epoch::FIRST });
        Ok(())
    }

    fn on_failure(&mut self, peer: Party, _: &mut Actions) -> Result<(), Refusal> {
        if let (Global::Coordinator(coordinator), Party::Rank(rank)) = (self, peer) {
            coordinator.present.remove(&rank);
        }
        Ok(())
    }

    fn on_rolled_back(&mut self, _: Option<&[u8]>, _: Epoch, _: &mut Actions) -> Result<(), Refusal> {
        let Global::Rank(member) = self else { return not_a_rank() };
        member.epoch = Epoch::FIRST;
        member.sent.clear();
        member.received.clear();
        Ok(())
    }
}
