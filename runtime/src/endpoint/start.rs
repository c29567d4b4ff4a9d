//! How an incarnation begins: fresh, or from what a dead one left.
//!
//! | tier | with a checkpoint | without |
//! |---|---|---|
//! | volatile | lanes as the checkpoint has them | empty lanes |
//! | process-crash-safe | the dead incarnation's lanes, rewound to the checkpoint | the same, rewound to their beginning |
//!
//! Every record that is taken over is checked before anything else is done with it. What is sent while a lane is rewound
//! is compared, byte by byte, with what the dead incarnation had committed. Recorded choices and deliveries survive in both tiers.

use std::path::{Path, PathBuf};

use counterfoil::{Keep, Log, OnFull, Options, OptionsError, Rank, Restored, Ssn, StoreOptions, Tier};
use counterfoil_protocols::frame::Protocol;

use super::recovery::Recovery;
use super::requests::Requests;
use super::sending::{Outlet, cursor_from};
use super::standing::{CHECKPOINTS_KEPT, Standing};
use super::{CHOICE, DELIVERY, Endpoint};
use crate::Error;
use crate::checkpoint::Snapshot;
use crate::damage::{Expected, Place};
use crate::matching::Matching;
use crate::settings::{LogKeep, LogOnFull, LogTier, RankSettings, Rule};
use crate::tally::Tally;
use crate::trace::{Trace, trace_path};
use crate::transport::{Report, Transport};

/// What an endpoint has to know.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The rank.
    pub rank: u32,
    /// How often it was replaced.
    pub incarnation: u32,
    /// What all ranks share.
    pub settings: RankSettings,
    /// A private directory for shared-memory logs.
    pub log_directory: PathBuf,
    /// The directory of the traces.
    pub trace_directory: PathBuf,
    /// A private directory on disk for the ranks' stores: checkpoints, and what is spilled.
    pub store_directory: PathBuf,
    /// Iterations that this process may not leave alive.
    pub fatal_iterations: Vec<u64>,
    /// Don't finish recovering before the launcher says so.
    pub hold_recovery: bool,
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Begins, from a checkpoint if there is one. No peer is met yet.
    ///
    /// # Errors
    /// [`Error`]: a log or a checkpoint that cannot be used, above all, and [`Error::Damaged`] for a message in them that
    /// is not what was sent.
    pub fn start(options: EndpointOptions, protocol: P, transport: T) -> Result<Endpoint<T, P>, Error> {
        let EndpointOptions { rank, incarnation, settings, .. } = options;
        let ranks = settings.ranks;
        let log_options = log_options(rank, &settings, &options.log_directory, &options.store_directory);
        let (mut log, recovered) = match incarnation {
            0 => (Log::create(log_options)?, counterfoil::Recovered::default()),
            _ => Log::recover(log_options)?,
        };
        for (peer, kept_from, _) in &recovered.lanes {
            check_lane(&mut log, (rank, Place::Predecessor), peer.0, *kept_from)?;
        }
        let from_disk = recovered.checkpoint.iter().flat_map(|restored| &restored.lanes);
        for (peer, kept_from, _) in from_disk.filter(|lane| recovered.lanes.iter().all(|other| other.0 != lane.0)) {
            check_lane(&mut log, (rank, Place::Checkpoint), peer.0, *kept_from)?;
        }
        let trace = match settings.trace {
            true => Trace::create(&trace_path(&options.trace_directory, rank, incarnation), ranks)?,
            false => Trace::off(ranks),
        };
        let standing = Standing::new(ranks, protocol.epoch());
        let mut endpoint = Endpoint {
            rank,
            log,
            protocol,
            transport,
            matching: Matching::new(ranks),
            trace,
            requests: Requests::new(settings.requests_max),
            outlets: (0..ranks).map(|_| Outlet::default()).collect(),
            recovery: None,
            standing,
            restored: None,
            collectives: 0,
            iteration: 0,
            reported: None,
            fatal_iterations: options.fatal_iterations,
            tally: Tally::default(),
            sent_unseen_bytes: 0,
            starved: false,
            finish: false,
            interest: (vec![false; ranks as usize], vec![false; ranks as usize]),
            settings,
        };
        for &(peer, _, last) in &recovered.lanes {
            endpoint.outlets[peer.index()].transmitted = last;
            if endpoint.repeats() {
                endpoint.log.rewind(peer, Ssn::ZERO);
            }
        }
        if incarnation > 0 {
            match recovered.checkpoint {
                Some(restored) => endpoint.take_up(restored)?,
                None => endpoint.begin_again()?,
            }
            if !endpoint.repeats() {
                for (peer, _, _) in recovered.lanes {
                    let last = endpoint.outlets[peer.index()].sent;
                    endpoint.cut_lane(peer, last)?;
                }
            }
            endpoint.recover_choices()?;
            let received = (0..ranks).map(|peer| endpoint.received_upto(peer)).collect::<Result<_, _>>()?;
            endpoint.recovery = Some(Recovery::new(rank, received, options.hold_recovery));
            endpoint.carry_out_effects()?;
        }
        Ok(endpoint)
    }

    /// What to say first to `peer`.
    ///
    /// # Errors
    /// [`Error::Protocol`], [`Error::Hello`].
    pub fn hello(&self, peer: u32) -> Result<Vec<u8>, Error> {
        let hello = self.protocol.hello(Rank(peer))?;
        hello.encode().map_err(|source| Error::Hello { peer, source })
    }

    /// The transport.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    fn take_up(&mut self, restored: Restored) -> Result<(), Error> {
        let epoch = restored.epoch;
        let lanes = restored.lanes.clone();
        let snapshot = Snapshot::from_restored(restored)?;
        self.protocol.restore(&snapshot.protocol)?;
        for (peer, _, last) in lanes {
            let Some(outlet) = self.outlets.get_mut(peer.index()) else { continue };
            outlet.sent = last;
            outlet.transmitted = outlet.transmitted.max(last);
            if self.repeats() {
                // Does nothing in a lane that is as the checkpoint has it.
                self.log.rewind(peer, last);
            }
        }
        for message in snapshot.unexpected {
            // Nothing is posted yet, so each is kept.
            let _ = self.matching.handle_message(message);
        }
        if self.settings.tier == LogTier::ProcessCrashSafe {
            // They are in the log that was taken over; what comes after them is found there, one by one.
            (self.tally.messages_logged, self.tally.bytes_logged) = snapshot.counters.logged;
        }
        self.standing.note_checkpoint(epoch);
        self.standing.to_self = snapshot.counters.to_self;
        self.trace.restore(snapshot.counters.trace)?;
        self.collectives = snapshot.counters.collectives;
        self.iteration = snapshot.counters.iteration;
        self.restored = Some(snapshot.application);
        self.transport.report(Report::Restored { epoch: epoch.0 })?;
        Ok(())
    }

    /// Whether what a dead incarnation sent is compared with what is sent again, and transmitted as it was. Under a rule that
    /// gives messages other epochs and phases then, it is logged anew.
    fn repeats(&self) -> bool {
        self.settings.rule.keeps_every_message()
    }

    /// A replacement without a checkpoint.
    fn begin_again(&mut self) -> Result<(), Error> {
        match self.protocol.first_checkpoint() {
            Some(first) => Ok(self.protocol.restore(&first.tables)?),
            None => Ok(()),
        }
    }

    /// Outcomes and deliveries that dead incarnations recorded.
    fn recover_choices(&mut self) -> Result<(), Error> {
        while let Some(key) = self.log.local().next_key(CHOICE) {
            let Some(entry) = self.log.local().consume(CHOICE, key) else { break };
            self.protocol.handle_recovered_choice(&entry.bytes)?;
        }
        while let Some(key) = self.log.local().next_key(DELIVERY) {
            let Some(entry) = self.log.local().consume(DELIVERY, key) else { break };
            self.protocol.handle_recovered_delivery(&entry.bytes)?;
        }
        Ok(())
    }
}

/// Checks what a dead incarnation of `rank` had logged for `peer`, from `first` on, and left in `place`.
fn check_lane(log: &mut Log, (rank, place): (u32, Place), peer: u32, first: Ssn) -> Result<(), Error> {
    let mut cursor = cursor_from(log, peer, first).map_err(|source| Error::Replay { peer, source })?;
    let failed = |source| Error::Replay { peer, source };
    while let Some(record) = cursor.read().map_err(failed)? {
        let expected = Expected { from: rank, to: peer, ssn: record.ssn() };
        expected.check_record(place, record.prefix(), record.payload())?;
    }
    Ok(())
}

impl RankSettings {
    /// Checks that a log can be made with these limits.
    ///
    /// # Errors
    /// Names the first limit that makes no sense, and says what it must be.
    pub fn validate(&self) -> Result<(), OptionsError> {
        log_options(0, self, Path::new(""), Path::new("")).validate()
    }
}

fn log_options(rank: u32, settings: &RankSettings, directory: &Path, store: &Path) -> Options {
    let defaults = Options::new(Rank(rank), settings.ranks);
    Options {
        tier: match settings.tier {
            LogTier::Volatile => Tier::Volatile,
            LogTier::ProcessCrashSafe => Tier::ProcessCrashSafe,
            LogTier::NodeLocal => Tier::NodeLocal,
        },
        store: Some(StoreOptions {
            disk_bytes_max: settings.disk_bytes_max,
            block_bytes: settings.disk_block_bytes,
            checkpoints_kept: match settings.rule {
                Rule::SenderBased | Rule::Pessimistic => 1,
                Rule::SendDeterministic { .. } => CHECKPOINTS_KEPT,
            },
            ..StoreOptions::new(store)
        }),
        dir: Some(directory.to_owned()),
        memory_bytes_max: settings.log_bytes_max,
        local_bytes_max: settings.local_log_bytes_max,
        keep: match settings.keep {
            LogKeep::Acked => Keep::Acked,
            LogKeep::Checkpoint => Keep::Checkpoint,
            LogKeep::All => Keep::All,
        },
        on_full: match settings.on_full {
            LogOnFull::Block => OnFull::Block,
            LogOnFull::StopLogging => OnFull::StopLogging,
            LogOnFull::Fail => OnFull::Fail,
        },
        prefault_bytes: defaults.prefault_bytes.min(settings.log_bytes_max),
        ..defaults
    }
}
