//! Smallest program able to rebuild a lost rank's state as a checksummed factorization does.
//!
//! Each rank but the last has a number, and the last has their sum. In iteration j the owner, rank j mod (n - 1), sends
//! its number v to all, and every rank replaces its number x by 3 x + c v; the last by 3 x + (n - 1) c v, so it stays
//! the sum. Numbers wrap, so each step can be undone exactly. Ranks are in different iterations when one is lost:
//! survivors go back to the earliest, and the lost number is the sum less the others.
//!
//! A real program repeating an iteration may round otherwise. So each iteration has the generation in which its owner
//! executed it, and at the end all ranks must agree on the generations.

use std::collections::VecDeque;

/// Message content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Iterations done by the sender; `None` if its state is lost.
    Done(Option<usize>),
    /// The sender's number, and the owners' numbers so far.
    State(u64, Vec<Sent>),
    /// The sender has gone back.
    Back,
    /// The owner's number.
    Number(Sent),
}

/// An owner's sent number, and the generation of the send.
pub(super) type Sent = (u64, u32);

/// A rank's saved state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) number: u64,
    /// The owners' numbers in all completed iterations.
    pub(super) sent: Vec<Sent>,
}

/// A rank's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    SendDone(u32),
    ReceiveDone(u32),
    GoBack,
    SendBack(u32),
    ReceiveBack(u32),
    SendState(u32),
    ReceiveState(u32),
    /// Reports that the state is rebuilt.
    Rebuilt,
    SendNumber(u32),
    ReceiveNumber(u32),
    Apply,
}

/// One rank's program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    rank: u32,
    ranks: u32,
    iterations: usize,
    /// `None` until rebuilt.
    state: Option<State>,
    actions: VecDeque<Action>,
    /// Fewest iterations done by a survivor.
    least: usize,
    /// States received by a lost rank.
    gathered: Vec<(u32, u64)>,
    /// The owner's number in this iteration.
    received: Sent,
    generation: u32,
}

const FACTOR: u64 = 3;
/// Inverse of the factor, modulo 2^64.
const INVERSE: u64 = 0xaaaa_aaaa_aaaa_aaab;

/// Returns a rank's initial number.
fn first(rank: u32, ranks: u32) -> u64 {
    let number = |rank: u32| u64::from(rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if rank + 1 < ranks { number(rank) } else { (0..rank).map(number).fold(0, u64::wrapping_add) }
}

/// Returns the summand an owner's number contributes to a rank's.
fn summand(rank: u32, ranks: u32, iteration: usize, number: u64) -> u64 {
    let times = if rank + 1 < ranks { 1 } else { u64::from(ranks - 1) };
    (2 * iteration as u64 + 1).wrapping_mul(number).wrapping_mul(times)
}

/// Returns all ranks' final numbers.
pub(super) fn results(ranks: u32, iterations: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..ranks).map(|rank| first(rank, ranks)).collect();
    for iteration in 0..iterations {
        let sent = numbers[iteration % (ranks as usize - 1)];
        for (rank, number) in (0..).zip(&mut numbers) {
            *number = number.wrapping_mul(FACTOR).wrapping_add(summand(rank, ranks, iteration, sent));
        }
    }
    numbers
}

impl Program {
    /// Begins anew.
    pub(super) fn new(rank: u32, ranks: u32, iterations: usize) -> Program {
        let state = Some(State { number: first(rank, ranks), sent: Vec::new() });
        let (actions, gathered) = (VecDeque::from([Action::Rebuilt]), Vec::new());
        Program {
            rank,
            ranks,
            iterations,
            state,
            actions,
            least: usize::MAX,
            gathered,
            received: (0, 0),
            generation: 0,
        }
    }

    /// Begins a generation with saved states, except those of `lost`.
    ///
    /// Returns `None` if too many are lost. `in_place`: it goes back in the states themselves, and no rank goes on
    /// before all have.
    pub(super) fn restart(
        (rank, ranks): (u32, u32),
        iterations: usize,
        (generation, in_place): (u32, bool),
        saved: Option<State>,
        lost: &[u32],
    ) -> Option<Program> {
        if lost.len() > 1 {
            return None;
        }
        let fresh = Program::new(rank, ranks, iterations);
        let mut program = Program { state: saved, actions: VecDeque::new(), generation, ..fresh };
        let others = || (0..ranks).filter(|other| *other != rank);
        program.actions.extend(others().map(Action::SendDone));
        program.actions.extend(others().map(Action::ReceiveDone));
        program.actions.push_back(Action::GoBack);
        if in_place {
            program.actions.extend(others().map(Action::SendBack));
            program.actions.extend(others().map(Action::ReceiveBack));
        }
        for lost in lost {
            match *lost == rank {
                true => program.actions.extend(others().map(Action::ReceiveState)),
                false => program.actions.push_back(Action::SendState(*lost)),
            }
        }
        program.actions.push_back(Action::Rebuilt);
        Some(program)
    }

    fn done(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.sent.len())
    }

    /// Returns the state.
    pub(super) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Returns the next action; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Action> {
        if self.actions.is_empty() && self.done() < self.iterations {
            let owner = (self.done() % (self.ranks as usize - 1)) as u32;
            if owner == self.rank {
                let others = (0..self.ranks).filter(|other| *other != self.rank);
                self.actions.extend(others.map(Action::SendNumber));
                self.received = (self.state.as_ref().map_or(0, |state| state.number), self.generation);
            } else {
                self.actions.push_back(Action::ReceiveNumber(owner));
            }
            self.actions.push_back(Action::Apply);
        }
        self.actions.front().copied()
    }

    /// Returns the content sent by the current action.
    pub(super) fn content(&self) -> Content {
        match (self.actions.front(), &self.state) {
            (Some(Action::SendDone(_)), state) => Content::Done(state.as_ref().map(|state| state.sent.len())),
            (Some(Action::SendBack(_)), _) => Content::Back,
            (Some(Action::SendState(_)), Some(state)) => Content::State(state.number, state.sent.clone()),
            _ => Content::Number(self.received),
        }
    }

    /// Ends the current action, which may have received something.
    ///
    /// Returns `false` if it was unexpected.
    pub(super) fn advance(&mut self, received: Option<Content>) -> bool {
        let (rank, ranks) = (self.rank, self.ranks);
        match (self.actions.pop_front(), received) {
            (Some(Action::ReceiveDone(_)), Some(Content::Done(done))) => {
                self.least = done.map_or(self.least, |done| done.min(self.least));
            }
            (Some(Action::ReceiveState(from)), Some(Content::State(number, sent))) => {
                self.gathered.push((from, number));
                if self.gathered.len() + 1 == ranks as usize {
                    let sum = |of: &[(u32, u64)]| of.iter().fold(0_u64, |sum, (_, number)| sum.wrapping_add(*number));
                    let (last, others): (Vec<_>, Vec<_>) =
                        self.gathered.iter().partition(|(from, _)| from + 1 == ranks);
                    let number = if rank + 1 == ranks { sum(&others) } else { sum(&last).wrapping_sub(sum(&others)) };
                    self.state = Some(State { number, sent });
                }
            }
            (Some(Action::ReceiveNumber(_)), Some(Content::Number(number))) => self.received = number,
            (Some(Action::GoBack), None) => {
                let least = self.least.min(if self.state.is_some() { self.done() } else { usize::MAX });
                if let Some(state) = &mut self.state {
                    while state.sent.len() > least
                        && let Some((sent, _)) = state.sent.pop()
                    {
                        let added = summand(rank, ranks, state.sent.len(), sent);
                        state.number = state.number.wrapping_sub(added).wrapping_mul(INVERSE);
                    }
                }
            }
            (Some(Action::Apply), None) => {
                if let Some(state) = &mut self.state {
                    let added = summand(rank, ranks, state.sent.len(), self.received.0);
                    state.number = state.number.wrapping_mul(FACTOR).wrapping_add(added);
                    state.sent.push(self.received);
                }
            }
            (Some(Action::ReceiveBack(_)), Some(Content::Back)) => {}
            (
                Some(
                    Action::SendDone(_)
                    | Action::SendBack(_)
                    | Action::SendState(_)
                    | Action::SendNumber(_)
                    | Action::Rebuilt,
                ),
                None,
            ) => {}
            _ => return false,
        }
        true
    }
}
