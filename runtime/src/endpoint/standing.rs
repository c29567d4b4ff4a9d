//! What a rule needs under which messages wait, ranks stand still, and ranks go back.

use std::collections::VecDeque;

use bytes::Bytes;
use counterfoil::{Determinant, Epoch, Rank, Ssn};
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_protocols::frame::{ChoiceRecord, EntryKey, EntryKind, Incoming, Protocol};

use super::progress::Wait;
use super::{DELIVERY, Endpoint};
use crate::Error;
use crate::matching::Message;
use crate::transport::{Report, Transport};

/// How many checkpoints a rank keeps that may have to go back: what a store has room for.
pub(super) const CHECKPOINTS_KEPT: usize = 64;

/// Messages that wait, and checkpoints that are kept.
#[derive(Debug)]
pub(super) struct Standing {
    /// For each rank: what arrived and may not be delivered yet, in order.
    held: Vec<VecDeque<(WireHeader, Bytes)>>,
    /// Their payload bytes.
    held_bytes: Vec<usize>,
    /// What is held is to be presented again.
    present: bool,
    /// No recovery goes back to before it.
    floor: Epoch,
    /// The epoch that the newest checkpoint began, or the first.
    newest: Epoch,
    /// Messages that this rank sent to itself.
    pub(super) to_self: u64,
    /// This process has ended its part: its replacement goes on from an earlier checkpoint.
    pub(super) goes_back: bool,
}

impl Standing {
    /// In a job of so many ranks, in `epoch`.
    pub(super) fn new(ranks: u32, epoch: Epoch) -> Standing {
        Standing {
            held: (0..ranks).map(|_| VecDeque::new()).collect(),
            held_bytes: vec![0; ranks as usize],
            present: false,
            floor: epoch,
            newest: epoch,
            to_self: 0,
            goes_back: false,
        }
    }

    /// What came from `peer` on an older connection counts no more.
    pub(super) fn forget(&mut self, peer: u32) {
        self.held[peer as usize].clear();
        self.held_bytes[peer as usize] = 0;
    }

    pub(super) fn held_bytes(&self, peer: u32) -> usize {
        self.held_bytes[peer as usize]
    }

    /// A message waits: behind what waits of this peer already.
    pub(super) fn hold(&mut self, peer: u32, header: WireHeader, body: Bytes) {
        self.held_bytes[peer as usize] += body.len();
        self.held[peer as usize].push_back((header, body));
    }

    pub(super) fn is_holding(&self, peer: u32) -> bool {
        !self.held[peer as usize].is_empty()
    }

    /// Whether messages of any rank wait.
    pub(super) fn is_holding_any(&self) -> bool {
        self.held.iter().any(|held| !held.is_empty())
    }

    /// What is held may be let go.
    pub(super) fn resume(&mut self) {
        self.present = true;
    }

    /// There is a checkpoint that began `epoch`.
    pub(super) fn note_checkpoint(&mut self, epoch: Epoch) {
        self.newest = epoch;
    }

    /// Whether one more checkpoint would push one out that a recovery may need.
    fn is_full(&self) -> bool {
        (self.newest.0 - self.floor.0) as usize + 1 >= CHECKPOINTS_KEPT
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Waits until the rule lets the program go on.
    pub(super) fn await_running(&mut self) -> Result<(), Error> {
        while !self.protocol.is_running() && !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// Whether the rule wants a checkpoint now, and there is room for it.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.protocol.wants_checkpoint() && (self.settings.rule.keeps_every_message() || !self.standing.is_full())
    }

    /// Presents a message to the rule, which delivers it, drops it, or lets it wait: `false`.
    pub(super) fn present(&mut self, peer: u32, header: &WireHeader, body: &Bytes) -> Result<bool, Error> {
        let verdict = self.protocol.handle_message(header)?;
        self.carry_out_effects()?;
        match verdict {
            Incoming::Deliver { keep } => {
                if let Some(entry) = keep {
                    self.keep(entry, header)?;
                }
                let (comm, payload) = (header.envelope().comm, body.clone());
                self.arrive(Message { source: peer, tag: header.tag(), comm, ssn: header.ssn().0, payload })?;
            }
            Incoming::Discard(reason) => self.note_discarded(reason),
            Incoming::Hold => return Ok(false),
        }
        self.note_received(peer, header.ssn())?;
        Ok(true)
    }

    /// Records a delivery, before anything can depend on it.
    fn keep(&mut self, entry: EntryKey, header: &WireHeader) -> Result<(), Error> {
        let EntryKey { kind: EntryKind::Delivery, number: sequence } = entry else {
            return Err(Error::Unsupported { effect: format!("a copy of a message as {entry:?}") });
        };
        let record = ChoiceRecord::new(Determinant { sequence, source: header.source(), ssn: header.ssn() });
        self.log.local().append(DELIVERY, sequence, &record.bytes)?;
        self.tally.determinants_logged += 1;
        self.tally.determinant_bytes += record.bytes.len() as u64;
        Ok(())
    }

    /// Presents what was held again, if the rule says that this may help.
    pub(super) fn present_held(&mut self) -> Result<(), Error> {
        while std::mem::take(&mut self.standing.present) {
            for peer in 0..self.settings.ranks {
                while let Some((header, body)) = self.standing.held[peer as usize].pop_front() {
                    if !self.present(peer, &header, &body)? {
                        self.standing.held[peer as usize].push_front((header, body));
                        break;
                    }
                    let bytes = &mut self.standing.held_bytes[peer as usize];
                    *bytes = bytes.saturating_sub(body.len());
                }
            }
        }
        Ok(())
    }

    /// Checkpoints before `first` are needed no more (the store drops the oldest when it has too many), and those after `last`
    /// belong to a past that is undone.
    pub(super) fn keep_checkpoints(&mut self, first: Epoch, last: Epoch) -> Result<(), Error> {
        self.standing.floor = first.max(self.standing.floor);
        if self.standing.newest > last {
            self.log.discard_checkpoints_beyond(last)?;
            self.standing.newest = last;
        }
        Ok(())
    }

    /// The rule takes this rank back. A program can't be put back from within: this process ends, and its replacement goes on
    /// from the newest checkpoint that is left, which is that of `epoch`.
    pub(super) fn go_back(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.standing.goes_back = true;
        self.transport.report(Report::GoingBack { epoch: epoch.0, tally: self.tally })?;
        Err(Error::GoesBack { epoch: epoch.0 })
    }

    /// A rule under which ranks go back numbers messages anew when they do: what a dead incarnation had sent after its
    /// checkpoint is dropped, and sent again. `last`: the last message that is in the checkpoint.
    pub(super) fn cut_lane(&mut self, peer: Rank, last: Ssn) -> Result<(), Error> {
        self.log.truncate(peer, last).map_err(|source| Error::Truncate { peer: peer.0, source })?;
        self.outlets[peer.index()].transmitted = last;
        Ok(())
    }
}
