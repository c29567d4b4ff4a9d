//! Reading a checkpoint back: everything is checked before anything is believed.

use std::fs;
use std::path::Path;

use bytes::{Buf, Bytes};
use counterfoil::Epoch;

use super::{
    CHECKPOINT_VERSION, CheckpointError, Counters, END_MAGIC, HEADER_BYTES, Image, LaneImage, MAGIC, RecordImage,
    SECTION_BYTES, Section, TRAILER_BYTES,
};
use crate::matching::Message;

/// Reads the checkpoint at `path`, which must be the one of `rank` of `ranks` that begins `epoch`.
pub(super) fn read(path: &Path, rank: u32, ranks: u32, epoch: Epoch) -> Result<Image, CheckpointError> {
    let bytes = Bytes::from(fs::read(path).map_err(CheckpointError::io("read", path))?);
    let damaged = |offset, what| CheckpointError::Damaged { path: path.to_owned(), offset, what };
    let body_end = check_frame(&bytes).map_err(|fault| match fault {
        Fault::Damaged { offset, what } => damaged(offset, what),
        Fault::Version { found } => CheckpointError::Version { path: path.to_owned(), found },
    })?;
    let mut header = bytes.slice(12..HEADER_BYTES);
    let (its_rank, its_ranks, its_epoch) = (header.get_u32_le(), header.get_u32_le(), header.get_u32_le());
    if (its_rank, its_ranks) != (rank, ranks) {
        return Err(CheckpointError::OtherRank { path: path.to_owned(), rank: its_rank, ranks: its_ranks });
    }
    if its_epoch != epoch.0 {
        return Err(damaged(20, "its epoch is not that of its name"));
    }
    let mut parts = Parts::default();
    let mut offset = HEADER_BYTES;
    while offset < body_end {
        if body_end - offset < SECTION_BYTES {
            return Err(damaged(offset, "the section is cut short"));
        }
        let mut section = bytes.slice(offset..body_end);
        let (kind, len) = (section.get_u32_le(), section.get_u64_le());
        let body = usize::try_from(len).ok().filter(|&len| len <= section.len()).map(|len| section.slice(..len));
        let body = body.ok_or_else(|| damaged(offset, "the section is cut short"))?;
        offset += SECTION_BYTES + body.len();
        parts.take(kind, body).map_err(|what| damaged(offset, what))?;
    }
    let missing = |what| damaged(body_end, what);
    Ok(Image {
        epoch,
        application: parts.application.ok_or_else(|| missing("the program's bytes are missing"))?,
        tables: parts.tables.ok_or_else(|| missing("the protocol's tables are missing"))?,
        counters: parts.counters.ok_or_else(|| missing("the counters are missing"))?,
        lanes: parts.lanes,
        unexpected: parts.unexpected,
    })
}

enum Fault {
    Damaged { offset: usize, what: &'static str },
    Version { found: u32 },
}

/// Checks magic, version, length and checksum; gives the end of the sections.
fn check_frame(bytes: &Bytes) -> Result<usize, Fault> {
    let len = bytes.len();
    if len < HEADER_BYTES + TRAILER_BYTES {
        return Err(Fault::Damaged { offset: len, what: "it is cut short" });
    }
    let mut header = bytes.slice(..HEADER_BYTES);
    if header.get_u64_le() != MAGIC {
        return Err(Fault::Damaged { offset: 0, what: "it does not begin as a checkpoint does" });
    }
    let found = header.get_u32_le();
    if found != CHECKPOINT_VERSION {
        return Err(Fault::Version { found });
    }
    let body_end = len - TRAILER_BYTES;
    let mut trailer = bytes.slice(body_end..);
    if trailer.get_u32_le() != END_MAGIC || trailer.get_u64_le() != len as u64 {
        return Err(Fault::Damaged { offset: body_end, what: "it does not end as a checkpoint does: it is cut short" });
    }
    if trailer.get_u32_le() != crc32c::crc32c(&bytes[..len - 4]) {
        return Err(Fault::Damaged { offset: len - 4, what: "the checksum over all of it is wrong" });
    }
    Ok(body_end)
}

#[derive(Default)]
struct Parts {
    application: Option<Bytes>,
    tables: Option<Bytes>,
    counters: Option<Counters>,
    lanes: Vec<LaneImage>,
    unexpected: Vec<Message>,
}

impl Parts {
    fn take(&mut self, kind: u32, mut body: Bytes) -> Result<(), &'static str> {
        const SHORT: &str = "a section that is too short for what it holds";
        match Section::from_number(kind).ok_or("a section of an unknown kind")? {
            Section::Application => once(&mut self.application, body),
            Section::Tables => once(&mut self.tables, body),
            Section::Counters => {
                let counters = postcard::from_bytes(&body).map_err(|_| "counters that cannot be read")?;
                once(&mut self.counters, counters)
            }
            Section::Lane => {
                let peer = body.try_get_u32_le().map_err(|_| SHORT)?;
                let next_ssn = body.try_get_u64_le().map_err(|_| SHORT)?;
                self.lanes.push(LaneImage { peer, next_ssn, records: Vec::new() });
                Ok(())
            }
            Section::Record => {
                let ssn = body.try_get_u64_le().map_err(|_| SHORT)?;
                let prefix_len = body.try_get_u32_le().map_err(|_| SHORT)? as usize;
                if prefix_len > body.len() {
                    return Err(SHORT);
                }
                let prefix = body.split_to(prefix_len);
                let lane = self.lanes.last_mut().ok_or("a record before any lane")?;
                lane.records.push(RecordImage { ssn, prefix, payload: body });
                Ok(())
            }
            Section::Unexpected => {
                let source = body.try_get_u32_le().map_err(|_| SHORT)?;
                let tag = body.try_get_i32_le().map_err(|_| SHORT)?;
                let comm = body.try_get_u32_le().map_err(|_| SHORT)?;
                let ssn = body.try_get_u64_le().map_err(|_| SHORT)?;
                self.unexpected.push(Message { source, tag, comm, ssn, payload: body });
                Ok(())
            }
        }
    }
}

/// A part that is there twice was not written by this program, whatever the checksum says.
fn once<T>(part: &mut Option<T>, value: T) -> Result<(), &'static str> {
    if part.replace(value).is_some() { Err("a part that is there twice") } else { Ok(()) }
}
