//! Neighbour exchange on a torus.

use super::Message;
use super::sends::Sends;

/// Torus of ranks with up to three axes, the first being the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torus {
    extents: [u32; 3],
    bytes: u64,
}

impl Torus {
    /// Creates a torus; `None` if an extent is 0 or the number of ranks exceeds a `u32`.
    pub(super) fn new(extents: [u32; 3], bytes: u64) -> Option<Torus> {
        let ranks = extents.iter().try_fold(1_u32, |ranks, &extent| ranks.checked_mul(extent))?;
        (ranks > 0).then_some(Torus { extents, bytes })
    }

    pub(super) fn ranks(&self) -> u32 {
        self.extents.iter().product()
    }

    /// Returns the messages sent by `rank`, all in one step: no border depends on another.
    pub(super) fn sends(&self, rank: u32) -> Vec<Message> {
        let mut sends = Sends::new(rank);
        let mut stride = 1;
        for extent in self.extents {
            let at = rank / stride % extent;
            for to in [if at + 1 == extent { 0 } else { at + 1 }, if at == 0 { extent - 1 } else { at - 1 }] {
                sends.send(rank - at * stride + to * stride, self.bytes);
            }
            stride *= extent;
        }
        sends.finish()
    }
}
