//! Collectives run natively, and each rank keeps the result. Whoever lacks it after a failure gets it from a rank that has it (ULML,
//! section 2.2); a call that no rank has completed runs again. Only for calls whose result is the same on every rank, or that have none.
//!
//! A replacement and every other rank tell each other how many calls they have completed. Each sends the results that the other lacks, and
//! those of later calls as soon as it has them: a replacement can't take part in a call that others have completed with its predecessor,
//! nor others in one that it gets the result of.

use std::collections::{BTreeSet, VecDeque};

use counterfoil_ack_piggyback::{AckPolicy, Kind, Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank};
use counterfoil_protocols::api::{
    CollectiveCall, CollectivePlan, Effect, EntryKey, EntryKind, Hello, Misbehaviour, Party, Properties, Protocol,
    ProtocolError, RestoreError, Snapshot,
};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{Config, SenderBased};
use counterfoil_simulator::{NoCoordinator, ProcessSettings, Refusal, SimRule};

/// Planted mistakes.
#[derive(Debug)]
pub struct Mistake;

impl Mistake {
    /// None.
    pub const NONE: u8 = 0;
    /// A result isn't sent to a rank that had reported a smaller number before the call was complete.
    pub const NOT_LATER: u8 = 1;
    /// Results are dropped at a checkpoint of their own rank.
    pub const DROPPED_EARLY: u8 = 2;
    /// Results aren't kept.
    pub const NOT_KEPT: u8 = 3;
}

/// Tag of a notice that a rank's durable checkpoint is beyond calls below a number, which follows.
const DURABLE: i32 = 100;

/// State machine of a rank.
#[derive(Debug)]
pub struct Served<const MISTAKE: u8> {
    core: SenderBased,
    /// Number of calls completed.
    completed: u64,
    /// Calls whose results are in the local log.
    kept: BTreeSet<u64>,
    /// By peer: it may lack the results from this number on.
    wanted: Vec<Option<u64>>,
    /// By rank: number of calls that its durable checkpoint is beyond.
    durable: Vec<u64>,
    /// Checkpoint in progress, and the number of calls that it is beyond.
    pending: Option<(Epoch, u64)>,
    effects: VecDeque<Effect>,
}

impl<const MISTAKE: u8> Served<MISTAKE> {
    /// Creates a rank that has done nothing.
    ///
    /// # Errors
    /// Those of the plain rule.
    pub fn new(config: Config) -> Result<Self, ProtocolError> {
        let ranks = config.ranks as usize;
        Ok(Served {
            core: SenderBased::new(config)?,
            completed: 0,
            kept: BTreeSet::new(),
            wanted: vec![None; ranks],
            durable: vec![0; ranks],
            pending: None,
            effects: VecDeque::new(),
        })
    }

    fn rank(&self) -> Rank {
        self.core.config().rank
    }

    fn notify_all(&mut self, number: u64) {
        let (rank, body) = (self.rank(), number.to_le_bytes().to_vec());
        let origin = Origin { incarnation: self.incarnation(), epoch: self.epoch(), phase: Phase(0) };
        for to in (0..self.core.config().ranks).map(Rank).filter(|&to| to != rank) {
            let header = WireHeader::control(rank, to, origin, DURABLE, body.len() as u64, None);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(to), header, body: body.clone() });
        }
    }

    /// Sends the results from `first` on that this rank has, and later ones once it has them.
    fn serve(&mut self, peer: Rank, first: u64) {
        self.wanted[peer.index()] = Some(first);
        let results = self.kept.range(first..).map(|&number| Effect::SendEntry { to: peer, entry: key(number) });
        self.effects.extend(results);
    }

    fn complete(&mut self, number: u64) {
        self.completed = number + 1;
        if MISTAKE == Mistake::NOT_LATER {
            return;
        }
        for (peer, first) in (0..).map(Rank).zip(&self.wanted) {
            if first.is_some_and(|first| first <= number) {
                self.effects.push_back(Effect::SendEntry { to: peer, entry: key(number) });
            }
        }
    }

    /// Drops the results that no rank can ask for again.
    fn note_durable(&mut self, rank: Rank, number: u64) {
        let durable = &mut self.durable[rank.index()];
        *durable = number.max(*durable);
        let own = self.durable[self.rank().index()];
        let all = self.durable.iter().copied().min().unwrap_or(0);
        let before = if MISTAKE == Mistake::DROPPED_EARLY { own } else { all };
        self.kept = self.kept.split_off(&before);
        if let Some(last) = before.checked_sub(1) {
            self.effects.push_back(Effect::DiscardEntries { kind: EntryKind::Collective, first: 0, last });
        }
    }
}

/// Returns the key of a result. The rule is for one communicator.
fn key(number: u64) -> EntryKey {
    EntryKey { kind: EntryKind::Collective, number }
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

impl<const MISTAKE: u8> Protocol for Served<MISTAKE> {
    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, handle_message, next_choice, handle_choice, handle_recovered_choice,
        wants_checkpoint, handle_peer_lost,
    );

    fn properties(&self) -> Properties {
        SenderBased::PROPERTIES
    }

    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        if !self.kept.contains(&call.number) {
            let keep = (MISTAKE != Mistake::NOT_KEPT).then(|| key(call.number));
            return Ok(CollectivePlan::Native { keep });
        }
        Ok(CollectivePlan::Recorded(key(call.number)))
    }

    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        if MISTAKE != Mistake::NOT_KEPT {
            self.kept.insert(call.number);
            self.complete(call.number);
        }
        Ok(())
    }

    fn handle_entry(&mut self, _: Rank, entry: EntryKey, _: &[u8]) -> Result<bool, ProtocolError> {
        let is_new = entry.number >= self.completed && self.kept.insert(entry.number);
        self.effects.extend(is_new.then_some(Effect::Resume));
        Ok(is_new)
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, _: &[u8]) -> Result<bool, ProtocolError> {
        self.kept.insert(entry.number);
        Ok(false)
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let Party::Rank(peer) = from else { return Err(ProtocolError::NoCoordinator) };
        if header.kind() != Kind::Control || header.tag() != DURABLE {
            return self.core.handle_control(from, header, body);
        }
        let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
        let number = number(body).ok_or(ProtocolError::PeerMisbehaved { peer, how })?;
        self.note_durable(peer, number);
        Ok(())
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let Snapshot { epoch, tables } = self.core.handle_checkpoint()?;
        self.pending = Some((epoch, self.completed));
        Ok(Snapshot { epoch, tables: [&self.completed.to_le_bytes()[..], &tables].concat() })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.core.handle_checkpoint_durable(epoch)?;
        if let Some((_, number)) = self.pending.take_if(|(pending, _)| *pending == epoch) {
            self.note_durable(self.rank(), number);
            self.notify_all(number);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let malformed = RestoreError::Malformed { len: tables.len() };
        let (completed, core) = tables.split_at_checked(8).ok_or(malformed.clone())?;
        self.completed = number(completed).ok_or(malformed)?;
        self.core.restore(core, oldest)?;
        self.note_durable(self.rank(), self.completed);
        Ok(())
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        let numbers = [self.completed, self.durable[self.rank().index()]];
        Ok(Hello { opaque: numbers.map(u64::to_le_bytes).concat(), ..self.core.hello(peer)? })
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.core.handle_hello(peer, hello)?;
        let (completed, durable) = hello.opaque.split_at_checked(8).unwrap_or_default();
        if let (Some(completed), Some(durable)) = (number(completed), number(durable)) {
            if hello.incarnation.max(self.incarnation()) > Incarnation(0) {
                self.serve(peer, completed);
            }
            self.note_durable(peer, durable);
        }
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}

/// The rule under the simulator.
#[derive(Debug)]
pub struct SimServed<const MISTAKE: u8>;

impl<const MISTAKE: u8> SimRule for SimServed<MISTAKE> {
    type Rank = Served<MISTAKE>;
    type Coordinator = NoCoordinator;

    const PROPERTIES: Properties = SenderBased::PROPERTIES;

    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
        Ok(Served::new(config(rank, settings.ranks, settings.incarnation))?)
    }
}

/// Returns the plain rule's configuration.
pub(crate) fn config(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
    let policy = AckPolicy { unacked_records_max: 4, ..AckPolicy::default() };
    Config { rank, ranks, incarnation, policy }
}
