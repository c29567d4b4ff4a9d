//! Adapter for the send-deterministic rule: its rank, and its recovery process as the coordinator.
//!
//! The simulator's core has the further duties of a driver that the rule's module lists, under
//! [`SimProtocol::RECONNECTS`]. This module only translates, and does a transport's part for the recovery process: a
//! message to an unconnected party waits until it is connected.

use counterfoil_ack_piggyback::{AckPolicy, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{Effect, Hello, Incoming, Outgoing, Party, Protocol, ProtocolError, Snapshot};
use counterfoil_protocols::send_deterministic::{
    Clusters, ClustersError, Config, Floor, RecoveryProcess, SendDeterministic, command_header,
};

use super::protocol::{
    Action, Actions, HelloOutcome, ProcessSettings, Refusal, Retention, SimProtocol, StableStorage, TableSizes,
};
use super::schedule::Canary;

/// Asks for acknowledgements often, so that small programs reach them.
const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 1024, unacked_records_max: 4, unacked_bytes_max: 4 << 20, exceptions_max: 0 };

/// Distance between the first epochs of clusters. With 3, each can take two checkpoints before the next one has taken
/// any.
const CLUSTER_GAP: u32 = 3;

/// One process under [`SendDeterministic`].
#[derive(Debug)]
pub enum SendDet {
    /// A rank.
    Rank(Box<Member>),
    /// The recovery process.
    Coordinator(Box<Coordinator>),
}

/// State of a rank.
#[derive(Debug)]
pub struct Member {
    rule: SendDeterministic,
    rank: Rank,
    /// Last message that each peer has acknowledged since its Hello.
    acked: Vec<Ssn>,
    /// Reports for the recovery process until it is connected; `None` once it is.
    reports: Option<Vec<Vec<u8>>>,
    /// Newest incarnation of the coordinator that sent a Hello.
    coordinator: u32,
    /// Round in which the rule sent its table.
    told: Option<u64>,
}

/// State of the recovery process.
#[derive(Debug)]
pub struct Coordinator {
    rule: RecoveryProcess,
    /// Number of times that it was replaced.
    incarnation: u32,
    /// Round of the last line that was computed.
    drawn: u64,
    /// By rank: commands for it until it is connected; `None` once it is.
    orders: Vec<Option<Vec<Vec<u8>>>>,
    /// Present incarnation of each rank's process.
    met: Vec<u32>,
}

fn clusters(settings: &ProcessSettings) -> Result<Option<Clusters>, ClustersError> {
    (settings.clusters > 0).then(|| Clusters::contiguous(settings.ranks, settings.clusters, CLUSTER_GAP)).transpose()
}

fn not_its_part<T>() -> Result<T, Refusal> {
    Err(Refusal("asked for what only the other kind of process does".into()))
}

impl Member {
    fn start(settings: &ProcessSettings, rank: Rank) -> Result<Member, Refusal> {
        let (first_epoch, ceiling) =
            clusters(settings)?.map_or((Epoch::FIRST, Epoch::MAX), |clusters| clusters.epochs_of(rank));
        let canary = match settings.canary {
            Some(Canary::SendDeterministic(canary)) => Some(canary),
            _ => None,
        };
        let ProcessSettings { ranks, incarnation, .. } = *settings;
        let config = Config { rank, ranks, incarnation, policy: POLICY, first_epoch, ceiling, canary };
        Ok(Member {
            rule: SendDeterministic::new(config)?,
            rank,
            acked: vec![Ssn::ZERO; settings.ranks as usize],
            reports: Some(Vec::new()),
            coordinator: 0,
            told: None,
        })
    }

    /// Translates the rule's effects into actions.
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
        // Comes after the receipts reported before it.
        let told = self.rule.reported_round();
        if told > std::mem::replace(&mut self.told, told) {
            actions.push(Action::ReportTable);
        }
        Ok(())
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        self.acked.fill(Ssn::ZERO);
        self.rule.restore(tables, oldest)?;
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

    fn meet(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal> {
        match peer {
            Party::Rank(peer) => match self.rule.handle_hello(peer, &Hello::decode(hello)?) {
                Err(ProtocolError::DeadHello { .. }) => return Ok(HelloOutcome::Dead),
                other => other?,
            },
            Party::Coordinator => {
                let incarnation = u32::from_le_bytes(hello.try_into()?);
                if incarnation < self.coordinator {
                    return Ok(HelloOutcome::Dead);
                }
                self.coordinator = incarnation;
                let waiting = self.reports.take().into_iter().flatten();
                actions.extend(waiting.map(|bytes| Action::Control { to: Party::Coordinator, bytes }));
            }
        }
        self.poll(actions)?;
        Ok(HelloOutcome::Accepted)
    }

    fn hear(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal> {
        match from {
            Party::Rank(_) => {
                let (header, body) = WireHeader::split(bytes)?;
                self.rule.handle_control(from, header, body)?;
            }
            Party::Coordinator => {
                self.rule.handle_control(from, &command_header(self.rank, bytes), bytes)?;
            }
        }
        self.poll(actions)
    }
}

impl Coordinator {
    fn start(settings: &ProcessSettings) -> Result<Coordinator, Refusal> {
        let ranks = settings.ranks as usize;
        let (clusters, Incarnation(incarnation)) = (clusters(settings)?, settings.incarnation);
        Ok(Coordinator {
            rule: match incarnation {
                0 => RecoveryProcess::new(settings.ranks, clusters),
                _ => RecoveryProcess::replacement(settings.ranks, clusters, incarnation),
            },
            incarnation,
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
            actions.push(Action::SetLine { line: line.iter().map(|epoch| epoch.map(Epoch)).collect() });
        }
    }

    fn meet(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal> {
        let Party::Rank(rank) = peer else { return not_its_part() };
        let process = u32::from_le_bytes(hello.try_into()?);
        if process < self.met[rank.index()] {
            return Ok(HelloOutcome::Dead);
        }
        self.met[rank.index()] = process;
        let waiting = self.orders[rank.index()].take().into_iter().flatten();
        actions.extend(waiting.map(|bytes| Action::Control { to: peer, bytes }));
        Ok(HelloOutcome::Accepted)
    }
}

impl SimProtocol for SendDet {
    const COORDINATOR: bool = true;

    const RETENTION: Retention = Retention::Logged;

    const RECONNECTS: bool = true;

    /// Returns `false` for mistakes about outcomes, which aren't recorded, and about frames that a dead incarnation has
    /// left under way, which end with its connection (but with [`Schedule::late`](super::Schedule::late)).
    fn is_affected_by(canary: Canary) -> bool {
        match canary {
            Canary::SendDeterministic(_) => true,
            Canary::ForgetChoices | Canary::DeliverDead => false,
            other => !other.is_of_a_rule(),
        }
    }

    fn start(settings: ProcessSettings) -> Result<SendDet, Refusal> {
        match settings.party {
            Party::Rank(rank) => Member::start(&settings, rank).map(|member| SendDet::Rank(Box::new(member))),
            Party::Coordinator => {
                Coordinator::start(&settings).map(|coordinator| SendDet::Coordinator(Box::new(coordinator)))
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
        let sizes = member.rule.table_sizes().find(|sizes| sizes.peer == peer)?;
        Some(TableSizes {
            spe: sizes.spe as u64,
            unacknowledged: sizes.unacknowledged,
            rpp: sizes.rpp as u64,
            receive_epochs: sizes.receive_epochs as u64,
        })
    }

    fn wants_checkpoint(&self) -> bool {
        matches!(self, SendDet::Rank(member) if member.rule.wants_checkpoint())
    }

    /// Alternates between the two kinds of floors; the last is the one that collects the most.
    fn on_collect(&mut self, number: Option<u32>, actions: &mut Actions) -> Result<bool, Refusal> {
        let SendDet::Coordinator(coordinator) = self else { return not_its_part() };
        let floor = if number.is_some_and(|number| number % 2 == 0) { Floor::BySmallestEpoch } else { Floor::ByLine };
        let begun = coordinator.rule.begin_collection(floor);
        coordinator.poll(actions);
        Ok(begun)
    }

    fn on_restart(&mut self, storage: StableStorage<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        match self {
            SendDet::Rank(member) => {
                let tables = storage.tables.ok_or_else(|| Refusal("a replacement without a checkpoint".into()))?;
                member.restore(tables, storage.oldest, actions)
            }
            SendDet::Coordinator(coordinator) => {
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

    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal> {
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

    fn on_deferred(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        member.rule.handle_deferred(header)?;
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
                // A new one begins a round, in which all reports are repeated.
                member.reports = Some(Vec::new());
                Ok(())
            }
            (SendDet::Coordinator(coordinator), Party::Rank(rank)) => {
                // Its replacement sends a Hello, and gets all commands that it needs.
                coordinator.orders[rank.index()] = Some(Vec::new());
                Ok(())
            }
            (SendDet::Coordinator(_), Party::Coordinator) => not_its_part(),
        }
    }

    fn on_rolled_back(&mut self, tables: Option<&[u8]>, oldest: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        let SendDet::Rank(member) = self else { return not_its_part() };
        let tables = tables.ok_or_else(|| Refusal("a rollback without a checkpoint".into()))?;
        member.restore(tables, oldest, actions)
    }
}
