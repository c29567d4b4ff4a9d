//! Start of an incarnation: fresh, or from the log and checkpoints of a dead one.
//!
//! - volatile, node-local: the checkpoint's lanes if there is a checkpoint, else empty lanes
//! - process-crash-safe: the dead incarnation's lanes, rewound to the checkpoint if there is a checkpoint, else the
//!   same, rewound to their beginning
//!
//! Every record taken over is verified first. Sends into a rewound lane are compared, byte by byte, with the records
//! committed by the dead incarnation. Recorded choices and deliveries survive in each tier.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use counterfoil::{
    Entry, Epoch, Log, OnFull, Options, OptionsError, Rank, RecoveredLane, Restored, Ssn, StoreOptions, Tier,
};
use counterfoil_protocols::api::{Properties, Protocol, Repetition};

use super::asked::AskedCheckpoint;
use super::entries::Entries;
use super::held::HeldMessages;
use super::native::Native;
use super::polls::Polls;
use super::progress::Awaited;
use super::readings::Readings;
use super::recovery::Recovery;
use super::requests::Requests;
use super::rollback::{CHECKPOINTS_KEPT, Rollback};
use super::saving::Saves;
use super::sending::{Outbound, cursor_from};
use super::synchronous::MatchQueries;
use super::{CANCELLED, CHOICE, DELIVERY, Endpoint, NOTHING, READING};
use crate::Error;
use crate::checkpoint::Snapshot;
use crate::damage::{DamageLocation, Expected};
use crate::interval::Interval;
use crate::matching::Matching;
use crate::settings::RankSettings;
use crate::tally::Tally;
use crate::trace::{Trace, trace_path};
use crate::transport::{Report, Transport};

/// Maximum memory for sends while the rank repeats its prologue.
const PROLOGUE_BYTES_MAX: usize = 64 << 30;

/// Options of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Rank of the endpoint.
    pub rank: u32,
    /// Number of the rank's earlier processes.
    pub incarnation: u32,
    /// Settings shared by all ranks.
    pub settings: RankSettings,
    /// Use of the files left by dead incarnations.
    pub files: LogFiles,
    /// Private directory for shared-memory logs.
    pub log_directory: PathBuf,
    /// Directory for the traces.
    pub trace_directory: PathBuf,
    /// Private directory on disk for the ranks' stores: checkpoints and spilled records.
    pub store_directory: PathBuf,
    /// Saved states, under a rule that starts the job again.
    pub saves: Saves,
}

/// Use of the files left by a rank's dead incarnations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFiles {
    /// The rank continues with them.
    TakenOver,
    /// They stay as they are, and the rank continues in memory of its own: [`Log::recover_copy`].
    Kept,
    /// They are ignored: the log is in memory, and its local log begins with these entries.
    Entries(Vec<Entry>),
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Starts an endpoint, from a checkpoint if there is one.
    ///
    /// No peer is connected yet.
    ///
    /// # Errors
    /// [`Error::Open`] and others for an unusable log or checkpoint, [`Error::Damaged`] for a message in them that
    /// differs from what was sent.
    pub fn start(options: EndpointOptions, protocol: P, transport: T) -> Result<Endpoint<T, P>, Error> {
        let EndpointOptions { rank, incarnation, settings, .. } = options;
        let ranks = settings.ranks;
        let properties = protocol.properties();
        let log_options = log_options(rank, &settings, properties, &options.log_directory, &options.store_directory);
        let (mut log, recovered) = match (options.files, incarnation) {
            (LogFiles::Entries(entries), _) => {
                // The rank's sends get room in memory, even if they were on disk.
                let disk = usize::try_from(settings.disk_bytes_max).unwrap_or(usize::MAX);
                let memory_bytes_max = log_options.memory_bytes_max.max(disk.min(PROLOGUE_BYTES_MAX));
                let volatile =
                    Options { tier: Tier::Volatile, dir: None, store: None, memory_bytes_max, ..log_options };
                let mut log = Log::create(volatile)?;
                entries.iter().try_for_each(|entry| log.local().append(entry.kind, entry.key, &entry.bytes))?;
                (log, counterfoil::Recovered::default())
            }
            (LogFiles::Kept, _) => Log::recover_copy(log_options)?,
            (LogFiles::TakenOver, 0) => (Log::create(log_options)?, counterfoil::Recovered::default()),
            (LogFiles::TakenOver, _) => Log::recover(log_options)?,
        };
        for lane in &recovered.lanes {
            check_lane(&mut log, (rank, DamageLocation::Predecessor), lane.peer.0, lane.kept_from)?;
        }
        let from_disk = recovered.checkpoint.iter().flat_map(|restored| &restored.lanes);
        let is_in_memory = |peer| recovered.lanes.iter().any(|lane| lane.peer == peer);
        for lane in from_disk.filter(|lane| !is_in_memory(lane.peer)) {
            check_lane(&mut log, (rank, DamageLocation::Checkpoint), lane.peer.0, lane.kept_from)?;
        }
        let trace = match settings.trace {
            true => Trace::create(&trace_path(&options.trace_directory, rank, incarnation), ranks)?,
            false => Trace::off(ranks),
        };
        let rollback = Rollback::new(protocol.epoch());
        let mut endpoint = Endpoint {
            rank,
            log,
            properties,
            protocol,
            transport,
            matching: Matching::new(ranks),
            trace,
            requests: Requests::new(settings.requests_max),
            awaited: Awaited::default(),
            history: None,
            polls: Polls::default(),
            readings: Readings::default(),
            match_queries: MatchQueries::default(),
            outbound: (0..ranks).map(|_| Outbound::default()).collect(),
            recovery: None,
            held: HeldMessages::new(ranks),
            rollback,
            saves: options.saves,
            exits: None,
            native: Native::default(),
            entries: Entries::default(),
            asked: AskedCheckpoint::default(),
            interval: Interval::new(settings.mtbf, Instant::now()),
            to_self: 0,
            restored: None,
            collectives: 0,
            iteration: 0,
            tally: Tally::default(),
            divergence: None,
            bytes_since_poll: 0,
            finish: false,
            backlogs: BTreeSet::new(),
            interest: (vec![false; ranks as usize], vec![false; ranks as usize]),
            settings,
        };
        for &RecoveredLane { peer, last, .. } in &recovered.lanes {
            endpoint.outbound[peer.index()].transmitted = last;
            if endpoint.repeats_sends() {
                endpoint.log.rewind(peer, Ssn::ZERO);
            }
        }
        if incarnation > 0 {
            match recovered.checkpoint {
                Some(restored) => {
                    // The initial state, which is no file, may precede the first checkpoint.
                    let initial = endpoint.protocol.epoch();
                    let oldest = recovered
                        .oldest_checkpoint
                        .filter(|&oldest| initial.next().is_some_and(|first| oldest > first));
                    endpoint.restore_checkpoint(restored, oldest.unwrap_or(initial))?;
                }
                None => endpoint.restore_initial_state()?,
            }
            if !endpoint.repeats_sends() {
                for RecoveredLane { peer, .. } in recovered.lanes {
                    let last = endpoint.outbound[peer.index()].sent;
                    endpoint.truncate_lane(peer, last)?;
                }
            }
            endpoint.recover_local_log()?;
            endpoint.present_entries()?;
            endpoint.resume_calls();
            let received = (0..ranks).map(|peer| endpoint.received_upto(peer)).collect::<Result<_, _>>()?;
            endpoint.recovery = Some(Recovery::new(rank, received));
            endpoint.transport.report(Report::Started)?;
            endpoint.carry_out_effects()?;
        }
        Ok(endpoint)
    }

    /// Returns the hello for `peer`, the first bytes on a connection.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Hello`].
    pub fn hello(&self, peer: u32) -> Result<Vec<u8>, Error> {
        let hello = self.protocol.hello(Rank(peer))?;
        hello.encode().map_err(|source| Error::Hello { peer, source })
    }

    /// Returns the local log's entries, with all outcomes up to now.
    ///
    /// # Errors
    /// [`Error`] of the local log.
    pub fn local_entries(&mut self) -> Result<Vec<Entry>, Error> {
        self.record_polls()?;
        let entries = self.log.local().entries_after(Ssn::ZERO);
        // The highest kind marks a checkpoint's seal.
        Ok(entries.into_iter().map(|(_, entry)| entry).filter(|entry| entry.kind != u8::MAX).collect())
    }

    /// Returns the program's bytes in the checkpoint from which this process restarts; `None` without one.
    pub fn checkpointed_state(&self) -> Option<&Bytes> {
        self.restored.as_ref()
    }

    /// Returns the transport.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Ends the endpoint and returns its transport, for the rank's next execution in the same process.
    pub fn into_transport(self) -> T {
        self.transport
    }

    fn restore_checkpoint(&mut self, restored: Restored, oldest: Epoch) -> Result<(), Error> {
        let Restored { epoch, lanes, contents, .. } = restored;
        let snapshot = Snapshot::from_contents(epoch, contents)?;
        self.protocol.restore(&snapshot.protocol, oldest)?;
        for RecoveredLane { peer, last, .. } in lanes {
            let Some(outbound) = self.outbound.get_mut(peer.index()) else { continue };
            outbound.sent = last;
            outbound.transmitted = outbound.transmitted.max(last);
            if self.repeats_sends() {
                // No effect on a lane loaded from the checkpoint.
                self.log.rewind(peer, last);
            }
        }
        for message in snapshot.unexpected {
            // No receive is posted yet, so each is kept.
            let _ = self.matching.handle_message(message);
        }
        if self.settings.tier == Tier::ProcessCrashSafe {
            // They are in the log taken over; later messages there are counted as they are repeated.
            (self.tally.messages_logged, self.tally.bytes_logged) = snapshot.counters.logged;
        }
        self.rollback.resume(oldest, epoch);
        self.to_self = snapshot.counters.to_self;
        self.trace.restore(snapshot.counters.trace)?;
        self.collectives = snapshot.counters.collectives;
        self.iteration = snapshot.counters.iteration;
        self.requests.resume(snapshot.counters.requests);
        self.polls.resume(snapshot.counters.choices);
        self.restored = Some(snapshot.application);
        self.transport.report(Report::Restored { epoch: epoch.0 })?;
        Ok(())
    }

    /// Returns `true` if repeated sends are compared with the dead incarnation's records, which are transmitted as they
    /// are.
    ///
    /// Under a rule that assigns new epochs and phases, they are logged anew.
    pub(super) fn repeats_sends(&self) -> bool {
        self.properties.repeats != Repetition::Nothing
    }

    /// Restores the rule's initial state in a replacement without a checkpoint.
    fn restore_initial_state(&mut self) -> Result<(), Error> {
        match self.protocol.first_checkpoint() {
            Some(first) => Ok(self.protocol.restore(&first.tables, first.epoch)?),
            None => Ok(()),
        }
    }

    /// Reads the local log of dead incarnations: recorded outcomes and deliveries go to the protocol.
    fn recover_local_log(&mut self) -> Result<(), Error> {
        let epoch = self.protocol.epoch();
        for (_, entry) in self.log.local().entries_after(Ssn::ZERO) {
            match entry.kind {
                CHOICE => self.protocol.handle_recovered_choice(&entry.bytes)?,
                DELIVERY => self.protocol.handle_recovered_delivery(&entry.bytes)?,
                // The checkpoint covers earlier ones.
                CANCELLED if entry.key >= self.requests.next() => self.polls.recover_cancelled(entry.key),
                NOTHING => self.polls.recover(entry.key, &entry.bytes),
                READING => self.readings.recover(epoch, entry.key, &entry.bytes),
                _ => self.entries.read(&entry),
            }
        }
        Ok(())
    }
}

/// Verifies a dead incarnation's records from `rank` to `peer`, starting at `first`.
///
/// `location` is for the error.
fn check_lane(log: &mut Log, (rank, location): (u32, DamageLocation), peer: u32, first: Ssn) -> Result<(), Error> {
    let mut cursor = cursor_from(log, peer, first).map_err(|source| Error::Replay { peer, source })?;
    let failed = |source| Error::Replay { peer, source };
    while let Some(record) = cursor.read().map_err(failed)? {
        let expected = Expected { from: rank, to: peer, ssn: record.ssn() };
        expected.check_record(location, record.prefix(), record.payload())?;
    }
    Ok(())
}

impl RankSettings {
    /// Checks that a log can be made with these limits.
    ///
    /// # Errors
    /// [`OptionsError`] for the first invalid limit.
    pub fn validate(&self) -> Result<(), OptionsError> {
        log_options(0, self, self.rule.properties, Path::new(""), Path::new("")).validate()
    }
}

/// Returns the options for a rank's log.
pub(crate) fn log_options(
    rank: u32,
    settings: &RankSettings,
    properties: Properties,
    directory: &Path,
    store: &Path,
) -> Options {
    let defaults = Options::new(Rank(rank), settings.ranks);
    let prefault_bytes = defaults.prefault_bytes;
    let mut options = Options {
        tier: settings.tier,
        store: Some(StoreOptions {
            disk_bytes_max: settings.disk_bytes_max,
            block_bytes: settings.disk_block_bytes,
            checkpoints_kept: if properties.rolls_back_survivors { CHECKPOINTS_KEPT } else { 1 },
            ..StoreOptions::new(store)
        }),
        dir: Some(directory.to_owned()),
        local_bytes_max: settings.local_log_bytes_max,
        stops_logging: settings.on_full == OnFull::StopLogging,
        ..defaults
    };
    options.retain(settings.keep, settings.log_bytes_max);
    // A thread's ahead commits are enough, and a short job needs little.
    options.prefault_bytes = prefault_bytes.min(settings.log_bytes_max);
    options
}
