//! The header in front of every message.

use std::fmt;

use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::parse::{self, HeaderError};
use crate::{Ack, Arrival, Flags, Kind, Stamp};

/// What travels in front of a payload: 64 bytes, little-endian, no padding, any alignment.
///
/// | bytes | field | | bytes | field |
/// |---|---|---|---|---|
/// | 0 | magic, `0xCF` | | 24-27 | phase |
/// | 1 | version, 1 | | 28-31 | tag (signed) |
/// | 2 | [`Kind`] | | 32-35 | communicator |
/// | 3 | [`Flags`] | | 36-39 | receive epoch of the acked SSN |
/// | 4-7 | checksum, 0 without [`Flags::CHECKED`] | | 40-47 | length of the payload in bytes |
/// | 8-11 | source rank | | 48-55 | SSN |
/// | 12-15 | destination rank | | 56-63 | acked SSN (of the other direction) |
/// | 16-19 | sender's incarnation | | | |
/// | 20-23 | sender's epoch | | | |
///
/// The checksum is over what belongs to the message for ever, and its payload: see [`seal`](WireHeader::seal).
///
/// Epoch and phase are what Guermouche 2011 (Figure 3, line 17) sends with a message; the SSN replaces its date.
/// A header that [`parse`](WireHeader::parse) returned, or that a constructor made of nouns within their limits,
/// is valid: every getter returns a noun within its limits.
///
/// ```
/// use counterfoil_ack_piggyback::{AckPolicy, Origin, SendWindow, WireHeader};
/// use counterfoil_log_core::{Envelope, Rank, Ssn};
///
/// let mut window = SendWindow::new(AckPolicy::default());
/// let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 7, comm: 0, len: 5 };
/// let mut header = WireHeader::message(&envelope, window.stamp(5)?, Origin::default(), None);
/// header.seal(b"hello");
/// let mut frame = header.as_bytes().to_vec();
/// frame.extend_from_slice(b"hello");
///
/// let (header, payload) = WireHeader::split(&frame)?;
/// assert_eq!((header.ssn(), header.envelope()), (Ssn::FIRST, envelope));
/// assert_eq!(payload, b"hello");
/// header.verify(payload)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WireHeader {
    magic: u8,
    version: u8,
    kind: Kind,
    flags: u8,
    checksum: U32,
    source: U32,
    destination: U32,
    incarnation: U32,
    epoch: U32,
    phase: U32,
    tag: I32,
    comm: U32,
    ack_epoch: U32,
    len: U64,
    ssn: U64,
    ack_ssn: U64,
}

const _: () = assert!(size_of::<WireHeader>() == 64 && WireHeader::LEN.is_multiple_of(8));
const _: () = assert!(align_of::<WireHeader>() == 1);

/// What every header says about the state of the rank that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How often the sender was replaced.
    pub incarnation: Incarnation,
    /// The sender's epoch; [`Epoch::FIRST`] where epochs aren't used.
    pub epoch: Epoch,
    /// The sender's phase.
    pub phase: Phase,
}

impl Default for Origin {
    /// The first incarnation in its first epoch.
    fn default() -> Self {
        Origin { incarnation: Incarnation(0), epoch: Epoch::FIRST, phase: Phase(0) }
    }
}

impl WireHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = size_of::<WireHeader>();
    /// The first byte.
    pub const MAGIC: u8 = 0xCF;
    /// The version that this crate reads and writes.
    pub const VERSION: u8 = 1;

    /// The header of an application's message.
    ///
    /// `stamp` comes from [`SendWindow::stamp`](crate::SendWindow::stamp), `ack` from
    /// [`RecvWindow::piggyback`](crate::RecvWindow::piggyback) for the same peer.
    #[inline]
    pub fn message(envelope: &Envelope, stamp: Stamp, origin: Origin, ack: Option<Ack>) -> Self {
        let mut header = Self::blank(Kind::Message, envelope.source, envelope.destination, origin);
        header.tag = envelope.tag.into();
        header.comm = envelope.comm.into();
        header.len = envelope.len.into();
        header.ssn = stamp.ssn.0.into();
        header.set_flags_and_ack(stamp.flags.without(Flags::CHECKED), ack);
        header
    }

    /// An explicit acknowledgement.
    pub fn ack_only(source: Rank, destination: Rank, origin: Origin, ack: Ack) -> Self {
        let mut header = Self::blank(Kind::Ack, source, destination, origin);
        header.set_flags_and_ack(Flags::NONE, Some(ack));
        header
    }

    /// A request to acknowledge up to `sent`, the last SSN that was given out on this channel.
    pub fn ack_request(source: Rank, destination: Rank, origin: Origin, sent: Ssn, ack: Option<Ack>) -> Self {
        let mut header = Self::blank(Kind::AckRequest, source, destination, origin);
        header.ssn = sent.0.into();
        header.set_flags_and_ack(Flags::NONE, ack);
        header
    }

    /// A protocol's own message with a body of `len` bytes; `tag` is the protocol's number for what it says.
    pub fn control(source: Rank, destination: Rank, origin: Origin, tag: i32, len: u64, ack: Option<Ack>) -> Self {
        let mut header = Self::blank(Kind::Control, source, destination, origin);
        header.tag = tag.into();
        header.len = len.into();
        header.set_flags_and_ack(Flags::NONE, ack);
        header
    }

    /// A copy for sending the same message again: as it is in the log, except for what has changed since.
    ///
    /// SSN, epoch, phase, envelope and checksum stay: they belong to the message. The incarnation is the one that
    /// sends now, the ack the newest for that peer, and `flags` replace all flags but [`Flags::LARGE`] and
    /// [`Flags::CHECKED`], which belong to the message, and [`Flags::HAS_ACK`], which follows from `ack`.
    ///
    /// Without this a replay would carry an ack of long ago, and be discarded as a dead incarnation's where the
    /// replacement replays what its predecessor logged.
    #[must_use]
    pub fn refreshed(&self, incarnation: Incarnation, ack: Option<Ack>, flags: Flags) -> Self {
        let mut header = *self;
        header.incarnation = incarnation.0.into();
        let kept = self.flags().intersection(Flags::OF_THE_MESSAGE);
        header.set_flags_and_ack(flags.without(Flags::OF_THE_MESSAGE) | kept, ack);
        header
    }

    /// Reads the header at the beginning of `bytes`; what follows it may be anything.
    ///
    /// # Errors
    /// [`HeaderError`] says which byte is wrong and what was expected there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<&WireHeader, HeaderError> {
        Self::split(bytes).map(|(header, _)| header)
    }

    /// Reads the header at the beginning of `bytes` and returns it with what follows it.
    ///
    /// # Errors
    /// As [`parse`](WireHeader::parse).
    #[inline]
    pub fn split(bytes: &[u8]) -> Result<(&WireHeader, &[u8]), HeaderError> {
        parse::check_start(bytes)?;
        let (header, rest) = WireHeader::try_ref_from_prefix(bytes)
            .map_err(|_| HeaderError::TooShort { len: bytes.len(), needed: Self::LEN })?;
        parse::check_fields(header)?;
        Ok((header, rest))
    }

    /// The header as it travels.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// What this header announces.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Facts about the message.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_bits(self.flags).unwrap_or(Flags::NONE)
    }

    /// Who sends.
    #[inline]
    pub fn source(&self) -> Rank {
        Rank(self.source.get())
    }

    /// Who is to receive.
    #[inline]
    pub fn destination(&self) -> Rank {
        Rank(self.destination.get())
    }

    /// Which incarnation of the source sends.
    #[inline]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.get())
    }

    /// The epoch in which the source sent this message (first, if this is a replay).
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.get())
    }

    /// The phase in which the source sent this message (first, if this is a replay).
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase(self.phase.get())
    }

    /// The tag; of a control message, the protocol's number for it.
    #[inline]
    pub fn tag(&self) -> i32 {
        self.tag.get()
    }

    /// The communicator's context number.
    #[inline]
    pub fn comm(&self) -> u32 {
        self.comm.get()
    }

    /// Length in bytes of what follows the header.
    #[inline]
    pub fn payload_len(&self) -> u64 {
        self.len.get()
    }

    /// The SSN: of the message, or the last one given out in an [`Kind::AckRequest`], else [`Ssn::ZERO`].
    #[inline]
    pub fn ssn(&self) -> Ssn {
        Ssn(self.ssn.get())
    }

    /// The acknowledgement for the other direction, if there is one.
    #[inline]
    pub fn ack(&self) -> Option<Ack> {
        self.flags()
            .contains(Flags::HAS_ACK)
            .then(|| Ack { ssn: Ssn(self.ack_ssn.get()), epoch: Epoch(self.ack_epoch.get()) })
    }

    /// The checksum that a seal left here; 0 without [`Flags::CHECKED`].
    #[inline]
    pub fn checksum(&self) -> u32 {
        self.checksum.get()
    }

    /// What MPI matches a receive against.
    #[inline]
    pub fn envelope(&self) -> Envelope {
        Envelope {
            source: self.source(),
            destination: self.destination(),
            tag: self.tag(),
            comm: self.comm(),
            len: self.payload_len(),
        }
    }

    /// The state of the rank that sent this.
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin { incarnation: self.incarnation(), epoch: self.epoch(), phase: self.phase() }
    }

    /// What [`RecvWindow::handle_message`](crate::RecvWindow::handle_message) needs of this header.
    #[inline]
    pub fn arrival(&self) -> Arrival {
        Arrival { ssn: self.ssn(), incarnation: self.incarnation(), epoch: self.epoch(), flags: self.flags() }
    }

    pub(crate) fn ack_fields(&self) -> (u64, u32) {
        (self.ack_ssn.get(), self.ack_epoch.get())
    }

    /// A copy in which everything is zero that may be another in each transmission: the checksum's part of a header.
    #[inline]
    pub(crate) fn lasting(&self) -> Self {
        let flags = self.flags().intersection(Flags::LARGE).bits();
        let (incarnation, ack_epoch) = (U32::ZERO, U32::ZERO);
        WireHeader { flags, checksum: U32::ZERO, incarnation, ack_epoch, ack_ssn: U64::ZERO, ..*self }
    }

    pub(crate) fn set_checksum(&mut self, checksum: u32) {
        self.flags = (self.flags() | Flags::CHECKED).bits();
        self.checksum = checksum.into();
    }

    #[inline]
    fn blank(kind: Kind, source: Rank, destination: Rank, origin: Origin) -> Self {
        WireHeader {
            magic: Self::MAGIC,
            version: Self::VERSION,
            kind,
            flags: 0,
            checksum: U32::ZERO,
            source: source.0.into(),
            destination: destination.0.into(),
            incarnation: origin.incarnation.0.into(),
            epoch: origin.epoch.0.into(),
            phase: origin.phase.0.into(),
            tag: I32::ZERO,
            comm: U32::ZERO,
            ack_epoch: U32::ZERO,
            len: U64::ZERO,
            ssn: U64::ZERO,
            ack_ssn: U64::ZERO,
        }
    }

    /// Flags and ack are set together so that `HAS_ACK` can't contradict the ack fields.
    #[inline]
    fn set_flags_and_ack(&mut self, flags: Flags, ack: Option<Ack>) {
        let flags = flags.without(Flags::HAS_ACK);
        let has_ack = if ack.is_some() { Flags::HAS_ACK } else { Flags::NONE };
        self.flags = (flags | has_ack).intersection(self.kind.flags_allowed()).bits();
        self.ack_ssn = ack.map_or(0, |ack| ack.ssn.0).into();
        self.ack_epoch = ack.map_or(0, |ack| ack.epoch.0).into();
    }
}

impl fmt::Debug for WireHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireHeader")
            .field("kind", &self.kind)
            .field("flags", &self.flags())
            .field("envelope", &self.envelope())
            .field("origin", &self.origin())
            .field("ssn", &self.ssn())
            .field("ack", &self.ack())
            .finish()
    }
}
