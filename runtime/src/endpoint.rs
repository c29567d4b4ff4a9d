//! The [`Communicator`] for one rank: log, protocol, transport, matching and trace.
//!
//! One thread; progress is made inside calls (MPI's rule), and only [`Transport::poll`] blocks. The log is the send
//! queue: a send appends a record, and a cursor over the lane feeds the connection whenever it is writable. First
//! transmission and replay are the same code, from different positions of a lane.
//!
//! | file | contents |
//! |---|---|
//! | `endpoint` | the state, and the calls of the communicator |
//! | `start` | a fresh start, a restart from a checkpoint or from the log of a dead incarnation |
//! | `sending` | logging a message; transmitting records |
//! | `progress`, `wait` | events of the transport, effects of the protocol |
//! | `choices`, `polls` | outcomes that depend on timing |
//! | `readings` | readings of clocks |
//! | `contexts` | messages of several communicators |
//! | `recovery` | progress of a replacement |
//! | `synchronous` | sends that complete once they are matched |
//! | `native`, `entries` | collectives outside the log; entries that the rule keeps in the local log |
//! | `asked` | checkpoints that the rule asks for |
//! | `held` | held messages and blocked ranks |
//! | `rollback` | rollback, and the checkpoints kept for it |

mod asked;
mod choices;
mod contexts;
mod entries;
mod held;
mod native;
mod polls;
mod progress;
mod readings;
mod recovery;
mod requests;
mod rollback;
mod saving;
mod sending;
mod start;
mod synchronous;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil::{Diverged, Epoch, Log, Tier};
use counterfoil_protocols::api::{CollectiveClass, EntryKind, Properties, Protocol};

use crate::Error;
use crate::checkpoint::{Counters, Snapshot};
use crate::communicator::{
    APPLICATION_CONTEXT, COLLECTIVE_CONTEXT, CallError, CollectiveRun, CollectiveSubstrate, Communicator, InternalTag,
    Request, Restart, StateProvider, Status,
};
use crate::history::{Event, History};
use crate::interval::Interval;
use crate::matching::{Forced, Matching, Pattern};
use crate::saved::StatePlace;
use crate::settings::RankSettings;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::transport::{Report, Step, Transport};
use asked::AskedCheckpoint;
use entries::Entries;
use held::HeldMessages;
use native::Native;
use polls::Polls;
use progress::Awaited;
use readings::Readings;
use recovery::Recovery;
use requests::{Requests, State};
use rollback::Rollback;
use sending::Outbound;
use synchronous::MatchQueries;
use wait::Wait;

pub use saving::{BegunWith, Saves};
pub(crate) use sending::cursor_from;
pub(crate) use start::log_options;
pub use start::{EndpointOptions, LogFiles};
pub(crate) use synchronous::answer_match_query;

/// One rank's end of the communicator, over transport `T` and under protocol `P`.
#[derive(Debug)]
pub struct Endpoint<T, P> {
    rank: u32,
    settings: RankSettings,
    log: Log,
    /// Properties of `protocol`.
    properties: Properties,
    protocol: P,
    transport: T,
    matching: Matching,
    trace: Trace,
    requests: Requests,
    /// For each rank: its transmission state.
    outbound: Vec<Outbound>,
    match_queries: MatchQueries,
    recovery: Option<Recovery>,
    held: HeldMessages,
    rollback: Rollback,
    saves: Saves,
    /// This process exits; `true`: after saving its state.
    exits: Option<bool>,
    interval: Interval,
    native: Native,
    entries: Entries,
    asked: AskedCheckpoint,
    /// Messages from this rank to itself outside the log.
    to_self: u64,
    restored: Option<Bytes>,
    collectives: u64,
    iteration: u64,
    tally: Tally,
    /// First tolerated difference not yet taken.
    divergence: Option<Diverged>,
    /// Bytes sent since the last poll.
    ///
    /// A short message counts as a longer one.
    bytes_since_poll: usize,
    awaited: Awaited,
    /// The rank's history, in a replay that records it.
    pub(crate) history: Option<History>,
    polls: Polls,
    readings: Readings,
    /// The launcher has let the rank end.
    finish: bool,
    /// Ranks with records awaiting a writable connection.
    backlogs: BTreeSet<u32>,
    /// For each rank, whether to read from it and whether to write to it; recomputed where a poll needs it.
    interest: (Vec<bool>, Vec<bool>),
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Reports the program's end with `outcome`, and serves the peers (replays, acknowledgements) until all ranks are
    /// done.
    ///
    /// # Errors
    /// [`Error`] from progress.
    pub fn finish(&mut self, outcome: Vec<u8>) -> Result<(), Error> {
        self.end_step(Step::Iteration)?;
        self.end_recovery()?;
        self.check_logging();
        // The outcome depends on the recorded choices.
        self.record_polls()?;
        self.sync_choices()?;
        self.transport.report(Report::Done { outcome, tally: self.tally })?;
        while !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// Reports the program's failure.
    ///
    /// The process must end then.
    pub fn fail(&mut self, error: String) {
        if let Err(error) = self.transport.report(Report::Failed { error }) {
            tracing::error!(%error, "cannot report a failure to the launcher");
        }
    }

    /// Returns `true` if this process ends because its rank rolls back to an earlier checkpoint ([`Error::RollsBack`]).
    ///
    /// The launcher has been told.
    pub fn is_rolling_back(&self) -> bool {
        self.rollback.in_progress
    }

    /// Returns this incarnation's counters.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Sets the longest wait for log space, in place of [`RankSettings::full_wait_max`].
    pub fn set_full_wait_max(&mut self, max: Duration) {
        self.settings.full_wait_max = max;
    }

    fn check_source(&self, call: &'static str, source: Option<u32>) -> Result<(), CallError> {
        source.map_or(Ok(()), |source| CallError::check_rank(call, source, self.settings.ranks))
    }

    fn check_tag(call: &'static str, tag: Option<i32>) -> Result<(), CallError> {
        tag.map_or(Ok(()), |tag| CallError::check_tag(call, tag))
    }

    fn post_send(&mut self, to: u32, tag: i32, comm: u32, payload: &[u8]) -> Result<Request, Error> {
        self.requests.check_room()?;
        self.send_message(to, tag, comm, payload, false)?;
        Ok(self.requests.add(State::Sent(Status { source: to, tag, len: payload.len() })))
    }

    fn post_synchronous_send(&mut self, to: u32, tag: i32, comm: u32, payload: &[u8]) -> Result<Request, Error> {
        self.requests.check_room()?;
        let ssn = self.send_message(to, tag, comm, payload, true)?;
        let status = Status { source: to, tag, len: payload.len() };
        Ok(self.requests.add(State::SentSynchronous { status, ssn: ssn.0, seen: false }))
    }

    fn post_receive(&mut self, pattern: Pattern) -> Result<Request, Error> {
        self.requests.check_room()?;
        let choice = self.depends_on_timing(pattern).then(|| self.begin_choice());
        let mut forced = choice.and_then(|choice| choice.forced);
        if choice.is_some() && forced.is_none() && self.transport.repeats_only() {
            // Up to the end of the record it had taken nothing, whatever others had sent.
            forced = Some(Forced::NOTHING);
        }
        let request = self.requests.add(State::Posted { choice });
        self.record(|history| Event::Receive {
            request: request.id(),
            pattern,
            place: pattern.source.is_none().then(|| history.place.clone()),
        })?;
        if self.polls.is_cancelled(request.id()) {
            return Ok(request);
        }
        if let Some(message) = self.matching.handle_receive(request.id(), pattern, forced) {
            self.complete(request.id(), message)?;
        }
        Ok(request)
    }

    /// Records an event, in a replay with a history.
    fn record(&mut self, event: impl FnOnce(&History) -> Event) -> Result<(), Error> {
        match &mut self.history {
            Some(history) => Ok(history.write(&event(history))?),
            None => Ok(()),
        }
    }

    /// Ends an execution step: serves the peers while the transport holds this rank after it.
    fn end_step(&mut self, step: Step) -> Result<(), Error> {
        while self.transport.holds_after(step, self.iteration)? && !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// Warns once if logging has stopped because the log was full, and counts it for the launcher.
    fn check_logging(&mut self) {
        if self.tally.logging_stopped == 0 && self.log.usage().stopped_logging {
            tracing::warn!(rank = self.rank, "the log was full and logging has stopped: not recoverable from here");
            self.tally.logging_stopped = 1;
        }
    }

    fn write_checkpoint(&mut self, epoch: Epoch, tables: Vec<u8>, state: &[u8]) -> Result<(), Error> {
        let snapshot = Snapshot {
            application: Bytes::copy_from_slice(state),
            protocol: tables.into(),
            counters: Counters {
                trace: self.trace.counters().clone(),
                collectives: self.native.counted(self.collectives),
                iteration: self.iteration,
                logged: (self.tally.messages_logged, self.tally.bytes_logged),
                to_self: self.to_self,
                requests: self.requests.first_open(),
                choices: self.requests.first_choice().unwrap_or(self.polls.next_choice()),
            },
            unexpected: self.matching.unexpected().into_iter().cloned().collect(),
        };
        let begun = self.log.begin_checkpoint(epoch, snapshot.into_contents()?)?;
        self.end_step(Step::CheckpointBegun)?;
        Ok(self.log.finish_checkpoint(begun)?)
    }

    /// Takes a checkpoint.
    ///
    /// Returns the epoch that it begins.
    fn save(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        let began = Instant::now();
        let snapshot = self.protocol.handle_checkpoint()?;
        let epoch = snapshot.epoch;
        self.record_polls()?;
        self.log.local().seal(epoch)?;
        self.write_checkpoint(epoch, snapshot.tables, state)?;
        let now = Instant::now();
        self.tally.checkpoints += 1;
        self.tally.checkpoint_us += (now - began).as_micros() as u64;
        self.interval.note_checkpoint(now, &self.tally);
        self.rollback.note_checkpoint(epoch);
        self.protocol.handle_checkpoint_durable(epoch)?;
        self.carry_out_effects()?;
        Ok(epoch)
    }

    /// Makes recorded choices and deliveries durable in the node-local tier, in which ranks may lose their memory.
    ///
    /// A message depending on them must not leave before: else a peer's checkpoint could depend on an outcome not
    /// repeated by a re-execution.
    fn sync_choices(&mut self) -> Result<(), Error> {
        if self.settings.tier == Tier::NodeLocal { Ok(self.log.sync_local()?) } else { Ok(()) }
    }
}

impl<T: Transport, P: Protocol> Communicator for Endpoint<T, P> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.settings.ranks
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_tag("isend", tag)?;
        self.isend_in(APPLICATION_CONTEXT, to, tag, payload)
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        Self::check_tag("irecv", tag)?;
        self.irecv_in(APPLICATION_CONTEXT, source, tag)
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        if let Some(received) = self.wait_for_hop(&request)? {
            return Ok(received);
        }
        self.awaited.matches.clear();
        self.awaited.matches.extend(self.requests.awaited_match(&request));
        while !self.requests.is_complete("wait", &request)? {
            self.take_asked_checkpoint()?;
            if self.polls.is_cancelled(request.id()) {
                return Err(Error::DivergedCancel { request: request.id() });
            }
            self.progress(Wait::Forever)?;
        }
        self.awaited.matches.clear();
        self.advance_recovery()?;
        self.await_running()?;
        let id = request.id();
        match self.requests.take("wait", request)? {
            Ok(status) => Ok((status, Bytes::new())),
            Err(message) => {
                self.end_step(Step::Taken { context: message.comm })?;
                let (source, tag) = (message.source, message.tag);
                self.trace.deliver(source, tag, message.comm, message.ssn, &message.payload)?;
                self.record(|_| Event::Deliver { request: id, source, ssn: message.ssn })?;
                self.tally.messages_delivered += 1;
                Ok((Status { source, tag, len: message.payload.len() }, message.payload))
            }
        }
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        Ok(self.test_any(&[&[request]])?.is_some())
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        Self::check_tag("probe", tag)?;
        self.probe_in(APPLICATION_CONTEXT, source, tag)
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        Self::check_tag("iprobe", tag)?;
        self.iprobe_in(APPLICATION_CONTEXT, source, tag)
    }

    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        if self.requests.open() > 0 {
            return Err(Error::RequestsOpen { open: self.requests.open() });
        }
        self.await_running()?;
        if self.asked.is_asked && self.polls.are_repeated() {
            // The offered state serves all requested checkpoints: lines begun meanwhile by others begin at the same
            // place.
            while self.asked.is_asked && self.save_asked(state)? {}
            self.protocol.wants_checkpoint();
            return Ok(self.protocol.epoch());
        }
        if !self.wants_checkpoint() {
            return Ok(self.protocol.epoch());
        }
        self.save(state)
    }

    fn is_checkpoint_due(&self) -> bool {
        self.asked.is_asked || self.interval.is_due(Instant::now())
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        self.run_again()?;
        Ok(self.restored.clone())
    }

    fn restart(&mut self) -> Result<Option<Restart>, Error> {
        self.take_restart()
    }

    fn state_place(&self) -> Option<StatePlace> {
        self.place_of_state()
    }

    fn rebuilt(&mut self) -> Result<(), Error> {
        self.end_rebuilding()
    }

    fn provide_state(&mut self, provider: StateProvider) {
        self.asked.set_provider(provider);
    }

    fn iteration(&mut self, n: u64) -> Result<(), Error> {
        self.end_step(Step::Iteration)?;
        self.await_running()?;
        self.take_asked_checkpoint()?;
        self.iteration = n;
        self.check_logging();
        self.transport.report(Report::Iteration { n, tally: self.tally })?;
        self.progress(Wait::Not)
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl<T: Transport, P: Protocol> CollectiveSubstrate for Endpoint<T, P> {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        self.isend_in(COLLECTIVE_CONTEXT, to, tag.wire(), payload)
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        self.irecv_in(COLLECTIVE_CONTEXT, Some(source), Some(tag.wire()))
    }

    fn begin_collective(&mut self) -> InternalTag {
        let tag = InternalTag::new(self.collectives);
        self.collectives += 1;
        tag
    }

    fn plan_collective(
        &mut self,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        self.plan_collective_in(COLLECTIVE_CONTEXT, tag, class, uniform)
    }

    fn complete_collective(&mut self, _: InternalTag, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        self.complete_call(result)
    }
}

/// Kind for choices in the local log.
const CHOICE: u8 = EntryKind::Choice as u8;
/// Kind for cancelled receives in the local log.
const CANCELLED: u8 = EntryKind::Cancelled as u8;
/// Kind for runs of calls that found nothing in the local log.
const NOTHING: u8 = EntryKind::Nothing as u8;
/// Kind for clock readings in the local log.
const READING: u8 = EntryKind::Reading as u8;
/// Kind for deliveries in the local log.
const DELIVERY: u8 = EntryKind::Delivery as u8;
