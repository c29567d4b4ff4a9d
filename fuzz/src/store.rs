//! Fuzz body for the store: files with changed bytes, with and without recomputed checksums, are opened, scanned and
//! repaired.

mod checksums;
mod original;

use arbitrary::Unstructured;
use counterfoil::{Builder, Rank, Ssn};
use counterfoil_log_core::{Epoch, Record};
use counterfoil_log_io::{
    Access, Block, BlockBuffer, CheckpointImage, LaneImage, RecordSource, Repair, Store, StoreError, repair, scan,
};
use counterfoil_test_support::SimulatedDisk;
use original::{LANE, log_options, options, original};

const PAGE: usize = 4096;
/// Bytes at the start of a page in which half the changes are: headers, and the tables after them.
const HEADER: usize = 256;

/// Contents of an opened store: its newest checkpoint, and SSN and bytes of each record.
type Contents = (CheckpointImage, Vec<(u64, Vec<u8>)>);

/// Applies changes (kind, place, value).
///
/// If the first byte is odd, all checksums are recomputed afterwards, to reach the numbers covered by them.
///
/// Whatever the changes are, opening, scanning and repairing return, opened contents are in order, and a log recovered
/// from them can be read to its end. Without new checksums the store is refused, or has its contents, except perhaps
/// for the last local log entries; and after a repair it can be opened and has nothing to repair. A store that can be
/// opened for writing takes another checkpoint.
pub fn store(data: &[u8]) {
    let (&first, steps) = data.split_first().unwrap_or((&0, &[]));
    let is_forged = first & 1 == 1;
    let (whole, contents) = original();
    let disk = whole.copy();
    let changed = change(&mut Unstructured::new(steps), &disk);
    if is_forged {
        checksums::renew(&disk);
    }
    let opened = read_all(&disk);
    match &opened {
        Ok(found) if !is_forged || !changed => check_same(found, contents),
        Ok(found) => check_order(found),
        Err(error) => assert!(changed, "an unchanged store is refused: {error}"),
    }
    let report = scan(&mut disk.clone(), &mut |done, total| assert!(done <= total));
    if !is_forged {
        let is_whole = report.is_ok_and(|report| report.is_whole());
        assert_eq!(is_whole, opened.is_ok(), "a scan and an opening differ: {:?}", opened.err());
    }
    check_repair(&disk, is_forged);
    check_log(&disk);
    check_continues(&disk, is_forged);
}

/// Applies the changes in the input.
///
/// Returns `true` if a byte differs.
fn change(input: &mut Unstructured<'_>, disk: &SimulatedDisk) -> bool {
    let names = disk.names();
    let before: Vec<Vec<u8>> = names.iter().map(|name| disk.bytes(name).unwrap_or_default()).collect();
    let mut files = before.clone();
    while let Ok(&[kind, high, low, value]) = input.bytes(4) {
        let index = usize::from(kind & 7) % files.len();
        let number = u16::from_be_bytes([high, low]);
        let other = place(&before[index], u16::from(value) * 257);
        let file = &mut files[index];
        let Some(at) = place(file, number) else { continue };
        let word = at & !3;
        match kind >> 3 & 7 {
            0 => file[at] = value,
            1 => file[at] ^= value,
            2 => set(file, word, &[value; 8]),
            // A valid word at another place.
            3 => {
                let from = other.unwrap_or(0) & !3;
                let bytes =
                    before[index].get(from..from + 8).map_or([0; 8], |bytes| bytes.try_into().expect("eight bytes"));
                set(file, word, &bytes);
            }
            4 => {
                let old = file
                    .get(word..word + 4)
                    .map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
                set(file, word, &old.wrapping_add_signed(i32::from(value as i8)).to_le_bytes());
            }
            5 => {
                let numbers = [u64::MAX, 1 << 63, 1 << 62, u64::from(u32::MAX), 1 << 31, 1 << 24, 4096, 0];
                set(file, word, &numbers[usize::from(value & 7)].to_le_bytes()[..if value & 8 == 0 { 8 } else { 4 }]);
            }
            6 => file.resize(if value < 128 { at } else { file.len() + usize::from(value - 128) * 64 }, 0),
            // The bytes of another file.
            _ => files[index] = before[usize::from(value) % before.len()].clone(),
        }
    }
    names.iter().zip(&files).for_each(|(name, bytes)| disk.set_bytes(name, bytes));
    files != before
}

/// Returns the place of a number in a file, among its pages that aren't all zero; `None` in a file of zeros.
fn place(file: &[u8], number: u16) -> Option<usize> {
    let used: Vec<usize> =
        (0..file.len()).step_by(PAGE).filter(|&at| file[at..].iter().take(PAGE).any(|&byte| byte != 0)).collect();
    let number = usize::from(number);
    let page = used.get((number / PAGE * 7 + number % 5) % used.len().max(1))?;
    let offset = if number & 1 == 0 { number / 2 % HEADER } else { number % PAGE };
    Some((page + offset).min(file.len() - 1))
}

fn set(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = file.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Opens the store for reading, and reads all its contents.
fn read_all(disk: &SimulatedDisk) -> Result<Contents, StoreError> {
    let (store, image) = Store::open(Box::new(disk.clone()), options(), Access::ReadOnly)?;
    let image = image.unwrap_or_default();
    let (mut records, mut buffer) = (Vec::new(), BlockBuffer::default());
    for block in image.lanes.iter().flat_map(|lane| &lane.blocks) {
        store.reader().read(block, &mut buffer)?;
        let before = records.len();
        records.extend(buffer.records().map(|record| (record.ssn().0, record.wire().to_vec())));
        let of_block = &records[before..];
        assert!(of_block.is_sorted_by(|(a, _), (b, _)| a < b), "SSNs of a block don't rise");
        assert!(of_block.iter().all(|(ssn, _)| (block.first.0..=block.last.0).contains(ssn)));
        assert_eq!(of_block.len(), block.records as usize);
    }
    Ok((image, records))
}

/// The newest local log entries follow the checkpoint: their damage looks like a write interrupted by a power cut.
fn check_same((image, records): &Contents, (expected, expected_records): &Contents) {
    assert!(expected.local.starts_with(&image.local), "{:?}", image.local);
    let same = CheckpointImage { local: expected.local.clone(), ..image.clone() };
    assert_eq!(&same, expected);
    assert_eq!(records, expected_records);
}

fn check_order((image, _): &Contents) {
    assert!(image.local.is_sorted_by(|a, b| a.ssn < b.ssn), "the local log's entries are out of order");
}

fn check_repair(disk: &SimulatedDisk, is_forged: bool) {
    let disk = disk.copy();
    let planned = repair(&mut disk.clone(), true);
    let done = repair(&mut disk.clone(), false);
    match (planned, done) {
        (Ok(planned), Ok(done)) => {
            assert_eq!(planned, done, "a repair does something else than it says");
            let again = repair(&mut disk.clone(), false);
            if !is_forged {
                assert_eq!(again.expect("a repaired store"), Vec::<Repair>::new());
                read_all(&disk).expect("a repaired store can be opened");
            }
        }
        (Err(_), Err(_)) => {}
        (planned, done) => panic!("a dry run says {planned:?}, and the repair {done:?}"),
    }
}

/// Recovers a log from the store, and replays its contents.
fn check_log(disk: &SimulatedDisk) {
    let Ok((mut log, _)) = Builder::new(log_options(), Box::new(disk.copy())).seed(7).recover() else { return };
    for peer in (0..3).map(Rank) {
        let from = log.kept_from(peer);
        let Ok(mut cursor) = log.cursor(peer, from) else { continue };
        let mut before = Ssn::ZERO;
        while let Ok(Some(record)) = cursor.read() {
            assert!(record.ssn() > before && record.ssn() >= from, "{} after {before}", record.ssn());
            before = record.ssn();
        }
        assert!(before < log.next_ssn(peer), "{before} was never sent");
    }
}

struct One(Option<Ssn>);

impl RecordSource for One {
    fn next(&mut self) -> Option<Record<'_>> {
        self.0.take().and_then(|ssn| Record::new(ssn, b"one more", 3))
    }
}

/// Opens the store for writing, takes another checkpoint, and opens the new one.
fn check_continues(disk: &SimulatedDisk, is_forged: bool) {
    let disk = disk.copy();
    let Ok((mut store, image)) = Store::open(Box::new(disk.clone()), options(), Access::ReadWrite) else { return };
    let image = image.unwrap_or_default();
    let Some(epoch) = image.epoch.0.checked_add(1).map(Epoch) else { return };
    let mut blocks: Vec<Block> = Vec::new();
    let next = image.lanes.iter().flat_map(|lane| &lane.blocks).map(|block| block.last).max().unwrap_or(Ssn::ZERO);
    let Some(ssn) = next.0.checked_add(1).map(Ssn) else { return };
    let appended = store.append(LANE, &mut One(Some(ssn)), &mut blocks).and_then(|()| {
        let lane = LaneImage {
            peer: LANE,
            next: Ssn(ssn.0.saturating_add(1)),
            acked: Ssn::ZERO,
            covered: Ssn::ZERO,
            runs: Vec::new(),
            blocks: blocks.clone(),
        };
        store.checkpoint(&CheckpointImage { epoch, lanes: vec![lane], ..CheckpointImage::default() })
    });
    drop(store);
    match appended {
        Ok(()) => {
            let opened = read_all(&disk);
            match opened {
                Ok((image, records)) => {
                    assert_eq!(image.epoch, epoch);
                    let is_there = records.iter().any(|record| *record == (ssn.0, b"one more".to_vec()));
                    assert!(is_there || image.lanes.iter().any(|lane| lane.covered >= ssn), "{ssn} is lost");
                }
                Err(error) => panic!("a store that it wrote is refused: {error}"),
            }
        }
        Err(error) => assert!(is_forged, "a store that was opened takes no checkpoint: {error}"),
    }
}
