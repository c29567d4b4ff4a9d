//! Comparison of the log with the witness.

use std::collections::BTreeMap;

use crate::logged::{Logged, Payload};
use crate::observed::{Observed, Receipt};

/// Comparison totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages whose bytes the witness couldn't see.
    pub(crate) unseen: u64,
}

/// Compares a logged stream with a received one, number by number.
///
/// Returns the number of messages missing from the log; `None` if the two differ otherwise.
fn count_missing(logged: &BTreeMap<u64, Payload>, received: &[Receipt]) -> Option<u64> {
    let last = logged.keys().next_back().copied().unwrap_or(0);
    if last > received.len() as u64 || logged.contains_key(&0) {
        return None;
    }
    let mut missing = 0;
    for (number, (bytes, hash)) in (1..).zip(received) {
        match logged.get(&number) {
            None => missing += 1,
            // A truncated message is longer in the log.
            Some(payload) if hash.is_none() && payload.0 >= *bytes => {}
            Some(payload) if payload.0 == *bytes && *hash == Some(payload.1) => {}
            Some(_) => return None,
        }
    }
    Some(missing)
}

/// Compares each channel.
///
/// Streams are matched as wholes, because the witness numbers communicators differently.
///
/// # Errors
/// A line for each difference.
pub(crate) fn compare(
    logged: &BTreeMap<(u32, u32), Logged>,
    observed: &BTreeMap<(u32, u32), Observed>,
) -> Result<Compared, Vec<String>> {
    let mut differences = Vec::new();
    let mut compared = Compared::default();
    let none = Logged::new();
    for (&(from, to), seen) in observed {
        let streams = logged.get(&(from, to)).unwrap_or(&none);
        let payloads = || streams.values().flat_map(BTreeMap::values);
        let (messages, bytes) = (payloads().count() as u64, payloads().map(|(bytes, _)| bytes).sum::<u64>());
        let sent = seen.sent;
        if (messages, bytes) != (sent.messages, sent.bytes) {
            differences.push(format!("{from} to {to}: {messages} messages of {bytes} bytes are logged, and {sent:?}"));
        }
        let received = seen.received.values().map(|stream| stream.len() as u64).sum::<u64>();
        if received != sent.messages + sent.passed {
            differences.push(format!("{from} to {to}: {received} messages were received, and {sent:?}"));
        }
        let mut left: Vec<_> = streams.iter().collect();
        let mut missing = 0;
        for ((_, tag), stream) in &seen.received {
            let find = |complete: bool| {
                left.iter().position(|((_, other), logged)| {
                    let missing = count_missing(logged, stream);
                    tag == other && if complete { missing == Some(0) } else { missing.is_some() }
                })
            };
            let found = find(true).or_else(|| find(false));
            match found {
                Some(at) => missing += count_missing(left.remove(at).1, stream).unwrap_or(0),
                None if missing + stream.len() as u64 <= sent.passed => missing += stream.len() as u64,
                None => differences.push(format!(
                    "{from} to {to}: no stream of the log has the {} messages received with tag {tag}",
                    stream.len()
                )),
            }
            compared.unseen += stream.iter().filter(|(_, hash)| hash.is_none()).count() as u64;
        }
        if missing != sent.passed {
            differences.push(format!("{from} to {to}: {missing} messages are not logged, and {sent:?}"));
        }
        for ((comm, tag), stream) in left {
            differences.push(format!(
                "{from} to {to}: the {} messages with tag {tag} on communicator {comm} were never received",
                stream.len()
            ));
        }
        compared.messages += messages;
        compared.bytes += bytes;
    }
    for channel in logged.keys().filter(|channel| !observed.contains_key(channel) && !logged[channel].is_empty()) {
        differences.push(format!("{} to {}: logged but never sent", channel.0, channel.1));
    }
    if differences.is_empty() { Ok(compared) } else { Err(differences) }
}
