//! The master: assigns tasks and receives results from any worker.

use bytes::Bytes;
use counterfoil_runtime::communicator::{ANY_SOURCE, ANY_TAG, Communicator, Status};

use super::task::{Answer, encode_task, words};
use super::{MASTER, POLLS_MAX, Plan, TAG_RESULT, TAG_STOP, TAG_TASK, check_count};
use crate::state::{Owner, decode, encode};
use crate::{Error, MessageError, StateError, checkpoint_due};

/// The master's state between two results.
struct Master {
    answer: Answer,
    /// Number of tasks assigned to each worker, from rank 1 on.
    assigned: Vec<u64>,
}

/// Runs until every worker is stopped; returns the combined answer.
pub(super) fn run(
    comm: &mut dyn Communicator,
    plan: &Plan,
    owner: &Owner,
    checkpoint_every: Option<u64>,
) -> Result<Answer, Error> {
    let mut master = match comm.restore()? {
        Some(state) => Master::restore(plan, owner, &state)?,
        None => {
            let mut master = Master { answer: Answer::default(), assigned: vec![0; plan.workers as usize] };
            for worker in 1..=plan.workers {
                master.reply(comm, plan, worker)?;
            }
            master
        }
    };
    while master.answer.count < plan.tasks {
        let n = master.answer.count + 1;
        comm.iteration(n)?;
        let (status, payload) = receive(comm, n)?;
        master.answer.add(result(&status, &payload)?);
        master.reply(comm, plan, status.source)?;
        if checkpoint_due(comm, n, checkpoint_every) {
            comm.checkpoint(&encode(owner, n, &master.to_body()))?;
        }
    }
    Ok(master.answer)
}

impl Master {
    /// Sends `worker` the next task, or a stop message.
    fn reply(&mut self, comm: &mut dyn Communicator, plan: &Plan, worker: u32) -> Result<(), Error> {
        match self.next_task(plan, worker) {
            Some(task) => {
                self.assigned[worker as usize - 1] += 1;
                comm.send(worker, TAG_TASK, &encode_task(plan.kind, task))?;
            }
            None => comm.send(worker, TAG_STOP, &[])?,
        }
        Ok(())
    }

    /// Returns the next task, unless all remaining ones are guaranteed to other workers.
    fn next_task(&self, plan: &Plan, worker: u32) -> Option<u64> {
        let next: u64 = self.assigned.iter().sum();
        let others = (1..).zip(&self.assigned).filter(|(other, _)| *other != worker);
        let reserved: u64 = others.map(|(_, assigned)| plan.worker_tasks_min.saturating_sub(*assigned)).sum();
        (next + reserved < plan.tasks).then_some(next)
    }

    /// Encodes the answer, then the number of tasks assigned to each worker.
    fn to_body(&self) -> Vec<u8> {
        let assigned = self.assigned.iter().flat_map(|assigned| assigned.to_le_bytes());
        self.answer.to_bytes().into_iter().chain(assigned).collect()
    }

    fn restore(plan: &Plan, owner: &Owner, state: &[u8]) -> Result<Master, StateError> {
        let (iteration, body) = decode(owner, plan.iterations(MASTER), state)?;
        let expected = 3 + plan.workers as usize;
        let Some(words) = words(body, expected) else {
            return Err(StateError::Length { expected: expected as u64 * 8, found: body.len() as u64 });
        };
        let answer = Answer::from_words([words[0], words[1], words[2]]);
        let assigned = words[3..].to_vec();
        check_count(&answer, iteration)?;
        let total = assigned.iter().try_fold(0u64, |total, count| total.checked_add(*count)).unwrap_or(u64::MAX);
        if total > plan.tasks || total < iteration {
            return Err(StateError::Invalid { what: "number of assigned tasks", found: total });
        }
        Ok(Master { answer, assigned })
    }
}

/// Receives a result from any worker, alternating between MPI's ways.
fn receive(comm: &mut dyn Communicator, n: u64) -> Result<(Status, Bytes), Error> {
    match n % 4 {
        0 => {}
        1 => {
            let found = comm.probe(ANY_SOURCE, Some(TAG_RESULT))?;
            return Ok(comm.recv(Some(found.source), Some(found.tag))?);
        }
        2 => {
            for _ in 0..POLLS_MAX {
                if let Some(found) = comm.iprobe(ANY_SOURCE, ANY_TAG)? {
                    return Ok(comm.recv(Some(found.source), Some(found.tag))?);
                }
            }
        }
        _ => {
            let request = comm.irecv(ANY_SOURCE, ANY_TAG)?;
            for _ in 0..POLLS_MAX {
                if comm.test(&request)? {
                    break;
                }
            }
            return Ok(comm.wait(request)?);
        }
    }
    Ok(comm.recv(ANY_SOURCE, Some(TAG_RESULT))?)
}

/// Decodes a worker's message.
fn result(status: &Status, payload: &[u8]) -> Result<u64, MessageError> {
    match <[u8; 8]>::try_from(payload) {
        Ok(bytes) if status.tag == TAG_RESULT && status.source != MASTER => Ok(u64::from_le_bytes(bytes)),
        _ => Err(MessageError {
            rank: MASTER,
            source_rank: status.source,
            tag: status.tag,
            len: status.len,
            expected: "a result of 8 bytes",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master_worker::Kind;

    const PLAN: Plan = Plan { kind: Kind::Hashes, workers: 3, tasks: 12, worker_tasks_min: 2 };

    #[test]
    fn a_fast_worker_leaves_the_others_their_guaranteed_tasks() {
        let mut master = Master { answer: Answer::default(), assigned: vec![0; 3] };
        while master.next_task(&PLAN, 1).is_some() {
            master.assigned[0] += 1;
        }
        assert_eq!(master.assigned, [8, 0, 0]);
        assert_eq!(master.next_task(&PLAN, 3), Some(8));
    }

    #[test]
    fn a_master_is_restored_as_it_was_saved_and_an_invalid_one_is_refused() {
        let owner = Owner { workload: 3, class: crate::Class::S, rank: 0, ranks: 4 };
        let answer = Answer { count: 5, sum: 1, xor: 2 };
        let state = |assigned: Vec<u64>| encode(&owner, 5, &Master { answer, assigned }.to_body());
        let master = Master::restore(&PLAN, &owner, &state(vec![4, 2, 1])).unwrap();
        assert_eq!((master.answer, master.assigned), (answer, vec![4, 2, 1]));
        for assigned in [vec![1, 1, 1], vec![13, 0, 0], vec![u64::MAX, 7, 0], vec![5, 0]] {
            assert!(Master::restore(&PLAN, &owner, &state(assigned)).is_err());
        }
    }
}
