//! The library's state while MPI is initialised: the logger, and its needs from MPI.

mod collectives;
pub(crate) mod comms;
pub(crate) mod datatypes;
mod ledger;
mod live;
pub(crate) mod mpi_call;
mod progress;
mod receives;
pub(crate) mod requests;
mod sends;
mod space;
mod stream_cache;
mod summary;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use counterfoil::{Contents, Epoch, Log, OnFull};
use counterfoil_mpi_core::MpiError;
use counterfoil_mpi_core::control::Control;
use counterfoil_mpi_logger::{Determinant, Logger, LoggerOptions, NumberTaken, Stream};
use counterfoil_profile::Ended;
use counterfoil_settings::RunSettings;
use rustc_hash::FxHashMap;

use crate::failed_polls;
use crate::host::OtherHost;
use crate::say::say;
use comms::CommHandles;
use datatypes::Datatypes;
use ledger::{Gap, Ledger};
use live::Live;
use mpi_call::CallError;
use receives::FreedReceive;
use requests::{Receiving, Requests};
use stream_cache::StreamCaches;
use watch::Watch;

pub(crate) use collectives::BegunCollective;
pub(crate) use datatypes::{last_size, likely_bytes};
pub(crate) use mpi_call::key;
pub(crate) use sends::{CopyTime, Piece};
pub(crate) use space::FullError;
pub(crate) use stream_cache::{StreamEntry, StreamKey};

/// A process's session, from MPI_Init to MPI_Finalize.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: RunSettings,
    pub(crate) logger: Logger,
    control: Control,
    pub(crate) comms: CommHandles,
    streams: StreamCaches,
    pub(crate) requests: Requests,
    pub(crate) datatypes: Datatypes,
    /// Matched (`MPI_Mprobe`), not yet received messages.
    pub(crate) messages: FxHashMap<usize, Receiving>,
    /// Receives whose requests the program freed while they were pending.
    freed_receives: Vec<FreedReceive>,
    /// Time from which completed receives are [searched for](Self::count_early) again.
    count_early_at: Instant,
    /// Threads of some rank may be in MPI calls at the same time.
    pub(crate) is_multithreaded: bool,
    /// True where a wait for space may leave the session, so that other threads can enter.
    pub(crate) may_leave: bool,
    /// True while messages have left without being counted.
    pub(crate) has_uncounted: bool,
    pub(crate) ledger: Ledger,
    /// False while the program has turned logging off (`MPI_Pcontrol`).
    is_logging: bool,
    /// Messages since the last [`progress`](Self::progress) call, in units of its schedule.
    since_progress: u32,
    watch: Watch,
    /// Reason why the log isn't in its directory afterwards, where the user wants it there.
    not_kept: Option<String>,
    /// Logging ended early, and the records until then are in the log directory.
    has_kept_beginning: bool,
    /// `Some` on a host other than the launcher's.
    host: Option<OtherHost>,
    /// Rank writing the accounts of ranks on other hosts; `None` if there are none.
    account_root: Option<u32>,
    begun: Instant,
}

/// Reason why a session can't begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Control(#[from] MpiError),
    #[error(transparent)]
    Number(#[from] NumberTaken),
    #[error("the job's directories can't be made on this host: {0}")]
    Host(#[source] std::io::Error),
    #[error("the log can't be made: {0}")]
    Log(#[from] counterfoil::OpenError),
    #[error("{} is there, the log of another job: give another directory, or remove what is there", path.display())]
    Taken { path: PathBuf },
    #[error("{failed} other ranks can't make their logs")]
    Others { failed: u32 },
}

/// Creates a rank's log, unless another job has left one in its place.
fn create_log(settings: &RunSettings, rank: u32, ranks: u32) -> Result<Log, BeginError> {
    let path = settings.log_dir.as_ref().map(|dir| dir.join(format!("rank-{rank}")));
    match path.filter(|path| path.exists()) {
        Some(path) => Err(BeginError::Taken { path }),
        None => Ok(Log::create(settings.log_options(rank, ranks))?),
    }
}

impl Session {
    /// Begins a session.
    ///
    /// Collective over MPI_COMM_WORLD.
    pub(crate) fn begin(
        settings: RunSettings,
        (rank, ranks): (u32, u32),
        is_multithreaded: bool,
    ) -> Result<Session, BeginError> {
        // SAFETY: MPI is initialised, and the session ends before it is finalised; MPI is called as its thread level
        // demands.
        let control = unsafe { Control::new(ranks) }?;
        let (host, created) = match OtherHost::prepare(&settings) {
            Ok(host) => (host, create_log(&settings, rank, ranks)),
            Err(source) => (None, Err(BeginError::Host(source))),
        };
        // All ranks or none: one without a log counts and acknowledges nothing.
        let failed = control.count_true(created.is_err())?;
        let log = match created {
            Ok(log) if failed > 0 => {
                control.end()?;
                drop(log);
                host.iter().for_each(|host| host.leave(&settings, rank));
                return Err(BeginError::Others { failed });
            }
            Err(error) => {
                control.end()?;
                host.iter().for_each(|host| host.leave(&settings, rank));
                return Err(error);
            }
            Ok(log) => log,
        };
        let has_other_hosts = control.count_true(host.is_some())? > 0;
        // Each rank of a program may ask for another level, and all have to agree in the same way.
        let is_multithreaded = control.count_true(is_multithreaded)? > 0;
        let account_root = if has_other_hosts { control.lowest_true(host.is_none())? } else { None };
        if has_other_hosts && account_root.is_none() && rank == 0 {
            say(format_args!(
                "no rank runs on the host of `counterfoil run`, which gets no figures; each log is on its rank's host"
            ));
        }
        let options = LoggerOptions {
            deadlock_after: settings.deadlock_after,
            is_multithreaded,
            failed_polls: failed_polls::count(),
        };
        let mut logger = Logger::new(log, &options);
        let comms = CommHandles::new(&mut logger.comms)?;
        let mut ledger = Ledger::new(Live::begin(settings.summary_dir.as_deref(), rank, ranks));
        ledger.note(logger.log().map(Log::usage));
        let watch = Watch::new(settings.log_dir.clone());
        datatypes::set_packing_comm(Some(control.handle()));
        Ok(Session {
            settings,
            logger,
            control,
            comms,
            streams: StreamCaches::default(),
            requests: Requests::new(),
            datatypes: Datatypes::default(),
            messages: FxHashMap::default(),
            freed_receives: Vec::new(),
            count_early_at: Instant::now(),
            is_multithreaded,
            may_leave: false,
            has_uncounted: false,
            ledger,
            is_logging: true,
            since_progress: 0,
            watch,
            not_kept: None,
            has_kept_beginning: false,
            host,
            account_root,
            begun: Instant::now(),
        })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.logger.rank()
    }

    /// Returns the bytes of receives that may await their end on each rank without any log being full.
    ///
    /// All may be from one rank, which has half of its log's budget for late acknowledgements.
    pub(crate) fn bytes_without_wait(&self) -> usize {
        self.settings.budget / 2 / self.logger.log().map_or(1, |log| log.options().ranks as usize)
    }

    /// Returns `true` if messages are logged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_logging && self.logger.log().is_some()
    }

    /// Turns logging off or on again at the program's request.
    pub(crate) fn set_logging(&mut self, is_logging: bool) {
        self.is_logging = is_logging;
        if !is_logging {
            self.note_gap(Gap::TurnedOff);
        }
    }

    /// Notes missing records in the log, which prevent the rank's replay, and reports them once.
    pub(crate) fn note_gap(&mut self, gap: Gap) {
        if self.logger.log().is_some() && self.ledger.note_gap(gap) {
            say(format_args!("{gap}: the job can't be recovered from its log"));
        }
    }

    /// Counts an unlogged message that leaves; the receiver counts it, too.
    #[cold]
    pub(crate) fn count_unlogged(&mut self, stream: Stream) {
        self.logger.count_unlogged(stream);
    }

    /// Disables logging for good and reports why.
    ///
    /// Keeps the records until then, if the user wants them on disk.
    pub(crate) fn give_up(&mut self, why: &dyn std::fmt::Display) {
        if self.logger.log().is_some() {
            self.keep();
            self.has_kept_beginning = self.settings.log_dir.is_some() && self.not_kept.is_none();
        }
        if self.drop_log() {
            self.ledger.gave_up = Some(why.to_string());
            let kept = if self.has_kept_beginning { "; its log is kept up to here" } else { "" };
            say(format_args!("{why}; the program goes on, and nothing more is logged{kept}"));
        }
    }

    /// Disables logging for good because the log is full, as configured, and reports it.
    fn stop_logging(&mut self, why: &dyn std::fmt::Display) {
        if self.drop_log() {
            self.ledger.has_stopped = true;
            say(format_args!(
                "{why}; as COUNTERFOIL_ON_FULL=stop-logging asks, the program goes on, nothing more is logged, and the log is \
                 dropped: not recoverable from here"
            ));
        }
    }

    /// Drops the log and its memory; returns `false` if there was none.
    fn drop_log(&mut self) -> bool {
        let had_one = self.logger.disable().is_some();
        self.note_usage();
        had_one
    }

    /// Disables logging if `done` is an error.
    pub(crate) fn check<T>(&mut self, done: Result<T, impl std::fmt::Display>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                self.give_up(&error);
                None
            }
        }
    }

    /// Records a determinant, where logging is on.
    pub(crate) fn record(&mut self, determinant: Determinant) {
        self.logger.set_failed_polls(failed_polls::count());
        if !self.is_on() {
            return self.logger.skip_determinant();
        }
        match self.logger.handle_determinant(determinant) {
            Ok(true) => self.ledger.set_determinants(self.logger.determinants()),
            Ok(false) => {}
            Err(error) => say(format_args!("outcomes of wildcards are recorded no more: {error}")),
        }
    }

    /// Writes the rank's summary and profile.
    pub(crate) fn write_account(&mut self, ended: Ended) {
        self.note_usage();
        if ended == Ended::Aborted && self.settings.log_dir.is_some() && !self.has_kept_beginning {
            self.not_kept = Some("MPI_Abort ends a rank before its log is complete on disk".to_owned());
        }
        summary::write(self, ended);
        self.write_profile(ended);
    }

    /// Passes the accounts of ranks on other hosts to a rank on the launcher's host, which writes them.
    ///
    /// Collective.
    fn gather_accounts(&mut self) {
        let Some(root) = self.account_root else { return };
        let account = match &self.host {
            Some(_) => summary::of(self, Ended::Finalized).to_json(),
            None => String::new(),
        };
        match self.control.gather(root, account.as_bytes()) {
            Ok(accounts) => {
                for (rank, account) in (0..).zip(accounts).filter(|(_, account)| !account.is_empty()) {
                    summary::write_of(self, rank, &account);
                }
            }
            Err(error) => say(format_args!("the figures of ranks on other hosts are lost: {error}")),
        }
    }

    /// Completes the log on disk, if the user wants it there.
    fn keep(&mut self) {
        if self.settings.log_dir.is_none() {
            return;
        }
        // The end of a dropped log was reported then.
        let Some(log) = self.logger.log_mut() else {
            if !self.has_kept_beginning {
                self.not_kept.get_or_insert_with(|| "it was dropped when logging ended".to_owned());
            }
            return;
        };
        if let Err(error) = log.checkpoint(Epoch::AFTER_RUN, Contents::default()) {
            say(format_args!("its log can't be kept: {error}"));
            self.not_kept = Some(error.to_string());
        }
    }

    /// Ends the session before MPI_Finalize: exchanges the last acknowledgements and writes the account.
    ///
    /// Collective.
    pub(crate) fn end(mut self) {
        self.poll_freed_receives();
        let acknowledged = self.logger.acknowledge_all();
        self.check(acknowledged);
        self.flush();
        match self.meet_all().and_then(|()| self.drain()) {
            Ok(()) => {
                // Every rank has come here.
                let complete = self.logger.complete_all_collectives();
                self.check(complete);
            }
            Err(error) => say(format_args!("the last acknowledgements didn't arrive: {error}")),
        }
        let counts = self.logger.check_counts();
        self.check(counts);
        self.release_all();
        self.keep();
        self.write_account(Ended::Finalized);
        self.gather_accounts();
        let (host, settings, rank) = (self.host.take(), self.settings.clone(), self.rank());
        datatypes::set_packing_comm(None);
        if let Err(error) = self.control.end() {
            say(format_args!("{error}"));
        }
        // Its files are closed with the log.
        drop(self.logger);
        drop(self.ledger);
        if let Some(host) = host {
            host.leave(&settings, rank);
        }
    }

    /// Returns the number of records releasable with one message.
    ///
    /// Where a full log waits for no release, all are released at once.
    fn release_max(&self) -> usize {
        if self.settings.on_full == OnFull::Block { progress::RELEASE_MAX } else { usize::MAX }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.begun.elapsed()
    }
}
