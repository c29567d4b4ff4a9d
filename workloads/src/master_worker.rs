//! Master assigning tasks to its workers as they become idle.
//!
//! Rank 0 is the master. It receives results from any worker, by wildcards, probes and tests, and replies to each with
//! the next task or with a stop message. Task assignment depends on timing and differs from run to run; the combined
//! answer doesn't depend on their order. Communicator call outcomes are the only source of non-determinism.

mod disks;
mod master;
mod task;
mod worker;

use counterfoil_runtime::communicator::{Communicator, Reduction};
use xxhash_rust::xxh3::xxh3_64;

use crate::state::Owner;
use crate::{Class, Error, Iterations, Outcome, RanksError, StateError, Value, Workload};
use task::Answer;

/// Name of the workload with hash chains as tasks.
pub const NAME: &str = "master-worker";

/// Name of the workload with hard disks' random walks as tasks (Monte Carlo).
pub const DISKS: &str = "disks";

/// Rank assigning the tasks.
pub const MASTER: u32 = 0;

/// Kind of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Hash chains.
    Hashes,
    /// Hard disks' random walks in a periodic box.
    Disks,
}

impl Kind {
    fn state_id(self) -> u32 {
        match self {
            Kind::Hashes => 3,
            Kind::Disks => 9,
        }
    }
}

const TAG_TASK: i32 = 1;
const TAG_STOP: i32 = 2;
const TAG_RESULT: i32 = 3;

/// Maximum number of tests or probes before a rank blocks: each is a determinant.
const POLLS_MAX: u32 = 3;

/// Master with workers; class S, W, A have 24, 96, 400 tasks for each worker.
///
/// Runs on 2 ranks or more. A master iteration is one received result, a worker iteration is one task. Every worker
/// gets at least half of its share.
#[derive(Clone, Debug)]
pub struct MasterWorker {
    kind: Kind,
    class: Class,
    tasks_per_worker: u64,
}

/// Task distribution in one run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: Kind,
    workers: u32,
    /// Number of tasks, numbered from 0.
    tasks: u64,
    /// Tasks guaranteed to each worker, even a slow one.
    worker_tasks_min: u64,
}

impl MasterWorker {
    /// Creates the workload with size `class` and tasks of one kind.
    pub fn new(kind: Kind, class: Class) -> MasterWorker {
        let tasks_per_worker = match class {
            Class::S => 24,
            Class::W => 96,
            Class::A => 400,
        };
        MasterWorker { kind, class, tasks_per_worker }
    }

    fn plan(&self, ranks: u32) -> Plan {
        let workers = ranks.saturating_sub(1);
        Plan {
            kind: self.kind,
            workers,
            tasks: self.tasks_per_worker * u64::from(workers),
            worker_tasks_min: self.tasks_per_worker / 2,
        }
    }
}

impl Plan {
    fn iterations(&self, rank: u32) -> Iterations {
        if rank == MASTER {
            return Iterations::exactly(self.tasks);
        }
        let others = u64::from(self.workers.saturating_sub(1));
        let (at_least, at_most) = (self.worker_tasks_min, self.tasks.saturating_sub(others * self.worker_tasks_min));
        Iterations { at_least, at_most }
    }

    /// Computes the answer without messages.
    fn known_answer(&self) -> Answer {
        let mut answer = Answer::default();
        for task in 0..self.tasks {
            answer.add(task::compute(self.kind, task, &task::input(self.kind, task)));
        }
        answer
    }
}

impl Workload for MasterWorker {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Hashes => NAME,
            Kind::Disks => DISKS,
        }
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        false
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        if ranks < 2 {
            return Err(RanksError::TooFew { workload: self.name(), ranks, at_least: 2 });
        }
        Ok(())
    }

    fn iterations(&self, rank: u32, ranks: u32) -> Iterations {
        self.plan(ranks).iterations(rank)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        // Results (8 bytes), the final sums (16) and the answer (24) are shorter than tasks.
        task::message_bytes_max(self.kind, self.plan(ranks).tasks).max(size_of::<[u64; 3]>())
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.validate(ranks)?;
        let plan = self.plan(ranks);
        let owner = Owner { workload: self.kind.state_id(), class: self.class, rank, ranks };
        let own = if rank == MASTER {
            master::run(comm, &plan, &owner, checkpoint_every)?
        } else {
            worker::run(comm, &plan, &owner, checkpoint_every)?
        };
        // The workers' results must equal the results received by the master: a repeated or omitted task changes one of
        // the two sums.
        let mut done = if rank == MASTER { [0, 0] } else { [own.count, own.sum] };
        comm.allreduce_u64(&mut done, Reduction::Sum)?;
        let mut words = own.to_words();
        comm.bcast_u64(MASTER, &mut words)?;
        let answer = Answer::from_words(words);
        Ok(Outcome {
            verified: Some(answer == plan.known_answer() && done == [answer.count, answer.sum]),
            value: Value::Text(format!("{:016x}", answer.sum)),
            digest: xxh3_64(&answer.to_bytes()),
        })
    }
}

/// Checks that a restored answer can have been saved after `iteration`.
fn check_count(answer: &Answer, iteration: u64) -> Result<(), StateError> {
    if answer.count == iteration {
        Ok(())
    } else {
        Err(StateError::Invalid { what: "number of results", found: answer.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guaranteed_tasks_never_exceed_all_tasks() {
        for class in Class::ALL {
            for ranks in 2..40 {
                let workload = MasterWorker::new(Kind::Hashes, class);
                let of_workers = (1..ranks).map(|rank| workload.iterations(rank, ranks));
                let guaranteed: u64 = of_workers.clone().map(|worker| worker.at_least).sum();
                let tasks = workload.iterations(MASTER, ranks).at_least;
                assert!(guaranteed <= tasks);
                assert!(of_workers.clone().all(|worker| worker.at_least >= 1 && worker.at_most <= tasks));
            }
        }
    }
}
