//! Connections between nodes: Hellos, losses, and messages waiting for the other end.

use std::collections::VecDeque;

use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Hello, ProtocolError};

use super::World;
use crate::network::Frame;
use crate::process::Process;
use crate::random::{Random, mix};
use crate::rule::Refusal;
use crate::trace::Event;
use crate::violation::ViolationKind;

/// Result of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloOutcome {
    Accepted,
    /// Sent by a dead process: close the connection.
    Dead,
}

impl World<'_> {
    /// Returns `true` if the Hello of a peer's current process was handled.
    pub(super) fn has_met(&self, process: &Process, peer: u32) -> bool {
        process.cursors[peer as usize].is_some_and(|cursor| Some(cursor.incarnation) == self.incarnation(peer))
    }

    /// Returns `true` if messages to `node` wait until it is connected.
    pub(super) fn is_waiting_for(&self, node: u32, process: &Process) -> bool {
        process.waiting.get(node as usize).is_some_and(Option::is_some)
    }

    /// Sends the messages queued for a node, which is connected now.
    fn send_waiting(&mut self, node: u32, process: &mut Process, to: u32) {
        for body in process.waiting[to as usize].take().into_iter().flatten() {
            if self.is_struck(node) {
                return;
            }
            self.network.send(node, to, Frame::Control(body));
        }
    }

    /// Handles a connection's first frame.
    pub(super) fn handle_hello(
        &mut self,
        node: u32,
        process: &mut Process,
        from: u32,
        bytes: &[u8],
    ) -> Result<HelloOutcome, ViolationKind> {
        if node.max(from) >= self.program.ranks() {
            let incarnation = u32::from_le_bytes(self.accept(node, bytes.try_into().map_err(Refusal::from))?);
            let met = &mut process.met[from as usize];
            if incarnation < *met {
                return Ok(HelloOutcome::Dead);
            }
            *met = incarnation;
            self.send_waiting(node, process, from);
            return Ok(HelloOutcome::Accepted);
        }
        let hello = self.accept(node, Hello::decode(bytes).map_err(Refusal::from))?;
        let handled = self.ask(node, process, |rank| match rank.handle_hello(Rank(from), &hello) {
            Err(ProtocolError::DeadHello { .. }) => Ok(HelloOutcome::Dead),
            other => other.map(|()| HelloOutcome::Accepted),
        });
        if handled == Ok(HelloOutcome::Accepted) {
            let (incarnation, upto) = (hello.incarnation, hello.received.upto());
            self.note_heard(Event::HelloHeard { rank: node, peer: from, incarnation, upto })?;
        }
        handled
    }

    /// Reports a peer's death, or the loss of the connection to it.
    pub(super) fn handle_lost(&self, node: u32, process: &mut Process, peer: u32) -> Result<(), ViolationKind> {
        if node.max(peer) >= self.program.ranks() {
            // Its replacement asks for what it needs.
            process.waiting[peer as usize] = Some(Vec::new());
            return Ok(());
        }
        self.ask(node, process, |rank| rank.handle_peer_lost(Rank(peer)))
    }

    /// Sends a message between a rank and the coordinator, or keeps it until the other is connected.
    pub(super) fn send_or_queue(&mut self, node: u32, process: &mut Process, to: u32, body: Vec<u8>) {
        match &mut process.waiting[to as usize] {
            Some(waiting) => waiting.push(body),
            None => self.network.send(node, to, Frame::Control(body)),
        }
    }

    /// Reconnects a rolled back rank with all other ranks.
    ///
    /// Frames to it are lost; some of its earlier sent frames arrive.
    pub(super) fn reconnect(
        &mut self,
        rank: u32,
        process: &mut Process,
        before: Incarnation,
    ) -> Result<(), ViolationKind> {
        let mut random = Random::new(mix(self.event) ^ u64::from(rank));
        process.held.iter_mut().for_each(VecDeque::clear);
        for peer in (0..self.program.ranks()).filter(|&peer| peer != rank) {
            if !self.lives(peer) {
                self.network.close_older(peer, rank);
                continue;
            }
            self.network.cut(rank, peer, before, &mut random);
            let hello = self.hello(rank, process, peer)?;
            self.network.connect(rank, peer, hello);
        }
        for peer in (0..self.program.ranks()).filter(|&peer| peer != rank) {
            let Some(mut other) = self.nodes[peer as usize].process.take() else { continue };
            other.cursors[rank as usize] = None;
            if !self.schedule.late {
                other.held[rank as usize].clear();
                self.network.close_older(rank, peer);
            }
            let hello = self.hello(peer, &mut other, rank);
            self.nodes[peer as usize].process = Some(other);
            self.network.connect(peer, rank, hello?);
            self.touched |= 1 << peer;
        }
        Ok(())
    }

    /// Returns a new connection's first frame.
    pub(super) fn hello(&self, node: u32, process: &mut Process, peer: u32) -> Result<Vec<u8>, ViolationKind> {
        if node.max(peer) >= self.program.ranks() {
            process.waiting[peer as usize].get_or_insert_default();
            return Ok(self.nodes[node as usize].incarnation.to_le_bytes().to_vec());
        }
        let hello = self.ask(node, process, |machine| machine.hello(Rank(peer)))?;
        self.accept(node, hello.encode().map_err(Refusal::from))
    }
}
