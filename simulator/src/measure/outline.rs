//! Tables of a job too large for state machines.

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::cluster::{Clusters, EPOCH_DISTANCE};
use counterfoil_protocols::send_deterministic::{RankTable, SentInEpoch, SentTo};

use super::{Logged, MeasureError, Plan};

/// Tables of a job, and the number of messages it would have logged, computed from the plan instead of run.
///
/// A state machine takes some 16 KB, and each message costs it some time. But in a lockstep job every message's sender
/// and receiver epochs follow from the [`Plan`], and with them the contents of all tables. Not modelled: unacknowledged
/// messages (state machines count them as received in the sender's own epoch), and collections, which drop rows no
/// recovery reaches; neither changes the rollbacks, as shown by tests comparing, failure by failure, with the state
/// machines of smaller jobs.
///
/// Memory: a channel takes 40 bytes, and 24 for each sender epoch.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Table each rank would send to the recovery process.
    pub tables: Vec<RankTable>,
    /// Messages to be logged, without explicit acknowledgements.
    pub logged: Logged,
}

/// Common part of all channels between two clusters, with one message an iteration.
#[derive(Debug, Default)]
struct Template {
    epochs: Vec<SentInEpoch>,
    logged: u64,
}

impl Outline {
    /// Computes the tables after `iterations` iterations.
    ///
    /// `sends` returns a rank's receivers and the number of messages to each in an iteration.
    ///
    /// # Errors
    /// [`MeasureError::Hop`] for a nonexistent receiver.
    pub fn new(
        clusters: &Clusters,
        plan: Plan,
        iterations: u32,
        sends: impl Fn(u32) -> Vec<(u32, u64)>,
    ) -> Result<Outline, MeasureError> {
        let (places, count) = (clusters.places(), u32::try_from(clusters.count()).unwrap_or(u32::MAX));
        let ranks = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let epoch_in = |place: u32, iteration: u32| {
            let (rounds, at) = (iteration / plan.iterations.max(1), iteration % plan.iterations.max(1));
            let taken = rounds + u32::from(at > plan.checkpoint_after(place, count));
            Epoch::FIRST.0 + EPOCH_DISTANCE * place + taken
        };
        let mut templates: BTreeMap<(u32, u32), Template> = BTreeMap::new();
        let mut logged = Logged::default();
        let mut tables = Vec::with_capacity(places.len());
        for (rank, &from) in (0..).zip(&places) {
            let mut channels = Vec::new();
            for (peer, messages) in sends(rank) {
                let wrong = MeasureError::Hop { from: rank, to: peer, ranks };
                let to = *places.get(Rank(peer).index()).filter(|_| peer != rank).ok_or(wrong)?;
                let epochs = (0..iterations).map(|iteration| (epoch_in(from, iteration), epoch_in(to, iteration)));
                let template = templates.entry((from, to)).or_insert_with(|| Template::new(epochs));
                logged.messages += messages * u64::from(iterations);
                logged.logged += messages * template.logged;
                let scaled = |entry: &SentInEpoch| SentInEpoch { first: 1 + (entry.first - 1) * messages, ..*entry };
                let epochs = template.epochs.iter().map(scaled).collect();
                channels.push(SentTo { peer, sent: messages * u64::from(iterations), epochs });
            }
            channels.sort_unstable_by_key(|channel| channel.peer);
            let epoch = epoch_in(from, iterations.saturating_sub(1));
            let peers = channels.iter().map(|channel| channel.peer).collect();
            tables.push(RankTable { epoch, channels, peers, ..RankTable::default() });
        }
        Ok(Outline { tables, logged })
    }
}

impl Template {
    /// Computes it from the sender's and receiver's epochs in each iteration.
    fn new(epochs: impl Iterator<Item = (u32, u32)>) -> Template {
        let mut template = Template::default();
        for (first, (sender, receiver)) in (1..).zip(epochs) {
            // Figure 3, line 36.
            let received = (sender >= receiver).then_some(receiver);
            template.logged += u64::from(received.is_none());
            match template.epochs.last_mut() {
                Some(last) if last.epoch == sender => last.received = last.received.max(received),
                _ => template.epochs.push(SentInEpoch { epoch: sender, first, received, stale: None }),
            }
        }
        template
    }
}
