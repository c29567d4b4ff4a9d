//! The wire header.

use std::fmt;

use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::parse::{self, HeaderError};
use crate::{Ack, Arrival, Flags, Kind, Stamp};

/// The header before a payload on the wire: 64 bytes, little-endian, no padding, any alignment.
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
/// The checksum covers the payload and the fields left alone by a retransmission: see [`seal`](WireHeader::seal).
///
/// Guermouche 2011 (Figure 3, line 17) sends epoch and phase with a message; here the SSN replaces its date. A header
/// from [`parse`](WireHeader::parse), or from a constructor given values within their limits, is valid: every getter
/// returns a value within its limits.
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

/// Sender state, present in every header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The sender's incarnation.
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
    /// Header length in bytes.
    pub const LEN: usize = size_of::<WireHeader>();
    /// First byte in every header.
    pub const MAGIC: u8 = 0xCF;
    /// Format version read and written by this crate.
    pub const VERSION: u8 = 1;

    /// Builds the header of an application message.
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

    /// Builds an explicit acknowledgement.
    pub fn ack_only(source: Rank, destination: Rank, origin: Origin, ack: Ack) -> Self {
        let mut header = Self::blank(Kind::Ack, source, destination, origin);
        header.set_flags_and_ack(Flags::NONE, Some(ack));
        header
    }

    /// Builds a request to acknowledge up to `sent`, the last SSN assigned on this channel.
    pub fn ack_request(source: Rank, destination: Rank, origin: Origin, sent: Ssn, ack: Option<Ack>) -> Self {
        let mut header = Self::blank(Kind::AckRequest, source, destination, origin);
        header.ssn = sent.0.into();
        header.set_flags_and_ack(Flags::NONE, ack);
        header
    }

    /// Builds the header for a control message with a body of `len` bytes; `tag` is its type within the protocol.
    pub fn control(source: Rank, destination: Rank, origin: Origin, tag: i32, len: u64, ack: Option<Ack>) -> Self {
        let mut header = Self::blank(Kind::Control, source, destination, origin);
        header.tag = tag.into();
        header.len = len.into();
        header.set_flags_and_ack(Flags::NONE, ack);
        header
    }

    /// Returns a copy for retransmitting a logged message.
    ///
    /// SSN, epoch, phase, envelope and checksum belong to the message and stay. `incarnation` is the current sender's,
    /// `ack` the newest one for that peer. `flags` replace all flags but [`Flags::LARGE`] and [`Flags::CHECKED`], which
    /// belong to the message, and [`Flags::HAS_ACK`], which follows from `ack`.
    ///
    /// Without this a replay would carry an outdated ack, and a replay of the predecessor's log would be discarded as
    /// coming from a dead incarnation.
    #[must_use]
    pub fn refreshed(&self, incarnation: Incarnation, ack: Option<Ack>, flags: Flags) -> Self {
        let mut header = *self;
        header.incarnation = incarnation.0.into();
        let kept = self.flags().intersection(Flags::INVARIANT);
        header.set_flags_and_ack(flags.without(Flags::INVARIANT) | kept, ack);
        header
    }

    /// Reads the header at the start of `bytes`; the rest isn't looked at.
    ///
    /// # Errors
    /// [`HeaderError`] names the wrong byte and the expected value.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<&WireHeader, HeaderError> {
        Self::split(bytes).map(|(header, _)| header)
    }

    /// Splits `bytes` into the header at their beginning and the rest.
    ///
    /// # Errors
    /// Like [`parse`](WireHeader::parse).
    #[inline]
    pub fn split(bytes: &[u8]) -> Result<(&WireHeader, &[u8]), HeaderError> {
        parse::check_start(bytes)?;
        let (header, rest) = WireHeader::try_ref_from_prefix(bytes)
            .map_err(|_| HeaderError::TooShort { len: bytes.len(), needed: Self::LEN })?;
        parse::check_fields(header)?;
        Ok((header, rest))
    }

    /// Returns the wire representation.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// Returns the kind of the message after this header.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the flags.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_bits(self.flags).unwrap_or(Flags::NONE)
    }

    /// Returns the source rank.
    #[inline]
    pub fn source(&self) -> Rank {
        Rank(self.source.get())
    }

    /// Returns the destination rank.
    #[inline]
    pub fn destination(&self) -> Rank {
        Rank(self.destination.get())
    }

    /// Returns the sending incarnation of the source.
    #[inline]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.get())
    }

    /// Returns the epoch in which the source sent this message (for a replay: sent it first).
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.get())
    }

    /// Returns the phase in which the source sent this message (for a replay: sent it first).
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase(self.phase.get())
    }

    /// Returns the tag; for a control message, its type within the protocol.
    #[inline]
    pub fn tag(&self) -> i32 {
        self.tag.get()
    }

    /// Returns the communicator's context number.
    #[inline]
    pub fn comm(&self) -> u32 {
        self.comm.get()
    }

    /// Returns the payload length in bytes.
    #[inline]
    pub fn payload_len(&self) -> u64 {
        self.len.get()
    }

    /// Returns the SSN of a message, the last assigned SSN in a [`Kind::AckRequest`], otherwise [`Ssn::ZERO`].
    #[inline]
    pub fn ssn(&self) -> Ssn {
        Ssn(self.ssn.get())
    }

    /// Returns the acknowledgement for the other direction, if there is one.
    #[inline]
    pub fn ack(&self) -> Option<Ack> {
        self.flags()
            .contains(Flags::HAS_ACK)
            .then(|| Ack { ssn: Ssn(self.ack_ssn.get()), epoch: Epoch(self.ack_epoch.get()) })
    }

    /// Returns the checksum written by [`seal`](WireHeader::seal); 0 without [`Flags::CHECKED`].
    #[inline]
    pub fn checksum(&self) -> u32 {
        self.checksum.get()
    }

    /// Returns the envelope for MPI matching.
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

    /// Returns the sender's state.
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin { incarnation: self.incarnation(), epoch: self.epoch(), phase: self.phase() }
    }

    /// Extracts the input for [`RecvWindow::handle_message`](crate::RecvWindow::handle_message).
    #[inline]
    pub fn arrival(&self) -> Arrival {
        Arrival { ssn: self.ssn(), incarnation: self.incarnation(), epoch: self.epoch(), flags: self.flags() }
    }

    pub(crate) fn ack_fields(&self) -> (u64, u32) {
        (self.ack_ssn.get(), self.ack_epoch.get())
    }

    /// Returns a copy with all retransmission-dependent fields zeroed, as covered by the checksum.
    #[inline]
    pub(crate) fn invariant_part(&self) -> Self {
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

    /// Sets flags and ack together, so that `HAS_ACK` can't contradict the ack fields.
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
