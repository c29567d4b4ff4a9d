//! Agreement on lines: which is committed, and to which all ranks go back.
//!
//! The paper has no such process: a rank replaces its last checkpoint once its own part of a line is finished (section 4.3.1), and a failure
//! between two such moments leaves the job without a common line.

use std::collections::{BTreeSet, VecDeque};

use counterfoil_log_core::{Epoch, Rank};

use super::message::{Order, Report, decode, encode};
use crate::api::{Coordinator, CoordinatorError};

/// Coordinator of the lines.
#[derive(Debug)]
pub struct LineCoordinator {
    /// Number of the attempt to run the job from a line.
    attempt: u32,
    state: State,
    committed: Epoch,
    /// By rank.
    members: Vec<Member>,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Ranks stop, and report what they know.
    Stopping,
    /// Ranks go back to this line.
    RollingBack(Epoch),
    Running,
}

/// What is known of a rank in this attempt.
#[derive(Clone, Debug, Default)]
struct Member {
    incarnation: u32,
    committed: Option<u32>,
    is_ready: bool,
    /// Lines after the committed one that it has finished.
    finished: BTreeSet<u32>,
}

impl LineCoordinator {
    /// Creates a coordinator, which begins an attempt from the committed line. `replaced`: number of earlier coordinators.
    pub fn new(ranks: u32, replaced: u32) -> LineCoordinator {
        let mut fresh = LineCoordinator {
            attempt: replaced << 16,
            state: State::Stopping,
            committed: Epoch::FIRST,
            members: vec![Member::default(); ranks as usize],
            messages: VecDeque::new(),
        };
        fresh.begin_attempt();
        fresh
    }

    fn begin_attempt(&mut self) {
        self.attempt += 1;
        self.state = State::Stopping;
        for member in &mut self.members {
            *member = Member { incarnation: member.incarnation, ..Member::default() };
        }
        self.broadcast(Order::Stop { attempt: self.attempt });
    }

    fn send(&mut self, to: Rank, order: Order) {
        self.messages.push_back((to, encode(&order)));
    }

    fn broadcast(&mut self, order: Order) {
        (0..self.members.len() as u32).for_each(|rank| self.send(Rank(rank), order));
    }

    fn handle_restored(&mut self, from: Rank, incarnation: u32) {
        let member = &mut self.members[from.index()];
        if incarnation < member.incarnation {
            return;
        }
        *member = Member { incarnation, ..Member::default() };
        match self.state {
            State::Running => self.begin_attempt(),
            // Nothing was sent in this attempt yet.
            State::Stopping | State::RollingBack(_) => self.send(from, Order::Stop { attempt: self.attempt }),
        }
    }

    fn handle_stopped(&mut self, from: Rank, committed: u32) {
        self.members[from.index()].committed = Some(committed);
        match self.state {
            State::Stopping => {
                let known: Option<Vec<u32>> = self.members.iter().map(|member| member.committed).collect();
                // Who knows of a commit knows that all ranks have finished the line, and they keep it.
                if let Some(line) = known.and_then(|known| known.into_iter().max()) {
                    self.committed = Epoch(line);
                    self.state = State::RollingBack(self.committed);
                    self.broadcast(Order::RollBack { attempt: self.attempt, line });
                }
            }
            State::RollingBack(line) => self.send(from, Order::RollBack { attempt: self.attempt, line: line.0 }),
            State::Running => {}
        }
    }

    fn handle_ready(&mut self, from: Rank) {
        self.members[from.index()].is_ready = true;
        if self.state != State::Running && self.members.iter().all(|member| member.is_ready) {
            self.state = State::Running;
            self.broadcast(Order::Run { attempt: self.attempt });
        }
    }

    fn handle_finished(&mut self, from: Rank, line: u32) {
        if self.state != State::Running || line <= self.committed.0 {
            return;
        }
        self.members[from.index()].finished.insert(line);
        if self.members.iter().all(|member| member.finished.contains(&line)) {
            self.committed = Epoch(line);
            self.members.iter_mut().for_each(|member| member.finished.retain(|finished| *finished > line));
            self.broadcast(Order::Commit { attempt: self.attempt, line });
        }
    }
}

impl Coordinator for LineCoordinator {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        let ranks = self.members.len() as u32;
        let member = self.members.get_mut(from.index()).ok_or(CoordinatorError::UnknownRank { rank: from, ranks })?;
        match decode(body).ok_or(CoordinatorError::Malformed { from, len: body.len() })? {
            Report::Restored { incarnation } => self.handle_restored(from, incarnation),
            Report::Finished { attempt, line } if attempt == self.attempt => self.handle_finished(from, line),
            Report::Stopped { attempt, incarnation, .. } | Report::Ready { attempt, incarnation }
                if attempt != self.attempt || incarnation < member.incarnation => {}
            Report::Stopped { incarnation, committed, .. } => {
                member.incarnation = incarnation;
                self.handle_stopped(from, committed);
            }
            Report::Ready { .. } => self.handle_ready(from),
            Report::Finished { .. } => {}
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    fn is_recovering(&self) -> bool {
        self.state != State::Running
    }
}
