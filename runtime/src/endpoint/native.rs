//! Collectives that run natively: their messages, *hops*, are neither logged nor numbered by the rule.
//!
//! A hop is a control frame with the call's communicator and number, and its place among the hops from this sender in the call. It may
//! arrive before the receiver begins the call, and again when the sender begins the call anew: then it has the same bytes. Hops of a rank
//! that is lost are dropped. A call in which a rank is lost ends with [`Error::CallAgain`], and so does one whose result the rule finds
//! elsewhere; the layer above asks for a plan again.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes};
use counterfoil::Rank;
use counterfoil_ack_piggyback::{Kind, Origin, WireHeader};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, EntryKey, Misbehaviour, Protocol, ProtocolError, Scope,
};

use super::Endpoint;
use super::progress::Wait;
use crate::Error;
use crate::communicator::{COLLECTIVE_CONTEXT, CollectiveRun, InternalTag, Request, Status};
use crate::transport::{CallKind, Transport};

/// Tag of a hop. Tags of the protocols are positive.
const HOP: i32 = -3;
/// Tag of a word that is exchanged before a call.
const WORD: i32 = -4;
/// Tag of a hop whose payload is preceded by words: their number, and the rank and the word of each.
const HOP_WITH_WORDS: i32 = -6;
/// Bytes before a hop's payload: communicator, number of the call, place among the sender's hops.
const PREFIX: usize = 16;

/// Bit of the requests of native hops: they hold what they wait for, and are not counted.
const NATIVE: u64 = 1 << 63;
/// Bit of a request that is a send.
const SENT: u64 = 1 << 62;

/// Hop of a call, by communicator and number of the call, source, and place; a word is before the first.
type HopKey = (u32, u64, u32, u32);

/// Native collectives of a rank.
#[derive(Debug, Default)]
pub(super) struct Native {
    /// Call that runs natively.
    call: Option<OpenCall>,
    /// Answer of the rule to a question that it has asked for ([`Effect::Resume`](counterfoil_protocols::api::Effect::Resume)).
    plan: Option<CollectivePlan>,
    /// The rule wants to be asked again.
    resumed: bool,
    /// A rank was lost since the call began.
    lost: bool,
    /// Hops that have arrived.
    arrived: BTreeMap<HopKey, Bytes>,
    bytes: usize,
    /// Peer whose connection a hop waits for.
    awaited_room: Option<u32>,
    /// By communicator: first call that this rank hasn't completed.
    next: BTreeMap<u32, u64>,
    /// Calls to take part in once more, with dummy arguments.
    again: VecDeque<CollectiveCall>,
    /// The program waits for the plan of a call, which is counted already.
    planning: bool,
    /// A call runs as messages, of which some have left.
    as_messages: bool,
}

#[derive(Debug)]
struct OpenCall {
    call: CollectiveCall,
    /// Entry of the result.
    keep: Option<EntryKey>,
    /// Words that travel with the data, by rank: those that have come here, and this rank's own.
    words: Option<BTreeMap<u32, u64>>,
    /// The call is one of `again`.
    is_dummy: bool,
    /// By rank: number of hops sent to it and received from it.
    sent: Vec<u32>,
    received: Vec<u32>,
}

impl Native {
    pub(super) fn is_open(&self) -> bool {
        self.call.is_some()
    }

    /// Returns the bytes of hops that have arrived and wait for their calls.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if a hop waits for room on the connection of `peer`.
    pub(super) fn awaits_room(&self, peer: u32) -> bool {
        self.awaited_room == Some(peer)
    }

    /// Returns `true` if no data of a call has left, and no call is to be repeated.
    pub(super) fn is_idle(&self) -> bool {
        self.call.is_none() && self.again.is_empty() && !self.as_messages
    }

    /// Returns the number of calls that a checkpoint counts, of `counted`: the program makes one again whose plan it waits for.
    pub(super) fn counted(&self, counted: u64) -> u64 {
        counted - u64::from(self.planning)
    }

    fn is_in(&self, context: u32) -> bool {
        self.call.as_ref().is_some_and(|open| open.call.comm == context)
    }

    /// Notes that the rule wants to be asked again.
    pub(super) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Adds a call to take part in with dummy arguments.
    pub(super) fn push_again(&mut self, call: CollectiveCall) {
        self.again.push_back(call);
    }

    /// Drops the hops of a rank whose connection is lost.
    pub(super) fn lose(&mut self, peer: u32) {
        self.lost = true;
        let bytes = &mut self.bytes;
        self.arrived.retain(|&(_, _, source, _), hop| {
            let stays = source != peer;
            *bytes -= if stays { 0 } else { hop.len() };
            stays
        });
    }

    /// Returns `true` if this rank can still make or repeat the call.
    fn is_wanted(&self, comm: u32, number: u64) -> bool {
        let next = self.next.get(&comm).copied().unwrap_or_default();
        number >= next || self.again.iter().any(|call| (call.comm, call.number) == (comm, number))
    }

    /// Drops the hops of a call that is complete.
    fn end(&mut self, comm: u32, number: u64) {
        let complete = (comm, number, 0, 0)..(comm, number + 1, 0, 0);
        let keys: Vec<HopKey> = self.arrived.range(complete).map(|(key, _)| *key).collect();
        for key in keys {
            self.bytes -= self.arrived.remove(&key).map_or(0, |hop| hop.len());
        }
    }
}

/// Returns `true` for a frame of this module.
pub(super) fn is_hop(header: &WireHeader) -> bool {
    header.kind() == Kind::Control && matches!(header.tag(), HOP | WORD | HOP_WITH_WORDS)
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Plans a collective on the communicator whose collectives have this context. See
    /// [`Communicator::plan_collective`](crate::Communicator::plan_collective).
    ///
    /// # Errors
    /// [`Error`].
    pub fn plan_collective_in(
        &mut self,
        context: u32,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        self.run_again()?;
        self.native.planning = true;
        let planned = self.plan(CollectiveCall { class, comm: context, number: tag.sequence(), uniform }, false);
        self.native.planning = false;
        self.native.as_messages = matches!(planned, Ok(CollectiveRun::AsMessages));
        planned
    }

    fn plan(&mut self, call: CollectiveCall, is_dummy: bool) -> Result<CollectiveRun, Error> {
        loop {
            self.await_running()?;
            self.take_asked_checkpoint()?;
            self.record_polls()?;
            // A checkpoint may have changed the rule's mind.
            let is_old = std::mem::take(&mut self.native.resumed);
            let plan = match self.native.plan.take().filter(|_| !is_old) {
                Some(plan) => plan,
                None => self.protocol.handle_collective(&call)?,
            };
            self.carry_out_effects()?;
            let (keep, exchange, word) = match plan {
                CollectivePlan::AsMessages => return Ok(CollectiveRun::AsMessages),
                CollectivePlan::Skip => {
                    self.open_call(call, None, None, is_dummy);
                    return Ok(CollectiveRun::Skip);
                }
                CollectivePlan::Recorded(entry) => {
                    let result = self.entries.get(entry).ok_or(Error::NoResult { number: call.number })?;
                    self.open_call(call, None, None, is_dummy);
                    self.tally.collectives_recorded += 1;
                    return Ok(CollectiveRun::Recorded(result));
                }
                CollectivePlan::Hold => {
                    self.refuse_asked_checkpoint()?;
                    while !self.native.resumed && !self.finish {
                        self.take_asked_checkpoint()?;
                        if !self.native.resumed {
                            self.progress(Wait::Forever)?;
                        }
                    }
                    continue;
                }
                CollectivePlan::Native { keep } => (keep, None, None),
                CollectivePlan::Exchange { word, scope } => (None, Some((word, scope)), None),
                CollectivePlan::Piggyback { word } => (None, None, Some(word)),
            };
            self.native.lost = false;
            self.open_call(call, keep, word, is_dummy);
            if let Some((word, scope)) = exchange {
                match self.exchange_words(call, word, scope) {
                    Ok(keep) => self.native.call.iter_mut().for_each(|open| open.keep = keep),
                    Err(Error::CallAgain) => continue,
                    Err(error) => return Err(error),
                }
            }
            debug_assert!(self.native.is_wanted(call.comm, call.number), "a call that is complete");
            return Ok(CollectiveRun::Native);
        }
    }

    /// `word`: this rank's word, if words travel with the data.
    fn open_call(&mut self, call: CollectiveCall, keep: Option<EntryKey>, word: Option<u64>, is_dummy: bool) {
        let none = vec![0; self.settings.ranks as usize];
        let words = word.map(|word| BTreeMap::from([(self.rank, word)]));
        self.native.call = Some(OpenCall { call, keep, words, is_dummy, sent: none.clone(), received: none });
    }

    /// Ends the present call. See
    /// [`Communicator::complete_collective`](crate::Communicator::complete_collective).
    pub(super) fn complete_call(&mut self, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        self.native.as_messages = false;
        let Some(OpenCall { call, mut keep, words, is_dummy, .. }) = self.native.call.take() else { return Ok(()) };
        if let Some(words) = words {
            keep = self.report_words(call, words)?;
        }
        if let Some(entry) = keep {
            self.keep_entry(entry, result().into())?;
        }
        self.native.plan = None;
        self.native.end(call.comm, call.number);
        if is_dummy {
            self.native.again.pop_front();
            self.tally.collectives_repeated += 1;
        } else {
            self.native.next.insert(call.comm, call.number + 1);
            self.tally.collectives += 1;
        }
        self.protocol.handle_collective_completed(&call)?;
        self.carry_out_effects()
    }

    /// Reports the words that came with the data of a call, as far as data flows from their ranks. Returns the entry of the result.
    fn report_words(&mut self, call: CollectiveCall, words: BTreeMap<u32, u64>) -> Result<Option<EntryKey>, Error> {
        let own = Rank(self.rank);
        let comes = |from: Rank| from == own || call.class.flows(from, own);
        let words = words.into_iter().map(|(from, word)| (Rank(from), word));
        let words: Vec<(Rank, u64)> = words.filter(|(from, _)| comes(*from)).collect();
        Ok(self.protocol.handle_collective_words(&call, &words)?)
    }

    /// Takes part once more in the calls that the rule wants repeated, which are from a root to all.
    pub(super) fn run_again(&mut self) -> Result<(), Error> {
        if self.native.call.is_some() {
            return Ok(());
        }
        while let Some(&call) = self.native.again.front() {
            let root = match call.class {
                CollectiveClass::FromRoot(Rank(root)) if root != self.rank => root,
                _ => return Err(Error::Unsupported { effect: format!("to repeat {call:?} with dummy arguments") }),
            };
            match self.plan(call, true)? {
                CollectiveRun::AsMessages => {
                    return Err(Error::Unsupported { effect: format!("to repeat {call:?} as messages") });
                }
                CollectiveRun::Native => match self.receive_hop(root).and_then(|request| self.wait_for_hop(&request)) {
                    Ok(_) => {}
                    Err(Error::CallAgain) => continue,
                    Err(error) => return Err(error),
                },
                CollectiveRun::Recorded(_) | CollectiveRun::Skip => {}
            }
            self.complete_call(&Vec::new)?;
        }
        Ok(())
    }

    /// Exchanges words with the other ranks. Returns the entry of the result.
    fn exchange_words(&mut self, call: CollectiveCall, word: u64, scope: Scope) -> Result<Option<EntryKey>, Error> {
        let (own, ranks) = (Rank(self.rank), 0..self.settings.ranks);
        let has = |from: Rank, to: Rank| from != to && (scope == Scope::All || call.class.flows(from, to));
        for to in ranks.clone().filter(|&to| has(own, Rank(to))) {
            self.send_frame(call, WORD, (to, 0), [&[], &word.to_le_bytes()])?;
        }
        let mut words = Vec::new();
        for from in ranks {
            let its = match from == self.rank {
                true => word,
                false if has(Rank(from), own) => {
                    let bytes = self.await_hop((call.comm, call.number, from, 0))?;
                    u64::from_le_bytes(bytes[..].try_into().map_err(|_| malformed(from, WORD, bytes.len()))?)
                }
                false => continue,
            };
            words.push((Rank(from), its));
        }
        let keep = self.protocol.handle_collective_words(&call, &words)?;
        self.carry_out_effects()?;
        Ok(keep)
    }

    /// Sends a hop of the call that runs natively, if that is one of the context.
    pub(super) fn send_hop(&mut self, context: u32, to: u32, payload: &[u8]) -> Result<Option<Request>, Error> {
        if !self.native.is_in(context) {
            return Ok(None);
        }
        let Some(OpenCall { call, sent, words, .. }) = &mut self.native.call else { return Ok(None) };
        let (call, place) = (*call, &mut sent[to as usize]);
        *place += 1;
        let place = *place;
        let encoded = words.as_ref().map(encode_words);
        let words = encoded.as_deref().unwrap_or_default();
        if to == self.rank {
            let hop = Bytes::from([words, payload].concat());
            self.native.bytes += hop.len();
            self.native.arrived.insert((call.comm, call.number, to, place), hop);
        } else {
            let tag = if encoded.is_some() { HOP_WITH_WORDS } else { HOP };
            self.send_frame(call, tag, (to, place), [words, payload])?;
        }
        self.stop_if_fatal(CallKind::Collective)?;
        Ok(Some(Request::new(NATIVE | SENT | u64::from(to))))
    }

    /// Posts the receive of a hop, if the call that runs natively is one of the context.
    pub(super) fn receive_hop_in(&mut self, context: u32, source: Option<u32>) -> Result<Option<Request>, Error> {
        match source.filter(|_| self.native.is_in(context)) {
            Some(source) => self.receive_hop(source).map(Some),
            None => Ok(None),
        }
    }

    fn receive_hop(&mut self, source: u32) -> Result<Request, Error> {
        let Some(open) = &mut self.native.call else { return Err(Error::CallAgain) };
        let place = &mut open.received[source as usize];
        *place += 1;
        Ok(Request::new(NATIVE | u64::from(source) << 32 | u64::from(*place)))
    }

    /// Waits for a request of a native call; `None` if it is none.
    pub(super) fn wait_for_hop(&mut self, request: &Request) -> Result<Option<(Status, Bytes)>, Error> {
        let id = request.id();
        if id & NATIVE == 0 {
            return Ok(None);
        }
        if id & SENT != 0 {
            return Ok(Some((Status { source: id as u32, tag: HOP, len: 0 }, Bytes::new())));
        }
        let (source, place) = ((id & !NATIVE) >> 32, id as u32);
        let source = source as u32;
        let Some(OpenCall { call, .. }) = self.native.call else { return Err(Error::CallAgain) };
        let mut payload = self.await_hop((call.comm, call.number, source, place))?;
        if let Some(words) = self.native.call.as_mut().and_then(|open| open.words.as_mut()) {
            let len = payload.len();
            take_words(words, &mut payload).ok_or_else(|| malformed(source, HOP_WITH_WORDS, len))?;
        }
        self.stop_if_fatal(CallKind::Collective)?;
        Ok(Some((Status { source, tag: HOP, len: payload.len() }, payload)))
    }

    fn await_hop(&mut self, key: HopKey) -> Result<Bytes, Error> {
        loop {
            self.check_call()?;
            if let Some(hop) = self.native.arrived.get(&key) {
                return Ok(hop.clone());
            }
            self.progress(Wait::Forever)?;
        }
    }

    /// Sends a frame of a call, once the receiver is connected and earlier ones have left: a root that broadcasts again and again waits for those
    /// that are slower. `payload`: words, and data.
    fn send_frame(
        &mut self,
        call: CollectiveCall,
        tag: i32,
        (to, place): (u32, u32),
        payload: [&[u8]; 2],
    ) -> Result<(), Error> {
        while !(self.is_connected(to) && self.transport.has_room(to)) {
            self.check_call()?;
            self.native.awaited_room = Some(to);
            let progressed = self.progress(Wait::Forever);
            self.native.awaited_room = None;
            progressed?;
        }
        self.check_call()?;
        self.sync_choices()?;
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&call.comm.to_le_bytes());
        prefix[4..12].copy_from_slice(&call.number.to_le_bytes());
        prefix[12..].copy_from_slice(&place.to_le_bytes());
        let [words, data] = payload;
        let len = PREFIX + words.len() + data.len();
        let header = WireHeader::control(Rank(self.rank), Rank(to), Origin::default(), tag, len as u64, None);
        Ok(self.transport.send_control(to, &header, &[&prefix, words, data])?)
    }

    /// Checks that the call goes on: no rank was lost, and the rule has no other plan.
    fn check_call(&mut self) -> Result<(), Error> {
        let Some(OpenCall { call, .. }) = self.native.call else { return Ok(()) };
        if self.native.lost {
            self.native.lost = false;
            self.native.call = None;
            self.tally.collectives_failed += 1;
            self.protocol.handle_collective_failed(&call)?;
            self.carry_out_effects()?;
            return Err(Error::CallAgain);
        }
        if std::mem::take(&mut self.native.resumed) {
            let plan = self.protocol.handle_collective(&call)?;
            self.carry_out_effects()?;
            if !matches!(
                plan,
                CollectivePlan::Native { .. } | CollectivePlan::Exchange { .. } | CollectivePlan::Piggyback { .. }
            ) {
                self.native.call = None;
                self.native.plan = Some(plan);
                return Err(Error::CallAgain);
            }
        }
        Ok(())
    }

    /// Handles a frame of this module.
    pub(super) fn handle_hop(&mut self, peer: u32, header: &WireHeader, mut body: Bytes) -> Result<(), Error> {
        if body.len() < PREFIX {
            return Err(malformed(peer, header.tag(), body.len()));
        }
        let (comm, number, place) = (body.get_u32_le(), body.get_u64_le(), body.get_u32_le());
        if !self.native.is_wanted(comm, number) {
            return Ok(());
        }
        self.native.bytes += body.len();
        let place = if header.tag() == WORD { 0 } else { place };
        if let Some(before) = self.native.arrived.insert((comm, number, peer, place), body) {
            self.native.bytes -= before.len();
        }
        let (bytes, max) = (self.native.bytes, self.settings.unexpected_bytes_limit);
        if bytes > max { Err(Error::Unexpected { peer, bytes, max }) } else { Ok(()) }
    }

    /// Continues the numbers of calls on the job's communicator after a restart.
    pub(super) fn resume_calls(&mut self) {
        self.native.next.insert(COLLECTIVE_CONTEXT, self.collectives);
    }
}

/// Bytes of a word in a hop, with its rank.
const WORD_BYTES: usize = 12;

/// Encodes the words before a hop's payload: their number, and the rank and the word of each.
fn encode_words(words: &BTreeMap<u32, u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + words.len() * WORD_BYTES);
    bytes.extend((words.len() as u32).to_le_bytes());
    for (rank, word) in words {
        bytes.extend(rank.to_le_bytes());
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// Moves the words from the beginning of a hop; `None` if it is too short for them.
fn take_words(words: &mut BTreeMap<u32, u64>, payload: &mut Bytes) -> Option<()> {
    let count = payload.try_get_u32_le().ok()? as usize;
    if payload.len() / WORD_BYTES < count {
        return None;
    }
    words.extend((0..count).map(|_| (payload.get_u32_le(), payload.get_u64_le())));
    Some(())
}

fn malformed(peer: u32, tag: i32, len: usize) -> Error {
    ProtocolError::PeerMisbehaved { peer: Rank(peer), how: Misbehaviour::MalformedNotice { tag, len } }.into()
}
