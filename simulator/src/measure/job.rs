//! State machines of a job without failures.

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Kind, WireHeader};
use counterfoil_log_core::{Envelope, Rank, Ssn};
use counterfoil_protocols::api::{
    Coordinator, Effect, Floor, Incoming, Party, Protocol, ProtocolError, Transmission, command_header,
};
use counterfoil_protocols::cluster::{Clusters, EPOCH_DISTANCE};
use counterfoil_protocols::send_deterministic::{self as rule, Config, RankTable, SendDeterministic};

use super::logged::Lane;
use super::{Hop, Iteration, Logged, MeasureError, Plan};

/// Ranks sending and receiving an [`Iteration`]'s messages, as often as wanted.
///
/// Memory: a state machine for each rank (some hundred bytes for each peer) and 32 bytes for each used lane; payloads
/// don't exist. So 10,000 ranks take 0.8 GB, and a million more than any machine has: see [`Outline`](super::Outline).
#[derive(Debug)]
pub struct Job<'a> {
    iteration: &'a Iteration,
    /// Each rank's cluster, by its place in the epoch order.
    places: Vec<u32>,
    clusters: u32,
    ranks: Vec<SendDeterministic>,
    /// Lanes indexed by sender, sorted by receiver.
    lanes: Vec<Vec<(Rank, Lane)>>,
    coordinator: rule::RecoveryProcess,
    /// Frames under way in sending order; so every channel is FIFO.
    under_way: VecDeque<Frame>,
    messages: u64,
    explicit_acks: u64,
}

/// Frame under way to a rank.
#[derive(Debug)]
enum Frame {
    Message(WireHeader),
    Control(WireHeader, Vec<u8>),
    Order(Rank, Vec<u8>),
}

impl<'a> Job<'a> {
    /// Creates the job at its start: each cluster in its first epoch, [`EPOCH_DISTANCE`] apart, all message-exchanging
    /// ranks connected.
    ///
    /// # Errors
    /// [`MeasureError::Clusters`], [`MeasureError::Epochs`].
    pub fn new(iteration: &'a Iteration, clusters: &Clusters) -> Result<Job<'a>, MeasureError> {
        let count = iteration.ranks();
        if clusters.ranks() != count as usize {
            return Err(MeasureError::Clusters { clusters: clusters.ranks(), ranks: count });
        }
        let places = clusters.places();
        let epochs = rule::Clusters::new(places.clone(), EPOCH_DISTANCE)?;
        let start = |rank: Rank| {
            let (first_epoch, ceiling) = epochs.epochs_of(rank);
            let config = Config { first_epoch, ceiling, ..Config::new(rank, count) };
            SendDeterministic::new(config).map_err(|source| MeasureError::Refused { rank, source })
        };
        let ranks = (0..count).map(Rank).map(start).collect::<Result<Vec<_>, _>>()?;
        let mut job = Job {
            iteration,
            places,
            clusters: u32::try_from(clusters.count()).unwrap_or(u32::MAX),
            ranks,
            lanes: vec![Vec::new(); count as usize],
            coordinator: rule::RecoveryProcess::new(count, Some(epochs)),
            under_way: VecDeque::new(),
            messages: 0,
            explicit_acks: 0,
        };
        for (one, other) in iteration.connections() {
            job.lanes[one as usize].push((Rank(other), Lane::default()));
            job.lanes[other as usize].push((Rank(one), Lane::default()));
        }
        job.lanes.iter_mut().for_each(|lanes| lanes.sort_unstable_by_key(|&(peer, _)| peer));
        job.connect()?;
        Ok(job)
    }

    /// Runs one iteration, step by step: all messages in a step are sent, then all of them arrive.
    ///
    /// # Errors
    /// [`MeasureError::Refused`], [`MeasureError::Unexpected`].
    pub fn iterate(&mut self) -> Result<(), MeasureError> {
        for step in self.iteration.steps() {
            for hop in step {
                self.send(hop)?;
            }
            self.deliver()?;
        }
        Ok(())
    }

    /// Takes the clusters' checkpoints planned after iteration `at` of a round.
    ///
    /// # Errors
    /// See [`Job::checkpoint`].
    pub fn checkpoint_clusters(&mut self, plan: Plan, at: u32) -> Result<(), MeasureError> {
        let clusters = self.clusters;
        (0..clusters).filter(|&place| plan.checkpoint_after(place, clusters) == at).try_for_each(|p| self.checkpoint(p))
    }

    /// Takes a checkpoint of all ranks in the cluster at `place`, durable at once.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] where the cluster would meet the one above: it takes one checkpoint between two
    /// collections, more only while the one above does, too.
    pub fn checkpoint(&mut self, place: u32) -> Result<(), MeasureError> {
        for rank in (0..self.iteration.ranks()).map(Rank) {
            if self.places[rank.index()] != place {
                continue;
            }
            let epoch = self.ask(rank, |protocol| protocol.handle_checkpoint())?.epoch;
            self.ask(rank, |protocol| protocol.handle_checkpoint_durable(epoch))?;
        }
        self.deliver()
    }

    /// Collects everything no recovery needs any more, which also raises the clusters' ceilings (section III.A.4).
    ///
    /// # Errors
    /// [`MeasureError::Refused`], [`MeasureError::Recovery`].
    pub fn collect(&mut self) -> Result<(), MeasureError> {
        self.coordinator.begin_collection(Floor::ByLine);
        self.deliver()
    }

    /// Returns the tables the ranks would send to the recovery process now.
    #[must_use]
    pub fn tables(&self) -> Vec<RankTable> {
        self.ranks.iter().map(SendDeterministic::table).collect()
    }

    /// Returns the number of messages sent so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Ends the job: reconnects all ranks, so each learns the fate of its unacknowledged messages.
    ///
    /// # Errors
    /// [`MeasureError::Unexpected`] if the fate of a message is still open.
    pub fn finish(mut self) -> Result<Logged, MeasureError> {
        self.connect()?;
        let mut logged = Logged { messages: self.messages, explicit_acks: self.explicit_acks, ..Logged::default() };
        for (rank, lanes) in (0..).map(Rank).zip(&self.lanes) {
            for (peer, lane) in lanes {
                let sent = self.ranks[rank.index()].sent(*peer);
                if Ssn(lane.decided()) != sent {
                    let what = format!(
                        "it knows of {} of {} messages to {peer} whether they are logged",
                        lane.decided(),
                        sent.0
                    );
                    return Err(MeasureError::Unexpected { rank, what });
                }
                logged.logged += lane.logged;
                logged.covered_first += lane.covered_first;
            }
        }
        Ok(logged)
    }

    /// Connects all message-exchanging ranks, on new connections.
    fn connect(&mut self) -> Result<(), MeasureError> {
        for (one, other) in self.iteration.connections() {
            let (one, other) = (Rank(one), Rank(other));
            // Both Hellos are made before either is handled.
            let hellos =
                [self.ask(one, |protocol| protocol.hello(other))?, self.ask(other, |protocol| protocol.hello(one))?];
            for (to, hello) in [other, one].into_iter().zip(hellos) {
                self.ask(to, |protocol| protocol.handle_hello(hello.rank, &hello))?;
            }
        }
        self.deliver()
    }

    fn send(&mut self, hop: &Hop) -> Result<(), MeasureError> {
        let (source, destination) = (Rank(hop.source), Rank(hop.destination));
        let envelope = Envelope { source, destination, tag: 0, comm: 0, len: hop.bytes };
        let outgoing = self.ask(source, |protocol| protocol.handle_send(&envelope))?;
        if outgoing.transmission != Transmission::Now {
            return Err(MeasureError::Unexpected { rank: source, what: format!("{:?}", outgoing.transmission) });
        }
        let mut header = outgoing.header;
        self.ask(source, |protocol| protocol.handle_transmit(&mut header))?;
        self.messages += 1;
        self.under_way.push_back(Frame::Message(header));
        Ok(())
    }

    /// Delivers all frames under way, and those resulting.
    fn deliver(&mut self) -> Result<(), MeasureError> {
        loop {
            while let Some(frame) = self.under_way.pop_front() {
                self.arrive(frame)?;
            }
            while let Some((to, order)) = self.coordinator.poll_message() {
                self.under_way.push_back(Frame::Order(to, order));
            }
            if self.under_way.is_empty() {
                return Ok(());
            }
        }
    }

    fn arrive(&mut self, frame: Frame) -> Result<(), MeasureError> {
        match frame {
            Frame::Message(header) => {
                let rank = header.destination();
                match self.ask(rank, |protocol| protocol.handle_message(&header))? {
                    Incoming::Deliver { .. } => Ok(()),
                    other => Err(MeasureError::Unexpected { rank, what: format!("{other:?}") }),
                }
            }
            Frame::Control(header, body) => {
                let from = Party::Rank(header.source());
                self.ask(header.destination(), |protocol| protocol.handle_control(from, &header, &body))
            }
            Frame::Order(rank, body) => {
                let header = command_header(rank, &body);
                self.ask(rank, |protocol| protocol.handle_control(Party::Coordinator, &header, &body))
            }
        }
    }

    /// Calls `event` with a rank's state machine, and carries out the effects.
    fn ask<T>(
        &mut self,
        rank: Rank,
        event: impl FnOnce(&mut SendDeterministic) -> Result<T, ProtocolError>,
    ) -> Result<T, MeasureError> {
        let answer = event(&mut self.ranks[rank.index()]).map_err(|source| MeasureError::Refused { rank, source })?;
        while let Some(effect) = self.ranks[rank.index()].poll_effect() {
            self.apply(rank, effect)?;
        }
        Ok(answer)
    }

    fn lane(&mut self, from: Rank, to: Rank) -> Option<&mut Lane> {
        let lanes = &mut self.lanes[from.index()];
        let at = lanes.binary_search_by_key(&to, |&(peer, _)| peer).ok()?;
        Some(&mut lanes[at].1)
    }

    fn apply(&mut self, rank: Rank, effect: Effect) -> Result<(), MeasureError> {
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => self.coordinator.handle_control(rank, &body)?,
            Effect::Transmit { to: Party::Rank(_), header, body } => {
                self.explicit_acks += u64::from(header.kind() == Kind::Ack);
                self.under_way.push_back(Frame::Control(header, body));
            }
            Effect::Acknowledged { peer, ack, keep, .. } => {
                if let Some(lane) = self.lane(rank, peer) {
                    lane.decide(ack, keep);
                }
            }
            Effect::Covered { peer, upto, .. } => {
                if let Some(lane) = self.lane(rank, peer) {
                    lane.cover(upto);
                }
            }
            // There are no checkpoints to drop, and no lost message to replay.
            Effect::KeepCheckpoints { .. }
            | Effect::Replay { .. }
            | Effect::ReceiverRolledBack { .. }
            | Effect::Resume => {}
            other => return Err(MeasureError::Unexpected { rank, what: format!("{other:?}") }),
        }
        Ok(())
    }
}
