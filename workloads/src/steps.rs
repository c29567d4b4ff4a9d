//! Programs with equally many steps on all ranks, each from the state left by the previous one.

use std::fmt;
use std::ops::RangeInclusive;

use counterfoil_runtime::communicator::Communicator;
use counterfoil_runtime::transport::CallKind;

use crate::state::{Owner, decode, encode};
use crate::{Class, Error, Iterations, Outcome, RanksError, StateError, Workload, checkpoint_due};

/// Program in steps: a [`Workload`] with sends independent of timing.
pub(crate) trait Steps: fmt::Debug + Send + Sync {
    /// Workload name.
    const NAME: &'static str;
    /// The program's number in its saved states.
    const STATE_ID: u32;

    /// A rank's part of the state.
    type Part;

    fn class(&self) -> Class;

    /// Returns the valid numbers of ranks.
    fn ranks(&self) -> RangeInclusive<u32>;

    /// See [`Workload::makes`].
    fn makes(&self, _call: CallKind) -> bool {
        true
    }

    /// Checks further conditions on a number of ranks.
    fn check_ranks(&self, _ranks: u32) -> Result<(), RanksError> {
        Ok(())
    }

    /// Returns the number of steps.
    fn steps(&self) -> u64;

    /// See [`Workload::message_bytes_max`].
    fn message_bytes_max(&self, ranks: u32) -> usize;

    /// Returns a rank's part before the first step; `ranks` is valid.
    fn start(&self, rank: u32, ranks: u32) -> Result<Self::Part, RanksError>;

    /// Restores a part written by [`encode`](Self::encode) after `step`.
    fn restore(&self, part: &mut Self::Part, step: u64, body: &[u8]) -> Result<(), StateError>;

    fn encode(&self, part: &Self::Part) -> Vec<u8>;

    /// Makes a step, from 1 on.
    fn step(&self, comm: &mut dyn Communicator, step: u64, part: &mut Self::Part) -> Result<(), Error>;

    /// Verifies the result.
    fn finish(&self, comm: &mut dyn Communicator, part: Self::Part) -> Result<Outcome, Error>;
}

impl<S: Steps> Workload for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn class(&self) -> Class {
        Steps::class(self)
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn makes(&self, call: CallKind) -> bool {
        Steps::makes(self, call)
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        self.check_ranks(ranks)?;
        let (workload, class, at_least, at_most) =
            (S::NAME, Steps::class(self), *self.ranks().start(), *self.ranks().end());
        match ranks {
            ranks if ranks < at_least => Err(RanksError::TooFew { workload, ranks, at_least }),
            ranks if ranks > at_most => Err(RanksError::TooMany { workload, class, ranks, at_most }),
            _ => Ok(()),
        }
    }

    fn iterations(&self, _rank: u32, _ranks: u32) -> Iterations {
        Iterations::exactly(self.steps())
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        Steps::message_bytes_max(self, ranks)
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.validate(ranks)?;
        let owner = Owner { workload: S::STATE_ID, class: Steps::class(self), rank, ranks };
        let saved = comm.restore()?;
        let saved = saved.as_deref().map(|bytes| decode(&owner, self.iterations(rank, ranks), bytes)).transpose()?;
        let mut part = self.start(rank, ranks)?;
        let mut step = 0;
        if let Some((iteration, body)) = saved {
            self.restore(&mut part, iteration, body)?;
            step = iteration;
        }
        while step < self.steps() {
            step += 1;
            comm.iteration(step)?;
            self.step(comm, step, &mut part)?;
            if checkpoint_due(comm, step, checkpoint_every) {
                comm.checkpoint(&encode(&owner, step, &self.encode(&part)))?;
            }
        }
        self.finish(comm, part)
    }
}
