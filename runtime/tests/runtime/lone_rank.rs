//! One rank without a network: a test supplies its peers' events, and inspects the frames sent to them.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use counterfoil::{Envelope, Incarnation, Rank};
use counterfoil_ack_piggyback::{AckPolicy, WireHeader};
use counterfoil_protocols::api::Protocol;
use counterfoil_protocols::sender_based::{Config, SenderBased};
use counterfoil_runtime::endpoint::{Endpoint, EndpointOptions, LogFiles};
use counterfoil_runtime::transport::{Event, Interest, Report, Transport, TransportError};
use counterfoil_runtime::{Error, RankSettings, Tier};
use tempfile::TempDir;

pub(crate) const RANKS: u32 = 3;
/// The rank under test.
///
/// The others are [`Peer`]s.
pub(crate) const RANK: u32 = 0;

pub(crate) type LoneRank = Endpoint<Wire, SenderBased>;

/// Transport connected to all peers, taking every frame.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) events: VecDeque<Event>,
    /// Sent messages: destination, header, payload.
    pub(crate) sent: Vec<(u32, WireHeader, Vec<u8>)>,
}

impl Transport for Wire {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        assert!(!self.events.is_empty() || interest.timeout.is_some(), "a wait without a timeout and without events");
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_connected(&self, _: u32) -> bool {
        true
    }

    fn greet(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), TransportError> {
        Ok(())
    }

    fn disconnect(&mut self, _: u32) {}

    fn send_control(&mut self, _: u32, _: &WireHeader, _: &[&[u8]]) -> Result<(), TransportError> {
        Ok(())
    }

    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        _: usize,
    ) -> Result<usize, TransportError> {
        self.sent.push((peer, *header, payload.to_vec()));
        Ok(WireHeader::LEN + payload.len())
    }

    fn report(&mut self, _: Report) -> Result<(), TransportError> {
        Ok(())
    }
}

fn protocol(rank: u32, incarnation: u32) -> SenderBased {
    let (rank, incarnation) = (Rank(rank), Incarnation(incarnation));
    SenderBased::new(Config { rank, ranks: RANKS, incarnation, policy: AckPolicy::default() }).unwrap()
}

/// Simulated peer, which makes events for the rank under test.
pub(crate) struct Peer {
    rank: u32,
    incarnation: u32,
    protocol: SenderBased,
}

impl Peer {
    pub(crate) fn new(rank: u32, incarnation: u32) -> Peer {
        Peer { rank, incarnation, protocol: protocol(rank, incarnation) }
    }

    /// Makes the event for its connection; it has received nothing.
    pub(crate) fn connected(&self) -> Event {
        let hello = self.protocol.hello(Rank(RANK)).unwrap().encode().unwrap();
        Event::Connected { peer: self.rank, incarnation: self.incarnation, hello: hello.into(), answer: false }
    }

    /// Makes its next message, sealed like by an endpoint.
    pub(crate) fn message(&mut self, tag: i32, payload: &'static [u8]) -> (WireHeader, Bytes) {
        let (source, destination, len) = (Rank(self.rank), Rank(RANK), payload.len() as u64);
        let envelope = Envelope { source, destination, tag, comm: 0, len };
        let mut header = self.protocol.handle_send(&envelope).unwrap().header;
        header.seal(payload);
        (header, Bytes::from_static(payload))
    }

    pub(crate) fn sends(&mut self, tag: i32, payload: &'static [u8]) -> Event {
        let (header, body) = self.message(tag, payload);
        Event::Frame { peer: self.rank, header, body }
    }
}

/// Temporary directory with the rank's files.
pub(crate) struct Files {
    root: TempDir,
}

impl Files {
    pub(crate) fn new() -> Files {
        let shm = PathBuf::from("/dev/shm");
        let root = if shm.is_dir() { shm } else { std::env::temp_dir() };
        let private = Permissions::from_mode(0o700);
        let root = tempfile::Builder::new().prefix("counterfoil-lone-").permissions(private).tempdir_in(root);
        let files = Files { root: root.unwrap() };
        fs::DirBuilder::new().mode(0o700).create(files.checkpoints()).unwrap();
        files
    }

    fn checkpoints(&self) -> PathBuf {
        self.root.path().join("checkpoints")
    }

    /// Returns the lanes' file.
    pub(crate) fn log(&self) -> PathBuf {
        self.root.path().join("log.0")
    }

    /// Returns the local log's file.
    pub(crate) fn local(&self) -> PathBuf {
        self.root.path().join("local.0")
    }

    /// Starts an incarnation of the rank; its predecessor was dropped, which leaves the same files as SIGKILL.
    pub(crate) fn start(&self, incarnation: u32, tier: Tier, events: Vec<Event>) -> Result<LoneRank, Error> {
        self.start_with(incarnation, RankSettings { tier, ..RankSettings::new(RANKS) }, events)
    }

    /// Like [`start`](Self::start), with settings; the log limits suit a short run.
    pub(crate) fn start_with(
        &self,
        incarnation: u32,
        settings: RankSettings,
        events: Vec<Event>,
    ) -> Result<LoneRank, Error> {
        let settings = RankSettings { log_bytes_max: 256 << 10, local_log_bytes_max: 16 << 10, ..settings };
        let options = EndpointOptions {
            rank: RANK,
            incarnation,
            settings,
            files: LogFiles::TakenOver,
            log_directory: self.root.path().to_owned(),
            trace_directory: self.root.path().to_owned(),
            store_directory: self.checkpoints(),
            saves: Default::default(),
        };
        Endpoint::start(options, protocol(RANK, incarnation), Wire { events: events.into(), sent: Vec::new() })
    }
}

/// Flips one bit of the only occurrence of `bytes` in the file.
pub(crate) fn flip_in(path: &Path, bytes: &[u8]) {
    let image = fs::read(path).unwrap();
    let mut places = image.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let (at, _) = places.next().unwrap();
    assert_eq!(places.count(), 0, "{bytes:?} occurs several times");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[bytes[0] ^ 0x10], at as u64).unwrap();
}
