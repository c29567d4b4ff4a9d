//! Messages in the logs of a job.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil::Rank;
use counterfoil_log_io::{BackendChoice, BlockBuffer, Directory, DirectoryAccess, LOCAL, StoreView};

use crate::hash::hash;

/// Length and hash of a message.
pub(crate) type Payload = (u64, u64);

/// Streams of one channel, by communicator and tag: messages by number.
pub(crate) type Logged = BTreeMap<(u32, i32), BTreeMap<u64, Payload>>;

/// Reads the messages of each channel (sender, receiver), without contributions to collective operations.
pub(crate) fn read(dir: &Path, ranks: u32) -> BTreeMap<(u32, u32), Logged> {
    let mut channels = BTreeMap::new();
    for rank in 0..ranks {
        let dir = dir.join(format!("rank-{rank}"));
        let (mut backend, _) = Directory::open(&dir, BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
        let mut view = StoreView::new(&mut *backend).unwrap();
        let newest = *view.checkpoints().last().unwrap();
        let image = view.image(newest).unwrap();
        let mut buffer = BlockBuffer::default();
        for lane in image.lanes.iter().filter(|lane| lane.peer != LOCAL) {
            let Rank(peer) = lane.peer;
            let mut by_ssn = BTreeMap::new();
            for block in &lane.blocks {
                view.read(block, &mut buffer).unwrap();
                for record in buffer.records() {
                    let prefix: [u8; 16] = record.prefix().try_into().unwrap();
                    by_ssn.insert(record.ssn(), (prefix, record.payload().len() as u64, hash(record.payload())));
                }
            }
            let streams: &mut Logged = channels.entry((rank, peer)).or_default();
            for (ssn, (prefix, bytes, hash)) in by_ssn {
                let (comm, rest) = prefix.split_first_chunk::<4>().unwrap();
                let (tag, number) = rest.split_first_chunk::<4>().unwrap();
                let (comm, tag) = (u32::from_le_bytes(*comm), i32::from_le_bytes(*tag));
                let number = u64::from_le_bytes(number.try_into().unwrap());
                if tag >= 0 {
                    let before = streams.entry((comm, tag)).or_default().insert(number, (bytes, hash));
                    assert_eq!(before, None, "{rank} to {peer}: number {number} of tag {tag} appears twice, at {ssn}");
                }
            }
        }
    }
    channels
}
