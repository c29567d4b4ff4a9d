//! The rank's side of a start: a process becomes a rank of a job.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use counterfoil::{Incarnation, Rank};
use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_protocols::frame::{Protocol, ProtocolError};
use counterfoil_protocols::pessimistic::{self, Pessimistic};
use counterfoil_protocols::send_deterministic::{self, SendDeterministic};
use counterfoil_protocols::sender_based::{self, SenderBased};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::control::{Control, ControlError, ToLauncher, ToRank, Welcome};
use super::coordinator::clusters;
use super::job::{JobError, JobPaths};
use super::sockets::LocalTransport;
use crate::Error;
use crate::endpoint::{Endpoint, EndpointOptions};
use crate::settings::RankSettings;
use crate::transport::TransportError;

/// The communicator of a rank that is a process of this machine, under the rule that the job's settings name.
pub type LocalEndpoint = Endpoint<LocalTransport, Box<dyn Protocol>>;

/// What the launcher tells a process on its command line.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The job's directory in memory.
    pub job: PathBuf,
    /// The rank to be.
    pub rank: u32,
    /// How often that rank has been replaced.
    pub incarnation: u32,
    /// The launcher's process id.
    pub launcher: u32,
}

/// Why a process cannot become a rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The launcher has died meanwhile, or the process was started by something else.
    #[error("process {launcher}, the launcher, is not the parent of this process: it has died")]
    Orphan {
        /// The launcher's process id.
        launcher: u32,
    },
    /// The job's directory.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The connection with the launcher.
    #[error("the launcher: {0}")]
    Control(#[from] ControlError),
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The place where this rank listens.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The log, the checkpoint or the protocol.
    #[error(transparent)]
    Start(#[from] Error),
    /// The launcher says something else than a welcome.
    #[error("the launcher did not welcome this rank")]
    NotWelcomed,
}

/// Makes this process a rank of the job: gives its communicator, and what the launcher said it is to run.
///
/// From the first instant the process dies with its launcher, so that no orphan is ever left.
///
/// # Errors
/// [`JoinError`]. The process is to say it on its standard error, which the launcher quotes, and to end with another
/// exit status than 0.
pub fn join(options: &JoinOptions) -> Result<(LocalEndpoint, Vec<u8>), JoinError> {
    let JoinOptions { rank, incarnation, launcher, .. } = *options;
    let failed = |action| move |source| JoinError::Io { action, source };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| failed("ask for a signal at the launcher's death")(errno.into()))?;
    // The launcher may have died before that.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(launcher) {
        return Err(JoinError::Orphan { launcher });
    }
    let paths = JobPaths::open(&options.job)?;
    // Whoever learns of this rank can reach it: listen first, then say hello.
    let listener = LocalTransport::listen(&paths, rank, incarnation)?;
    let stream = UnixStream::connect(paths.launcher_socket()).map_err(failed("reach the launcher"))?;
    let mut control = Control::new(stream).map_err(failed("reach the launcher"))?;
    control.send(&ToLauncher::Hello { rank, incarnation, pid: std::process::id() })?;
    let welcome = await_welcome(&mut control)?;
    let program = welcome.program.clone();
    let ranks = welcome.settings.ranks;
    let frame_bytes_max = welcome.settings.log_bytes_max;
    let transport = LocalTransport::new((rank, incarnation), ranks, paths.clone(), control, listener, frame_bytes_max)?;
    Ok((begin(options, &paths, welcome, transport)?, program))
}

fn begin(
    options: &JoinOptions,
    paths: &JobPaths,
    welcome: Welcome,
    transport: LocalTransport,
) -> Result<LocalEndpoint, Error> {
    let JoinOptions { rank, incarnation, .. } = *options;
    let protocol = protocol(rank, incarnation, &welcome.settings)?;
    let options = EndpointOptions {
        rank,
        incarnation,
        settings: welcome.settings,
        log_directory: paths.logs(),
        trace_directory: paths.traces(),
        store_directory: welcome.checkpoints,
        fatal_iterations: welcome.fatal_iterations,
        hold_recovery: welcome.hold_recovery,
    };
    let mut endpoint = Endpoint::start(options, protocol, transport)?;
    for (peer, its_incarnation) in welcome.peers {
        let hello = endpoint.hello(peer)?;
        endpoint.transport_mut().call(peer, its_incarnation, &hello)?;
    }
    Ok(endpoint)
}

/// The state machine of a rank, under the rule that the settings name: for transports of another kind, too.
///
/// # Errors
/// [`ProtocolError`] for settings that the rule refuses.
pub fn protocol(rank: u32, incarnation: u32, settings: &RankSettings) -> Result<Box<dyn Protocol>, ProtocolError> {
    let (rank, ranks, incarnation) = (Rank(rank), settings.ranks, Incarnation(incarnation));
    Ok(match clusters(settings) {
        None => {
            let config = sender_based::Config { rank, ranks, incarnation, policy: AckPolicy::default() };
            match settings.rule.repeats_receive_order() {
                true => Box::new(Pessimistic::new(pessimistic::Config { core: config, canary: None })?),
                false => Box::new(SenderBased::new(config)?),
            }
        }
        Some(clusters) => {
            let (first_epoch, ceiling) = clusters.epochs_of(rank);
            let config = send_deterministic::Config::new(rank, ranks);
            let config = send_deterministic::Config { incarnation, first_epoch, ceiling, ..config };
            Box::new(SendDeterministic::new(config)?)
        }
    })
}

fn await_welcome(control: &mut Control) -> Result<Welcome, JoinError> {
    loop {
        match control.receive::<ToRank>()? {
            Some(ToRank::Welcome(welcome)) => return Ok(*welcome),
            Some(_) => return Err(JoinError::NotWelcomed),
            None => {}
        }
        let writable = if control.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [PollFd::new(&*control, PollFlags::IN | writable)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => control.flush()?,
            Err(errno) => return Err(JoinError::Io { action: "wait for the launcher", source: errno.into() }),
        }
    }
}
