//! The plain rule of sender-based logging in the simulator.

use counterfoil::Rank;
use counterfoil::ack::AckPolicy;
use counterfoil_protocols::sender_based::{Config, SenderBased};

use super::local::{Local, LocalRule};
use super::protocol::{Refusal, Repetition, Seat};

/// One rank under [`SenderBased`].
pub type Plain = Local<SenderBased>;

impl LocalRule for SenderBased {
    const REPETITION: Repetition = Repetition::Sends;
    const CHOOSES: bool = true;

    fn start(rank: Rank, seat: &Seat, policy: AckPolicy) -> Result<SenderBased, Refusal> {
        let Seat { ranks, incarnation, .. } = *seat;
        Ok(SenderBased::new(Config { rank, ranks, incarnation, policy })?)
    }
}
