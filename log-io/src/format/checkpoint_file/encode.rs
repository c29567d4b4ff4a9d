//! Checkpoint file encoding.

use counterfoil_log_core::{Disposition, crc32c};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::{
    BlockEntry, CHECKPOINT_HEADER_BYTES, Context, CoveredSegment, Header, LaneEntry, LocalEntry, MAGIC, PARTS, Part,
    RunEntry, SegmentEntry, TableEntry,
};
use crate::format::FORMAT_VERSION;
use crate::format::fields::Malformed;
use crate::format::manifest::KeptCheckpoint;
use crate::{CheckpointImage, LaneImage, LocalImage, PAGE_BYTES};

/// An encoded checkpoint file.
#[derive(Debug)]
pub(crate) struct Encoded<'a> {
    header: Vec<u8>,
    parts: [Vec<u8>; PARTS - 1],
    application: &'a [u8],
    pub(crate) kept: KeptCheckpoint,
}

impl Encoded<'_> {
    /// Returns the file's bytes in order, without the final padding.
    pub(crate) fn pieces(&self) -> Vec<&[u8]> {
        let mut pieces = vec![self.header.as_slice()];
        pieces.extend(self.parts.iter().map(Vec::as_slice));
        pieces.push(self.application);
        pieces
    }

    /// Parses the parts as a reader will.
    ///
    /// A checkpoint refused here must not be written: no recovery could read it.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        super::parse(self.parts.each_ref().map(Vec::as_slice)).map(drop)
    }
}

/// Encodes a checkpoint.
pub(crate) fn encode<'a>(image: &'a CheckpointImage, context: &Context) -> Encoded<'a> {
    let parts = [
        lanes_part(&image.lanes),
        segments_part(&context.segments),
        local_part(&image.local),
        tables_part(&image.tables),
    ];
    let application = image.application.as_slice();
    let part = |bytes: &[u8]| Part { bytes: (bytes.len() as u64).into(), crc: crc32c(bytes).into(), zero: U32::ZERO };
    let [lanes, segments, local, tables] = parts.each_ref().map(|bytes| part(bytes));
    let mut header = Header {
        magic: MAGIC.into(),
        version: FORMAT_VERSION.into(),
        number: context.number.into(),
        store: context.store.into(),
        session: context.session.into(),
        rank: context.rank.0.into(),
        ranks: context.ranks.into(),
        epoch: image.epoch.0.into(),
        written_segment: context.written.segment.into(),
        written_end: context.written.end.into(),
        next_number: context.written.next_number.into(),
        zero: U32::ZERO,
        parts: [lanes, segments, local, tables, part(application)],
        zero_too: U32::ZERO,
        crc: U32::ZERO,
    };
    let crc = crc32c(&header.as_bytes()[..CHECKPOINT_HEADER_BYTES - 4]);
    header.crc = crc.into();
    let mut page = header.as_bytes().to_vec();
    page.resize(PAGE_BYTES, 0);
    let bytes = PAGE_BYTES + parts.iter().map(Vec::len).sum::<usize>() + application.len();
    let bytes = bytes.next_multiple_of(PAGE_BYTES) as u64;
    let kept = KeptCheckpoint { number: context.number, epoch: image.epoch, bytes, header_crc: crc };
    Encoded { header: page, parts, application, kept }
}

fn lanes_part(lanes: &[LaneImage]) -> Vec<u8> {
    let mut part = Vec::new();
    for lane in lanes {
        let entry = LaneEntry {
            peer: lane.peer.0.into(),
            runs: (lane.runs.len() as u32).into(),
            blocks: (lane.blocks.len() as u32).into(),
            zero: U32::ZERO,
            next: lane.next.0.into(),
            acked: lane.acked.0.into(),
            covered: lane.covered.0.into(),
        };
        part.extend_from_slice(entry.as_bytes());
        for run in &lane.runs {
            let (retained, epoch, phase) = match run.disposition {
                Disposition::Release => (0, 0, 0),
                Disposition::Retain { epoch, phase } => (1, epoch.0, phase.0),
            };
            let entry = RunEntry {
                first: run.first.0.into(),
                last: run.last.0.into(),
                retained: U32::new(retained),
                epoch: epoch.into(),
                phase: phase.into(),
                zero: U32::ZERO,
            };
            part.extend_from_slice(entry.as_bytes());
        }
        for block in &lane.blocks {
            let entry = BlockEntry {
                first: block.first.0.into(),
                last: block.last.0.into(),
                at: block.at.into(),
                disk_bytes: block.disk_bytes.into(),
                raw_bytes: block.raw_bytes.into(),
                segment: block.segment.into(),
                records: block.records.into(),
            };
            part.extend_from_slice(entry.as_bytes());
        }
    }
    part
}

fn segments_part(segments: &[CoveredSegment]) -> Vec<u8> {
    let mut part = Vec::new();
    for segment in segments {
        let entry = SegmentEntry {
            segment: segment.segment.into(),
            zero: U32::ZERO,
            generation: segment.generation.into(),
            covered: segment.covered.into(),
        };
        part.extend_from_slice(entry.as_bytes());
    }
    part
}

fn local_part(local: &[LocalImage]) -> Vec<u8> {
    let mut part = Vec::new();
    for entry in local {
        let header = LocalEntry {
            ssn: entry.ssn.0.into(),
            key: entry.key.into(),
            bytes: (entry.bytes.len() as u64).into(),
            kind: u32::from(entry.kind).into(),
            zero: U32::ZERO,
        };
        part.extend_from_slice(header.as_bytes());
        part.extend_from_slice(&entry.bytes);
    }
    part
}

fn tables_part(tables: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut part = Vec::new();
    for (name, bytes) in tables {
        let header =
            TableEntry { name_bytes: (name.len() as u32).into(), zero: U32::ZERO, bytes: (bytes.len() as u64).into() };
        part.extend_from_slice(header.as_bytes());
        part.extend_from_slice(name.as_bytes());
        part.extend_from_slice(bytes);
    }
    part
}
