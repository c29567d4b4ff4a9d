//! Calls to a repair.
//!
//! MPI tells each process of a failure separately, and under load Open MPI 5.0.11 sometimes leaves one out. The others
//! would wait for it in the agreement for ever. So a process beginning a repair calls others to it, and each called
//! process calls others. Mostly the agreement then tells the process of the missed failure. If it waits for the dead
//! process itself, it never ends, and the process must give up.
//!
//! When two processes die at the same time, Open MPI 5.0.11 sometimes loses the agreement: all the living have begun
//! it, and it never ends. So a process tells all others when it has waited too long, and when it has heard the same
//! from all of them, they give up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use counterfoil_mpi_core::comm::{Comm, Sending};
use counterfoil_mpi_core::error::MpiError;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Tag of a call: the agreement's number, and the dead processes known to the caller, in u32.
const CALL: i32 = 0;
/// Tag of a stall report (the sender has waited too long in an agreement): the agreement's number in u32.
const STALL: i32 = 1;

/// Calls to repairs, between all of a job's processes.
#[derive(Debug)]
pub(super) struct Calls {
    /// All of the job's processes.
    comm: Comm,
    process: u32,
    processes: u32,
    /// Number of agreements begun by this process.
    begun: u32,
    /// Greatest agreement number in a call to this process.
    called: u32,
    /// Dead processes reported by others, each with the time of the first report.
    told: BTreeMap<u32, Instant>,
    /// For each process, the last agreement it stalled in; 0 for none.
    stalled: Vec<u32>,
    /// Calls, and reports of stalls, in flight.
    sent: Vec<Sending>,
}

impl Calls {
    /// Collective.
    pub(super) fn new(world: &Comm) -> Result<Calls, MpiError> {
        let (process, processes) = (world.rank()?, world.size()?);
        Ok(Calls {
            comm: world.dup()?,
            process,
            processes,
            begun: 0,
            called: 0,
            told: BTreeMap::new(),
            stalled: vec![0; processes as usize],
            sent: Vec::new(),
        })
    }

    /// Returns `true` if this process was called to an agreement and has not begun it.
    pub(super) fn are_unanswered(&self) -> bool {
        self.called > self.begun
    }

    /// Takes the arrived calls and stall reports.
    ///
    /// Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`], for a process failure if one is not yet [acknowledged](Self::acknowledge).
    pub(super) fn poll(&mut self) -> Result<(), MpiError> {
        while let Some(message) = self.comm.improbe(None, Some(CALL))? {
            let bytes = message.receive()?;
            if let Ok([number, dead @ ..]) = <[U32]>::ref_from_bytes(&bytes) {
                self.called = self.called.max(number.get());
                for process in dead {
                    self.told.entry(process.get()).or_insert_with(Instant::now);
                }
            }
        }
        while let Some(message) = self.comm.improbe(None, Some(STALL))? {
            let source = message.source as usize;
            if let Ok([number]) = <[U32]>::ref_from_bytes(&message.receive()?) {
                self.stalled[source] = number.get();
            }
        }
        Ok(())
    }

    /// Tells all others that this process has stalled in its last agreement.
    pub(super) fn report_stall(&mut self) -> Result<(), MpiError> {
        let (dead, own) = (self.dead()?, self.process);
        self.stalled[own as usize] = self.begun;
        for other in (0..self.processes).filter(|other| *other != own && !dead.contains(other)) {
            self.send(U32::new(self.begun).as_bytes(), other, STALL)?;
        }
        Ok(())
    }

    /// Returns `true` if all living processes have waited too long in this process's last agreement.
    pub(super) fn have_all_stalled(&self) -> Result<bool, MpiError> {
        let dead = self.dead()?;
        let mut living = (0..).zip(&self.stalled).filter(|(process, _)| !dead.contains(process));
        Ok(living.all(|(_, stalled)| *stalled == self.begun))
    }

    /// Returns the failed processes reported by MPI or by others.
    fn dead(&self) -> Result<BTreeSet<u32>, MpiError> {
        Ok(self.comm.failed_ranks()?.into_iter().chain(self.told()).collect())
    }

    /// Returns a dead process reported by others at least `since` ago, and not by MPI.
    pub(super) fn find_untold(&self, since: Duration) -> Result<Option<u32>, MpiError> {
        let known = self.comm.failed_ranks()?;
        let untold = self.told.iter().find(|(process, told)| told.elapsed() >= since && !known.contains(process));
        Ok(untold.map(|(process, _)| *process))
    }

    /// Returns the dead processes reported by others.
    pub(super) fn told(&self) -> impl Iterator<Item = u32> {
        self.told.keys().copied()
    }

    /// Acknowledges the failures known to this process.
    pub(super) fn acknowledge(&self) -> Result<(), MpiError> {
        self.comm.failed_ranks().map(drop)
    }

    /// Counts an agreement begun by this process.
    pub(super) fn count_agreement(&mut self) {
        self.begun += 1;
    }

    /// Calls others to this process's next agreement, and tells them of the dead processes.
    ///
    /// It calls processes at power-of-two distances, so that every process is called by some other.
    pub(super) fn call_others(&mut self, dead: &[u32]) -> Result<(), MpiError> {
        let told: BTreeSet<u32> = self.told().chain(dead.iter().copied()).collect();
        let call: Vec<U32> = [self.begun + 1].into_iter().chain(told.iter().copied()).map(U32::new).collect();
        // A call to a dead process may never be complete.
        self.sent.drain(..).for_each(Sending::abandon);
        let processes = self.processes;
        let distances = (0..u32::BITS).map(|exponent| 1_u32 << exponent).take_while(|distance| *distance < processes);
        for distance in distances {
            let other = (u64::from(self.process) + u64::from(distance)) % u64::from(self.processes);
            let other = other as u32;
            if !told.contains(&other) {
                self.send(call.as_bytes(), other, CALL)?;
            }
        }
        Ok(())
    }

    /// Sends to a possibly dead process.
    fn send(&mut self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        match self.comm.isend(bytes.to_vec(), to, tag) {
            Ok(sending) => self.sent.push(sending),
            Err(error) if error.is_process_failure() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
