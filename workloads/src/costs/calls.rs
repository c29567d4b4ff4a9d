//! Repeated collective calls.

use counterfoil_runtime::communicator::{Communicator, Reduction};

use super::Call;
use crate::values::digest;
use crate::{Class, Error, Iterations, Outcome, RanksError, Value, Workload};

/// Calls with one kind and length, without state to save.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    call: Call,
    /// Length in numbers.
    len: usize,
    calls: u64,
}

impl Calls {
    pub(super) fn new(call: Call, bytes: usize, calls: u64) -> Calls {
        Calls { call, len: bytes / size_of::<f64>(), calls }
    }

    /// Returns each number's value after a call on rank `rank` of `ranks`, which is given its own rank.
    fn expected(self, rank: u32, ranks: u32) -> f64 {
        let sum = f64::from(ranks) * f64::from(ranks - 1) / 2.0;
        match self.call {
            Call::Allreduce => sum,
            Call::Reduce if rank == 0 => sum,
            Call::Reduce => f64::from(rank),
            Call::Bcast => 0.0,
        }
    }
}

impl Workload for Calls {
    fn name(&self) -> &'static str {
        match self.call {
            Call::Allreduce => "allreduce",
            Call::Reduce => "reduce",
            Call::Bcast => "bcast",
        }
    }

    fn class(&self) -> Class {
        Class::default()
    }

    fn deterministic(&self) -> bool {
        true
    }

    fn validate(&self, _: u32) -> Result<(), RanksError> {
        Ok(())
    }

    fn iterations(&self, _: u32, _: u32) -> Iterations {
        Iterations::exactly(self.calls)
    }

    fn message_bytes_max(&self, _: u32) -> usize {
        self.len * size_of::<f64>()
    }

    fn run(&self, comm: &mut dyn Communicator, _: Option<u64>) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let mut values = vec![0.0; self.len];
        let mut is_right = true;
        for call in 1..=self.calls {
            comm.iteration(call)?;
            values.fill(f64::from(rank));
            match self.call {
                Call::Allreduce => comm.allreduce_f64(&mut values, Reduction::Sum)?,
                Call::Reduce => comm.reduce_f64(0, &mut values, Reduction::Sum)?,
                Call::Bcast => comm.bcast_f64(0, &mut values)?,
            }
            is_right &= values.last().is_none_or(|last| *last == self.expected(rank, ranks));
        }
        let value = Value::Number(values.first().copied().unwrap_or_default());
        Ok(Outcome { verified: Some(is_right), value, digest: digest(&values) })
    }
}
