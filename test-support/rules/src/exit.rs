//! A checkpoint when something fails, and no other (after Checkpoint-on-Failure, Algorithm 1): each survivor of a death
//! saves its state, exits, and is loaded again. The replacement of the dead rank has no checkpoint; messages are those
//! of the plain rule, so that it catches up.
//!
//! An exit is a lost connection to the others. So that they don't exit for it in turn, ranks count how often they have
//! been loaded, and tell it in their Hellos: only the loss of a rank that has been loaded as often as this one is a
//! failure. Which ranks these were is saved with the tables: the program that is loaded has their data to rebuild
//! (lines 5 to 7).

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{Effect, Hello, Properties, Protocol, ProtocolError, RestoreError, Rule, Snapshot};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{self, Config, SenderBased};
use serde::{Deserialize, Serialize};

use crate::config;

/// The rule, for jobs and for the simulator.
pub const RULE: Rule = Rule {
    name: "checkpoint-on-failure",
    paper: "Checkpoint-on-Failure",
    summary: "Save the state of the survivors when a rank fails, exit, and load them again",
    make_rank: &|rank, incarnation, settings| Ok(Box::new(OnFailure::new(config(rank, settings.ranks, incarnation))?)),
    ..sender_based::RULE
};

/// What a checkpoint has of the rule.
#[derive(Debug, Serialize, Deserialize)]
struct Tables {
    loaded: u64,
    lost: Vec<u32>,
    core: Vec<u8>,
}

/// State machine of a rank.
#[derive(Debug)]
pub struct OnFailure {
    core: SenderBased,
    /// Number of times that the ranks were loaded after a failure, as far as this one knows; while it is about to exit,
    /// without that.
    loaded: u64,
    /// By peer, the same number, as far as its Hello is known.
    peers: Vec<Option<u64>>,
    /// Number with which it is loaded again, once it exits.
    exits: Option<u64>,
    /// Ranks for whose loss it exits, or was loaded.
    lost: Vec<u32>,
    effects: VecDeque<Effect>,
}

impl OnFailure {
    /// Creates a rank that has done nothing.
    ///
    /// # Errors
    /// Those of the plain rule.
    pub fn new(config: Config) -> Result<OnFailure, ProtocolError> {
        let peers = vec![None; config.ranks as usize];
        let (core, lost, effects) = (SenderBased::new(config)?, Vec::new(), VecDeque::new());
        Ok(OnFailure { core, loaded: 0, peers, exits: None, lost, effects })
    }

    /// Returns the ranks that were lost before this one was loaded; for one that is about to exit, those lost since.
    pub fn lost(&self) -> &[u32] {
        &self.lost
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
        let Snapshot { epoch, tables: core } = self.core.handle_checkpoint()?;
        let tables = Tables { loaded: self.exits.unwrap_or(self.loaded), lost: self.lost.clone(), core };
        Ok(Snapshot { epoch, tables: postcard::to_stdvec(&tables).unwrap_or_default() })
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let malformed = |_| RestoreError::Malformed { len: tables.len() };
        let Tables { loaded, lost, core } = postcard::from_bytes(tables).map_err(malformed)?;
        (self.loaded, self.lost) = (loaded, lost);
        self.core.restore(&core, oldest)
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.core.handle_peer_lost(peer)?;
        let is_failure = self.peers[peer.index()].take().is_some_and(|loaded| loaded >= self.loaded);
        if !is_failure {
            return Ok(());
        }
        if self.exits.is_none() {
            self.exits = Some(self.loaded + 1);
            self.lost.clear();
            self.effects.push_back(Effect::SaveAndExit);
        }
        self.lost.push(peer.0);
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

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Incarnation;

    use super::*;

    fn rank(rank: u32, incarnation: u32) -> OnFailure {
        OnFailure::new(config(Rank(rank), 4, Incarnation(incarnation))).unwrap()
    }

    /// Creates a rank of four that has met all others, which were loaded as often as it was, 0 times.
    fn met() -> OnFailure {
        let mut met = rank(0, 0);
        for peer in 1..4 {
            let other = rank(peer, 0);
            met.handle_hello(Rank(peer), &other.hello(Rank(0)).unwrap()).unwrap();
        }
        while met.poll_effect().is_some() {}
        met
    }

    #[test]
    fn a_rank_that_is_loaded_knows_which_ranks_were_lost() {
        let mut exits = met();
        for peer in [3, 1] {
            exits.handle_peer_lost(Rank(peer)).unwrap();
        }
        assert!(matches!(exits.poll_effect(), Some(Effect::SaveAndExit)) && exits.poll_effect().is_none());
        let Snapshot { epoch, tables } = exits.handle_checkpoint().unwrap();
        let mut loaded = rank(0, 1);
        loaded.restore(&tables, epoch).unwrap();
        assert_eq!((loaded.lost(), loaded.loaded), (&[3, 1][..], 1));
    }

    #[test]
    fn the_loss_of_a_rank_that_exits_is_no_failure() {
        let mut met = met();
        let loaded = OnFailure { loaded: 1, ..rank(1, 0) };
        met.handle_hello(Rank(1), &loaded.hello(Rank(0)).unwrap()).unwrap();
        // It was loaded after a failure that rank 2 has yet to exit for.
        met.handle_peer_lost(Rank(2)).unwrap();
        assert_eq!((met.lost(), met.exits), (&[][..], None));
    }
}
