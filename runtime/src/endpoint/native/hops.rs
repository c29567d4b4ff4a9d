//! Hops of native collectives, and the words exchanged before a call or travelling with its hops.

use bytes::{Buf, Bytes};
use counterfoil::Rank;
use counterfoil_ack_piggyback::{Kind, Origin, WireHeader};
use counterfoil_protocols::api::{CollectiveCall, EntryKey, Misbehaviour, Protocol, ProtocolError, Scope};

use super::OpenCall;
use super::arrived::HopKey;
use crate::Error;
use crate::communicator::{Request, Status};
use crate::endpoint::Endpoint;
use crate::endpoint::wait::Wait;
use crate::transport::{Step, Transport};

/// Tag of a hop.
///
/// The protocols' tags are positive.
const HOP: i32 = -3;
/// Tag of a word exchanged before a call.
const WORD: i32 = -4;
/// Tag of a hop whose payload is preceded by words: their number, and each one's rank and word.
const HOP_WITH_WORDS: i32 = -6;
/// Bytes before a hop's payload: communicator, call number, position among the sender's hops.
const PREFIX: usize = 16;

/// Bit marking native hop requests: they hold their wait condition, and are not counted.
const NATIVE: u64 = 1 << 63;
/// Bit marking a send request.
const SENT: u64 = 1 << 62;

/// Returns `true` for a frame handled by this module.
pub(in crate::endpoint) fn is_hop(header: &WireHeader) -> bool {
    header.kind() == Kind::Control && matches!(header.tag(), HOP | WORD | HOP_WITH_WORDS)
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Exchanges words with the other ranks.
    ///
    /// Returns the result's entry.
    pub(super) fn exchange_words(
        &mut self,
        call: CollectiveCall,
        word: u64,
        scope: Scope,
    ) -> Result<Option<EntryKey>, Error> {
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
                    let bytes = self.await_hop(from, (call.comm, call.number, 0))?;
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

    /// Sends a hop for the current native call, if it is in the context.
    pub(in crate::endpoint) fn send_hop(
        &mut self,
        context: u32,
        to: u32,
        payload: &[u8],
    ) -> Result<Option<Request>, Error> {
        let Some(OpenCall { call, has_words, .. }) = self.native.call_in(context) else {
            return Ok(None);
        };
        let place = &mut self.native.hops[to as usize].sent;
        *place += 1;
        let place = *place;
        let mut words = std::mem::take(&mut self.native.encoded);
        words.clear();
        if has_words {
            encode_words(&self.native.words, &mut words);
        }
        if to == self.rank {
            let hop = Bytes::from([&words, payload].concat());
            self.native.arrived.insert(to, (call.comm, call.number, place), hop);
        } else {
            let tag = if has_words { HOP_WITH_WORDS } else { HOP };
            self.send_frame(call, tag, (to, place), [&words, payload])?;
        }
        self.native.encoded = words;
        Ok(Some(Request::new(NATIVE | SENT | u64::from(to))))
    }

    /// Posts the receive for a hop, if the current native call is in the context.
    pub(in crate::endpoint) fn receive_hop_in(
        &mut self,
        context: u32,
        source: Option<u32>,
    ) -> Result<Option<Request>, Error> {
        match source.filter(|_| self.native.call_in(context).is_some()) {
            Some(source) => self.receive_hop(source).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn receive_hop(&mut self, source: u32) -> Result<Request, Error> {
        if !self.native.is_open() {
            return Err(Error::CallAgain);
        }
        let place = &mut self.native.hops[source as usize].received;
        *place += 1;
        Ok(Request::new(NATIVE | u64::from(source) << 32 | u64::from(*place)))
    }

    /// Waits for a native call's request; `None` for other requests.
    pub(in crate::endpoint) fn wait_for_hop(&mut self, request: &Request) -> Result<Option<(Status, Bytes)>, Error> {
        let id = request.id();
        if id & NATIVE == 0 {
            return Ok(None);
        }
        if id & SENT != 0 {
            return Ok(Some((Status { source: id as u32, tag: HOP, len: 0 }, Bytes::new())));
        }
        let (source, place) = ((id & !NATIVE) >> 32, id as u32);
        let source = source as u32;
        let Some(OpenCall { call, has_words, .. }) = self.native.call else { return Err(Error::CallAgain) };
        let mut payload = self.await_hop(source, (call.comm, call.number, place))?;
        if has_words {
            let len = payload.len();
            let taken = take_words(&mut self.native.words, &mut payload, self.settings.ranks);
            taken.ok_or_else(|| malformed(source, HOP_WITH_WORDS, len))?;
        }
        self.end_step(Step::Taken { context: call.comm })?;
        Ok(Some((Status { source, tag: HOP, len: payload.len() }, payload)))
    }

    fn await_hop(&mut self, source: u32, key: HopKey) -> Result<Bytes, Error> {
        loop {
            self.check_call()?;
            if let Some(hop) = self.native.arrived.get(source, key) {
                return Ok(hop.clone());
            }
            self.progress(Wait::Forever)?;
        }
    }

    /// Sends a call's frame, once the receiver is connected and earlier ones have left.
    ///
    /// A root that broadcasts again and again waits for slower ranks. `payload`: words, and data.
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

    /// Handles a frame for this module.
    pub(in crate::endpoint) fn handle_hop(
        &mut self,
        peer: u32,
        header: &WireHeader,
        mut body: Bytes,
    ) -> Result<(), Error> {
        if body.len() < PREFIX {
            return Err(malformed(peer, header.tag(), body.len()));
        }
        let (comm, number, place) = (body.get_u32_le(), body.get_u64_le(), body.get_u32_le());
        if !self.native.is_wanted(comm, number) {
            return Ok(());
        }
        let place = if header.tag() == WORD { 0 } else { place };
        self.native.arrived.insert(peer, (comm, number, place), body);
        let (bytes, max) = (self.native.bytes(), self.settings.unexpected_bytes_limit);
        if bytes > max { Err(Error::Unexpected { peer, bytes, max }) } else { Ok(()) }
    }
}

/// Bytes for a word in a hop, with its rank.
const WORD_BYTES: usize = 12;

/// Encodes the words before a hop's payload: their number, and each one's rank and word.
fn encode_words(words: &[(Rank, u64)], bytes: &mut Vec<u8>) {
    bytes.extend((words.len() as u32).to_le_bytes());
    for (rank, word) in words {
        bytes.extend(rank.0.to_le_bytes());
        bytes.extend(word.to_le_bytes());
    }
}

/// Moves the words from the beginning of a hop to the others, in rank order; `None` if it is too short for them, or
/// they are from more than `ranks` ranks.
fn take_words(words: &mut Vec<(Rank, u64)>, payload: &mut Bytes, ranks: u32) -> Option<()> {
    let count = payload.try_get_u32_le().ok().filter(|count| *count <= ranks)? as usize;
    if payload.len() / WORD_BYTES < count {
        return None;
    }
    for _ in 0..count {
        let (rank, word) = (Rank(payload.get_u32_le()), payload.get_u64_le());
        if rank.0 >= ranks {
            return None;
        }
        match words.binary_search_by_key(&rank, |(rank, _)| *rank) {
            Ok(at) => words[at].1 = word,
            Err(at) => words.insert(at, (rank, word)),
        }
    }
    Some(())
}

fn malformed(peer: u32, tag: i32, len: usize) -> Error {
    ProtocolError::PeerMisbehaved { peer: Rank(peer), how: Misbehaviour::MalformedNotice { tag, len } }.into()
}
