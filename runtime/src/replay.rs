//! Replay of one rank alone, from an ended or crashed job's logs.
//!
//! The rank's program runs again in a process without peers. It receives messages from the other ranks' logs, and
//! timing-dependent outcomes from its own; its sends are compared with the earlier ones. The files stay as they are.
//!
//! A replay ends with the program, with the first difference ([`Error::is_divergence`]), or where the record ends
//! ([`RecordEnd`]): the rank waits for a message never sent, or does something unrecorded.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use counterfoil::{Cursor, Epoch, Incarnation, Log, Rank, Ssn, Tier};
use counterfoil_ack_piggyback::{Flags, ReceivedSet, WireHeader};
use counterfoil_protocols::api::{Hello, Kept, NativeCollectives, Repetition, Rule};

use crate::Error;
use crate::damage::{DamageLocation, Expected};
use crate::endpoint::{Endpoint, EndpointOptions, LogFiles, answer_match_query, cursor_from, log_options};
use crate::history::History;
use crate::local::RankEndpoint;
use crate::prologue::Prologue;
use crate::settings::RankSettings;
use crate::transport::{Event, Interest, Report, Transport, TransportError};

/// Incarnation of the rank: it repeats an execution.
const INCARNATION: u32 = 1;
/// Payload bytes read from a peer in one poll.
const BYTES_PER_POLL: usize = 64 << 10;
/// Messages read from a peer in one poll.
const MESSAGES_PER_POLL: usize = 64;

/// Place where a rank's record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordEnd {
    /// The rank waits, and no recorded message ends the wait.
    #[error("it waits for a message that no log has")]
    Wait,
    /// The rank sends a message missing in its log.
    #[error("its message {ssn} to rank {to} is in no log")]
    Send {
        /// Destination.
        to: u32,
        /// The message's SSN.
        ssn: u64,
    },
    /// A timing-dependent call has no recorded outcome.
    #[error("the outcome of this call depends on timing and is not on record")]
    Outcome,
}

impl RecordEnd {
    /// Returns the end of the record, if it made a call fail.
    pub fn of(error: &Error) -> Option<RecordEnd> {
        let Error::Transport(TransportError::Other(source)) = error else { return None };
        source.downcast_ref().copied()
    }
}

impl From<RecordEnd> for Error {
    fn from(end: RecordEnd) -> Error {
        TransportError::Other(Box::new(end)).into()
    }
}

/// Replay options.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The rank.
    pub rank: u32,
    /// Job settings.
    pub settings: RankSettings,
    /// Directory with all ranks' logs.
    pub log_directory: PathBuf,
    /// File for the rank's history ([`crate::history`]).
    pub history: Option<PathBuf>,
}

/// Returns `true` if the rule allows the replay of one rank alone: it repeats its sends, and needs nothing from its
/// peers but their logged messages.
pub fn can_replay(rule: &Rule) -> bool {
    let properties = &rule.properties;
    properties.repeats != Repetition::Nothing
        && matches!(properties.keeps, Kept::All | Kept::UntilCovered)
        && properties.native_collectives == NativeCollectives::None
        && !properties.has_coordinator
}

/// Starts the endpoint for a replayed rank.
///
/// `wrap` makes its transport.
///
/// # Errors
/// [`Error::NoReplay`], [`Error::Open`], [`Error::Damaged`].
pub fn start_replay<T: Transport>(
    options: &ReplayOptions,
    wrap: impl FnOnce(ReplayTransport) -> T,
) -> Result<RankEndpoint<T>, Error> {
    let ReplayOptions { rank, settings, log_directory, history } = options;
    let (rank, settings) = (*rank, RankSettings { trace: false, tolerates_divergence: false, ..settings.clone() });
    if !can_replay(&settings.rule) {
        return Err(Error::NoReplay { what: format!("logs of the {} rule", settings.rule.name) });
    }
    if settings.tier != Tier::ProcessCrashSafe {
        return Err(Error::NoReplay { what: format!("logs of the {} tier", settings.tier) });
    }
    let transport = ReplayTransport::open(options)?;
    let protocol = settings.rule.protocol(rank, settings.ranks, INCARNATION)?;
    let endpoint = EndpointOptions {
        rank,
        incarnation: INCARNATION,
        settings,
        files: LogFiles::Kept,
        log_directory: log_directory.clone(),
        trace_directory: PathBuf::new(),
        store_directory: PathBuf::new(),
        saves: Default::default(),
    };
    let mut endpoint = Endpoint::start(endpoint, protocol, wrap(transport))?;
    endpoint.history = history.as_deref().map(History::create).transpose()?;
    Ok(endpoint)
}

/// Starts the endpoint for a rank repeating its prologue.
///
/// `wrap` makes its transport.
///
/// # Errors
/// [`Error::Open`], [`Error::Damaged`].
pub fn start_prologue<T: Transport>(
    (rank, settings): (u32, &RankSettings),
    prologue: &Prologue,
    wrap: impl FnOnce(ReplayTransport) -> T,
) -> Result<RankEndpoint<T>, Error> {
    let settings = RankSettings { trace: false, tolerates_divergence: false, ..settings.clone() };
    let transport = ReplayTransport::of_prologue(rank, settings.ranks, prologue)?;
    let protocol = settings.rule.protocol(rank, settings.ranks, INCARNATION)?;
    let endpoint = EndpointOptions {
        rank,
        incarnation: INCARNATION,
        settings,
        files: LogFiles::Entries(prologue.entries().to_vec()),
        log_directory: PathBuf::new(),
        trace_directory: PathBuf::new(),
        store_directory: PathBuf::new(),
        saves: Default::default(),
    };
    Endpoint::start(endpoint, protocol, wrap(transport))
}

/// A peer: its unreceived messages to the rank.
#[derive(Debug)]
enum Peer {
    /// In its log.
    Log {
        cursor: Cursor,
        /// Keeps the cursor's records.
        _log: Box<Log>,
    },
    /// In the rank's prologue.
    Kept(VecDeque<(WireHeader, Bytes)>),
}

impl Peer {
    /// Returns the next message and passes it.
    fn next(&mut self, (from, to): (u32, u32)) -> Result<Option<(WireHeader, Bytes)>, Error> {
        match self {
            Peer::Log { cursor, .. } => {
                let failed = |source| Error::Replay { peer: to, source };
                let Some(record) = cursor.peek().map_err(failed)? else { return Ok(None) };
                let expected = Expected { from, to, ssn: record.ssn() };
                let header = expected.check_record(DamageLocation::Log, record.prefix(), record.payload())?;
                let body = Bytes::copy_from_slice(record.payload());
                cursor.advance();
                Ok(Some((header, body)))
            }
            Peer::Kept(messages) => {
                let Some((header, body)) = messages.pop_front() else { return Ok(None) };
                let expected = Expected { from, to, ssn: header.ssn() };
                let header = expected.check_record(DamageLocation::Checkpoint, header.as_bytes(), &body)?;
                Ok(Some((header, body)))
            }
        }
    }
}

/// Transport for a replayed rank: its peers are their logs.
#[derive(Debug)]
pub struct ReplayTransport {
    rank: u32,
    /// `None` for the rank itself.
    peers: Vec<Option<Peer>>,
    events: VecDeque<Event>,
    /// The rank's sends are recorded: its own log is the job's.
    has_sends: bool,
}

impl ReplayTransport {
    /// Opens the other ranks' logs.
    fn open(options: &ReplayOptions) -> Result<ReplayTransport, Error> {
        let ReplayOptions { rank, settings, log_directory, .. } = options;
        let open = |of: u32| {
            let options = log_options(of, settings, settings.rule.properties, log_directory, Path::new(""));
            Ok::<_, Error>(Log::recover_copy(options)?.0)
        };
        let find = |peer| {
            let mut log = open(peer)?;
            let sent = log.next_ssn(Rank(*rank)).prev();
            let cursor =
                cursor_from(&mut log, *rank, Ssn::FIRST).map_err(|source| Error::Replay { peer: *rank, source })?;
            Ok((Peer::Log { cursor, _log: Box::new(log) }, sent))
        };
        ReplayTransport::new(*rank, settings.ranks, true, find)
    }

    /// Takes a prologue's messages.
    fn of_prologue(rank: u32, ranks: u32, prologue: &Prologue) -> Result<ReplayTransport, Error> {
        let mut kept = prologue.by_sender(ranks);
        let find = |peer: u32| {
            let messages = std::mem::take(&mut kept[peer as usize]);
            let sent = messages.back().map_or(Ssn::ZERO, |(header, _)| header.ssn());
            Ok((Peer::Kept(messages), sent))
        };
        ReplayTransport::new(rank, ranks, false, find)
    }

    /// Connects the rank to its peers, each returned by `find` with its last message.
    fn new(
        rank: u32,
        ranks: u32,
        has_sends: bool,
        mut find: impl FnMut(u32) -> Result<(Peer, Ssn), Error>,
    ) -> Result<ReplayTransport, Error> {
        let (mut peers, mut events) = (Vec::new(), VecDeque::new());
        for peer in 0..ranks {
            if peer == rank {
                peers.push(None);
                continue;
            }
            let (found, sent) = find(peer)?;
            peers.push(Some(found));
            let hello = Hello {
                rank: Rank(peer),
                incarnation: Incarnation::default(),
                epoch: Epoch::FIRST,
                received: ReceivedSet::new(),
                covered: (Epoch::FIRST, Ssn::ZERO),
                sent,
                acked: Ssn::ZERO,
                opaque: Vec::new(),
            };
            let hello = hello.encode().map_err(|source| Error::Hello { peer, source })?;
            events.push_back(Event::Connected { peer, incarnation: 0, hello: hello.into(), answer: false });
        }
        Ok(ReplayTransport { rank, peers, events, has_sends })
    }

    /// Reads messages from a peer.
    fn read(&mut self, peer: u32) -> Result<(), Error> {
        let Some(found) = &mut self.peers[peer as usize] else { return Ok(()) };
        let mut bytes_left = BYTES_PER_POLL;
        for _ in 0..MESSAGES_PER_POLL {
            let Some((header, body)) = found.next((peer, self.rank))? else { break };
            let flags = header.flags().intersection(Flags::LOGGED) | Flags::REPLAYED;
            let header = header.refreshed(Incarnation::default(), None, flags);
            bytes_left = bytes_left.saturating_sub(body.len());
            self.events.push_back(Event::Frame { peer, header, body });
            if bytes_left == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Transport for ReplayTransport {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        for peer in (0..self.peers.len() as u32).filter(|peer| interest.reads(*peer)) {
            self.read(peer).map_err(|error| TransportError::Other(Box::new(error)))?;
        }
        let ends = self.events.is_empty() && interest.timeout.is_none();
        if ends { Err(TransportError::Other(Box::new(RecordEnd::Wait))) } else { Ok(()) }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_connected(&self, peer: u32) -> bool {
        self.peers[peer as usize].is_some()
    }

    fn greet(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), TransportError> {
        Ok(())
    }

    fn disconnect(&mut self, _: u32) {}

    /// Answers that a message was matched: a call that waits for that had an end, or the record ends later.
    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        if let Some((header, body)) = answer_match_query(header, &body.concat()) {
            self.events.push_back(Event::Frame { peer, header, body });
        }
        Ok(())
    }

    fn send_record(&mut self, _: u32, _: &WireHeader, payload: &[u8], offset: usize) -> Result<usize, TransportError> {
        Ok(WireHeader::LEN + payload.len() - offset)
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        if matches!(report, Report::Done { .. }) {
            self.events.push_back(Event::Finish);
        }
        Ok(())
    }

    fn repeats_only(&self) -> bool {
        self.has_sends
    }
}
