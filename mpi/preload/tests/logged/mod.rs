//! Messages and contributions in a job's logs.

pub(crate) mod hash;

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil::{Record, Ssn};
use counterfoil_log_io::{
    BackendChoice, BlockBuffer, CheckpointImage, Directory, DirectoryAccess, LOCAL, LaneImage, StoreView,
};
use counterfoil_mpi_logger::Stream;
use counterfoil_profile::{COLLECTIVE, RecordTag};

use hash::hash;

/// Message length and hash.
pub(crate) type Payload = (u64, u64);

/// Streams between two ranks, by communicator and tag: messages by number.
///
/// The upper half of a communicator's number is the channel for partitioned messages.
pub(crate) type Logged = BTreeMap<(u64, i32), BTreeMap<u64, Payload>>;

/// Calls `each` with every record of a rank's messages and contributions: its lane, its header and the record.
///
/// Returns the checkpoint naming them.
pub(crate) fn for_each_record(
    dir: &Path,
    rank: u32,
    mut each: impl FnMut(&LaneImage, RecordTag, &Record<'_>),
) -> CheckpointImage {
    let dir = dir.join(format!("rank-{rank}"));
    let (mut backend, _) = Directory::open(&dir, BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
    let mut view = StoreView::new(&mut *backend).unwrap();
    let newest = *view.checkpoints().last().unwrap();
    let image = view.image(newest).unwrap();
    let mut buffer = BlockBuffer::default();
    for lane in image.lanes.iter().filter(|lane| lane.peer != LOCAL) {
        for block in &lane.blocks {
            view.read(block, &mut buffer).unwrap();
            for record in buffer.records() {
                each(lane, RecordTag::decode(record.prefix()).unwrap(), &record);
            }
        }
    }
    image
}

/// Reads each channel's (sender, receiver) messages, without contributions to collective operations.
pub(crate) fn read(dir: &Path, ranks: u32) -> BTreeMap<(u32, u32), Logged> {
    let mut channels = BTreeMap::new();
    for rank in 0..ranks {
        // A record written again is in two blocks.
        let mut lanes: BTreeMap<u32, BTreeMap<Ssn, (RecordTag, Payload)>> = BTreeMap::new();
        for_each_record(dir, rank, |lane, tag, record| {
            let payload = (record.payload().len() as u64, hash(record.payload()));
            lanes.entry(lane.peer.0).or_default().insert(record.ssn(), (tag, payload));
        });
        for (peer, lane) in lanes {
            let streams: &mut Logged = channels.entry((rank, peer)).or_default();
            for (ssn, (tag, payload)) in lane {
                let (Stream { comm, tag, channel, .. }, number) = Stream::of_record(peer, tag);
                if tag != COLLECTIVE {
                    let comm = u64::from(channel) << 32 | u64::from(comm);
                    let before = streams.entry((comm, tag)).or_default().insert(number, payload);
                    assert_eq!(before, None, "{rank} to {peer}: number {number} of tag {tag} appears twice, at {ssn}");
                }
            }
        }
    }
    channels
}
