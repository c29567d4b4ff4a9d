//! Calls to a repair.
//!
//! MPI tells each process of a failure by itself, and under load Open MPI 5.0.11 sometimes leaves one out. The others
//! would wait for it in the agreement for ever. So a process that begins a repair calls others to it, and each that is
//! called calls others. Mostly the agreement then tells the process what it has missed. Where it waits for the dead
//! process itself, it never ends, and the process must give up.
//!
//! When two processes die at the same time, Open MPI 5.0.11 sometimes loses the agreement: all the living have begun
//! it, and it never ends. So a process that has waited in one for too long tells all others, and when it has heard the
//! same from all of them, they give up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use counterfoil_mpi_core::comm::{Comm, Sending};
use counterfoil_mpi_core::error::MpiError;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Tag of a call: the number of the agreement, and the dead processes that the caller knows of, in u32.
const CALL: i32 = 0;
/// Tag of a report that the sender has waited too long in an agreement: the number of that in u32.
const STALL: i32 = 1;

/// Calls to repairs, between all processes of a job.
#[derive(Debug)]
pub(super) struct Calls {
    /// All processes of the job.
    comm: Comm,
    process: u32,
    processes: u32,
    /// Number of agreements that this process has begun.
    begun: u32,
    /// Greatest number of an agreement that this process was called to.
    called: u32,
    /// Dead processes of which others have told this one, each with the time at which it was first told.
    told: BTreeMap<u32, Instant>,
    /// For each process, the last agreement in which it has waited too long; 0 for none.
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

    /// Returns `true` if this process was called to an agreement that it has not begun.
    pub(super) fn are_unanswered(&self) -> bool {
        self.called > self.begun
    }

    /// Takes the calls and the reports of stalls that have arrived. Doesn't wait.
    ///
    /// # Errors
    /// [`MpiError`], of a process failure if one has failed that [`acknowledge`](Self::acknowledge) has not dealt with.
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

    /// Tells all others that this process has waited too long in the agreement that it began last.
    pub(super) fn report_stall(&mut self) -> Result<(), MpiError> {
        let (dead, own) = (self.dead()?, self.process);
        self.stalled[own as usize] = self.begun;
        for other in (0..self.processes).filter(|other| *other != own && !dead.contains(other)) {
            self.send(U32::new(self.begun).as_bytes(), other, STALL)?;
        }
        Ok(())
    }

    /// Returns `true` if all living processes have waited too long in the agreement that this one began last.
    pub(super) fn have_all_stalled(&self) -> Result<bool, MpiError> {
        let dead = self.dead()?;
        let mut living = (0..).zip(&self.stalled).filter(|(process, _)| !dead.contains(process));
        Ok(living.all(|(_, stalled)| *stalled == self.begun))
    }

    /// Returns the processes that have failed, as far as MPI or others have told this one.
    fn dead(&self) -> Result<BTreeSet<u32>, MpiError> {
        Ok(self.comm.failed_ranks()?.into_iter().chain(self.told()).collect())
    }

    /// Returns a dead process of which others have told this one so long ago, and MPI has not.
    pub(super) fn find_untold(&self, since: Duration) -> Result<Option<u32>, MpiError> {
        let known = self.comm.failed_ranks()?;
        let untold = self.told.iter().find(|(process, told)| told.elapsed() >= since && !known.contains(process));
        Ok(untold.map(|(process, _)| *process))
    }

    /// Returns the dead processes of which others have told this one.
    pub(super) fn told(&self) -> impl Iterator<Item = u32> {
        self.told.keys().copied()
    }

    /// Acknowledges the failures that this process knows of.
    pub(super) fn acknowledge(&self) -> Result<(), MpiError> {
        self.comm.failed_ranks().map(drop)
    }

    /// Records that this process begins an agreement.
    pub(super) fn count_agreement(&mut self) {
        self.begun += 1;
    }

    /// Calls others to the agreement that this process begins next, and tells them of the dead processes: those at
    /// distances that are powers of two, so that all are called by somebody.
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

    /// Sends to a process that may be dead.
    fn send(&mut self, bytes: &[u8], to: u32, tag: i32) -> Result<(), MpiError> {
        match self.comm.isend(bytes.to_vec(), to, tag) {
            Ok(sending) => self.sent.push(sending),
            Err(error) if error.is_process_failure() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
