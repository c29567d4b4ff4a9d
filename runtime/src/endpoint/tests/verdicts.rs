//! Verdicts on sends that the rules here don't give: held, and not kept.

use std::collections::VecDeque;

use counterfoil::{Envelope, Rank};
use counterfoil_protocols::api::{
    Coordinator, Effect, Incoming, Kept, Outgoing, Properties, Protocol, ProtocolError, Transmission,
};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{self, SenderBased};

use super::*;
use crate::rule::MakeRule;

/// Tag of messages that are held.
const HELD: i32 = 7;
/// Tag of a message that releases them.
const RELEASE: i32 = 8;

/// The plain rule with another verdict on sends.
#[derive(Debug)]
struct OtherVerdict {
    core: SenderBased,
    what: What,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Messages with the tag [`HELD`] are held until one with the tag [`RELEASE`] is sent.
    Hold,
    /// No record is kept, and acknowledgements have no effect.
    KeepNothing,
}

impl MakeRule for What {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let (rank, incarnation) = (Rank(rank), counterfoil::Incarnation(incarnation));
        let policy = counterfoil_ack_piggyback::AckPolicy::default();
        let core = SenderBased::new(sender_based::Config { rank, ranks, incarnation, policy })?;
        Ok(Box::new(OtherVerdict { core, what: *self, effects: VecDeque::new() }))
    }

    fn coordinator(&self, _: u32) -> Option<Box<dyn Coordinator>> {
        None
    }
}

impl Protocol for OtherVerdict {
    forward_protocol!(core:
        epoch, incarnation, handle_transmit, handle_control, next_choice, handle_choice, handle_recovered_choice,
        wants_checkpoint, handle_checkpoint, handle_checkpoint_durable, restore, handle_peer_lost, hello, handle_hello,
    );

    fn properties(&self) -> Properties {
        match self.what {
            What::Hold => SenderBased::PROPERTIES,
            What::KeepNothing => Properties { keeps: Kept::Nothing, ..SenderBased::PROPERTIES },
        }
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let outgoing = self.core.handle_send(envelope)?;
        Ok(match (self.what, envelope.tag) {
            (What::Hold, HELD) => Outgoing { transmission: Transmission::Hold, ..outgoing },
            (What::Hold, RELEASE) => {
                self.effects.push_back(Effect::Resume);
                outgoing
            }
            (What::Hold, _) => outgoing,
            (What::KeepNothing, _) => Outgoing { keep_record: false, ..outgoing },
        })
    }

    fn handle_message(&mut self, header: &counterfoil_ack_piggyback::WireHeader) -> Result<Incoming, ProtocolError> {
        self.core.handle_message(header)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            match self.core.poll_effect() {
                Some(Effect::Acknowledged { .. }) if self.what == What::KeepNothing => {}
                None => return self.effects.pop_front(),
                Some(effect) => return Some(effect),
            }
        }
    }
}

/// Rank 1 has the message of rank 2, which was sent after a held one of rank 0, and finds nothing of rank 0.
#[test]
fn a_send_that_is_held_waits_for_the_rule() {
    let job = ThreadJob::under(Box::new(What::Hold), settings(LogTier::Volatile));
    let ran = job.run(|comm, _| {
        match comm.rank() {
            0 => {
                comm.send(1, HELD, b"held")?;
                comm.send(1, 1, b"behind it")?;
                comm.send(2, 1, b"")?;
                comm.recv(Some(1), Some(1))?;
                comm.send(1, RELEASE, b"")?;
            }
            1 => {
                comm.recv(Some(2), Some(1))?;
                assert_eq!(comm.iprobe(Some(0), ANY_TAG)?, None);
                comm.send(0, 1, b"")?;
                let received: Vec<_> = (0..3).map(|_| comm.recv(Some(0), ANY_TAG)).collect::<Result<_, _>>()?;
                let tags: Vec<i32> = received.iter().map(|(status, _)| status.tag).collect();
                assert_eq!((tags, &received[0].1[..]), (vec![HELD, 1, RELEASE], &b"held"[..]));
            }
            _ => {
                comm.recv(Some(0), Some(1))?;
                comm.send(1, 1, b"")?;
            }
        }
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
}

/// No acknowledgement has an effect, so only a record that is released when it was transmitted makes room.
#[test]
fn a_rule_that_keeps_nothing_sends_more_than_the_log_holds() {
    let settings = RankSettings { log_bytes_max: 1 << 20, on_full: LogOnFull::Fail, ..settings(LogTier::Volatile) };
    let send_all = |rule: Box<dyn MakeRule>| {
        ThreadJob::under(rule, settings.clone()).run(|comm, _| {
            for round in 0..1_000_u32 {
                match comm.rank() {
                    0 => {
                        comm.send(1, 1, &[round as u8; 4096])?;
                        comm.recv(Some(1), Some(2))?;
                    }
                    1 => {
                        let (_, bytes) = comm.recv(Some(0), Some(1))?;
                        assert_eq!((bytes[0], bytes.len()), (round as u8, 4096));
                        comm.send(0, 2, b"")?;
                    }
                    _ => {}
                }
            }
            Ok(End::Result(Vec::new()))
        })
    };
    assert!(matches!(send_all(Box::new(Rule::SenderBased)), Err(Error::Append { to: 1, .. })));
    send_all(Box::new(What::KeepNothing)).unwrap();
}
