//! A checkpoint when something fails, and no other (after Checkpoint-on-Failure, Algorithm 1): each survivor of a death saves its state,
//! exits, and is loaded again. The replacement of the dead rank has no checkpoint; messages are those of the plain rule, so that it catches
//! up.
//!
//! An exit is a lost connection to the others. So that they don't exit for it in turn, ranks count how often they have been loaded, and tell
//! it in their Hellos: only the loss of a rank that has been loaded as often as this one is a failure.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{Effect, Hello, Properties, Protocol, ProtocolError, RestoreError, Snapshot};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{Config, SenderBased};
use counterfoil_simulator::{NoCoordinator, ProcessSettings, Refusal, SimRule};

use crate::config;

/// State machine of a rank.
#[derive(Debug)]
pub struct OnFailure {
    core: SenderBased,
    /// Number of times that the ranks were loaded after a failure, as far as this one knows; while it is about to exit, without that.
    loaded: u64,
    /// By peer, the same number, as far as its Hello is known.
    peers: Vec<Option<u64>>,
    /// Number with which it is loaded again, once it exits.
    exits: Option<u64>,
    effects: VecDeque<Effect>,
}

impl OnFailure {
    /// Creates a rank that has done nothing.
    ///
    /// # Errors
    /// Those of the plain rule.
    pub fn new(config: Config) -> Result<OnFailure, ProtocolError> {
        let peers = vec![None; config.ranks as usize];
        Ok(OnFailure { core: SenderBased::new(config)?, loaded: 0, peers, exits: None, effects: VecDeque::new() })
    }
}

impl Protocol for OnFailure {
    forward_protocol!(core:
        epoch, incarnation, handle_send, handle_transmit, handle_message, handle_control, next_choice, handle_choice,
        handle_recovered_choice, handle_checkpoint_durable,
    );

    fn properties(&self) -> Properties {
        SenderBased::PROPERTIES
    }

    fn wants_checkpoint(&mut self) -> bool {
        false
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let Snapshot { epoch, tables } = self.core.handle_checkpoint()?;
        let loaded = self.exits.unwrap_or(self.loaded);
        Ok(Snapshot { epoch, tables: [&loaded.to_le_bytes()[..], &tables].concat() })
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let (loaded, core) = tables.split_first_chunk().ok_or(RestoreError::Malformed { len: tables.len() })?;
        self.loaded = u64::from_le_bytes(*loaded);
        self.core.restore(core, oldest)
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.core.handle_peer_lost(peer)?;
        let is_failure = self.peers[peer.index()].take().is_some_and(|loaded| loaded >= self.loaded);
        if is_failure && self.exits.is_none() {
            self.exits = Some(self.loaded + 1);
            self.effects.push_back(Effect::SaveAndExit);
        }
        Ok(())
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        Ok(Hello { opaque: self.loaded.to_le_bytes().to_vec(), ..self.core.hello(peer)? })
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.core.handle_hello(peer, hello)?;
        let loaded = hello.opaque.as_slice().try_into().map_or(0, u64::from_le_bytes);
        self.peers[peer.index()] = Some(loaded);
        if self.exits.is_none() {
            self.loaded = self.loaded.max(loaded);
        }
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect().or_else(|| self.effects.pop_front())
    }
}

/// The rule under the simulator.
#[derive(Debug)]
pub struct SimOnFailure;

impl SimRule for SimOnFailure {
    type Rank = OnFailure;
    type Coordinator = NoCoordinator;
    type Planted = Self;

    const PROPERTIES: Properties = SenderBased::PROPERTIES;

    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<OnFailure, Refusal> {
        Ok(OnFailure::new(config(rank, settings.ranks, settings.incarnation))?)
    }
}
