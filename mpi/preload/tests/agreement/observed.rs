//! Messages observed by the witness.

use std::collections::BTreeMap;
use std::path::Path;

/// Messages sent by a rank to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages sent while the program had switched logging off.
    pub(crate) passed: u64,
}

/// Length of a received message, and its hash if the witness could compute it.
pub(crate) type Receipt = (u64, Option<u64>);

/// Messages on one channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) sent: Sent,
    /// Received messages in matching order, by the receiver's communicator number and the tag.
    pub(crate) received: BTreeMap<(i32, i32), Vec<Receipt>>,
}

/// Reads the output of all ranks' witnesses, by sender and receiver.
pub(crate) fn read(dir: &Path, ranks: u32) -> BTreeMap<(u32, u32), Observed> {
    let mut channels: BTreeMap<(u32, u32), Observed> = BTreeMap::new();
    for rank in 0..ranks {
        let text = std::fs::read_to_string(dir.join(format!("witness-{rank}"))).unwrap();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap();
            let unsigned = |at: usize| words[at].parse::<u64>().unwrap();
            let peer = u32::try_from(unsigned(1)).unwrap();
            if words[0] == "sent" {
                let sent = Sent { messages: unsigned(2), bytes: unsigned(3), passed: unsigned(4) };
                channels.entry((rank, peer)).or_default().sent = sent;
            } else {
                let observed = channels.entry((peer, rank)).or_default();
                let stream = (i32::try_from(number(2)).unwrap(), i32::try_from(number(3)).unwrap());
                let hash = (words[5] != "?").then(|| u64::from_str_radix(words[5], 16).unwrap());
                observed.received.entry(stream).or_default().push((unsigned(4), hash));
            }
        }
    }
    channels
}
