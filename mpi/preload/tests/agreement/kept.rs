//! What the logs of a job have.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil::Rank;
use counterfoil::store::{BackendChoice, BlockBuffer, Directory, DirectoryAccess, LOCAL, StoreView};

use crate::hash::hash;

/// Bytes and hash of a message.
pub(crate) type Payload = (u64, u64);

/// Of one channel: communicator and tag, and of each the messages by number.
pub(crate) type Kept = BTreeMap<(u32, i32), BTreeMap<u64, Payload>>;

/// What is logged of each channel, without what was given to collective operations.
pub(crate) fn read(dir: &Path, ranks: u32) -> BTreeMap<(u32, u32), Kept> {
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
            let kept: &mut Kept = channels.entry((rank, peer)).or_default();
            for (ssn, (prefix, bytes, hash)) in by_ssn {
                let (comm, rest) = prefix.split_first_chunk::<4>().unwrap();
                let (tag, number) = rest.split_first_chunk::<4>().unwrap();
                let (comm, tag) = (u32::from_le_bytes(*comm), i32::from_le_bytes(*tag));
                let number = u64::from_le_bytes(number.try_into().unwrap());
                if tag >= 0 {
                    let before = kept.entry((comm, tag)).or_default().insert(number, (bytes, hash));
                    assert_eq!(before, None, "{rank} to {peer}: number {number} of tag {tag} twice, at {ssn}");
                }
            }
        }
    }
    channels
}
