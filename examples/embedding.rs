//! A layer over sockets that survives the death of a receiver: log, acknowledge, crash, replay.
//!
//! Rank 0 sends numbers to rank 1, which adds them up. Rank 1 dies after 700 messages; its last checkpoint covers 600.
//! A replacement connects, reports the messages its checkpoint covers, and gets the rest from the log.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use counterfoil::{Ack, Epoch, Log, Options, Phase, Rank, Ssn};

const SENDER: Rank = Rank(0);
const RECEIVER: Rank = Rank(1);
const MESSAGES: u64 = 1_000;
/// Messages after which the receiver takes a checkpoint.
const CHECKPOINT_EVERY: u64 = 200;

// ANCHOR: state
/// Receiver state.
///
/// A checkpoint is a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State {
    received: u64,
    sum: u64,
}
// ANCHOR_END: state

// ANCHOR: receive
/// Receives until `last`, and sends the number covered by each checkpoint.
///
/// Returns the last checkpoint.
fn receive(mut peer: UnixStream, mut state: State, last: u64) -> io::Result<State> {
    let mut checkpoint = state;
    peer.write_all(&checkpoint.received.to_le_bytes())?; // what the peer need not send again
    while state.received < last {
        let mut number = [0; 8];
        peer.read_exact(&mut number)?;
        state = State { received: state.received + 1, sum: state.sum + u64::from_le_bytes(number) };
        if state.received.is_multiple_of(CHECKPOINT_EVERY) {
            checkpoint = state; // a real program makes it durable first
            peer.write_all(&checkpoint.received.to_le_bytes())?;
        }
    }
    Ok(checkpoint)
}
// ANCHOR_END: receive

// ANCHOR: layer
/// Sender's side of a connection.
struct Layer {
    log: Log,
    peer: UnixStream,
    /// Receiver epochs begun: one with each checkpoint.
    epoch: Epoch,
}

impl Layer {
    fn new(peer: UnixStream) -> Result<Layer, Box<dyn Error>> {
        Ok(Layer { log: Log::create(Options::new(SENDER, 2))?, peer, epoch: Epoch::FIRST })
    }

    /// Logs a message and transmits it.
    ///
    /// The log has it before the peer can: a lost peer loses nothing.
    fn send(&mut self, number: u64) -> Result<(), Box<dyn Error>> {
        let mut claim = self.log.claim(RECEIVER, 0, 8)?;
        claim.payload_mut().copy_from_slice(&number.to_le_bytes());
        claim.commit();
        // A dead peer takes nothing; its replacement will.
        let _ = self.peer.write_all(&number.to_le_bytes());
        Ok(())
    }

    /// Handles the number of messages covered by the peer's checkpoint, and frees their records.
    fn handle_checkpoint(&mut self) -> Result<Ssn, Box<dyn Error>> {
        let mut covered = [0; 8];
        self.peer.read_exact(&mut covered)?;
        let covered = Ssn(u64::from_le_bytes(covered));
        if covered > self.log.acked(RECEIVER) {
            self.log.acknowledge(RECEIVER, Ack { ssn: covered, epoch: self.epoch }, Phase::default())?;
            self.epoch = Epoch(self.epoch.0 + 1);
            self.log.receiver_covered(RECEIVER, self.epoch, covered)?;
            self.log.collect();
        }
        Ok(covered)
    }

    /// Connects to a replacement, and replays the messages its checkpoint doesn't cover.
    ///
    /// Returns the number of messages.
    fn reconnect(&mut self, peer: UnixStream) -> Result<u64, Box<dyn Error>> {
        self.peer = peer;
        let covered = self.handle_checkpoint()?;
        let mut cursor = self.log.cursor(RECEIVER, covered.next())?;
        let mut replayed = 0;
        while let Some(record) = cursor.read()? {
            self.peer.write_all(record.payload())?;
            replayed += 1;
        }
        Ok(replayed)
    }
}
// ANCHOR_END: layer

/// Starts a receiver; returns its peer's socket.
fn start(state: State, last: u64) -> io::Result<(UnixStream, JoinHandle<io::Result<State>>)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((ours, thread::spawn(move || receive(theirs, state, last))))
}

// ANCHOR: main
fn main() -> Result<(), Box<dyn Error>> {
    let (peer, receiver) = start(State::default(), 700)?;
    let mut layer = Layer::new(peer)?;
    (1..=800).try_for_each(|number| layer.send(number))?;
    let checkpoint = receiver.join().expect("a receiver that doesn't panic")?; // the rest of its state is lost
    (0..4).try_for_each(|_| layer.handle_checkpoint().map(drop))?; // 0, 200, 400, 600

    let (peer, receiver) = start(checkpoint, MESSAGES)?;
    let replayed = layer.reconnect(peer)?;
    (801..=MESSAGES).try_for_each(|number| layer.send(number))?;
    let end = receiver.join().expect("a receiver that doesn't panic")?;
    println!("replayed {replayed}, then the sum of {} numbers is {}", end.received, end.sum);
    assert_eq!((replayed, end), (200, State { received: MESSAGES, sum: MESSAGES * (MESSAGES + 1) / 2 }));
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_is_that_of_a_run_without_a_crash() {
        assert!(super::main().is_ok());
    }
}
