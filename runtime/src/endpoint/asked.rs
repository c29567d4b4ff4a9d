//! Checkpoints requested by the rule while the program waits.
//!
//! The program's [`StateProvider`] returns a state with which a replacement makes the current call again, and reposts
//! the receives open now. Their requests and outcomes keep their numbers if nothing later is complete; otherwise the
//! checkpoint waits.

use counterfoil_protocols::api::{Protocol, ProtocolError};

use super::Endpoint;
use crate::Error;
use crate::communicator::StateProvider;
use crate::transport::Transport;

/// Checkpoint requested by the rule, and the source of the program's state.
#[derive(Default)]
pub(super) struct AskedCheckpoint {
    pub(super) is_asked: bool,
    provider: Option<StateProvider>,
}

impl std::fmt::Debug for AskedCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AskedCheckpoint").field("is_asked", &self.is_asked).finish_non_exhaustive()
    }
}

impl AskedCheckpoint {
    pub(super) fn set_provider(&mut self, provider: StateProvider) {
        self.provider = Some(provider);
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Takes the checkpoint requested by the rule, if that is possible now and the program can give its state.
    pub(super) fn take_asked_checkpoint(&mut self) -> Result<(), Error> {
        if !self.asked.is_asked || !self.protocol.is_running() || !self.may_save() {
            return Ok(());
        }
        let Some(mut provider) = self.asked.provider.take() else { return Ok(()) };
        let state = provider();
        self.asked.provider = Some(provider);
        self.save_asked(&state).map(drop)
    }

    /// Takes it with this state.
    ///
    /// Returns `false` if an open outcome has to be decided before.
    pub(super) fn save_asked(&mut self, state: &[u8]) -> Result<bool, Error> {
        // The rule may ask for another one meanwhile.
        self.asked.is_asked = false;
        match self.save(state) {
            // It is decided soon.
            Err(Error::Protocol(ProtocolError::ChoicesOpen { .. })) => {
                self.asked.is_asked = true;
                return Ok(false);
            }
            saved => saved?,
        };
        self.tally.checkpoints_asked += 1;
        Ok(true)
    }

    /// Takes the checkpoint requested by the rule in a call that it holds, or reports that none can be taken.
    ///
    /// Then the program can't give its state, or a restored one could not continue from here, and nothing changes that
    /// until it returns from the call.
    pub(super) fn take_or_refuse_asked_checkpoint(&mut self) -> Result<(), Error> {
        self.take_asked_checkpoint()?;
        if self.asked.is_asked && self.protocol.is_running() {
            self.protocol.handle_checkpoint_refused()?;
            self.carry_out_effects()?;
        }
        Ok(())
    }

    /// Returns `true` if a restored program could continue from here.
    ///
    /// It is in no collective whose data has left, has no open request but receives without a message, posted last, and
    /// has repeated everything recorded.
    fn may_save(&self) -> bool {
        self.native.is_idle() && self.requests.are_receives_that_were_posted_last() && self.polls.are_repeated()
    }
}
