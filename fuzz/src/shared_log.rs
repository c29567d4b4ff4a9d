//! Fuzz body for recovery from shared memory: a replacement recovers modified files of a dead process.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Unstructured;
use counterfoil::{Ack, Epoch, Keep, Log, Options, Phase, Rank, RecoveredLane, Ssn, Tier};
use tempfile::TempDir;

const RANKS: u32 = 4;
/// Files of rank 0: the lanes and the local log.
const FILES: [&str; 2] = ["log.0", "local.0"];
const PAGE: usize = 4096;
/// Number of keys for each entry kind in the local log.
const KEYS: u64 = 20;

/// A replayed record: SSN, prefix length in bytes, prefix and payload.
type Replayed = (u64, usize, Vec<u8>);

/// Contents of a recovered log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    /// Records by destination.
    lanes: Vec<Vec<Replayed>>,
    entries: usize,
    /// Local log entries, by kind and key.
    local: Vec<Option<Vec<u8>>>,
}

/// A file image: its length, and its pages that aren't all zero.
struct Image {
    len: u64,
    pages: Vec<(u64, Vec<u8>)>,
}

struct Original {
    images: [Image; 2],
    contents: Contents,
}

/// Applies changes (kind, place, value).
///
/// Whatever the changes are, the files are refused, or the contents are in order, within the files and the same in a
/// second recovery, and the log can be continued. A single changed byte is refused, or only changes one byte in a body
/// (or, in a lane with gaps, one SSN within its gap): no record is lost, invented or truncated. Body checksums are the
/// sender's concern; local log entries never change.
pub fn shared_log(data: &[u8]) {
    let original = original();
    let dir = scratch();
    for (name, image) in FILES.iter().zip(&original.images) {
        image.write(&dir.path().join(name));
    }
    let changed = change(&mut Unstructured::new(data), dir.path(), &original.images);
    let Some(found) = recover(dir.path()) else {
        assert!(changed > 0, "unmodified files are refused");
        return;
    };
    check_order(&found);
    if changed <= 1 {
        check_one_byte_differs(&found, &original.contents);
    }
    assert_eq!(recover(dir.path()).as_ref(), Some(&found), "a second recovery finds other contents");
    check_continues(dir.path(), &found);
}

/// Applies changes as [`shared_log`] does, including to checked words, and computes the checks again: in file headers,
/// in chunk headers, and in changed commit words.
///
/// Whatever the changes are, the files are refused, or the contents are in order, within the files and the same in a
/// second recovery, and the log can be continued.
pub fn forged_shared_log(data: &[u8]) {
    let original = original();
    let dir = scratch();
    for (name, image) in FILES.iter().zip(&original.images) {
        image.write(&dir.path().join(name));
    }
    let mut input = Unstructured::new(data);
    while !input.is_empty() {
        let Ok(steps) = input.bytes(8.min(input.len())) else { break };
        let (forged, rest) = steps.split_at(4.min(steps.len()));
        if let &[kind, high, low, value] = forged {
            forge(dir.path(), &original.images, kind, u16::from_be_bytes([high, low]), value);
        }
        change(&mut Unstructured::new(rest), dir.path(), &original.images);
    }
    for (name, image) in FILES.iter().zip(&original.images) {
        renew_checks(&dir.path().join(name), image);
    }
    let Some(found) = recover(dir.path()) else { return };
    check_order(&found);
    assert_eq!(recover(dir.path()).as_ref(), Some(&found), "a second recovery finds other contents");
    check_continues(dir.path(), &found);
}

/// Changes a constant word in a chunk's header, or a commit word with its check.
fn forge(dir: &Path, images: &[Image; 2], kind: u8, number: u16, value: u8) {
    let (name, image) = (FILES[usize::from(kind & 1)], &images[usize::from(kind & 1)]);
    let file = OpenOptions::new().read(true).write(true).open(dir.join(name)).expect("a file of ours");
    let chunks: Vec<u64> = image.pages.iter().map(|(at, _)| *at).filter(|at| *at > 0).collect();
    let chunk = chunks[usize::from(number) % chunks.len()];
    if kind & 2 == 0 {
        // Lane, sequence, first SSN, replaced chunk.
        let at = chunk + [16, 24, 32, 48][usize::from(kind >> 2 & 3)];
        let old = u64::from_le_bytes(read(&file, at));
        let numbers = [u64::MAX, 1 << 63, 1 << 62, (1 << 62) - 1, 1 << 32, 0, 1, old ^ 1 << 63];
        let new = match value >> 3 {
            0..=15 => old.wrapping_add_signed(i64::from(value as i8 >> 3) - 7),
            _ => numbers[usize::from(value & 7)],
        };
        write(&file, at, &new.to_le_bytes());
        return;
    }
    let records = commit_words(&file, chunk);
    let Some(at) = records.get(usize::from(value) % records.len().max(1)) else { return };
    let word = u64::from_le_bytes(read(&file, *at));
    let (body, kinds) = (u64::from(number) % 5000, [3, 5, 6, 0, 9]);
    let fields = match kind >> 2 & 3 {
        0 => word & !0xFFFF | body,
        1 => word & !(0xF << 48) | kinds[usize::from(number % 5)] << 48,
        2 => word & !(0xFFF << 36) | (body & 0xFFF) << 36,
        _ => word ^ 1 << (number % 52),
    } & FIELDS;
    let word = if fields == 0 { 0 } else { fields | fields.wrapping_mul(CHECK) & !FIELDS };
    write(&file, *at, &word.to_le_bytes());
}

/// Multiplier for the checks of words and headers.
const CHECK: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bits of a commit word below its check.
const FIELDS: u64 = (1 << 52) - 1;

/// Returns the offsets of the commit words in the chunk at `chunk`, including the one after its last record.
fn commit_words(file: &File, chunk: u64) -> Vec<u64> {
    let mut words = Vec::new();
    let mut at = chunk + 112;
    while words.len() < 200 {
        words.push(at);
        let word = u64::from_le_bytes(read(file, at));
        if !matches!(word >> 48 & 0xF, 3 | 5) {
            break;
        }
        at += (16 + (word & 0xFFFF)).next_multiple_of(16);
    }
    words
}

/// Computes the checks in the file's header and in the chunks' headers again.
fn renew_checks(path: &Path, image: &Image) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file of ours");
    let word = |at: u64| u64::from_le_bytes(read(&file, at));
    let fold = |seed: u64, words: &[u64], turn: u32| {
        words.iter().fold(seed, |sum, word| (sum ^ word).wrapping_mul(CHECK).rotate_left(turn))
    };
    let header: Vec<u64> = (0..8).map(|index| word(index * 8)).collect();
    write(&file, 64, &fold(0, &header, 29).to_le_bytes());
    for (at, page) in image.pages.iter().filter(|(at, _)| *at > 0) {
        let words_of = |word: &dyn Fn(u64) -> u64| [16, 24, 32, 48].map(word);
        let unchanged = words_of(&|at| u64::from_le_bytes(page[at as usize..][..8].try_into().expect("eight bytes")));
        let check = u64::from_le_bytes(page[56..64].try_into().expect("eight bytes"));
        // The check covers the chunk's class, too; a page that doesn't begin a chunk has no matching check.
        let Some(class) = (0..32).find(|class| fold(0xC0F0 + class, &unchanged, 31) == check) else { continue };
        write(&file, at + 56, &fold(0xC0F0 + class, &words_of(&|offset| word(at + offset)), 31).to_le_bytes());
    }
}

/// Applies the changes in the input; returns the number of differing bytes.
fn change(input: &mut Unstructured<'_>, dir: &Path, images: &[Image; 2]) -> usize {
    let files =
        FILES.map(|name| OpenOptions::new().read(true).write(true).open(dir.join(name)).expect("a file of ours"));
    let mut changed = 0;
    while let Ok(&[kind, high, low, value]) = input.bytes(4) {
        let (file, image) = (&files[usize::from(kind & 1)], &images[usize::from(kind & 1)]);
        let at = image.place(u16::from_be_bytes([high, low]));
        changed += match kind >> 1 & 7 {
            0 | 1 => write(file, at, &[value]),
            2 | 3 => write(file, at, &[read::<1>(file, at)[0] ^ value]),
            4 => write(file, at & !7, &[value; 8]),
            // A valid word at another place.
            5 => write(file, at & !7, &read::<8>(file, image.place(u16::from(value) * 257) & !7)),
            6 => write(file, at & !7, &read::<8>(file, at & !7).map(|byte| byte ^ value)),
            _ => {
                // Truncated or extended.
                let len = if value < 128 { at } else { image.len + u64::from(value) };
                file.set_len(len).expect("a length");
                2
            }
        };
    }
    changed
}

fn read<const N: usize>(file: &File, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    // Bytes after the end of a truncated file read as zeros.
    let _ = file.read_at(&mut bytes, at).expect("a readable file");
    bytes
}

fn write<const N: usize>(file: &File, at: u64, bytes: &[u8; N]) -> usize {
    let before = read::<N>(file, at);
    file.write_all_at(bytes, at).expect("room for some bytes");
    before.iter().zip(bytes).filter(|(a, b)| a != b).count()
}

impl Image {
    fn of(path: &Path) -> Image {
        let bytes = std::fs::read(path).expect("a file of ours");
        let pages = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|&byte| byte != 0));
        Image {
            len: bytes.len() as u64,
            pages: pages.map(|(number, page)| ((number * PAGE) as u64, page.to_vec())).collect(),
        }
    }

    fn write(&self, path: &Path) {
        // Created as the log creates it: the owner's alone.
        let file = counterfoil_log_core::create_private_file(path).expect("a private file");
        file.set_len(self.len).expect("a length");
        for (at, page) in &self.pages {
            file.write_all_at(page, *at).expect("room for the pages");
        }
    }

    /// A number's offset in the file: always in used pages, so that changes matter.
    fn place(&self, number: u16) -> u64 {
        let at = usize::from(number) % (self.pages.len() * PAGE);
        self.pages[at / PAGE].0 + (at % PAGE) as u64
    }
}

fn scratch() -> TempDir {
    let shm = PathBuf::from("/dev/shm");
    let root = if shm.is_dir() { shm } else { std::env::temp_dir() };
    let private = Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().prefix("counterfoil-fuzz-").permissions(private).tempdir_in(root);
    made.expect("a private directory")
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new(Rank(0), RANKS);
    (options.tier, options.dir) = (Tier::ProcessCrashSafe, Some(dir.to_owned()));
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (96 << 10, 2 * PAGE, 0);
    (options.local_bytes_max, options.keep) = (16 << 10, Keep::Checkpoint);
    options
}

/// Recovers the log as a replacement does; `None` if the files are refused.
fn recover(dir: &Path) -> Option<Contents> {
    let (mut log, recovered) = Log::recover(options(dir)).ok()?;
    for &RecoveredLane { peer, kept_from, last, .. } in &recovered.lanes {
        assert!(peer.0 < RANKS && kept_from <= last.next() && log.next_ssn(peer) == last.next());
    }
    Some(contents(&mut log, recovered.local_entries))
}

fn contents(log: &mut Log, entries: usize) -> Contents {
    let lanes = (0..RANKS).map(|peer| replayed(log, Rank(peer))).collect();
    let local = (1..=2).flat_map(|kind| (0..KEYS).map(move |key| (kind, key)));
    let local = local.map(|(kind, key)| log.local().get(kind, key).map(|entry| entry.bytes)).collect();
    Contents { lanes, entries, local }
}

fn replayed(log: &mut Log, peer: Rank) -> Vec<Replayed> {
    let from = log.kept_from(peer);
    let mut cursor = log.cursor(peer, from).expect("kept records can be read");
    let mut replayed = Vec::new();
    while let Some(record) = cursor.peek().expect("memory can be read") {
        replayed.push((record.ssn().0, record.prefix().len(), record.wire().to_vec()));
        cursor.advance();
    }
    replayed
}

fn check_order(found: &Contents) {
    for lane in &found.lanes {
        assert!(lane.is_sorted_by(|(a, ..), (b, ..)| a < b), "SSNs don't increase: {:?}", ssns(lane));
        assert!(lane.iter().all(|(ssn, ..)| (1..Ssn::MAX.0).contains(ssn)));
        let bytes: usize = lane.iter().map(|(.., wire)| 16 + wire.len()).sum();
        assert!(bytes <= 96 << 10, "more than the budget");
    }
    assert!(found.entries <= 16 << 10);
}

fn has_gaps(lane: &[Replayed]) -> bool {
    lane.windows(2).any(|pair| pair[0].0 + 1 != pair[1].0)
}

fn ssns(lane: &[Replayed]) -> Vec<u64> {
    lane.iter().map(|(ssn, ..)| *ssn).collect()
}

fn check_one_byte_differs(found: &Contents, original: &Contents) {
    let mut differ = 0;
    for (found, original) in found.lanes.iter().zip(&original.lanes) {
        let framing =
            |lane: &[Replayed]| lane.iter().map(|(_, prefix, wire)| (*prefix, wire.len())).collect::<Vec<_>>();
        assert_eq!(framing(found), framing(original));
        if has_gaps(original) {
            // An SSN may be any number between its neighbours: nothing records the missing ones.
            differ += ssns(found).iter().zip(ssns(original)).filter(|(a, b)| **a != *b).count();
        } else {
            assert_eq!(ssns(found), ssns(original));
        }
        let bytes = |lane: &[Replayed]| lane.iter().flat_map(|(.., wire)| wire.clone()).collect::<Vec<u8>>();
        differ += bytes(found).iter().zip(bytes(original)).filter(|(a, b)| **a != *b).count();
    }
    assert!(differ <= 1, "one byte was changed, but {differ} differ");
    // Each entry has a checksum, which covers its kind and key, too.
    assert_eq!((found.entries, &found.local), (original.entries, &original.local));
}

/// Checks that a replacement can append one more message to every lane and one more entry to the local log, and its own
/// replacement recovers them.
fn check_continues(dir: &Path, found: &Contents) {
    let (mut log, _) = Log::recover(options(dir)).expect("it was recovered before");
    let mut sent = Vec::new();
    for peer in (0..RANKS).map(Rank) {
        let next = log.next_ssn(peer);
        // A changed number can leave a lane at the last SSN; the log may also have been full before.
        let Ok(mut claim) = log.try_claim(peer, 8, 40) else { continue };
        claim.prefix_mut().fill(1);
        claim.payload_mut().fill(2);
        assert_eq!(claim.commit(), next);
        sent.push((peer, next));
    }
    let appended = log.local().append(7, 7, b"one more").is_ok();
    drop(log);
    let again = recover(dir).expect("a log accepts its own files");
    for (peer, ssn) in sent {
        let (before, after) = (&found.lanes[peer.index()], &again.lanes[peer.index()]);
        assert_eq!(&after[..after.len() - 1], &before[..]);
        assert_eq!(after.last(), Some(&(ssn.0, 8, [vec![1; 8], vec![2; 40]].concat())));
    }
    assert_eq!(again.entries, found.entries + usize::from(appended));
}

/// Returns the unmodified files: created once, with all kinds of contents.
fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let dir = scratch();
        let mut log = Log::create(options(dir.path())).expect("a log");
        write_everything(&mut log);
        let entries = log.local().len();
        let contents = contents(&mut log, entries);
        drop(log);
        Original { images: FILES.map(|name| Image::of(&dir.path().join(name))), contents }
    })
}

fn write_everything(log: &mut Log) {
    // Lane 0: one empty record. Lane 1: several chunks; a checkpoint covers the first ones and a part of the next,
    // which is relocated; pads.
    log.try_claim(Rank(0), 0, 0).expect("room").commit();
    for number in 0..160_u8 {
        let mut claim = log.try_claim(Rank(1), 8, usize::from(number % 90) + 30).expect("room");
        claim.prefix_mut().fill(number);
        claim.payload_mut().fill(number | 1);
        claim.commit();
        if number % 30 == 7 {
            drop(log.try_claim(Rank(1), 0, 100).expect("room"));
        }
    }
    log.acknowledge(Rank(1), Ack { ssn: Ssn(150), epoch: Epoch(1) }, Phase(1)).expect("sent");
    log.receiver_covered(Rank(1), Epoch(2), Ssn(85)).expect("sent");
    assert!(log.collect().relocated > 0, "the corpus has places in a relocated chunk");
    // Lane 2: imported with gaps, then appended to; a record larger than a chunk.
    for number in 1..20_u64 {
        log.import(Rank(2), Ssn(number * 5), &[3; 8], &[number as u8; 50]).expect("room");
    }
    let mut claim = log.try_claim(Rank(2), 0, 3 * PAGE).expect("room");
    claim.payload_mut().fill(9);
    claim.commit();
    log.try_claim(Rank(2), 0, 33).expect("room").commit();
    for key in 0..KEYS {
        log.local().append(1, key, &key.to_le_bytes()).expect("room");
        log.local().append(2, key, &[key as u8; 30]).expect("room");
    }
    // A claim still being written when its process died.
    let mut claim = log.try_claim(Rank(1), 0, 64).expect("room");
    claim.payload_mut().fill(0xEE);
    std::mem::forget(claim);
}
