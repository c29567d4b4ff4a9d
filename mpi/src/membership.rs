//! Assignment of ranks to an MPI job's living processes, also after failures.
//!
//! A job is started with more processes than ranks: the others are spares. All traffic is on one communicator with all
//! processes, never shrunk or revoked: point-to-point messages between living processes go on after a failure. A repair
//! updates the table of places: every living process acknowledges its known failures, and all agree. MPI's agreement
//! succeeds also if they know different ones, so it compares them (a 16-bit fingerprint), and is repeated until they
//! are the same. Then each process gives the vacant ranks to spares, in ascending order: first to spares on the dead
//! process's host, where its log is.
//!
//! No communicator is created after the start, because Open MPI 5.0.11 crashes if it learns of a failure meanwhile
//! (`ompi_comm_set_rank_failed` finds a communicator without collectives).

mod calls;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use calls::Calls;
use counterfoil_mpi_core::comm::Comm;
use counterfoil_mpi_core::control::failures::{is_world_revoked, outlives_failures};
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_core::fast_boxes::lives_on;
use counterfoil_mpi_core::idle::wait_without_yielding;
use counterfoil_mpi_core::ulfm::Meeting;
use counterfoil_mpi_core::watchdog::watch_calls;
use counterfoil_runtime::transport::TransportError;

/// Marks a spare, in place of a rank.
const SPARE: u32 = u32::MAX;
/// Marks a dead process, in place of a rank.
const DEAD: u32 = u32::MAX - 1;

/// Time in an agreement after which a process gives up if MPI has not told it of a failure known to others.
///
/// MPI tells processes of the same failure within milliseconds.
const UNTOLD_MAX: Duration = Duration::from_secs(10);

/// Time after which an agreement is lost if all living processes wait in it.
///
/// Once begun by all, it takes milliseconds. A launcher gives up earlier, and starts the job again.
const STALL_MAX: Duration = Duration::from_secs(15);

/// Longest host name and boot id, in bytes; longer ones are cut.
const HOST_BYTES_MAX: usize = 128;

/// Membership error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// `mpirun` has started fewer processes than the job has ranks.
    #[error("the job has {ranks} ranks, and mpirun has started {started} processes: give it -n {ranks} or more")]
    TooFew {
        /// Number of ranks.
        ranks: u32,
        /// Number of processes in `MPI_COMM_WORLD`.
        started: u32,
    },
    /// A spare was to be used as a rank.
    #[error("this process is a spare and has no rank")]
    NoRank,
}

/// Repair failure: this process must end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepairError {
    /// An MPI call failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// Another process has ended the job.
    #[error("another process has ended the job")]
    Aborted,
    /// MPI's launcher is dead.
    #[error("the launcher of this process, mpirun or its daemon on this host, is dead")]
    Orphaned,
    /// MPI has told the others of a process's death, but not this one: they can't agree on a repair.
    #[error(
        "MPI has not told this process that process {process} of MPI_COMM_WORLD is dead, as it has told others: the \
         job can't recover, and is to be started again"
    )]
    Untold {
        /// The dead process, a rank of `MPI_COMM_WORLD`.
        process: u32,
    },
    /// MPI doesn't end the agreement on dead processes, although all living ones wait in it.
    #[error(
        "MPI has lost the agreement on which processes are dead: the job can't recover, and is to be started again"
    )]
    AgreementLost,
    /// More ranks are dead than there are spares.
    #[error(
        "rank {rank} is dead and no spare process is left: a job with more spares outlives more failures. The logs and \
         checkpoints of the other ranks are valid"
    )]
    NoSpare {
        /// Lowest rank without a process.
        rank: u32,
        /// All ranks with dead processes.
        vacant: Vec<u32>,
    },
}

impl RepairError {
    /// Returns `true` if the whole job has to be started again because a dead rank can't be replaced.
    fn needs_new_job(&self) -> bool {
        matches!(self, RepairError::NoSpare { .. } | RepairError::Untold { .. } | RepairError::AgreementLost)
    }
}

/// Returns `true` if the whole job has to be started again because the transport can't replace a dead rank.
pub(crate) fn needs_new_job(error: &TransportError) -> bool {
    let TransportError::Other(source) = error else { return false };
    source.downcast_ref().is_some_and(RepairError::needs_new_job)
}

/// Returns `true` if the transport failed because another process has ended the job.
pub(crate) fn is_ended_elsewhere(error: &TransportError) -> bool {
    let TransportError::Other(source) = error else { return false };
    source.downcast_ref().is_some_and(|error| matches!(error, RepairError::Aborted))
}

/// A repair under way.
#[derive(Debug)]
struct Repair {
    /// Agreement on the failures.
    agreement: Meeting,
    /// Failures known to this process before it, ascending.
    failed: Vec<u32>,
    /// Start of the repair's first agreement.
    begun: Instant,
    /// Start of this agreement.
    waits_since: Instant,
    /// True once the others were told of this process's long wait in it.
    has_told: bool,
}

/// A job's processes, seen from one of them.
#[derive(Debug)]
pub struct Membership {
    /// All processes in the job, including dead ones.
    all: Comm,
    /// All processes, for messages about the job: the ranks' notices, votes, and the meeting at the end.
    job: Comm,
    calls: Calls,
    /// This process's number in `all`.
    process: u32,
    /// For each process: its rank in the job, [`SPARE`] or [`DEAD`].
    places: Vec<u32>,
    ranks: u32,
    /// Incarnation of each rank's first process.
    first_incarnation: u32,
    /// For each process: its host's name, and after a zero the host's boot id, to tell hosts with the same name apart.
    hosts: Vec<String>,
    /// For each rank: its processes, oldest first; the last one as of the last repair.
    processes: Vec<Vec<u32>>,
    repair: Option<Repair>,
    /// Beginning and end of the last repair.
    last_repair: Option<(Instant, Instant)>,
    /// Current vote to end the job.
    vote: Option<Meeting>,
    /// Number of votes begun by this process.
    votes: u32,
}

impl Membership {
    /// Makes the first processes in `world` the job's ranks, and the others its spares.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`MembershipError::TooFew`], [`MembershipError::Mpi`].
    pub fn new(world: &Comm, ranks: u32) -> Result<Membership, MembershipError> {
        Membership::resumed(world, ranks, 0)
    }

    /// Same as [`new`](Self::new), for a failed job.
    ///
    /// No earlier process of the job had `first_incarnation`.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub(crate) fn resumed(world: &Comm, ranks: u32, first_incarnation: u32) -> Result<Membership, MembershipError> {
        let (process, started) = (world.rank()?, world.size()?);
        if started < ranks {
            return Err(MembershipError::TooFew { ranks, started });
        }
        if started > 1 && (outlives_failures() || lives_on()) {
            watch_calls();
        }
        let places = (0..started).map(|process| if process < ranks { process } else { SPARE }).collect();
        let processes = (0..ranks).map(|rank| vec![rank]).collect();
        let hosts = gather_hosts(world, started)?;
        let ranks_here = hosts.iter().take(ranks as usize).filter(|host| **host == hosts[process as usize]).count();
        if thread::available_parallelism().is_ok_and(|processors| ranks_here <= processors.get()) {
            // Spares sleep.
            wait_without_yielding();
        }
        let (all, job, calls) = (world.dup()?, world.dup()?, Calls::new(world)?);
        Ok(Membership {
            all,
            job,
            calls,
            process,
            places,
            ranks,
            first_incarnation,
            hosts,
            processes,
            repair: None,
            last_repair: None,
            vote: None,
            votes: 0,
        })
    }

    /// Returns this process's rank in the job; `None` for a spare.
    pub fn rank(&self) -> Option<u32> {
        self.rank_of(self.process)
    }

    /// Returns this process's number in [`all`](Self::all).
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Returns the start of the last repair, when this process learnt of a failure, and its end, when all had agreed.
    pub(crate) fn last_repair(&self) -> Option<(Instant, Instant)> {
        self.last_repair
    }

    /// Returns the number of ranks in the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns a process's rank, by its number in [`all`](Self::all); `None` for a spare or a dead process.
    pub(crate) fn rank_of(&self, process: u32) -> Option<u32> {
        self.places.get(process as usize).copied().filter(|place| *place < self.ranks)
    }

    /// Returns the number in [`all`](Self::all) of a rank's process.
    ///
    /// It may be dead.
    pub(crate) fn process_of(&self, rank: u32) -> u32 {
        let processes = &self.processes[rank as usize];
        processes[processes.len() - 1]
    }

    /// Returns this process's host.
    pub(crate) fn host(&self) -> &str {
        name_of(&self.hosts[self.process as usize])
    }

    /// Returns the first other host with an earlier process of a rank.
    pub(crate) fn other_host_of(&self, rank: u32) -> Option<&str> {
        let own = &self.hosts[self.process as usize];
        let mut hosts = self.processes[rank as usize].iter().map(|process| &self.hosts[*process as usize]);
        hosts.find(|host| *host != own).map(|host| name_of(host))
    }

    /// Returns the incarnation of a rank's process.
    pub(crate) fn incarnation_of(&self, rank: u32) -> u32 {
        self.first_incarnation + self.processes[rank as usize].len() as u32 - 1
    }

    /// Checks that the job goes on.
    ///
    /// Without a launcher, this process would do so alone, holding its log.
    ///
    /// # Errors
    /// [`RepairError::Aborted`], [`RepairError::Orphaned`].
    pub(crate) fn check_goes_on(&self) -> Result<(), RepairError> {
        if is_world_revoked() {
            Err(RepairError::Aborted)
        // A process without a launcher is a job by itself.
        } else if self.places.len() > 1 && self.all.universe().is_orphaned() {
            Err(RepairError::Orphaned)
        } else {
            Ok(())
        }
    }

    /// Returns the spare processes.
    pub(crate) fn spares(&self) -> Vec<u32> {
        (0..).zip(&self.places).filter(|(_, place)| **place == SPARE).map(|(process, _)| process).collect()
    }

    /// Returns the communicator with all processes.
    pub(crate) fn all(&self) -> &Comm {
        &self.all
    }

    /// Returns the communicator with all processes for notices about the job.
    pub(crate) fn job(&self) -> &Comm {
        &self.job
    }

    /// Begins the meeting of all living processes.
    ///
    /// Each calls this once, at the end of the job.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn meet(&self) -> Result<Meeting, MpiError> {
        self.job.meet(0)
    }

    /// Votes to end the job.
    ///
    /// A vote ends when all living processes have begun it. Returns `false`, without a vote, if a failed process is
    /// still unrepaired.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn begin_vote(&mut self) -> Result<bool, MpiError> {
        let failed = self.job.failed_ranks()?;
        if failed.iter().any(|process| !self.is_dead(*process)) {
            return Ok(false);
        }
        // The vote fails on all alike if they have repaired different failures.
        let dead: Vec<u32> =
            (0..).zip(&self.places).filter(|(_, place)| **place == DEAD).map(|(process, _)| process).collect();
        self.vote = Some(self.job.meet(fingerprint(&dead))?);
        self.votes += 1;
        Ok(true)
    }

    /// Returns `true` during a vote.
    pub(crate) fn is_voting(&self) -> bool {
        self.vote.is_some()
    }

    /// Returns the number of votes begun by this process.
    pub(crate) fn votes(&self) -> u32 {
        self.votes
    }

    /// Returns `Some` at the end of this process's vote: `true` if the job ends, `false` if another process has failed
    /// meanwhile; the same on all processes.
    ///
    /// Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn poll_vote(&mut self) -> Result<Option<bool>, MpiError> {
        let Some(vote) = &mut self.vote else { return Ok(None) };
        let ended = vote.poll()?;
        if ended.is_some() {
            self.vote = None;
        }
        Ok(ended)
    }

    fn is_dead(&self, process: u32) -> bool {
        self.places.get(process as usize) == Some(&DEAD)
    }

    /// Returns `true` if a failed process is still unrepaired, or if another process has begun a repair.
    ///
    /// Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn has_failure(&mut self) -> Result<bool, MpiError> {
        match self.calls.poll() {
            Ok(()) => Ok(self.calls.are_unanswered()),
            Err(error) if error.is_process_failure() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Begins a repair, after a call has failed because of a dead process; returns `false` if an earlier repair has
    /// dealt with all dead processes, and this process is not called to another one.
    ///
    /// Every living process begins it once it learns of a new dead process, or is called.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn begin_repair(&mut self) -> Result<bool, MpiError> {
        let failed = self.failed()?;
        let begins = self.calls.are_unanswered() || failed.iter().any(|process| !self.is_dead(*process));
        if begins {
            self.begin_agreement(failed, Instant::now())?;
        }
        Ok(begins)
    }

    /// Returns the failed processes, ascending: those reported by MPI, which are acknowledged, and those reported by
    /// other processes.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn failed(&mut self) -> Result<Vec<u32>, MpiError> {
        self.calls.acknowledge()?;
        self.job.failed_ranks()?;
        // Acknowledged first: receives from any source go on without these.
        let mut failed: BTreeSet<u32> = self.all.failed_ranks()?.into_iter().collect();
        // Calls from others report further ones.
        self.has_failure()?;
        failed.extend(self.calls.told().filter(|process| (*process as usize) < self.places.len()));
        Ok(failed.into_iter().collect())
    }

    /// Begins to agree on these failures, and calls the others to it.
    ///
    /// `begun` is the start of this repair's first agreement.
    fn begin_agreement(&mut self, failed: Vec<u32>, begun: Instant) -> Result<(), MpiError> {
        self.calls.call_others(&failed)?;
        let agreement = self.all.meet(fingerprint(&failed))?;
        self.repair = Some(Repair { agreement, failed, begun, waits_since: Instant::now(), has_told: false });
        self.calls.count_agreement();
        Ok(())
    }

    /// Checks that the current agreement may still end.
    fn check_agreement(&mut self) -> Result<(), RepairError> {
        let Some(repair) = &mut self.repair else { return Ok(()) };
        let may_be_untold = repair.begun.elapsed() >= UNTOLD_MAX;
        if may_be_untold {
            repair.begun = Instant::now();
        }
        let has_stalled = repair.waits_since.elapsed() >= STALL_MAX;
        if has_stalled && !std::mem::replace(&mut repair.has_told, true) {
            self.calls.report_stall()?;
        }
        if !may_be_untold && !has_stalled {
            return Ok(());
        }
        self.has_failure()?;
        if may_be_untold && let Some(process) = self.calls.find_untold(UNTOLD_MAX / 2)? {
            return Err(RepairError::Untold { process });
        }
        if has_stalled && self.calls.have_all_stalled()? {
            return Err(RepairError::AgreementLost);
        }
        Ok(())
    }

    /// Takes part in a repair needed by another process, at the end of a job, and continues it; returns the ranks with
    /// dead processes found, replaced or not.
    ///
    /// `has_failure`: a call has failed because of a dead process. Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn serve_repair(&mut self, has_failure: bool) -> Result<Vec<u32>, MpiError> {
        if has_failure && self.repair.is_none() {
            self.begin_repair()?;
        }
        match self.poll_repair() {
            Ok(replaced) => Ok(replaced.unwrap_or_default()),
            // Nobody needs a replacement.
            Err(RepairError::NoSpare { vacant, .. }) => Ok(vacant),
            // The caller asks for it, too.
            Err(RepairError::Aborted | RepairError::Orphaned) => Ok(Vec::new()),
            // All ranks are done: nobody needs it.
            Err(RepairError::Untold { .. } | RepairError::AgreementLost) => Ok(Vec::new()),
            Err(RepairError::Mpi(error)) => Err(error),
        }
    }

    /// Continues a repair; once all living processes have agreed, returns the ranks with new processes.
    ///
    /// Doesn't wait.
    ///
    /// # Errors
    /// [`RepairError::NoSpare`] on all processes; the other [`RepairError`]s.
    pub(crate) fn poll_repair(&mut self) -> Result<Option<Vec<u32>>, RepairError> {
        self.check_goes_on()?;
        let Some(Repair { agreement, failed, begun, .. }) = &mut self.repair else { return Ok(Some(Vec::new())) };
        let Some(is_agreed) = agreement.poll()? else { return self.check_agreement().map(|()| None) };
        let (failed, begun) = (std::mem::take(failed), *begun);
        if !is_agreed {
            let failed = self.failed()?;
            self.begin_agreement(failed, begun)?;
            return Ok(None);
        }
        self.repair = None;
        self.last_repair = Some((begun, Instant::now()));
        for process in failed {
            self.places[process as usize] = DEAD;
        }
        let vacant = (0..self.ranks).filter(|rank| !self.places.contains(rank)).collect::<Vec<u32>>();
        let lost: Vec<(u32, &str)> =
            vacant.iter().map(|rank| (*rank, self.hosts[self.process_of(*rank) as usize].as_str())).collect();
        let hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        let assigned = match assign(&self.places, &hosts, &lost) {
            Ok(assigned) => assigned,
            Err(rank) => return Err(RepairError::NoSpare { rank, vacant }),
        };
        for (rank, process) in assigned {
            self.places[process as usize] = rank;
            self.processes[rank as usize].push(process);
        }
        Ok(Some(vacant))
    }
}

/// Returns a fingerprint to compare known failures between processes: six bits of their number, since mostly one
/// process knows more failures than another, and ten of a hash.
fn fingerprint(failed: &[u32]) -> u16 {
    let hash = failed.iter().fold(0x811c_9dc5_u32, |hash, process| (hash ^ process).wrapping_mul(0x0100_0193));
    ((failed.len() as u16) << 10) | (hash ^ hash >> 10 ^ hash >> 20) as u16 & 0x3ff
}

/// Returns a host's name.
fn name_of(host: &str) -> &str {
    host.split('\0').next().unwrap_or_default()
}

/// Returns this host's name, and after a zero its boot id.
pub(crate) fn own_host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut host = format!("{}\0{}", rustix::system::uname().nodename().to_string_lossy(), boot.trim_end());
    let len = (0..=HOST_BYTES_MAX.min(host.len())).rfind(|len| host.is_char_boundary(*len));
    host.truncate(len.unwrap_or_default());
    host
}

/// Returns the hosts of all processes.
///
/// Collective.
fn gather_hosts(world: &Comm, processes: u32) -> Result<Vec<String>, MpiError> {
    let mut own = [0; HOST_BYTES_MAX];
    let host = own_host();
    own[..host.len()].copy_from_slice(host.as_bytes());
    let mut all = vec![0; HOST_BYTES_MAX * processes as usize];
    world.all_gather(&own, &mut all)?;
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    Ok(all.chunks(HOST_BYTES_MAX).map(name).collect())
}

/// Gives vacant ranks, each with its last process's host, to spares: first to spares on the same host, then to others,
/// in ascending order of ranks and processes.
///
/// Returns pairs (rank, process), or as an error the lowest rank still vacant.
fn assign(places: &[u32], hosts: &[&str], vacant: &[(u32, &str)]) -> Result<Vec<(u32, u32)>, u32> {
    let mut spares: Vec<(u32, &str)> =
        (0..).zip(hosts).zip(places).filter(|(_, place)| **place == SPARE).map(|((n, host), _)| (n, *host)).collect();
    let mut assigned = Vec::new();
    for needs_same_host in [true, false] {
        for (rank, host) in vacant {
            let is_vacant = assigned.iter().all(|(other, _)| other != rank);
            let fits = |spare: &(u32, &str)| !needs_same_host || spare.1 == *host;
            if let Some(at) = spares.iter().position(fits).filter(|_| is_vacant) {
                assigned.push((*rank, spares.remove(at).0));
            }
        }
    }
    let without = vacant.iter().find(|(rank, _)| assigned.iter().all(|(other, _)| other != rank));
    without.map_or(Ok(assigned), |(rank, _)| Err(*rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vacant_ranks_go_to_spares_in_ascending_order() {
        let assigned = assign(&[0, 3, SPARE, SPARE, SPARE], &["a"; 5], &[(1, "a"), (2, "a")]);
        assert_eq!(assigned, Ok(vec![(1, 2), (2, 3)]));
        assert_eq!(assign(&[2, 1, 0], &["a"; 3], &[]), Ok(vec![]));
        assert_eq!(assign(&[DEAD, SPARE], &["a"; 2], &[(0, "a")]), Ok(vec![(0, 1)]));
    }

    #[test]
    fn spares_on_the_host_of_the_dead_process_come_first() {
        let hosts = ["a", "b", "a", "a", "b"];
        assert_eq!(assign(&[DEAD, DEAD, SPARE, SPARE, SPARE], &hosts, &[(0, "b"), (1, "a")]), Ok(vec![(0, 4), (1, 2)]));
        assert_eq!(assign(&[DEAD, DEAD, SPARE, SPARE, DEAD], &hosts, &[(0, "b"), (1, "a")]), Ok(vec![(1, 2), (0, 3)]));
    }

    #[test]
    fn who_knows_of_other_failures_has_another_fingerprint() {
        let known: [&[u32]; 7] = [&[], &[0], &[5], &[2], &[2, 5], &[5, 7], &[2, 5, 7]];
        for (place, failed) in known.iter().enumerate() {
            let same = known.iter().filter(|other| fingerprint(other) == fingerprint(failed)).count();
            assert_eq!(same, 1, "{place}: {failed:?}");
        }
        // One more failure is always told apart.
        let all: Vec<u32> = (0..64).collect();
        assert!((0..63).all(|count| fingerprint(&all[..count]) != fingerprint(&all[..=count])));
    }

    #[test]
    fn a_rank_without_a_spare_is_named() {
        assert_eq!(assign(&[0, 3, SPARE], &["a"; 3], &[(1, "a"), (2, "a")]), Err(2));
        assert_eq!(assign(&[1], &["a"], &[(0, "a")]), Err(0));
    }
}
