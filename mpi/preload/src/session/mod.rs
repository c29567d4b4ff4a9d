//! What is known while MPI is up: the log, and what it takes to fill and to free it.

mod acknowledging;
pub(crate) mod ask;
mod asking;
mod choices;
pub(crate) mod comms;
pub(crate) mod datatypes;
mod failures;
mod ledger;
mod live;
mod logging;
mod observe;
pub(crate) mod over;
pub(crate) mod put_off;
pub(crate) mod requests;
mod routes;
mod slot;
mod summary;

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use counterfoil::{Contents, Epoch, Log};
use counterfoil_mpi::MpiError;
use counterfoil_mpi::acks::{BatchLimits, Batcher, Releaser};
use counterfoil_mpi::matching::Taken;
use counterfoil_mpi::room::{Asking, Control, Rounds, Waiting};
use counterfoil_mpi::stream::{Stream, Streams};
use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use crate::say::say;
use crate::settings::Settings;
use ask::Refused;
use comms::Comms;
use datatypes::Datatypes;
pub(crate) use datatypes::likely_bytes;
use live::Live;
use observe::Watch;
use over::Barrier;
use requests::{Receiving, Requests};

pub(crate) use choices::{Choice, missed};
pub(crate) use ledger::Ledger;
pub(crate) use logging::{Copied, FullError, Piece};
pub(crate) use routes::{Name, Route};
pub(crate) use slot::{
    asks_plainly, catch_up, catch_up_if_due, enter, enter_behind, enter_for_room, is_absent, is_together, may_put_off,
    put, put_off, records_choices, sends_first, take,
};

/// How many messages are logged, or received and not answered by one that is, between two looks at the acknowledgements; each so many
/// bytes count as one more.
const LOOK_EVERY: u32 = 64;
const LOOK_EVERY_BYTES: usize = (256 << 10) / LOOK_EVERY as usize;
/// How many records are released beside a message.
const RELEASE_AT_ONCE: usize = 8;
/// What the checkpoint at the end begins: nothing comes behind it.
const LAST_EPOCH: Epoch = Epoch(2);

/// A number for a handle, whatever a handle is in this MPI.
#[inline]
pub(crate) fn key<T: Copy>(handle: T) -> usize {
    const { assert!(size_of::<T>() <= size_of::<usize>()) }
    let mut bytes = [0u8; size_of::<usize>()];
    // SAFETY: as many bytes as a handle has, which are no more than there is room for; handles are pointers or numbers, without
    // gaps.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const handle).cast::<u8>(), bytes.as_mut_ptr(), size_of::<T>());
    }
    usize::from_ne_bytes(bytes)
}

/// Everything that is known while MPI is up.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Settings,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// `None` once logging was given up.
    log: Option<Log>,
    /// Messages of each stream that were sent.
    sent: Streams,
    batcher: Batcher,
    releasers: Vec<Option<Releaser>>,
    /// Ranks that have said how far they have received, where not everything may be released.
    releasing: Vec<u32>,
    control: Control,
    pub(crate) comms: Comms,
    pub(crate) requests: Requests,
    pub(crate) datatypes: Datatypes,
    /// Messages that were matched and not received yet.
    pub(crate) messages: FxHashMap<usize, Receiving>,
    /// Messages whose number has just become known; empty between two calls.
    pub(crate) numbered: Vec<Taken>,
    /// Receives that the program gave up while they were under way.
    pub(crate) given_up: Vec<(ffi::MPI_Request, Receiving, bool)>,
    /// Synchronisations of the library's own that are under way.
    barriers: Vec<Barrier>,
    /// What ranks ask each other where a log is full.
    asking: Asking,
    rounds: Rounds,
    /// Since when this rank has been waiting for room in its log, if it does.
    waiting: Option<Waiting>,
    /// Whether who waits for room leaves the session meanwhile.
    may_leave: bool,
    /// What happened to the program and is counted nowhere else.
    moves: u64,
    /// How often the answer was no up to the last outcome.
    misses: u64,
    is_local_full: bool,
    pub(crate) ledger: Ledger,
    /// Whether the program wants to be logged just now (`MPI_Pcontrol`).
    pub(crate) is_logging: bool,
    since_look: u32,
    watch: Watch,
    /// Why the log is not there afterwards, where the user wants it and it isn't.
    not_kept: Option<String>,
    begun: Instant,
}

/// Why a session can't begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Mpi(#[from] Refused),
    #[error(transparent)]
    Control(#[from] MpiError),
    #[error("the log can't be made: {0}")]
    Log(#[from] counterfoil::OpenError),
    #[error("{} is there, the log of another job: give another directory, or remove what is there", path.display())]
    Taken { path: PathBuf },
    #[error("{failed} other ranks can't make their logs")]
    Others { failed: u32 },
}

/// A rank's log, where no other job has left one.
fn make_log(settings: &Settings, rank: u32, ranks: u32) -> Result<Log, BeginError> {
    let path = settings.log_dir.as_ref().map(|dir| dir.join(format!("rank-{rank}")));
    match path.filter(|path| path.exists()) {
        Some(path) => Err(BeginError::Taken { path }),
        None => Ok(Log::create(settings.options(rank, ranks))?),
    }
}

impl Session {
    /// MPI is up; all ranks of MPI_COMM_WORLD do this together.
    pub(crate) fn begin(settings: Settings, rank: u32, ranks: u32) -> Result<Session, BeginError> {
        // SAFETY: MPI is up, and the session ends before it does; it is entered as MPI is called.
        let control = unsafe { Control::new(ranks) }?;
        let made = make_log(&settings, rank, ranks);
        // All or none: who has no log counts nothing and acknowledges nothing.
        let failed = control.how_many(made.is_err())?;
        let log = match made {
            Ok(_) if failed > 0 => {
                control.end()?;
                return Err(BeginError::Others { failed });
            }
            Err(error) => {
                control.end()?;
                return Err(error);
            }
            Ok(log) => log,
        };
        let comms = Comms::new()?;
        let mut ledger = Ledger::new(Live::begin(settings.summary_dir.as_deref(), rank, ranks));
        ledger.note(Some(log.usage()));
        let watch = Watch::new(settings.log_dir.clone());
        let rounds = Rounds::new(rank, ranks, settings.standstill);
        Ok(Session {
            settings,
            rank,
            ranks,
            log: Some(log),
            sent: Streams::default(),
            batcher: Batcher::new(ranks, BatchLimits::default()),
            releasers: (0..ranks).map(|_| None).collect(),
            releasing: Vec::new(),
            control,
            comms,
            requests: Requests::new(),
            datatypes: Datatypes::default(),
            messages: FxHashMap::default(),
            numbered: Vec::new(),
            given_up: Vec::new(),
            barriers: Vec::new(),
            asking: Asking::new(rank, ranks),
            rounds,
            waiting: None,
            may_leave: false,
            moves: 0,
            misses: choices::misses(),
            is_local_full: false,
            ledger,
            is_logging: true,
            since_look: 0,
            watch,
            not_kept: None,
            begun: Instant::now(),
        })
    }

    /// Whether messages are logged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_logging && self.log.is_some()
    }

    /// A message of a stream is sent, and not logged.
    #[cold]
    pub(crate) fn pass_by(&mut self, lane: Lane) {
        self.moves += 1;
        self.sent.next(lane.stream());
    }

    /// Logging ends: what was said is the last that is said of it.
    pub(crate) fn give_up(&mut self, why: &dyn std::fmt::Display) {
        if self.drop_log() {
            self.ledger.gave_up = Some(why.to_string());
            say(format_args!("{why}; the program goes on, and nothing more is logged"));
        }
    }

    /// Gives the log's memory back; whether there was one.
    fn drop_log(&mut self) -> bool {
        // Their cursors hold chunks.
        self.releasers.iter_mut().for_each(|releaser| *releaser = None);
        let had_one = self.log.take().is_some();
        self.note();
        had_one
    }

    /// A record finds no room, and the user wants the program to go on without the log then: said once.
    fn stop_logging(&mut self, why: &dyn std::fmt::Display) {
        if self.drop_log() {
            self.ledger.has_stopped = true;
            say(format_args!(
                "{why}; as COUNTERFOIL_ON_FULL=stop-logging asks, the program goes on, nothing more is logged, and what was \
                 logged is let go: not recoverable from here"
            ));
        }
    }

    /// Writes the account as it is now, at the end that comes.
    pub(crate) fn account(&mut self, ended: Ended) {
        self.note();
        if ended == Ended::Aborted && self.settings.log_dir.is_some() {
            self.not_kept = Some("MPI_Abort ends a rank before its log is complete on disk".to_owned());
        }
        summary::write(self, ended);
        self.write_profile(ended);
    }

    /// What is in the log is there afterwards, if the user wants that.
    fn keep(&mut self) {
        if self.settings.log_dir.is_none() {
            return;
        }
        // That it is no more was said when it was let go.
        let Some(log) = &mut self.log else {
            self.not_kept = Some("it was let go when logging ended".to_owned());
            return;
        };
        if let Err(error) = log.checkpoint(LAST_EPOCH, Contents::default()) {
            say(format_args!("its log can't be kept: {error}"));
            self.not_kept = Some(error.to_string());
        }
    }

    pub(crate) fn check(&mut self, done: Result<(), impl std::fmt::Display>) {
        if let Err(error) = done {
            self.give_up(&error);
        }
    }

    /// MPI is about to end: the last acknowledgements, and the account.
    pub(crate) fn end(mut self) {
        asking::end();
        self.sweep_given_up();
        for peer in 0..self.ranks {
            self.acknowledge(peer);
        }
        match self.meet().and_then(|()| self.settle()) {
            // Everybody has come here.
            Ok(()) => {
                let over = self.open_operations();
                self.are_over(&over);
            }
            Err(error) => say(format_args!("the last acknowledgements didn't arrive: {error}")),
        }
        self.release_what_is_known();
        self.keep();
        self.account(Ended::Finalized);
        if let Err(error) = self.control.end() {
            say(format_args!("{error}"));
        }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// How a program's use of MPI ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Finalized,
    Aborted,
}

/// A stream in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// The other end's rank in MPI_COMM_WORLD.
    pub(crate) peer: u32,
    /// The communicator's number.
    pub(crate) comm: u32,
    /// The tag.
    pub(crate) tag: c_int,
}

impl Lane {
    #[inline]
    fn stream(self) -> Stream {
        Stream { peer: self.peer, comm: self.comm, tag: self.tag }
    }
}
