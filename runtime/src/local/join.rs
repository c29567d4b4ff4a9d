//! Joining a job: a process becomes a rank.

use std::io;
use std::path::PathBuf;

use counterfoil_protocols::api::{Protocol, Rule};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::control::{ControlError, Welcome};
use super::job::{JobError, JobPaths};
use super::launcher_connection::LauncherConnection;
use super::planned_kills::PlannedKills;
use super::sockets::LocalTransport;
use crate::Error;
use crate::endpoint::{Endpoint, EndpointOptions, LogFiles, Saves};
use crate::saved::StatePlace;
use crate::transport::{Transport, TransportError};

/// Communicator for a rank over transport `T`, under the rule in the job's settings.
pub type RankEndpoint<T> = Endpoint<T, Box<dyn Protocol>>;

/// Communicator for a rank that is a process on this machine.
pub type LocalEndpoint = RankEndpoint<PlannedKills<LocalTransport>>;

/// Options passed by the launcher on a process's command line.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The job's directory in memory.
    pub job: PathBuf,
    /// Rank for the process.
    pub rank: u32,
    /// Number of the rank's earlier processes.
    pub incarnation: u32,
    /// The launcher's process id.
    pub launcher: u32,
}

/// Reason why a process cannot become a rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The launcher has died, or another program started the process.
    #[error("process {launcher}, the launcher, is not the parent of this process: it has died")]
    Orphan {
        /// The launcher's process id.
        launcher: u32,
    },
    /// The job's directory cannot be used.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The connection to the launcher failed.
    #[error("the launcher: {0}")]
    Control(#[from] ControlError),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Failed action.
        action: &'static str,
        /// Operating system error.
        source: io::Error,
    },
    /// This rank's listening socket cannot be bound.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen {
        /// Socket path.
        path: PathBuf,
        /// Operating system error.
        source: io::Error,
    },
    /// The launcher is gone.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The log, the checkpoint or the protocol cannot be started.
    #[error(transparent)]
    Start(#[from] Error),
}

/// Makes this process a rank in the job: returns its communicator, and the description of the program to run.
///
/// From the first instant the process dies with its launcher, so no orphan is left.
///
/// # Errors
/// [`JoinError`]. The process should print it to its standard error, which the launcher quotes, and exit with a
/// nonzero status.
pub fn join(options: &JoinOptions) -> Result<(LocalEndpoint, Vec<u8>), JoinError> {
    join_as(options, None)
}

/// Joins a [`launch_under`](super::launch_under) job as [`join`] does, under the same rule.
///
/// # Errors
/// See [`join`].
pub fn join_under(rule: &Rule, options: &JoinOptions) -> Result<(LocalEndpoint, Vec<u8>), JoinError> {
    join_as(options, Some(rule))
}

fn join_as(options: &JoinOptions, rule: Option<&Rule>) -> Result<(LocalEndpoint, Vec<u8>), JoinError> {
    let JoinOptions { rank, incarnation, launcher, .. } = *options;
    let failed = |action| move |source| JoinError::Io { action, source };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| failed("request a signal at the launcher's death")(errno.into()))?;
    // The launcher may have died before the signal was set.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(launcher) {
        return Err(JoinError::Orphan { launcher });
    }
    let paths = JobPaths::open(&options.job)?;
    // Listen before the hello: a peer that learns of this rank can connect.
    let listener = LocalTransport::listen(&paths, rank, incarnation)
        .map_err(|source| JoinError::Listen { path: paths.rank_socket(rank, incarnation), source })?;
    let mut connection = LauncherConnection::open(&paths)?;
    let welcome = connection.hello(rank, incarnation)?;
    let program = welcome.program.clone();
    let ranks = welcome.settings.ranks;
    let frame_bytes_max = welcome.settings.log_bytes_max;
    let transport =
        LocalTransport::new((rank, incarnation), ranks, paths.clone(), connection, listener, frame_bytes_max)?;
    let transport = PlannedKills::new(transport, &welcome);
    let peers = welcome.peers.clone();
    let mut endpoint = start_as(rule, rank, &paths, welcome, transport)?;
    for (peer, its_incarnation) in peers {
        let hello = endpoint.hello(peer)?;
        endpoint.transport_mut().inner_mut().connect(peer, its_incarnation, &hello).map_err(Error::from)?;
    }
    Ok((endpoint, program))
}

/// Starts a rank's endpoint as the launcher wants it.
///
/// No peer is connected.
///
/// # Errors
/// [`Error`].
pub fn start<T: Transport>(
    rank: u32,
    paths: &JobPaths,
    welcome: Welcome,
    transport: T,
) -> Result<RankEndpoint<T>, Error> {
    start_as(None, rank, paths, welcome, transport)
}

/// `rule`: in place of the one in the settings.
fn start_as<T: Transport>(
    rule: Option<&Rule>,
    rank: u32,
    paths: &JobPaths,
    welcome: Welcome,
    transport: T,
) -> Result<RankEndpoint<T>, Error> {
    let incarnation = welcome.incarnation;
    let rule = rule.unwrap_or(&welcome.settings.rule);
    let protocol = rule.protocol(rank, welcome.settings.ranks, incarnation)?;
    let begun_with = welcome.begun_with;
    let has_state = begun_with.as_ref().is_some_and(|begun| !begun.lost.contains(&rank));
    let in_memory = rule.properties.keeps_states_in_memory;
    let options = EndpointOptions {
        rank,
        incarnation,
        settings: welcome.settings,
        files: LogFiles::TakenOver,
        log_directory: paths.logs(),
        trace_directory: paths.traces(),
        saves: Saves {
            // The overflow from the disk may fit into memory.
            directories: vec![welcome.checkpoints.clone(), paths.directory().to_owned()],
            place: in_memory.then(|| StatePlace::new(paths.directory(), rank, has_state)),
            begun_with,
        },
        store_directory: welcome.checkpoints,
    };
    Endpoint::start(options, protocol, transport)
}
