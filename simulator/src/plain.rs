//! The plain rule of sender-based logging in the simulator.

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::Rank;
use counterfoil_protocols::sender_based::{Config, SenderBased};

use super::local::{Local, LocalRule};
use super::protocol::{ProcessSettings, Refusal, Repetition};

/// One rank under [`SenderBased`].
pub type Plain = Local<SenderBased>;

impl LocalRule for SenderBased {
    const REPETITION: Repetition = Repetition::Sends;
    const CHOOSES: bool = true;

    fn start(rank: Rank, settings: &ProcessSettings, policy: AckPolicy) -> Result<SenderBased, Refusal> {
        let ProcessSettings { ranks, incarnation, .. } = *settings;
        Ok(SenderBased::new(Config { rank, ranks, incarnation, policy })?)
    }
}
