//! User-level message logging (ULML, Liu et al. 2014).
//!
//! Messages are logged by their senders, as under the [plain rule](crate::sender_based), which is the core of this one.
//! Collectives are *not* split into messages: each runs as one transport call, and every participant keeps its result
//! whole. After a failure only the dead rank is replaced. Ranks exchange message numbers and collective counts; a
//! survivor sends again what the replacement lacks; a barrier completed by others is skipped, and the result of any
//! other such call comes from a rank that has it.
//!
//! # From the paper to the code
//!
//! - 2.2, MPI_Barrier, a local variable counts the barriers: `Counts::add`, from `handle_collective_completed`
//! - 2.2, MPI_Send, the message is preserved at its sender: core: `handle_send`, the log's lanes
//! - 2.2, MPI_Allreduce, counted, and the result is logged: [`CollectivePlan::Native`], `Calls::complete`
//! - 2.2, the substitute and the others exchange information: `hello`, `handle_hello`, `Report`
//! - 2.2, the substitute skips the barrier: [`CollectivePlan::Skip`]
//! - 2.2, it receives the result from P0, and does not replay the call: `serve`, [`CollectivePlan::Hold`],
//!   `handle_entry`, [`CollectivePlan::Recorded`]
//! - 3, it replays no collective before its recovery is complete: only those completed by another rank: `plan`
//! - 3.1, point-to-point, queues by destination and SSN, with length and tag: core: channels; the record's header
//! - 3.1, point-to-point, HSR; a smaller SSN was handled: core: HSR *with exceptions*
//! - 3.1, collectives, counts for the various collectives: [`Counts`], by communicator and kind
//! - 3.1, collectives, results are preserved by some processes, on demand: by all, until every rank's durable
//!   checkpoint is beyond: `Calls::collect`
//! - 3.2, Errorhandler, Restart segment: the driver replaces the process; `restore`, `handle_recovered_entry`
//! - 2, piecewise determinism is assumed: core: choices are recorded and forced
//!
//! # Decisions
//!
//! - **Calls with results that differ by rank** (scatter, gather, reduce, alltoall, reduce_scatter, scan) run as
//!   messages: a replacement lacks only the contributions, and the contributors' lanes keep these, by SSN, until a
//!   checkpoint covers them.
//! - **A call completed by some ranks and not by others.** Ranks that have completed it take no part in it again. The
//!   replacement learns of them from their Hellos, and *forwards the result* to the ranks still waiting in the call:
//!   they have lost its contribution.
//! - **A call completed by no rank** runs again, with the same contributions.
//! - **Results survive their process** in the local log, so also all ranks may die at once.
//!
//! `docs/book/src/explanation/user-level.md` has the invariants, why nothing is lost, and what it costs;
//! `docs/lab/errata.md` where the paper's text doesn't work.

mod calls;
mod events;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Epoch, Phase, Rank};

use crate::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Effect, EntryKind, Misbehaviour, NativeCollectives, Party,
    Properties, Protocol, ProtocolError, Rule, RuleOptions,
};
pub use crate::sender_based::Config;
use crate::sender_based::SenderBased;
use calls::Calls;
pub use tables::Counts;
use tables::{Durable, Report};

/// Control header tag for a [`Report`].
///
/// The core's notice is 1.
const CALLS: i32 = 3;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "user-level",
    paper: "Liu 2014, ULML",
    summary: "As sender-based, but keep the results of bcast, allreduce, allgather and barrier whole instead of logging their messages; a rank that has one sends it to a killed rank that lacks it. Only killed ranks roll back. For programs with many such calls",
    properties: UserLevel::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| Ok(Box::new(UserLevel::new(Config::of(rank, incarnation, settings))?)),
    make_coordinator: None,
};

/// State of one rank under the rule.
///
/// Memory: the core's; for each kept result some 20 bytes, and while a peer lags, as many again for this peer. The
/// results themselves are in the local log.
#[derive(Debug)]
pub struct UserLevel {
    core: SenderBased,
    calls: Calls,
    /// Current collective of the program, with its last plan.
    open: Option<(CollectiveCall, CollectivePlan)>,
    /// Checkpoint in progress: its new epoch, and the calls before it.
    pending: Option<(Epoch, Durable)>,
    /// Effects to carry out after the core's.
    effects: VecDeque<Effect>,
}

impl UserLevel {
    /// Rule properties.
    pub const PROPERTIES: Properties = Properties {
        native_collectives: NativeCollectives::Uniform,
        allows_overtaking: true,
        ..Properties::LOGGED_BY_SENDERS
    };

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// Rank outside the job, or a contradictory policy.
    pub fn new(config: Config) -> Result<UserLevel, ProtocolError> {
        Ok(UserLevel {
            core: SenderBased::new(config)?,
            calls: Calls::new(config.rank, config.ranks),
            open: None,
            pending: None,
            effects: VecDeque::new(),
        })
    }

    /// Returns the core, with the state for channels, incarnations and choices.
    pub fn core(&self) -> &SenderBased {
        &self.core
    }

    /// Returns the collectives on a communicator that this rank has completed natively, skipped or been served.
    pub fn counts(&self, comm: u32) -> Counts {
        self.calls.completed().get(&comm).copied().unwrap_or_default()
    }

    fn rank(&self) -> Rank {
        self.core.config().rank
    }

    /// Returns the plan for a call with the same result at every rank.
    fn plan(&self, call: &CollectiveCall) -> CollectivePlan {
        let is_barrier = call.class == CollectiveClass::Barrier;
        let is_completed = self.calls.is_completed_by_another(call);
        if self.calls.is_kept(call) {
            CollectivePlan::Recorded(call.entry())
        } else if is_completed {
            if is_barrier { CollectivePlan::Skip } else { CollectivePlan::Hold }
        } else {
            CollectivePlan::Native { keep: (!is_barrier).then(|| call.entry()) }
        }
    }

    /// Sends a peer the missing results held here, and then the counts, which cover them.
    fn serve(&mut self, peer: Rank) {
        let lacked = self.calls.lacked_by(peer);
        self.effects.extend(lacked.into_iter().map(|entry| Effect::SendEntry { to: peer, entry }));
        if self.calls.is_ahead_of(peer) {
            self.send(peer, self.calls.report());
        }
    }

    fn send(&mut self, peer: Rank, report: Report) {
        let body = report.encode();
        let origin = Origin { incarnation: self.incarnation(), epoch: self.epoch(), phase: Phase(0) };
        let header = WireHeader::control(self.rank(), peer, origin, CALLS, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
    }

    /// Decodes and checks a peer's report, in its Hello or later.
    fn decode(&self, peer: Rank, bytes: &[u8]) -> Result<Report, ProtocolError> {
        let how = Misbehaviour::MalformedNotice { tag: CALLS, len: bytes.len() };
        let report = Report::decode(bytes).ok_or(ProtocolError::PeerMisbehaved { peer, how })?;
        self.calls.check(&report).map_err(|how| ProtocolError::PeerMisbehaved { peer, how })?;
        Ok(report)
    }

    /// Applies a durable checkpoint beyond these calls: reports it to all ranks, and drops results no longer needed by
    /// any.
    fn apply_durable(&mut self, beyond: &Durable) {
        self.calls.note_durable(self.rank(), beyond);
        self.collect();
        let (rank, report) = (self.rank(), self.calls.report_durable());
        for to in (0..self.core.config().ranks).map(Rank).filter(|&to| to != rank) {
            self.send(to, report.clone());
        }
    }

    fn collect(&mut self) {
        for (first, last) in self.calls.collect() {
            self.effects.push_back(Effect::DiscardEntries { kind: EntryKind::Collective, first, last });
        }
    }

    /// Makes the driver ask again for the plan of the current call, if it has changed.
    fn request_new_plan(&mut self) {
        if let Some((call, plan)) = self.open
            && self.plan(&call) != plan
        {
            self.effects.push_back(Effect::Resume);
        }
    }
}
