//! The log beside the witness.

use std::collections::BTreeMap;

use crate::kept::{Kept, Payload};
use crate::seen::{Receipt, Seen};

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages whose bytes the witness couldn't see.
    pub(crate) unseen: u64,
}

/// Whether a stream of the log is one that was received: each number has the bytes that were matched at that place. Says how many
/// are not in the log.
fn is_the_same(kept: &BTreeMap<u64, Payload>, received: &[Receipt]) -> Option<u64> {
    let last = kept.keys().next_back().copied().unwrap_or(0);
    if last > received.len() as u64 || kept.contains_key(&0) {
        return None;
    }
    let mut missing = 0;
    for (number, (bytes, hash)) in (1..).zip(received) {
        match kept.get(&number) {
            None => missing += 1,
            // What was cut off was longer.
            Some(kept) if hash.is_none() && kept.0 >= *bytes => {}
            Some(kept) if kept.0 == *bytes && *hash == Some(kept.1) => {}
            Some(_) => return None,
        }
    }
    Some(missing)
}

/// Compares each channel. Streams are compared as wholes: the witness gives communicators numbers of its own.
///
/// # Errors
/// What doesn't agree, a line for each.
pub(crate) fn compare(
    kept: &BTreeMap<(u32, u32), Kept>,
    seen: &BTreeMap<(u32, u32), Seen>,
) -> Result<Compared, Vec<String>> {
    let mut wrong = Vec::new();
    let mut compared = Compared::default();
    let none = Kept::new();
    for (&(from, to), seen) in seen {
        let kept = kept.get(&(from, to)).unwrap_or(&none);
        let payloads = || kept.values().flat_map(BTreeMap::values);
        let (messages, bytes) = (payloads().count() as u64, payloads().map(|(bytes, _)| bytes).sum::<u64>());
        let sent = seen.sent;
        if (messages, bytes) != (sent.messages, sent.bytes) {
            wrong.push(format!("{from} to {to}: {messages} messages of {bytes} bytes are logged, and {sent:?}"));
        }
        let received = seen.received.values().map(|stream| stream.len() as u64).sum::<u64>();
        if received != sent.messages + sent.passed {
            wrong.push(format!("{from} to {to}: {received} messages were received, and {sent:?}"));
        }
        let mut left: Vec<_> = kept.iter().collect();
        let mut missing = 0;
        for ((_, tag), stream) in &seen.received {
            let found = left.iter().position(|((_, other), kept)| tag == other && is_the_same(kept, stream) == Some(0));
            let found = found.or_else(|| {
                left.iter().position(|((_, other), kept)| tag == other && is_the_same(kept, stream).is_some())
            });
            match found {
                Some(at) => missing += is_the_same(left.remove(at).1, stream).unwrap_or(0),
                None if missing + stream.len() as u64 <= sent.passed => missing += stream.len() as u64,
                None => wrong.push(format!(
                    "{from} to {to}: no stream of the log has the {} messages that were received with tag {tag}",
                    stream.len()
                )),
            }
            compared.unseen += stream.iter().filter(|(_, hash)| hash.is_none()).count() as u64;
        }
        if missing != sent.passed {
            wrong.push(format!("{from} to {to}: {missing} messages are not logged, and {sent:?}"));
        }
        for ((comm, tag), stream) in left {
            wrong.push(format!(
                "{from} to {to}: nobody received the {} messages of tag {tag} on communicator {comm}",
                stream.len()
            ));
        }
        compared.messages += messages;
        compared.bytes += bytes;
    }
    for channel in kept.keys().filter(|channel| !seen.contains_key(channel) && !kept[channel].is_empty()) {
        wrong.push(format!("{} to {}: logged, and never sent", channel.0, channel.1));
    }
    if wrong.is_empty() { Ok(compared) } else { Err(wrong) }
}
