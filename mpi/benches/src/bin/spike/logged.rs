//! Ways that count or log every message, with the real log.

use std::path::Path;

use counterfoil::{Ack, AppendError, Epoch, Keep, Log, OpenError, Options, Phase, Rank, Ssn, Tier};
use counterfoil_mpi::{Comm, MpiError, Sending};
use counterfoil_mpi_logger::{AckBatcher, BatchLimits, ReleaseError, Releaser, Stream, StreamCounts};
use counterfoil_profile::RecordTag;

use crate::measure::Way;
use crate::ways::PIGGYBACK_LEN;

/// Number of the ping-pong's communicator in streams and records.
const COMM: u32 = 0;
/// Tag of acknowledgements.
const ACK_TAG: i32 = 1;
/// Messages between two polls for acknowledgements, or between two releases if the receiver sends none.
const POLL_EVERY: u64 = 32;

/// Failure of a measurement.
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

/// Time at which the payload is copied into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// Before the message is sent.
    Before,
    /// While the message is in flight.
    After,
}

/// Memory of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory<'a> {
    Volatile,
    /// A shared-memory file below this private directory.
    Shared(&'a Path),
}

fn open(rank: u32, memory: Memory<'_>) -> Result<Log, SpikeError> {
    let mut options = Options::new(Rank(rank), 2);
    options.keep = Keep::Acked;
    let Memory::Shared(dir) = memory else { return Ok(Log::create(options)?) };
    // Each way has its own log. Its files are unlinked before this returns, so nothing is left on disk.
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

/// Both sides count within streams; nothing is logged.
pub(crate) struct Counted {
    comm: Comm,
    sent: StreamCounts,
    received: StreamCounts,
}

impl Counted {
    pub(crate) fn new(comm: Comm) -> Counted {
        Counted { comm, sent: StreamCounts::default(), received: StreamCounts::default() }
    }
}

impl Way for Counted {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        std::hint::black_box(self.sent.next(Stream::new(to, COMM, tag)));
        Ok(self.comm.send(payload, to, tag)?)
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.comm.recv(payload, Some(from), Some(tag))?;
        std::hint::black_box(self.received.next(Stream::new(from, COMM, tag)));
        Ok(())
    }
}

/// Acknowledgements, on a separate communicator.
struct Acks {
    control: Comm,
    batcher: AckBatcher,
    releaser: Releaser,
    in_flight: Vec<Sending>,
    /// True after the peer's last batch has arrived.
    has_ended: bool,
}

/// Both sides count and the sender logs. It releases records as the receiver acknowledges them; without `acks`, as far as the replies
/// prove them received.
pub(crate) struct Logged {
    comm: Comm,
    log: Log,
    copy: Copy,
    sent: StreamCounts,
    received: StreamCounts,
    acks: Option<Acks>,
    since_poll: u64,
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
                batcher: AckBatcher::new(2, limits),
                releaser: Releaser::new(1 - rank),
                in_flight: Vec::new(),
                has_ended: false,
            }
        });
        let (sent, received) = (StreamCounts::default(), StreamCounts::default());
        Ok(Logged { comm, log: open(rank, memory)?, copy, sent, received, acks, since_poll: 0 })
    }

    /// Applies the acknowledgements that have arrived.
    #[cold]
    fn poll_acks(&mut self, peer: u32) -> Result<(), SpikeError> {
        self.since_poll = 0;
        let Some(acks) = &mut self.acks else {
            // In ping-pong, a reply proves all messages but the last received.
            let ack = Ack { ssn: self.log.next_ssn(Rank(peer)).prev().prev(), epoch: Epoch::FIRST };
            if ack.ssn > Ssn::ZERO {
                self.log.acknowledge(Rank(peer), ack, Phase::default())?;
            }
            return Ok(());
        };
        while let Some(batch) = acks.control.improbe(Some(peer), Some(ACK_TAG))? {
            acks.has_ended |= batch.len == 0;
            acks.releaser.note(&batch.receive()?)?;
            acks.releaser.release(&mut self.log, usize::MAX)?;
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
        let number = self.sent.next(Stream::new(to, COMM, tag));
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
        self.since_poll += 1;
        if self.since_poll >= POLL_EVERY || payload.len() >= 64 << 10 { self.poll_acks(to) } else { Ok(()) }
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        self.comm.recv(payload, Some(from), Some(tag))?;
        let stream = Stream::new(from, COMM, tag);
        let Some(acks) = &mut self.acks else {
            std::hint::black_box(self.received.next(stream));
            return Ok(());
        };
        if acks.batcher.count(stream, payload.len()) {
            let batch = acks.batcher.take(from);
            acks.in_flight.push(acks.control.isend(batch, from, ACK_TAG)?);
            let mut failed = None;
            acks.in_flight.retain_mut(|sending| {
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
        // An empty message marks the end: a batch is never empty.
        acks.in_flight.push(acks.control.isend(Vec::new(), peer, ACK_TAG)?);
        while !acks.has_ended || !acks.in_flight.is_empty() {
            if let Some(batch) = acks.control.improbe(Some(peer), Some(ACK_TAG))? {
                acks.has_ended |= batch.len == 0;
                acks.releaser.note(&batch.receive()?)?;
                acks.releaser.release(&mut self.log, usize::MAX)?;
            }
            if let Some(first) = acks.in_flight.first_mut()
                && first.test()?
            {
                acks.in_flight.remove(0);
            }
        }
        Ok(())
    }
}

/// The number travels with the payload: the message is sent from the log and received into a staging buffer with room for both.
pub(crate) struct Contiguous {
    comm: Comm,
    log: Log,
    number: u64,
    staging: Vec<u8>,
    since_poll: u64,
}

impl Contiguous {
    pub(crate) fn new(comm: Comm, rank: u32, size: usize) -> Result<Contiguous, SpikeError> {
        Ok(Contiguous {
            comm,
            log: open(rank, Memory::Volatile)?,
            number: 0,
            staging: vec![0; PIGGYBACK_LEN + size],
            since_poll: 0,
        })
    }
}

impl Way for Contiguous {
    #[inline]
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError> {
        self.number += 1;
        let mut claim = self.log.try_claim(Rank(to), PIGGYBACK_LEN, payload.len())?;
        let (prefix, body) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: COMM, tag, number: self.number }.encode());
        body.copy_from_slice(payload);
        self.comm.send(claim.body_mut(), to, tag)?;
        let ssn = claim.commit();
        self.since_poll += 1;
        if (self.since_poll >= POLL_EVERY || payload.len() >= 64 << 10) && ssn.prev() > Ssn::ZERO {
            self.since_poll = 0;
            self.log.acknowledge(Rank(to), Ack { ssn: ssn.prev(), epoch: Epoch::FIRST }, Phase::default())?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError> {
        let len = self.comm.recv(&mut self.staging, Some(from), Some(tag))?;
        std::hint::black_box(&self.staging[..PIGGYBACK_LEN]);
        payload[..len - PIGGYBACK_LEN].copy_from_slice(&self.staging[PIGGYBACK_LEN..len]);
        Ok(())
    }
}
