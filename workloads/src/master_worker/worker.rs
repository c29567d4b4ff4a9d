//! A worker: computes the master's tasks until it is stopped.

use bytes::Bytes;
use counterfoil_runtime::communicator::{ANY_TAG, Communicator, Status};

use super::task::{Answer, compute, decode_task, words};
use super::{MASTER, POLLS_MAX, Plan, TAG_RESULT, TAG_STOP, TAG_TASK, check_count};
use crate::state::{Owner, decode, encode};
use crate::{Error, MessageError, StateError, checkpoint_due};

/// Runs until the master sends a stop message; returns this worker's combined results.
pub(super) fn run(
    comm: &mut dyn Communicator,
    plan: &Plan,
    owner: &Owner,
    checkpoint_every: Option<u64>,
) -> Result<Answer, Error> {
    let mut done = match comm.restore()? {
        Some(state) => restore(plan, owner, &state)?,
        None => Answer::default(),
    };
    loop {
        let n = done.count + 1;
        let (status, payload) = receive(comm, n)?;
        if status.tag == TAG_STOP {
            return Ok(done);
        }
        // A stop message would not have been an iteration.
        comm.iteration(n)?;
        let task = decode_task(&payload).filter(|_| status.tag == TAG_TASK);
        let (task, input) = task.ok_or(MessageError {
            rank: owner.rank,
            source_rank: status.source,
            tag: status.tag,
            len: status.len,
            expected: "a task or a stop message",
        })?;
        let result = compute(plan.kind, task, input);
        done.add(result);
        comm.send(MASTER, TAG_RESULT, &result.to_le_bytes())?;
        if checkpoint_due(comm, n, checkpoint_every) {
            comm.checkpoint(&encode(owner, n, &done.to_bytes()))?;
        }
    }
}

fn restore(plan: &Plan, owner: &Owner, state: &[u8]) -> Result<Answer, StateError> {
    let (iteration, body) = decode(owner, plan.iterations(owner.rank), state)?;
    let Some(words) = words(body, 3) else {
        return Err(StateError::Length { expected: 24, found: body.len() as u64 });
    };
    let done = Answer::from_words([words[0], words[1], words[2]]);
    check_count(&done, iteration)?;
    Ok(done)
}

/// Receives the master's next message, alternately after a probe and by a tested request.
fn receive(comm: &mut dyn Communicator, n: u64) -> Result<(Status, Bytes), Error> {
    if n.is_multiple_of(2) {
        let found = comm.probe(Some(MASTER), ANY_TAG)?;
        return Ok(comm.recv(Some(MASTER), Some(found.tag))?);
    }
    let request = comm.irecv(Some(MASTER), ANY_TAG)?;
    for _ in 0..POLLS_MAX {
        if comm.test(&request)? {
            break;
        }
    }
    Ok(comm.wait(request)?)
}
