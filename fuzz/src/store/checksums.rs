//! A store's file checksums, computed again after a change.
//!
//! `docs/book/src/reference/formats.md` has the places.

use counterfoil_log_core::{crc32c, crc32c_append};
use counterfoil_test_support::SimulatedDisk;

use super::PAGE;

/// Recomputes every checksum lying inside its file.
pub(super) fn renew(disk: &SimulatedDisk) {
    let mut checkpoints = Vec::new();
    for name in disk.names() {
        let mut bytes = disk.bytes(&name).unwrap_or_default();
        if let Some(number) = name.strip_prefix("checkpoint-") {
            renew_checkpoint(&mut bytes);
            checkpoints.push((number.parse::<u32>().unwrap_or(0), word(&bytes, 148)));
        } else if name.starts_with("segment-") {
            renew_segment(&mut bytes);
        }
        disk.set_bytes(&name, &bytes);
    }
    if let Some(mut bytes) = disk.bytes("manifest") {
        let half = bytes.len() / 2;
        let (first, second) = bytes.split_at_mut(half);
        renew_slot(first, &checkpoints);
        renew_slot(second, &checkpoints);
        disk.set_bytes("manifest", &bytes);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at.saturating_add(4)).map_or(0, |word| u32::from_le_bytes(word.try_into().expect("four bytes")))
}

fn long(bytes: &[u8], at: usize) -> usize {
    (u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32) as usize
}

fn range(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

fn set(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn renew_slot(slot: &mut [u8], checkpoints: &[(u32, u32)]) {
    let (kept, floors) = (word(slot, 64) as usize, word(slot, 68) as usize);
    for at in (0..kept.min(64)).map(|index| 80 + index * 24) {
        if let Some((_, crc)) = checkpoints.iter().find(|(number, _)| *number == word(slot, at)) {
            set(slot, at + 16, *crc);
        }
    }
    let entries = kept.saturating_mul(24).saturating_add(floors.saturating_mul(16));
    let crc = range(slot, 0, 76).zip(range(slot, 80, entries)).map(|(head, rest)| crc32c_append(crc32c(head), rest));
    if let Some(crc) = crc {
        set(slot, 76, crc);
    }
}

fn renew_checkpoint(bytes: &mut [u8]) {
    let mut at = PAGE;
    for part in (0..5).map(|index| 64 + index * 16) {
        let len = long(bytes, part);
        if let Some(crc) = range(bytes, at, len).map(crc32c) {
            set(bytes, part + 8, crc);
        }
        at = at.saturating_add(len);
    }
    if let Some(crc) = range(bytes, 0, 148).map(crc32c) {
        set(bytes, 148, crc);
    }
}

fn renew_segment(bytes: &mut [u8]) {
    if let Some(crc) = range(bytes, 0, 60).map(crc32c) {
        set(bytes, 60, crc);
    }
    for at in (PAGE..bytes.len()).step_by(PAGE) {
        if range(bytes, at, 4) != Some(b"CFbk") {
            continue;
        }
        let has_chunks = bytes.get(at + 6).is_some_and(|flags| flags & 4 != 0);
        let crc =
            if has_chunks { crc_of_chunks(bytes, at) } else { range(bytes, at + 96, long(bytes, at + 72)).map(crc32c) };
        if let Some(crc) = crc {
            set(bytes, at + 80, crc);
        }
        if let Some(crc) = range(bytes, at, 92).map(crc32c) {
            set(bytes, at + 92, crc);
        }
    }
}

/// Returns the checksum over a table and the records named by it; `None` if one is outside the file.
fn crc_of_chunks(bytes: &[u8], block: usize) -> Option<u32> {
    let table = range(bytes, block + 96, (word(bytes, block + 84) as usize).saturating_mul(32))?;
    let (mut crc, mut chunk) = (crc32c(table), block + PAGE);
    for entry in (0..table.len()).step_by(32) {
        let (len, from, records) = (word(table, entry + 16), word(table, entry + 20), word(table, entry + 24));
        crc = crc32c_append(crc, range(bytes, chunk.checked_add(from as usize)?, records as usize)?);
        chunk = chunk.checked_add(len as usize)?;
    }
    Some(crc)
}
