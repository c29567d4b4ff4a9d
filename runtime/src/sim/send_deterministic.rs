//! The send-deterministic rule in the simulator: its rank, and its recovery process as the coordinator.
//!
//! What the rule's document asks of a driver beyond the frame is in the simulator's core, under
//! [`SimProtocol::RECONNECTS`]. Here is only the translation, and what a transport does for the recovery process: a
//! message to a party that isn't met yet waits until it is.

use counterfoil::ack::{AckPolicy, WireHeader};
use counterfoil::{Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::frame::{Effect, Hello, Incoming, Outgoing, Party, Protocol, ProtocolError, Snapshot};
use counterfoil_protocols::send_deterministic::{
    Clusters, ClustersError, Config, Floor, RecoveryProcess, SendDeterministic, order_header,
};

use super::protocol::{Action, Actions, Greeting, Past, Refusal, Retention, Seat, SimProtocol, TableSizes};
use super::schedule::Canary;

/// Acknowledgements are asked for often, so that small programs meet them.
const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 1024, unacked_records_max: 4, unacked_bytes_max: 4 << 20, exceptions_max: 0 };

/// How many epochs apart clusters begin. With 3, each can take two checkpoints before the next one has taken any.
const CLUSTER_GAP: u32 = 3;

/// One process under [`SendDeterministic`].
#[derive(Debug)]
pub enum SendDet {
    /// A rank.
    Rank(Box<Member>),
    /// The recovery process.
    Coordinator(Box<Coordinator>),
}

/// A rank.
#[derive(Debug)]
pub struct Member {
    rule: SendDeterministic,
    rank: Rank,
    /// Up to where each peer has acknowledged, since it was met.
    acked: Vec<Ssn>,
    /// What the recovery process is to hear when it is met; `None` once it is.
    reports: Option<Vec<Vec<u8>>>,
    /// The newest that was met.
    coordinator: u32,
    /// The round in which the rule told what it knows.
    told: Option<u64>,
}

/// The recovery process.
#[derive(Debug)]
pub struct Coordinator {
    rule: RecoveryProcess,
    /// How often it was replaced.
    incarnation: u32,
    /// The round of the last line that was drawn.
    drawn: u64,
    /// By rank: what it is to hear when it is met; `None` once it is.
    orders: Vec<Option<Vec<Vec<u8>>>>,
    /// The present incarnation of each rank's process.
    met: Vec<u32>,
}

fn clusters(seat: &Seat) -> Result<Option<Clusters>, ClustersError> {
    (seat.clusters > 0).then(|| Clusters::contiguous(seat.ranks, seat.clusters, CLUSTER_GAP)).transpose()
}

fn not_its_part<T>() -> Result<T, Refusal> {
    Err(Refusal("asked for what only the other kind of process does".into()))
}

impl Member {
    fn start(seat: &Seat, rank: Rank) -> Result<Member, Refusal> {
        let (first_epoch, ceiling) =
            clusters(seat)?.map_or((Epoch::FIRST, Epoch::MAX), |clusters| clusters.epochs_of(rank));
        let canary = match seat.canary {
            Some(Canary::SendDeterministic(canary)) => Some(canary),
            _ => None,
        };
        let Seat { ranks, incarnation, .. } = *seat;
        let oldest = seat.oldest.unwrap_or(Epoch::FIRST);
        let config = Config { rank, ranks, incarnation, policy: POLICY, first_epoch, ceiling, oldest, canary };
        Ok(Member {
            rule: SendDeterministic::new(config)?,
            rank,
            acked: vec![Ssn::ZERO; seat.ranks as usize],
            reports: Some(Vec::new()),
            coordinator: 0,
            told: None,
        })
    }

    /// Translates what the rule asks for.
    fn poll(&mut self, actions: &mut Actions) -> Result<(), Refusal> {
        while let Some(effect) = self.rule.poll_effect() {
            let action = match effect {
                Effect::Transmit { to: Party::Coordinator, body, .. } => match &mut self.reports {
                    Some(waiting) => {
                        waiting.push(body);
                        continue;
                    }
                    None => Action::Control { to: Party::Coordinator, bytes: body },
                },
                Effect::Transmit { to, header, body } => {
                    Action::Control { to, bytes: [header.as_bytes(), &body].concat() }
                }
                Effect::Acknowledged { peer, ack, keep, .. } => {
                    let acked = &mut self.acked[peer.index()];
                    let first = acked.next();
                    *acked = ack.ssn.max(*acked);
                    if !keep && first <= ack.ssn {
                        actions.push(Action::Release { peer, first, last: ack.ssn });
                    }
                    Action::Acknowledged { peer, upto: ack.ssn }
                }
                Effect::ReceiverRolledBack { peer, to } => {
                    self.acked[peer.index()] = to;
                    Action::ReceiverRolledBack { peer, to }
                }
                Effect::Covered { peer, upto, .. } => Action::Free { peer, first: Ssn::FIRST, last: upto },
                Effect::Replay { peer, incarnation, after, upto } => Action::Replay { peer, incarnation, after, upto },
                Effect::Resume => Action::Resume,
                Effect::KeepCheckpoints { first, last } => Action::KeepCheckpoints { first, last },
                Effect::RollBack { epoch } => Action::RollBack { epoch },
                other => return Err(Refusal(format!("an effect that this rule has no use for: {other:?}"))),
            };
            actions.push(action);
        }
        // After what was heard of receipts before it.
        let told = self.rule.told_in();
        if told > std::mem::replace(&mut self.told, told) {
            actions.push(Action::Testify);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        self.acked.fill(Ssn::ZERO);
        self.rule.restore(tables)?;
        self.poll(actions)
    }

    fn hello(&mut self, peer: Party) -> Result<Vec<u8>, Refusal> {
        match peer {
            Party::Rank(peer) => Ok(self.rule.hello(peer)?.encode()?),
            Party::Coordinator => {
                self.reports.get_or_insert_default();
                let process = self.rule.incarnation().0 >> 16;
                Ok(process.to_le_bytes().to_vec())
            }
        }
    }

    fn meet(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<Greeting, Refusal> {
        match peer {
            Party::Rank(peer) => match self.rule.handle_hello(peer, &Hello::decode(hello)?) {
                Err(ProtocolError::DeadHello { .. }) => return Ok(Greeting::Dead),
                other => other?,
            },
            Party::Coordinator => {
                let incarnation = u32::from_le_bytes(hello.try_into()?);
                if incarnation < self.coordinator {
                    return Ok(Greeting::Dead);
                }
                self.coordinator = incarnation;
                let waiting = self.reports.take().into_iter().flatten();
                actions.extend(waiting.map(|bytes| Action::Control { to: Party::Coordinator, bytes }));
            }
        }
        self.poll(actions)?;
        Ok(Greeting::Met)
    }

    fn hear(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        match from {
            Party::Rank(_) => {
                let (header, body) = WireHeader::split(bytes)?;
                self.rule.handle_control(from, header, body)?;
            }
            Party::Coordinator => {
                self.rule.handle_control(from, &order_header(self.rank, bytes), bytes)?;
            }
        }
        self.poll(actions)
    }
}

impl Coordinator {
    fn start(seat: &Seat) -> Result<Coordinator, Refusal> {
        let ranks = seat.ranks as usize;
        Ok(Coordinator {
            rule: RecoveryProcess::new(seat.ranks, clusters(seat)?),
            incarnation: seat.incarnation.0,
            drawn: 0,
            orders: vec![Some(Vec::new()); ranks],
            met: vec![0; ranks],
        })
    }

    fn poll(&mut self, actions: &mut Actions) {
        while let Some((to, bytes)) = self.rule.poll_message() {
            match &mut self.orders[to.index()] {
                Some(waiting) => waiting.push(bytes),
                None => actions.push(Action::Control { to: Party::Rank(to), bytes }),
            }
        }
        let Some((round, line)) = self.rule.line() else { return };
        if round > std::mem::replace(&mut self.drawn, round) {
            actions.push(Action::DrawLine { line: line.iter().map(|epoch| epoch.map(Epoch)).collect() });
        }
    }

    fn meet(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<Greeting, Refusal> {
        let Party::Rank(rank) = peer else { return not_its_part() };
        let process = u32::from_le_bytes(hello.try_into()?);
        if process < self.met[rank.index()] {
            return Ok(Greeting::Dead);
        }
        self.met[rank.index()] = process;
        let waiting = self.orders[rank.index()].take().into_iter().flatten();
        actions.extend(waiting.map(|bytes| Action::Control { to: peer, bytes }));
        Ok(Greeting::Met)
    }
}

impl SimProtocol for SendDet {
    const COORDINATOR: bool = true;

    const RETENTION: Retention = Retention::Logged;

    const RECONNECTS: bool = true;

    /// No outcome is recorded; and what a dead incarnation has left under way ends with its connection (but with
    /// [`Schedule::late`](super::Schedule::late)).
    fn heeds(canary: Canary) -> bool {
        match canary {
            Canary::SendDeterministic(_) => true,
            Canary::ForgetChoices | Canary::DeliverDead => false,
            other => !other.is_of_a_rule(),
        }
    }

    fn start(seat: Seat) -> Result<SendDet, Refusal> {
        match seat.party {
            Party::Rank(rank) => Member::start(&seat, rank).map(|member| SendDet::Rank(Box::new(member))),
            Party::Coordinator => {
                Coordinator::start(&seat).map(|coordinator| SendDet::Coordinator(Box::new(coordinator)))
            }
        }
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        match self {
            SendDet::Rank(member) => Some(member.rule.start()),
            SendDet::Coordinator(_) => None,
        }
    }

    fn incarnation(&self, process: Incarnation) -> Incarnation {
        match self {
            SendDet::Rank(member) => member.rule.incarnation(),
            SendDet::Coordinator(_) => process,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self, SendDet::Rank(member) if member.rule.is_running())
    }

    fn is_recovering(&self) -> bool {
        match self {
            SendDet::Rank(member) => !member.rule.is_running() || member.rule.is_recovering(),
            SendDet::Coordinator(coordinator) => coordinator.rule.is_recovering(),
        }
    }

    fn table_sizes(&self, peer: Rank) -> Option<TableSizes> {
        let SendDet::Rank(member) = self else { return None };
        let sizes = member.rule.sizes().find(|sizes| sizes.peer == peer)?;
        Some(TableSizes { spe: sizes.spe as u64, unacknowledged: sizes.unacknowledged, rpp: sizes.rpp as u64 })
    }

    fn wants_checkpoint(&self) -> bool {
        matches!(self, SendDet::Rank(member) if member.rule.wants_checkpoint())
    }

    /// The two kinds of floors take turns; the last is the one that gives up the most.
    fn on_collect(&mut self, number: Option<u32>, actions: &mut Actions) -> Result<bool, Refusal> {
        let SendDet::Coordinator(coordinator) = self else { return not_its_part() };
        let floor = if number.is_some_and(|number| number % 2 == 0) { Floor::BySmallestEpoch } else { Floor::ByLine };
        let begun = coordinator.rule.begin_collection(floor);
        coordinator.poll(actions);
        Ok(begun)
    }

    fn on_restart(&mut self, past: Past<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        match self {
            SendDet::Rank(member) => {
                let tables = past.tables.ok_or_else(|| Refusal("a replacement without a checkpoint".into()))?;
                member.restore(tables, actions)
            }
            SendDet::Coordinator(coordinator) => {
                coordinator.rule.begin_round();
                coordinator.poll(actions);
                Ok(())
            }
        }
    }

    fn on_connect(&mut self, peer: Party) -> Result<Vec<u8>, Refusal> {
        match (self, peer) {
            (SendDet::Rank(member), _) => member.hello(peer),
            (SendDet::Coordinator(coordinator), Party::Rank(_)) => Ok(coordinator.incarnation.to_le_bytes().to_vec()),
            (SendDet::Coordinator(_), Party::Coordinator) => not_its_part(),
        }
    }

    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<Greeting, Refusal> {
        match self {
            SendDet::Rank(member) => member.meet(peer, hello, actions),
            SendDet::Coordinator(coordinator) => coordinator.meet(peer, hello, actions),
        }
    }

    fn on_send(&mut self, envelope: &Envelope, actions: &mut Actions) -> Result<Outgoing, Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        let outgoing = member.rule.handle_send(envelope)?;
        member.poll(actions)?;
        Ok(outgoing)
    }

    fn on_transmit(&mut self, header: &mut WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        member.rule.handle_transmit(header)?;
        member.poll(actions)
    }

    fn on_arrival(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<Incoming, Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        let verdict = member.rule.handle_message(header)?;
        member.poll(actions)?;
        Ok(verdict)
    }

    fn on_waiting(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        member.rule.handle_waiting(header)?;
        member.poll(actions)
    }

    fn on_control(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        match (self, from) {
            (SendDet::Rank(member), _) => member.hear(from, bytes, actions),
            (SendDet::Coordinator(coordinator), Party::Rank(rank)) => {
                coordinator.rule.handle_control(rank, bytes)?;
                coordinator.poll(actions);
                Ok(())
            }
            (SendDet::Coordinator(_), Party::Coordinator) => not_its_part(),
        }
    }

    fn on_checkpoint(&mut self, actions: &mut Actions) -> Result<Snapshot, Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        let snapshot = member.rule.handle_checkpoint()?;
        member.poll(actions)?;
        Ok(snapshot)
    }

    fn on_durable(&mut self, epoch: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        member.rule.handle_checkpoint_durable(epoch)?;
        member.poll(actions)
    }

    fn on_failure(&mut self, peer: Party, actions: &mut Actions) -> Result<(), Refusal> {
        match (self, peer) {
            (SendDet::Rank(member), Party::Rank(peer)) => {
                member.rule.handle_peer_lost(peer)?;
                member.poll(actions)
            }
            (SendDet::Rank(member), Party::Coordinator) => {
                // A new one begins a round, in which all is said again.
                member.reports = Some(Vec::new());
                Ok(())
            }
            (SendDet::Coordinator(coordinator), Party::Rank(rank)) => {
                // Its replacement presents itself, and is told all that it has to know.
                coordinator.orders[rank.index()] = Some(Vec::new());
                Ok(())
            }
            (SendDet::Coordinator(_), Party::Coordinator) => not_its_part(),
        }
    }

    fn on_rolled_back(&mut self, tables: Option<&[u8]>, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        let tables = tables.ok_or_else(|| Refusal("a rollback without a checkpoint".into()))?;
        member.restore(tables, actions)
    }
}
