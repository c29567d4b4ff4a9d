//! Reference run without failures: the program alone, with unbounded queues and neither protocol nor network.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::{Epoch, Ssn};

use crate::application::{Application, NextOp, Payload, Taken};
use crate::call::{Calls, Contribution};
use crate::program::Program;

/// Messages sent when nothing fails.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// By sender and receiver, in order.
    channels: BTreeMap<(u32, u32), Vec<(i32, Payload)>>,
    /// By receiver, sender and tag: SSNs, in order.
    streams: BTreeMap<(u32, u32, i32), Vec<Ssn>>,
    /// Collective call results by rank and number.
    results: BTreeMap<(u32, u64), u64>,
}

impl Reference {
    /// Runs the program.
    pub(crate) fn new(program: &Program) -> Reference {
        let mut reference = Reference::default();
        let mut queues: BTreeMap<(u32, u32, i32), VecDeque<(Ssn, Payload)>> = BTreeMap::new();
        let ranks = 0..program.ranks();
        let mut calls = Calls::new(program.ranks());
        let mut applications: Vec<Application> = ranks.clone().map(|rank| Application::new(program, rank)).collect();
        loop {
            let mut moved = false;
            for rank in ranks.clone() {
                let application = &mut applications[rank as usize];
                loop {
                    let wanted = match application.next_op(program, rank) {
                        NextOp::Nothing => break,
                        NextOp::Checkpoint => None,
                        NextOp::Call(number) => {
                            let payload = Some(application.payload(rank));
                            calls.begin(number, rank, Contribution { payload, word: None, epoch: Epoch::FIRST });
                            let class = program.calls[number as usize];
                            let Some((result, _)) = calls.outcome(class, number, rank) else { break };
                            reference.results.insert((rank, number), result.content);
                            application.complete(program, rank, result, false);
                            moved = true;
                            continue;
                        }
                        NextOp::Send { to, tag } => {
                            let payload = application.payload(rank);
                            let ssn = reference.note(rank, to, tag, payload);
                            queues.entry((to, rank, tag)).or_default().push_back((ssn, payload));
                            None
                        }
                        NextOp::Receive { source, tag } => Some((source, tag)),
                        NextOp::Any(wanted) => {
                            let ready = |&&(source, tag): &&(u32, i32)| {
                                queues.get(&(rank, source, tag)).is_some_and(|queue| !queue.is_empty())
                            };
                            wanted.iter().find(ready).or(wanted.first()).copied()
                        }
                    };
                    let Some((source, tag)) = wanted else {
                        application.pass(program, rank);
                        moved = true;
                        continue;
                    };
                    let queue = queues.get_mut(&(rank, source, tag));
                    let Some((ssn, payload)) = queue.and_then(VecDeque::pop_front) else { break };
                    application.take(program, rank, Taken { source, tag, ssn, payload }, false);
                    moved = true;
                }
            }
            if !moved {
                return reference;
            }
        }
    }

    fn note(&mut self, from: u32, to: u32, tag: i32, payload: Payload) -> Ssn {
        let channel = self.channels.entry((from, to)).or_default();
        channel.push((tag, payload));
        let ssn = Ssn(channel.len() as u64);
        self.streams.entry((to, from, tag)).or_default().push(ssn);
        ssn
    }

    /// Returns a collective call's result at a rank.
    pub(crate) fn result(&self, rank: u32, number: u64) -> Option<u64> {
        self.results.get(&(rank, number)).copied()
    }

    /// Returns the number of messages on each used channel.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.channels.iter().map(|(&(from, to), sent)| (from, to, sent.len() as u64))
    }

    /// Returns a message's content.
    pub(crate) fn content(&self, from: u32, to: u32, ssn: Ssn) -> Option<u64> {
        let place = usize::try_from(ssn.0.checked_sub(1)?).ok()?;
        self.channels.get(&(from, to))?.get(place).map(|(_, payload)| payload.content)
    }

    /// Returns the SSN of the next message in a stream after `taken` takes.
    pub(crate) fn next_taken(&self, rank: u32, from: u32, tag: i32, taken: usize) -> Option<Ssn> {
        self.streams.get(&(rank, from, tag))?.get(taken).copied()
    }
}
