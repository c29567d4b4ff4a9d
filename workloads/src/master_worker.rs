//! A master that hands out tasks as its workers come free.
//!
//! Rank 0 is the master. It takes results from whoever has one, by wildcards, probes and tests, and answers each with
//! the next task or with the order to stop. Who does which task depends on timing and differs from run to run; the
//! combined answer doesn't, because it doesn't depend on an order. All that varies comes from the outcomes of
//! communicator calls.

mod master;
mod task;
mod worker;

use counterfoil_runtime::communicator::{Communicator, Reduction};
use xxhash_rust::xxh3::xxh3_64;

use crate::state::Owner;
use crate::{Class, Error, Iterations, Outcome, RanksError, StateError, Value, Workload};
use task::Answer;

/// The name of this workload.
pub const NAME: &str = "master-worker";

/// The rank that hands out the tasks.
pub const MASTER: u32 = 0;

const STATE_ID: u32 = 3;

const TAG_TASK: i32 = 1;
const TAG_STOP: i32 = 2;
const TAG_RESULT: i32 = 3;

/// How often a rank asks for a message before it waits for one: each asking is a determinant.
const ASKS_MAX: u32 = 3;

/// A master with workers; class S, W, A have 24, 96, 400 tasks for each worker.
///
/// Runs on 2 ranks or more. An iteration of the master is one result received; one of a worker is one task, and every
/// worker gets at least half of its share.
#[derive(Clone, Debug)]
pub struct MasterWorker {
    class: Class,
    tasks_per_worker: u64,
}

/// How the tasks of one run are shared out.
#[derive(Clone, Copy, Debug)]
struct Plan {
    workers: u32,
    /// Tasks have the numbers 0 to `tasks` - 1.
    tasks: u64,
    /// What each worker gets, however slow it is.
    worker_tasks_min: u64,
}

impl MasterWorker {
    /// The master with workers of size `class`.
    pub fn new(class: Class) -> MasterWorker {
        let tasks_per_worker = match class {
            Class::S => 24,
            Class::W => 96,
            Class::A => 400,
        };
        MasterWorker { class, tasks_per_worker }
    }

    fn plan(&self, ranks: u32) -> Plan {
        let workers = ranks.saturating_sub(1);
        Plan { workers, tasks: self.tasks_per_worker * u64::from(workers), worker_tasks_min: self.tasks_per_worker / 2 }
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

    /// The answer, computed without messages.
    fn known_answer(&self) -> Answer {
        let mut answer = Answer::default();
        for task in 0..self.tasks {
            answer.add(task::compute(task, &task::input(task)));
        }
        answer
    }
}

impl Workload for MasterWorker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> Class {
        self.class
    }

    fn deterministic(&self) -> bool {
        false
    }

    fn validate(&self, ranks: u32) -> Result<(), RanksError> {
        if ranks < 2 {
            return Err(RanksError::TooFew { workload: NAME, ranks, at_least: 2 });
        }
        Ok(())
    }

    fn iterations(&self, rank: u32, ranks: u32) -> Iterations {
        self.plan(ranks).iterations(rank)
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        // Results (8 bytes), the final sums (16) and the answer (24) are shorter than tasks.
        task::message_bytes_max(self.plan(ranks).tasks).max(size_of::<[u64; 3]>())
    }

    fn run(&self, comm: &mut dyn Communicator, checkpoint_every: Option<u64>) -> Result<Outcome, Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        self.validate(ranks)?;
        let plan = self.plan(ranks);
        let owner = Owner { workload: STATE_ID, class: self.class, rank, ranks };
        let own = if rank == MASTER {
            master::run(comm, &plan, &owner, checkpoint_every)?
        } else {
            worker::run(comm, &plan, &owner, checkpoint_every)?
        };
        // What the workers did must be what the master got: a task done twice or not at all shows in one of the two.
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

/// Whether a restored answer can have been saved after `iteration`.
fn check_count(answer: &Answer, iteration: u64) -> Result<(), StateError> {
    if answer.count == iteration {
        Ok(())
    } else {
        Err(StateError::Impossible { what: "number of results", found: answer.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guaranteed_tasks_never_exceed_all_tasks() {
        for class in Class::ALL {
            for ranks in 2..40 {
                let workload = MasterWorker::new(class);
                let of_workers = (1..ranks).map(|rank| workload.iterations(rank, ranks));
                let guaranteed: u64 = of_workers.clone().map(|worker| worker.at_least).sum();
                let tasks = workload.iterations(MASTER, ranks).at_least;
                assert!(guaranteed <= tasks);
                assert!(of_workers.clone().all(|worker| worker.at_least >= 1 && worker.at_most <= tasks));
            }
        }
    }
}
