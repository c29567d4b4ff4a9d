//! The files of a dead process with bytes changed, recovered by its replacement.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Unstructured;
use counterfoil::ack::Ack;
use counterfoil::{Epoch, Keep, Log, Options, Phase, Rank, Ssn, Tier};
use tempfile::TempDir;

const RANKS: u32 = 4;
/// The files of rank 0: the lanes and the local log.
const FILES: [&str; 2] = ["log.0", "local.0"];
const PAGE: usize = 4096;
/// Keys of each kind of entry in the local log.
const KEYS: u64 = 20;

/// A record as a replay shows it: SSN, bytes of prefix, prefix and payload.
type Shown = (u64, usize, Vec<u8>);

/// What a replacement finds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    /// For each rank: the records to it.
    lanes: Vec<Vec<Shown>>,
    entries: usize,
    /// Bytes of the entries of the local log that were written, by kind and key.
    local: Vec<Option<Vec<u8>>>,
}

/// A file's length, and its pages that aren't all zero.
struct Image {
    len: u64,
    pages: Vec<(u64, Vec<u8>)>,
}

struct Original {
    images: [Image; 2],
    contents: Contents,
}

/// Each change is (what, where, with what). Whatever the changes are, the files are refused, or what is found is in order,
/// inside the files and the same when looked at again, and the log goes on. One changed byte is refused, or changes
/// nothing but the inside of one body (or, in a lane with gaps, one SSN within its gap): no record is lost, invented or
/// cut. What bodies hold is the business of who sends them; entries of the local log never change.
pub fn shared_log(data: &[u8]) {
    let original = original();
    let dir = scratch();
    for (name, image) in FILES.iter().zip(&original.images) {
        image.write(&dir.path().join(name));
    }
    let changed = change(&mut Unstructured::new(data), dir.path(), &original.images);
    let Some(found) = recover(dir.path()) else {
        assert!(changed > 0, "what nobody touched is refused");
        return;
    };
    is_in_order(&found);
    if changed <= 1 {
        is_the_same_but_for_a_byte(&found, &original.contents);
    }
    assert_eq!(recover(dir.path()).as_ref(), Some(&found), "another look finds something else");
    goes_on(dir.path(), &found);
}

/// Makes the changes that the input says; how many bytes differ now.
fn change(input: &mut Unstructured<'_>, dir: &Path, images: &[Image; 2]) -> usize {
    let files =
        FILES.map(|name| OpenOptions::new().read(true).write(true).open(dir.join(name)).expect("a file of ours"));
    let mut changed = 0;
    while let Ok(&[what, high, low, with]) = input.bytes(4) {
        let (file, image) = (&files[usize::from(what & 1)], &images[usize::from(what & 1)]);
        let at = image.place(u16::from_be_bytes([high, low]));
        changed += match what >> 1 & 7 {
            0 | 1 => write(file, at, &[with]),
            2 | 3 => write(file, at, &[read::<1>(file, at)[0] ^ with]),
            4 => write(file, at & !7, &[with; 8]),
            // A valid word in another place.
            5 => write(file, at & !7, &read::<8>(file, image.place(u16::from(with) * 257) & !7)),
            6 => write(file, at & !7, &read::<8>(file, at & !7).map(|byte| byte ^ with)),
            _ => {
                // Cut short, or longer than it was.
                let len = if with < 128 { at } else { image.len + u64::from(with) };
                file.set_len(len).expect("a length");
                2
            }
        };
    }
    changed
}

fn read<const N: usize>(file: &File, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    // What is behind the end of a file that was cut reads as zeros.
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
        let file = counterfoil::create_private_file(path).expect("a private file");
        file.set_len(self.len).expect("a length");
        for (at, page) in &self.pages {
            file.write_all_at(page, *at).expect("room for the pages");
        }
    }

    /// A number's offset in the file: all of them in pages that are used, so that changes matter.
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

/// What a replacement finds; `None` where the files are refused.
fn recover(dir: &Path) -> Option<Contents> {
    let (mut log, recovered) = Log::recover(options(dir)).ok()?;
    for &(peer, kept_from, last) in &recovered.lanes {
        assert!(peer.0 < RANKS && kept_from <= last.next() && log.next_ssn(peer) == last.next());
    }
    Some(contents(&mut log, recovered.local_entries))
}

fn contents(log: &mut Log, entries: usize) -> Contents {
    let lanes = (0..RANKS).map(|peer| shown(log, Rank(peer))).collect();
    let local = (1..=2).flat_map(|kind| (0..KEYS).map(move |key| (kind, key)));
    let local = local.map(|(kind, key)| log.local().get(kind, key).map(|entry| entry.bytes)).collect();
    Contents { lanes, entries, local }
}

fn shown(log: &mut Log, peer: Rank) -> Vec<Shown> {
    let from = log.kept_from(peer);
    let mut cursor = log.cursor(peer, from).expect("what is kept can be read");
    let mut shown = Vec::new();
    while let Some(record) = cursor.peek().expect("memory can be read") {
        shown.push((record.ssn().0, record.prefix().len(), record.wire().to_vec()));
        cursor.advance();
    }
    shown
}

fn is_in_order(found: &Contents) {
    for lane in &found.lanes {
        assert!(lane.is_sorted_by(|(a, ..), (b, ..)| a < b), "SSNs don't rise: {:?}", ssns(lane));
        assert!(lane.iter().all(|(ssn, ..)| (1..Ssn::MAX.0).contains(ssn)));
        let bytes: usize = lane.iter().map(|(.., wire)| 16 + wire.len()).sum();
        assert!(bytes <= 96 << 10, "more than the budget");
    }
    assert!(found.entries <= 16 << 10);
}

fn has_gaps(lane: &[Shown]) -> bool {
    lane.windows(2).any(|pair| pair[0].0 + 1 != pair[1].0)
}

fn ssns(lane: &[Shown]) -> Vec<u64> {
    lane.iter().map(|(ssn, ..)| *ssn).collect()
}

fn is_the_same_but_for_a_byte(found: &Contents, original: &Contents) {
    let mut differ = 0;
    for (found, original) in found.lanes.iter().zip(&original.lanes) {
        let framing = |lane: &[Shown]| lane.iter().map(|(_, prefix, wire)| (*prefix, wire.len())).collect::<Vec<_>>();
        assert_eq!(framing(found), framing(original));
        if has_gaps(original) {
            // Between its neighbours an SSN can be any: nothing says which are missing.
            differ += ssns(found).iter().zip(ssns(original)).filter(|(a, b)| **a != *b).count();
        } else {
            assert_eq!(ssns(found), ssns(original));
        }
        let bytes = |lane: &[Shown]| lane.iter().flat_map(|(.., wire)| wire.clone()).collect::<Vec<u8>>();
        differ += bytes(found).iter().zip(bytes(original)).filter(|(a, b)| **a != *b).count();
    }
    assert!(differ <= 1, "one byte was changed, but {differ} differ");
    // Each entry has a checksum, over its kind and key, too.
    assert_eq!((found.entries, &found.local), (original.entries, &original.local));
}

/// The replacement sends one more message on every lane and notes one more entry, and its own replacement finds them.
fn goes_on(dir: &Path, found: &Contents) {
    let (mut log, _) = Log::recover(options(dir)).expect("it was recovered before");
    let mut sent = Vec::new();
    for peer in (0..RANKS).map(Rank) {
        let next = log.next_ssn(peer);
        // Changed numbers can leave a lane at the last SSN, and a full log is one that was full.
        let Ok(mut claim) = log.try_claim(peer, 8, 40) else { continue };
        claim.prefix_mut().fill(1);
        claim.payload_mut().fill(2);
        assert_eq!(claim.commit(), next);
        sent.push((peer, next));
    }
    let noted = log.local().append(7, 7, b"one more").is_ok();
    drop(log);
    let again = recover(dir).expect("what the log wrote itself is not refused");
    for (peer, ssn) in sent {
        let (before, after) = (&found.lanes[peer.index()], &again.lanes[peer.index()]);
        assert_eq!(&after[..after.len() - 1], &before[..]);
        assert_eq!(after.last(), Some(&(ssn.0, 8, [vec![1; 8], vec![2; 40]].concat())));
    }
    assert_eq!(again.entries, found.entries + usize::from(noted));
}

/// The files that are changed: made once, with everything that a log can hold.
fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let dir = scratch();
        let mut log = Log::create(options(dir.path())).expect("a log");
        writes_everything(&mut log);
        let entries = log.local().len();
        let contents = contents(&mut log, entries);
        drop(log);
        Original { images: FILES.map(|name| Image::of(&dir.path().join(name))), contents }
    })
}

fn writes_everything(log: &mut Log) {
    // Lane 0: one record, of no bytes. Lane 1: several chunks, of which a checkpoint covers the first ones, and a part of
    // the next, which is moved together; pads.
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
    assert!(log.collect().relocated > 0, "the corpus has places in a moved chunk");
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
    // A claim that its owner was still writing when it died.
    let mut claim = log.try_claim(Rank(1), 0, 64).expect("room");
    claim.payload_mut().fill(0xEE);
    std::mem::forget(claim);
}
