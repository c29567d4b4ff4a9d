//! Ways that log every message, with the real log.

use std::path::Path;

use counterfoil::ack::Ack;
use counterfoil::{AppendError, Epoch, Keep, Log, OpenError, Options, Phase, Rank, Ssn, Tier};
use counterfoil_mpi::acks::{BatchLimits, Batcher, ReleaseError, Releaser};
use counterfoil_mpi::stream::{Stream, Streams};
use counterfoil_mpi::{Comm, MpiError, Sending};
use counterfoil_profile::RecordTag;

use crate::measure::Way;
use crate::ways::CARRIED;

/// The number by which the ping-pong's communicator is known.
const COMM: u32 = 0;
/// The tag of acknowledgements.
const ACK_TAG: i32 = 1;
/// Messages between two looks for acknowledgements, and between two releases where none are sent.
const LOOK_EVERY: u64 = 32;

/// Why the measurement ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpikeError {
    #[error(transparent)]
    Mpi(#[from] MpiError),
    #[error("{call} returned {code}")]
    Raw { call: &'static str, code: i32 },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Append(#[from] Box<AppendError>),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error("cannot release what was sent: {0}")]
    Ack(#[from] counterfoil::AckError),
    #[error("{}: {source}", path.display())]
    File { path: std::path::PathBuf, source: std::io::Error },
    #[error(transparent)]
    Private(#[from] counterfoil::PrivateFileError),
}

/// When the payload is copied into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// Before the message is sent.
    Before,
    /// While it is under way.
    After,
}

/// Where the log is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory<'a> {
    Volatile,
    /// In a shared-memory file, below this private directory.
    Shared(&'a Path),
}

fn open(rank: u32, memory: Memory<'_>) -> Result<Log, SpikeError> {
    let mut options = Options::new(Rank(rank), 2);
    options.keep = Keep::Acked;
    let Memory::Shared(dir) = memory else { return Ok(Log::create(options)?) };
    // A log of its own for each way: its files have no name any more when this returns, so nothing stays behind.
    static LOGS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = LOGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = dir.join(format!("spike-{rank}-{number}-{}", std::process::id()));
    counterfoil::create_private_dir(&dir)?;
    options.tier = Tier::ProcessCrashSafe;
    options.dir = Some(dir.clone());
    let log = Log::create(options)?;
    std::fs::remove_dir_all(&dir).map_err(|source| SpikeError::File { path: dir, source })?;
    Ok(log)
}

/// Both sides count within streams, and that is all.
pub(crate) struct Counted {
    comm: Comm,
    sent: Streams,
    received: Streams,
}

impl Counted {
    pub(crate) fn new(comm: Comm) -> Counted {
        Counted { comm, sent: Streams::default(), received: Streams::default() }
    }
}

impl Way for Counted {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        std::hint::black_box(self.sent.next(Stream { peer: to, comm: COMM, tag }));
        Ok(self.comm.send(payload, to, tag)?)
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.comm.recv(payload, Some(from), Some(tag))?;
        std::hint::black_box(self.received.next(Stream { peer: from, comm: COMM, tag }));
        Ok(())
    }
}

/// Acknowledgements on a communicator of their own.
struct Acks {
    control: Comm,
    batcher: Batcher,
    releaser: Releaser,
    under_way: Vec<Sending>,
    /// The peer's last batch has come.
    has_ended: bool,
}

/// Both sides count; the sender logs, and releases by what the receiver acknowledges: or, without `acks`, what it knows to
/// have been received.
pub(crate) struct Logged {
    comm: Comm,
    log: Log,
    copy: Copy,
    sent: Streams,
    received: Streams,
    acks: Option<Acks>,
    since_look: u64,
}

impl Logged {
    pub(crate) fn new(
        comm: Comm,
        rank: u32,
        copy: Copy,
        memory: Memory<'_>,
        acks: Option<(Comm, u32)>,
    ) -> Result<Logged, SpikeError> {
        let acks = acks.map(|(control, messages_max)| {
            let limits = BatchLimits { messages_max, ..BatchLimits::default() };
            Acks {
                control,
                batcher: Batcher::new(2, limits),
                releaser: Releaser::new(1 - rank),
                under_way: Vec::new(),
                has_ended: false,
            }
        });
        let (sent, received) = (Streams::default(), Streams::default());
        Ok(Logged { comm, log: open(rank, memory)?, copy, sent, received, acks, since_look: 0 })
    }

    /// Takes in the acknowledgements that have come.
    #[cold]
    fn look(&mut self, peer: u32) -> Result<(), SpikeError> {
        self.since_look = 0;
        let Some(acks) = &mut self.acks else {
            // A ping-pong's messages were received when the answer has come: all but the last.
            let ack = Ack { ssn: self.log.next_ssn(Rank(peer)).prev().prev(), epoch: Epoch::FIRST };
            if ack.ssn > Ssn::ZERO {
                self.log.acknowledge(Rank(peer), ack, Phase::default())?;
            }
            return Ok(());
        };
        while let Some(batch) = acks.control.improbe(Some(peer), Some(ACK_TAG))? {
            acks.has_ended |= batch.len == 0;
            acks.releaser.take(&mut self.log, &batch.receive()?)?;
        }
        Ok(())
    }
}

#[inline]
fn append(log: &mut Log, to: u32, tag: RecordTag, payload: &[u8]) -> Result<Ssn, SpikeError> {
    let mut claim = log.try_claim(Rank(to), RecordTag::LEN, payload.len())?;
    let (prefix, body) = claim.parts_mut();
    prefix.copy_from_slice(&tag.encode());
    body.copy_from_slice(payload);
    Ok(claim.commit())
}

impl Way for Logged {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        let number = self.sent.next(Stream { peer: to, comm: COMM, tag });
        let record = RecordTag { comm: COMM, tag, number };
        match self.copy {
            Copy::Before => {
                append(&mut self.log, to, record, payload)?;
                self.comm.send(payload, to, tag)?;
            }
            Copy::After => {
                let log = &mut self.log;
                self.comm.send_while(payload, to, tag, || append(log, to, record, payload))??;
            }
        }
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY || payload.len() >= 64 << 10 { self.look(to) } else { Ok(()) }
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.comm.recv(payload, Some(from), Some(tag))?;
        let stream = Stream { peer: from, comm: COMM, tag };
        let Some(acks) = &mut self.acks else {
            std::hint::black_box(self.received.next(stream));
            return Ok(());
        };
        if acks.batcher.note(stream, payload.len()) {
            let batch = acks.batcher.take(from);
            acks.under_way.push(acks.control.isend(batch, from, ACK_TAG)?);
            let mut failed = None;
            acks.under_way.retain_mut(|sending| {
                sending.test().map_or_else(|error| failed.replace(error).is_none(), |done| !done)
            });
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn end(&mut self, peer: u32) -> Result<(), SpikeError> {
        let Some(acks) = &mut self.acks else { return Ok(()) };
        // Empty, as no batch is.
        acks.under_way.push(acks.control.isend(Vec::new(), peer, ACK_TAG)?);
        while !acks.has_ended || !acks.under_way.is_empty() {
            if let Some(batch) = acks.control.improbe(Some(peer), Some(ACK_TAG))? {
                acks.has_ended |= batch.len == 0;
                acks.releaser.take(&mut self.log, &batch.receive()?)?;
            }
            if let Some(first) = acks.under_way.first_mut()
                && first.test()?
            {
                acks.under_way.remove(0);
            }
        }
        Ok(())
    }
}

/// The number goes with the payload, which is sent from the log and received into a buffer that has room for both.
pub(crate) struct Contiguous {
    comm: Comm,
    log: Log,
    number: u64,
    staging: Vec<u8>,
    since_look: u64,
}

impl Contiguous {
    pub(crate) fn new(comm: Comm, rank: u32, size: usize) -> Result<Contiguous, SpikeError> {
        Ok(Contiguous {
            comm,
            log: open(rank, Memory::Volatile)?,
            number: 0,
            staging: vec![0; CARRIED + size],
            since_look: 0,
        })
    }
}

impl Way for Contiguous {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        self.number += 1;
        let mut claim = self.log.try_claim(Rank(to), CARRIED, payload.len())?;
        let (prefix, body) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: COMM, tag, number: self.number }.encode());
        body.copy_from_slice(payload);
        self.comm.send(claim.body_mut(), to, tag)?;
        let ssn = claim.commit();
        self.since_look += 1;
        if (self.since_look >= LOOK_EVERY || payload.len() >= 64 << 10) && ssn.prev() > Ssn::ZERO {
            self.since_look = 0;
            self.log.acknowledge(Rank(to), Ack { ssn: ssn.prev(), epoch: Epoch::FIRST }, Phase::default())?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        let len = self.comm.recv(&mut self.staging, Some(from), Some(tag))?;
        std::hint::black_box(&self.staging[..CARRIED]);
        payload[..len - CARRIED].copy_from_slice(&self.staging[CARRIED..len]);
        Ok(())
    }
}
