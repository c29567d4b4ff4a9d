//! What was written comes back, and nothing that was changed does.

use super::*;

const RANK: u32 = 1;
const RANKS: u32 = 3;

fn message(ssn: u64) -> Message {
    Message { source: 2, tag: -4, comm: 1, ssn, payload: Bytes::from(vec![ssn as u8; 9]) }
}

fn counters() -> Counters {
    Counters {
        trace: TraceCounters { events: 17, sent: vec![4, 0, 5] },
        collectives: 3,
        iteration: 2,
        logged: (9, 900),
    }
}

fn write(directory: &Path, epoch: Epoch) {
    let mut writer = CheckpointWriter::create(directory, RANK, RANKS, epoch).unwrap();
    writer.application(b"state of the program").unwrap();
    writer.tables(b"tables").unwrap();
    writer.counters(&counters()).unwrap();
    writer.lane(0, 6).unwrap();
    writer.record(4, b"prefix", b"four").unwrap();
    writer.record(5, b"prefix", b"").unwrap();
    writer.lane(2, 1).unwrap();
    writer.unexpected(&message(7)).unwrap();
    writer.commit().unwrap();
}

fn read(directory: &Path) -> Result<Option<Image>, CheckpointError> {
    read_newest(directory, RANK, RANKS)
}

#[test]
fn what_was_written_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(read(directory.path()).unwrap(), None);
    write(directory.path(), Epoch(2));
    let record = |ssn, payload: &'static str| RecordImage { ssn, prefix: "prefix".into(), payload: payload.into() };
    let expected = Image {
        epoch: Epoch(2),
        application: "state of the program".into(),
        tables: "tables".into(),
        counters: counters(),
        lanes: vec![
            LaneImage { peer: 0, next_ssn: 6, records: vec![record(4, "four"), record(5, "")] },
            LaneImage { peer: 2, next_ssn: 1, records: vec![] },
        ],
        unexpected: vec![message(7)],
    };
    assert_eq!(read(directory.path()).unwrap(), Some(expected));
}

#[test]
fn a_newer_one_takes_the_place_of_the_older() {
    let directory = tempfile::tempdir().unwrap();
    (2..=11).for_each(|epoch| write(directory.path(), Epoch(epoch)));
    assert_eq!(read(directory.path()).unwrap().unwrap().epoch, Epoch(11));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn an_unfinished_one_is_no_checkpoint_and_does_not_hinder_the_next() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), Epoch(2));
    let mut writer = CheckpointWriter::create(directory.path(), RANK, RANKS, Epoch(3)).unwrap();
    writer.application(b"half").unwrap();
    std::mem::forget(writer); // as SIGKILL does
    assert_eq!(read(directory.path()).unwrap().unwrap().epoch, Epoch(2));
    write(directory.path(), Epoch(3));
    assert_eq!(read(directory.path()).unwrap().unwrap().epoch, Epoch(3));
    let writer = CheckpointWriter::create(directory.path(), RANK, RANKS, Epoch(4)).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn every_changed_byte_and_every_cut_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), Epoch(2));
    let path = directory.path().join(file_name(RANK, Epoch(2)));
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = good.clone();
            damaged[at] ^= flip;
            fs::write(&path, &damaged).unwrap();
            let error = read(directory.path()).unwrap_err();
            let expected = match at {
                8..12 => matches!(error, CheckpointError::Version { .. }),
                _ => matches!(error, CheckpointError::Damaged { .. }),
            };
            assert!(expected, "byte {at}: {error}");
        }
        fs::write(&path, &good[..at]).unwrap();
        assert!(matches!(read(directory.path()), Err(CheckpointError::Damaged { .. })), "cut at {at}");
    }
    let mut longer = good.clone();
    longer.push(0);
    fs::write(&path, &longer).unwrap();
    assert!(matches!(read(directory.path()), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_damaged_one_is_not_passed_over_for_an_older() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), Epoch(2));
    fs::write(directory.path().join(file_name(RANK, Epoch(3))), b"not a checkpoint at all, but long enough for one")
        .unwrap();
    assert!(matches!(read(directory.path()), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn another_ranks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), Epoch(2));
    let path = directory.path().join(file_name(RANK, Epoch(2)));
    fs::rename(&path, directory.path().join(file_name(0, Epoch(2)))).unwrap();
    let error = read_newest(directory.path(), 0, RANKS).unwrap_err();
    assert!(matches!(error, CheckpointError::OtherRank { rank: RANK, ranks: RANKS, .. }), "{error}");
}
