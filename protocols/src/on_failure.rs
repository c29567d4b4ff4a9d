//! Checkpoint-on-Failure (Bland 2013): nothing is kept, recorded or saved until a rank is lost.
//!
//! Then all others save their state and exit, and the job is started again (Algorithm 1). The program rebuilds the lost
//! state from the others' states, so this suits only programs able to do it. No messages survive: the program's own
//! state says where it goes on, and channels begin anew.
//!
//! A run between two starts is a *generation*, which is also the incarnation of every rank. A rank learning of a loss,
//! from its connections, from a peer or from the coordinator, tells all others first, and only then saves: a notice by
//! its own exit would reach them a whole save later (section 3.2).
//!
//! A recovery is a transaction. Until every rank has reported its state as rebuilt to the coordinator, the generation's
//! initial states are the ones loaded again, and a rank without a rebuilt state exits without saving. One with a
//! rebuilt state goes on at once, and saves if the job fails: it can't know about all others. The first generation
//! begins with no states, and is no different: until all have made one, a failure begins it anew.
//!
//! In the second form (section 5) a rank's state is always in memory outliving its process, so nothing is saved. A rank
//! is lost only if it was killed while it changed its state, and a recovery begins with the states in memory.
//!
//! ```
//! use counterfoil_log_core::{Incarnation, Rank};
//! use counterfoil_protocols::api::{Effect, Party, Protocol};
//! use counterfoil_protocols::on_failure::{OnFailure, States};
//!
//! let mut rank = OnFailure::new(Rank(0), 2, Incarnation(0), States::Saved)?;
//! rank.handle_rebuilt()?;
//! assert!(matches!(rank.poll_effect(), Some(Effect::Transmit { to: Party::Coordinator, .. })));
//! rank.handle_peer_lost(Rank(1))?;
//! let effects: Vec<Effect> = std::iter::from_fn(|| rank.poll_effect()).collect();
//! assert!(matches!(effects[0], Effect::Transmit { to: Party::Rank(Rank(1)), .. }));
//! assert!(matches!(effects[1], Effect::Transmit { to: Party::Coordinator, .. }));
//! assert!(matches!(effects[2], Effect::SaveAndExit { saves: true }));
//! # Ok::<(), counterfoil_protocols::api::ProtocolError>(())
//! ```

mod coordinator;
mod message;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Kind, Origin, WireHeader};
use counterfoil_log_core::{Incarnation, Phase, Rank};

use crate::api::{
    Effect, Incoming, Misbehaviour, Party, Properties, Protocol, ProtocolError, Rule, RuleOptions, report_effect,
};
use crate::forward_protocol;
use crate::unlogged::Unlogged;
use message::{Message, NOTICE};

pub use coordinator::Coordinator;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "on-failure",
    paper: "Checkpoint-on-Failure",
    summary: "Keep nothing; when a rank is lost, all others save and exit, and the program rebuilds what was lost",
    properties: States::Saved.properties(),
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| {
        Ok(Box::new(OnFailure::new(rank, settings.ranks, incarnation, States::Saved)?))
    },
    make_coordinator: Some(&|_, settings| Box::new(Coordinator::new(settings.ranks, States::Saved))),
};

/// The [`RULES`](crate::RULES) row for the rule with states in shared memory.
pub const SHARED_MEMORY_RULE: Rule = Rule {
    name: "on-failure-shared-memory",
    summary: "The same, with states in memory that outlives a killed rank: all exit, and nothing is saved",
    properties: States::InMemory.properties(),
    make_rank: &|rank, incarnation, settings| {
        Ok(Box::new(OnFailure::new(rank, settings.ranks, incarnation, States::InMemory)?))
    },
    make_coordinator: Some(&|_, settings| Box::new(Coordinator::new(settings.ranks, States::InMemory))),
    ..RULE
};

/// Place of the rank states when one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum States {
    /// In the ranks: they save them.
    Saved,
    /// In memory outliving the processes (section 5).
    InMemory,
}

impl States {
    /// Returns the rule properties.
    pub const fn properties(self) -> Properties {
        Properties {
            has_coordinator: true,
            restarts_job: true,
            keeps_states_in_memory: matches!(self, States::InMemory),
            ..Unlogged::PROPERTIES
        }
    }
}

/// Rank activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The program rebuilds what was lost, or makes its first state.
    Rebuilding,
    /// The program runs.
    Running,
    /// Saving, then exiting.
    Exiting,
}

/// Rank state machine.
#[derive(Debug)]
pub struct OnFailure {
    core: Unlogged,
    rank: Rank,
    ranks: u32,
    states: States,
    state: State,
    effects: VecDeque<Effect>,
}

impl OnFailure {
    /// Creates a rank in a new generation.
    ///
    /// `generation`: number of job restarts.
    ///
    /// # Errors
    /// Rank outside the job.
    pub fn new(rank: Rank, ranks: u32, generation: Incarnation, states: States) -> Result<OnFailure, ProtocolError> {
        let core = Unlogged::of_incarnation(rank, ranks, generation)?;
        Ok(OnFailure { core, rank, ranks, states, state: State::Rebuilding, effects: VecDeque::new() })
    }

    fn generation(&self) -> u32 {
        self.core.incarnation().0
    }

    fn origin(&self) -> Origin {
        Origin { incarnation: self.core.incarnation(), epoch: self.core.epoch(), phase: Phase(0) }
    }

    fn report(&mut self, message: Message) {
        self.effects.push_back(report_effect(self.rank, self.origin(), message.encode()));
    }

    /// Tells all about a lost rank, and exits.
    fn fail(&mut self) {
        let saves = match self.state {
            State::Exiting => return,
            State::Running => self.states == States::Saved,
            State::Rebuilding => false,
        };
        self.state = State::Exiting;
        let failed = Message::Failed { generation: self.generation() };
        let body = failed.encode();
        for peer in (0..self.ranks).map(Rank).filter(|peer| *peer != self.rank) {
            let header = WireHeader::control(self.rank, peer, self.origin(), NOTICE, body.len() as u64, None);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body: body.clone() });
        }
        self.report(failed);
        self.effects.push_back(Effect::SaveAndExit { saves });
    }
}

impl Protocol for OnFailure {
    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, next_choice, handle_choice, handle_recovered_choice,
        wants_checkpoint, handle_checkpoint, handle_checkpoint_durable, restore, hello, handle_hello,
    );

    fn properties(&self) -> Properties {
        self.states.properties()
    }

    /// Holds what comes after a failure: the program's state is what is saved.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        if self.state == State::Exiting {
            return Ok(Incoming::Hold);
        }
        self.core.handle_message(header)
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        if let Party::Rank(peer) = from {
            if header.kind() != Kind::Control {
                return self.core.handle_control(from, header, body);
            }
            ProtocolError::check_arrival_from(peer, header, self.rank, self.ranks)?;
        }
        match Message::decode(body) {
            Some(Message::Failed { generation }) if generation == self.generation() => self.fail(),
            // From an earlier generation.
            Some(Message::Failed { .. }) => {}
            _ => {
                let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
                return Err(ProtocolError::PeerMisbehaved { peer: header.source(), how });
            }
        }
        Ok(())
    }

    fn handle_rebuilt(&mut self) -> Result<(), ProtocolError> {
        if self.state == State::Rebuilding {
            self.state = State::Running;
            self.report(Message::Rebuilt { generation: self.generation() });
        }
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.state != State::Exiting
    }

    fn is_recovering(&self) -> bool {
        self.state != State::Running
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.core.handle_peer_lost(peer)?;
        self.fail();
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}
