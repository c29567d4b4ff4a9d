//! Live recovery for Rust programs started by `mpirun`, without a launcher.
//!
//! A program is a closure over a [`LoggedUniverse`] ([`run_logged`]) or over the runtime's [`Communicator`] ([`run`]).
//! Some of the job's processes are its ranks, the others spares. Every message is logged by its sender; when a process
//! is killed, a spare runs the closure again as that rank, from its last checkpoint or from the beginning, and gets the
//! same messages from its peers' logs.
//!
//! ```sh
//! mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 5 program    # 4 ranks and a spare
//! ```
//!
//! Without User-Level Failure Mitigation (`--with-ft ulfm`, Open MPI 5) a job can have no spares: the messages are
//! logged in the same way, and the first dead process ends the job.
//!
//! The program must repeat its behaviour when it gets the same messages: no clock, no random numbers without a seed. It
//! may write output to files or to the terminal twice. A process dying after all ranks are done is not replaced: write
//! indispensable output in the closure, not from its result.
//!
//! A named job ([`Options::name`]) outlives the death of all its processes, on any MPI: when the program is started
//! again, every rank goes on from its last checkpoint.
//!
//! A replacement needs its predecessor's log: it runs on the same host if there is a spare. In the node-local tier it
//! may run on any host, if [`Options::checkpoint_root`] is on a file system shared by all hosts; then the job outlives
//! the loss of hosts.

mod resume;

use std::error::Error as StdError;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use counterfoil_mpi_core::control::failures::{is_world_revoked, outlives_failures};
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_protocols::RULES;
use counterfoil_runtime::communicator::{Communicator, FailStop};
use counterfoil_runtime::local::{
    JobError, SharedJobDirectory, Welcome, default_checkpoint_root, default_shm_root, start,
};
use counterfoil_runtime::replay::{ReplayOptions, start_replay};
use counterfoil_runtime::transport::TransportError;
use counterfoil_runtime::{Error, RankSettings, Tally, Tier};

use crate::error::OperationError;
use crate::logged::{LoggedError, LoggedUniverse};
use crate::membership::{self, Membership, MembershipError, RepairError, needs_new_job, own_host};
use crate::recovering::{RankEndpoint, RankTransport, Recovering};
use crate::transport::{MpiTransport, wait_without_launcher};

use resume::Record;
pub use resume::ResumeError;

/// Longest job directory name, in bytes.
const NAME_BYTES_MAX: usize = 96;
/// Exit code of a job after a panic, same as a plain Rust program's.
const PANICKED: i32 = 101;
/// Shortest and longest time between two checks of a dead process's locks.
const LOCKS_NAP_MIN: Duration = Duration::from_millis(5);
const LOCKS_NAP_MAX: Duration = Duration::from_millis(500);
/// File written by process 0 to the checkpoint directory.
const SHARED_FILE: &str = "shared";
/// Random bytes in it.
const SHARED_BYTES: usize = 8;

/// Job options; the same on all processes, except for the directories.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits, rule and tier of the log.
    ///
    /// [`RankSettings::ranks`] processes are ranks, the others spares.
    pub settings: RankSettings,
    /// Directory for logs in shared memory, on this host.
    pub shm_root: PathBuf,
    /// Directory for checkpoints and spilled messages, on a disk of this host.
    pub checkpoint_root: PathBuf,
    /// Longest wait for a dead process's locks on its log and checkpoints.
    ///
    /// On a network file system, the server releases a lost host's locks when its lease has expired.
    pub locks_wait_max: Duration,
    /// Name of the job: 1 to 40 letters, digits, dots, hyphens and underscores.
    ///
    /// If a job with this name failed, it is resumed: its ranks go on from their last checkpoints, on the same hosts,
    /// with their predecessors' logs. In the node-local tier a host may have lost its memory. If
    /// [`checkpoint_root`](Self::checkpoint_root) is not on a disk, or is emptied when a host boots, choose another
    /// one. Concurrent jobs of one user have different names. `None`: the job can't be resumed.
    pub name: Option<String>,
    /// Keep the logs when the job ends, to replay its ranks ([`RankHandle::replay`]).
    pub keeps_logs: bool,
    /// Keep everything received during a rank's prologue, until [`Recovering::end_prologue`], with its checkpoints.
    ///
    /// For programs beginning at their first line even after a checkpoint. The log's limit applies.
    pub keeps_prologue: bool,
    /// Accept a rule recoverable by a launcher only, to measure its cost: the first dead process ends the job.
    pub without_recovery: bool,
}

impl Options {
    /// Returns the defaults for a job with `ranks` ranks: the sender-based rule, shared-memory logs with at most 256
    /// MiB per rank, checkpoints in the directory for temporary files.
    pub fn new(ranks: u32) -> Options {
        Options {
            settings: RankSettings::new(ranks),
            shm_root: default_shm_root(),
            checkpoint_root: default_checkpoint_root(),
            locks_wait_max: Duration::from_secs(180),
            name: None,
            keeps_logs: false,
            keeps_prologue: false,
            without_recovery: false,
        }
    }
}

/// Returns the names of the launcherless rules.
fn without_coordinator() -> String {
    let rules = RULES.iter().filter(|rule| rule.properties.recovers() && !rule.properties.has_coordinator);
    rules.map(|rule| rule.name).collect::<Vec<_>>().join(", ")
}

/// Job failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The processes can't become the job's ranks.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The job's directories can't be used.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The log or the protocol failed.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// There are spares, but the MPI ends the job with its first dead process.
    #[error(
        "{spares} of the processes are spares, but this MPI ends the job with its first dead process: start Open MPI 5 with `mpirun --with-ft \
         ulfm --mca async_mpi_finalize 1`, or start {ranks} processes, which log and don't recover"
    )]
    NotSurvivable {
        /// Number of spares.
        spares: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// The rule has a process apart from the ranks, run by a launcher only.
    #[error("the {rule} rule has a coordinator, which needs a launcher: use one of {}", without_coordinator())]
    NeedsLauncher {
        /// The rule.
        rule: &'static str,
    },
    /// An earlier process of the rank ran on another host; its log and checkpoints are there.
    #[error(
        "rank {rank} ran on host {lost}, and its log is lost with it for {host}: to outlive the loss of a host, use the node-local tier, with \
         checkpoint_root on a file system that all hosts share"
    )]
    LogLost {
        /// The rank.
        rank: u32,
        /// An earlier process's host.
        lost: String,
        /// This process's host.
        host: String,
    },
    /// The job can't be resumed.
    #[error(transparent)]
    Resume(ResumeError),
    /// A named job failed.
    #[error("{source}. Start the program again to resume job {name}, or remove it: counterfoil clean --job {name}")]
    Resumable {
        /// The job's name.
        name: String,
        /// The failure.
        source: Box<RecoveryError>,
    },
    /// A rank's operation failed.
    #[error(transparent)]
    Logged(#[from] LoggedError),
    /// The program failed.
    #[error("the program failed on rank {rank}: {source}")]
    Program {
        /// The rank.
        rank: u32,
        /// The program's error.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl RecoveryError {
    /// Returns `true` if only a new start of all processes under the job's name can continue it: a dead rank can't be
    /// replaced, or a process has died before the ranks were made.
    pub fn needs_new_start(&self) -> bool {
        match self {
            RecoveryError::Mpi(error) | RecoveryError::Membership(MembershipError::Mpi(error)) => {
                error.is_process_failure()
            }
            RecoveryError::Transport(error) => needs_new_job(error),
            RecoveryError::Runtime(error) => is_of_lost_rank(error),
            // The log is on another host, where the rank starts again.
            RecoveryError::LogLost { .. } => true,
            RecoveryError::Resumable { source, .. } => source.needs_new_start(),
            _ => false,
        }
    }

    /// Returns `true` if another process has ended the job and knows the reason.
    pub fn is_ended_elsewhere(&self) -> bool {
        match self {
            RecoveryError::Transport(error) | RecoveryError::Runtime(Error::Transport(error)) => {
                membership::is_ended_elsewhere(error)
            }
            RecoveryError::Resumable { source, .. } => source.is_ended_elsewhere(),
            _ => false,
        }
    }
}

/// Returns `true` for a call failed because a dead rank can't be replaced: see [`RecoveryError::needs_new_start`].
pub fn needs_new_start(error: &OperationError) -> bool {
    matches!(error, OperationError::Endpoint(error) if is_of_lost_rank(error))
}

/// Returns `true` for a call failed because another process has ended the job.
pub fn is_ended_elsewhere(error: &OperationError) -> bool {
    matches!(error, OperationError::Endpoint(Error::Transport(error)) if membership::is_ended_elsewhere(error))
}

fn is_of_lost_rank(error: &Error) -> bool {
    matches!(error, Error::Transport(error) if needs_new_job(error))
}

/// Runs `program` on this process if it is a rank of the job, or becomes one.
///
/// Returns its result; `None` on an unneeded process. Collective over all processes in MPI_COMM_WORLD; returns when all
/// ranks are done. A panic in `program` ends the job.
///
/// # Errors
/// [`RecoveryError`]. The job can't go on without this process: it should end with [`Comm::abort`](crate::Comm::abort).
pub fn run<T, E>(
    universe: &Rc<Universe>,
    options: &Options,
    program: impl FnOnce(&mut dyn Communicator) -> Result<T, E>,
) -> Result<Option<T>, RecoveryError>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    Ok(run_counted(universe, options, program)?.map(|(result, _)| result))
}

/// Runs `program` as [`run`] does; returns this rank's counters with its result.
pub(crate) fn run_counted<T, E>(
    universe: &Rc<Universe>,
    options: &Options,
    program: impl FnOnce(&mut dyn Communicator) -> Result<T, E>,
) -> Result<Option<(T, Tally)>, RecoveryError>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let job = Job::join(universe, options)?;
    let name = job.name.clone();
    let ran = (|| {
        let Some((place, mut endpoint)) = job.await_rank(options)? else { return Ok(None) };
        let mut communicator = FailStop::new(&mut endpoint);
        let done = or_abort(universe, || program(&mut communicator));
        let checked = communicator.check();
        let tally = endpoint.tally();
        Ok(place.end(endpoint, done, checked)?.map(|result| (result, tally)))
    })();
    or_resumable(name, ran)
}

/// Runs `program` as [`run`] does, on [`LoggedCommunicator`](crate::logged::LoggedCommunicator)s.
///
/// ```no_run
/// use counterfoil_mpi::logged::{CommunicatorCollectives, LoggedError};
/// use counterfoil_mpi::recovery::{Options, run_logged};
/// use counterfoil_mpi::{SystemOperation, Threads, Universe};
///
/// let universe = Universe::init(Threads::Single)?;
/// let sum = run_logged(&universe, &Options::new(4), |logged| {
///     let world = logged.world();
///     let (mut step, mut sum) = world.restore()?.unwrap_or((0_u64, [0_u64]));
///     while step < 1000 {
///         world.all_reduce_into(&[sum[0] + step], &mut sum, SystemOperation::Max)?;
///         step += 1;
///         world.checkpoint(&(step, sum))?;
///     }
///     Ok::<_, LoggedError>(sum[0])
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Same as [`run`].
pub fn run_logged<T, E>(
    universe: &Rc<Universe>,
    options: &Options,
    program: impl FnOnce(&LoggedUniverse) -> Result<T, E>,
) -> Result<Option<T>, RecoveryError>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let Some(handle) = RankHandle::begin(universe, options)? else { return Ok(None) };
    let logged = LoggedUniverse::recovering(handle.rank()).map_err(LoggedError::from)?;
    let done = or_abort(universe, || program(&logged));
    handle.end(done)
}

/// A rank of a recovering job, for layers called by the program instead of calling it.
pub struct RankHandle {
    name: Option<String>,
    /// `None` in a replay.
    place: Option<Place>,
    rank: Rc<Recovering>,
}

impl RankHandle {
    /// Makes this process a rank of the job; waits until it becomes one if it is a spare.
    ///
    /// Returns `None` on an unneeded process, after all ranks are done. Collective over all processes in
    /// MPI_COMM_WORLD.
    ///
    /// # Errors
    /// [`RecoveryError`]. The job can't go on without this process: it should end with
    /// [`Comm::abort`](crate::Comm::abort).
    pub fn begin(universe: &Rc<Universe>, options: &Options) -> Result<Option<RankHandle>, RecoveryError> {
        let job = Job::join(universe, options)?;
        let name = job.name.clone();
        let begun = (|| {
            let Some((place, endpoint)) = job.await_rank(options)? else { return Ok(None) };
            let rank = match options.keeps_prologue {
                true => Recovering::with_prologue(universe, endpoint, &options.settings)?,
                false => Recovering::new(universe, endpoint)?,
            };
            Ok(Some((place, rank)))
        })();
        let begun = or_resumable(name.clone(), begun)?;
        Ok(begun.map(|(place, rank)| RankHandle { name, place: Some(place), rank }))
    }

    /// Makes this process a rank of an ended or crashed job with kept logs: the rank runs again alone, with the
    /// messages received from the others.
    ///
    /// This process has an MPI of its own, without others.
    ///
    /// # Errors
    /// [`RecoveryError::Runtime`].
    pub fn replay(universe: &Rc<Universe>, options: &ReplayOptions) -> Result<RankHandle, RecoveryError> {
        let endpoint = start_replay(options, RankTransport::from)?;
        Ok(RankHandle { name: None, place: None, rank: Recovering::new(universe, endpoint)? })
    }

    /// Returns the rank.
    pub fn rank(&self) -> &Rc<Recovering> {
        &self.rank
    }

    /// Ends the rank with the program's result: serves the other ranks until all are done.
    ///
    /// Calls on its communicators fail from here on. Returns `None` if all ranks were done when this process became
    /// one.
    ///
    /// # Errors
    /// [`RecoveryError`]; [`RecoveryError::Program`] with the program's error, or after a permanently failed call.
    pub fn end<T, E>(self, done: Result<T, E>) -> Result<Option<T>, RecoveryError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let RankHandle { name, place, rank } = self;
        let checked = rank.check_calls();
        let Some(mut endpoint) = rank.take_endpoint() else { return Ok(None) };
        match place {
            Some(place) => or_resumable(name, place.end(endpoint, done, checked)),
            None => finish(rank.rank(), &mut endpoint, done, checked).map(Some),
        }
    }
}

impl std::fmt::Debug for RankHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankHandle").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// Ends a rank with the program's result; `checked` is an earlier call's failure, possibly ignored by the program.
///
/// Serves the other ranks until all are done.
fn finish<T, E>(
    rank: u32,
    endpoint: &mut RankEndpoint,
    done: Result<T, E>,
    checked: Result<(), Error>,
) -> Result<T, RecoveryError>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let result = done.map_err(|source| RecoveryError::Program { rank, source: source.into() })?;
    checked?;
    endpoint.finish(Vec::new())?;
    Ok(result)
}

/// Marks a failure as resumable if the job has a name.
fn or_resumable<T>(name: Option<String>, ran: Result<T, RecoveryError>) -> Result<T, RecoveryError> {
    ran.map_err(|error| match name {
        Some(name) => RecoveryError::Resumable { name, source: Box::new(error) },
        None => error,
    })
}

/// Runs `program`; ends the job if it panics, since a replacement would panic, too.
fn or_abort<T>(universe: &Rc<Universe>, program: impl FnOnce() -> T) -> T {
    struct Abort<'a>(&'a Rc<Universe>);
    impl Drop for Abort<'_> {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.world().abort(PANICKED);
            }
        }
    }
    let _abort = Abort(universe);
    program()
}

/// Naps between two checks of a dead process's locks, each twice as long as the one before.
#[derive(Default)]
struct Naps {
    last: Duration,
}

impl Naps {
    fn sleep(&mut self) {
        self.last = (2 * self.last).clamp(LOCKS_NAP_MIN, LOCKS_NAP_MAX);
        thread::sleep(self.last);
    }
}

/// A rank's place in the job.
struct Place {
    rank: u32,
    process: u32,
    directory: SharedJobDirectory,
    /// Record of a named job.
    record: Option<Record>,
}

/// This process's job.
struct Job {
    name: Option<String>,
    /// Record of a named job.
    record: Option<Record>,
    directory: SharedJobDirectory,
    /// True if all processes have the same checkpoint directory.
    shares_checkpoints: bool,
    membership: Membership,
}

impl Job {
    /// Joins the other processes.
    ///
    /// Collective.
    fn join(universe: &Rc<Universe>, options: &Options) -> Result<Job, RecoveryError> {
        Job::join_all(universe, options).map_err(|error| match error {
            // Calls on MPI_COMM_WORLD fail then.
            RecoveryError::Mpi(_) | RecoveryError::Membership(_) if is_world_revoked() => {
                TransportError::Other(RepairError::Aborted.into()).into()
            }
            error => error,
        })
    }

    fn join_all(universe: &Rc<Universe>, options: &Options) -> Result<Job, RecoveryError> {
        let (settings, world) = (&options.settings, universe.world());
        if settings.rule.properties.has_coordinator && !options.without_recovery {
            return Err(RecoveryError::NeedsLauncher { rule: settings.rule.name });
        }
        let started = world.size()?;
        if started < settings.ranks {
            return Err(MembershipError::TooFew { ranks: settings.ranks, started }.into());
        }
        if started > settings.ranks && !outlives_failures() {
            return Err(RecoveryError::NotSurvivable { spares: started - settings.ranks, ranks: settings.ranks });
        }
        let name = options.name.clone();
        let (begun, mut naps) = (Instant::now(), Naps::default());
        let (directory, shares_checkpoints, record) = loop {
            let (directory, shares_checkpoints) = join_directory(universe, options)?;
            let Some(name) = &name else { break (directory, shares_checkpoints, None) };
            if let Some(record) = resume::begin(&world, &directory, name, options)? {
                break (directory, shares_checkpoints, Some(record));
            }
            // An earlier job with this name has ended, and its processes were killed before removing its files.
            let path = directory.paths().directory().to_owned();
            directory.leave();
            world.barrier()?;
            if begun.elapsed() >= options.locks_wait_max {
                return Err(ResumeError::Ending { name: name.clone(), directory: path }.into());
            }
            naps.sleep();
        };
        let first_incarnation = record.as_ref().map_or(0, Record::first_incarnation);
        let membership = Membership::resumed(&world, settings.ranks, first_incarnation)?;
        Ok(Job { name, record, directory, shares_checkpoints, membership })
    }

    /// Becomes a rank of the job; `None` if this process is not needed.
    fn await_rank(self, options: &Options) -> Result<Option<(Place, RankEndpoint)>, RecoveryError> {
        let Job { directory, shares_checkpoints, mut membership, record, .. } = self;
        let (settings, process) = (&options.settings, membership.process());
        if !wait_without_launcher(&mut membership)? {
            directory.leave();
            return Ok(None);
        }
        let rank = membership.rank().unwrap_or_default();
        if let Some(lost) = membership.other_host_of(rank)
            && !(settings.tier == Tier::NodeLocal && shares_checkpoints)
        {
            let (lost, host) = (lost.to_owned(), membership.host().to_owned());
            return Err(RecoveryError::LogLost { rank, lost, host });
        }
        let (begun, mut naps) = (Instant::now(), Naps::default());
        let is_in_use = || membership.incarnation_of(rank) > 0 && directory.is_in_use(rank);
        while is_in_use() && begun.elapsed() < options.locks_wait_max {
            naps.sleep();
        }
        if settings.tier == Tier::NodeLocal {
            directory.take_over(rank, &own_host())?;
        }
        let coordinator = settings.rule.coordinator(settings.ranks, 0);
        let transport = MpiTransport::without_launcher(membership, settings.log_bytes_max, coordinator)?;
        let welcome = Welcome::new(transport.incarnation(), settings.clone(), directory.checkpoints().to_owned());
        let mut endpoint = start(rank, directory.paths(), welcome, RankTransport::from(transport))?;
        if let Some(transport) = endpoint.transport_mut().as_mpi() {
            transport.note_started();
        }
        Ok(Some((Place { rank, process, directory, record }, endpoint)))
    }
}

impl Place {
    /// Serves the other ranks until all are done.
    ///
    /// Returns the program's result; `None` if all ranks were done when this process became one. `checked`: an earlier
    /// call's failure, possibly ignored by the program.
    fn end<T, E>(
        self,
        mut endpoint: RankEndpoint,
        done: Result<T, E>,
        checked: Result<(), Error>,
    ) -> Result<Option<T>, RecoveryError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let Place { rank, process, directory, record } = self;
        let done = finish(rank, &mut endpoint, done, checked).and_then(|result| {
            if let Some(record) = record {
                record.end(&directory, process)?;
            }
            Ok(result)
        });
        let Some(transport) = endpoint.into_transport().into_mpi() else { return done.map(Some) };
        let result = match done {
            Ok(result) => Some(result),
            Err(_) if transport.came_too_late() => None,
            Err(error) => return Err(error),
        };
        transport.close()?;
        directory.leave();
        Ok(result)
    }
}

/// Makes the job's directories on this host.
///
/// Their name comes from process 0. Returns `true` with them if all processes have the same checkpoint directory.
fn join_directory(universe: &Rc<Universe>, options: &Options) -> Result<(SharedJobDirectory, bool), RecoveryError> {
    let world = universe.world();
    let (mut name, mut shared) = ([0; NAME_BYTES_MAX], [0; SHARED_BYTES]);
    if world.rank()? == 0 {
        let own = match &options.name {
            Some(name) => SharedJobDirectory::directory_name(name)?,
            None => SharedJobDirectory::new_name(),
        };
        name[..own.len()].copy_from_slice(own.as_bytes());
        shared = RandomState::new().hash_one(&own).to_le_bytes();
    }
    world.bcast(0, &mut name)?;
    world.bcast(0, &mut shared)?;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    let mut directory = SharedJobDirectory::join(name, &options.shm_root, &options.checkpoint_root)?;
    if options.keeps_logs {
        directory.keep_files();
    }
    let mark = directory.checkpoints().join(SHARED_FILE);
    if world.rank()? == 0 {
        let marked = std::fs::write(&mark, shared);
        marked.map_err(|source| JobError::Io { action: "write", path: mark.clone(), source })?;
    }
    // Nobody leaves before all have joined, since the last one on a host removes its directories.
    world.barrier()?;
    // All share it or none: a rank may go to any host.
    let mut share = vec![0; world.size()? as usize];
    let shares = std::fs::read(&mark).is_ok_and(|written| written == shared);
    world.all_gather(&[u8::from(shares)], &mut share)?;
    Ok((directory, share.iter().all(|shares| *shares == 1)))
}
